//! Switches of administrators that several gateways share.

use super::client::RedisClient;
use super::endpoint::RedisEndpoint;
use super::error;
use crate::ledger::StoreError;
use crate::switch_store::SwitchEntry;
use redis::Value;
use std::collections::BTreeSet;
use tidegate_policy::Timestamp;

/// The switches of all gateways with the same prefix.
pub struct SharedSwitches {
    client: RedisClient,
    key: String,
    /// Version of the switches that this gateway has.
    version: i64,
    /// Changes that the server has, by target and time.
    known: BTreeSet<(String, u64)>,
}

impl SharedSwitches {
    /// Creates a connection to the server, with a key that begins with `prefix`.
    pub fn new(server: RedisEndpoint, prefix: &str) -> Self {
        Self {
            key: format!("{{{prefix}}}:switches"),
            client: RedisClient::new(server, include_str!("switches.lua")),
            version: 0,
            known: BTreeSet::new(),
        }
    }

    /// Sends the changes that the server lacks. Returns the changes of all gateways if there are new ones, else nothing.
    pub async fn exchange(&mut self, changes: &[SwitchEntry], now: Timestamp) -> Result<Vec<SwitchEntry>, StoreError> {
        let mut call = vec![self.key.clone(), now.seconds().to_string(), self.version.to_string()];
        for change in changes.iter().filter(|change| !self.known.contains(&id(change))) {
            let json = serde_json::to_string(change).map_err(|error| error::refused(&self.client.server, error))?;
            let forgotten_at = change.forgotten_at().map_or(0, |at| at.seconds());
            call.extend([change.target.clone(), format!("{} {forgotten_at} {json}", change.changed_at_us)]);
        }
        let reply = self.client.run_one(call, now).await?;
        let (version, all) = parse(reply)
            .ok_or_else(|| error::refused(&self.client.server, "invalid reply of the script of the switches"))?;
        if version != self.version {
            self.version = version;
            self.known = all.iter().map(id).collect();
        }
        Ok(all)
    }
}

fn parse(reply: Value) -> Option<(i64, Vec<SwitchEntry>)> {
    let mut items = redis::from_redis_value::<Vec<Value>>(reply).ok()?.into_iter();
    let version = redis::from_redis_value(items.next()?).ok()?;
    let change = |item| serde_json::from_str(&redis::from_redis_value::<String>(item).ok()?).ok();
    Some((version, items.filter_map(change).collect()))
}

fn id(change: &SwitchEntry) -> (String, u64) {
    (change.target.clone(), change.changed_at_us)
}
