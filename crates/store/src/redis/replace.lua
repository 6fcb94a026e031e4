-- ARGV: epoch, key, version, (field, its content as `read_field` reads it)…
-- Writes the same content in another form, if the record has this version. The version stays.
if is_other_epoch(true) then return OTHER_EPOCH end
local record = record_of(ARGV[2])
if redis.pcall('HGET', record, 'v') ~= ARGV[3] then return 0 end
local at = 4
while at < #ARGV do
  local name = ARGV[at]
  local field
  field, at = read_field(at + 1)
  write_field(ARGV[2], name, field)
end
return 1
