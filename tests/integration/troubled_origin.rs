//! An origin in trouble. Its own log says what the gate does about it: when it is left alone, that one request tries for
//! all, and how it is taken up again.

use crate::support::TIMEOUT;
use crate::support::client::{Answer, Client};
use crate::support::gate::{Gate, NOON};
use crate::support::origin::{Origin, Tell, signal};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tidegate::clock::Clock;

/// What the origin does with a request.
#[derive(Clone, Copy)]
enum Does {
    Answers(&'static str, &'static str),
    Hangs,
    Resets,
}
use Does::{Answers, Hangs, Resets};

const WELL: Does = Answers("200", "");

/// An origin that does what it does by the second, its log, and the gate before it.
struct Site {
    gate: Gate,
    log: Arc<Mutex<Vec<(u64, &'static str)>>>,
    /// Told of each request that the origin has got, and of each that the gate refused.
    met: (Sender<Met>, Receiver<Met>),
    go_on: Tell,
}

/// How far a request has come.
enum Met {
    Origin { waits: bool },
    Refusal,
}

impl Site {
    fn new(rules: &str, does: impl Fn(u64) -> Does + Send + Sync + 'static) -> Self {
        let clock = Clock::manual(NOON);
        let log = Arc::new(Mutex::new(Vec::new()));
        let met = channel();
        let (go_on, told) = signal();
        let (of_origin, written, arrivals) = (clock.clone(), Arc::clone(&log), met.0.clone());
        let origin = Origin::scripted(move |_, wire| {
            let now = of_origin.now().saturating_duration_since(NOON);
            let does = does(now.as_secs());
            let what = match does {
                Answers(status, _) => status,
                Hangs => "hangs",
                Resets => "reset",
            };
            written.lock().push((now.as_secs(), what));
            let waits = !matches!(does, Hangs);
            let _ = arrivals.send(Met::Origin { waits });
            if waits {
                // Until all who ask with it have come as far as they come: so they meet.
                told.wait();
            }
            match does {
                Answers(status, fields) => wire.reply(status, fields, b""),
                Hangs => assert!(wire.sees_the_end()),
                Resets => wire.reset(),
            }
        });
        let rules = format!("workers: 1\nlimits: {{ first_byte_timeout: 1s }}\n{rules}");
        Self { gate: Gate::with_clock(origin.address(), &rules, clock), log, met, go_on }
    }

    fn now(&self) -> Duration {
        self.gate.clock.now().saturating_duration_since(NOON)
    }

    /// Goes to that second.
    fn at(&self, second: u64) -> &Self {
        let span = Duration::from_secs(second).saturating_sub(self.now());
        self.gate.clock.advance(span);
        self
    }

    /// The same, and the gate has looked at its timeouts since.
    fn pass_until(&self, second: u64) {
        self.gate.pass(Duration::from_secs(second).saturating_sub(self.now()));
    }

    /// So many ask at once, and are answered.
    fn asked_by(&self, count: usize) -> Vec<Answer> {
        self.asked_while(count, || ())
    }

    /// So many ask at once; once each is refused or with the origin, `meanwhile` happens.
    fn asked_while(&self, count: usize, meanwhile: impl FnOnce()) -> Vec<Answer> {
        let address = self.gate.address();
        let ask = move |met: Sender<Met>| {
            let answer = Client::connect(address).get("/", "");
            if answer.status == 503 {
                let _ = met.send(Met::Refusal);
            }
            answer
        };
        std::thread::scope(|threads| {
            let crowd: Vec<_> =
                (0..count).map(|_| self.met.0.clone()).map(|met| threads.spawn(move || ask(met))).collect();
            let mut waiting = 0;
            for _ in 0..count {
                match self.met.1.recv_timeout(TIMEOUT).expect("refused, or with the origin") {
                    Met::Origin { waits } => waiting += usize::from(waits),
                    Met::Refusal => {}
                }
            }
            (0..waiting).for_each(|_| self.go_on.tell());
            meanwhile();
            let answers = crowd.into_iter().map(|client| client.join().expect("it is answered")).collect();
            // Requests that were answered in the origin's place are told of twice.
            while self.met.1.try_recv().is_ok() {}
            answers
        })
    }

    /// The origin's log: the second, and how many requests of it were dealt with how.
    fn log(&self) -> Vec<(u64, String)> {
        let log = self.log.lock();
        log.chunk_by(|one, next| one == next)
            .map(|same| (same[0].0, format!("{} x {}", same.len(), same[0].1)))
            .collect()
    }

    fn logged(&self, expected: &[(u64, &str)]) {
        let log = self.log();
        let log: Vec<(u64, &str)> = log.iter().map(|(second, what)| (*second, what.as_str())).collect();
        assert_eq!(log, expected);
    }
}

/// Nobody waits in line, so that every request is told at once how it stands.
fn backoff(rules: &str) -> String {
    format!("scopes: {{ default: {{ backoff: {{ jitter: 0%, {rules} }}, queue: {{ max_wait: 0s }} }} }}")
}

#[test]
fn a_429_with_a_time_is_obeyed_to_the_second_then_one_tries_then_two_then_four() {
    let site = Site::new(&backoff("statuses: [429], window: 10s"), |second| match second {
        0 | 8 => Answers("429", "Retry-After: 5\r\n"),
        _ => WELL,
    });
    for second in 0..18 {
        for answer in site.at(second).asked_by(8) {
            match answer.status {
                200 => {}
                503 => assert_eq!(answer.json()["reason"], "backoff", "at {second}"),
                status => panic!("{status} at {second}: the origin's own word is never passed on"),
            }
        }
    }
    site.logged(&[
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
fn bursts_of_503_are_left_alone_for_longer_each_time_and_forgotten_window_by_window() {
    let site = Site::new(&backoff("window: 10s"), |second| match second {
        0..=6 | 27 | 49 => Answers("503", ""),
        _ => WELL,
    });
    for second in (0..10).chain(27..32).chain(49..51) {
        site.at(second).asked_by(4);
        if let Some((_, level)) = [(3, 3), (9, 3), (27, 2), (31, 2), (50, 1)].iter().find(|(known, _)| *known == second)
        {
            assert_eq!(site.gate.state()["scopes"][0]["level"], *level, "at {second}");
        }
    }
    assert_eq!(site.at(60).gate.state()["scopes"][0]["level"], 0);
    site.logged(&[
        (0, "4 x 503"),
        (1, "1 x 503"),
        (3, "1 x 503"),
        // It is well from the seventh second on: three complaints.
        (7, "1 x 200"),
        (8, "2 x 200"),
        (9, "4 x 200"),
        // Two quiet windows later one is left of them, so this is the second, and the rest that of the second.
        (27, "4 x 503"),
        (29, "1 x 200"),
        (30, "2 x 200"),
        (31, "4 x 200"),
        // After two more it is as if nothing had ever been.
        (49, "4 x 503"),
        (50, "1 x 200"),
    ]);
}

#[test]
fn rests_are_longer_by_chance_but_by_no_more_than_they_may_be() {
    let rules = "scopes: { default: { backoff: { jitter: 50%, max_delay: 10s }, queue: { max_wait: 0s } } }";
    let site = Site::new(rules, |_| Answers("503", ""));
    const STEP: Duration = Duration::from_millis(250);
    let mut tried = Vec::new();
    while tried.len() < 6 {
        let before = site.log.lock().len();
        site.asked_by(1);
        if site.log.lock().len() > before {
            tried.push(site.now());
        }
        site.gate.clock.advance(STEP);
    }
    for (pair, rest) in tried.windows(2).zip([1.0, 2.0, 4.0, 8.0, 10.0]) {
        let rested = (pair[1] - pair[0]).as_secs_f64();
        let longest = (rest * 1.5_f64).min(10.0) + STEP.as_secs_f64();
        assert!((rest..=longest).contains(&rested), "{rested} where {rest} is the least: {tried:?}");
    }
}

#[test]
fn an_origin_that_hangs_is_tried_by_one_at_a_time_until_it_answers() {
    let rules =
        format!("{}\norigin: {{ url: ORIGIN, response_timeout: 1750ms }}", backoff("min_delay: 2s, window: 10s"));
    let site = Site::new(&rules, |second| if second < 20 { Hangs } else { WELL });
    // A timeout comes with the next look at them, a quarter of a second late at most: two seconds after it was sent.
    let timed_out = |second: u64, clients: usize| {
        let answers = site.asked_while(clients, || site.pass_until(second + 2));
        answers.iter().filter(|answer| answer.status == 504).count()
    };
    assert_eq!(timed_out(0, 4), 4);
    site.asked_by(4);
    site.pass_until(4);
    assert_eq!(timed_out(4, 4), 1, "one finds out for all");
    site.asked_by(4);
    site.pass_until(10);
    assert_eq!(timed_out(10, 4), 1);
    site.asked_by(4);
    site.at(19).asked_by(4);
    for second in 20..23 {
        site.at(second).asked_by(4);
    }
    site.logged(&[
        (0, "4 x hangs"),
        (4, "1 x hangs"),
        (10, "1 x hangs"),
        (20, "1 x 200"),
        (21, "2 x 200"),
        (22, "4 x 200"),
    ]);
}

#[test]
fn an_origin_that_breaks_connections_off_is_left_alone_like_one_that_complains() {
    let site = Site::new(&backoff("window: 10s"), |second| if second < 7 { Resets } else { WELL });
    for second in 0..10 {
        let statuses: Vec<u16> = site.at(second).asked_by(4).iter().map(|answer| answer.status).collect();
        let broken = statuses.iter().filter(|&&status| status == 502).count();
        assert_eq!(broken, [4, 1, 0, 1, 0, 0, 0, 0, 0, 0][second as usize], "{statuses:?} at {second}");
    }
    site.logged(&[
        (0, "4 x reset"),
        (1, "1 x reset"),
        (3, "1 x reset"),
        (7, "1 x 200"),
        (8, "2 x 200"),
        (9, "4 x 200"),
    ]);
}

#[test]
fn errors_that_are_answered_fast_never_make_the_gate_press_harder() {
    let rules = "scopes: { default: {
        autothrottle: { target_concurrency: 1, start_delay: 8s, max_delay: 60s }, queue: { max_wait: 0s } } }";
    let site = Site::new(rules, |second| if second < 24 { Answers("500", "") } else { WELL });
    for second in 0..43 {
        site.at(second).asked_by(2);
    }
    site.logged(&[
        (0, "1 x 500"),
        (8, "1 x 500"),
        (16, "1 x 500"),
        // It falls half-way at each good answer, for the request after the next.
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
fn fast_errors_that_count_as_a_complaint_are_one() {
    let does = |second| if second < 3 { Answers("500", "") } else { WELL };
    let site = Site::new(&backoff("statuses: [500], window: 10s"), does);
    (0..5).for_each(|second| drop(site.at(second).asked_by(4)));
    site.logged(&[(0, "4 x 500"), (1, "1 x 500"), (3, "1 x 200"), (4, "2 x 200")]);

    let site = Site::new(&backoff("statuses: [503], window: 10s"), |_| Answers("500", ""));
    (0..2).for_each(|second| drop(site.at(second).asked_by(4)));
    site.logged(&[(0, "4 x 500"), (1, "4 x 500")]);
}

#[test]
fn what_the_origin_says_of_its_limits_is_the_least_it_is_left_alone_for() {
    let until = |does: Does| {
        let site = Site::new(&backoff("statuses: [429], max_delay: 12s"), move |_| does);
        (0..16).for_each(|second| drop(site.at(second).asked_by(1)));
        let log = site.log();
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
        assert_eq!(until(Answers("429", fields)), second, "{fields:?}");
    }
}

#[test]
fn who_got_the_last_of_a_limit_keeps_the_others_from_asking_in_vain() {
    let site = Site::new(&backoff("statuses: [429], max_delay: 60s"), |second| match second {
        0 => Answers("200", "RateLimit: \"a\";r=0;t=7\r\n"),
        _ => WELL,
    });
    for second in 0..9 {
        for answer in site.at(second).asked_by(4) {
            let is_asked = matches!(second, 0 | 7 | 8);
            assert_eq!(answer.status, if is_asked { 200 } else { 503 }, "at {second}");
        }
    }
    // Nobody complained, so nobody has to try first.
    site.logged(&[(0, "4 x 200"), (7, "4 x 200"), (8, "4 x 200")]);
}
