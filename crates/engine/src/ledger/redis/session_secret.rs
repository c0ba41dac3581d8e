//! The secret that signs session cookies, shared by several gateways.

use super::client::RedisClient;
use super::endpoint::RedisEndpoint;
use super::error;
use crate::ledger::StoreError;
use tidegate_policy::Timestamp;

/// The secret of all gateways with the same prefix.
pub struct SharedSessionSecret {
    client: RedisClient,
    key: String,
}

impl SharedSessionSecret {
    /// Creates a connection to the server, with a key that begins with `prefix`.
    pub fn new(server: RedisEndpoint, prefix: &str) -> Self {
        let client = RedisClient::new(server, include_str!("session_secret.lua"));
        Self { client, key: format!("{{{prefix}}}:session_secret") }
    }

    /// Returns the secret of all gateways: `own` if none had one.
    pub async fn agree(&mut self, own: &str, now: Timestamp) -> Result<String, StoreError> {
        let call = vec![self.key.clone(), now.seconds().to_string(), own.to_owned()];
        let reply = self.client.run_one(call, now).await?;
        redis::from_redis_value(reply)
            .map_err(|_| error::refused(&self.client.server, "invalid reply of the script of the session secret"))
    }
}
