-- Leases units of the budgets of keys to one instance. Runs inside Redis or Valkey: it is atomic and uses the server's clock.
--
-- Invariant, for each key of a window: no grant of this script makes the held units of all instances in it, together with those of
-- the earlier windows whose usage counts in it, exceed its limit.
--
-- A window is one of the quota, a part of a sliding window, or a span in which windows of keys begin (`length` is theirs). In a part,
-- held units of all earlier ones count. In a span, a key whose window has begun in the one before is counted there until it ends.
--
-- Amounts are whole milli-units and times are microseconds: a double represents both exactly (up to 2^53).
--   KEYS[1]: hash of the quota
--     q           run_id phase recovery_start
--     g HOLDER    last_call reported_recovery seq instance      an incarnation of an instance, until it is closed
--     w ID        counts_until                                  a window with a hash
--   KEYS[1]:ID: hash of a window, deleted some time after it counts no more; a field for each key
--     KEY         HOLDER:held:taken; ...                those of closed incarnations are of the holder '-'; if keys open windows, the
--                                                       start of that of the key and '|' are before
--     (empty)     1, or 'shared' once keys have shared budgets
--
-- ARGV[1] as JSON: operation ('lease', 'report', 'close'), holder, instance, seq, max_keys, loss and is_last (of a report: the start
--   of the recovery, and whether no calls of the report follow), the ids window,
--   earlier (whose usage counts, earliest first) and leased (with leases of the instance), the times counts_from (of the earliest),
--   starts, ends and counts_until, the length of windows of keys, or 0, and rows of key, acknowledged (the held units of the last reply;
--   -1 without one), { limit, taken, held, needed, wanted, remaining } (the last one is time, of the window of the key), and the key
--   whose budget it shares if there are too many
-- Returns a status, then the missing holders, then for each row: held, taken_by_others, forgotten, the units taken in earlier parts and
--   the number of parts to expire or the remaining time and 1 if the window began in the earlier span; or 'shared'; or 'ended'.
--   After 'report', the start of the recovery follows.
local key, request = KEYS[1], cjson.decode(ARGV[1])
local operation, own_holder, rows = request.operation, request.holder, request.rows
local window_key = key .. ':' .. request.window
local opens_by_key = request.length > 0

local SECOND, DAY = 1000000, 86400000000
-- Time that instances have to report after state was lost or created: each one calls every second.
local RECOVERY_GRACE = 3 * SECOND
-- An instance without calls for this long is not waited for.
local LIVENESS_WINDOW = 60 * SECOND
-- Time for which it is known that an incarnation was killed, so that what it held is counted as used and not kept apart.
local REPLACED_RETENTION = 600 * SECOND
-- Time for which the hash of a window is kept after it counts, in case the clock is set back.
local WINDOW_RETENTION = 60 * SECOND
local SHARED_PREFIX = 'b'

local clock = redis.call('TIME')
local now = clock[1] * SECOND + clock[2]
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')

local function int(number)
  return string.format('%.0f', number)
end

if now >= request.counts_until then
  return { 'over', '' }
elseif now < request.starts then
  return { 'early', '' }
end

-- Stored state --------------------------------------------------------------------------------------------------------

local quota, incarnations, windows = nil, {}, {}
local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  local kind, name = string.match(fields[i], '^(%a) ?(%S*)$')
  local a, b, c, d = string.match(fields[i + 1], '^(%S+) (%S+) (%S+) ?(%S*)$')
  if kind == 'w' then
    windows[name] = tonumber(fields[i + 1])
  elseif kind == 'q' then
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

local names, shared_names = {}, {}
for i, row in ipairs(rows) do
  names[i], shared_names[i] = row[1], row[4]
end

-- Windows whose usage counts, the current one last, and the number of fields of each.
local hashes, sizes = {}, {}
for k, id in ipairs(request.earlier) do
  hashes[k] = key .. ':' .. id
end
hashes[#hashes + 1] = window_key
for k, hash in ipairs(hashes) do
  sizes[k] = redis.call('HLEN', hash)
end

-- Returns for each of `keys` its leases in a window, and the start of the window of the key. An absent window is not read.
local function read_window(k, keys)
  local hash, entries = hashes[k], {}
  local values = sizes[k] > 0 and #keys > 0 and redis.call('HMGET', hash, unpack(keys)) or {}
  for i = 1, #keys do
    if values[i] then
      entries[i] = { hash = hash, start = tonumber(string.match(values[i], '^(%d+)|')), leases = {} }
      for holder, held, taken in string.gmatch(values[i], '([^:;|]+):(%d+):(%d+)') do
        entries[i].leases[holder] = { held = tonumber(held), taken = tonumber(taken) }
      end
    end
  end
  return entries
end

-- Returns true if the window that the key of a row had opened is over.
local function has_ended(entry)
  return entry.start ~= nil and entry.start + request.length <= now
end

local entries, earlier = read_window(#hashes, names), {}
for k = 1, #request.earlier do
  earlier[k] = read_window(k, names)
end
-- Windows in which keys share budgets, the current one last, and what they have used there.
local shared = {}
for k, hash in ipairs(hashes) do
  if sizes[k] > 0 and #rows > 0 and redis.call('HGET', hash, '') == 'shared' then
    shared[#shared + 1] = read_window(k, shared_names)
  end
end
local is_lost = false
for i, row in ipairs(rows) do
  local before = opens_by_key and earlier[1] and earlier[1][i]
  if before and not has_ended(before) then
    entries[i] = before
  end
  -- The instance has a lease that the server does not have: it was lost, and others may have been lost, too.
  local own_lease = entries[i] and entries[i].leases[own_holder]
  is_lost = is_lost or (own_lease and own_lease.held or 0) < row[2]
end
for _, id in ipairs(request.leased) do
  is_lost = is_lost or redis.call('EXISTS', key .. ':' .. id) == 0
end
if is_lost and operation == 'lease' and quota.phase == 'open' then
  begin_recovery()
end

own.last_call, own.seq = now, request.seq
-- What was reported after an earlier loss is lost.
local is_void = operation == 'report' and request.loss ~= quota.recovery_start
if operation == 'report' and request.is_last and not is_void then
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
  for id, counts_until in pairs(windows) do
    if now > counts_until + WINDOW_RETENTION then
      -- Not left to expire: that frees all keys at once, and blocks the server. It expires if the user has no right to UNLINK.
      redis.pcall('UNLINK', key .. ':' .. id)
      redis.call('HDEL', key, 'w ' .. id)
    end
  end
  redis.call('PEXPIREAT', key, int(math.floor((request.counts_until + 7 * DAY) / 1000)))
end

-- Nothing that began after the loss can have been lost.
local is_recovering = quota.phase ~= 'open' and request.counts_from <= quota.recovery_start
local is_unreported = is_recovering and operation == 'lease' and own.reported_recovery ~= quota.recovery_start
if is_unreported or is_void then
  write_quota()
  return { 'report', table.concat(missing, ','), int(quota.recovery_start) }
end

-- Grant ---------------------------------------------------------------------------------------------------------------

-- Units are leased while the window is open, and until the end of the windows that keys have opened in it.
local is_over = now >= request.ends
local is_late = false

-- With the empty field. Parts of a sliding window have the keys of earlier ones that are used again, too: their sum is limited.
local key_count = math.max(sizes[#hashes], 1)
local sum_of_counts = key_count
for k = 1, #request.earlier do
  sum_of_counts = sum_of_counts + sizes[k]
end
local max_sum = request.max_keys * (#request.earlier + 1) + #request.earlier

-- Returns the units held and taken in the earlier parts, and by part.
local function count_before(i)
  local held_before, taken_before, by_part = 0, 0, {}
  for k = 1, opens_by_key and 0 or #earlier do
    by_part[k] = 0
    for _, lease in pairs(earlier[k][i] and earlier[k][i].leases or {}) do
      by_part[k], taken_before = by_part[k] + lease.held, taken_before + lease.taken
    end
    held_before = held_before + by_part[k]
  end
  return held_before, taken_before, by_part
end

-- Returns what the budget has used that a key may have shared before, with others: as much counts as used by the key.
local function count_shared(i)
  local held = 0
  for _, window in ipairs(shared) do
    if window[i] and not has_ended(window[i]) then
      for _, lease in pairs(window[i].leases) do
        held = held + lease.held
      end
    end
  end
  return held
end

-- Returns the number of parts that must expire until `units` come back, and any.
local function count_expiring(by_part, units)
  local freed = 0
  for k = 1, #by_part do
    freed = freed + by_part[k]
    if freed > 0 and freed >= units then
      return k
    end
  end
  return #by_part + 1
end

local reply = { '', table.concat(missing, ',') }
local changed, deleted, has_shared = { [window_key] = {} }, { [window_key] = {} }, {}
for i, row in ipairs(rows) do
  local name, is_known = row[1], row[2] >= 0
  local limit, taken, held, needed, wanted, remaining = unpack(row[3])
  local entry = entries[i]
  local held_before, taken_before, by_part = count_before(i)
  local is_new = not entry and held_before == 0
  local is_full = key_count > request.max_keys or sum_of_counts > max_sum
  if entry and has_ended(entry) then
    if is_known then
      reply[#reply + 1] = 'ended'
      entry = nil
    else
      entry = { hash = window_key, leases = {} }
    end
  elseif is_new and is_full and string.sub(name, 1, 1) ~= SHARED_PREFIX and operation == 'lease' then
    reply[#reply + 1] = 'shared'
  else
    entry = entry or { hash = window_key, leases = {} }
  end
  if entry then
    local leases, forgotten = entry.leases, 0
    local own_lease = leases[own_holder]
    if not is_known and own_lease then
      -- The instance has forgotten the key, of which it had reported all, or has not received the reply to its first call.
      forgotten = own_lease.taken
      taken, held, needed, wanted = taken + forgotten, held + forgotten, needed + forgotten, wanted + forgotten
    end
    -- Nobody knows whether what a killed incarnation held was used, and nobody returns it.
    local closed = leases['-'] or { held = 0, taken = 0 }
    local is_shared_budget = string.sub(name, 1, 1) == SHARED_PREFIX
    if is_new and not is_shared_budget and operation == 'lease' then
      local units = count_shared(i)
      closed = { held = closed.held + units, taken = closed.taken + units }
    end
    for holder, lease in pairs(leases) do
      local incarnation = incarnations[holder]
      if incarnation and is_replaced(incarnation) then
        closed = { held = closed.held + lease.held, taken = closed.taken + lease.held }
        leases[holder] = nil
      end
    end
    leases['-'] = closed
    local held_by_others, taken_by_others = 0, 0
    for holder, lease in pairs(leases) do
      if holder ~= own_holder then
        local incarnation = incarnations[holder]
        local is_silent = not incarnation or incarnation.last_call < now - LIVENESS_WINDOW
        held_by_others = held_by_others + lease.held
        taken_by_others = taken_by_others + (is_silent and lease.held or lease.taken)
      end
    end
    local excess = needed + held_by_others + held_before - limit
    local free, grant = math.max(needed - held - excess, 0), 0
    local can_grant = not is_over or entry.start ~= nil
    if operation == 'lease' and not is_recovering and can_grant and excess <= 0 then
      -- Leave units for other instances.
      grant = math.min(wanted - held, math.max(needed - held, math.floor(free / 2)))
    end
    is_late = is_late or (not can_grant and needed > held)
    leases[own_holder] = { held = held + grant, taken = taken }
    if operation == 'close' then
      leases['-'] = { held = closed.held + taken, taken = closed.taken + taken }
      leases[own_holder] = nil
    end
    local parts = {}
    for holder, lease in pairs(leases) do
      if lease.held > 0 or lease.taken > 0 then
        parts[#parts + 1] = holder .. ':' .. int(lease.held) .. ':' .. int(lease.taken)
      end
    end
    has_shared[entry.hash] = has_shared[entry.hash] or is_shared_budget
    changed[entry.hash], deleted[entry.hash] = changed[entry.hash] or {}, deleted[entry.hash] or {}
    if #parts > 0 then
      local start = ''
      if opens_by_key then
        if operation == 'report' and remaining > 0 then
          entry.start = math.max(entry.start or 0, now + remaining - request.length)
        end
        entry.start = entry.start or math.min(now, request.ends - 1)
        start = int(entry.start) .. '|'
      end
      local fields = changed[entry.hash]
      fields[#fields + 1], fields[#fields + 2] = name, start .. table.concat(parts, ';')
      if not entries[i] then
        key_count, sum_of_counts = key_count + 1, sum_of_counts + 1
      end
    elseif entries[i] then
      table.insert(deleted[entry.hash], name)
    end
    local columns = { int(held + grant), int(taken_by_others), int(forgotten) }
    if opens_by_key then
      columns[4] = int(#parts > 0 and entry.start + request.length - now or 0)
      columns[5] = entry.hash == window_key and '0' or '1'
    elseif #request.earlier > 0 then
      columns[4], columns[5] = int(taken_before), int(count_expiring(by_part, excess))
    end
    reply[#reply + 1] = table.concat(columns, ' ')
  end
end
reply[1] = is_recovering and 'unsure' or is_late and 'late' or 'ok'
write_quota()
for hash, fields in pairs(deleted) do
  if #fields > 0 then
    redis.call('HDEL', hash, unpack(fields))
  end
end
for hash, fields in pairs(changed) do
  if #fields > 0 then
    redis.call('HSET', hash, unpack(fields))
    -- The window exists while no key has units, too.
    redis.call('HSETNX', hash, '', '1')
    if has_shared[hash] then
      redis.call('HSET', hash, '', 'shared')
    end
    if hash == window_key then
      redis.call('HSET', key, 'w ' .. request.window, int(request.counts_until))
      -- If no instance is left that unlinks it.
      redis.call('PEXPIREAT', hash, int(math.floor((request.counts_until + 2 * WINDOW_RETENTION) / 1000)))
    end
  end
end
return reply
