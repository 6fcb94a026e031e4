-- ARGV: epoch, (key, field, number of ids, id…)…
-- The chunks of long fields: for each of them a list, with nothing in the place of a chunk that is not there.
if is_other_epoch(true) then return OTHER_EPOCH end
-- More results of `unpack` than this may not fit on the stack.
local BATCH = 1000
local found, at = {}, 2
while at < #ARGV do
  local chunks, count = chunks_of(ARGV[at], ARGV[at + 1]), tonumber(ARGV[at + 2])
  local last, list = at + 2 + count, {}
  local is_there = of_kind(chunks, 'hash')
  for first = at + 3, last, BATCH do
    local ids = {unpack(ARGV, first, math.min(first + BATCH - 1, last))}
    local part = is_there and redis.call('HMGET', chunks, unpack(ids)) or {}
    for i = 1, #ids do list[#list + 1] = part[i] or '' end
  end
  found[#found + 1] = list
  at = last + 1
end
return found
