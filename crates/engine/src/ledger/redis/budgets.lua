-- Leases units of the budgets of keys to one instance. Runs inside Redis or Valkey: it is atomic and uses the server's clock.
--
-- Invariant, for each key of a window: no grant of this script makes the held units of all instances exceed its limit.
--
-- Amounts are whole milli-units and times are microseconds: a double represents both exactly (up to 2^53).
--   KEYS[1]: hash of the quota
--     q           run_id phase recovery_start
--     g HOLDER    last_call reported_recovery seq instance      an incarnation of an instance, until it is closed
--   KEYS[1]:ID: hash of a window, deleted after its end; a field for each key
--     KEY         HOLDER:held:taken; ...                those of closed incarnations are of the holder '-'
--     (empty)     1
--
-- ARGV[1] as JSON: operation ('lease', 'report', 'close'), holder, instance, seq, window, starts, ends, max_keys, is_last (of a report), and
--   has_leases, and rows of key, acknowledged (the held units of the last reply; -1 without one), limit, taken, held, needed, wanted
-- Returns a status, then the missing holders, then for each row: held, taken_by_others, forgotten; or 'shared', '0', '0'.
local key, request = KEYS[1], cjson.decode(ARGV[1])
local operation, own_holder, rows = request.operation, request.holder, request.rows
local window_key = key .. ':' .. request.window

local SECOND, DAY = 1000000, 86400000000
-- Time that instances have to report after state was lost or created: each one calls every second.
local RECOVERY_GRACE = 3 * SECOND
-- An instance without calls for this long is not waited for.
local LIVENESS_WINDOW = 60 * SECOND
-- Time for which it is known that an incarnation was killed, so that what it held is counted as used and not kept apart.
local REPLACED_RETENTION = 600 * SECOND
local SHARED_PREFIX = 'b'

local clock = redis.call('TIME')
local now = clock[1] * SECOND + clock[2]
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')

local function int(number)
  return string.format('%.0f', number)
end

if now >= request.ends then
  return { 'over', '' }
elseif now < request.starts then
  return { 'early', '' }
end

-- Stored state --------------------------------------------------------------------------------------------------------

local quota, incarnations = nil, {}
local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  local kind, name = string.match(fields[i], '^(%a) ?(%S*)$')
  local a, b, c, d = string.match(fields[i + 1], '^(%S+) (%S+) (%S+) ?(%S*)$')
  if kind == 'q' then
    quota = { run_id = a, phase = b, recovery_start = tonumber(c) }
  elseif kind == 'g' then
    incarnations[name] =
      { last_call = tonumber(a), reported_recovery = tonumber(b), seq = tonumber(c), instance = d }
  end
end

local function begin_recovery()
  quota = { run_id = run_id, phase = 'recovering', recovery_start = now }
end

if not quota or quota.run_id ~= run_id then
  begin_recovery()
end

local own = incarnations[own_holder] or { reported_recovery = 0, seq = 0, instance = request.instance }
-- A later call on another connection has overtaken this one: the instance no longer waits for its reply.
if request.seq <= own.seq then
  return { 'stale', '' }
end

local names = {}
for i, row in ipairs(rows) do
  names[i] = row[1]
end
local values = #rows > 0 and redis.call('HMGET', window_key, unpack(names)) or {}
local leases = {}
for i, row in ipairs(rows) do
  leases[i] = {}
  for holder, held, taken in string.gmatch(values[i] or '', '([^:;]+):(%d+):(%d+)') do
    leases[i][holder] = { held = tonumber(held), taken = tonumber(taken) }
  end
  -- The instance has a lease that the server does not have: it was lost, and others may have been lost, too.
  local own_lease = leases[i][own_holder]
  local is_lost = (own_lease and own_lease.held or 0) < row[2]
  if is_lost and operation == 'lease' and quota.phase == 'open' then
    begin_recovery()
  end
end
if request.has_leases and quota.phase == 'open' and redis.call('EXISTS', window_key) == 0 then
  begin_recovery()
end

own.last_call, own.seq = now, request.seq
local is_reporting = operation == 'report'
if is_reporting and request.is_last then
  own.reported_recovery = quota.recovery_start
end
incarnations[own_holder] = own

local latest_calls = {}
for _, incarnation in pairs(incarnations) do
  latest_calls[incarnation.instance] = math.max(latest_calls[incarnation.instance] or 0, incarnation.last_call)
end

-- Returns true if the instance of an incarnation has a later one: it was killed.
local function is_replaced(incarnation)
  return incarnation.last_call < latest_calls[incarnation.instance]
end

-- Incarnations that must still report. What an idle one held is known from before, and an earlier one of an instance is over.
local missing = {}
if quota.phase ~= 'open' then
  for name, incarnation in pairs(incarnations) do
    if
      incarnation.reported_recovery ~= quota.recovery_start
      and incarnation.last_call > quota.recovery_start - LIVENESS_WINDOW
      and not is_replaced(incarnation)
    then
      missing[#missing + 1] = name
    end
  end
  if now >= quota.recovery_start + RECOVERY_GRACE and #missing == 0 then
    quota.phase = 'open'
  end
end

local function write_quota()
  redis.call('HSET', key, 'q', quota.run_id .. ' ' .. quota.phase .. ' ' .. int(quota.recovery_start))
  if operation == 'close' then
    redis.call('HDEL', key, 'g ' .. own_holder)
  else
    local times = int(own.last_call) .. ' ' .. int(own.reported_recovery)
    redis.call('HSET', key, 'g ' .. own_holder, times .. ' ' .. int(own.seq) .. ' ' .. own.instance)
  end
  for name, incarnation in pairs(incarnations) do
    local retention = is_replaced(incarnation) and REPLACED_RETENTION or DAY
    if now > incarnation.last_call + retention and now >= quota.recovery_start + retention then
      redis.call('HDEL', key, 'g ' .. name)
    end
  end
  redis.call('PEXPIREAT', key, int(math.floor((request.ends + 7 * DAY) / 1000)))
end

-- Nothing of a window that began after the loss can have been lost.
local is_recovering = quota.phase ~= 'open' and request.starts <= quota.recovery_start
if is_recovering and operation == 'lease' and own.reported_recovery ~= quota.recovery_start then
  write_quota()
  return { 'report', table.concat(missing, ',') }
end

-- Grant ---------------------------------------------------------------------------------------------------------------

-- With the empty field.
local key_count = math.max(redis.call('HLEN', window_key), 1)
local reply = { is_recovering and 'unsure' or 'ok', table.concat(missing, ',') }
local changed, deleted = {}, {}
for i, row in ipairs(rows) do
  local name, is_known, limit, taken, held, needed, wanted =
    row[1], row[2] >= 0, row[3], row[4], row[5], row[6], row[7]
  local is_new = not values[i]
  local is_shared = is_new and key_count > request.max_keys and string.sub(name, 1, 1) ~= SHARED_PREFIX
  if is_shared and operation == 'lease' then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = 'shared', '0', '0'
  else
    local own_lease, forgotten = leases[i][own_holder], 0
    if not is_known and own_lease then
      -- The instance has forgotten the key, and what it held may be used.
      forgotten = own_lease.held
      taken, held, needed, wanted = taken + forgotten, held + forgotten, needed + forgotten, wanted + forgotten
    end
    -- Nobody knows whether what a killed incarnation held was used, and nobody returns it.
    local closed = leases[i]['-'] or { held = 0, taken = 0 }
    for holder, lease in pairs(leases[i]) do
      local incarnation = incarnations[holder]
      if incarnation and is_replaced(incarnation) then
        closed = { held = closed.held + lease.held, taken = closed.taken + lease.held }
        leases[i][holder] = nil
      end
    end
    leases[i]['-'] = closed
    local held_by_others, taken_by_others = 0, 0
    for holder, lease in pairs(leases[i]) do
      if holder ~= own_holder then
        local incarnation = incarnations[holder]
        local is_silent = not incarnation or incarnation.last_call < now - LIVENESS_WINDOW
        held_by_others = held_by_others + lease.held
        taken_by_others = taken_by_others + (is_silent and lease.held or lease.taken)
      end
    end
    local free, grant = math.max(limit - held_by_others - held, 0), 0
    if operation == 'lease' and not is_recovering and needed - held <= free then
      -- Leave units for other instances.
      grant = math.min(wanted - held, math.max(needed - held, math.floor(free / 2)))
    end
    leases[i][own_holder] = { held = held + grant, taken = taken }
    if operation == 'close' then
      leases[i]['-'] = { held = closed.held + taken, taken = closed.taken + taken }
      leases[i][own_holder] = nil
    end
    local parts = {}
    for holder, lease in pairs(leases[i]) do
      if lease.held > 0 or lease.taken > 0 then
        parts[#parts + 1] = holder .. ':' .. int(lease.held) .. ':' .. int(lease.taken)
      end
    end
    if #parts > 0 then
      changed[#changed + 1], changed[#changed + 2] = name, table.concat(parts, ';')
      key_count = key_count + (is_new and 1 or 0)
    elseif not is_new then
      deleted[#deleted + 1] = name
    end
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] =
      int(held + grant), int(taken_by_others), int(forgotten)
  end
end
write_quota()
if #deleted > 0 then
  redis.call('HDEL', window_key, unpack(deleted))
end
if #changed > 0 then
  -- The window exists while no key has units, too.
  changed[#changed + 1], changed[#changed + 2] = '', '1'
  redis.call('HSET', window_key, unpack(changed))
  redis.call('PEXPIREAT', window_key, int(math.floor(request.ends / 1000) + 60000))
end
return reply
