-- What all scripts share. KEYS[1] is the hash of the store's state. All other keys have the same prefix, and so the same hash tag.
-- This file comes before each script.
local base = string.sub(KEYS[1], 1, -5)
local index, written = base .. 'index', base .. 'written'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function whole(number)
  return string.format('%.0f', number)
end

local function record_of(key)
  return base .. 'r:' .. key
end

-- The chunks of a long field, by their ids. The field itself has MARK, then the hash and the length of its content (40 bytes), then the ids
-- of its chunks (12 bytes each).
local MARK = '\0chunks\0'
local function chunks_of(key, field)
  return base .. 'c:' .. key .. field
end

-- What is the same for equal contents, however they are cut.
local function essence(content)
  return string.sub(content, 1, #MARK) == MARK and string.sub(content, 1, #MARK + 40) or content
end

-- Removes the record under `key`, with its chunks.
local function remove(key)
  redis.call('DEL', record_of(key), chunks_of(key, 0), chunks_of(key, 1), chunks_of(key, 2), chunks_of(key, 3))
end

-- Removes what somebody else wrote under `key`, if it is of another kind. Returns whether there is something.
local function of_kind(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then redis.call('DEL', key) end
  return found == kind
end

-- The id of this server's process. Another one: a restart or a failover, which may have lost writes.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

-- Whether the replica has another epoch than the store. With `strict`, also while the store recovers.
local function is_other_epoch(strict)
  local state = redis.call('HMGET', KEYS[1], 'epoch', 'run', 'recovering')
  return state[1] ~= ARGV[1] or state[2] ~= run_id() or (strict and state[3] ~= '')
end

local OTHER_EPOCH = redis.error_reply('EPOCH the store holds another epoch, or recovers')

local function notify()
  of_kind(base .. 'wake', 'stream')
  redis.call('XADD', base .. 'wake', 'MAXLEN', '~', '100', '*', 'at', whole(now))
end

local function next_number()
  return redis.call('HINCRBY', KEYS[1], 'highest', 1)
end

-- How many records the two lists have: `index` has all of them by version, `written` by time.
local function sizes()
  return whole(redis.call('ZCARD', index)) .. ' ' .. whole(redis.call('ZCARD', written))
end

-- Changes the lists, and notes their sizes. If the sizes before were not those that were noted, something else has changed the lists.
-- They are left wrong then, and the next sync sees that the store is in pieces.
local function keeping_sizes(change)
  local is_whole = redis.call('HGET', KEYS[1], 'sizes') == sizes()
  change()
  if is_whole then redis.call('HSET', KEYS[1], 'sizes', sizes()) end
end

-- Notes that the record under `key` has a new version.
local function note(key, version)
  keeping_sizes(function()
    redis.call('ZADD', index, version, key)
    redis.call('ZADD', written, whole(now), key)
  end)
end

-- Numbers up to this one are from before the epoch.
local function before_epoch()
  return tonumber(redis.call('HGET', KEYS[1], 'since') or '0') or 0
end

-- Gives the record under `key` a new version, so that every replica reads it. 'o' remains the version that counts among offers, if no
-- commit of this epoch has changed it.
local function renumber(key, version)
  local record, number = record_of(key), whole(next_number())
  if not redis.call('HGET', record, 'o') and tonumber(version) <= before_epoch() then
    redis.call('HSET', record, 'o', version)
  end
  redis.call('HSET', record, 'v', number)
  note(key, number)
  return number
end

-- Makes the record under `key` one that nobody can read: what it held is unknown.
local function make_unreadable(key)
  local record, number = record_of(key), whole(next_number())
  remove(key)
  redis.call('HSET', record, 'v', number, '0', '', '1', '', '2', '')
  note(key, number)
  return number
end

-- The version of the record under `key`; false if there never was one. Somebody may have removed a record, or put another value in its
-- place: it then becomes unreadable. One that the list of versions lacks, or has with another version, gets a new one.
local function version_of(key)
  local record, listed = record_of(key), redis.call('ZSCORE', index, key)
  local version = redis.pcall('HGET', record, 'v')
  if type(version) == 'string' and string.match(version, '^%d+$') then
    if listed and tonumber(listed) == tonumber(version) then return version end
    return renumber(key, version)
  end
  if version == false and not listed and redis.call('EXISTS', record) == 0 then return false end
  return make_unreadable(key)
end

-- Reads a field from the arguments: '1' or '0' for none, content, number of chunks, (id, chunk)… Returns it, and where the next argument is.
local function read_field(at)
  local field = {content = ARGV[at] == '1' and ARGV[at + 1], ids = {}, chunks = {}}
  local count = tonumber(ARGV[at + 2])
  for chunk = at + 3, at + 1 + 2 * count, 2 do field.chunks[ARGV[chunk]] = ARGV[chunk + 1] end
  if field.content and string.sub(field.content, 1, #MARK) == MARK then
    for id = #MARK + 41, #field.content, 12 do field.ids[string.sub(field.content, id, id + 11)] = true end
  end
  return field, at + 3 + 2 * count
end

-- Whether chunks of `field` are neither in the arguments nor there.
local function lacks_chunks(key, name, field)
  local chunks, there = chunks_of(key, name), {}
  if next(field.ids) and of_kind(chunks, 'hash') then
    for _, id in ipairs(redis.call('HKEYS', chunks)) do there[id] = true end
  end
  for id in pairs(field.ids) do
    if not there[id] and not field.chunks[id] then return true end
  end
  return false
end

-- Writes a field with its chunks, or removes it. Chunks that it does not have any more leave.
local function write_field(key, name, field)
  local chunks = chunks_of(key, name)
  if field.content then
    redis.call('HSET', record_of(key), name, field.content)
  else
    redis.call('HDEL', record_of(key), name)
  end
  if not next(field.ids) then
    redis.call('DEL', chunks)
    return
  end
  of_kind(chunks, 'hash')
  for id, chunk in pairs(field.chunks) do redis.call('HSET', chunks, id, chunk) end
  for _, id in ipairs(redis.call('HKEYS', chunks)) do
    if not field.ids[id] then redis.call('HDEL', chunks, id) end
  end
end
