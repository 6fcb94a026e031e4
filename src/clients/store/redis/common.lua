-- What all scripts share. KEYS[1] is the hash of the store's state. All other keys have the same prefix, and so the same hash tag.
-- This file comes before each script.
local base = string.sub(KEYS[1], 1, -5)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function whole(number)
  return string.format('%.0f', number)
end

local function record_of(key)
  return base .. 'r:' .. key
end

-- The id of this server's process. Another one: a restart or a failover, which may have lost writes.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

-- Whether the replica knows another epoch than the store holds. With `strict`, also while the store recovers.
local function is_other_epoch(strict)
  local state = redis.call('HMGET', KEYS[1], 'epoch', 'run', 'recovering')
  return state[1] ~= ARGV[1] or state[2] ~= run_id() or (strict and state[3] ~= false and state[3] ~= '')
end

local OTHER_EPOCH = redis.error_reply('EPOCH the store holds another epoch, or recovers')

local function notify()
  redis.call('XADD', base .. 'wake', 'MAXLEN', '~', '100', '*', 'at', whole(now))
end

local function next_number()
  return redis.call('HINCRBY', KEYS[1], 'highest', 1)
end

-- Notes that the record under `key` has a new version. `index` has all records by version, `written` by time.
local function note(key, version)
  redis.call('ZADD', base .. 'index', version, key)
  redis.call('ZADD', base .. 'written', whole(now), key)
  redis.call('HSET', KEYS[1], 'has_records', '1')
end

-- The version of the record under `key`; false if there never was one. Somebody may have removed a record, or put another value in its
-- place. What it held is then unknown, so this stores a record that nobody can read.
local function version_of(key)
  local record = record_of(key)
  local version = redis.pcall('HGET', record, 'v')
  if type(version) == 'string' and tonumber(version) then return version end
  if version == false and not redis.call('ZSCORE', base .. 'index', key) then return false end
  version = whole(next_number())
  redis.call('DEL', record)
  redis.call('HSET', record, 'v', version, '0', '', '1', '', '2', '')
  note(key, version)
  return version
end
