-- ARGV: list
local list = base .. 'notes:' .. ARGV[1]
if not of_kind(list, 'hash') then return {} end
return redis.call('HGETALL', list)
