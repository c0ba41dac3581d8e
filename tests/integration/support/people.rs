//! People who look at one page after another, and how long each page took to come.

use super::client::Client;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate::clock::Clock;
use tidegate::policy::Timestamp;

/// How many look at the same time.
pub const PEOPLE: usize = 2;

/// One page that somebody looked at.
pub struct Look {
    pub began: Timestamp,
    pub took: Duration,
}

/// Lets people look at pages of the site at `address`, each for as long as `goes_on` says of what it has seen.
pub fn browse(address: SocketAddr, clock: &Clock, goes_on: impl Fn(&[Look]) -> bool + Sync) -> Vec<Look> {
    std::thread::scope(|threads| {
        let goes_on = &goes_on;
        let people: Vec<_> =
            (0..PEOPLE).map(|person| threads.spawn(move || look(address, clock, person, goes_on))).collect();
        people.into_iter().flat_map(|person| person.join().expect("nobody is refused")).collect()
    })
}

fn look(address: SocketAddr, clock: &Clock, person: usize, goes_on: impl Fn(&[Look]) -> bool) -> Vec<Look> {
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
        looks.push(Look { began, took: clock.monotonic_now().saturating_duration_since(began) });
    }
    looks
}

/// What half of the looks took at most, and what nineteen of twenty did.
pub fn median_and_p95(looks: Vec<Look>) -> [Duration; 2] {
    let mut took: Vec<Duration> = looks.into_iter().map(|look| look.took).collect();
    took.sort_unstable();
    [took[took.len() / 2], took[took.len() * 19 / 20]]
}
