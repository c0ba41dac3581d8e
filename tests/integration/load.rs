//! Load test: thousands of recorded and synthetic requests; all invariants hold for each of them.
//!
//! Each run makes all checks: the gateway's log against the counters of the origin and the responses of the clients.

use crate::support::access_log::AccessLogLine;
use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::load::{self, LoadRequest};
use crate::support::metered_site::{MeteredSite, OriginCounters, OriginMode, SHOP, SITE};
use crate::support::origin::ReceivedRequest;
use crate::support::wait::wait_until;
use crate::support::{combined_log, day_trace};
use flate2::read::MultiGzDecoder;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

#[test]
fn synthetic_day_keeps_all_invariants() {
    let run = LoadRun::execute(synthetic_requests(), SHOP, OriginMode::Steady);
    run.assert_invariants();
    run.assert_client_kinds();
    run.assert_nothing_lost();
    run.assert_quota_exhausted();
    run.assert_all_tiers_entered();
}

#[test]
fn synthetic_day_keeps_invariants_with_unstable_origin() {
    let run = LoadRun::execute(synthetic_requests(), SHOP, OriginMode::Unstable);
    run.assert_invariants();
    run.assert_client_kinds();
    run.assert_resets_charged();
}

#[test]
fn real_logs_keep_all_invariants() {
    for requests in real_logs() {
        let run = LoadRun::execute(requests, SITE, OriginMode::Steady);
        run.assert_invariants();
        run.assert_nothing_lost();
        run.assert_quota_exhausted();
    }
}

#[test]
fn real_logs_keep_invariants_with_unstable_origin() {
    for requests in real_logs() {
        let run = LoadRun::execute(requests, SITE, OriginMode::Unstable);
        run.assert_invariants();
        run.assert_resets_charged();
    }
}

/// Long timeouts: the clock of a run may advance much faster than responses arrive.
const LONG_TIMEOUTS: &str = "
origin: { url: ORIGIN, idle_timeout: 1h, response_timeout: 1h }
limits: { keep_alive_timeout: 1h, first_byte_timeout: 1h, header_timeout: 1h, response_write_timeout: 1h }";

/// Classes of the load test.
const CLASSES: &str = "
  - { name: google, when: { operator: [googlebot] }, crawler_guard: off }
  - { name: engine, when: { operator: [bingbot, applebot] }, crawler_guard: off }
  - { name: impostor, when: { kind: impostor } }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot] } }
  - { name: person, when: { kind: human } }";

/// Tiers: from which percentage of the quota on, which percentage of a class is shed. Humans have no tiers.
const CLASS_TIERS: [(&str, &[(u32, u32)]); 4] = [
    ("google", &[(30, 33), (60, 50), (95, 100)]),
    ("engine", &[(10, 25), (40, 75), (80, 100)]),
    ("impostor", &[(0, 100)]),
    ("bot", &[(0, 60), (50, 90), (70, 100)]),
];

/// Ratio of demand to the quota.
const DEMAND_RATIO: u64 = 6;

/// Lengths of the subsequences for which shed shares are checked, besides the whole run.
const SEQUENCE_LENGTHS: [usize; 8] = [1, 2, 3, 7, 20, 50, 100, 400];

/// Result of a load run.
struct LoadRun {
    requests: Vec<LoadRequest>,
    responses: Vec<Option<Response>>,
    /// Requests that the origin received, without the gateway's own fetches of robots.txt.
    received: Vec<ReceivedRequest>,
    spent: u64,
    reset_count: u64,
    limit: u64,
    /// Access log, in the order of admission.
    lines: Vec<AccessLogLine>,
    samples: BTreeMap<String, f64>,
    used: f64,
    site: MeteredSite,
}

impl LoadRun {
    fn execute(requests: Vec<LoadRequest>, site: MeteredSite, mode: OriginMode) -> Self {
        let total_cost: u64 = requests.iter().map(|request| (site.cost)(&request.target)).sum();
        let limit = total_cost / DEMAND_RATIO;
        let (origin, counters) = site.start_origin(mode);
        let gateway = TestGateway::with_rules(origin.address(), &rules(limit, site));
        let responses = load::send_all(gateway.address(), &requests, || {
            if mode == OriginMode::Unstable {
                // Idle origin connections expire after a while. A request that fails on a stale connection is retried.
                gateway.clock.advance(Duration::from_millis(100));
            }
        });
        let total = requests.len() as f64;
        wait_until("all requests are counted and no units are reserved", || {
            request_counters(&gateway.metrics()).values().sum::<f64>() >= total && gateway.counters().1 == 0.0
        });
        let (samples, (used, _)) = (gateway.metrics(), gateway.counters());
        let mut lines: Vec<AccessLogLine> = gateway.read_log().into_iter().map(AccessLogLine::from_json).collect();
        lines.sort_by_key(|line| line.seq.get("api").copied());
        let OriginCounters { spent, reset_count, .. } = std::mem::take(&mut *counters.lock());
        let mut received = origin.received_requests();
        received.retain(|request| !request.fields.get("user-agent").is_some_and(|name| name.starts_with("tidegate/")));
        Self { requests, responses, received, spent, reset_count, limit, lines, samples, used, site }
    }

    fn assert_invariants(&self) {
        self.assert_within_limit();
        self.assert_free_requests_admitted();
        self.assert_humans_refused_only_by_quota();
        self.assert_shed_shares();
        self.assert_tier_thresholds();
        self.assert_counted_once();
        self.assert_origin_headers();
    }

    fn assert_within_limit(&self) {
        let limit = self.limit as f64;
        assert!(self.spent <= self.limit, "the origin has spent {} of {limit}", self.spent);
        assert!(self.used <= limit, "{} of {limit} are used", self.used);
        let charged: f64 = self.lines.iter().flat_map(|line| line.charged.values()).sum();
        assert_eq!(charged, self.used, "the charges in the log add up to the used units");
        let exceeding = self.lines.iter().find(|line| line.used.get("api").is_some_and(|&used| used > limit));
        assert!(exceeding.is_none(), "{exceeding:?}");
    }

    fn assert_free_requests_admitted(&self) {
        for line in &self.lines {
            let costs = (self.site.cost)(&self.requests[load::request_index(&line.host)].target);
            let expected: f64 = line.cost.values().sum();
            assert_eq!(expected, costs as f64, "the gateway and the origin have the same cost: {line:?}");
            assert!(costs > 0 || !line.is_refused(), "{line:?}");
        }
        let robots = self.requests.iter().zip(&self.responses).filter(|(request, _)| request.target == "/robots.txt");
        for (request, response) in robots {
            assert!(response.as_ref().is_none_or(|response| response.status != 429), "{request:?}");
        }
    }

    fn assert_humans_refused_only_by_quota(&self) {
        for line in self.lines.iter().filter(|line| line.class == "person" && line.is_refused()) {
            assert_eq!(line.reason.as_deref(), Some("quota"), "{line:?}");
            assert!(line.used["api"] + line.cost["api"] > self.limit as f64, "units were left: {line:?}");
        }
    }

    /// Asserts that of n consecutive requests the shed share times n are refused, plus or minus one. A request that
    /// exceeds the quota is refused regardless of the share, so sequences end there.
    fn assert_shed_shares(&self) {
        for (class, steps) in CLASS_TIERS {
            let of_class: Vec<&AccessLogLine> = self.costed_lines(class).collect();
            let same_tier = |a: &&AccessLogLine, b: &&AccessLogLine| {
                a.tier == b.tier && !a.is_refused_by("quota") && !b.is_refused_by("quota")
            };
            for run in of_class.chunk_by(same_tier).filter(|run| !run[0].is_refused_by("quota")) {
                let tier = run[0].tier.expect("costed request has a tier");
                let share = tier.checked_sub(1).map_or(0.0, |index| f64::from(steps[index].1) / 100.0);
                let shed: Vec<bool> = run.iter().map(|line| line.is_refused_by("tier")).collect();
                for length in SEQUENCE_LENGTHS.into_iter().chain([shed.len()]).filter(|length| *length <= shed.len()) {
                    for window in shed.windows(length) {
                        let refused = window.iter().filter(|shed| **shed).count() as f64;
                        let expected = length as f64 * share;
                        let tolerance = if share == 0.0 || share == 1.0 { 0.0 } else { 1.0 };
                        let exact = (refused - expected).abs() <= tolerance + 1e-9;
                        assert!(exact, "{class}, tier {tier}: {refused} of {length} refused, {expected} due");
                    }
                }
            }
        }
        let tiered = |line: &&AccessLogLine| CLASS_TIERS.iter().any(|(class, _)| *class == line.class);
        let unexpected = self.lines.iter().find(|line| line.is_refused_by("tier") && !tiered(line));
        assert!(unexpected.is_none(), "{unexpected:?}");
    }

    /// Asserts that a tier applies from its threshold on, until usage is 5 % of the limit below it.
    fn assert_tier_thresholds(&self) {
        let limit = self.limit as f64;
        for (class, steps) in CLASS_TIERS {
            for line in self.costed_lines(class) {
                let (taken, tier) = (line.taken_before("api"), line.tier.unwrap_or(0));
                let threshold = |step: &(u32, u32)| limit * f64::from(step.0) / 100.0;
                let min_tier = steps.iter().filter(|step| taken >= threshold(step)).count();
                let max_tier = steps.iter().filter(|step| taken >= threshold(step) - limit / 20.0).count();
                assert!((min_tier..=max_tier).contains(&tier), "{taken} of {limit} taken: {line:?}");
            }
        }
    }

    fn assert_counted_once(&self) {
        assert_eq!(self.lines.len(), self.requests.len(), "one log line per request");
        let logged: BTreeSet<usize> = self.lines.iter().map(|line| load::request_index(&line.host)).collect();
        assert_eq!(logged.len(), self.requests.len(), "each request has its own line");

        let mut expected: BTreeMap<String, f64> = BTreeMap::new();
        for AccessLogLine { class, verdict, reason, .. } in &self.lines {
            let reason = reason.as_deref().unwrap_or("");
            let sample = format!(r#"tidegate_requests_total{{class="{class}",verdict="{verdict}",reason="{reason}"}}"#);
            *expected.entry(sample).or_default() += 1.0;
        }
        assert_eq!(request_counters(&self.samples), expected);

        let forwarded: BTreeSet<&str> =
            self.lines.iter().filter(|line| self.is_forwarded(line)).map(|line| line.host.as_str()).collect();
        let received: BTreeSet<&str> = self.received.iter().map(|request| request.fields["host"].as_str()).collect();
        assert_eq!(received, forwarded, "exactly the admitted requests reach the origin");

        let charged: f64 =
            self.samples.iter().filter(|(name, _)| name.starts_with(CHARGED_METRIC)).map(|(_, units)| units).sum();
        assert_eq!(charged, self.used, "the charge metric agrees with the quota counter");
    }

    /// Returns true for an admitted request, unless the gateway serves it from its copy of robots.txt.
    fn is_forwarded(&self, line: &AccessLogLine) -> bool {
        !line.is_refused() && !self.reads_robots_txt(line)
    }

    fn reads_robots_txt(&self, line: &AccessLogLine) -> bool {
        let LoadRequest { method, target, .. } = &self.requests[load::request_index(&line.host)];
        matches!(method.as_str(), "GET" | "HEAD") && target.split('?').next() == Some("/robots.txt")
    }

    fn assert_origin_headers(&self) {
        let classes: BTreeMap<&str, &str> =
            self.lines.iter().map(|line| (line.host.as_str(), line.class.as_str())).collect();
        for received in &self.received {
            let request = &self.requests[load::request_index(&received.fields["host"])];
            assert_eq!(received.fields["x-tidegate-class"], classes[received.fields["host"].as_str()], "{request:?}");
            assert_eq!((&received.method, &received.target), (&request.method, &request.target));
            assert_eq!(received.fields.get("user-agent").map_or("", String::as_str), request.user_agent.trim());
            assert!(received.fields["x-forwarded-for"].starts_with(&request.client.to_string()), "{request:?}");
        }
    }

    fn assert_client_kinds(&self) {
        for line in &self.lines {
            let request = &self.requests[load::request_index(&line.host)];
            if let Some(kind) = request.kind {
                assert_eq!(line.kind, kind.name(), "{request:?}");
            }
        }
    }

    /// Asserts, for a stable origin, that every request gets a response and every admitted request reaches the origin
    /// once.
    fn assert_nothing_lost(&self) {
        assert_eq!(self.received.len(), self.lines.iter().filter(|line| self.is_forwarded(line)).count());
        assert_eq!(self.spent as f64, self.used, "the charged units are the units that the origin spent");
        for line in &self.lines {
            let response = self.responses[load::request_index(&line.host)].as_ref().expect("request has a response");
            match self.reads_robots_txt(line) {
                // Each host of the test is another site, and fetches for unknown sites are limited.
                true => assert!(matches!(response.status, 200 | 503), "{line:?}"),
                false => assert_eq!(response.status, if line.is_refused() { 429 } else { 200 }, "{line:?}"),
            }
            assert_eq!(response.status, line.status);
        }
    }

    /// Asserts that aborted requests, which may have cost the origin, are charged, and that retries are charged twice.
    fn assert_resets_charged(&self) {
        assert!(self.reset_count > 0 && self.spent as f64 <= self.used, "{} spent, {} charged", self.spent, self.used);
        let truncated = self.responses.iter().filter(|response| response.is_none()).count();
        assert!(
            truncated as u64 <= self.reset_count,
            "{truncated} responses truncated, {} by the origin",
            self.reset_count
        );
        let retries = self.received.len() - self.lines.iter().filter(|line| !line.is_refused()).count();
        println!(
            "{} requests, {} reset, {truncated} responses truncated, {retries} retried",
            self.requests.len(),
            self.reset_count
        );
    }

    /// Asserts that the quota was used up. Otherwise a day without load would pass the other checks.
    fn assert_quota_exhausted(&self) {
        assert!(self.used >= self.limit as f64 - 3.0, "at most 3 units are left, too few for a page that costs 4");
        assert!(self.costed_lines("person").any(AccessLogLine::is_refused), "human requests are refused, too");
    }

    fn assert_all_tiers_entered(&self) {
        for (class, steps) in CLASS_TIERS {
            let tiers: BTreeSet<usize> = self.costed_lines(class).filter_map(|line| line.tier).collect();
            assert!(tiers.contains(&steps.len()), "{class} was in {tiers:?}");
        }
    }

    /// Returns the log lines of costed requests, in the order of decision.
    fn costed_lines<'a>(&'a self, class: &'a str) -> impl Iterator<Item = &'a AccessLogLine> {
        self.lines.iter().filter(move |line| line.class == class && !line.seq.is_empty())
    }
}

/// Scale at which a day has a few thousand requests.
const SCALE: f64 = 0.08;

const CHARGED_METRIC: &str = "tidegate_quota_charged_total{";

fn synthetic_requests() -> Vec<LoadRequest> {
    day_trace::generate_day(7, SCALE)
}

/// Returns the real logs; none if the shared data is missing.
fn real_logs() -> Vec<Vec<LoadRequest>> {
    let Some(shared) = crate::support::shared_data() else { return Vec::new() };
    let files = std::fs::read_dir(shared.join("data/logs")).expect("log directory exists");
    let mut logs: Vec<_> = files.map(|file| file.expect("readable directory").path()).collect();
    logs.retain(|log| log.to_string_lossy().ends_with(".combined.log.gz"));
    logs.sort();
    assert!(!logs.is_empty(), "shared data contains no logs");
    let read = |log: &std::path::PathBuf| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(log).expect("log is readable");
        MultiGzDecoder::new(file).read_to_end(&mut bytes).expect("complete gzip file");
        combined_log::sendable_requests(&String::from_utf8_lossy(&bytes))
    };
    logs.iter().map(read).collect()
}

fn rules(limit: u64, site: MeteredSite) -> String {
    let step = |(above, shed): &(u32, u32)| format!("{{ above: {above}%, shed: {shed}% }}");
    let format_steps = |steps: &[(u32, u32)]| steps.iter().map(step).collect::<Vec<_>>().join(", ");
    let tiers: String =
        CLASS_TIERS.iter().map(|(class, steps)| format!("\n      {class}: [ {} ]", format_steps(steps))).collect();
    format!(
        "workers: 2\npaths: raw\n{LONG_TIMEOUTS}\nclasses:{CLASSES}\nroutes:{}\nquotas:\n  api:\n    limit: {limit}\n    window: {{ fixed: 24h }}\n    \
         cost_header: X-API-Cost\n    tiers:{tiers}\n",
        site.routes
    )
}

/// Returns the request counters that are not 0.
fn request_counters(samples: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let is_counted = |(name, count): &(&String, &f64)| name.starts_with("tidegate_requests_total{") && **count > 0.0;
    samples.iter().filter(is_counted).map(|(name, count)| (name.clone(), *count)).collect()
}
