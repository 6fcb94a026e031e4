-- ARGV: epoch, invalidation, replica or '', leased key or '', number of expected, (key, version)…, number of writes,
-- (key, field, '1' or '0' for a removal, content)…
-- Returns the version, or '0' when something has changed.
if is_other_epoch(true) then return OTHER_EPOCH end
if (redis.call('HGET', KEYS[1], 'invalidation') or '0') ~= ARGV[2] then return '0' end
local at = 6
for _ = 1, tonumber(ARGV[5]) do
  local version = version_of(ARGV[at])
  if version and version ~= ARGV[at + 1] then return '0' end
  at = at + 2
end
local writes = tonumber(ARGV[at])
at = at + 1
-- Nothing fails from here on. A record of another kind would, and leave a part of the commit behind.
for write = 0, writes - 1 do version_of(ARGV[at + 4 * write]) end
local lease = ARGV[3] ~= '' and base .. 'lease:' .. ARGV[4]
local is_ours = lease and of_kind(lease, 'string') and redis.call('GET', lease) == ARGV[3]
local version = whole(next_number())
for _ = 1, writes do
  local record = record_of(ARGV[at])
  if ARGV[at + 2] == '1' then
    redis.call('HSET', record, ARGV[at + 1], ARGV[at + 3], 'v', version)
  else
    redis.call('HDEL', record, ARGV[at + 1])
    redis.call('HSET', record, 'v', version)
  end
  redis.call('HDEL', record, 'o')
  note(ARGV[at], version)
  at = at + 4
end
if is_ours then redis.call('DEL', lease) end
notify()
return version
