//! Calls of the script that leases budgets of keys.

use super::client::RedisClient;
use super::endpoint::RedisEndpoint;
use super::error;
use super::incarnation::Incarnation;
use crate::ledger::StoreError;
use redis::Value;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_lease::{Beyond, KeyGrant, KeyLeaseCall, KeyLeaseRow, KeyOperation, KeyReply, shared_key};
use tidegate_policy::key_usage::KeyWindows;
use tidegate_policy::{Timestamp, Units};
use tracing::{info, warn};

/// Time for which a window may be over, or not have begun, by the server's clock only.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Leases of the budgets of keys, shared by all instances with the same `prefix`.
pub(super) struct SharedBudgets {
    pub(super) client: RedisClient,
    prefix: String,
    holder: String,
    instance: String,
    calls: u64,
    /// Quotas without new leases until all instances have reported, with the missing instances.
    recovering: BTreeMap<String, String>,
    /// Quotas whose window is not open by the server's clock, and since when.
    not_open: BTreeMap<String, (Timestamp, bool)>,
}

/// Argument of the script. Amounts are milli-units and times are microseconds.
#[derive(Serialize)]
struct ScriptCall<'a> {
    operation: &'static str,
    /// Loss that is reported, as the script names it.
    loss: u64,
    holder: &'a str,
    instance: &'a str,
    seq: u64,
    window: String,
    earlier: Vec<String>,
    leased: Vec<String>,
    counts_from: u64,
    starts: u64,
    ends: u64,
    counts_until: u64,
    /// Length of the windows that keys open; 0 of others.
    length: u64,
    max_keys: usize,
    is_last: bool,
    /// Key, acknowledged units (-1 without a reply), the limit, taken, held, needed and wanted units with the remaining time of the
    /// window of the key, and the key whose budget it shares if there are too many.
    rows: Vec<(String, i64, [u64; 6], String)>,
}

impl SharedBudgets {
    pub(super) fn new(server: RedisEndpoint, prefix: &str, incarnation: &Incarnation) -> Self {
        let (instance, holder) = incarnation.instance_and_run();
        Self {
            client: RedisClient::new(server, include_str!("budgets.lua")),
            prefix: prefix.to_owned(),
            holder: holder.to_owned(),
            instance: instance.to_owned(),
            calls: 0,
            recovering: BTreeMap::new(),
            not_open: BTreeMap::new(),
        }
    }

    pub(super) async fn run(&mut self, call: &KeyLeaseCall, now: Timestamp) -> Result<KeyReply, StoreError> {
        let encoded = self.encode(call);
        let reply = parse(&self.client.run_one(encoded, now).await?, call);
        let (status, missing, reply) =
            reply.ok_or_else(|| error::refused(&self.client.server, "invalid reply of the script of the budgets"))?;
        self.record_status(call, &status, &missing, now);
        Ok(reply)
    }

    /// Returns the reason why leases of a quota are suspended, if they are.
    pub(super) fn last_error(&self) -> Option<String> {
        let skewed = self.not_open.iter().find(|(_, (_, is_long))| *is_long).map(|(quota, _)| {
            let server = &self.client.server;
            format!("{server}: no budgets of {quota}, because its window is not open by the clock of the server; synchronize clocks (NTP)")
        });
        skewed
            .or_else(|| self.recovering.first_key_value().map(|(quota, missing)| self.recovery_message(quota, missing)))
    }

    fn encode(&mut self, call: &KeyLeaseCall) -> Vec<String> {
        self.calls += 1;
        let row = |row: &KeyLeaseRow| {
            let acknowledged = row.acknowledged.map_or(-1, |units| i64::try_from(units.milli()).unwrap_or(i64::MAX));
            let units = [row.limit, row.taken, row.held, row.needed, row.wanted].map(Units::milli);
            let [limit, taken, held, needed, wanted] = units;
            let remaining = u64::try_from(row.remaining.as_micros()).unwrap_or(u64::MAX);
            let name = |key: ClientKey| format!("{:016x}", key.to_u64());
            let units = [limit, taken, held, needed, wanted, remaining];
            (name(row.key), acknowledged, units, name(shared_key(row.key)))
        };
        let (windows, window) = (call.windows, call.window);
        let id = |start: u64| window_id(windows, start);
        let earlier: Vec<u64> = windows.earlier_tables(window.start.0).collect();
        let (operation, loss, is_last) = match call.operation {
            KeyOperation::Lease => ("lease", 0, false),
            KeyOperation::Report { loss, is_last } => ("report", loss, is_last),
            KeyOperation::Close => ("close", 0, false),
        };
        let argument = ScriptCall {
            operation,
            loss,
            holder: &self.holder,
            instance: &self.instance,
            seq: self.calls,
            window: id(window.start.0),
            earlier: earlier.iter().copied().map(id).collect(),
            leased: call.leased.iter().copied().map(id).collect(),
            counts_from: earlier.first().unwrap_or(&window.start.0) / 1000,
            starts: window.start.0 / 1000,
            ends: window.end.0 / 1000,
            counts_until: windows.counts_until(window).0 / 1000,
            length: if let KeyWindows::FirstUse { .. } = windows { windows.spacing() / 1000 } else { 0 },
            max_keys: call.max_keys,
            is_last,
            rows: call.rows.iter().map(row).collect(),
        };
        let argument = serde_json::to_string(&argument).expect("the call has only numbers and text");
        vec![format!("{{{}:{}}}:budgets", self.prefix, call.quota), argument]
    }

    /// Logs once that leases are suspended, with the reason, and once that they are resumed.
    fn record_status(&mut self, call: &KeyLeaseCall, status: &str, missing: &str, now: Timestamp) {
        match status {
            "over" | "early" | "late" => {
                let (since, is_long) = self.not_open.entry(call.quota.clone()).or_insert((now, false));
                *is_long = now.saturating_duration_since(*since) >= MAX_CLOCK_SKEW;
            }
            _ => _ = self.not_open.remove(&call.quota),
        }
        match status {
            "unsure" if self.recovering.insert(call.quota.clone(), missing.to_owned()).as_deref() != Some(missing) => {
                warn!("{}", self.recovery_message(&call.quota, missing));
            }
            "ok" | "late" if self.recovering.remove(&call.quota).is_some() => {
                info!("{}: leases for the budgets of {} resumed", self.client.server, call.quota);
            }
            _ => {}
        }
    }

    fn recovery_message(&self, quota: &str, missing: &str) -> String {
        let server = &self.client.server;
        match missing {
            "" => format!(
                "{server} has no budgets of {quota}: leases start in about three seconds, after instances have reported"
            ),
            names => format!(
                "{server} has lost budgets of {quota}, and instance {names} has not reported since: no new leases until it \
                 reports or the window ends"
            ),
        }
    }
}

/// Returns the id of a window in Redis. Windows that are replaced by others of a reload have other ids.
fn window_id(windows: KeyWindows, start: u64) -> String {
    match windows {
        KeyWindows::OfQuota => start.to_string(),
        KeyWindows::Sliding { .. } => format!("sliding:{}:{start}", windows.spacing()),
        KeyWindows::FirstUse { .. } => format!("first_use:{}:{start}", windows.spacing()),
    }
}

/// Returns the status of a reply, the missing holders, and what it means for the rows of a call.
fn parse(reply: &Value, call: &KeyLeaseCall) -> Option<(String, String, KeyReply)> {
    let words: Vec<String> = redis::from_redis_value_ref(reply).ok()?;
    let (status, missing) = (words.first()?.clone(), words.get(1)?.clone());
    let reply = match status.as_str() {
        "ok" | "unsure" | "late" => {
            KeyReply::Granted(words[2..].iter().map(|row| grant(row, call.windows)).collect::<Option<Vec<_>>>()?)
        }
        "report" => KeyReply::ReportRequested { loss: words.get(2)?.parse().ok()? },
        "over" | "early" => KeyReply::NotOpen,
        // A later call has overtaken this one: impossible, because this instance sends calls one after the other.
        _ => return None,
    };
    let is_complete = !matches!(&reply, KeyReply::Granted(grants) if grants.len() != call.rows.len());
    is_complete.then_some((status, missing, reply))
}

fn grant(row: &str, windows: KeyWindows) -> Option<KeyGrant> {
    match row {
        "shared" => return Some(KeyGrant::Shared),
        "ended" => return Some(KeyGrant::Ended),
        _ => {}
    }
    let columns = row.split(' ').map(|column| column.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let (&[held, taken_by_others, forgotten], of_windows) = columns.split_first_chunk::<3>()?;
    let beyond = match (windows, of_windows) {
        (KeyWindows::OfQuota, []) => Beyond::Nothing,
        (KeyWindows::Sliding { .. }, &[taken, expiring]) => {
            Beyond::Earlier { taken: Units::from_milli(taken), expiring: u8::try_from(expiring).ok()? }
        }
        (KeyWindows::FirstUse { .. }, &[remaining, is_earlier]) => {
            Beyond::Own { remaining: Duration::from_micros(remaining), is_earlier: is_earlier == 1 }
        }
        _ => return None,
    };
    let [held, taken_by_others, forgotten] = [held, taken_by_others, forgotten].map(Units::from_milli);
    Some(KeyGrant::Counted { held, taken_by_others, forgotten, beyond })
}
