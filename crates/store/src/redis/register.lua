-- ARGV: epoch, (route, revision)…
if is_other_epoch(true) then return OTHER_EPOCH end
of_kind(base .. 'revisions', 'hash')
for i = 2, #ARGV, 2 do
  redis.call('HSET', base .. 'revisions', ARGV[i], ARGV[i + 1])
end
notify()
return 1
