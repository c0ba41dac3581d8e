//! Real crawlers crawl a site while people read it. All pages are served, the origin's concurrency limit is kept, and
//! human requests have priority. `./test` installs the crawlers.
//!
//! `cargo test --test integration real_clients:: -- --nocapture` prints the latencies of the human requests.

use crate::support::constrained_origin::{CONCURRENCY_LIMIT, ConstrainedOrigin};
use crate::support::crawlers::{InstalledClients, fetched_paths};
use crate::support::gateway::TestGateway;
use crate::support::people::{self, PageLoad, browse};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;

/// Rules that `docs/ORIGIN_PROTECTION.md` recommends: clients that honor `Retry-After` have a bucket, others are slowed down by
/// the wait queue.
const RULES: &str = "
workers: 1
classes:
  - { name: spider, when: { user_agent: Scrapy }, priority: 1 }
  - { name: bot, when: { kind: [declared_bot, suspected_bot] }, priority: 1, bucket: { capacity: 20, fill: 20, interval: 2s } }
  - { name: person, when: { kind: human }, priority: 3 }
scopes: { default: { concurrency: 4, queue: { max_wait: 5m, max_length: 64 } } }";

/// Settings of a spider without rate limits.
const UNTHROTTLED: [&str; 2] = ["CONCURRENT_REQUESTS=32", "CONCURRENT_REQUESTS_PER_DOMAIN=32"];

#[test]
fn unthrottled_spider_queues_and_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let scenario = CrawlScenario::with_pages(300);
    let log = scenario.crawl_through_gateway("Scrapy", |address| crawlers.scrapy(address, &UNTHROTTLED));
    assert_eq!(
        scenario.origin.max_concurrency(),
        CONCURRENCY_LIMIT,
        "the crawler uses all slots that human requests leave"
    );
    assert_eq!(refusals(&log).count(), 0);
    assert_human_priority(&log);
}

#[test]
fn self_throttling_spider_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let scenario = CrawlScenario::with_pages(80);
    let throttle = ["AUTOTHROTTLE_ENABLED=True", "AUTOTHROTTLE_START_DELAY=0.5"];
    let log = scenario.crawl_through_gateway("Scrapy, AutoThrottle", |address| crawlers.scrapy(address, &throttle));
    assert_eq!(refusals(&log).count(), 0);
}

#[test]
fn client_honoring_retry_after_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let scenario = CrawlScenario::with_pages(60);
    let log = scenario.crawl_through_gateway("urllib3 Retry", |address| crawlers.urllib3(address, scenario.pages));
    assert_retry_after_honored(&log);
}

#[test]
fn client_with_four_concurrent_requests_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let scenario = CrawlScenario::with_pages(60);
    let log = scenario.crawl_through_gateway("got, four at a time", |address| crawlers.got(address, scenario.pages));
    assert_retry_after_honored(&log);
}

/// Shows why the spider has no bucket in [`RULES`].
#[test]
fn scrapy_drops_pages_after_three_immediate_refusals() {
    let crawlers = InstalledClients::locate();
    let scenario = CrawlScenario::with_pages(300);
    let rules = "classes: [ { name: spider, bucket: { capacity: 30, fill: 30, interval: 1h } } ]";
    let gateway = scenario.start_gateway(rules);
    let output = crawlers.scrapy(gateway.address(), &[]).output().expect("program runs");
    assert_eq!(fetched_paths(&output).len(), 30, "as many pages as the bucket had tokens");
    let mut request_counts: BTreeMap<String, u32> = BTreeMap::new();
    for line in refusals(&gateway.read_log()) {
        *request_counts.entry(line["path"].to_string()).or_default() += 1;
    }
    assert!(!request_counts.is_empty() && request_counts.values().all(|&times| times == 3), "{request_counts:?}");
}

#[test]
fn unthrottled_spider_overloads_origin_without_gateway() {
    let crawlers = InstalledClients::locate();
    let scenario = CrawlScenario::with_pages(300);
    let address = scenario.origin.address();
    scenario.run_crawl("Scrapy, no gateway", address, crawlers.scrapy(address, &UNTHROTTLED));
    assert!(scenario.origin.max_concurrency() > CONCURRENCY_LIMIT);
}

/// A site that people read while it is crawled.
struct CrawlScenario {
    origin: ConstrainedOrigin,
    pages: usize,
    clock: Clock,
    _lock: MutexGuard<'static, ()>,
}

/// Serializes the scenarios, because latencies are measured.
static SCENARIO_LOCK: Mutex<()> = Mutex::new(());

impl CrawlScenario {
    fn with_pages(pages: usize) -> Self {
        let _lock = SCENARIO_LOCK.lock();
        let clock = Clock::system();
        Self { origin: ConstrainedOrigin::start_site(pages, &clock), pages, clock, _lock }
    }

    fn start_gateway(&self, rules: &str) -> TestGateway {
        TestGateway::with_clock(self.origin.address(), rules, self.clock.clone())
    }

    /// Like [`CrawlScenario::run_crawl`], through a gateway that must limit the load of the origin. Returns the
    /// gateway's log.
    fn crawl_through_gateway(&self, name: &str, crawler: impl FnOnce(SocketAddr) -> Command) -> Vec<Value> {
        let gateway = self.start_gateway(RULES);
        self.run_crawl(name, gateway.address(), crawler(gateway.address()));
        assert!(self.origin.max_concurrency() <= CONCURRENCY_LIMIT);
        gateway.read_log()
    }

    /// Measures human page loads at `address`, first alone, then beside the crawler. The crawler must get every page.
    fn run_crawl(&self, name: &str, address: SocketAddr, mut crawler: Command) {
        let baseline = browse(address, &self.clock, |loads| loads.len() < 30);
        let is_done = AtomicBool::new(false);
        let (loaded, output) = std::thread::scope(|threads| {
            let loads_thread = threads.spawn(|| browse(address, &self.clock, |_| !is_done.load(Ordering::Relaxed)));
            let output = crawler.output();
            is_done.store(true, Ordering::Relaxed);
            (loads_thread.join().expect("no human request is refused"), output)
        });
        let mut expected: Vec<String> = (0..self.pages).map(|number| format!("/page/{number}")).collect();
        expected.sort();
        let output = output.expect("program runs");
        assert_eq!(fetched_paths(&output), expected, "{}", String::from_utf8_lossy(&output.stderr));
        let crawl = self.origin.crawl_period();
        let loaded = loaded.into_iter().filter(|load| crawl.contains(&load.started_at)).collect();
        print_latencies(name, baseline, loaded, self.origin.max_concurrency());
    }
}

/// Prints the median and the 95th percentile of human page load times.
fn print_latencies(crawler: &str, baseline: Vec<PageLoad>, loaded: Vec<PageLoad>, max_concurrency: usize) {
    let milliseconds = |loads| people::median_and_p95(loads).map(|duration| duration.as_secs_f64() * 1000.0);
    let (load_count, baseline, loaded) = (loaded.len(), milliseconds(baseline), milliseconds(loaded));
    let [median, p95] = [0, 1].map(|index| {
        let (loaded, baseline) = (loaded[index], baseline[index]);
        format!("{loaded:.1} ms, alone {baseline:.1} (x {:.2})", loaded / baseline)
    });
    println!(
        "{crawler:<20} {load_count:>3} loads: median {median}, p95 {p95}; {max_concurrency:>2} concurrent at most"
    );
}

fn refusals(log: &[Value]) -> impl Iterator<Item = &Value> {
    log.iter().filter(|line| line["verdict"] == "refused")
}

/// Asserts that each refused page is requested again at the time of `Retry-After`, not before.
fn assert_retry_after_honored(log: &[Value]) {
    // Node.js timers have a resolution of one millisecond, rounded down.
    const TIMER_TOLERANCE: Duration = Duration::from_millis(2);
    assert!(refusals(log).count() > 0, "the crawler exceeds its bucket");
    for refused in refusals(log) {
        assert_eq!((&refused["status"], &refused["reason"]), (&429.into(), &"bucket".into()));
        let retry_after = Duration::from_secs(refused["retry_after_s"].as_u64().expect("log line has retry_after_s"));
        let retry_time = log
            .iter()
            .filter(|line| line["path"] == refused["path"])
            .map(arrival_time)
            .find(|&time| time > arrival_time(refused));
        let waited = retry_time.expect("page is requested again").saturating_duration_since(arrival_time(refused));
        assert!(waited + TIMER_TOLERANCE >= retry_after, "waited {waited:?} of {retry_after:?}");
    }
}

/// Asserts that few bots are granted slots while a human request waits, independent of the queue length.
fn assert_human_priority(log: &[Value]) {
    // A grant is logged when the request is forwarded, shortly after it: allow one request per slot before and after.
    const MAX_EARLY_GRANTS: usize = 2 * CONCURRENCY_LIMIT;
    let waits = log.iter().filter(|line| line["verdict"] == "admitted").map(SlotWait::from_log_line);
    let (humans, bots): (Vec<SlotWait>, Vec<SlotWait>) = waits.partition(|wait| wait.is_human);
    let mut max_overtaken = 0;
    for human in humans {
        let before = bots.iter().filter(|bot| (human.arrived_at..human.granted_at).contains(&bot.granted_at)).count();
        let overtaken =
            bots.iter().filter(|bot| bot.arrived_at < human.arrived_at && bot.granted_at > human.granted_at).count();
        assert!(
            before <= MAX_EARLY_GRANTS,
            "{before} bots were granted before a human request that overtook {overtaken}"
        );
        max_overtaken = max_overtaken.max(overtaken);
    }
    assert!(max_overtaken > MAX_EARLY_GRANTS, "at most {max_overtaken} requests were queued");
}

/// Arrival time of a request at its scope, and the time its slot was granted.
struct SlotWait {
    is_human: bool,
    arrived_at: Timestamp,
    granted_at: Timestamp,
}

impl SlotWait {
    fn from_log_line(line: &Value) -> Self {
        let wait = line["scope_wait_ms"].as_f64().expect("log line has scope_wait_ms") / 1000.0;
        let arrival = arrival_time(line);
        Self {
            is_human: line["class"] == "person",
            arrived_at: arrival,
            granted_at: arrival + Duration::from_secs_f64(wait),
        }
    }
}

/// Returns the arrival time of a request.
fn arrival_time(line: &Value) -> Timestamp {
    let time: jiff::Timestamp = line["time"].as_str().expect("a time").parse().expect("RFC 3339");
    Timestamp(u64::try_from(time.as_nanosecond()).expect("time is after 1970"))
}
