-- ARGV: epoch, replica, key, version, lease ms
if is_other_epoch(true) then return OTHER_EPOCH end
local version = tonumber(version_of(ARGV[3]) or '0')
if version > tonumber(ARGV[4]) then return {'behind', '0'} end
local lease = base .. 'lease:' .. ARGV[3]
local owner = of_kind(lease, 'string') and redis.call('GET', lease)
if owner and owner ~= ARGV[2] then
  -- A lease that lasts longer than leases do is none of a replica's.
  local left = redis.call('PTTL', lease)
  if left > 0 and left <= tonumber(ARGV[5]) then return {'theirs', whole(left)} end
end
redis.call('SET', lease, ARGV[2], 'PX', ARGV[5])
return {'ours', whole(next_number())}
