-- Leases one window of one quota to one instance. Runs inside Redis or Valkey: it is atomic and uses the server's
-- clock.
--
-- Invariant, for this window together with all that overlap it: no grant of this script makes the held and fallback
-- units of all instances and incarnations exceed the limit.
--
-- Amounts are whole milli-units and times are microseconds: a double represents both exactly (up to 2^53).
-- One hash contains the state of a quota: it is kept, lost, evicted and restored as a whole, in one slot of a cluster.
--   q              run phase since before last   run id of the server, recovery phase, and the last ordinal
--   g HOLDER       heard round seq closed        an incarnation: time of its last call, round of its last full report
--   w ID           starts ends back ordinal      a window
--   h ID HOLDER    held taken share expects      units of that incarnation in that window, and its forecast demand
--   c ID           milli                         a manual correction
local key = KEYS[1]
local op, me, seq = ARGV[1], ARGV[2], tonumber(ARGV[3])
local settle, alive, ahead, grace, silent =
  tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local heirs_of, id, starts, ends = ARGV[9], ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
local back, ordinal, limit = tonumber(ARGV[13]), ARGV[14] == '1', tonumber(ARGV[15])
local taken, held, wanted, soon = tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18]), tonumber(ARGV[19])
local share_known, shares, answered = tonumber(ARGV[20]), ARGV[21] == '1', ARGV[22] == '1'
local told, used, expects = ARGV[23], tonumber(ARGV[24]), tonumber(ARGV[25])

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local DAY = 86400000000

-- Lua would format large numbers as 9.007e15.
local function int(number)
  return string.format('%.0f', number)
end

local function moment(number)
  return number and int(number) or '-'
end

-- Stored state --------------------------------------------------------------------------------------------------------

local quota, gates, windows = nil, {}, {}
local changed, gone = {}, {}

local function window_of(name)
  windows[name] = windows[name] or { back = 0, holders = {} }
  return windows[name]
end

local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
  local kind, name, holder = string.match(fields[i], '^(%a) ?(%S*) ?(%S*)$')
  local a, b, c, d, e = string.match(fields[i + 1], '^(%S+) ?(%S*) ?(%S*) ?(%S*) ?(%S*)$')
  if kind == 'q' then
    quota = { run = a, phase = b, since = tonumber(c), before = tonumber(d), last = tonumber(e) }
  elseif kind == 'g' then
    gates[name] = { heard = tonumber(a), round = tonumber(b), seq = tonumber(c), closed = d == '1' }
  elseif kind == 'w' then
    local window = window_of(name)
    window.starts, window.ends, window.back, window.ordinal = tonumber(a), tonumber(b), tonumber(c), d == '1'
  elseif kind == 'h' then
    window_of(name).holders[holder] =
      { held = tonumber(a), taken = tonumber(b), share = tonumber(c), expects = tonumber(d) or 0 }
  elseif kind == 'c' then
    window_of(name).correction = tonumber(a)
  end
end

local function put_gate(name)
  local gate = gates[name]
  changed['g ' .. name] = table.concat({ int(gate.heard), int(gate.round), int(gate.seq), gate.closed and '1' or '0' }, ' ')
end

local function put_window(name)
  local window = windows[name]
  changed['w ' .. name] =
    table.concat({ moment(window.starts), moment(window.ends), int(window.back), window.ordinal and '1' or '0' }, ' ')
end

local function put_hold(name, holder)
  local hold = windows[name].holders[holder]
  changed['h ' .. name .. ' ' .. holder] =
    table.concat({ int(hold.held), int(hold.taken), int(hold.share), int(hold.expects) }, ' ')
end

local function drop(field)
  changed[field] = nil
  gone[#gone + 1] = field
end

-- Returns the last time at which the window overlaps another; nil while it is not open.
local function weighs_until(window)
  return window.ends and window.ends + window.back * (window.ends - window.starts)
end

-- Writes first: without memory, or on a replica, the write fails and nothing has changed.
local function remember()
  changed['q'] =
    table.concat({ quota.run, quota.phase, int(quota.since), int(quota.before), int(quota.last) }, ' ')
  local flat = {}
  for field, value in pairs(changed) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  for from = 1, #flat, 1000 do
    redis.call('HSET', key, unpack(flat, from, math.min(from + 999, #flat)))
  end
  for from = 1, #gone, 1000 do
    redis.call('HDEL', key, unpack(gone, from, math.min(from + 999, #gone)))
  end
  local forget, open = now, false
  for _, window in pairs(windows) do
    local last = weighs_until(window)
    open = open or not last
    forget = math.max(forget, last or 0)
  end
  if open then
    redis.call('PERSIST', key)
  else
    -- A week longer, so that a quota that is idle over a holiday needs no recovery.
    redis.call('PEXPIREAT', key, int(math.floor((forget + 7 * DAY) / 1000)))
  end
end

-- Recovery ------------------------------------------------------------------------------------------------------------

-- State was lost, or may have been: every live instance must report its state before more is granted.
local function begin_round(phase)
  quota.run, quota.phase, quota.since = run, phase, now
  for _, gate in pairs(gates) do
    quota.before = math.max(quota.before, gate.heard)
  end
end

if not quota then
  quota = { last = 0, before = 0 }
  begin_round('settling')
elseif quota.run ~= run then
  begin_round('confirming')
end

local myself = gates[me] or { heard = now, round = 0, seq = 0, closed = false }
-- A later call on another connection has overtaken this one: its sender has dropped it.
if op ~= 'correct' and seq <= myself.seq then
  return { 'stale' }
end

local heirs = {}
for name in string.gmatch(heirs_of, '[^,]+') do
  heirs[name] = true
end

-- Evict windows whose usage has expired, and idle instances.
for name, window in pairs(windows) do
  local last = weighs_until(window)
  if last and now > last + grace then
    drop('w ' .. name)
    drop('c ' .. name)
    for holder in pairs(window.holders) do
      drop('h ' .. name .. ' ' .. holder)
    end
    windows[name] = nil
  end
end
for name, gate in pairs(gates) do
  local holds = name == me
  for _, window in pairs(windows) do
    holds = holds or window.holders[name] ~= nil
  end
  if not holds and now > gate.heard + DAY then
    drop('g ' .. name)
    gates[name] = nil
  end
end

-- Find the window. First-use windows are numbered here, because an instance may have missed some.
if ordinal then
  for name, window in pairs(windows) do
    if starts and window.ordinal and window.starts and math.abs(window.starts - starts) <= 1 then
      id = name
    end
  end
  if not windows[id] and quota.last > tonumber(id) then
    local latest = windows[int(quota.last)]
    local over = not latest or (latest.ends and now >= latest.ends)
    return { 'behind', int(over and quota.last + 1 or quota.last) }
  end
  quota.last = math.max(quota.last, tonumber(id))
end
local is_new = not windows[id]
local window = window_of(id)
if is_new or (not window.starts and starts) then
  window.starts, window.ends, window.back, window.ordinal = starts, ends, back, ordinal
  put_window(id)
end

-- The instance has a lease that is missing here: it was lost, and other leases may have been lost, too.
local mine = window.holders[me]
local claim = held + share_known
local weighs = not window.ends or now < weighs_until(window)
local forgotten = answered and weighs and claim > 0 and (not mine or mine.held + mine.share < claim)
if forgotten and op == 'lease' then
  if quota.phase == 'open' then
    begin_round('confirming')
  elseif quota.phase == 'settling' then
    quota.phase = 'confirming'
  end
end

local asked_to_tell = quota.phase ~= 'open' and myself.round ~= quota.since and op == 'lease'
if asked_to_tell and told == '-' then
  changed, gone = {}, {}
  remember()
  return { 'tell' }
end

if asked_to_tell then
  for entry in string.gmatch(told, '[^;]+') do
    local kind, name, a, b, c, d, e = string.match(entry, '^(%a) (%S+) (%S+) ?(%S*) ?(%S*) ?(%S*) ?(%S*)$')
    if kind == 'w' then
      local known = windows[name]
      local other = { starts = tonumber(a), ends = tonumber(b), back = tonumber(c), ordinal = d == '1' }
      local last = weighs_until(other)
      if (not last or now <= last + grace) and (not known or not known.starts) then
        other.holders, other.correction = known and known.holders or {}, known and known.correction
        windows[name] = other
        put_window(name)
        if other.ordinal then
          quota.last = math.max(quota.last, tonumber(name))
        end
      end
    elseif kind == 'c' and windows[name] then
      windows[name].correction = math.max(tonumber(a), windows[name].correction or tonumber(a))
      changed['c ' .. name] = int(windows[name].correction)
    elseif kind == 'h' and windows[name] then
      local hold = windows[name].holders[a] or { held = 0, taken = 0, share = 0, expects = 0 }
      hold.held, hold.taken, hold.share =
        math.max(hold.held, tonumber(b)), math.max(hold.taken, tonumber(c)), math.max(hold.share, tonumber(d))
      -- The instance's own values follow below, per window; until then the maximum of both counts.
      windows[name].holders[a] = hold
      put_hold(name, a)
      if quota.phase == 'settling' and hold.held + hold.share > 0 then
        quota.phase = 'confirming'
      end
    elseif kind == 'g' then
      -- Times of last calls date from before the loss, whichever instance reports them.
      quota.before = math.max(quota.before, tonumber(a))
      local gate = gates[name] or { heard = 0, round = 0, seq = 0, closed = b == '1' }
      if name ~= me and tonumber(a) > gate.heard then
        gate.heard, gate.closed = tonumber(a), b == '1'
      end
      if name ~= me then
        gates[name] = gate
        put_gate(name)
      end
    end
  end
  window = windows[id]
end

gates[me] = myself
if op == 'lease' then
  myself.round = quota.since
end
if op ~= 'correct' then
  myself.heard, myself.seq, myself.closed = now, seq, op == 'close'
  put_gate(me)
end

-- Earlier incarnations with recorded usage: their held units are exactly those requested now. Nothing is inherited
-- while another process sends calls in their name (a copied state directory).
for name in pairs(heirs) do
  local gate, hold = gates[name], window.holders[name]
  local rests = not gate or gate.closed or now > gate.heard + silent
  if gate and gate.round ~= quota.since and rests then
    gate.round = quota.since
    put_gate(name)
  end
  if hold and rests and hold.taken <= taken then
    window.holders[name] = nil
    drop('h ' .. id .. ' ' .. name)
  end
end

-- Instances that must still report. Instances that were silent long before the loss count with their stored state.
local waiting = {}
if quota.phase ~= 'open' then
  for name, gate in pairs(gates) do
    if not gate.closed and gate.round ~= quota.since and gate.heard > quota.before - alive then
      waiting[#waiting + 1] = name
    end
  end
  if now >= quota.since + settle and #waiting == 0 then
    quota.phase = 'open'
  end
end

-- Grant ---------------------------------------------------------------------------------------------------------------

-- Returns true if the usage of one window counts in the other. It does within reach of a sliding window, and if the
-- windows overlap in time because the rules have changed.
local function weighs_on(one, other)
  if one == other or not one.starts or not other.starts or one.ordinal or other.ordinal then
    return false
  end
  local length = other.ends - other.starts
  local first = other.starts - other.back * length - length / 2
  local is_before = other.back > 0 and one.starts < other.starts and one.starts > first
  return is_before or (one.starts < other.ends and one.ends > other.starts)
end

local function is_there(name)
  local gate = gates[name]
  return gate and not gate.closed and now - gate.heard < alive
end

-- Returns the held and taken units of a window, except those of this instance in the requested window.
local function weight(one)
  local all, known = one.correction or 0, one.correction or 0
  for holder, hold in pairs(one.holders) do
    if one ~= window or holder ~= me then
      all, known = all + hold.held + hold.share, known + hold.taken
    end
  end
  return all, known
end

local function weight_on(one)
  local all, known = weight(one)
  for _, other in pairs(windows) do
    if weighs_on(other, one) then
      local more, more_known = weight(other)
      all, known = all + more, known + more_known
    end
  end
  return all, known
end

local elsewhere, taken_elsewhere = weight_on(window)

if op == 'correct' then
  local missing = used - taken_elsewhere
  local correction = window.correction or 0
  if missing < 0 then
    correction = correction + missing
  elseif missing > taken then
    correction = correction + missing - taken
  end
  window.correction = correction
  changed['c ' .. id] = int(correction)
  -- The administrator's correction overrides instances that do not return.
  for _, name in ipairs(waiting) do
    gates[name].heard = 0
    put_gate(name)
  end
  quota.phase = 'open'
  remember()
  return { 'ok' }
end

local gate_count = 0
for name in pairs(gates) do
  if is_there(name) then
    gate_count = gate_count + 1
  end
end

local over = window.ends and now >= window.ends
local early = window.starts and window.starts > now + ahead
local unsure = quota.phase ~= 'open'
if unsure and quota.phase == 'confirming' and window.starts then
  -- A window further ahead than the maximum lead cannot have been leased before the loss.
  unsure = window.starts - window.back * (window.ends - window.starts) <= quota.since + ahead
end

-- Taken units cannot be undone, and returned units are no longer used since before the call.
local base = math.max(taken, math.min(held, wanted))
local free = limit - elsewhere - base
for _, later in pairs(windows) do
  if weighs_on(window, later) then
    free = math.min(free, limit - weight_on(later) - base)
  end
end

local grant, share = 0, math.min(share_known, math.max(free, 0))
if op == 'close' then
  share_known, share = 0, 0
elseif not (over or early or unsure) then
  local room = math.max(free - share_known, 0)
  grant = math.min(math.max(wanted - base, 0), room)
  if gate_count > 1 and grant > room / 2 then
    -- Leave units for the others: grant the urgent need at once, or an equal part.
    local need = math.min(math.max(taken + soon - base, 0), room)
    grant = math.min(grant, math.max(need, math.floor(room / gate_count)))
  end
  local rest = math.max(free - grant, 0)
  share = 0
  if shares and rest >= limit / 100 then
    share = math.floor(rest / 2 / gate_count)
  end
end

-- The instance may still use the fallback last reported to it. Release it only after a call that reports the new one.
window.holders[me] = { held = base + grant, taken = taken, expects = expects, share = math.max(share_known, share) }
put_hold(id, me)
remember()

-- Reply ---------------------------------------------------------------------------------------------------------------

local lost, withheld, expected_elsewhere = 0, 0, 0
local gate_name = string.match(me, '^[^.]+')
for holder, hold in pairs(window.holders) do
  local is_ours, untaken = string.match(holder, '^[^.]+') == gate_name, math.max(hold.held + hold.share - hold.taken, 0)
  if is_ours and holder ~= me and not heirs[holder] then
    lost = lost + untaken
  end
  -- Clients of an exited instance use other instances, so its forecast is dropped; no instance can use its units.
  if not is_there(holder) then
    withheld = withheld + untaken
  elseif not is_ours then
    expected_elsewhere = expected_elsewhere + hold.expects
  end
end

local everything = {}
for name, gate in pairs(gates) do
  everything[#everything + 1] = table.concat({ 'g', name, int(gate.heard), gate.closed and '1' or '0' }, ' ')
end
for name, one in pairs(windows) do
  everything[#everything + 1] =
    table.concat({ 'w', name, moment(one.starts), moment(one.ends), int(one.back), one.ordinal and '1' or '0' }, ' ')
  if one.correction then
    everything[#everything + 1] = table.concat({ 'c', name, int(one.correction) }, ' ')
  end
  for holder, hold in pairs(one.holders) do
    everything[#everything + 1] =
      table.concat({ 'h', name, holder, int(hold.held), int(hold.taken), int(hold.share) }, ' ')
  end
end

return {
  (over and 'over') or (early and 'early') or (unsure and 'unsure') or 'ok',
  int(base + grant),
  int(share),
  int(math.max(elsewhere, 0)),
  int(math.max(taken_elsewhere, 0)),
  int(lost),
  int(withheld),
  int(expected_elsewhere),
  moment(window.starts),
  moment(window.ends),
  int(now),
  table.concat(waiting, ','),
  table.concat(everything, ';'),
}
