-- Leases one window of one quota to one instance. Runs inside Redis or Valkey: it is atomic and uses the server's
-- clock.
--
-- Invariant, for this window together with all that overlap it: no grant of this script makes the held and fallback
-- units of all instances and incarnations exceed the limit.
--
-- Amounts are whole milli-units and times are microseconds: a double represents both exactly (up to 2^53).
-- One hash contains the state of a quota: it is kept, lost, evicted and restored as a whole, in one slot of a cluster.
--   q              run_id phase recovery_start last_call_before_loss last_ordinal
--   g HOLDER       last_call reported_recovery seq closed      an incarnation, and the recovery of its last full report
--   w ID           starts ends lookback is_ordinal             a window
--   h ID HOLDER    held taken fallback expected_demand         units of that incarnation in that window
--   c ID           milli                                       a manual correction
--
-- ARGV[1] is a `ScriptRequest` as JSON (`script_request.rs`).
local key, request = KEYS[1], cjson.decode(ARGV[1])
local operation, own_holder, window_id, limit = request.operation, request.holder, request.window_id, request.limit
local taken, held, wanted, known_fallback = request.taken, request.held, request.wanted, request.fallback

local SECOND, DAY = 1000000, 86400000000
-- All instances of a quota must agree on these times, so none of them is configurable.
-- Time that instances have to report after state was lost or created. A running instance sends a request every second,
-- and retries after a second at most.
local RECOVERY_GRACE = 3 * SECOND
-- An instance without calls for this long before a loss is not waited for; its last known state counts.
local LIVENESS_WINDOW = 60 * SECOND
-- Maximum time before the start of a window at which it may be leased: ten seconds, plus clock skew.
local MAX_LEAD = 15 * SECOND
-- Time for which a window is stored after its usage has expired.
local WINDOW_RETENTION = 60 * SECOND

local clock = redis.call('TIME')
local now = clock[1] * SECOND + clock[2]
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')

-- Lua would format large numbers as 9.007e15.
local function int(number)
  return string.format('%.0f', number)
end

local function format_time(number)
  return number and int(number) or '-'
end

-- Stored state --------------------------------------------------------------------------------------------------------

local quota, incarnations, windows = nil, {}, {}
local changed_fields, deleted_fields = {}, {}

local function ensure_window(name)
  windows[name] = windows[name] or { lookback = 0, leases = {} }
  return windows[name]
end

local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  local kind, name, holder = string.match(fields[i], '^(%a) ?(%S*) ?(%S*)$')
  local a, b, c, d, e = string.match(fields[i + 1], '^(%S+) ?(%S*) ?(%S*) ?(%S*) ?(%S*)$')
  if kind == 'q' then
    quota = {
      run_id = a,
      phase = b,
      recovery_start = tonumber(c),
      last_call_before_loss = tonumber(d),
      last_ordinal = tonumber(e),
    }
  elseif kind == 'g' then
    incarnations[name] =
      { last_call = tonumber(a), reported_recovery = tonumber(b), seq = tonumber(c), closed = d == '1' }
  elseif kind == 'w' then
    local window = ensure_window(name)
    window.starts, window.ends, window.lookback, window.is_ordinal = tonumber(a), tonumber(b), tonumber(c), d == '1'
  elseif kind == 'h' then
    ensure_window(name).leases[holder] =
      { held = tonumber(a), taken = tonumber(b), fallback = tonumber(c), expected_demand = tonumber(d) or 0 }
  elseif kind == 'c' then
    ensure_window(name).correction = tonumber(a)
  end
end

local function store_incarnation(name)
  local incarnation = incarnations[name]
  changed_fields['g ' .. name] = table.concat({
    int(incarnation.last_call),
    int(incarnation.reported_recovery),
    int(incarnation.seq),
    incarnation.closed and '1' or '0',
  }, ' ')
end

local function store_window(name)
  local window = windows[name]
  changed_fields['w ' .. name] = table.concat({
    format_time(window.starts),
    format_time(window.ends),
    int(window.lookback),
    window.is_ordinal and '1' or '0',
  }, ' ')
end

local function store_lease(name, holder)
  local lease = windows[name].leases[holder]
  changed_fields['h ' .. name .. ' ' .. holder] =
    table.concat({ int(lease.held), int(lease.taken), int(lease.fallback), int(lease.expected_demand) }, ' ')
end

local function delete_field(field)
  changed_fields[field] = nil
  deleted_fields[#deleted_fields + 1] = field
end

-- Returns the time until which usage of the window counts in it or in later windows; nil while it is not open.
local function counts_until(window)
  return window.ends and window.ends + window.lookback * (window.ends - window.starts)
end

-- Writes before it deletes: if the server is out of memory or is a replica, the write fails and nothing has changed.
local function write_changes()
  changed_fields['q'] = table.concat({
    quota.run_id,
    quota.phase,
    int(quota.recovery_start),
    int(quota.last_call_before_loss),
    int(quota.last_ordinal),
  }, ' ')
  local arguments = {}
  for field, value in pairs(changed_fields) do
    arguments[#arguments + 1] = field
    arguments[#arguments + 1] = value
  end
  for from = 1, #arguments, 1000 do
    redis.call('HSET', key, unpack(arguments, from, math.min(from + 999, #arguments)))
  end
  for from = 1, #deleted_fields, 1000 do
    redis.call('HDEL', key, unpack(deleted_fields, from, math.min(from + 999, #deleted_fields)))
  end
  local expires_at, has_unopened_window = now, false
  for _, window in pairs(windows) do
    local counted_until = counts_until(window)
    has_unopened_window = has_unopened_window or not counted_until
    expires_at = math.max(expires_at, counted_until or 0)
  end
  if has_unopened_window then
    redis.call('PERSIST', key)
  else
    -- Keep the state for another week, so that a quota that is idle over a holiday needs no recovery.
    redis.call('PEXPIREAT', key, int(math.floor((expires_at + 7 * DAY) / 1000)))
  end
end

-- Recovery ------------------------------------------------------------------------------------------------------------

-- State was lost, or may have been: every live instance must report its state before more is granted.
local function begin_recovery(phase)
  quota.run_id, quota.phase, quota.recovery_start = run_id, phase, now
  for _, incarnation in pairs(incarnations) do
    quota.last_call_before_loss = math.max(quota.last_call_before_loss, incarnation.last_call)
  end
end

if not quota then
  quota = { last_ordinal = 0, last_call_before_loss = 0 }
  begin_recovery('settling')
elseif quota.run_id ~= run_id then
  begin_recovery('confirming')
end

local own_incarnation = incarnations[own_holder]
  or { last_call = now, reported_recovery = 0, seq = 0, closed = false }
-- A later call on another connection has overtaken this one: the instance no longer waits for its reply.
if operation ~= 'correct' and request.seq <= own_incarnation.seq then
  return { 'stale' }
end

-- Evict windows whose usage has expired, and idle instances.
for name, window in pairs(windows) do
  local counted_until = counts_until(window)
  if counted_until and now > counted_until + WINDOW_RETENTION then
    delete_field('w ' .. name)
    delete_field('c ' .. name)
    for holder in pairs(window.leases) do
      delete_field('h ' .. name .. ' ' .. holder)
    end
    windows[name] = nil
  end
end
for name, incarnation in pairs(incarnations) do
  local has_lease = name == own_holder
  for _, window in pairs(windows) do
    has_lease = has_lease or window.leases[name] ~= nil
  end
  if not has_lease and now > incarnation.last_call + DAY then
    delete_field('g ' .. name)
    incarnations[name] = nil
  end
end

-- Find the window. First-use windows are numbered here, because an instance may have missed some.
if request.is_ordinal then
  for name, window in pairs(windows) do
    if request.starts and window.is_ordinal and window.starts and math.abs(window.starts - request.starts) <= 1 then
      window_id = name
    end
  end
  if not windows[window_id] and quota.last_ordinal > tonumber(window_id) then
    local latest_window = windows[int(quota.last_ordinal)]
    local has_ended = not latest_window or (latest_window.ends and now >= latest_window.ends)
    return { 'behind', int(has_ended and quota.last_ordinal + 1 or quota.last_ordinal) }
  end
  quota.last_ordinal = math.max(quota.last_ordinal, tonumber(window_id))
end
local is_new = not windows[window_id]
local window = ensure_window(window_id)
if is_new or (not window.starts and request.starts) then
  window.starts, window.ends = request.starts, request.ends
  window.lookback, window.is_ordinal = request.lookback, request.is_ordinal
  store_window(window_id)
end

-- The instance has a lease that the server does not have: it was lost, and other leases may have been lost, too.
local own_lease = window.leases[own_holder]
local claimed_units = held + known_fallback
local still_counts = not window.ends or now < counts_until(window)
local lease_lost = request.reply_received and still_counts and claimed_units > 0
  and (not own_lease or own_lease.held + own_lease.fallback < claimed_units)
if lease_lost and operation == 'lease' then
  if quota.phase == 'open' then
    begin_recovery('confirming')
  elseif quota.phase == 'settling' then
    quota.phase = 'confirming'
  end
end

local report_requested = quota.phase ~= 'open' and own_incarnation.reported_recovery ~= quota.recovery_start
  and operation == 'lease'
if report_requested and not request.reported_state then
  changed_fields, deleted_fields = {}, {}
  write_changes()
  return { 'report' }
end

if report_requested then
  for entry in string.gmatch(request.reported_state, '[^;]+') do
    local kind, name, a, b, c, d, e = string.match(entry, '^(%a) (%S+) (%S+) ?(%S*) ?(%S*) ?(%S*) ?(%S*)$')
    if kind == 'w' then
      local existing_window = windows[name]
      local reported_window =
        { starts = tonumber(a), ends = tonumber(b), lookback = tonumber(c), is_ordinal = d == '1' }
      local counted_until = counts_until(reported_window)
      local is_missing = not existing_window or not existing_window.starts
      if (not counted_until or now <= counted_until + WINDOW_RETENTION) and is_missing then
        reported_window.leases = existing_window and existing_window.leases or {}
        reported_window.correction = existing_window and existing_window.correction
        windows[name] = reported_window
        store_window(name)
        if reported_window.is_ordinal then
          quota.last_ordinal = math.max(quota.last_ordinal, tonumber(name))
        end
      end
    elseif kind == 'c' and windows[name] then
      windows[name].correction = math.max(tonumber(a), windows[name].correction or tonumber(a))
      changed_fields['c ' .. name] = int(windows[name].correction)
    elseif kind == 'h' and windows[name] then
      local lease = windows[name].leases[a] or { held = 0, taken = 0, fallback = 0, expected_demand = 0 }
      lease.held, lease.taken, lease.fallback =
        math.max(lease.held, tonumber(b)), math.max(lease.taken, tonumber(c)), math.max(lease.fallback, tonumber(d))
      -- Use the maximum of the stored and reported values. Calls of the instance replace its own values, per window.
      windows[name].leases[a] = lease
      store_lease(name, a)
      if quota.phase == 'settling' and lease.held + lease.fallback > 0 then
        quota.phase = 'confirming'
      end
    elseif kind == 'g' then
      -- Reported times of last calls are from before the loss, whichever instance reports them.
      quota.last_call_before_loss = math.max(quota.last_call_before_loss, tonumber(a))
      local incarnation = incarnations[name] or { last_call = 0, reported_recovery = 0, seq = 0, closed = b == '1' }
      if name ~= own_holder and tonumber(a) > incarnation.last_call then
        incarnation.last_call, incarnation.closed = tonumber(a), b == '1'
      end
      if name ~= own_holder then
        incarnations[name] = incarnation
        store_incarnation(name)
      end
    end
  end
  window = windows[window_id]
end

incarnations[own_holder] = own_incarnation
if operation == 'lease' then
  own_incarnation.reported_recovery = quota.recovery_start
end
if operation ~= 'correct' then
  own_incarnation.last_call, own_incarnation.seq, own_incarnation.closed = now, request.seq, operation == 'close'
  store_incarnation(own_holder)
end

-- Find the incarnations that must still report. Of one that had sent no call long before the loss, the stored state
-- counts.
local missing_holders = {}
if quota.phase ~= 'open' then
  for name, incarnation in pairs(incarnations) do
    if
      not incarnation.closed
      and incarnation.reported_recovery ~= quota.recovery_start
      and incarnation.last_call > quota.last_call_before_loss - LIVENESS_WINDOW
    then
      missing_holders[#missing_holders + 1] = name
    end
  end
  if now >= quota.recovery_start + RECOVERY_GRACE and #missing_holders == 0 then
    quota.phase = 'open'
  end
end

-- Grant ---------------------------------------------------------------------------------------------------------------

-- Returns true if the usage of `source` counts in `target`. It does within the lookback of a sliding window, and if the
-- windows overlap in time because the rules have changed.
local function counts_in(source, target)
  if source == target or not source.starts or not target.starts or source.is_ordinal or target.is_ordinal then
    return false
  end
  local length = target.ends - target.starts
  local earliest_start = target.starts - target.lookback * length - length / 2
  local in_lookback = target.lookback > 0 and source.starts < target.starts and source.starts > earliest_start
  return in_lookback or (source.starts < target.ends and source.ends > target.starts)
end

local function is_live(name)
  local incarnation = incarnations[name]
  return incarnation and not incarnation.closed and now - incarnation.last_call < LIVENESS_WINDOW
end

-- Returns the held units (with fallback) and the taken units of a window, except those of this incarnation in the
-- requested window.
local function units_in(counted_window)
  local held_sum, taken_sum = counted_window.correction or 0, counted_window.correction or 0
  for holder, lease in pairs(counted_window.leases) do
    if counted_window ~= window or holder ~= own_holder then
      held_sum, taken_sum = held_sum + lease.held + lease.fallback, taken_sum + lease.taken
    end
  end
  return held_sum, taken_sum
end

-- Returns the same sums for a window together with all windows that count in it.
local function units_counting_in(target)
  local held_sum, taken_sum = units_in(target)
  for _, other in pairs(windows) do
    if counts_in(other, target) then
      local other_held, other_taken = units_in(other)
      held_sum, taken_sum = held_sum + other_held, taken_sum + other_taken
    end
  end
  return held_sum, taken_sum
end

local held_by_others, taken_by_others = units_counting_in(window)

if operation == 'correct' then
  local difference = request.used - taken_by_others
  local correction = window.correction or 0
  if difference < 0 then
    correction = correction + difference
  elseif difference > taken then
    correction = correction + difference - taken
  end
  window.correction = correction
  changed_fields['c ' .. window_id] = int(correction)
  -- A manual correction ends the wait for incarnations that have not reported.
  for _, name in ipairs(missing_holders) do
    incarnations[name].last_call = 0
    store_incarnation(name)
  end
  quota.phase = 'open'
  write_changes()
  return { 'ok' }
end

local live_count = 0
for name in pairs(incarnations) do
  if is_live(name) then
    live_count = live_count + 1
  end
end

local has_ended = window.ends and now >= window.ends
local is_too_early = window.starts and window.starts > now + MAX_LEAD
local is_recovering = quota.phase ~= 'open'
if is_recovering and quota.phase == 'confirming' and window.starts then
  -- A window further ahead than the maximum lead cannot have been leased before the loss.
  is_recovering = window.starts - window.lookback * (window.ends - window.starts) <= quota.recovery_start + MAX_LEAD
end

-- Taken units cannot be returned. The instance stopped using returned units before it sent the call.
local retained = math.max(taken, math.min(held, wanted))
local free = limit - held_by_others - retained
for _, later_window in pairs(windows) do
  if counts_in(window, later_window) then
    free = math.min(free, limit - units_counting_in(later_window) - retained)
  end
end

local grant, fallback = 0, math.min(known_fallback, math.max(free, 0))
if operation == 'close' then
  known_fallback, fallback = 0, 0
elseif not (has_ended or is_too_early or is_recovering) then
  local grantable = math.max(free - known_fallback, 0)
  grant = math.min(math.max(wanted - retained, 0), grantable)
  if live_count > 1 and grant > grantable / 2 then
    -- Leave units for other instances: grant the urgent units, or an equal part if that is more.
    local urgent_need = math.min(math.max(taken + request.urgent - retained, 0), grantable)
    grant = math.min(grant, math.max(urgent_need, math.floor(grantable / live_count)))
  end
  local remaining = math.max(free - grant, 0)
  fallback = 0
  if request.fallback_enabled and remaining >= limit / 100 then
    fallback = math.floor(remaining / 2 / live_count)
  end
end

-- The instance may still use the fallback of its last reply. Release it only after a call that contains the new one.
window.leases[own_holder] = {
  held = retained + grant,
  taken = taken,
  expected_demand = request.expected_demand,
  fallback = math.max(known_fallback, fallback),
}
store_lease(window_id, own_holder)
write_changes()

-- Reply ---------------------------------------------------------------------------------------------------------------

local lost, held_by_dead, expected_by_others = 0, 0, 0
local instance_name = string.match(own_holder, '^[^.]+')
for holder, lease in pairs(window.leases) do
  local is_same_instance = string.match(holder, '^[^.]+') == instance_name
  local untaken = math.max(lease.held + lease.fallback - lease.taken, 0)
  if is_same_instance and holder ~= own_holder then
    lost = lost + untaken
  end
  -- Clients of an exited instance use other instances, so its forecast is dropped; no instance can use its units.
  if not is_live(holder) then
    held_by_dead = held_by_dead + untaken
  elseif not is_same_instance then
    expected_by_others = expected_by_others + lease.expected_demand
  end
end

local quota_state = {}
for name, incarnation in pairs(incarnations) do
  quota_state[#quota_state + 1] =
    table.concat({ 'g', name, int(incarnation.last_call), incarnation.closed and '1' or '0' }, ' ')
end
for name, stored_window in pairs(windows) do
  quota_state[#quota_state + 1] = table.concat({
    'w',
    name,
    format_time(stored_window.starts),
    format_time(stored_window.ends),
    int(stored_window.lookback),
    stored_window.is_ordinal and '1' or '0',
  }, ' ')
  if stored_window.correction then
    quota_state[#quota_state + 1] = table.concat({ 'c', name, int(stored_window.correction) }, ' ')
  end
  for holder, lease in pairs(stored_window.leases) do
    quota_state[#quota_state + 1] =
      table.concat({ 'h', name, holder, int(lease.held), int(lease.taken), int(lease.fallback) }, ' ')
  end
end

return {
  (has_ended and 'over') or (is_too_early and 'early') or (is_recovering and 'unsure') or 'ok',
  int(retained + grant),
  int(fallback),
  int(math.max(held_by_others, 0)),
  int(math.max(taken_by_others, 0)),
  int(lost),
  int(held_by_dead),
  int(expected_by_others),
  format_time(window.starts),
  format_time(window.ends),
  int(now),
  table.concat(missing_holders, ','),
  table.concat(quota_state, ';'),
}
