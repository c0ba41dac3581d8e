//! Certificates by ACME that several gateways share: one of them orders, and all serve it and answer its challenges.

use super::client::RedisClient;
use super::endpoint::RedisEndpoint;
use super::error;
use crate::ledger::StoreError;
use redis::Value;
use tidegate_policy::Timestamp;

/// The certificates of all gateways with the same prefix.
#[derive(Debug)]
pub struct SharedCertificates {
    pub(super) client: RedisClient,
    prefix: String,
    gateway: String,
}

/// State of a shared certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedCertificate {
    /// Identifies the certificate; empty if there is none.
    pub id: String,
    /// Key and chain, if the gateway does not know them.
    pub pem: Option<String>,
    /// Start of its validity, in seconds since 1970; 0 if there is none.
    pub starts_at: u64,
    /// True if this gateway may order, and no other one until it has stored a certificate or failed, or has been silent for
    /// ten minutes.
    pub may_order: bool,
    /// Time before which no gateway orders, after a failure.
    pub retry_at: Timestamp,
    /// Failed orders since the certificate.
    pub failures: u32,
    /// Reason of the last failed order since the certificate; empty if there is none.
    pub error: String,
    /// Challenges of the order in progress; empty without one.
    pub challenges: String,
}

impl SharedCertificates {
    /// Creates a connection to the server, with keys that begin with `prefix`. No other gateway is named `gateway`.
    pub fn new(server: RedisEndpoint, prefix: &str, gateway: String) -> Self {
        Self { client: RedisClient::new(server, include_str!("certificates.lua")), prefix: prefix.to_owned(), gateway }
    }

    /// Returns the state of the certificate `name`. `known_id` is that of the certificate which this gateway has.
    /// `wants_order` asks to order one.
    pub async fn sync(
        &mut self,
        name: &str,
        known_id: &str,
        wants_order: bool,
        now: Timestamp,
    ) -> Result<SharedCertificate, StoreError> {
        self.run(name, "sync", now, &[known_id, if wants_order { "1" } else { "0" }]).await
    }

    /// Tells the other gateways the challenges of this one's order.
    pub async fn publish(&mut self, name: &str, challenges: &str, now: Timestamp) -> Result<(), StoreError> {
        self.run(name, "publish", now, &[challenges]).await.map(drop)
    }

    /// Stores a certificate unless there is a newer one, and ends this gateway's order.
    pub async fn store(
        &mut self,
        name: &str,
        id: &str,
        pem: &str,
        starts_at: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.run(name, "store", now, &[id, pem, &starts_at.to_string()]).await.map(drop)
    }

    /// Ends this gateway's order, whose certificate it keeps for itself, and removes what is stored.
    pub async fn release(&mut self, name: &str, now: Timestamp) -> Result<(), StoreError> {
        self.run(name, "release", now, &[]).await.map(drop)
    }

    /// Ends this gateway's order, which has failed. No gateway orders before `retry_at`.
    pub async fn fail(
        &mut self,
        name: &str,
        retry_at: Timestamp,
        failures: u32,
        error: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let retry_at = retry_at.seconds().to_string();
        self.run(name, "fail", now, &[&retry_at, &failures.to_string(), error]).await.map(drop)
    }

    async fn run(
        &mut self,
        name: &str,
        operation: &str,
        now: Timestamp,
        arguments: &[&str],
    ) -> Result<SharedCertificate, StoreError> {
        let key = format!("{{{}}}:certificate:{name}", self.prefix);
        let mut call = vec![key, operation.to_owned(), self.gateway.clone(), now.seconds().to_string()];
        call.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let reply = self.client.run_one(call, now).await?;
        parse(reply)
            .ok_or_else(|| error::refused(&self.client.server, "invalid reply of the script of the certificates"))
    }
}

fn parse(reply: Value) -> Option<SharedCertificate> {
    let (id, pem, starts_at, may_order, retry_at, failures, error, challenges): (
        String,
        String,
        u64,
        u8,
        u64,
        u32,
        String,
        String,
    ) = redis::from_redis_value(reply).ok()?;
    Some(SharedCertificate {
        id,
        pem: Some(pem).filter(|pem| !pem.is_empty()),
        starts_at,
        may_order: may_order == 1,
        retry_at: Timestamp::from_seconds(retry_at),
        failures,
        error,
        challenges,
    })
}
