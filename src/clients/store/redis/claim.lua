-- ARGV: name, lasts ms
return redis.call('SET', base .. 'claim:' .. ARGV[1], '1', 'NX', 'PX', ARGV[2]) and 1 or 0
