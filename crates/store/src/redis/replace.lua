-- ARGV: epoch, key, version, (field, content)…
-- Writes the same content in another form, if the record has this version. The version stays.
if is_other_epoch(true) then return OTHER_EPOCH end
local record = record_of(ARGV[2])
if redis.pcall('HGET', record, 'v') ~= ARGV[3] then return 0 end
for i = 4, #ARGV, 2 do
  redis.call('HSET', record, ARGV[i], ARGV[i + 1])
end
return 1
