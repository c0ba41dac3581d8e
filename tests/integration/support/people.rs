//! Human clients that load one page after another, and the duration of each page load.

use super::client::Client;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate::clock::Clock;
use tidegate::policy::Timestamp;

/// Number of concurrent human clients.
pub const PEOPLE: usize = 2;

/// A page load.
pub struct PageLoad {
    pub began: Timestamp,
    pub took: Duration,
}

/// Loads pages of the site at `address`; each client continues while `goes_on` returns true for its page loads.
pub fn browse(address: SocketAddr, clock: &Clock, goes_on: impl Fn(&[PageLoad]) -> bool + Sync) -> Vec<PageLoad> {
    std::thread::scope(|threads| {
        let goes_on = &goes_on;
        let people: Vec<_> =
            (0..PEOPLE).map(|person| threads.spawn(move || load_pages(address, clock, person, goes_on))).collect();
        people.into_iter().flat_map(|person| person.join().expect("no human request is refused")).collect()
    })
}

fn load_pages(
    address: SocketAddr,
    clock: &Clock,
    person: usize,
    goes_on: impl Fn(&[PageLoad]) -> bool,
) -> Vec<PageLoad> {
    let mut client = Client::connect(address);
    let fields = format!(
        "X-Forwarded-For: 192.0.2.{person}\r\nAccept: text/html\r\nAccept-Language: en\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0\r\n"
    );
    let mut looks = Vec::new();
    while goes_on(&looks) {
        let began = clock.monotonic_now();
        let answer = client.get("/", &fields);
        assert_eq!(answer.status, 200, "{}", answer.text());
        looks.push(PageLoad { began, took: clock.monotonic_now().saturating_duration_since(began) });
    }
    looks
}

/// Returns the median and the 95th percentile of the durations.
pub fn median_and_p95(looks: Vec<PageLoad>) -> [Duration; 2] {
    let mut took: Vec<Duration> = looks.into_iter().map(|look| look.took).collect();
    took.sort_unstable();
    [took[took.len() / 2], took[took.len() * 19 / 20]]
}
