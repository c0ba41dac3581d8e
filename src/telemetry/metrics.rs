//! Every metric that the gate exports. The doc comment of each is its help text.

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, as scraped.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// How it behaves.
    pub form: MetricKind,
    /// Its labels.
    pub labels: &'static [&'static str],
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Samples by size: `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl MetricKind {
    /// Its name in the exposition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! metrics {
    ($(#[doc = $help:literal] $id:ident: $form:ident $name:literal [$($label:literal),*];)*) => {
        $(
            #[doc = $help]
            pub const $id: Metric =
                Metric { name: $name, help: $help.trim_ascii(), form: MetricKind::$form, labels: &[$($label),*] };
        )*
        /// All of them.
        pub const METRICS: &[Metric] = &[$($id),*];
    };
}

metrics! {
    /// Requests by class, verdict and, where refused, what said no.
    REQUESTS: Counter "tidegate_requests_total" ["class", "verdict", "reason"];
    /// Requests by kind of client: whatever the classes are called, a person refused is a human refused.
    REQUESTS_BY_KIND: Counter "tidegate_requests_by_kind_total" ["kind", "verdict"];
    /// Requests that a rule in shadow mode would have refused.
    SHADOW_REFUSALS: Counter "tidegate_shadow_refusals_total" ["class", "reason"];
    /// Answers given to clients; without a class where the request was turned away before it had one.
    RESPONSES: Counter "tidegate_responses_total" ["class", "code"];
    /// From the first byte of the request to the last of the answer.
    REQUEST_DURATION: Histogram "tidegate_request_duration_seconds" ["class", "verdict"];
    /// Requests sent to the origin, by its answer; error where it gave none.
    ORIGIN_REQUESTS: Counter "tidegate_origin_requests_total" ["scope", "code"];
    /// From sending a request to the origin to the beginning of its answer.
    ORIGIN_REQUEST_DURATION: Histogram "tidegate_origin_request_duration_seconds" ["scope"];
    /// Requests that the origin is working on.
    ORIGIN_INFLIGHT: Gauge "tidegate_origin_inflight" ["scope"];
    /// The most requests that may be at the origin at once.
    ORIGIN_CONCURRENCY_LIMIT: Gauge "tidegate_origin_concurrency_limit" ["scope"];
    /// The time between any two requests to the origin, as it is now.
    ORIGIN_DELAY: Gauge "tidegate_origin_delay_seconds" ["scope"];
    /// How long the origin is still left alone after it complained; 0 when it is not.
    ORIGIN_BACKOFF: Gauge "tidegate_origin_backoff_seconds" ["scope"];
    /// Requests that wait for their turn.
    QUEUE_LENGTH: Gauge "tidegate_queue_length" ["scope"];
    /// Values that have a scope of their own, of a scope by value.
    SCOPE_VALUES: Gauge "tidegate_scope_values" ["scope"];
    /// Units bought for the window.
    QUOTA_LIMIT: Gauge "tidegate_quota_limit" ["quota"];
    /// 1 if the quota is enforced, 0 in shadow mode (`enforce: false`).
    QUOTA_ENFORCED: Gauge "tidegate_quota_enforced" ["quota"];
    /// Units of the window that are spent.
    QUOTA_USED: Gauge "tidegate_quota_used" ["quota"];
    /// Units set aside for requests under way.
    QUOTA_RESERVED: Gauge "tidegate_quota_reserved" ["quota"];
    /// When the window began.
    QUOTA_WINDOW_START: Gauge "tidegate_quota_window_start_timestamp_seconds" ["quota"];
    /// When the window ends.
    QUOTA_WINDOW_END: Gauge "tidegate_quota_window_end_timestamp_seconds" ["quota"];
    /// Units charged to each class.
    QUOTA_CHARGED: Counter "tidegate_quota_charged_total" ["quota", "class"];
    /// Units that count as spent though nobody knows whether they were: reserved when a gate died.
    QUOTA_LOST: Counter "tidegate_quota_lost_total" ["quota"];
    /// Units that the origin counted beyond ours at its last word (sync_from); below zero where it counted fewer.
    QUOTA_DRIFT: Gauge "tidegate_quota_drift" ["quota"];
    /// Units that the origin said were spent beyond the limit.
    QUOTA_OVERRUN: Counter "tidegate_quota_overrun_total" ["quota"];
    /// The share of the class's requests that its tier refuses now.
    TIER_SHED: Gauge "tidegate_tier_shed_ratio" ["quota", "class"];
    /// What would be taken of the window by now, had its plan been followed from the beginning (pacing).
    PACING_LINE: Gauge "tidegate_pacing_line" ["quota"];
    /// Units of the window that the plan puts aside for the classes that are served first, such as people.
    PACING_ASIDE: Gauge "tidegate_pacing_aside" ["quota"];
    /// The share of the class's requests that the plan serves now.
    PACING_SERVED: Gauge "tidegate_pacing_served_ratio" ["quota", "class"];
    /// Units that went to verified crawlers although a tier refused them, so that no page is refused for too long.
    QUOTA_GUARDED: Counter "tidegate_quota_guarded_total" ["quota", "class"];
    /// For how long the page that has been refused longest to a verified crawler has been, as of its last refusal.
    LONGEST_REFUSAL: Gauge "tidegate_longest_refusal_seconds" ["operator"];
    /// Requests of suspected bots, by what they are suspected for; up to three reasons each.
    SUSPECTED: Counter "tidegate_suspected_requests_total" ["signal"];
    /// Clients whose behaviour is remembered.
    BEHAVIOUR_CLIENTS: Gauge "tidegate_behaviour_clients" [];
    /// Networks on each address list, as it was read last.
    LIST_NETWORKS: Gauge "tidegate_list_networks" ["list"];
    /// 1 while the file of an address list cannot be read or is wrong; what was read of it before is in force.
    LIST_STALE: Gauge "tidegate_list_stale" ["list"];
    /// Lists of the operator's addresses that could not be taken over when last looked at; what was known of them stays.
    RANGES_STALE: Gauge "tidegate_ranges_stale" ["operator"];
    /// Clients that are remembered.
    CLIENTS_TRACKED: Gauge "tidegate_clients_tracked" [];
    /// Clients forgotten to make room.
    CLIENTS_EVICTED: Counter "tidegate_clients_evicted_total" [];
    /// The seconds between two requests that robots.txt asks of the operator's crawlers; 0 where it asks nothing.
    CRAWL_DELAY_ADVERTISED: Gauge "tidegate_crawl_delay_advertised_seconds" ["operator"];
    /// Requests of the operator's crawlers, by proof or by their own word where nothing speaks against it.
    CRAWLER_REQUESTS: Counter "tidegate_crawler_requests_total" ["operator"];
    /// How many of them were for robots.txt.
    ROBOTS_REQUESTS: Counter "tidegate_robots_requests_total" ["operator"];
    /// Times between one page of the operator's crawlers and the next; silences of more than ten minutes are left out.
    CRAWL_GAPS: Counter "tidegate_crawl_gaps_total" ["operator"];
    /// How long they were together.
    CRAWL_GAP_SECONDS: Counter "tidegate_crawl_gap_seconds_total" ["operator"];
    /// How many of them were shorter than robots.txt asks.
    CRAWL_EARLY: Counter "tidegate_crawl_early_total" ["operator"];
    /// Crawlers' claims put to the test, by how and with what result.
    VERIFICATIONS: Counter "tidegate_verifications_total" ["operator", "method", "result"];
    /// Addresses of claimed crawlers that wait for what DNS says of them.
    NAMES_WAITING: Gauge "tidegate_names_waiting" [];
    /// Connections that clients have open.
    CONNECTIONS: Gauge "tidegate_connections" [];
    /// Connections closed at once because there were too many.
    CONNECTIONS_REFUSED: Counter "tidegate_connections_refused_total" [];
    /// Access-log lines thrown away because the disk could not keep up.
    ACCESS_LOG_DROPPED: Counter "tidegate_access_log_dropped_total" [];
    /// 1 when the settings in force are those of the last reload, 0 when that one failed.
    RELOAD_SUCCESSFUL: Gauge "tidegate_config_last_reload_successful" [];
    /// When settings were last put in force.
    RELOAD_SUCCESS_TIME: Gauge "tidegate_config_last_reload_success_timestamp_seconds" [];
    /// When the process began.
    START_TIME: Gauge "tidegate_start_timestamp_seconds" [];
    /// Always 1; says which build this is.
    BUILD_INFO: Gauge "tidegate_build_info" ["version", "revision"];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_unique() {
        for (place, metric) in METRICS.iter().enumerate() {
            let name = metric.name;
            assert!(name.starts_with("tidegate_"), "{name}");
            assert_eq!(name.ends_with("_total"), metric.form == MetricKind::Counter, "{name}");
            assert!(!["_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)), "{name}");
            assert!(metric.help.ends_with('.') && metric.help.is_ascii(), "{name}: {}", metric.help);
            assert!(METRICS[..place].iter().all(|other| other.name != name), "{name} twice");
        }
    }
}
