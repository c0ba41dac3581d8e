//! Client of a server or cluster: runs a script on the node that has the key of each call.

use super::connection::{RedisConnection, Timeouts};
use super::endpoint::{RedisAddress, RedisEndpoint};
use super::error;
use crate::ledger::StoreError;
use redis::{ServerError, Value};
use std::collections::{BTreeMap, HashMap};
use tidegate_policy::Timestamp;

/// Maximum number of nodes to which one call is redirected. More mean a redirect loop.
const MAX_REDIRECTS: usize = 4;

/// Connections to the nodes of a cluster, or to the only server, for one script.
#[derive(Debug)]
pub(super) struct RedisClient {
    pub(super) server: RedisEndpoint,
    pub(super) script: String,
    pub(super) timeouts: Timeouts,
    connections: BTreeMap<RedisAddress, RedisConnection>,
    /// Nodes of keys that another node than the configured one has.
    redirects: HashMap<String, RedisAddress>,
}

impl RedisClient {
    pub(super) fn new(server: RedisEndpoint, script: &str) -> Self {
        Self {
            server,
            script: script.to_owned(),
            timeouts: Timeouts::default(),
            connections: BTreeMap::new(),
            redirects: HashMap::new(),
        }
    }

    /// Runs the script once per call: its key, followed by its arguments. Returns a reply or an error of the server per call.
    ///
    /// # Errors
    /// Returns an error if a server is unreachable; then it is unknown which calls were executed.
    pub(super) async fn run(
        &mut self,
        calls: &[Vec<String>],
        now: Timestamp,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let mut replies: Vec<Option<Result<Value, StoreError>>> = calls.iter().map(|_| None).collect();
        for _ in 0..=MAX_REDIRECTS {
            let mut by_address: BTreeMap<RedisAddress, Vec<usize>> = BTreeMap::new();
            for index in (0..calls.len()).filter(|&index| replies[index].is_none()) {
                by_address.entry(self.address_of(&calls[index])).or_default().push(index);
            }
            for (address, indices) in by_address {
                let node = self.server.with_address(address);
                let calls_of_node: Vec<&[String]> = indices.iter().map(|&index| calls[index].as_slice()).collect();
                for (index, reply) in indices.into_iter().zip(self.run_on(&node, &calls_of_node, now).await?) {
                    replies[index] = match reply {
                        Value::ServerError(error) => self.handle_error(&node, &calls[index], &error).map(Err),
                        reply => Some(Ok(reply)),
                    };
                }
            }
            if replies.iter().all(Option::is_some) {
                return Ok(replies.into_iter().flatten().collect());
            }
        }
        Err(error::unreachable(&self.server, "too many redirects"))
    }

    /// Runs the script once with arguments for a key. Returns its reply.
    pub(super) async fn run_one(&mut self, call: Vec<String>, now: Timestamp) -> Result<Value, StoreError> {
        let replies = self.run(&[call], now).await?;
        replies.into_iter().next().unwrap_or(Ok(Value::Nil))
    }

    async fn run_on(
        &mut self,
        node: &RedisEndpoint,
        calls: &[&[String]],
        now: Timestamp,
    ) -> Result<Vec<Value>, StoreError> {
        let connection = self
            .connections
            .entry(node.address.clone())
            .or_insert_with(|| RedisConnection::new(node.clone(), &self.script, self.timeouts));
        // A node that fails may have handed its keys to another one.
        connection.run(calls, now).await.inspect_err(|_| self.redirects.clear())
    }

    fn address_of(&self, call: &[String]) -> RedisAddress {
        let redirected = call.first().and_then(|key| self.redirects.get(key));
        redirected.unwrap_or(&self.server.address).clone()
    }

    /// Follows a redirect, or returns the error.
    fn handle_error(&mut self, node: &RedisEndpoint, call: &[String], error: &ServerError) -> Option<StoreError> {
        if let (Some(target), Some(key)) = (error::redirect(error), call.first()) {
            self.redirects.insert(key.clone(), RedisAddress::Tcp(target));
            return None;
        }
        // Reconnect after any other error: the host name may resolve to another server by the next round.
        self.connections.values_mut().for_each(RedisConnection::disconnect);
        self.redirects.clear();
        Some(error::from_server(node, error))
    }
}
