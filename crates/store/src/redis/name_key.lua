-- ARGV: the ids of the replica's keys; the first is the one that it writes with. None: the replica has no keys.
-- Returns '', or the id of the key that the records are made with if the replica does not have it.
local name = base .. 'key'
local found = redis.pcall('GET', name)
if type(found) ~= 'string' then found = '' end
local has = found == ''
for _, id in ipairs(ARGV) do has = has or id == found end
if not has then return found end
if ARGV[1] and ARGV[1] ~= found then
  redis.call('DEL', name)
  redis.call('SET', name, ARGV[1])
end
return ''
