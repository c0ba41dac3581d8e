//! All exported metrics. Each has a constant with its name, for the macros `counter!`, `gauge!` and `histogram!` of the crate
//! `metrics`. Its doc comment is the help text.

use super::handshake_result::HandshakeResult;
use super::status_class::StatusClass;
use tidegate_engine::IgnoredReport;
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::Signal;
use tidegate_policy::promise::PromisedFigure;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::{ClientKind, Reason};

/// Definition of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name in the exposition.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Metric type.
    pub kind: MetricKind,
    /// Label names.
    pub labels: &'static [&'static str],
}

impl Metric {
    /// Label that the series of a metric have only where there are several origins.
    pub const OPTIONAL_LABEL: &str = "origin";

    /// Returns true if a series of the metric may have these labels, in this order.
    pub fn has_labels<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> bool {
        let labels: Vec<&str> = labels.into_iter().collect();
        let required = self.labels.iter().filter(|label| **label != Self::OPTIONAL_LABEL);
        labels == self.labels || labels.into_iter().eq(required.copied())
    }
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Monotonic counter.
    Counter,
    /// Monotonic counter of units, recorded in milli-units.
    UnitCounter,
    /// Value that may rise and fall.
    Gauge,
    /// Samples by size: `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the type in the exposition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter | Self::UnitCounter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $id:ident: $kind:ident $name:literal [$($label:literal),*];)*) => {
        $($(#[doc = $help])+ pub const $id: &str = $name;)*

        /// All metrics.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            help: concat!($($help),+).trim_ascii(),
            kind: MetricKind::$kind,
            labels: &[$($label),*],
        }),*];
    };
}

metrics! {
    /// Total number of requests, by class, verdict and refusal reason.
    REQUESTS: Counter "tidegate_requests_total" ["class", "verdict", "reason"];
    /// Total number of requests, by client kind and verdict.
    REQUESTS_BY_KIND: Counter "tidegate_requests_by_kind_total" ["kind", "verdict"];
    /// Total number of requests that a rule in shadow mode (`enforce: false`) would have refused.
    SHADOW_REFUSALS: Counter "tidegate_shadow_refusals_total" ["class", "reason"];
    /// Total number of responses sent to clients, by status class. The class label is empty if the request was rejected
    /// before classification.
    RESPONSES: Counter "tidegate_responses_total" ["class", "code"];
    /// Time from the first byte of the request to the last byte of the response.
    REQUEST_DURATION: Histogram "tidegate_request_duration_seconds" ["class", "verdict"];
    /// Total number of requests sent to the origin, by status class; `error` if there was no response.
    ORIGIN_REQUESTS: Counter "tidegate_origin_requests_total" ["scope", "code", "origin"];
    /// Time from sending the request to the origin to receiving its response head.
    ORIGIN_REQUEST_DURATION: Histogram "tidegate_origin_request_duration_seconds" ["scope", "origin"];
    /// Total number of units charged on a route for costs that it does not expect: the origin reported a cost in a quota in
    /// which the route has none. The first report teaches the cost of the path, later requests are refused by it. `tidegate
    /// status` lists the paths: give them a route with a cost.
    UNEXPECTED_COST: UnitCounter "tidegate_unexpected_cost_total" ["route"];
    /// Number of requests currently in flight to the origin. Partitions of a scope are added up.
    ORIGIN_INFLIGHT: Gauge "tidegate_origin_inflight" ["scope"];
    /// 1 if the server of the origin is sent requests, 0 if it is ejected because it did not respond.
    ORIGIN_SERVER_UP: Gauge "tidegate_origin_server_up" ["server", "origin"];
    /// Current concurrency limit of the scope.
    ORIGIN_CONCURRENCY_LIMIT: Gauge "tidegate_origin_concurrency_limit" ["scope"];
    /// Current minimum delay between two requests of the scope. The maximum over the partitions of a partitioned scope.
    ORIGIN_DELAY: Gauge "tidegate_origin_delay_seconds" ["scope"];
    /// Remaining backoff of the scope; 0 if it is not backing off. The maximum over the partitions of a partitioned
    /// scope.
    ORIGIN_BACKOFF: Gauge "tidegate_origin_backoff_seconds" ["scope"];
    /// Number of clients, networks and routes of the scope that back off on their own, because the overload responses
    /// are theirs alone. Partitions of a scope are added up.
    ORIGIN_BACKOFF_PARTS: Gauge "tidegate_origin_backoff_parts" ["scope"];
    /// Number of requests waiting for a slot in the scope. Partitions of a scope are added up.
    QUEUE_LENGTH: Gauge "tidegate_queue_length" ["scope"];
    /// Number of partitions of a partitioned scope. A partitioned scope has one series per metric; no label contains
    /// the value of a partition key.
    SCOPE_PARTITIONS: Gauge "tidegate_scope_partitions" ["scope"];
    /// Limit of the quota per window, in units.
    QUOTA_LIMIT: Gauge "tidegate_quota_limit" ["quota"];
    /// Number of keys whose usage of a budget of the quota counts now. A quota with budgets has no limit of its own:
    /// of its other metrics, only those of units that are charged, released or refused exist.
    BUDGET_KEYS: Gauge "tidegate_budget_keys" ["quota"];
    /// Units that the customer of a listed key has used of its budget in the current window, with `metrics_by_key`.
    BUDGET_USED: Gauge "tidegate_budget_used" ["quota", "key"];
    /// Limit of the customer of a listed key per window, in units, with `metrics_by_key`.
    BUDGET_LIMIT: Gauge "tidegate_budget_limit" ["quota", "key"];
    /// 1 if the quota is enforced, 0 in shadow mode (`enforce: false`).
    QUOTA_ENFORCED: Gauge "tidegate_quota_enforced" ["quota"];
    /// Units settled in the current window, over all instances. Reserved units are not included, unlike in the field
    /// `used` of the access log.
    QUOTA_USED: Gauge "tidegate_quota_used" ["quota"];
    /// Units reserved for requests in flight on this instance.
    QUOTA_RESERVED: Gauge "tidegate_quota_reserved" ["quota"];
    /// Start of the current window, as a Unix timestamp.
    QUOTA_WINDOW_START: Gauge "tidegate_quota_window_start_timestamp_seconds" ["quota"];
    /// End of the current window, as a Unix timestamp.
    QUOTA_WINDOW_END: Gauge "tidegate_quota_window_end_timestamp_seconds" ["quota"];
    /// Total number of units charged, by class.
    QUOTA_CHARGED: UnitCounter "tidegate_quota_charged_total" ["quota", "class"];
    /// Total number of units that stored responses saved, by class: the expected costs of the requests that they answered.
    QUOTA_SAVED: UnitCounter "tidegate_quota_saved_total" ["quota", "class"];
    /// Total number of surplus units that refreshed stored responses (`cache.refresh`), by the class that was last sent them.
    CACHE_REFRESHED: UnitCounter "tidegate_cache_refreshed_units_total" ["quota", "class"];
    /// Total number of requests on routes that are cached, by result: hit, stale, revalidated, miss or bypass.
    CACHE_REQUESTS: Counter "tidegate_cache_requests_total" ["result"];
    /// Total number of writes to the URLs of stored responses, by result: `marked` made them stale, `ignored` exceeded the rate
    /// of their client.
    CACHE_INVALIDATIONS: Counter "tidegate_cache_invalidations_total" ["result"];
    /// Bytes of stored responses: in memory, and in files, which have those in memory, too.
    CACHE_BYTES: Gauge "tidegate_cache_bytes" ["store"];
    /// Number of entries of the cache: responses, their compressed forms, and URLs with several responses.
    CACHE_ENTRIES: Gauge "tidegate_cache_entries" [];
    /// Total number of entries removed from memory to make space for others. A newer version of a copy counts as none.
    CACHE_EVICTIONS: Counter "tidegate_cache_evictions_total" [];
    /// Total number of failed reads and writes of `cache.disk`, and of damaged responses. None of them is served.
    CACHE_DISK_ERRORS: Counter "tidegate_cache_disk_errors_total" [];
    /// Total number of units counted as used after a crash without proof that they were used.
    QUOTA_LOST: UnitCounter "tidegate_quota_lost_total" ["quota"];
    /// Units reported by the origin minus units counted by the gateway (`sync_from`); negative if the origin reported
    /// fewer. Differences that requests in flight explain do not count.
    QUOTA_DRIFT: Gauge "tidegate_quota_drift" ["quota"];
    /// Total number of responses whose count of the quota (`sync_from`) was ignored: a header was `unreadable`, or its reset
    /// time is of an `other_window`. Each cause is logged, at most once an hour.
    QUOTA_IGNORED_REPORTS: Counter "tidegate_quota_ignored_reports_total" ["quota", "cause"];
    /// Total number of units that the origin reported as spent beyond the limit.
    QUOTA_OVERRUN: UnitCounter "tidegate_quota_overrun_total" ["quota"];
    /// Total number of responses without the cost of their route in the quota, which cost_json or cost_trailer should have
    /// read. Each was charged as expected.
    COST_MISSING: Counter "tidegate_cost_missing_total" ["quota", "route"];
    /// Total number of costs that the origin reported and that were implausibly high: above 100 times the expected cost and
    /// above a hundredth of the limit, of which the larger was charged; in a body or trailer, above the limit, which was charged.
    QUOTA_IMPLAUSIBLE_COSTS: Counter "tidegate_quota_implausible_costs_total" ["quota"];
    /// Ratio of the class's requests that its current tier refuses, 0 to 1.
    TIER_SHED: Gauge "tidegate_tier_shed_ratio" ["quota", "class"];
    /// Units that the pacing plan would have used by now. Present for quotas with pacing.
    PACING_PLANNED: Gauge "tidegate_pacing_planned_units" ["quota"];
    /// Units earmarked for unpaced classes until the end of the window, at most those that remain. Present for quotas with pacing.
    PACING_EARMARKED: Gauge "tidegate_pacing_earmarked_units" ["quota"];
    /// Ratio of the class's demand that the pacing plan admitted in the last 5 to 10 minutes, 0 to 1; planned if there was
    /// none. Present for quotas with pacing.
    PACING_ADMIT_RATIO: Gauge "tidegate_pacing_admit_ratio" ["quota", "class"];
    /// Total number of units admitted by the crawler guard although a tier or the pacing plan refused the request. The
    /// admin API has them as `guard_units` of the class.
    QUOTA_GUARD_UNITS: UnitCounter "tidegate_quota_guard_units_total" ["quota", "class"];
    /// Longest time for which one page has been refused to a verified crawler of the operator, as of the last refusal
    /// of the page. An alert fires above 25 hours.
    LONGEST_REFUSAL: Gauge "tidegate_crawler_longest_refusal_seconds" ["operator"];
    /// Total number of requests of suspected bots, by signal; up to three signals per request.
    SUSPECTED: Counter "tidegate_suspected_bot_requests_total" ["signal"];
    /// Number of client profiles in memory.
    BOT_DETECTION_CLIENTS: Gauge "tidegate_bot_detection_clients" [];
    /// Number of networks in the address list, as last loaded.
    ADDRESS_LIST_NETWORKS: Gauge "tidegate_address_list_networks" ["list"];
    /// 1 if the file of the address list could not be loaded and an older version is in use, 0 otherwise. An alert
    /// fires after 15 minutes.
    ADDRESS_LIST_STALE: Gauge "tidegate_address_list_stale" ["list"];
    /// Number of range lists of the operator that could not be refreshed. `tidegate status` names the list and the
    /// reason. An alert fires after a day.
    OPERATOR_RANGES_STALE: Gauge "tidegate_operator_ranges_stale" ["operator"];
    /// Number of clients with a bucket in memory.
    CLIENTS_TRACKED: Gauge "tidegate_clients_tracked" [];
    /// Total number of clients evicted from memory.
    CLIENTS_EVICTED: Counter "tidegate_clients_evicted_total" [];
    /// Number of requests admitted for other proxies whose cost is not known. Present with forward_auth.
    FORWARD_AUTH_PENDING: Gauge "tidegate_forward_auth_pending" [];
    /// Total number of requests admitted for other proxies that were charged as expected before settle_after, because
    /// forward_auth.memory was used up. Present with forward_auth.
    FORWARD_AUTH_EVICTED: Counter "tidegate_forward_auth_evicted_total" [];
    /// Crawl delay advertised to the operator's crawlers in robots.txt; 0 if none.
    CRAWL_DELAY_ADVERTISED: Gauge "tidegate_crawl_delay_advertised_seconds" ["operator"];
    /// Total number of requests of the operator's crawlers, verified or unverified, without impostors. Unverified
    /// crawlers count because robots.txt addresses them by the same name.
    CRAWLER_REQUESTS: Counter "tidegate_crawler_requests_total" ["operator"];
    /// Total number of robots.txt requests of the operator's crawlers.
    ROBOTS_REQUESTS: Counter "tidegate_crawler_robots_requests_total" ["operator"];
    /// Total number of intervals between two page requests of the operator's crawlers; intervals over 10 minutes are
    /// excluded.
    CRAWL_INTERVALS: Counter "tidegate_crawl_intervals_total" ["operator"];
    /// Sum of the intervals between two page requests of the operator's crawlers, in seconds.
    CRAWL_INTERVAL_SECONDS: Counter "tidegate_crawl_interval_seconds_total" ["operator"];
    /// Total number of intervals shorter than the advertised crawl delay.
    CRAWL_DELAY_VIOLATIONS: Counter "tidegate_crawl_delay_violations_total" ["operator"];
    /// Total number of crawler verifications, by operator, method and result.
    VERIFICATIONS: Counter "tidegate_verifications_total" ["operator", "method", "result"];
    /// Number of addresses waiting for reverse DNS verification, at most 1,024. Further addresses stay unverified until
    /// there is room.
    DNS_QUEUE_LENGTH: Gauge "tidegate_dns_queue_length" [];
    /// Number of switches of administrators in effect, by `block`, `allow` and `maintenance`.
    SWITCHES: Gauge "tidegate_switches" ["effect"];
    /// Figure of the promise that a window keeps, 0 to 1: `people_refused`, `search_served` or `left_over`, in the `current` and
    /// the `last` window. Present with a promise, and for figures that are known.
    PROMISE_KEPT: Gauge "tidegate_promise_kept_ratio" ["figure", "window"];
    /// 1 if the last window missed the figure of the promise, 0 if it kept it. Present with a promise, after the first window.
    PROMISE_MISSED: Gauge "tidegate_promise_missed" ["figure"];
    /// Total number of notifications to webhooks, by result: `sent`, or `failed`, those given up or lost.
    NOTIFICATIONS: Counter "tidegate_notifications_total" ["result"];
    /// Total number of panics, each a defect of the gateway. A panic ends one connection, HTTP/2 stream or task.
    PANICS: Counter "tidegate_panics_total" [];
    /// Number of open client connections.
    CONNECTIONS: Gauge "tidegate_client_connections" [];
    /// Number of upgraded connections, such as WebSockets.
    UPGRADES: Gauge "tidegate_upgrades" [];
    /// Total number of client connections closed because a connection limit was reached.
    CONNECTIONS_REFUSED: Counter "tidegate_client_connections_refused_total" [];
    /// Total number of TLS handshakes with clients, by result: full, resumed (with a session ticket), failed (an error, a
    /// timeout, or no TLS), or refused (`limits.max_handshakes`).
    TLS_HANDSHAKES: Counter "tidegate_tls_handshakes_total" ["result"];
    /// End of the validity of the certificate, as a Unix timestamp. The label is its first name. An alert fires ten days
    /// before.
    CERTIFICATE_EXPIRY: Gauge "tidegate_certificate_expiry_timestamp_seconds" ["domain"];
    /// 1 if the files of the certificate have changed and cannot be used, so that the previous certificate stays in use.
    CERTIFICATE_STALE: Gauge "tidegate_certificate_stale" ["domain"];
    /// Total number of failed attempts to order the certificate from its ACME server. The previous certificate stays in use
    /// meanwhile. `tidegate status` says why the last attempt failed.
    ACME_FAILURES: Counter "tidegate_acme_failures_total" ["domain"];
    /// Memory that the open client connections occupy: their buffers, requests and responses in progress. `limits.memory`
    /// is its limit.
    CONNECTION_MEMORY: Gauge "tidegate_client_connection_memory_bytes" [];
    /// Total number of client connections closed because `limits.memory` was reached. Those that occupy most memory are
    /// closed first.
    CONNECTIONS_SHED: Counter "tidegate_client_connections_shed_total" [];
    /// Total number of access log lines dropped because the writer could not keep up.
    ACCESS_LOG_DROPPED: Counter "tidegate_access_log_dropped_lines_total" [];
    /// Total number of requests whose spans were for the collector, by result: exported, or dropped because it or the gateway could
    /// not keep up. Only with `traces`.
    TRACED_REQUESTS: Counter "tidegate_traced_requests_total" ["result"];
    /// 1 if the last configuration reload succeeded, 0 otherwise.
    RELOAD_SUCCESSFUL: Gauge "tidegate_config_last_reload_successful" [];
    /// Unix timestamp of the last successful configuration load.
    RELOAD_SUCCESS_TIME: Gauge "tidegate_config_last_reload_success_timestamp_seconds" [];
    /// Start time of the process, as a Unix timestamp.
    START_TIME: Gauge "tidegate_process_start_time_seconds" [];
    /// Build information; the value is always 1.
    BUILD_INFO: Gauge "tidegate_build_info" ["version", "revision"];
}

/// A label of metrics.
#[derive(Clone, Copy, Debug)]
pub struct MetricLabel {
    /// Name of the label.
    pub name: &'static str,
    /// Source of the values, as sentences.
    pub meaning: &'static str,
    /// Returns the values if they are a closed list, else none.
    pub values: fn() -> Vec<&'static str>,
}

/// All labels of the metrics. Values come from the configuration or from a closed list, never from a request.
pub const LABELS: &[MetricLabel] = &[
    label("class", "Name of a class of the configuration, or `other`.", Vec::new),
    label("verdict", "Verdict on the request.", || vec!["admitted", "refused"]),
    label("reason", "Rule that refused the request; empty if it was admitted.", || {
        std::iter::once("").chain(Reason::ALL.map(Reason::name)).collect()
    }),
    label("effect", "Effect of a switch.", || SwitchEffect::ALL.map(SwitchEffect::name).to_vec()),
    label("kind", "Kind of the client.", || ClientKind::ALL.map(ClientKind::name).to_vec()),
    label("code", "Status class of the response. 429 and 503 are counted apart from 4xx and 5xx.", || {
        StatusClass::ALL.map(StatusClass::name).to_vec()
    }),
    label("scope", "Name of a scope of the configuration, or `default`.", Vec::new),
    label("key", "Name of a customer in `api_keys`.", Vec::new),
    label("server", "URL of a server of the origin.", Vec::new),
    label("origin", "Name of an origin of the configuration; absent unless there are several.", Vec::new),
    label("quota", "Name of a quota of the configuration.", Vec::new),
    label(
        "route",
        "Route of the configuration: its `match` as written, or `/**`; where several routes have it, with the names of their conditions.",
        Vec::new,
    ),
    label("operator", "Name of an operator, built in or of the configuration.", Vec::new),
    label("signal", "Behavior signal of a suspected bot.", || Signal::ALL.map(Signal::name).to_vec()),
    label("list", "Name of an address list of the configuration.", Vec::new),
    label("method", "Proof method of the verification: published ranges, reverse DNS, or a signed request.", || {
        vec!["ranges", "dns", "signature"]
    }),
    label(
        "result",
        "Result of the verification (`invalid` is a result of signatures only), of the cache, of a write, of the handshake, or of the \
         notification.",
        || {
            let of_verification = ["verified", "impostor", "invalid", "unknown"];
            let of_handshake = HandshakeResult::ALL.map(HandshakeResult::name);
            let of_cache = CacheResult::ALL.map(CacheResult::name).into_iter().chain(["marked", "ignored"]);
            let of_notification = ["sent"];
            of_verification.into_iter().chain(of_cache).chain(of_handshake).chain(of_notification).collect()
        },
    ),
    label("cause", "Why the origin's count of a quota was ignored.", || {
        IgnoredReport::ALL.map(IgnoredReport::name).to_vec()
    }),
    label("figure", "Figure of the promise.", || PromisedFigure::ALL.map(PromisedFigure::name).to_vec()),
    label("window", "Window of the first quota.", || vec!["current", "last"]),
    label("domain", "First name of a certificate.", Vec::new),
    label("store", "Place of stored responses.", || vec!["memory", "disk"]),
    label("version", "Version of the program.", Vec::new),
    label("revision", "Source revision of the program.", Vec::new),
];

const fn label(name: &'static str, meaning: &'static str, values: fn() -> Vec<&'static str>) -> MetricLabel {
    MetricLabel { name, meaning, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_unique() {
        for (index, metric) in METRICS.iter().enumerate() {
            let name = metric.name;
            assert!(name.starts_with("tidegate_"), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind.name() == "counter", "{name}");
            assert!(!["_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)), "{name}");
            assert!(metric.help.ends_with('.') && metric.help.is_ascii(), "{name}: {}", metric.help);
            assert!(METRICS[..index].iter().all(|other| other.name != name), "duplicate metric {name}");
        }
    }
}
