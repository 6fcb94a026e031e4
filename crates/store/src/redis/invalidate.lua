-- ARGV: epoch, selector, how many to keep
if is_other_epoch(true) then return OTHER_EPOCH end
of_kind(base .. 'invalidations', 'list')
local number = redis.call('HINCRBY', KEYS[1], 'invalidation', 1)
redis.call('RPUSH', base .. 'invalidations', whole(number) .. ' ' .. ARGV[2])
redis.call('LTRIM', base .. 'invalidations', -tonumber(ARGV[3]), -1)
notify()
return number
