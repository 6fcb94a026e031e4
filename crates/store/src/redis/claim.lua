-- ARGV: name, lasts ms
local claim = base .. 'claim:' .. ARGV[1]
-- A claim that does not end is none of a replica's.
if redis.call('PTTL', claim) == -1 then redis.call('DEL', claim) end
return redis.call('SET', claim, '1', 'NX', 'PX', ARGV[2]) and 1 or 0
