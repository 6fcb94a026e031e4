-- ARGV: epoch, (key, version, then for each of four fields: '1' or '0', content)…
-- Fills absent records. During a recovery, a later version also replaces an earlier one. 'o' is the version that was offered.
if is_other_epoch(false) then return OTHER_EPOCH end
local recovering = redis.call('HGET', KEYS[1], 'recovering')
recovering = recovering and recovering ~= ''
for at = 2, #ARGV, 10 do
  local record, offered = record_of(ARGV[at]), tonumber(ARGV[at + 1])
  local current = redis.pcall('HMGET', record, 'v', 'o')
  if current.err then current = {} end
  local is_older = recovering and current[1] and tonumber(current[2] or current[1]) < offered
  if is_older or not current[1] then
    local highest = math.max(tonumber(redis.call('HGET', KEYS[1], 'highest') or '0'), offered) + 1
    redis.call('HSET', KEYS[1], 'highest', whole(highest))
    redis.call('DEL', record)
    redis.call('HSET', record, 'v', whole(highest), 'o', whole(offered))
    for field = 0, 3 do
      if ARGV[at + 2 + 2 * field] == '1' then redis.call('HSET', record, whole(field), ARGV[at + 3 + 2 * field]) end
    end
    note(ARGV[at], whole(highest))
  end
end
return 1
