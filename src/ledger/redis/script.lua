-- Leases one window of one quota to one gate. Runs inside Redis or Valkey, so it is atomic, and the time is the server's.
--
-- What always holds: over all gates and all their lives, what is held and what may be taken as a share, and all of that in
-- the windows that weigh on this one, is never more than the limit because of anything that this script granted.
--
-- Amounts are whole thousandths of a unit, moments are microseconds: both fit a double (up to 2^53) exactly.
-- Everything about a quota is one hash: it is kept, lost, evicted and restored as a whole, and lies in one slot of a cluster.
--   q              run phase since before last   the server's run, how far it is trusted, and the last ordinal
--   g HOLDER       heard round seq closed        a gate's life: when it spoke last, in which round it told all it knew
--   w ID           starts ends back ordinal      a window
--   h ID HOLDER    held taken share expects      what that life holds of that window, and expects to be asked for in it
--   c ID           milli                         a correction by hand
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

-- Lua would write large numbers as 9.007e15.
local function int(number)
  return string.format('%.0f', number)
end

local function moment(number)
  return number and int(number) or '-'
end

-- What is known ----------------------------------------------------------------------------------------------------------

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

-- The last moment at which the window weighs on anything; none while it has not been opened.
local function weighs_until(window)
  return window.ends and window.ends + window.back * (window.ends - window.starts)
end

-- One write first: where the server has no memory left or is a replica it fails, and nothing has been changed.
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
    -- A week on top, so that a quota that rests over a holiday need not settle again.
    redis.call('PEXPIREAT', key, int(math.floor((forget + 7 * DAY) / 1000)))
  end
end

-- Whether it can be trusted ----------------------------------------------------------------------------------------------

-- Something was lost, or may have been: every gate that was alive has to tell all it knows before more is granted.
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
-- A call that was overtaken by a later one, on another connection: its sender has given up on it.
if op ~= 'correct' and seq <= myself.seq then
  return { 'stale' }
end

local heirs = {}
for name in string.gmatch(heirs_of, '[^,]+') do
  heirs[name] = true
end

-- Windows that weigh no more.
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

-- Which window is meant. Those that open at their first use are counted here: a gate that was away has missed some.
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

-- A gate that was told of its lease, and finds that it is not known here: it has been forgotten, and others may have been.
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
      -- What it says of itself follows below, window by window; until then the larger of both stands.
      windows[name].holders[a] = hold
      put_hold(name, a)
      if quota.phase == 'settling' and hold.held + hold.share > 0 then
        quota.phase = 'confirming'
      end
    elseif kind == 'g' then
      -- When it was heard is from before the loss, whoever tells it.
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

-- An earlier life of this gate, whose books the gate has: what it held is exactly what is asked for now. While somebody
-- still speaks in its name (a copied state directory) nothing is inherited.
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

-- Who is still to be heard. Whoever had been silent for long before the loss counts with what is known of it.
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

-- What may be granted ----------------------------------------------------------------------------------------------------

-- True when what was taken of one window weighs on the other: it is within reach before a sliding one, or it is at the same
-- time, under rules that have changed since.
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

-- What one window weighs, but for what this gate holds of the window it asks about.
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
  -- The operator's word goes before that of a gate that does not come back.
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
  -- Nothing of a window that was further away than anybody may ask can have been granted before the loss.
  unsure = window.starts - window.back * (window.ends - window.starts) <= quota.since + ahead
end

-- What it takes cannot be undone, and what it gives back it has stopped using before it asked.
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
    -- The rest is for all: as much as it needs at once, or its part.
    local need = math.min(math.max(taken + soon - base, 0), room)
    grant = math.min(grant, math.max(need, math.floor(room / gate_count)))
  end
  local rest = math.max(free - grant, 0)
  share = 0
  if shares and rest >= limit / 100 then
    share = math.floor(rest / 2 / gate_count)
  end
end

-- The gate may still live by the share it was told last: it is let go only once the gate has said that it knows better.
window.holders[me] = { held = base + grant, taken = taken, expects = expects, share = math.max(share_known, share) }
put_hold(id, me)
remember()

-- What it is told --------------------------------------------------------------------------------------------------------

local lost, withheld, expected_elsewhere = 0, 0, 0
local gate_name = string.match(me, '^[^.]+')
for holder, hold in pairs(window.holders) do
  local is_ours, untaken = string.match(holder, '^[^.]+') == gate_name, math.max(hold.held + hold.share - hold.taken, 0)
  if is_ours and holder ~= me and not heirs[holder] then
    lost = lost + untaken
  end
  -- Nobody asks a gate that has gone, for its clients ask others; and what it holds nobody will have.
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
