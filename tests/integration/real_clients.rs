//! Real crawlers crawl a site while people read it. All pages are served, the origin's concurrency limit is kept, and
//! human requests have priority. `./test` installs the crawlers.
//!
//! `cargo test --test integration real_clients:: -- --nocapture` prints the latencies of the human requests.

use crate::support::constrained_origin::{ConstrainedOrigin, HANDS};
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
use tidegate::clock::Clock;
use tidegate::policy::Timestamp;

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
const ALL_AT_ONCE: [&str; 2] = ["CONCURRENT_REQUESTS=32", "CONCURRENT_REQUESTS_PER_DOMAIN=32"];

#[test]
fn unthrottled_spider_queues_and_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let site = CrawlScenario::with_pages(300);
    let log = site.crawl_through_gateway("Scrapy", |gate| crawlers.scrapy(gate, &ALL_AT_ONCE));
    assert_eq!(site.origin.max_concurrency(), HANDS, "the crawler uses all slots that human requests leave");
    assert_eq!(refusals(&log).count(), 0);
    assert_human_priority(&log);
}

#[test]
fn self_throttling_spider_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let site = CrawlScenario::with_pages(80);
    let throttle = ["AUTOTHROTTLE_ENABLED=True", "AUTOTHROTTLE_START_DELAY=0.5"];
    let log = site.crawl_through_gateway("Scrapy, AutoThrottle", |gate| crawlers.scrapy(gate, &throttle));
    assert_eq!(refusals(&log).count(), 0);
}

#[test]
fn client_honoring_retry_after_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let site = CrawlScenario::with_pages(60);
    let log = site.crawl_through_gateway("urllib3 Retry", |gate| crawlers.urllib3(gate, site.pages));
    assert_retry_after_honored(&log);
}

#[test]
fn client_with_four_concurrent_requests_fetches_every_page() {
    let crawlers = InstalledClients::locate();
    let site = CrawlScenario::with_pages(60);
    let log = site.crawl_through_gateway("got, four at a time", |gate| crawlers.got(gate, site.pages));
    assert_retry_after_honored(&log);
}

/// Shows why the spider has no bucket in [`RULES`].
#[test]
fn scrapy_drops_pages_after_three_immediate_refusals() {
    let crawlers = InstalledClients::locate();
    let site = CrawlScenario::with_pages(300);
    let rules = "classes: [ { name: spider, bucket: { capacity: 30, fill: 30, interval: 1h } } ]";
    let gate = site.start_gateway(rules);
    let told = crawlers.scrapy(gate.address(), &[]).output().expect("program runs");
    assert_eq!(fetched_paths(&told).len(), 30, "as many pages as the bucket had tokens");
    let mut asked: BTreeMap<String, u32> = BTreeMap::new();
    for line in refusals(&gate.read_log()) {
        *asked.entry(line["path"].to_string()).or_default() += 1;
    }
    assert!(!asked.is_empty() && asked.values().all(|&times| times == 3), "{asked:?}");
}

#[test]
fn unthrottled_spider_overloads_origin_without_gateway() {
    let crawlers = InstalledClients::locate();
    let site = CrawlScenario::with_pages(300);
    let address = site.origin.address();
    site.run_crawl("Scrapy, no gateway", address, crawlers.scrapy(address, &ALL_AT_ONCE));
    assert!(site.origin.max_concurrency() > HANDS);
}

/// A site that people read while it is crawled.
struct CrawlScenario {
    origin: ConstrainedOrigin,
    pages: usize,
    clock: Clock,
    _alone: MutexGuard<'static, ()>,
}

/// Serializes the scenarios, because latencies are measured.
static OPEN: Mutex<()> = Mutex::new(());

impl CrawlScenario {
    fn with_pages(pages: usize) -> Self {
        let _alone = OPEN.lock();
        let clock = Clock::system();
        Self { origin: ConstrainedOrigin::start_site(pages, &clock), pages, clock, _alone }
    }

    fn start_gateway(&self, rules: &str) -> TestGateway {
        TestGateway::with_clock(self.origin.address(), rules, self.clock.clone())
    }

    /// Like [`CrawlScenario::run_crawl`], through a gateway that must limit the load of the origin. Returns the
    /// gateway's log.
    fn crawl_through_gateway(&self, name: &str, crawler: impl FnOnce(SocketAddr) -> Command) -> Vec<Value> {
        let gate = self.start_gateway(RULES);
        self.run_crawl(name, gate.address(), crawler(gate.address()));
        assert!(self.origin.max_concurrency() <= HANDS);
        gate.read_log()
    }

    /// Measures human page loads at `address`, first alone, then beside the crawler. The crawler must get every page.
    fn run_crawl(&self, name: &str, address: SocketAddr, mut crawler: Command) {
        let alone = browse(address, &self.clock, |looks| looks.len() < 30);
        let is_over = AtomicBool::new(false);
        let (beside, told) = std::thread::scope(|threads| {
            let looks = threads.spawn(|| browse(address, &self.clock, |_| !is_over.load(Ordering::Relaxed)));
            let told = crawler.output();
            is_over.store(true, Ordering::Relaxed);
            (looks.join().expect("no human request is refused"), told)
        });
        let mut all: Vec<String> = (0..self.pages).map(|number| format!("/page/{number}")).collect();
        all.sort();
        let told = told.expect("program runs");
        assert_eq!(fetched_paths(&told), all, "{}", String::from_utf8_lossy(&told.stderr));
        let crawl = self.origin.crawl_period();
        let beside = beside.into_iter().filter(|look| crawl.contains(&look.began)).collect();
        print_latencies(name, alone, beside, self.origin.max_concurrency());
    }
}

/// Prints the median and the 95th percentile of human page load times.
fn print_latencies(crawler: &str, alone: Vec<PageLoad>, beside: Vec<PageLoad>, most_at_once: usize) {
    let milliseconds = |looks| people::median_and_p95(looks).map(|took| took.as_secs_f64() * 1000.0);
    let (looks, alone, beside) = (beside.len(), milliseconds(alone), milliseconds(beside));
    let [median, p95] = [0, 1].map(|which| {
        let (beside, alone) = (beside[which], alone[which]);
        format!("{beside:.1} ms, alone {alone:.1} (x {:.2})", beside / alone)
    });
    println!("{crawler:<20} {looks:>3} loads: median {median}, p95 {p95}; {most_at_once:>2} concurrent at most");
}

fn refusals(log: &[Value]) -> impl Iterator<Item = &Value> {
    log.iter().filter(|line| line["verdict"] == "refused")
}

/// Asserts that each refused page is requested again at the time of `Retry-After`, not before.
fn assert_retry_after_honored(log: &[Value]) {
    // Node.js timers have a resolution of one millisecond, rounded down.
    const EARLY: Duration = Duration::from_millis(2);
    assert!(refusals(log).count() > 0, "the crawler exceeds its bucket");
    for refused in refusals(log) {
        assert_eq!((&refused["status"], &refused["reason"]), (&429.into(), &"bucket".into()));
        let told = Duration::from_secs(refused["retry_after_s"].as_u64().expect("log line has retry_after_s"));
        let again = log
            .iter()
            .filter(|line| line["path"] == refused["path"])
            .map(arrival_time)
            .find(|&time| time > arrival_time(refused));
        let waited = again.expect("page is requested again").saturating_duration_since(arrival_time(refused));
        assert!(waited + EARLY >= told, "waited {waited:?} of {told:?}");
    }
}

/// Asserts that few bots are granted slots while a human request waits, independent of the queue length.
fn assert_human_priority(log: &[Value]) {
    // A grant is logged when the request is forwarded, shortly after it: allow one request per slot before and after.
    const FEW: usize = 2 * HANDS;
    let turns = log.iter().filter(|line| line["verdict"] == "admitted").map(SlotWait::from_log_line);
    let (people, bots): (Vec<SlotWait>, Vec<SlotWait>) = turns.partition(|turn| turn.is_of_a_person);
    let mut most_overtaken = 0;
    for person in people {
        let before = bots.iter().filter(|bot| (person.came..person.started).contains(&bot.started)).count();
        let overtaken = bots.iter().filter(|bot| bot.came < person.came && bot.started > person.started).count();
        assert!(before <= FEW, "{before} bots were granted before a human request that overtook {overtaken}");
        most_overtaken = most_overtaken.max(overtaken);
    }
    assert!(most_overtaken > FEW, "at most {most_overtaken} requests were queued");
}

/// Arrival time of a request at its scope, and the time its slot was granted.
struct SlotWait {
    is_of_a_person: bool,
    came: Timestamp,
    started: Timestamp,
}

impl SlotWait {
    fn from_log_line(line: &Value) -> Self {
        let wait = line["scope_wait_ms"].as_f64().expect("log line has scope_wait_ms") / 1000.0;
        let came = arrival_time(line);
        Self { is_of_a_person: line["class"] == "person", came, started: came + Duration::from_secs_f64(wait) }
    }
}

/// Returns the arrival time of a request.
fn arrival_time(line: &Value) -> Timestamp {
    let time: jiff::Timestamp = line["time"].as_str().expect("a time").parse().expect("RFC 3339");
    Timestamp(u64::try_from(time.as_nanosecond()).expect("time is after 1970"))
}
