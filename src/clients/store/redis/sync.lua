-- ARGV: epoch or '', replica, version, invalidation, highest, copy, has_offered, live ms, shortest recovery ms, longest recovery ms,
-- is_serving, contact ms, is_current, offering ms
-- Something else may have written below the prefix. What has the wrong type is removed; a list of records that is gone is noticed below.
for name, kind in pairs({index = 'zset', written = 'zset', replicas = 'hash', revisions = 'hash', invalidations = 'list'}) do
  local found = redis.call('TYPE', base .. name).ok
  if found ~= 'none' and found ~= kind then redis.call('DEL', base .. name) end
end
local state = redis.call('HMGET', KEYS[1], 'epoch', 'run', 'highest', 'recovering', 'lost_at', 'invalidation', 'has_records', 'settled')
local index = base .. 'index'
local epoch, run = state[1], run_id()
local recovering = state[4]
if recovering == '' then recovering = false end
-- A new process may have lost writes. So has a server whose list of records is gone, or whose numbers went back.
local has_gone_back = epoch == ARGV[1] and (tonumber(state[3]) or 0) < tonumber(ARGV[5])
if not epoch or state[2] ~= run or has_gone_back or (state[7] == '1' and redis.call('EXISTS', index) == 0) then
  epoch, recovering = run .. '-' .. whole(now), whole(now)
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'run', run, 'recovering', recovering, 'has_records', '')
  redis.call('DEL', base .. 'replicas')
end
local is_known = epoch == ARGV[1]
local highest = math.max(tonumber(state[3]) or 0, tonumber(ARGV[5]))
redis.call('HSET', KEYS[1], 'highest', whole(highest))

local offered = is_known and ARGV[7] or '0'
local function enter(serving)
  local fields = {ARGV[6], offered, whole(now), serving, ARGV[3], ARGV[13]}
  redis.call('HSET', base .. 'replicas', ARGV[2], table.concat(fields, ' '))
end
enter(is_known and ARGV[11] or '0')
local replicas, all_offered, any_complete, all_empty, current = 0, true, false, true, 0
local entries = redis.call('HGETALL', base .. 'replicas')
for i = 1, #entries, 2 do
  local copy, has_offered, at, is_current = string.match(entries[i + 1], '^(%d) (%d) (%d+) %d %d+ (%d)$')
  local may_offer = recovering and copy ~= '0' and has_offered == '0'
  if not at or now - tonumber(at) >= tonumber(may_offer and ARGV[14] or ARGV[8]) then
    redis.call('HDEL', base .. 'replicas', entries[i])
  else
    replicas = replicas + 1
    if is_current == '1' then current = current + 1 end
    all_offered = all_offered and has_offered == '1'
    any_complete = any_complete or copy == '2'
    all_empty = all_empty and copy == '0'
  end
end

local lost_at = state[5] or ''
if recovering then
  local passed = now - (tonumber(recovering) or 0)
  if passed >= tonumber(ARGV[9]) and all_offered and (any_complete or all_empty) then
    recovering = false
  elseif passed >= tonumber(ARGV[10]) then
    recovering, lost_at = false, whole(now)
    redis.call('HSET', KEYS[1], 'lost_at', lost_at)
  end
  if not recovering then redis.call('HSET', KEYS[1], 'recovering', '') end
end

local changed, invalidations, is_all = {}, {}, '0'
if is_known and not recovering then
  local BATCH = 32
  -- Records that nobody wrote for 30 days are dropped.
  local KEPT = 30 * 24 * 3600 * 1000
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', base .. 'written', '-inf', whole(now - KEPT), 'LIMIT', 0, BATCH)) do
    redis.call('DEL', record_of(key))
    redis.call('ZREM', index, key)
    redis.call('ZREM', base .. 'written', key)
    if redis.call('EXISTS', index) == 0 then redis.call('HSET', KEYS[1], 'has_records', '') end
  end
  local keys = redis.call('ZRANGEBYSCORE', index, '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, BATCH)
  is_all = '1'
  if #keys == 2 * BATCH then
    -- Records of one commit have one version. They come together.
    is_all = '0'
    local last = keys[#keys]
    local before = redis.call('ZRANGEBYSCORE', index, '(' .. ARGV[3], '(' .. last)
    local same = redis.call('ZRANGEBYSCORE', index, last, last)
    keys = {}
    for _, key in ipairs(before) do keys[#keys + 1] = key; keys[#keys + 1] = '' end
    for _, key in ipairs(same) do keys[#keys + 1] = key; keys[#keys + 1] = '' end
  end
  for i = 1, #keys, 2 do
    local known = redis.call('ZSCORE', index, keys[i])
    version_of(keys[i])
    if redis.call('ZSCORE', index, keys[i]) == known then
      changed[#changed + 1] = {keys[i], redis.call('HMGET', record_of(keys[i]), 'v', '0', '1', '2', '3')}
    else
      -- The record was not readable, and has a later version now.
      is_all = '0'
    end
  end
  for _, entry in ipairs(redis.call('LRANGE', base .. 'invalidations', 0, -1)) do
    local number, selector = string.match(entry, '^(%d+) (.*)$')
    if number and tonumber(number) > tonumber(ARGV[4]) then
      invalidations[#invalidations + 1] = {number, selector}
    end
  end
end

-- What all serving replicas know is settled. A replica that knows all changes from now on serves them.
local settled, known_by_all = tonumber(state[8]) or 0, nil
if is_all == '1' then enter('1') end
entries = redis.call('HVALS', base .. 'replicas')
for _, entry in ipairs(entries) do
  local at, serving, version = string.match(entry, '^%d %d (%d+) (%d) (%d+) %d$')
  if at and serving == '1' and now - tonumber(at) < tonumber(ARGV[12]) then
    known_by_all = math.min(known_by_all or tonumber(version), tonumber(version))
  end
end
if known_by_all and known_by_all > settled then
  settled = known_by_all
  redis.call('HSET', KEYS[1], 'settled', whole(settled))
  if #entries > 1 then notify() end
end
local revisions = redis.call('HGETALL', base .. 'revisions')
return {
  whole(now), epoch, recovering and '1' or '0', lost_at, whole(highest), is_all, state[6] or '0', whole(replicas),
  changed, invalidations, revisions, whole(settled), whole(current),
}
