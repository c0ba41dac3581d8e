//! An origin with a site of linked pages and a low concurrency limit.

use super::origin::Origin;
use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;

/// Maximum number of pages served at once. Further requests wait in the origin.
pub const CONCURRENCY_LIMIT: usize = 4;

/// Service times of the pages, in rotation. Real time, because real clients use it. With equal service times, pages
/// would soon start and end in lockstep.
const SERVICE_TIMES_MS: [u64; 5] = [20, 10, 25, 15, 30];

pub struct ConstrainedOrigin {
    origin: Origin,
    queue: Arc<WorkQueue>,
}

#[derive(Default)]
struct WorkQueue {
    state: Mutex<WorkState>,
    finished: Condvar,
}

#[derive(Default)]
struct WorkState {
    inflight: usize,
    waiting: usize,
    max_concurrency: usize,
    started_count: usize,
    crawl_period: Option<RangeInclusive<Timestamp>>,
}

impl ConstrainedOrigin {
    /// Starts a site with the pages `/page/0` and so on. Each page links to four others, and all are reachable from
    /// `/page/0`. Any other path is a page without links.
    pub fn start_site(pages: usize, clock: &Clock) -> Self {
        let (queue, clock) = (Arc::new(WorkQueue::default()), clock.clone());
        let shared = Arc::clone(&queue);
        let origin = Origin::with_script(move |request, connection| {
            let number = request.target.strip_prefix("/page/").map(|number| number.parse().expect("page number"));
            let page = shared.process_request(|| number.map_or(String::new(), |number| page_html(number, pages)));
            if number.is_some() {
                shared.record_crawl(clock.monotonic_now());
            }
            connection.reply("200 OK", "Content-Type: text/html\r\n", page.as_bytes());
        });
        Self { origin, queue }
    }

    pub fn address(&self) -> SocketAddr {
        self.origin.address()
    }

    /// Returns the maximum number of concurrent requests, including those that waited in the origin.
    pub fn max_concurrency(&self) -> usize {
        self.queue.state.lock().max_concurrency
    }

    /// Returns the time range in which the numbered pages were fetched.
    pub fn crawl_period(&self) -> RangeInclusive<Timestamp> {
        self.queue.state.lock().crawl_period.clone().expect("site was crawled")
    }
}

impl WorkQueue {
    fn process_request(&self, page: impl FnOnce() -> String) -> String {
        let mut state = self.state.lock();
        state.waiting += 1;
        state.max_concurrency = state.max_concurrency.max(state.waiting + state.inflight);
        self.finished.wait_while(&mut state, |state| state.inflight == CONCURRENCY_LIMIT);
        state.waiting -= 1;
        state.inflight += 1;
        state.started_count += 1;
        let processing_time = Duration::from_millis(SERVICE_TIMES_MS[state.started_count % SERVICE_TIMES_MS.len()]);
        drop(state);
        std::thread::sleep(processing_time);
        self.state.lock().inflight -= 1;
        self.finished.notify_one();
        page()
    }

    fn record_crawl(&self, now: Timestamp) {
        let mut state = self.state.lock();
        let first = state.crawl_period.as_ref().map_or(now, |crawl| *crawl.start());
        state.crawl_period = Some(first..=now);
    }
}

fn page_html(number: usize, pages: usize) -> String {
    let links = (4 * number + 1..=4 * number + 4).filter(|&other| other < pages);
    links.map(|other| format!("<a href=\"/page/{other}\">{other}</a>\n")).collect()
}
