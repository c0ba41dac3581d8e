//! Telemetry of the gateway: one access log line per request, counters for Prometheus, and the last decisions by id.
//!
//! A worker fills in a [`Record`](tidegate_access_log::Record) when a request is over and hands it to its
//! [`WorkerTelemetry`]; a request pays for nothing else. [`Telemetry`] is the control side: it adds up, renders, looks up
//! and closes.

mod access_log;
mod counters;
mod decision_ring;
mod exporter;
mod handshake_result;
mod histogram;
mod log_file;
mod log_writer;
pub mod metrics;
mod panics;
mod recent_spenders;
mod registry;
mod status_class;
mod worker;

#[cfg(test)]
mod tests;

pub use access_log::{AccessLog, LogBuffer, LogTarget};
pub use counters::WorkerCounters;
pub use handshake_result::HandshakeResult;
pub use histogram::Histogram;
pub use log_writer::OpenSink;
pub use panics::count_panics;
pub use worker::{DECISION_RING_LEN, WorkerTelemetry};

use ::metrics::{counter, gauge, with_local_recorder};
use metrics::{ACCESS_LOG_DROPPED, BUILD_INFO, PANICS, RELOAD_SUCCESS_TIME, RELOAD_SUCCESSFUL, START_TIME};
use panics::panic_count;
use parking_lot::Mutex;
use registry::Registry;
use status_class::StatusClass;
use std::time::Duration;
use tidegate_engine::spenders::TopSpenders;
use tidegate_http_cache::CacheResult;
use tidegate_policy::throttle::Scope;
use tidegate_policy::{ClientKind, Reason, Rules, Timestamp, Units};
use tidegate_traces::Spans;

/// Number of origins that the configuration does not name any more and whose series are still exported.
const MAX_REMOVED_ORIGINS: usize = 16;

/// Telemetry of one process.
pub struct Telemetry {
    /// Series that outlast a scrape: of events, and of states that this module sets.
    registry: Registry,
    totals: Mutex<WorkerCounters>,
    workers: Mutex<Vec<WorkerTelemetry>>,
    started_at: Timestamp,
    log: Option<AccessLog>,
}

/// Requests of one class since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassTraffic {
    /// Name of the class.
    pub class: String,
    /// Admitted requests.
    pub admitted: u64,
    /// Requests with a cost that the administrator has not blocked.
    pub costly: u64,
    /// Admitted requests with a cost.
    pub costly_admitted: u64,
    /// Refused requests, by reason.
    pub refused: Vec<(Reason, u64)>,
    /// Admitted requests that a rule in shadow mode would have refused, by reason.
    pub shadow: Vec<(Reason, u64)>,
    /// Responses.
    pub responses: ResponseCounts,
}

/// Requests of one route since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTraffic {
    /// Name of the route.
    pub route: String,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests.
    pub refused: u64,
    /// Responses.
    pub responses: ResponseCounts,
}

/// Responses of a class, of a route or of all, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseCounts {
    /// Responses by status class; a class without one is left out.
    pub statuses: Vec<(&'static str, u64)>,
    /// Body bytes.
    pub bytes: u64,
    /// Times from the first byte of an admitted request to the last byte of its response.
    pub latency: Histogram,
}

impl ResponseCounts {
    fn new(counters: &counters::ResponseCounters) -> Self {
        let statuses = StatusClass::NAMES.into_iter().zip(counters.codes).filter(|(_, count)| *count > 0).collect();
        Self { statuses, bytes: counters.bytes, latency: counters.admitted_duration.clone() }
    }
}

impl Telemetry {
    /// Creates telemetry that writes to `log`; without a log, only the last lines are kept in memory.
    pub fn new(log: Option<AccessLog>, build: (&str, &str), started_at: Timestamp) -> Self {
        let registry = Registry::default();
        let (version, revision) = build;
        with_local_recorder(&registry, || {
            gauge!(BUILD_INFO, "version" => version.to_owned(), "revision" => revision.to_owned()).set(1);
            gauge!(START_TIME).set(started_at.seconds() as f64);
        });
        Self { registry, totals: Mutex::default(), workers: Mutex::default(), started_at, log }
    }

    /// Calls `event`, which records with the macros of the crate `metrics`.
    pub fn record(&self, event: impl FnOnce()) {
        with_local_recorder(&self.registry, event);
    }

    /// Adds a worker and returns its handle.
    pub fn worker(&self) -> WorkerTelemetry {
        let worker = WorkerTelemetry::new(self.log.as_ref().map(AccessLog::buffer), self.started_at);
        self.workers.lock().push(worker.clone());
        worker
    }

    /// Records that `rules` are active, at the start and after each reload. All series of their classes and scopes and
    /// of `operators` are exported from now on, even if 0.
    pub fn config_loaded(&self, rules: &Rules, operators: &[&str], now: Timestamp) {
        self.record(|| {
            gauge!(RELOAD_SUCCESSFUL).set(1);
            gauge!(RELOAD_SUCCESS_TIME).set(now.seconds() as f64);
        });
        let mut totals = self.totals.lock();
        for class in &rules.classes {
            totals.classes.get_or_insert(&class.name);
        }
        totals.scopes.get_or_insert(Scope::DEFAULT);
        for scope in &rules.scopes {
            totals.scopes.get_or_insert(&scope.name);
        }
        for operator in operators {
            totals.operators.get_or_insert(operator);
        }
    }

    /// Records the names of several origins, by their id, at the start and after each reload: their series are exported from
    /// now on, even if 0. Of the origins that the configuration does not name any more, the last few keep theirs.
    pub fn origins_loaded(&self, names: &[&str], rules: &Rules) {
        let mut totals = self.totals.lock();
        totals.origins.retain_newest(MAX_REMOVED_ORIGINS, |name| names.contains(&name));
        for route in &rules.routes {
            let Some(name) = names.get(route.origin.index()) else { continue };
            for scope in &route.scopes {
                totals.origins.get_or_insert(name).get_or_insert(&rules[*scope].name);
            }
        }
    }

    /// Records that a reload failed and the old rules stay active.
    pub fn reload_failed(&self) {
        self.record(|| gauge!(RELOAD_SUCCESSFUL).set(0));
    }

    /// Returns the number of requests by result of the cache, in the order of [`CacheResult::ALL`].
    pub fn cache_requests(&self) -> [u64; CacheResult::ALL.len()] {
        self.totals().cache
    }

    /// Returns the units that stored responses saved: quota, class, units.
    pub fn saved_units(&self) -> Vec<(String, String, Units)> {
        self.units_by_class(|counts| &counts.saved)
    }

    /// Returns the units that refreshes of stored responses used: quota, class, units.
    pub fn refreshed_units(&self) -> Vec<(String, String, Units)> {
        self.units_by_class(|counts| &counts.refreshed)
    }

    fn units_by_class(
        &self,
        units: impl Fn(&counters::ClassCounters) -> &counters::NamedSlots<Units>,
    ) -> Vec<(String, String, Units)> {
        let totals = self.totals();
        let of_class = |(class, counts): (&str, &counters::ClassCounters)| {
            units(counts).iter().map(|(quota, units)| (quota.to_owned(), class.to_owned(), *units)).collect::<Vec<_>>()
        };
        totals.classes.iter().flat_map(of_class).collect()
    }

    /// Returns the exposition in text format 0.0.4: what has been recorded, the totals of the workers, and what
    /// `record_state` records. The series of `record_state` are of this exposition alone, so that they end with the
    /// quota, certificate or list that they describe.
    pub fn scrape(&self, record_state: impl FnOnce()) -> String {
        let registry = self.registry.child();
        exporter::record_totals(&self.totals(), &registry);
        with_local_recorder(&registry, || {
            counter!(PANICS).absolute(panic_count());
            counter!(ACCESS_LOG_DROPPED).absolute(self.log_lines_dropped());
            record_state();
        });
        registry.to_string()
    }

    /// Returns the counters of all workers since the start, with their current numbers of open connections and requests
    /// in flight.
    fn totals(&self) -> WorkerCounters {
        let mut totals = self.totals.lock();
        let mut open = Vec::new();
        for worker in self.workers.lock().iter() {
            let taken = worker.0.lock().counters.take_all();
            totals.merge(&taken);
            open.push(taken);
        }
        let mut current = totals.clone();
        for taken in open {
            current.connections_open += taken.connections_open;
            current.connection_memory += taken.connection_memory;
            taken.scopes.iter().for_each(|(name, scope)| current.scopes.get_or_insert(name).inflight += scope.inflight);
        }
        current
    }

    /// Returns the number of requests in flight to the origin, by scope.
    pub fn origin_inflight(&self) -> Vec<(String, u64)> {
        self.totals().scopes.iter().map(|(scope, counts)| (scope.to_owned(), counts.inflight)).collect()
    }

    /// Returns the number of requests of `scope` in flight to the origin.
    pub fn inflight(&self, scope: &str) -> u64 {
        self.workers
            .lock()
            .iter()
            .filter_map(|worker| {
                worker
                    .0
                    .lock()
                    .counters
                    .scopes
                    .iter()
                    .find(|(name, _)| *name == scope)
                    .map(|(_, counts)| counts.inflight)
            })
            .sum()
    }

    /// Returns the requests of each class since the start. Reasons without a request are left out.
    pub fn class_traffic(&self) -> Vec<ClassTraffic> {
        let by_reason = |counts: &[u64]| {
            let pairs = Reason::ALL.iter().copied().zip(counts.iter().copied());
            pairs.filter(|(_, count)| *count > 0).collect()
        };
        let totals = self.totals();
        let traffic = |(name, class): (&str, &counters::ClassCounters)| ClassTraffic {
            class: name.to_owned(),
            admitted: class.admitted,
            costly: class.costly,
            costly_admitted: class.costly_admitted,
            refused: by_reason(&class.refused),
            shadow: by_reason(&class.shadow),
            responses: ResponseCounts::new(&class.responses),
        };
        totals.classes.iter().map(traffic).collect()
    }

    /// Returns the requests of each kind of client that rules have admitted and refused since the start, without those that the
    /// administrator has blocked.
    pub fn kind_traffic(&self) -> [(ClientKind, [u64; 2]); ClientKind::ALL.len()] {
        let kinds = self.totals().kinds;
        ClientKind::ALL.map(|kind| (kind, [kinds[kind as usize].admitted, kinds[kind as usize].refused]))
    }

    /// Returns the `count` routes with the most requests since the start, in descending order.
    pub fn route_traffic(&self, count: usize) -> Vec<RouteTraffic> {
        let totals = self.totals();
        let traffic = |(name, route): (&str, &counters::RouteCounters)| RouteTraffic {
            route: name.to_owned(),
            admitted: route.responses.admitted_duration.count(),
            refused: route.refused,
            responses: ResponseCounts::new(&route.responses),
        };
        let mut routes: Vec<RouteTraffic> = totals.routes.iter().map(traffic).collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.admitted + route.refused));
        routes.truncate(count);
        routes
    }

    /// Returns all responses since the start, with those to requests that were rejected before classification.
    pub fn all_responses(&self) -> ResponseCounts {
        let totals = self.totals();
        let unclassified = totals.unclassified;
        let mut all = counters::ResponseCounters { codes: unclassified, ..counters::ResponseCounters::default() };
        totals.classes.iter().for_each(|(_, class)| all.merge(&class.responses));
        ResponseCounts::new(&all)
    }

    /// Returns the start of the last hour, and the `count` largest spenders of each kind since then.
    pub fn top_spenders(&self, count: usize, now: Timestamp) -> (Timestamp, TopSpenders) {
        let mut total = recent_spenders::totals();
        self.workers.lock().iter().for_each(|worker| worker.0.lock().spenders.add_to(&mut total, now));
        (recent_spenders::covered_since(now), total.top(count))
    }

    /// Returns the access log line of decision `id`, or `None` if no worker stores it any more.
    pub fn decision(&self, id: u64) -> Option<Vec<u8>> {
        self.workers.lock().iter().find_map(|worker| worker.0.lock().decisions.find(id).map(<[u8]>::to_vec))
    }

    /// Returns the access log lines of all decisions that a worker still stores.
    pub fn recent_decisions(&self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for worker in self.workers.lock().iter() {
            lines.extend(worker.0.lock().decisions.lines().map(<[u8]>::to_vec));
        }
        lines
    }

    /// Removes the spans of all workers that wait for their export. Returns them, and the number of requests whose spans were
    /// dropped since the last call.
    pub fn take_spans(&self) -> (Vec<Spans>, u64) {
        let mut spans = Vec::new();
        let dropped = self.workers.lock().iter().map(|worker| worker.0.lock().spans.drain_into(&mut spans)).sum();
        (spans, dropped)
    }

    /// Returns the number of access log lines dropped because the disk could not keep up.
    pub fn log_lines_dropped(&self) -> u64 {
        self.log.as_ref().map_or(0, AccessLog::dropped)
    }

    /// Opens the access log again after the file was moved away (SIGUSR1).
    pub fn reopen_access_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Writes the last lines after the workers have drained. Returns false if that took longer than `timeout`.
    pub fn close(&self, timeout: Duration) -> bool {
        self.workers.lock().iter().for_each(WorkerTelemetry::flush);
        self.log.as_ref().is_none_or(|log| log.close(timeout))
    }
}
