//! Switches of administrators that several gateways share.

use super::connection::{RedisConnection, Timeouts};
use super::endpoint::RedisEndpoint;
use super::error;
use super::resp::Reply;
use crate::ledger::StoreError;
use crate::switch_store::SwitchEntry;
use std::collections::BTreeSet;
use tidegate_policy::Timestamp;

/// The switches of all gateways with the same prefix.
pub struct SharedSwitches {
    server: RedisEndpoint,
    key: String,
    connection: RedisConnection,
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
            connection: new_connection(server.clone()),
            server,
            version: 0,
            known: BTreeSet::new(),
        }
    }

    /// Sends the changes that the server lacks. Returns the changes of all gateways if there are new ones, else nothing.
    pub async fn exchange(&mut self, changes: &[SwitchEntry], now: Timestamp) -> Result<Vec<SwitchEntry>, StoreError> {
        let mut call = vec![self.key.clone(), now.seconds().to_string(), self.version.to_string()];
        for change in changes.iter().filter(|change| !self.known.contains(&id(change))) {
            let json = serde_json::to_string(change).map_err(|error| error::refused(&self.server, error))?;
            let forgotten_at = change.forgotten_at().map_or(0, |at| at.seconds());
            call.extend([change.target.clone(), format!("{} {forgotten_at} {json}", change.changed_at_us)]);
        }
        let replies = self.connection.run(std::slice::from_ref(&call), now).await?;
        let (version, all) = self.parse(replies.into_iter().next().unwrap_or(Reply::Nil))?;
        if version != self.version {
            self.version = version;
            self.known = all.iter().map(id).collect();
        }
        Ok(all)
    }

    fn parse(&mut self, reply: Reply) -> Result<(i64, Vec<SwitchEntry>), StoreError> {
        let items = match reply {
            Reply::List(items) => items,
            Reply::Error(message) => {
                if let Some((host, port)) = error::parse_redirect(&message) {
                    self.connection = new_connection(self.server.with_address(host, port));
                }
                return Err(error::from_server(&self.server, &message));
            }
            _ => Vec::new(),
        };
        match items.split_first() {
            Some((Reply::Number(version), all)) => {
                Ok((*version, all.iter().filter_map(|item| serde_json::from_str(item.text()?).ok()).collect()))
            }
            _ => Err(error::refused(&self.server, "invalid reply of the script of the switches")),
        }
    }
}

fn id(change: &SwitchEntry) -> (String, u64) {
    (change.target.clone(), change.changed_at_us)
}

fn new_connection(server: RedisEndpoint) -> RedisConnection {
    RedisConnection::new(server, include_str!("switches.lua"), Timeouts::default())
}
