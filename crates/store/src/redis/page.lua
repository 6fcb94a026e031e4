-- ARGV: epoch, version
-- Records with a later version, in the order of their versions, and '1' if these are all. Records of one commit come together.
if is_other_epoch(true) then return OTHER_EPOCH end
local BATCH = 64
local index = base .. 'index'
local keys = redis.call('ZRANGEBYSCORE', index, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, BATCH)
local is_last = #keys < 2 * BATCH
if not is_last then
  local last = keys[#keys]
  keys = redis.call('ZRANGEBYSCORE', index, '(' .. ARGV[2], last, 'WITHSCORES')
end
local records = {}
for i = 1, #keys, 2 do
  local fields = redis.pcall('HMGET', record_of(keys[i]), 'v', '0', '1', '2', '3')
  -- Something else may be in its place. The next sync notices that.
  if not fields.err and fields[1] then records[#records + 1] = {keys[i], fields} end
end
return {is_last and '1' or '0', keys[#keys] or ARGV[2], records}
