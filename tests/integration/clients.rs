//! Real crawlers crawl a site while people read it. All pages are served, the origin's concurrency limit is kept, and
//! human requests have priority. `./test` installs the crawlers.
//!
//! `cargo test --test integration clients:: -- --nocapture` prints the latencies of the human requests.

use crate::support::crawlers::{Crawlers, pages};
use crate::support::gate::Gate;
use crate::support::people::{self, Look, browse};
use crate::support::small_origin::{HANDS, SmallOrigin};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate::clock::Clock;
use tidegate::policy::Timestamp;

/// Rules that `docs/OPERATING.md` recommends: clients that honor `Retry-After` have a bucket, others are slowed down by
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
    let crawlers = Crawlers::installed();
    let site = Site::of(300);
    let log = site.is_crawled_through_a_gate("Scrapy", |gate| crawlers.scrapy(gate, &ALL_AT_ONCE));
    assert_eq!(site.origin.most_at_once(), HANDS, "the crawler uses all slots that human requests leave");
    assert_eq!(refusals(&log).count(), 0);
    people_go_first(&log);
}

#[test]
fn self_throttling_spider_fetches_every_page() {
    let crawlers = Crawlers::installed();
    let site = Site::of(80);
    let throttle = ["AUTOTHROTTLE_ENABLED=True", "AUTOTHROTTLE_START_DELAY=0.5"];
    let log = site.is_crawled_through_a_gate("Scrapy, AutoThrottle", |gate| crawlers.scrapy(gate, &throttle));
    assert_eq!(refusals(&log).count(), 0);
}

#[test]
fn client_honoring_retry_after_fetches_every_page() {
    let crawlers = Crawlers::installed();
    let site = Site::of(60);
    let log = site.is_crawled_through_a_gate("urllib3 Retry", |gate| crawlers.urllib3(gate, site.pages));
    waits_as_told(&log);
}

#[test]
fn client_with_four_concurrent_requests_fetches_every_page() {
    let crawlers = Crawlers::installed();
    let site = Site::of(60);
    let log = site.is_crawled_through_a_gate("got, four at a time", |gate| crawlers.got(gate, site.pages));
    waits_as_told(&log);
}

/// Shows why the spider has no bucket in [`RULES`].
#[test]
fn scrapy_drops_pages_after_three_immediate_refusals() {
    let crawlers = Crawlers::installed();
    let site = Site::of(300);
    let rules = "classes: [ { name: spider, bucket: { capacity: 30, fill: 30, interval: 1h } } ]";
    let gate = site.gate(rules);
    let told = crawlers.scrapy(gate.address(), &[]).output().expect("program runs");
    assert_eq!(pages(&told).len(), 30, "as many pages as the bucket had tokens");
    let mut asked: BTreeMap<String, u32> = BTreeMap::new();
    for line in refusals(&gate.into_log()) {
        *asked.entry(line["path"].to_string()).or_default() += 1;
    }
    assert!(!asked.is_empty() && asked.values().all(|&times| times == 3), "{asked:?}");
}

#[test]
fn unthrottled_spider_overloads_origin_without_gateway() {
    let crawlers = Crawlers::installed();
    let site = Site::of(300);
    let address = site.origin.address();
    site.is_crawled("Scrapy, no gateway", address, crawlers.scrapy(address, &ALL_AT_ONCE));
    assert!(site.origin.most_at_once() > HANDS);
}

/// A site that people read while it is crawled.
struct Site {
    origin: SmallOrigin,
    pages: usize,
    clock: Clock,
    _alone: MutexGuard<'static, ()>,
}

/// Serializes the scenarios, because latencies are measured.
static OPEN: Mutex<()> = Mutex::new(());

impl Site {
    fn of(pages: usize) -> Self {
        let _alone = OPEN.lock();
        let clock = Clock::system();
        Self { origin: SmallOrigin::open(pages, &clock), pages, clock, _alone }
    }

    fn gate(&self, rules: &str) -> Gate {
        Gate::with_clock(self.origin.address(), rules, self.clock.clone())
    }

    /// Like [`CrawlScenario::run_crawl`], through a gateway that must limit the load of the origin. Returns the
    /// gateway's log.
    fn is_crawled_through_a_gate(&self, name: &str, crawler: impl FnOnce(SocketAddr) -> Command) -> Vec<Value> {
        let gate = self.gate(RULES);
        self.is_crawled(name, gate.address(), crawler(gate.address()));
        assert!(self.origin.most_at_once() <= HANDS);
        gate.into_log()
    }

    /// Measures human page loads at `address`, first alone, then beside the crawler. The crawler must get every page.
    fn is_crawled(&self, name: &str, address: SocketAddr, mut crawler: Command) {
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
        assert_eq!(pages(&told), all, "{}", String::from_utf8_lossy(&told.stderr));
        let crawl = self.origin.crawl();
        let beside = beside.into_iter().filter(|look| crawl.contains(&look.began)).collect();
        tell(name, alone, beside, self.origin.most_at_once());
    }
}

/// Prints the median and the 95th percentile of human page load times.
fn tell(crawler: &str, alone: Vec<Look>, beside: Vec<Look>, most_at_once: usize) {
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
fn waits_as_told(log: &[Value]) {
    // Node.js timers have a resolution of one millisecond, rounded down.
    const EARLY: Duration = Duration::from_millis(2);
    assert!(refusals(log).count() > 0, "the crawler exceeds its bucket");
    for refused in refusals(log) {
        assert_eq!((&refused["status"], &refused["reason"]), (&429.into(), &"bucket".into()));
        let told = Duration::from_secs(refused["retry_after_s"].as_u64().expect("log line has retry_after_s"));
        let again =
            log.iter().filter(|line| line["path"] == refused["path"]).map(came).find(|&time| time > came(refused));
        let waited = again.expect("page is requested again").saturating_duration_since(came(refused));
        assert!(waited + EARLY >= told, "waited {waited:?} of {told:?}");
    }
}

/// Asserts that few bots are granted slots while a human request waits, independent of the queue length.
fn people_go_first(log: &[Value]) {
    // A grant is logged when the request is forwarded, shortly after it: allow one request per slot before and after.
    const FEW: usize = 2 * HANDS;
    let turns = log.iter().filter(|line| line["verdict"] == "admitted").map(Turn::read);
    let (people, bots): (Vec<Turn>, Vec<Turn>) = turns.partition(|turn| turn.is_of_a_person);
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
struct Turn {
    is_of_a_person: bool,
    came: Timestamp,
    started: Timestamp,
}

impl Turn {
    fn read(line: &Value) -> Self {
        let wait = line["scope_wait_ms"].as_f64().expect("log line has scope_wait_ms") / 1000.0;
        let came = came(line);
        Self { is_of_a_person: line["class"] == "person", came, started: came + Duration::from_secs_f64(wait) }
    }
}

/// Returns the arrival time of a request.
fn came(line: &Value) -> Timestamp {
    let time: jiff::Timestamp = line["time"].as_str().expect("a time").parse().expect("RFC 3339");
    Timestamp(u64::try_from(time.as_nanosecond()).expect("time is after 1970"))
}
