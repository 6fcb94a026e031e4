-- ARGV: epoch or '', replica, version, invalidation, highest, copy, has_offered, live ms, shortest recovery ms, longest recovery ms,
-- is_serving, answering ms, is_current, offering ms, suspects, how many replicas were live when the copy last was complete
-- Something else may have written below the prefix. What is of another kind is removed, and missed below.
of_kind(KEYS[1], 'hash')
local replicas, revisions, invalidated = base .. 'replicas', base .. 'revisions', base .. 'invalidations'
for key, kind in pairs({[index] = 'zset', [written] = 'zset', [replicas] = 'hash', [revisions] = 'hash', [invalidated] = 'list'}) do
  of_kind(key, kind)
end
local state = redis.call(
  'HMGET', KEYS[1], 'epoch', 'run', 'highest', 'recovering', 'lost_at', 'invalidation', 'sizes', 'settled', 'members', 'hushed'
)
local epoch, run, highest, recovering, lost_at = state[1], run_id(), tonumber(state[3] or ''), state[4], state[5]
local invalidation, settled = tonumber(state[6] or ''), tonumber(state[8] or '')
if lost_at and lost_at ~= '' and not tonumber(lost_at) then lost_at = whole(now) end

local function listed_after(number, ...)
  return redis.call('ZRANGEBYSCORE', index, '(' .. whole(number), '+inf', 'WITHSCORES', ...)
end

-- Whether the store holds all that was written to this process. Another process may have lost writes. So has one whose numbers went back, or
-- whose lists do not have what was noted.
local function is_whole()
  if not epoch or state[2] ~= run or string.sub(epoch, 1, #run) ~= run then return false end
  if not (highest and invalidation and settled and recovering and lost_at) then return false end
  if state[7] ~= sizes() or settled > highest or #listed_after(highest, 'LIMIT', 0, 1) > 0 then return false end
  if epoch ~= ARGV[1] then
    -- What a gateway without a store has answered meanwhile may be later than all that is here.
    return ARGV[1] ~= '' or ARGV[6] ~= '3' or redis.call('EXISTS', index) == 0
  end
  return highest >= tonumber(ARGV[5]) and invalidation >= tonumber(ARGV[4]) and ARGV[15] ~= '1'
end

local began = not is_whole()
if began then
  highest = math.max(highest or 0, tonumber(ARGV[5]))
  local later = listed_after(highest)
  if #later > 0 then highest = tonumber(later[#later]) end
  if not invalidation then redis.call('DEL', invalidated) end
  invalidation, settled = invalidation or 0, math.min(settled or 0, highest)
  epoch, recovering, lost_at = run .. '-' .. whole(now) .. '-' .. whole(highest), whole(now), lost_at or ''
  redis.call(
    'HSET', KEYS[1], 'epoch', epoch, 'run', run, 'recovering', recovering, 'lost_at', lost_at, 'since', whole(highest),
    'invalidation', whole(invalidation), 'settled', whole(settled), 'sizes', sizes(), 'members', '0', 'hushed', '0'
  )
  redis.call('DEL', replicas)
end
if recovering == '' then recovering = false end
-- The store's clock was put back: the recovery begins anew, and does not wait until the clock is where it was.
if recovering and (tonumber(recovering) or 0) > now then
  recovering = whole(now)
  redis.call('HSET', KEYS[1], 'recovering', recovering)
end
local is_known = epoch == ARGV[1]
highest = math.max(highest, tonumber(ARGV[5]))
redis.call('HSET', KEYS[1], 'highest', whole(highest))

-- If replicas are missing that nobody removed, all of them may still answer for a while.
local entries = redis.call('HGETALL', replicas)
local hushed = tonumber(state[10] or '') or 0
if not began and whole(#entries / 2) ~= state[9] then
  hushed = now + tonumber(ARGV[12])
  redis.call('HSET', KEYS[1], 'hushed', whole(hushed))
end

-- An entry: copy, whether it has offered, when it came, until when the replica answers, the version that it has, whether it is current, how many
-- replicas were live when the copy last was complete, since when the replica syncs without having offered.
-- A request that was under way for long takes nothing back: the replica answers as long as a later one said.
local ENTRY = '^(%d) (%d) (%d+) (%d+) (%d+) (%d) (%d+) (%d+)$'
local offered = is_known and ARGV[7] or '0'
local function enter(is_answering)
  local _, had_offered, _, before, _, _, _, since = string.match(redis.call('HGET', replicas, ARGV[2]) or '', ENTRY)
  local until_then = tonumber(before or '0')
  if had_offered ~= '0' or offered == '1' then since = whole(now) end
  if is_answering then until_then = math.max(until_then, now + tonumber(ARGV[12])) end
  local fields = {ARGV[6], offered, whole(now), whole(until_then), ARGV[3], ARGV[13], ARGV[16], since}
  redis.call('HSET', replicas, ARGV[2], table.concat(fields, ' '))
end
enter(is_known and ARGV[11] == '1')
local members, all_offered, all_empty, current = 0, true, true, 0
local complete, named, any_running, any_alone = 0, 0, false, false
entries = redis.call('HGETALL', replicas)
for i = 1, #entries, 2 do
  local copy, has_offered, at, _, _, is_current, live_then, since = string.match(entries[i + 1], ENTRY)
  local may_offer = recovering and copy ~= '0' and has_offered == '0'
  if not at or now - tonumber(at) >= tonumber(may_offer and ARGV[14] or ARGV[8]) then
    redis.call('HDEL', replicas, entries[i])
  else
    members = members + 1
    if is_current == '1' then current = current + 1 end
    all_empty = all_empty and copy == '0'
    -- A replica that syncs for a minute and offers nothing gets no replies: it counts as gone.
    local is_mute = has_offered == '0' and now - tonumber(since) >= tonumber(ARGV[14])
    if not is_mute then
      all_offered = all_offered and has_offered == '1'
      if copy == '2' or copy == '4' then
        complete, named = complete + 1, math.max(named, tonumber(live_then))
      end
      any_running, any_alone = any_running or copy == '2', any_alone or copy == '3'
    end
  end
end
if began or whole(members) ~= state[9] then redis.call('HSET', KEYS[1], 'members', whole(members)) end

if recovering then
  local passed = now - (tonumber(recovering) or 0)
  -- A complete copy is outdated if the replicas that were live beside it went on: so as many must be there as one of them names. Those
  -- that ran when the store failed are waited for for a minute only.
  local has_latest = any_alone or (complete > 0 and complete >= named) or (any_running and passed >= tonumber(ARGV[14]))
  if passed >= tonumber(ARGV[9]) and all_offered and (has_latest or all_empty) then
    recovering = false
  elseif passed >= tonumber(ARGV[10]) then
    -- What is there may be outdated, and counts as lost like what is absent.
    recovering, lost_at = false, whole(now)
    redis.call('HSET', KEYS[1], 'lost_at', lost_at)
    for _, key in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', '+inf')) do
      if #key == 32 then make_unreadable(key) end
    end
  end
  if not recovering then redis.call('HSET', KEYS[1], 'recovering', '') end
end

local changed, invalidations, is_all = {}, {}, '0'
if is_known and not recovering then
  local BATCH = 32
  -- Records that nobody wrote for 30 days are dropped.
  local KEPT = 30 * 24 * 3600 * 1000
  local old = redis.call('ZRANGEBYSCORE', written, '-inf', whole(now - KEPT), 'LIMIT', 0, BATCH)
  if #old > 0 then
    keeping_sizes(function()
      for _, key in ipairs(old) do
        remove(key)
        redis.call('ZREM', index, key)
        redis.call('ZREM', written, key)
      end
    end)
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
    local listed = redis.call('ZSCORE', index, keys[i])
    if #keys[i] == 32 then
      version_of(keys[i])
    else
      -- It is none of a record's.
      keeping_sizes(function()
        redis.call('ZREM', index, keys[i])
        redis.call('ZREM', written, keys[i])
      end)
    end
    if redis.call('ZSCORE', index, keys[i]) == listed then
      changed[#changed + 1] = {keys[i], redis.call('HMGET', record_of(keys[i]), 'v', '0', '1', '2', '3')}
    else
      -- It has a later version now, and comes with that.
      is_all = '0'
    end
  end
  for _, entry in ipairs(redis.call('LRANGE', invalidated, 0, -1)) do
    local number, selector = string.match(entry, '^(%d+) (.*)$')
    if number and tonumber(number) > tonumber(ARGV[4]) then
      invalidations[#invalidations + 1] = {number, selector}
    end
  end
  -- Renumbering makes higher numbers.
  highest = tonumber(redis.call('HGET', KEYS[1], 'highest'))
end

-- A version that all answering replicas have is acknowledged (`settled`). A replica that has all changes answers from now on.
local known_by_all = nil
if is_all == '1' then enter(true) end
entries = redis.call('HVALS', replicas)
for _, entry in ipairs(entries) do
  local _, _, _, until_then, version = string.match(entry, ENTRY)
  if until_then and now < tonumber(until_then) then
    known_by_all = math.min(known_by_all or tonumber(version), tonumber(version))
  end
end
if known_by_all and known_by_all > settled and now >= hushed then
  settled = known_by_all
  redis.call('HSET', KEYS[1], 'settled', whole(settled))
  if #entries > 1 then notify() end
end
return {
  whole(now), epoch, recovering and '1' or '0', lost_at, whole(highest), is_all, whole(invalidation), whole(members),
  changed, invalidations, redis.call('HGETALL', revisions), whole(settled), whole(current),
}
