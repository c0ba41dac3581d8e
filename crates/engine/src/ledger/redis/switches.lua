-- Merges the switches of one gateway into those of all gateways, and returns what it lacks.
--
-- KEYS[1]: hash of the switches. Field '' holds its version; every other field is a target, with the value
--   'CHANGED_AT FORGOTTEN_AT JSON': the time of the change in microseconds, and the second after which it is deleted (0:
--   never).
-- ARGV: the current second, the version that the gateway knows, then target and value of each change it has made.
-- Returns the version, followed by all JSON documents if the version is another one than the gateway knows.

local key = KEYS[1]
local now = tonumber(ARGV[1])
-- Twice what one gateway keeps.
local max_targets = 20000
-- A week, in seconds: how long gateways keep a switch that has ended.
local kept_after_end = 604800

-- Values that no gateway wrote count as absent.
local function parse(value)
  local changed_at, forgotten_at, json = string.match(value or '', '^(%d+) (%d+) (.*)$')
  return tonumber(changed_at), tonumber(forgotten_at), json
end

local targets = redis.call('HLEN', key)
local stored_version = tonumber(redis.call('HGET', key, '') or '')
-- A server that lost its data continues with another version than any gateway knows.
local version = stored_version or now * 1000
local is_changed = stored_version == nil

-- Switches that have ended make room for others.
if targets + (#ARGV - 2) / 2 > max_targets then
  local all = redis.call('HGETALL', key)
  for index = 1, #all, 2 do
    local _, forgotten_at = parse(all[index + 1])
    if all[index] ~= '' and (not forgotten_at or (forgotten_at ~= 0 and forgotten_at <= now + kept_after_end)) then
      redis.call('HDEL', key, all[index])
      targets = targets - 1
    end
  end
end

for index = 3, #ARGV, 2 do
  local target, value = ARGV[index], ARGV[index + 1]
  local before = parse(redis.call('HGET', key, target) or '')
  local changed_at = parse(value)
  if target ~= '' and changed_at and (before or targets < max_targets) and (not before or before < changed_at) then
    redis.call('HSET', key, target, value)
    targets = before and targets or targets + 1
    is_changed = true
  end
end
if is_changed then
  version = version + 1
  redis.call('HSET', key, '', string.format('%.0f', version))
end
if version == tonumber(ARGV[2]) then
  return { version }
end

local reply = { version }
local all = redis.call('HGETALL', key)
for index = 1, #all, 2 do
  local target = all[index]
  local _, forgotten_at, json = parse(all[index + 1])
  if target ~= '' then
    if json and (forgotten_at == 0 or forgotten_at > now) then
      reply[#reply + 1] = json
    else
      redis.call('HDEL', key, target)
    end
  end
end
return reply
