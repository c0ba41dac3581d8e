//! A failing origin. Its own log shows the gateway's reaction: backoff, a probe by a single request, and the ramp-up
//! afterwards.

use crate::support::TIMEOUT;
use crate::support::client::{Client, Response};
use crate::support::gateway::{NOON, TestGateway};
use crate::support::origin::{Origin, SignalSender, signal};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tidegate_engine::clock::Clock;

/// Action of the origin on a request.
#[derive(Clone, Copy)]
enum OriginAction {
    Respond(&'static str, &'static str),
    Hang,
    Reset,
}
use OriginAction::{Hang, Reset, Respond};

const SUCCESS: OriginAction = Respond("200", "");

/// An origin whose action changes with time, its log, and the gateway in front of it.
struct FailingSite {
    gateway: TestGateway,
    log: Arc<Mutex<Vec<(u64, &'static str)>>>,
    /// Channel of events: a request reached the origin, or the gateway refused a request.
    events: (Sender<RequestEvent>, Receiver<RequestEvent>),
    release: SignalSender,
}

/// Event of a request.
enum RequestEvent {
    ReachedOrigin { is_held: bool },
    Refused,
}

impl FailingSite {
    fn new(rules: &str, action_at: impl Fn(u64) -> OriginAction + Send + Sync + 'static) -> Self {
        let clock = Clock::manual(NOON);
        let log = Arc::new(Mutex::new(Vec::new()));
        let events = channel();
        let (release, release_receiver) = signal();
        let (origin_clock, origin_log, arrivals) = (clock.clone(), Arc::clone(&log), events.0.clone());
        let origin = Origin::with_script(move |_, connection| {
            let now = origin_clock.now().saturating_duration_since(NOON);
            let action = action_at(now.as_secs());
            let outcome = match action {
                Respond(status, _) => status,
                Hang => "hangs",
                Reset => "reset",
            };
            origin_log.lock().push((now.as_secs(), outcome));
            let is_held = !matches!(action, Hang);
            let _ = arrivals.send(RequestEvent::ReachedOrigin { is_held });
            if is_held {
                // Wait until all concurrent requests have reached the origin or were refused: so they are concurrent.
                release_receiver.wait();
            }
            match action {
                Respond(status, fields) => connection.reply(status, fields, b""),
                Hang => assert!(connection.expect_eof()),
                Reset => connection.reset(),
            }
        });
        let rules = format!("workers: 1\nlimits: {{ first_byte_timeout: 1s }}\n{rules}");
        Self { gateway: TestGateway::with_clock(origin.address(), &rules, clock), log, events, release }
    }

    fn elapsed_time(&self) -> Duration {
        self.gateway.clock.now().saturating_duration_since(NOON)
    }

    /// Advances the clock to `second`.
    fn advance_to(&self, second: u64) -> &Self {
        let span = Duration::from_secs(second).saturating_sub(self.elapsed_time());
        self.gateway.clock.advance(span);
        self
    }

    /// Like [`Self::advance_to`], and waits until the gateway has checked its timeouts.
    fn advance_and_sweep_to(&self, second: u64) {
        self.gateway.advance_and_sweep(Duration::from_secs(second).saturating_sub(self.elapsed_time()));
    }

    /// Sends `count` concurrent requests and returns the responses.
    fn request_concurrently(&self, count: usize) -> Vec<Response> {
        self.request_concurrently_while(count, || ())
    }

    /// Sends `count` concurrent requests. Calls `callback` once each is refused or has reached the origin.
    fn request_concurrently_while(&self, count: usize, callback: impl FnOnce()) -> Vec<Response> {
        let address = self.gateway.address();
        let send_request = move |events: Sender<RequestEvent>| {
            let response = Client::connect(address).get("/", "");
            if response.status == 503 {
                let _ = events.send(RequestEvent::Refused);
            }
            response
        };
        std::thread::scope(|threads| {
            let handles: Vec<_> = (0..count)
                .map(|_| self.events.0.clone())
                .map(|events| threads.spawn(move || send_request(events)))
                .collect();
            let mut held_count = 0;
            for _ in 0..count {
                match self.events.1.recv_timeout(TIMEOUT).expect("request is refused or at the origin") {
                    RequestEvent::ReachedOrigin { is_held } => held_count += usize::from(is_held),
                    RequestEvent::Refused => {}
                }
            }
            (0..held_count).for_each(|_| self.release.notify());
            callback();
            let responses = handles.into_iter().map(|handle| handle.join().expect("request gets a response")).collect();
            // Requests that failed at the origin caused two events: drop the second.
            while self.events.1.try_recv().is_ok() {}
            responses
        })
    }

    /// Returns the origin's log: the second, and the number of requests by outcome.
    fn summarized_log(&self) -> Vec<(u64, String)> {
        let log = self.log.lock();
        log.chunk_by(|a, b| a == b).map(|chunk| (chunk[0].0, format!("{} x {}", chunk.len(), chunk[0].1))).collect()
    }

    fn assert_log(&self, expected: &[(u64, &str)]) {
        let log = self.summarized_log();
        let log: Vec<(u64, &str)> = log.iter().map(|(second, outcome)| (*second, outcome.as_str())).collect();
        assert_eq!(log, expected);
    }
}

/// Returns rules without a queue, so that every request is decided immediately.
fn backoff_rules(rules: &str) -> String {
    format!(
        "scopes: {{ default: {{ backoff: {{ min_clients: 1, jitter: 0%, {rules} }}, queue: {{ max_wait: 0s }} }} }}"
    )
}

#[test]
fn retry_after_of_429_sets_backoff_then_probes() {
    let site = FailingSite::new(&backoff_rules("statuses: [429], window: 10s"), |second| match second {
        0 | 8 => Respond("429", "Retry-After: 5\r\n"),
        _ => SUCCESS,
    });
    for second in 0..18 {
        for response in site.advance_to(second).request_concurrently(8) {
            match response.status {
                200 => {}
                503 => assert_eq!(response.json()["reason"], "backoff", "at {second}"),
                status => panic!("{status} at {second}: overload responses must not be forwarded"),
            }
        }
    }
    site.assert_log(&[
        (0, "8 x 429"),
        (5, "1 x 200"),
        (6, "2 x 200"),
        (7, "4 x 200"),
        (8, "8 x 429"),
        (13, "1 x 200"),
        (14, "2 x 200"),
        (15, "4 x 200"),
        (16, "8 x 200"),
        (17, "8 x 200"),
    ]);
}

#[test]
fn backoff_level_rises_with_503_bursts_and_decays() {
    let site = FailingSite::new(&backoff_rules("window: 10s"), |second| match second {
        0..=6 | 27 | 49 => Respond("503", ""),
        _ => SUCCESS,
    });
    for second in (0..10).chain(27..32).chain(49..51) {
        site.advance_to(second).request_concurrently(4);
        if let Some((_, level)) = [(3, 3), (9, 3), (27, 2), (31, 2), (50, 1)].iter().find(|(time, _)| *time == second) {
            assert_eq!(site.gateway.state()["scopes"][0]["backoff_level"], *level, "at {second}");
        }
    }
    assert_eq!(site.advance_to(60).gateway.state()["scopes"][0]["backoff_level"], 0);
    site.assert_log(&[
        (0, "4 x 503"),
        (1, "1 x 503"),
        (3, "1 x 503"),
        // The origin is healthy from the seventh second on: three overloads.
        (7, "1 x 200"),
        (8, "2 x 200"),
        (9, "4 x 200"),
        // Two quiet windows later one level is left. So this is the second overload, with the backoff of level two.
        (27, "4 x 503"),
        (29, "1 x 200"),
        (30, "2 x 200"),
        (31, "4 x 200"),
        // After two more quiet windows the level is zero.
        (49, "4 x 503"),
        (50, "1 x 200"),
    ]);
}

#[test]
fn backoff_jitter_stays_within_bounds() {
    let rules = "scopes: { default: { backoff: { jitter: 50%, max_delay: 10s }, queue: { max_wait: 0s } } }";
    let site = FailingSite::new(rules, |_| Respond("503", ""));
    const STEP: Duration = Duration::from_millis(250);
    let mut attempts = Vec::new();
    while attempts.len() < 6 {
        let before = site.log.lock().len();
        site.request_concurrently(1);
        if site.log.lock().len() > before {
            attempts.push(site.elapsed_time());
        }
        site.gateway.clock.advance(STEP);
    }
    for (pair, delay) in attempts.windows(2).zip([1.0, 2.0, 4.0, 8.0, 10.0]) {
        let measured = (pair[1] - pair[0]).as_secs_f64();
        let max_delay = (delay * 1.5_f64).min(10.0) + STEP.as_secs_f64();
        assert!((delay..=max_delay).contains(&measured), "backoff {measured}, minimum {delay}: {attempts:?}");
    }
}

#[test]
fn hanging_origin_is_probed_one_at_a_time() {
    let rules =
        format!("{}\norigin: {{ url: ORIGIN, response_timeout: 1750ms }}", backoff_rules("min_delay: 2s, window: 10s"));
    let site = FailingSite::new(&rules, |second| if second < 20 { Hang } else { SUCCESS });
    // A timeout is detected at the next sweep, at most a quarter of a second late: two seconds after the request was
    // sent.
    let timed_out = |second: u64, clients: usize| {
        let responses = site.request_concurrently_while(clients, || site.advance_and_sweep_to(second + 2));
        responses.iter().filter(|response| response.status == 504).count()
    };
    assert_eq!(timed_out(0, 4), 4);
    site.request_concurrently(4);
    site.advance_and_sweep_to(4);
    assert_eq!(timed_out(4, 4), 1, "only one probe times out");
    site.request_concurrently(4);
    site.advance_and_sweep_to(10);
    assert_eq!(timed_out(10, 4), 1);
    site.request_concurrently(4);
    site.advance_to(19).request_concurrently(4);
    for second in 20..23 {
        site.advance_to(second).request_concurrently(4);
    }
    site.assert_log(&[
        (0, "4 x hangs"),
        (4, "1 x hangs"),
        (10, "1 x hangs"),
        (20, "1 x 200"),
        (21, "2 x 200"),
        (22, "4 x 200"),
    ]);
}

#[test]
fn origin_resets_count_as_overload() {
    let site = FailingSite::new(&backoff_rules("window: 10s"), |second| if second < 7 { Reset } else { SUCCESS });
    for second in 0..10 {
        let statuses: Vec<u16> =
            site.advance_to(second).request_concurrently(4).iter().map(|response| response.status).collect();
        let reset_count = statuses.iter().filter(|&&status| status == 502).count();
        assert_eq!(reset_count, [4, 1, 0, 1, 0, 0, 0, 0, 0, 0][second as usize], "{statuses:?} at {second}");
    }
    site.assert_log(&[
        (0, "4 x reset"),
        (1, "1 x reset"),
        (3, "1 x reset"),
        (7, "1 x 200"),
        (8, "2 x 200"),
        (9, "4 x 200"),
    ]);
}

#[test]
fn fast_errors_do_not_shorten_autothrottle_delay() {
    let rules = "scopes: { default: {
        autothrottle: { target_concurrency: 1, start_delay: 8s, max_delay: 60s }, queue: { max_wait: 0s } } }";
    let site = FailingSite::new(rules, |second| if second < 24 { Respond("500", "") } else { SUCCESS });
    for second in 0..43 {
        site.advance_to(second).request_concurrently(2);
    }
    site.assert_log(&[
        (0, "1 x 500"),
        (8, "1 x 500"),
        (16, "1 x 500"),
        // Each good response halves the delay, effective for the request after the next.
        (24, "1 x 200"),
        (32, "1 x 200"),
        (36, "1 x 200"),
        (38, "1 x 200"),
        (39, "1 x 200"),
        (40, "1 x 200"),
        (41, "1 x 200"),
        (42, "1 x 200"),
    ]);
}

#[test]
fn configured_error_statuses_count_as_overload() {
    let action = |second| if second < 3 { Respond("500", "") } else { SUCCESS };
    let site = FailingSite::new(&backoff_rules("statuses: [500], window: 10s"), action);
    (0..5).for_each(|second| drop(site.advance_to(second).request_concurrently(4)));
    site.assert_log(&[(0, "4 x 500"), (1, "1 x 500"), (3, "1 x 200"), (4, "2 x 200")]);

    let site = FailingSite::new(&backoff_rules("statuses: [503], window: 10s"), |_| Respond("500", ""));
    (0..2).for_each(|second| drop(site.advance_to(second).request_concurrently(4)));
    site.assert_log(&[(0, "4 x 500"), (1, "4 x 500")]);
}

#[test]
fn reported_limits_set_the_minimum_backoff() {
    let until = |action: OriginAction| {
        let site = FailingSite::new(&backoff_rules("statuses: [429], max_delay: 12s"), move |_| action);
        (0..16).for_each(|second| drop(site.advance_to(second).request_concurrently(1)));
        let log = site.summarized_log();
        log[1].0
    };
    for (fields, second) in [
        ("", 1),
        ("Retry-After: 5\r\n", 5),
        ("Retry-After: Fri, 15 Jan 2027 12:00:05 GMT\r\n", 5),
        ("Date: Fri, 15 Jan 2027 09:00:00 GMT\r\nRetry-After: Fri, 15 Jan 2027 09:00:05 GMT\r\n", 5),
        ("RateLimit: \"a\";r=0;t=6, \"b\";r=40;t=9\r\n", 6),
        ("RateLimit-Remaining: 0\r\nRateLimit-Reset: 7\r\n", 7),
        ("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1800014408\r\n", 8),
        ("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 9\r\n", 9),
        ("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 2027-01-15T12:00:10Z\r\n", 10),
        ("Retry-After: 3600\r\n", 12),
        ("Retry-After: 99999999999999999999\r\n", 12),
    ] {
        assert_eq!(until(Respond("429", fields)), second, "{fields:?}");
    }
}

#[test]
fn zero_remaining_response_starts_backoff() {
    let site = FailingSite::new(&backoff_rules("statuses: [429], max_delay: 60s"), |second| match second {
        0 => Respond("200", "RateLimit: \"a\";r=0;t=7\r\n"),
        _ => SUCCESS,
    });
    for second in 0..9 {
        for response in site.advance_to(second).request_concurrently(4) {
            let is_forwarded = matches!(second, 0 | 7 | 8);
            assert_eq!(response.status, if is_forwarded { 200 } else { 503 }, "at {second}");
        }
    }
    // Without an overload, no probe is needed.
    site.assert_log(&[(0, "4 x 200"), (7, "4 x 200"), (8, "4 x 200")]);
}
