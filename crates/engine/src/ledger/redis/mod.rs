//! Ledger in a Redis or Valkey server that several instances share.
//!
//! `script.lua` runs in the server and contains all rules. `connection` is one connection, `client` those to all nodes of a
//! cluster; `script_request` and `script_reply` are the messages. [`RedisStore`] keeps the state that only an instance has.
//! This is the state last reported by the server, in case the server loses it, and the fallback units for the time
//! when it is unavailable.

mod budgets;
mod certificates;
mod client;
mod connection;
mod endpoint;
mod error;
mod incarnation;
mod script_reply;
mod script_request;
mod session_secret;
mod switches;

#[cfg(test)]
mod tests;

pub use certificates::{SharedCertificate, SharedCertificates};
pub use connection::Timeouts;
pub use endpoint::{HostPort, RedisAddress, RedisEndpoint};
pub use incarnation::Incarnation;
pub use session_secret::SharedSessionSecret;
pub use switches::SharedSwitches;

use super::store::{Lease, LeaseRequest, Store, StoreError};
use budgets::SharedBudgets;
use client::RedisClient;
use redis::Value;
use script_reply::{GrantReply, ScriptReply, WindowStatus};
use script_request::ScriptRequest;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tidegate_policy::key_lease::{KeyLeaseCall, KeyReply};
use tidegate_policy::{Timestamp, Units};
use tracing::{info, warn};

/// Tolerated clock skew. A smaller skew is no error: a window that is not open yet, or has ended, is soon replaced.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);
/// Maximum number of passes per round. A call is answered at once, or repeated with the reported state or another ordinal.
const MAX_PASSES: usize = 4;
/// Number of rounds without a request after which a window has ended.
const MAX_IDLE_ROUNDS: u64 = 600;
/// Upper bound of ordinals, the ids of first-use windows. Other ids are nanoseconds since 1970.
const MAX_ORDINAL: u64 = 1_000_000_000_000;

/// Leases from a Redis or Valkey server, shared by all instances with the same `prefix`.
pub struct RedisStore {
    prefix: String,
    /// True if a part of the remaining units is reserved as fallback for a loss of the server.
    fallback_enabled: bool,
    incarnation: Incarnation,
    client: RedisClient,
    budgets: SharedBudgets,
    /// Sequence number of calls. The script ignores a call that was overtaken by a later one.
    calls: u64,
    rounds: u64,
    windows: HashMap<(String, u64), WindowState>,
    /// Last reported state of each quota, in the format of the script: units of all instances. Sent to a server that
    /// lost it.
    reported_state: HashMap<String, String>,
    /// Quotas without new leases until all instances have reported, with the missing instances.
    recovering: BTreeMap<String, String>,
    /// Error of a quota in the last round, in which other quotas were leased.
    last_error: Option<StoreError>,
    /// Error of the server while it is unavailable and fallback units are used.
    fallback_cause: Option<String>,
    /// Difference between the ordinals of a quota's windows here and in the ledger.
    ordinal_offsets: HashMap<String, i128>,
}

/// State of a window as last reported to this instance.
#[derive(Clone, Copy, Debug, Default)]
struct WindowState {
    lease: Lease,
    /// Fallback units reserved for this instance and not used yet. The store adds them to leases itself, so only the
    /// store tracks which responses arrived: `Lease::fallback` stays zero.
    fallback: Units,
    lost: Units,
    last_round: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Lease,
    Close,
    Correct(Units),
}

impl RedisStore {
    /// Creates a store on a server, with keys that begin with `prefix`. With fallback enabled, each response reserves a
    /// part of the remaining units, which this instance may take while the server is unavailable.
    pub fn new(server: RedisEndpoint, prefix: &str, fallback_enabled: bool, incarnation: Incarnation) -> Self {
        Self {
            prefix: prefix.to_owned(),
            fallback_enabled,
            budgets: SharedBudgets::new(server.clone(), prefix, &incarnation),
            incarnation,
            client: RedisClient::new(server, include_str!("script.lua")),
            calls: 0,
            rounds: 0,
            windows: HashMap::new(),
            reported_state: HashMap::new(),
            recovering: BTreeMap::new(),
            last_error: None,
            fallback_cause: None,
            ordinal_offsets: HashMap::new(),
        }
    }

    /// Replaces the timeouts of the connections.
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.client.timeouts = timeouts;
        self.budgets.client.timeouts = timeouts;
        self
    }

    /// Returns the key of a quota. The part in braces determines the slot in a cluster.
    fn key(&self, quota: &str) -> String {
        format!("{{{}:{quota}}}:leases", self.prefix)
    }

    async fn run_round(
        &mut self,
        requests: &[LeaseRequest],
        operation: Operation,
        now: Timestamp,
    ) -> Result<Vec<Option<GrantReply>>, StoreError> {
        let mut granted: Vec<Option<GrantReply>> = vec![None; requests.len()];
        self.last_error = None;
        let mut open: Vec<usize> = (0..requests.len()).collect();
        let mut sends_state = vec![false; requests.len()];
        for _ in 0..MAX_PASSES {
            let passed = std::mem::take(&mut open);
            let calls: Vec<Vec<String>> =
                passed.iter().map(|&index| self.encode_call(&requests[index], operation, sends_state[index])).collect();
            for (index, reply) in passed.into_iter().zip(self.client.run(&calls, now).await?) {
                match reply.and_then(|reply| self.handle_reply(&requests[index], &reply)) {
                    // An error of one quota does not affect the others.
                    Err(error) if requests.len() > 1 => self.last_error = Some(error),
                    Err(error) => return Err(error),
                    Ok(ScriptReply::Granted(grant)) => granted[index] = Some(grant),
                    Ok(ScriptReply::Done) => {}
                    // The call had no effect: repeat it with the last reported state.
                    Ok(ScriptReply::StateRequested) => {
                        sends_state[index] = true;
                        open.push(index);
                    }
                    Ok(ScriptReply::Superseded(_)) => open.push(index),
                }
            }
            if open.is_empty() {
                return Ok(granted);
            }
        }
        Err(error::refused(&self.client.server, "the lease script asks again and again"))
    }

    /// Parses a reply and stores its state for later calls.
    fn handle_reply(&mut self, request: &LeaseRequest, reply: &Value) -> Result<ScriptReply, StoreError> {
        let parsed = ScriptReply::read(reply)
            .ok_or_else(|| error::refused(&self.client.server, "invalid reply of the lease script"))?;
        match &parsed {
            ScriptReply::Superseded(ordinal) => {
                self.ordinal_offsets
                    .insert(request.quota.clone(), i128::from(*ordinal) - i128::from(request.window.id));
            }
            ScriptReply::Granted(granted) => {
                self.reported_state.insert(request.quota.clone(), granted.quota_state.clone());
                self.log_recovery(&request.quota, granted);
            }
            ScriptReply::StateRequested | ScriptReply::Done => {}
        }
        Ok(parsed)
    }

    /// Logs once that leases are suspended, with the reason, and once that they are resumed.
    fn log_recovery(&mut self, quota: &str, granted: &GrantReply) {
        let server = &self.client.server;
        let missing = &granted.missing_holders;
        if granted.status == WindowStatus::Recovering {
            if self.recovering.insert(quota.to_owned(), missing.clone()).as_ref() != Some(missing) {
                warn!("{}", recovery_message(server, quota, missing));
            }
        } else if granted.status == WindowStatus::Open && self.recovering.remove(quota).is_some() {
            info!("{server}: leases for {quota} resumed");
        }
    }

    /// Returns the key and the argument of a call of the script.
    fn encode_call(&mut self, request: &LeaseRequest, operation: Operation, include_state: bool) -> Vec<String> {
        self.calls += 1;
        let window = self.windows.get(&(request.quota.clone(), request.window.id));
        let is_ordinal = request.window.id < MAX_ORDINAL;
        let offset = self.ordinal_offsets.get(&request.quota).filter(|_| is_ordinal).copied().unwrap_or(0);
        let reported_state = self.reported_state.get(&request.quota).map_or("", String::as_str);
        let (operation, used) = match operation {
            Operation::Lease => ("lease", Units::ZERO),
            Operation::Close => ("close", Units::ZERO),
            Operation::Correct(used) => ("correct", used),
        };
        let script_request = ScriptRequest {
            operation,
            holder: &self.incarnation.holder,
            seq: self.calls,
            window_id: (i128::from(request.window.id) + offset).max(0).to_string(),
            starts: request.window.span.map(|span| span.start.0 / 1000),
            ends: request.window.span.map(|span| span.end.0 / 1000),
            lookback: request.window.lookback,
            is_ordinal,
            limit: request.limit.milli(),
            taken: request.taken.milli(),
            held: request.held.milli(),
            wanted: request.wanted.milli(),
            urgent: request.urgent.milli(),
            expected_demand: request.expected_demand.milli(),
            fallback: window.map_or(0, |window| window.fallback.milli()),
            fallback_enabled: self.fallback_enabled,
            reply_received: window.is_some(),
            reported_state: include_state.then_some(reported_state),
            used: used.milli(),
        };
        let argument = serde_json::to_string(&script_request).expect("the request has only numbers and text");
        vec![self.key(&request.quota), argument]
    }

    /// Returns leases from the fallback units while the server is unavailable. These units have been reserved for this
    /// instance since the last response. Returns `None` if none are left.
    fn lease_from_fallback(&mut self, requests: &[LeaseRequest]) -> Option<Vec<Lease>> {
        let added = |window: Option<&WindowState>, request: &LeaseRequest| {
            let held = request.held.min(request.wanted).max(request.taken);
            (held, window.map_or(Units::ZERO, |window| window.fallback.min(request.wanted.saturating_sub(held))))
        };
        let key = |request: &LeaseRequest| (request.quota.clone(), request.window.id);
        let has_share = |request| self.windows.get(&key(request)).is_some_and(|window| !window.fallback.is_zero());
        if !requests.iter().any(has_share) {
            return None;
        }
        let leases = requests.iter().map(|request| {
            let window = self.windows.get_mut(&key(request));
            let (held, more) = added(window.as_deref(), request);
            match window {
                Some(window) => {
                    window.fallback = window.fallback.saturating_sub(more);
                    Lease { held: held.saturating_add(more), lost: Units::ZERO, ..window.lease }
                }
                None => Lease { held, ..Lease::default() },
            }
        });
        Some(leases.collect())
    }

    /// Stores the reply for a window and returns its lease.
    fn remember_grant(&mut self, request: &LeaseRequest, granted: &GrantReply) -> Lease {
        let window = self.windows.entry((request.quota.clone(), request.window.id)).or_default();
        window.last_round = self.rounds;
        let lost = granted.lost.saturating_sub(window.lost);
        window.lost = window.lost.max(granted.lost);
        window.fallback = granted.fallback;
        window.lease = Lease {
            held: granted.held,
            held_by_others: granted.held_by_others,
            taken_by_others: granted.taken_by_others,
            fallback: Units::ZERO,
            span: granted.span.filter(|_| request.window.id < MAX_ORDINAL),
            lost,
            held_by_dead: granted.held_by_dead,
            expected_by_others: granted.expected_by_others,
        };
        window.lease
    }
}

fn fallback_message(cause: &str) -> String {
    format!("{cause}. Fallback units are used until it is available")
}

/// Returns the reason why leases of a quota are suspended.
fn recovery_message(server: &RedisEndpoint, quota: &str, missing: &str) -> String {
    match missing {
        "" => format!(
            "{server} has no state of {quota}: leases start in about three seconds, after instances have reported"
        ),
        names => format!(
            "{server} has lost its state of {quota}, and instance {names} has not reported since: no new leases until it \
             reports or the window ends; if it is gone for good, set the usage with `tidegate quota set \
             {quota} USED`"
        ),
    }
}

impl Store for RedisStore {
    fn last_error(&self) -> Option<String> {
        let fallback = self.fallback_cause.as_deref().map(fallback_message);
        fallback
            .or_else(|| self.last_error.as_ref().map(StoreError::to_string))
            .or_else(|| {
                self.recovering
                    .first_key_value()
                    .map(|(quota, missing)| recovery_message(&self.client.server, quota, missing))
            })
            .or_else(|| self.budgets.last_error())
    }

    async fn lease(&mut self, requests: &[LeaseRequest], now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.rounds += 1;
        let granted = match self.run_round(requests, Operation::Lease, now).await {
            Ok(granted) => granted,
            Err(error) => {
                let leases = self.lease_from_fallback(requests);
                let Some(leases) = leases else { return Err(error) };
                let cause = error.to_string();
                if self.fallback_cause.is_none() {
                    warn!("{}", fallback_message(&cause));
                }
                self.fallback_cause = Some(cause);
                return Ok(leases);
            }
        };
        if self.fallback_cause.take().is_some() {
            info!("{}: connected again, usage reported", self.client.server);
        }
        let mut leases = Vec::with_capacity(requests.len());
        let mut clock_error = None;
        for (request, granted) in requests.iter().zip(granted) {
            let Some(granted) = granted else {
                let held = request.held.min(request.wanted).max(request.taken);
                let window = self.windows.get(&(request.quota.clone(), request.window.id));
                leases.push(Lease { held, lost: Units::ZERO, ..window.map(|window| window.lease).unwrap_or_default() });
                continue;
            };
            let closed = matches!(granted.status, WindowStatus::Closed | WindowStatus::TooEarly);
            let skew = now.saturating_duration_since(granted.now).max(granted.now.saturating_duration_since(now));
            if closed && request.wanted > granted.held && skew >= MAX_CLOCK_SKEW {
                let (quota, ahead) = (request.quota.clone(), now > granted.now);
                clock_error = Some(StoreError::ClockSkew {
                    quota,
                    is_ahead: ahead,
                    skew,
                    server: self.client.server.to_string(),
                });
            }
            leases.push(self.remember_grant(request, &granted));
        }
        let (rounds, oldest) = (self.rounds, self.rounds.saturating_sub(MAX_IDLE_ROUNDS));
        if rounds.is_multiple_of(MAX_IDLE_ROUNDS) {
            self.windows.retain(|_, window| window.last_round >= oldest);
        }
        self.last_error = self.last_error.take().or(clock_error);
        let no_lease_grew =
            requests.iter().zip(&leases).all(|(request, lease)| lease.held <= request.held.min(request.wanted));
        match self.last_error.take() {
            Some(error) if no_lease_grew => Err(error),
            last_error => {
                self.last_error = last_error;
                Ok(leases)
            }
        }
    }

    async fn lease_keys(&mut self, call: &KeyLeaseCall, now: Timestamp) -> Result<KeyReply, StoreError> {
        self.budgets.run(call, now).await
    }

    async fn close(&mut self, requests: &[LeaseRequest], now: Timestamp) -> Result<(), StoreError> {
        let last: Vec<LeaseRequest> =
            requests.iter().map(|request| LeaseRequest { wanted: request.taken, ..request.clone() }).collect();
        self.run_round(&last, Operation::Close, now).await.map(|_| ())
    }

    async fn correct(&mut self, request: &LeaseRequest, used: Units, now: Timestamp) -> Result<(), StoreError> {
        self.run_round(std::slice::from_ref(request), Operation::Correct(used), now).await.map(|_| ())
    }
}
