//! One allowance for several gates: a Redis or Valkey hands out the leases.
//!
//! `script.lua` runs in the server and holds all the rules; `link` is one connection, `wire` its protocol; `answer` reads
//! what the script says. [`RedisStore`] keeps what only a gate can know: what it was told last, in case that the server
//! forgets, and the share by which it lives while it hears nothing.

mod connection;
mod endpoint;
mod error;
mod incarnation;
mod resp;
mod script_reply;
mod timing;

#[cfg(test)]
mod tests;

pub use connection::Timeouts;
pub use endpoint::RedisEndpoint;
pub use incarnation::Incarnation;

use super::store::{Lease, LeaseRequest, Store, StoreError};
use crate::policy::window::Span;
use crate::policy::{Timestamp, Units};
use connection::RedisConnection;
use resp::Reply;
use script_reply::{GrantReply, ScriptReply, WindowStatus};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use timing::Timing;
use tracing::{info, warn};

/// Clocks that differ by less are not worth an error: a window that is not leased yet, or no more, is soon another.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);
/// A call is answered at once, or wants to be told more, or is sent elsewhere; whoever is still sent about then is lost.
const MAX_PASSES: usize = 4;
/// Windows that were not asked about for so many rounds are over.
const ROUNDS_KEPT: u64 = 600;
/// A key of a window that opens at its first use is an ordinal; all others are nanoseconds since 1970.
const MAX_ORDINAL: u64 = 1_000_000_000_000;

/// Leases from a Redis or Valkey, shared by all gates that use the same `prefix` there.
pub struct RedisStore {
    prefix: String,
    /// Whether a part of what is left is put aside for when the server is lost.
    fallback_enabled: bool,
    identity: Incarnation,
    timing: Timing,
    timeouts: Timeouts,
    script: String,
    primary: RedisEndpoint,
    /// By host and port; more than one only in a cluster.
    links: BTreeMap<(String, u16), RedisConnection>,
    /// Where the quotas of a cluster lie, as far as they do not lie at home.
    moved: HashMap<String, (String, u16)>,
    /// Every call has its number: one that was overtaken is not carried out.
    calls: u64,
    rounds: u64,
    windows: HashMap<(String, u64), WindowState>,
    /// All that was said of a quota last, as the script writes it: what every gate holds. Told back to a server that lost it.
    reported_state: HashMap<String, String>,
    /// Quotas of which nothing more is leased until all gates have spoken, and whom they wait for.
    recovering: BTreeMap<String, String>,
    /// What was wrong with some quota in the last round, though others were answered.
    last_error: Option<StoreError>,
    /// It hears nothing and lives by its share.
    using_fallback: bool,
    /// How far the ordinals of a quota's windows are from those in the ledger.
    ordinals: HashMap<String, i128>,
}

/// What this gate was told of a window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowState {
    lease: Lease,
    /// What was put aside for this gate, and it has not taken up yet. The store takes it up itself, so that nobody else
    /// needs to know whether an answer came: `Lease::fallback` stays nothing.
    share: Units,
    lost: Units,
    round: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Lease,
    Close,
    Correct(Units),
}

impl RedisStore {
    /// Leases from `server`, under names that begin with `prefix`. With `shares`, every answer also puts a part of what is
    /// left aside for this gate: what it may take while it hears nothing.
    pub fn new(server: RedisEndpoint, prefix: &str, fallback_enabled: bool, identity: Incarnation) -> Self {
        Self {
            prefix: prefix.to_owned(),
            fallback_enabled: fallback_enabled,
            identity,
            timing: Timing::default(),
            timeouts: Timeouts::default(),
            script: include_str!("script.lua").to_owned(),
            primary: server,
            links: BTreeMap::new(),
            moved: HashMap::new(),
            calls: 0,
            rounds: 0,
            windows: HashMap::new(),
            reported_state: HashMap::new(),
            recovering: BTreeMap::new(),
            last_error: None,
            using_fallback: false,
            ordinals: HashMap::new(),
        }
    }

    /// Replaces the timeouts of its connections.
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// The one key of a quota. What stands in braces decides the slot in a cluster.
    fn key(&self, quota: &str) -> String {
        format!("{{{}:{quota}}}:leases", self.prefix)
    }

    async fn round(
        &mut self,
        asks: &[LeaseRequest],
        operation: Operation,
        now: Timestamp,
    ) -> Result<Vec<Option<GrantReply>>, StoreError> {
        let mut granted: Vec<Option<GrantReply>> = vec![None; asks.len()];
        self.last_error = None;
        let mut open: Vec<usize> = (0..asks.len()).collect();
        let mut told = vec![false; asks.len()];
        for _ in 0..MAX_PASSES {
            let mut by_address: BTreeMap<(String, u16), Vec<usize>> = BTreeMap::new();
            for place in open.drain(..) {
                by_address.entry(self.address_of(&asks[place].quota)).or_default().push(place);
            }
            for (address, places) in by_address {
                let calls =
                    places.iter().map(|&place| self.call(&asks[place], operation, told[place])).collect::<Vec<_>>();
                let server = self.primary.with_address(&address.0, address.1);
                let link = self
                    .links
                    .entry(address)
                    .or_insert_with(|| RedisConnection::new(server.clone(), &self.script, self.timeouts));
                let replies = link.run(&calls, now).await?;
                for (place, reply) in places.into_iter().zip(replies) {
                    match self.read(&server, &asks[place], &reply) {
                        // One quota's trouble is no other's.
                        Err(error) if asks.len() > 1 => self.last_error = Some(error),
                        Err(error) => return Err(error),
                        Ok(read) => match read {
                            Some(ScriptReply::Granted(answer)) => granted[place] = Some(answer),
                            Some(ScriptReply::Done) => {}
                            // The call came to nothing, and a better one can be made of what was said.
                            Some(ScriptReply::StateRequested) => {
                                told[place] = true;
                                open.push(place);
                            }
                            Some(ScriptReply::Superseded(_)) | None => open.push(place),
                        },
                    }
                }
            }
            if open.is_empty() {
                return Ok(granted);
            }
        }
        Err(error::unreachable(&self.primary, "it sends us about"))
    }

    fn address_of(&self, quota: &str) -> (String, u16) {
        self.moved.get(quota).cloned().unwrap_or_else(|| (self.primary.host.clone(), self.primary.port))
    }

    /// Reads a reply and keeps what it says for later calls; `None` where the call belongs to another server.
    fn read(
        &mut self,
        server: &RedisEndpoint,
        ask: &LeaseRequest,
        reply: &Reply,
    ) -> Result<Option<ScriptReply>, StoreError> {
        if let Reply::Error(told) = reply {
            if let Some((host, port)) = error::parse_redirect(told) {
                self.moved.insert(ask.quota.clone(), (host.to_owned(), port));
                return Ok(None);
            }
            // Whatever it is, the name may stand for another server by the next round.
            self.links.values_mut().for_each(RedisConnection::disconnect);
            self.moved.clear();
            return Err(error::from_server(server, told));
        }
        let answer = ScriptReply::read(reply).ok_or_else(|| error::refused(server, "its script answers nonsense"))?;
        match &answer {
            ScriptReply::Superseded(ordinal) => {
                self.ordinals.insert(ask.quota.clone(), i128::from(*ordinal) - i128::from(ask.window.id));
            }
            ScriptReply::Granted(granted) => {
                self.reported_state.insert(ask.quota.clone(), granted.quota_state.clone());
                self.log_recovery(server, &ask.quota, granted);
            }
            ScriptReply::StateRequested | ScriptReply::Done => {}
        }
        Ok(Some(answer))
    }

    /// Says once that nothing more is leased, and why, and once that it is over.
    fn log_recovery(&mut self, server: &RedisEndpoint, quota: &str, granted: &GrantReply) {
        let waiting = &granted.missing_holders;
        if granted.standing == WindowStatus::Recovering {
            if self.recovering.insert(quota.to_owned(), waiting.clone()).as_ref() != Some(waiting) {
                warn!("{}", recovery_message(server, quota, waiting));
            }
        } else if granted.standing == WindowStatus::Open && self.recovering.remove(quota).is_some() {
            info!("{server} leases {quota} again");
        }
    }

    /// The script's arguments, in its order.
    fn call(&mut self, ask: &LeaseRequest, operation: Operation, tell: bool) -> Vec<String> {
        self.calls += 1;
        let known = self.windows.get(&(ask.quota.clone(), ask.window.id));
        let microseconds = |span: Duration| span.as_micros().to_string();
        let moment = |pick: fn(Span) -> Timestamp| {
            ask.window.span.map_or_else(String::new, |span| (pick(span).0 / 1000).to_string())
        };
        let is_ordinal = ask.window.id < MAX_ORDINAL;
        let apart = self.ordinals.get(&ask.quota).filter(|_| is_ordinal).copied().unwrap_or(0);
        let milli = |units: Units| units.milli().to_string();
        let yes = |yes: bool| String::from(if yes { "1" } else { "0" });
        let floor = || self.reported_state.get(&ask.quota).cloned().unwrap_or_default();
        let (name, used) = match operation {
            Operation::Lease => ("lease", Units::ZERO),
            Operation::Close => ("close", Units::ZERO),
            Operation::Correct(used) => ("correct", used),
        };
        vec![
            self.key(&ask.quota),
            name.into(),
            self.identity.holder(),
            self.calls.to_string(),
            microseconds(self.timing.recovery_grace),
            microseconds(self.timing.liveness_window),
            microseconds(self.timing.max_lead),
            microseconds(self.timing.grace),
            microseconds(self.timing.takeover_after),
            self.identity.predecessors(),
            (i128::from(ask.window.id) + apart).max(0).to_string(),
            moment(|span| span.start),
            moment(|span| span.end),
            ask.window.lookback.to_string(),
            yes(is_ordinal),
            milli(ask.limit),
            milli(ask.taken),
            milli(ask.held),
            milli(ask.wanted),
            milli(ask.urgent),
            milli(known.map_or(Units::ZERO, |known| known.share)),
            yes(self.fallback_enabled),
            yes(known.is_some()),
            if tell { floor() } else { "-".into() },
            milli(used),
            milli(ask.expected_demand),
        ]
    }

    /// What is answered while the server is lost: as much as is wanted, out of the share. It has been this gate's since the
    /// last answer; nobody else can have been given it. `None` once nothing is left of it.
    fn lease_from_fallback(&mut self, asks: &[LeaseRequest]) -> Option<Vec<Lease>> {
        let added = |known: Option<&WindowState>, ask: &LeaseRequest| {
            let held = ask.held.min(ask.wanted).max(ask.taken);
            (held, known.map_or(Units::ZERO, |known| known.share.min(ask.wanted.saturating_sub(held))))
        };
        let of = |ask: &LeaseRequest| (ask.quota.clone(), ask.window.id);
        let has_share = |ask| self.windows.get(&of(ask)).is_some_and(|known| !known.share.is_zero());
        if !asks.iter().any(has_share) {
            return None;
        }
        let leases = asks.iter().map(|ask| {
            let known = self.windows.get_mut(&of(ask));
            let (held, more) = added(known.as_deref(), ask);
            match known {
                Some(known) => {
                    known.share = known.share.saturating_sub(more);
                    Lease { held: held.saturating_add(more), lost: Units::ZERO, ..known.lease }
                }
                None => Lease { held, ..Lease::default() },
            }
        });
        Some(leases.collect())
    }

    /// The lease that `granted` means, remembered.
    fn remember_grant(&mut self, ask: &LeaseRequest, granted: &GrantReply) -> Lease {
        let known = self.windows.entry((ask.quota.clone(), ask.window.id)).or_default();
        known.round = self.rounds;
        let lost = granted.lost.saturating_sub(known.lost);
        known.lost = known.lost.max(granted.lost);
        known.share = granted.share;
        known.lease = Lease {
            held: granted.held,
            held_by_others: granted.elsewhere,
            taken_by_others: granted.taken_elsewhere,
            fallback: Units::ZERO,
            span: granted.span.filter(|_| ask.window.id < MAX_ORDINAL),
            lost,
            held_by_dead: granted.withheld,
            expected_by_others: granted.expected_elsewhere,
        };
        known.lease
    }
}

/// Why nothing more is leased of a quota for now.
fn recovery_message(server: &RedisEndpoint, quota: &str, waiting: &str) -> String {
    match waiting {
        "" => format!(
            "{server} knows nothing of {quota} yet: it leases in about three seconds, so that gates that know more can speak"
        ),
        gates => format!(
            "{server} has lost what it knew of {quota}, and the gate {gates} that was up has not spoken since: nothing more \
             is leased until it does or the window ends. If it is gone for good, say what is used: `tidegate quota set \
             {quota} USED`"
        ),
    }
}

impl Store for RedisStore {
    fn last_error(&self) -> Option<String> {
        let last_error = self.last_error.as_ref().map(|error| format!("The ledger {error}"));
        last_error.or_else(|| {
            self.recovering.first_key_value().map(|(quota, waiting)| recovery_message(&self.primary, quota, waiting))
        })
    }

    async fn lease(&mut self, asks: &[LeaseRequest], now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.rounds += 1;
        let granted = match self.round(asks, Operation::Lease, now).await {
            Ok(granted) => granted,
            Err(error) => {
                let leases = self.lease_from_fallback(asks);
                if leases.is_some() && !self.using_fallback {
                    warn!("{error}. Until it is back, this gate spends the share that was put aside for it");
                }
                self.using_fallback |= leases.is_some();
                return leases.ok_or(error);
            }
        };
        if std::mem::take(&mut self.using_fallback) {
            info!("{} answers again, and has been told what was spent meanwhile", self.primary);
        }
        let mut leases = Vec::with_capacity(asks.len());
        let mut wrong_clock = None;
        for (ask, granted) in asks.iter().zip(granted) {
            let Some(granted) = granted else {
                let held = ask.held.min(ask.wanted).max(ask.taken);
                let known = self.windows.get(&(ask.quota.clone(), ask.window.id));
                leases.push(Lease { held, lost: Units::ZERO, ..known.map(|known| known.lease).unwrap_or_default() });
                continue;
            };
            let closed = matches!(granted.standing, WindowStatus::Closed | WindowStatus::TooEarly);
            let apart = now.saturating_duration_since(granted.now).max(granted.now.saturating_duration_since(now));
            if closed && ask.wanted > granted.held && apart >= MAX_CLOCK_SKEW {
                let (quota, ahead) = (ask.quota.clone(), now > granted.now);
                wrong_clock = Some(StoreError::Clock { quota, ahead, apart, server: self.primary.to_string() });
            }
            leases.push(self.remember_grant(ask, &granted));
        }
        let (rounds, oldest) = (self.rounds, self.rounds.saturating_sub(ROUNDS_KEPT));
        if rounds.is_multiple_of(ROUNDS_KEPT) {
            self.windows.retain(|_, known| known.round >= oldest);
        }
        self.last_error = self.last_error.take().or(wrong_clock);
        let nobody_has_more = asks.iter().zip(&leases).all(|(ask, lease)| lease.held <= ask.held.min(ask.wanted));
        match self.last_error.take() {
            Some(error) if nobody_has_more => Err(error),
            last_error => {
                self.last_error = last_error;
                Ok(leases)
            }
        }
    }

    async fn close(&mut self, asks: &[LeaseRequest], now: Timestamp) -> Result<(), StoreError> {
        let last: Vec<LeaseRequest> =
            asks.iter().map(|ask| LeaseRequest { wanted: ask.taken, ..ask.clone() }).collect();
        self.round(&last, Operation::Close, now).await.map(|_| ())
    }

    async fn correct(&mut self, ask: &LeaseRequest, used: Units, now: Timestamp) -> Result<(), StoreError> {
        self.round(std::slice::from_ref(ask), Operation::Correct(used), now).await.map(|_| ())
    }
}
