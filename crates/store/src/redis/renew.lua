-- ARGV: epoch, replica, key, lease ms
if is_other_epoch(false) then return OTHER_EPOCH end
local lease = base .. 'lease:' .. ARGV[3]
if not of_kind(lease, 'string') or redis.call('GET', lease) ~= ARGV[2] then return 0 end
return redis.call('PEXPIRE', lease, ARGV[4])
