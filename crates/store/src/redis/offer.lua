-- ARGV: epoch, '1' for the copy of a gateway without a store, (key, version, then each of four fields as `read_field` reads it)…
-- Fills absent records, and replaces earlier versions that no commit of this epoch has changed. 'o' is the version that was offered.
if is_other_epoch(false) then return OTHER_EPOCH end
local is_alone, since = ARGV[2] == '1', before_epoch()
local is_recovering = redis.call('HGET', KEYS[1], 'recovering') ~= ''
local at = 3
while at < #ARGV do
  local key, offered, fields = ARGV[at], tonumber(ARGV[at + 1]), {}
  at = at + 2
  for name = 0, 3 do fields[name], at = read_field(at) end
  local record = record_of(key)
  of_kind(record, 'hash')
  local current = redis.call('HMGET', record, 'v', 'o', '1')
  local version = tonumber(current[1] or '')
  local is_lone = current[2] == 'alone'
  local known = tonumber(current[2] or '') or version
  local is_before = version and (current[2] or version <= since)
  local differs = essence(current[3] or '') ~= essence(fields[1].content or '')
  if not version and not is_recovering and redis.call('ZSCORE', index, key) then
    -- Somebody removed it, and other replicas may know a later one.
    make_unreadable(key)
  elseif is_before and differs and (is_alone or is_lone or (offered == 0 and known == 0)) then
    -- It is not known which of the two is later.
    make_unreadable(key)
    if not is_alone and not is_lone then redis.call('HSET', record, 'o', '0') end
  elseif not version or (is_before and not is_lone and known < offered) then
    local highest = math.max(tonumber(redis.call('HGET', KEYS[1], 'highest') or '0'), offered) + 1
    redis.call('HSET', KEYS[1], 'highest', whole(highest))
    remove(key)
    redis.call('HSET', record, 'v', whole(highest), 'o', is_alone and 'alone' or whole(offered))
    for name = 0, 3 do write_field(key, name, fields[name]) end
    note(key, whole(highest))
  elseif redis.call('ZSCORE', written, key) then
    -- The list of versions may lack it.
    version_of(key)
  else
    renumber(key, current[1])
  end
end
return 1
