-- Stores the secret of one gateway unless there is one, and returns the one of all gateways.
--
-- KEYS[1]: the secret.
-- ARGV: the current second, which nothing uses, then the secret of the gateway.

redis.call('SET', KEYS[1], ARGV[2], 'NX')
return redis.call('GET', KEYS[1])
