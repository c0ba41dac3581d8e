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

local stored, targets = {}, 0
local all = redis.call('HGETALL', key)
for index = 1, #all, 2 do
  stored[all[index]] = all[index + 1]
  targets = targets + 1
end
-- A server that lost its data continues with another version than any gateway knows.
local version = tonumber(stored[''] or now * 1000)
local is_changed = stored[''] == nil

for index = 3, #ARGV, 2 do
  local target, value = ARGV[index], ARGV[index + 1]
  local before = stored[target]
  local is_later = not before or tonumber(string.match(before, '^%d+')) < tonumber(string.match(value, '^%d+'))
  if target ~= '' and is_later and (before or targets < max_targets) then
    redis.call('HSET', key, target, value)
    stored[target] = value
    targets = targets + 1
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
for target, value in pairs(stored) do
  if target ~= '' then
    local forgotten_at, json = string.match(value, '^%d+ (%d+) (.*)$')
    if tonumber(forgotten_at) ~= 0 and tonumber(forgotten_at) <= now then
      redis.call('HDEL', key, target)
    else
      reply[#reply + 1] = json
    end
  end
end
return reply
