-- ARGV: epoch, invalidation, replica or '', leased key or '', number of expected, (key, version)…, number of writes,
-- (key, field, its content as `read_field` reads it)…
-- Returns the version, '0' when something has changed, or '-1' when chunks are missing.
if is_other_epoch(true) then return OTHER_EPOCH end
if (redis.call('HGET', KEYS[1], 'invalidation') or '0') ~= ARGV[2] then return '0' end
local at = 6
for _ = 1, tonumber(ARGV[5]) do
  local version = version_of(ARGV[at])
  if version and version ~= ARGV[at + 1] then return '0' end
  at = at + 2
end
local writes = {}
local count = tonumber(ARGV[at])
at = at + 1
for write = 1, count do
  local key, name = ARGV[at], ARGV[at + 1]
  local field
  field, at = read_field(at + 2)
  writes[write] = {key = key, name = name, field = field}
end
for _, write in ipairs(writes) do version_of(write.key) end
for _, write in ipairs(writes) do
  if lacks_chunks(write.key, write.name, write.field) then return '-1' end
end
-- Nothing fails from here on. A record of another kind would, and leave a part of the commit behind.
local lease = ARGV[3] ~= '' and base .. 'lease:' .. ARGV[4]
local is_ours = lease and of_kind(lease, 'string') and redis.call('GET', lease) == ARGV[3]
local version = whole(next_number())
for _, write in ipairs(writes) do
  local record = record_of(write.key)
  write_field(write.key, write.name, write.field)
  redis.call('HSET', record, 'v', version)
  redis.call('HDEL', record, 'o')
  note(write.key, version)
end
if is_ours then redis.call('DEL', lease) end
notify()
return version
