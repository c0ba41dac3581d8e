//! Simulated weeks of requests, and their outcome under a pacing policy.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config as config;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::{Admission, CrawledPage, Decision, Engine, LearnedDemand, LeaseMode};
use tidegate_policy::address_lists::AddressLists;
use tidegate_policy::budget::Payer;
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::rng::Rng;
use tidegate_policy::{ClassId, OperatorId, RouteId, Rules, Timestamp};
use tidegate_replay::log::{LogFiles, MergedLog};
use tidegate_replay::{self as replay, Assumptions, Replay};

/// A request for a page that costs one unit.
#[derive(Clone, Copy)]
pub struct TraceRequest {
    /// Time, in seconds since 1970.
    pub at: u64,
    pub label: ClientLabel,
    /// Hash of the page, if relevant: the guard limits how long a page is refused to search engines.
    pub page: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ClientLabel {
    Person = 0,
    Search = 1,
    Bot = 2,
}

/// Pacing policy of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacingPolicy {
    TiersOnly,
    Even,
    Learned,
}

/// Treatment of bots other than search engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BotTreatment {
    /// Paced, with a share of the units that humans leave.
    Paced,
    /// Refused for all costed requests.
    Refused,
}

/// Metrics of a simulated week.
pub struct WeekMetrics {
    /// Number of refused human requests.
    pub human_refusals: u64,
    /// Number of refused human requests in windows in which human demand alone exceeded the limit.
    pub unavoidable_refusals: u64,
    pub max_overspend: u64,
    /// Maximum unused share of a window's limit, over complete windows from the second day on in which the demand of
    /// the allowed clients reached the limit.
    pub max_unused: Option<f64>,
    /// Admit ratio of search engines in the worst hour of the day, divided by that in the best hour, over all days from
    /// the second on.
    pub hour_evenness: Option<f64>,
    /// Like `hour_evenness`, over the hours of one day; median of all days.
    pub daily_hour_evenness: Option<f64>,
}

/// Metrics of one day.
pub struct DayMetrics {
    /// Number of refused human requests.
    pub human_refusals: u64,
    /// Unused share of the limit.
    pub unused: f64,
    /// Admit ratio of search engines in the worst hour of the day, divided by that in the best hour.
    pub evenness: f64,
}

/// Totals of one window.
#[derive(Clone, Copy, Default)]
struct WindowTotals {
    used: u64,
    human_demand: u64,
    demand: u64,
    human_refusals: u64,
}

/// Number of requests, and of admitted requests.
#[derive(Clone, Copy, Default)]
struct HourTotals {
    requests: u64,
    admitted: u64,
}

/// Traffic pattern of a day.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DayKind {
    Normal,
    /// Twelve times the human requests, for forty minutes.
    FlashCrowd,
    /// Few human requests.
    Holiday,
    /// Four times the requests of one search engine.
    Surge,
}

/// Generator of synthetic weeks: humans by day, more of them at weekends, some with long sessions; one search engine
/// with bursts and one with an even rate; other bots.
pub struct SyntheticWeek;

pub const DAY: u64 = 86_400;
const HOUR: u64 = 3600;
/// Start of the week: a Friday, 00:00 in Los Angeles.
const WEEK_START: u64 = 1_717_743_600;
const DAYS: u64 = 7;
/// Number of pages of the synthetic site.
const PAGES: u64 = 5000;

/// Rules in which every page of a log costs one unit, with a sufficient limit.
const LOG_RULES: &str = "
origin: { url: 'http://127.0.0.1:1' }
classes:
  - { name: search, when: { operator: [googlebot, bingbot, yandexbot, applebot, duckduckbot] } }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot, impostor] } }
  - { name: person, when: { kind: human } }
quotas: { api: { limit: 1000000000, window: { calendar: day, zone: UTC } } }
routes:
  - { match: '/robots.txt' }
  - { match: '/favicon.ico' }
  - { match: '/**/*.css' }
  - { match: '/**/*.js' }
  - { match: '/**/*.png' }
  - { match: '/**/*.jpg' }
  - { match: '/**/*.gif' }
  - { match: '/**', cost: { api: 1 } }
";

const HUMANS_BY_HOUR: [u32; 24] = [4, 2, 2, 1, 1, 2, 4, 7, 9, 9, 10, 11, 12, 11, 10, 10, 11, 12, 13, 14, 14, 12, 9, 6];
const BURSTS_BY_HOUR: [u32; 24] = [1, 5, 8, 1, 1, 2, 9, 4, 1, 1, 1, 7, 7, 2, 1, 3, 9, 2, 1, 1, 6, 8, 1, 2];
const UNIFORM_BY_HOUR: [u32; 24] = [1; 24];

impl PacingPolicy {
    /// All policies, in the order of the table.
    pub const ALL: [Self; 3] = [Self::TiersOnly, Self::Even, Self::Learned];

    const fn mode(self) -> &'static str {
        match self {
            Self::TiersOnly => "off",
            Self::Even => "even",
            Self::Learned => "learned",
        }
    }
}

impl SyntheticWeek {
    /// Generates a week of normal days, except those in `special_days`.
    pub fn generate(seed: u64, special_days: &[(u64, DayKind)]) -> Vec<TraceRequest> {
        Self::generate_days(seed, DAYS, special_days)
    }

    /// Generates `days` days.
    pub fn generate_days(seed: u64, days: u64, special_days: &[(u64, DayKind)]) -> Vec<TraceRequest> {
        let mut rng = TraceRng(Rng::new(seed));
        let mut requests = Vec::new();
        for day in 0..days {
            let kind = special_days
                .iter()
                .find(|(special_day, _)| *special_day == day)
                .map_or(DayKind::Normal, |(_, kind)| *kind);
            add_human_requests(&mut requests, (day, WEEK_START + days * DAY), kind, &mut rng);
            let factor = if kind == DayKind::Surge { 4 } else { 1 };
            for (count, shape, label) in [
                (9000, BURSTS_BY_HOUR, ClientLabel::Search),
                (2400 * factor, UNIFORM_BY_HOUR, ClientLabel::Search),
                (9000, UNIFORM_BY_HOUR, ClientLabel::Bot),
            ] {
                for _ in 0..count {
                    requests.push(TraceRequest {
                        at: rng.random_time(day, &shape),
                        label,
                        page: Some(rng.gen_below(PAGES)),
                    });
                }
            }
        }
        requests.sort_by_key(|request| request.at);
        requests
    }
}

fn add_human_requests(requests: &mut Vec<TraceRequest>, (day, end): (u64, u64), kind: DayKind, rng: &mut TraceRng) {
    let sessions = match (kind, day % 7) {
        (DayKind::Holiday, _) => 150,
        (_, 1 | 2) => 600,
        _ => 500,
    };
    let mut add_session = |start: u64, pages: u64, rng: &mut TraceRng| {
        let mut at = start;
        for _ in 0..pages {
            requests.push(TraceRequest { at: at.min(end - 1), label: ClientLabel::Person, page: None });
            at += 10 + rng.gen_below(60);
        }
    };
    for _ in 0..sessions {
        let (start, pages) = (rng.random_time(day, &HUMANS_BY_HOUR), 1 + rng.gen_below(5));
        add_session(start, pages, rng);
    }
    for _ in 0..2 {
        let (start, pages) = (rng.random_time(day, &HUMANS_BY_HOUR), 60 + rng.gen_below(60));
        add_session(start, pages, rng);
    }
    if kind == DayKind::FlashCrowd {
        for _ in 0..500 {
            let start = WEEK_START + day * DAY + 13 * HOUR + rng.gen_below(2400);
            add_session(start, 1, rng);
        }
    }
}

/// Runs the generator at this path and returns the costed requests of a week, classified by the generator's labels.
pub fn trace_from_labels(generator: &Path, seed: u64, scenarios: &str) -> Vec<TraceRequest> {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (log, labels) = (dir.path().join("log"), dir.path().join("labels"));
    let mut command = Command::new("python3");
    command.arg(generator).args(["--days", &DAYS.to_string(), "--seed", &seed.to_string(), "--scenario", scenarios]);
    command.arg("--out").arg(&log).arg("--labels").arg(&labels);
    assert!(command.output().expect("python3 is installed").status.success());
    let read = |path| std::fs::read_to_string(path).expect("generated file is UTF-8");
    let parse_line = |(line, label): (&str, &str)| {
        let fields: Vec<&str> = label.split('\t').collect();
        let client_label = match (fields[1], fields[2]) {
            ("human", _) => ClientLabel::Person,
            ("verified_bot", "googlebot" | "bingbot" | "applebot") => ClientLabel::Search,
            _ => ClientLabel::Bot,
        };
        let time = line.split(['[', ']']).nth(1).expect("line has a time");
        let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).ok()?.to_timestamp().ok()?;
        let page = Some(path_hash(line.split(' ').nth(6).unwrap_or_default()));
        (fields[3] == "1").then_some(TraceRequest { at: time.as_second().unsigned_abs(), label: client_label, page })
    };
    read(&log).lines().zip(read(&labels).lines()).filter_map(parse_line).collect()
}

/// Returns the page requests of the log at this path, classified by the gateway.
pub fn trace_from_log(log: &Path) -> Vec<TraceRequest> {
    let operators = OperatorTable::builtin();
    let names: Vec<&str> = operators.names().collect();
    let settings = config::load(Path::new("gate.yaml"), LOG_RULES, &[], &[], &names);
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
    let policy = replay::Policy::new("gate.yaml".into(), settings, operators, AddressLists::default());
    let files = LogFiles::open(&[log.to_owned()]).expect("readable log");
    let window = Duration::from_secs(60);
    let replay = Replay {
        files: vec![log.display().to_string()],
        lines: MergedLog::new(files.sources, window),
        reorder_window: window,
        assumptions: Assumptions::default(),
    };
    let mut verdicts = Vec::new();
    replay.run(policy, None, Some(&mut verdicts), &mut |_| ()).expect("log has requests");
    let parse_line = |line: &str| {
        let verdict: Value = serde_json::from_str(line).expect("JSON");
        let client_label = match verdict["class"].as_str()? {
            "person" => ClientLabel::Person,
            "search" => ClientLabel::Search,
            _ => ClientLabel::Bot,
        };
        let time: jiff::Timestamp = verdict["time"].as_str()?.parse().ok()?;
        let page = verdict["line"].as_u64();
        (verdict["cost"]["api"].as_f64()? > 0.0).then_some(TraceRequest {
            at: time.as_second().unsigned_abs(),
            label: client_label,
            page,
        })
    };
    std::str::from_utf8(&verdicts).expect("verdicts are UTF-8").lines().filter_map(parse_line).collect()
}

/// Simulates all requests under `policy`. Each day of `zone` has a quota, and `demand` is the demand divided by the
/// quota.
pub fn measure(
    requests: &[TraceRequest],
    zone: &str,
    (policy, bots): (PacingPolicy, BotTreatment),
    demand: f64,
) -> WeekMetrics {
    let last = requests[requests.len() - 1].at;
    let days = ((last - requests[0].at) as f64 / DAY as f64).max(1.0);
    let limit = (requests.len() as f64 / days / demand) as u64;
    let admission = {
        let rules = rules((policy, bots), &format!("calendar: day, zone: {zone}"), limit);
        Engine::new(LeaseMode::Local, 1000).admission(rules, Timestamp::from_seconds(requests[0].at))
    };
    let second_day = requests[0].at + DAY;
    let (mut hours, mut days) = (BTreeMap::<u64, HourTotals>::new(), BTreeMap::<u64, BTreeMap<u64, HourTotals>>::new());
    let mut windows = BTreeMap::<u64, WindowTotals>::new();
    for request in requests {
        let decision = decide(&admission, request, Timestamp::from_seconds(request.at));
        let is_admitted = decision.permit.map(|permit| permit.settle(|_, expected| expected)).is_some();
        let end = decision.quota_usage[0].resets_at.seconds();
        windows.entry(end).or_default().record_request(request.label, bots, is_admitted);
        if request.label == ClientLabel::Search && request.at >= second_day {
            hours.entry(request.at / HOUR % 24).or_default().record_request(is_admitted);
            days.entry(end).or_default().entry(request.at / HOUR).or_default().record_request(is_admitted);
        }
    }
    let full_windows = windows
        .iter()
        .filter(|(end, totals)| **end - DAY >= second_day && **end <= last + HOUR && totals.demand >= limit);
    let mut evenness_by_day: Vec<f64> = days.values().filter_map(evenness).collect();
    evenness_by_day.sort_by(f64::total_cmp);
    let refused = |totals: &WindowTotals| totals.human_refusals;
    WeekMetrics {
        human_refusals: windows.values().map(refused).sum(),
        unavoidable_refusals: windows.values().filter(|totals| totals.human_demand > limit).map(refused).sum(),
        max_overspend: windows.values().map(|totals| totals.used.saturating_sub(limit)).max().unwrap_or_default(),
        max_unused: full_windows.map(|(_, totals)| 1.0 - totals.used as f64 / limit as f64).max_by(f64::total_cmp),
        hour_evenness: evenness(&hours),
        daily_hour_evenness: evenness_by_day.get(evenness_by_day.len() / 2).copied(),
    }
}

/// Metrics of simulated days of a site with a cache.
#[derive(Debug)]
pub struct CachedDaysMetrics {
    /// Number of refused human requests.
    pub human_refusals: u64,
    /// Number of refused requests of bots.
    pub bot_refusals: u64,
    /// Maximum unused share of a day's limit, from the second day on.
    pub max_unused: f64,
    pub max_overspend: u64,
    /// Share of the requests of search engines that are answered with a fresh page.
    pub fresh_share: f64,
}

/// Simulates all requests under `policy` before a cache whose pages are fresh for `lifetime` seconds, with `limit` units a
/// day. A request of a bot for a fresh page costs nothing; one that is refused is answered with the stale page. With
/// `refreshes`, surplus units refresh the stale pages that were requested most.
pub fn measure_cached(
    requests: &[TraceRequest],
    zone: &str,
    policy: PacingPolicy,
    (limit, lifetime, refreshes): (u64, u64, bool),
) -> CachedDaysMetrics {
    let rules = rules((policy, BotTreatment::Paced), &format!("calendar: day, zone: {zone}"), limit);
    let first = requests[0].at;
    let admission = Engine::new(LeaseMode::Local, 1000).admission(rules, Timestamp::from_seconds(first));
    // Time of the last fetch and number of requests, by page.
    let mut pages = BTreeMap::<u64, (u64, u64)>::new();
    let mut windows = BTreeMap::<u64, u64>::new();
    let (mut human_refusals, mut bot_refusals, mut searches, mut fresh) = (0, 0, 0, 0);
    let mut refreshed_at = first;
    for request in requests {
        let now = Timestamp::from_seconds(request.at);
        if refreshes && request.at > refreshed_at {
            refreshed_at = request.at;
            refresh_pages(&admission, &mut pages, &mut windows, (request.at, lifetime));
        }
        let known = request.page.map(|page| pages.entry(page).or_default());
        let is_fresh = known.as_ref().is_some_and(|(fetched_at, _)| request.at < fetched_at + lifetime);
        let mut is_answered_fresh = is_fresh;
        if !is_fresh {
            let decision = decide(&admission, request, now);
            let end = decision.quota_usage[0].resets_at.seconds();
            is_answered_fresh = decision.permit.map(|permit| permit.settle(|_, expected| expected)).is_some();
            *windows.entry(end).or_default() += u64::from(is_answered_fresh);
            human_refusals += u64::from(!is_answered_fresh && request.label == ClientLabel::Person);
            bot_refusals += u64::from(!is_answered_fresh && request.label != ClientLabel::Person);
        }
        if let Some((fetched_at, count)) = known {
            *count += 1;
            if is_answered_fresh && !is_fresh {
                *fetched_at = request.at;
            }
        }
        if request.label == ClientLabel::Search && request.at >= first + DAY {
            searches += 1;
            fresh += u64::from(is_answered_fresh);
        }
    }
    let last = requests[requests.len() - 1].at;
    let complete = windows.iter().filter(|(end, _)| **end - DAY >= first + DAY && **end <= last + HOUR);
    let unused = complete.map(|(_, used)| 1.0 - *used as f64 / limit as f64).max_by(f64::total_cmp);
    CachedDaysMetrics {
        human_refusals,
        bot_refusals,
        max_unused: unused.expect("a complete day"),
        max_overspend: windows.values().map(|used| used.saturating_sub(limit)).max().unwrap_or_default(),
        fresh_share: fresh as f64 / searches as f64,
    }
}

/// Refreshes the stale pages that were requested most, while the plan has surplus units for them.
fn refresh_pages(
    admission: &Admission,
    pages: &mut BTreeMap<u64, (u64, u64)>,
    windows: &mut BTreeMap<u64, u64>,
    (at, lifetime): (u64, u64),
) {
    let now = Timestamp::from_seconds(at);
    if !admission.may_refresh(RouteId(0), now) {
        return;
    }
    let is_stale = |(fetched_at, _): &(u64, u64)| at >= fetched_at + lifetime;
    let mut stale: Vec<_> = pages.values_mut().filter(|page| is_stale(page)).collect();
    stale.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for page in stale {
        let (route, rules) = (RouteId(0), admission.rules());
        let class = ClassId(ClientLabel::Search as u16);
        let refresh = DecisionRequest {
            class,
            class_rules: &rules[class],
            route: &rules[route],
            has_learned_cost: false,
            exemption: None,
            switch: None,
            has_copy: false,
            is_refresh: true,
        };
        let decision = admission.admit_guarded(Payer::of(ClientKey::from_u64(9)), &refresh, route, None, now);
        let end = decision.quota_usage[0].resets_at.seconds();
        let Some(permit) = decision.permit else { return };
        permit.settle(|_, expected| expected);
        *windows.entry(end).or_default() += 1;
        page.0 = at;
    }
}

/// Simulates all requests under learned pacing with `limit` units a day, by a gateway that starts with `learned`. Measures
/// the requests from `start` on, which are those of one day.
pub fn measure_day(
    requests: &[TraceRequest],
    start: u64,
    zone: &str,
    limit: u64,
    learned: &[LearnedDemand],
) -> DayMetrics {
    let policy = (PacingPolicy::Learned, BotTreatment::Paced);
    let engine = Engine::new(LeaseMode::Local, 1000);
    let first = Timestamp::from_seconds(requests[0].at);
    let admission = engine.admission(rules(policy, &format!("calendar: day, zone: {zone}"), limit), first);
    engine.restore_demand(learned);
    let (mut hours, mut window) = (BTreeMap::<u64, HourTotals>::new(), WindowTotals::default());
    for request in requests {
        let decision = decide(&admission, request, Timestamp::from_seconds(request.at));
        let is_admitted = decision.permit.map(|permit| permit.settle(|_, expected| expected)).is_some();
        if request.at < start {
            continue;
        }
        window.record_request(request.label, BotTreatment::Paced, is_admitted);
        if request.label == ClientLabel::Search {
            hours.entry(request.at / HOUR).or_default().record_request(is_admitted);
        }
    }
    DayMetrics {
        human_refusals: window.human_refusals,
        unused: 1.0 - window.used as f64 / limit as f64,
        evenness: evenness(&hours).unwrap_or_default(),
    }
}

/// Returns the decision on a request at `now`.
pub fn decide(admission: &Admission, request: &TraceRequest, now: Timestamp) -> Decision {
    let class = ClassId(request.label as u16);
    let path = request.page.filter(|_| request.label == ClientLabel::Search).map(|page| page.to_string());
    let page = path.as_deref().map(|path| CrawledPage { operator: OperatorId(0), host: "", path, query: None });
    let (key, route, rules) = (ClientKey::from_u64(request.label as u64), RouteId(0), admission.rules());
    let decided = DecisionRequest {
        class,
        class_rules: &rules[class],
        route: &rules[route],
        has_learned_cost: false,
        exemption: None,
        switch: None,
        has_copy: false,
        is_refresh: false,
    };
    admission.admit_guarded(Payer::of(key), &decided, route, page, now)
}

fn path_hash(path: &str) -> u64 {
    path.bytes().fold(0, |number, byte| number.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Returns the lowest admit ratio in one of `hours` divided by the highest. Hours with few requests do not count.
fn evenness(hours: &BTreeMap<u64, HourTotals>) -> Option<f64> {
    let shares =
        hours.values().filter(|hour| hour.requests >= 20).map(|hour| hour.admitted as f64 / hour.requests as f64);
    let (lowest, highest) =
        shares.fold((1.0, 0.0), |(lowest, highest): (f64, f64), share| (lowest.min(share), highest.max(share)));
    (highest > 0.0).then_some(lowest / highest)
}

impl WindowTotals {
    fn record_request(&mut self, label: ClientLabel, bots: BotTreatment, is_admitted: bool) {
        let is_excluded = (label, bots) == (ClientLabel::Bot, BotTreatment::Refused);
        self.used += u64::from(is_admitted);
        self.human_demand += u64::from(label == ClientLabel::Person);
        self.demand += u64::from(!is_excluded);
        self.human_refusals += u64::from(label == ClientLabel::Person && !is_admitted);
    }
}

impl HourTotals {
    fn record_request(&mut self, is_admitted: bool) {
        self.requests += 1;
        self.admitted += u64::from(is_admitted);
    }
}

/// Returns rules with a quota of `limit` units in each `window`, under `policy`, for the three classes.
pub fn rules(policy: (PacingPolicy, BotTreatment), window: &str, limit: u64) -> Arc<Rules> {
    let settings = config::load(Path::new("gate.yaml"), &rules_text(policy, window, limit), &[], &[], &["googlebot"]);
    settings.unwrap_or_else(|errors| panic!("{errors}")).rules
}

/// Returns the YAML of [`rules`].
pub fn rules_text((policy, bots): (PacingPolicy, BotTreatment), window: &str, limit: u64) -> String {
    let tiers = "[{ above: 50%, shed: 50% }, { above: 75%, shed: 75% }, { above: 95%, shed: 100% }]";
    let bot_tiers = match bots {
        BotTreatment::Paced => tiers,
        BotTreatment::Refused => "[{ above: 0%, shed: 100% }]",
    };
    format!(
        "origin: {{ url: 'http://127.0.0.1:1' }}\n\
         classes: [{{ name: person, when: {{ kind: human }} }}, {{ name: search, when: {{ operator: googlebot }} }}, {{ name: bot }}]\n\
         quotas:\n  api:\n    limit: {limit}\n    window: {{ {window} }}\n    \
         pacing: {}\n    tiers: {{ search: {tiers}, bot: {bot_tiers} }}\n\
         routes: [{{ match: '/**', cost: {{ api: 1 }} }}]\n",
        policy.mode()
    )
}

/// Deterministic pseudo-random number generator.
struct TraceRng(Rng);

impl TraceRng {
    fn gen_below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// Returns a random time of `day`, weighted by hour.
    fn random_time(&mut self, day: u64, weights: &[u32; 24]) -> u64 {
        let mut left = self.gen_below(u64::from(weights.iter().sum::<u32>()) * HOUR);
        for (hour, weight) in (0..).zip(weights) {
            let span = u64::from(*weight) * HOUR;
            if left < span {
                return WEEK_START + day * DAY + hour * HOUR + left / u64::from(*weight);
            }
            left -= span;
        }
        WEEK_START + day * DAY
    }
}
