-- ARGV: list, kept ms, (name, value)…
local list = base .. 'notes:' .. ARGV[1]
of_kind(list, 'hash')
for i = 3, #ARGV, 2 do
  redis.call('HSET', list, ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', list, ARGV[2])
return 1
