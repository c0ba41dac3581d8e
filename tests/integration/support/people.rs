//! Human clients that load one page after another, and the duration of each page load.

use super::client::Client;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;

/// Number of concurrent human clients.
pub const HUMAN_CLIENTS: usize = 2;

/// A page load.
pub struct PageLoad {
    pub started_at: Timestamp,
    pub duration: Duration,
}

/// Loads pages of the site at `address`; each client continues while `should_continue` returns true for its page loads.
pub fn browse(
    address: SocketAddr,
    clock: &Clock,
    should_continue: impl Fn(&[PageLoad]) -> bool + Sync,
) -> Vec<PageLoad> {
    std::thread::scope(|threads| {
        let should_continue = &should_continue;
        let clients: Vec<_> = (0..HUMAN_CLIENTS)
            .map(|number| threads.spawn(move || load_pages(address, clock, number, should_continue)))
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("no human request is refused")).collect()
    })
}

fn load_pages(
    address: SocketAddr,
    clock: &Clock,
    number: usize,
    should_continue: impl Fn(&[PageLoad]) -> bool,
) -> Vec<PageLoad> {
    let mut client = Client::connect(address);
    let fields = format!(
        "X-Forwarded-For: 192.0.2.{number}\r\nAccept: text/html\r\nAccept-Language: en\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0\r\n"
    );
    let mut loads = Vec::new();
    while should_continue(&loads) {
        let started_at = clock.monotonic_now();
        let response = client.get("/", &fields);
        assert_eq!(response.status, 200, "{}", response.text());
        loads.push(PageLoad { started_at, duration: clock.monotonic_now().saturating_duration_since(started_at) });
    }
    loads
}

/// Returns the median and the 95th percentile of the durations.
pub fn median_and_p95(loads: Vec<PageLoad>) -> [Duration; 2] {
    let mut durations: Vec<Duration> = loads.into_iter().map(|load| load.duration).collect();
    durations.sort_unstable();
    [durations[durations.len() / 2], durations[durations.len() * 19 / 20]]
}
