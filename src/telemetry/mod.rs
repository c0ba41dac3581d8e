//! Telemetry of the gateway: one access log line per request, counters for Prometheus, and the last decisions by id.
//!
//! A worker fills in a [`Record`](tidegate_access_log::Record) when a request is over and hands it to its
//! [`WorkerTelemetry`]; a request pays for nothing else. [`Telemetry`] is the control side: it adds up, renders, looks up
//! and closes.

mod access_log;
mod counters;
mod decision_ring;
mod exporter;
mod exposition;
mod handshake_result;
mod histogram;
mod log_file;
mod log_writer;
pub mod metrics;
mod panics;
mod recent_spenders;
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

use exporter::Exporter;
use metrics::{
    ACCESS_LOG_DROPPED, BUILD_INFO, CACHE_BYTES, CACHE_DISK_ERRORS, CACHE_ENTRIES, CACHE_EVICTIONS,
    CACHE_INVALIDATIONS, CRAWL_DELAY_ADVERTISED, CRAWL_DELAY_VIOLATIONS, CRAWL_INTERVAL_SECONDS, CRAWL_INTERVALS,
    CRAWLER_REQUESTS, DISK_STORE, DNS_QUEUE_LENGTH, FORWARD_AUTH_EVICTED, FORWARD_AUTH_PENDING, MEMORY_STORE,
    RELOAD_SUCCESS_TIME, RELOAD_SUCCESSFUL, ROBOTS_REQUESTS, START_TIME, SWITCHES, UPGRADES, VERIFICATIONS,
};
use parking_lot::Mutex;
use std::time::Duration;
use tidegate_engine::Admission;
use tidegate_engine::spenders::TopSpenders;
use tidegate_http_cache::CacheResult;
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::throttle::Scope;
use tidegate_policy::{Reason, Rules, Timestamp, Units};

/// Telemetry of one process.
pub struct Telemetry {
    exporter: Exporter,
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
    /// Refused requests, by reason.
    pub refused: Vec<(Reason, u64)>,
    /// Admitted requests that a rule in shadow mode would have refused, by reason.
    pub shadow: Vec<(Reason, u64)>,
}

/// State of what the configuration names.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredView<'a> {
    /// Names of the operators of crawlers, by their id.
    pub operators: Vec<&'a str>,
    /// Servers of the origin by their URL; false for those that are ejected.
    pub origin_servers: Vec<(String, bool)>,
    /// Address lists of the config.
    pub lists: Vec<AddressListView>,
    /// Operators that have range lists, each with the number of lists that could not be refreshed.
    pub stale_ranges: Vec<(&'a str, usize)>,
    /// Certificates, each name once.
    pub certificates: Vec<CertificateView>,
    /// Certificates from ACME servers, each name once.
    pub acme: Vec<AcmeView>,
}

/// Orders of a certificate from an ACME server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeView {
    /// First name of the certificate.
    pub domain: String,
    /// Number of failed attempts since the start.
    pub failures: u64,
}

/// State of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateView {
    /// First name of the certificate.
    pub domain: String,
    /// End of its validity, in seconds since 1970.
    pub expires_at: u64,
    /// True if its files have changed since and could not be loaded; the older certificate is in use.
    pub is_stale: bool,
}

/// State of one address list of the config.
#[derive(Clone, Debug)]
pub struct AddressListView {
    /// Name of the list.
    pub name: String,
    /// Number of networks, as last loaded.
    pub networks: usize,
    /// True if the file has changed since and could not be loaded; the older version is in use.
    pub is_stale: bool,
}

/// Method of a verification in the background. Verifications during a request are counted with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerificationMethod {
    /// Forward-confirmed reverse DNS.
    Dns,
}

/// Result of a crawler verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerificationResult {
    /// The crawler belongs to the operator that it claims.
    Verified,
    /// The crawler does not belong to the operator that it claims.
    Impostor,
    /// The claim could be neither proven nor disproven.
    Unknown,
}

impl Telemetry {
    /// Creates telemetry that writes to `log`; without a log, only the last lines are kept in memory.
    pub fn new(log: Option<AccessLog>, build: (&str, &str), started_at: Timestamp) -> Self {
        let exporter = Exporter::new();
        let (version, revision) = build;
        exporter.gauge(BUILD_INFO, &[version, revision], 1.0);
        exporter.gauge(START_TIME, &[], started_at.seconds() as f64);
        Self { exporter, totals: Mutex::default(), workers: Mutex::default(), started_at, log }
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
        self.exporter.gauge(RELOAD_SUCCESSFUL, &[], 1.0);
        self.exporter.gauge(RELOAD_SUCCESS_TIME, &[], now.seconds() as f64);
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

    /// Records that a reload failed and the old rules stay active.
    pub fn reload_failed(&self) {
        self.exporter.gauge(RELOAD_SUCCESSFUL, &[], 0.0);
    }

    /// Counts a verification in the background. `operator` is a name of the built-in list.
    pub fn record_verification(&self, operator: &str, method: VerificationMethod, result: VerificationResult) {
        self.exporter.add_one(VERIFICATIONS, &[operator, method.name(), result.name()]);
    }

    /// Sets the number of switches with this effect.
    pub fn set_switches(&self, effect: &str, count: usize) {
        self.exporter.gauge(SWITCHES, &[effect], count as f64);
    }

    /// Sets what the cache has on disk: the bytes of the files, and the number of errors.
    pub fn set_cache_on_disk(&self, bytes: u64, errors: u64) {
        self.exporter.gauge(CACHE_BYTES, &[DISK_STORE], bytes as f64);
        self.exporter.count(CACHE_DISK_ERRORS, &[], errors);
    }

    /// Sets the number of writes that invalidated stored responses, and of those that exceeded the rate of their client.
    pub fn set_cache_invalidations(&self, [marked, ignored]: [u64; 2]) {
        self.exporter.count(CACHE_INVALIDATIONS, &["marked"], marked);
        self.exporter.count(CACHE_INVALIDATIONS, &["ignored"], ignored);
    }

    /// Sets what the cache contains: the number of entries, the bytes that they occupy, and the number of entries that
    /// were displaced.
    pub fn set_cache_contents(&self, entries: u64, memory_bytes: u64, evictions: u64) {
        self.exporter.gauge(CACHE_BYTES, &[MEMORY_STORE], memory_bytes as f64);
        self.exporter.gauge(CACHE_ENTRIES, &[], entries as f64);
        self.exporter.count(CACHE_EVICTIONS, &[], evictions);
    }

    /// Sets the number of requests of other proxies whose cost is not known, and of those that were dropped to make space.
    pub fn set_pending_decisions(&self, pending: u64, evicted: u64) {
        self.exporter.gauge(FORWARD_AUTH_PENDING, &[], pending as f64);
        self.exporter.count(FORWARD_AUTH_EVICTED, &[], evicted);
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

    /// Sets the number of addresses that wait for DNS verification.
    pub fn set_dns_queue_length(&self, waiting: usize) {
        self.exporter.gauge(DNS_QUEUE_LENGTH, &[], waiting as f64);
    }

    /// Sets the number of upgraded connections.
    pub fn set_upgrades(&self, open: usize) {
        self.exporter.gauge(UPGRADES, &[], open as f64);
    }

    /// Records how the crawlers of `operator` follow their crawl delay. `operator` is a name of the built-in list.
    pub fn record_compliance(&self, operator: &str, compliance: &ComplianceView) {
        self.exporter.gauge(CRAWL_DELAY_ADVERTISED, &[operator], compliance.advertised.unwrap_or(0).into());
        for (metric, total) in [
            (CRAWLER_REQUESTS, compliance.requests),
            (ROBOTS_REQUESTS, compliance.robots_txt_requests),
            (CRAWL_INTERVALS, compliance.interval_count),
            (CRAWL_INTERVAL_SECONDS, compliance.total_interval.as_secs()),
            (CRAWL_DELAY_VIOLATIONS, compliance.violations),
        ] {
            self.exporter.count(metric, &[operator], total);
        }
    }

    /// Returns the exposition in text format 0.0.4. `uptime` is monotonic time.
    pub fn render(
        &self,
        admission: &Admission,
        configured: &ConfiguredView<'_>,
        now: Timestamp,
        uptime: Timestamp,
    ) -> String {
        self.exporter.count(ACCESS_LOG_DROPPED, &[], self.log_lines_dropped());
        let (quotas, scopes) = (admission.quotas(now), admission.scopes(uptime));
        self.exporter.render(&self.totals(), admission, &quotas, &scopes, configured)
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
            refused: by_reason(&class.refused),
            shadow: by_reason(&class.shadow),
        };
        totals.classes.iter().map(traffic).collect()
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

impl VerificationMethod {
    const fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
        }
    }
}

impl VerificationResult {
    const fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Impostor => "impostor",
            Self::Unknown => "unknown",
        }
    }
}
