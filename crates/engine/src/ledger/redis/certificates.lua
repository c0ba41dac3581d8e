-- Shares a certificate by ACME among gateways, of which one at a time may order it.
--
-- KEYS[1]: hash with the certificate: id, pem (encrypted), starts_at (of its validity, in seconds); with the order: holder, held_until (seconds of this
--   server), challenges; and with the last failure since the certificate: retry_at (seconds), failures, error.
-- ARGV: operation, name of the gateway, its current second, and
--   'sync':  the id that it knows, and 1 if it wants to order
--   'publish': the challenges of its order
--   'store': id, pem and starts_at of a certificate
--   'release': nothing; the gateway keeps the certificate for itself, and nobody's is stored
--   'fail':  retry_at, failures and error of its order
-- Returns id, pem (empty if the gateway knows it), starts_at, 1 if the gateway may order, retry_at, failures, error,
--   challenges.

local key, operation, gateway, now = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local server_now = tonumber(redis.call('TIME')[1])
-- Longer than an order, with each kind of challenge, takes.
local held_for = 600
-- The certificate of a site that is gone, in seconds.
local kept_for = 8640000

local function text(field)
  return redis.call('HGET', key, field) or ''
end

local function number(field)
  return tonumber(text(field)) or 0
end

local function is_held()
  return number('held_until') > server_now
end

local function is_ours()
  return is_held() and text('holder') == gateway
end

local known = ''
local may_order = 0
if operation == 'sync' then
  known = ARGV[4]
  local is_free = not is_held() or is_ours()
  if ARGV[5] == '1' and is_free and number('retry_at') <= now and (text('id') == known or text('id') == '') then
    redis.call('HSET', key, 'holder', gateway, 'held_until', server_now + held_for)
    may_order = 1
  end
elseif operation == 'publish' and is_ours() then
  redis.call('HSET', key, 'held_until', server_now + held_for, 'challenges', ARGV[4])
elseif operation == 'store' then
  known = ARGV[4]
  if (tonumber(ARGV[6]) or 0) > number('starts_at') then
    redis.call('HSET', key, 'id', ARGV[4], 'pem', ARGV[5], 'starts_at', ARGV[6])
    redis.call('HDEL', key, 'retry_at', 'failures', 'error')
  end
  if is_ours() then
    redis.call('HDEL', key, 'holder', 'held_until', 'challenges')
  end
elseif operation == 'release' and is_ours() then
  redis.call('HDEL', key, 'holder', 'held_until', 'challenges', 'retry_at', 'failures', 'error', 'id', 'pem', 'starts_at')
elseif operation == 'fail' and is_ours() then
  redis.call('HSET', key, 'retry_at', ARGV[4], 'failures', ARGV[5], 'error', ARGV[6])
  redis.call('HDEL', key, 'holder', 'held_until', 'challenges')
end
redis.call('EXPIRE', key, kept_for)

local id = text('id')
local pem = ''
if id ~= known then
  pem = text('pem')
end
local challenges = ''
if is_held() then
  challenges = text('challenges')
end
return { id, pem, number('starts_at'), may_order, number('retry_at'), number('failures'), text('error'), challenges }
