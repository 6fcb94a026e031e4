-- ARGV: list
return redis.call('HGETALL', base .. 'notes:' .. ARGV[1])
