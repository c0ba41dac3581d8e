use super::*;
use crate::policy::throttle::backoff::{Backoff, OVERLOAD_STATUSES};
use crate::policy::throttle::controller::Controller;
use crate::policy::throttle::simulation::{Origin, Phase, SecondStats, ServiceTime, Simulation, permissive_config};
use crate::policy::throttle::{Jitter, ThrottleConfig};

const MINUTE: Duration = Duration::from_secs(60);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn by_delay(target: RangeInclusive<u32>) -> Rampup {
    Rampup { target, window: MINUTE, variable: RampVariable::Delay { start: ms(200), min: ms(20), max: ms(2000) } }
}

fn by_concurrency(target: RangeInclusive<u32>) -> Rampup {
    Rampup { target, window: MINUTE, variable: RampVariable::Concurrency { start: 20, max: 24 } }
}

struct Story {
    rampup: Rampup,
    climb: RampState,
    now: Timestamp,
}

impl Story {
    fn of(rampup: Rampup) -> Self {
        let now = Timestamp::from_seconds(1000);
        Self { climb: RampState::new(&rampup, now), rampup, now }
    }

    /// A window with so many requests, with so many under way at each, and so many complaints.
    fn window(&mut self, sent: u32, under_way: u32, complaints: u32) -> RampValue {
        (0..sent).for_each(|_| self.climb.on_sent(&self.rampup, under_way, self.now));
        (0..complaints).for_each(|_| self.climb.on_overload(&self.rampup, self.now));
        self.now += MINUTE;
        self.climb.on_sent(&self.rampup, under_way, self.now);
        self.climb.current()
    }
}

#[test]
fn the_delay_follows_the_complaints_window_by_window() {
    let mut story = Story::of(by_delay(1..=2));
    for (sent, complaints, delay_us, why) in [
        (300, 0, 180_000, "fewer than wished: a tenth faster"),
        (300, 0, 162_000, "and again"),
        (100, 0, 162_000, "less than half of what is allowed was used: it stays"),
        (370, 1, 162_000, "as wished"),
        (370, 2, 162_000, "as wished"),
        (370, 3, 170_526, "more: half a tenth slower, as the direction turned"),
        (10, 9, 184_352, "again: half more than that, however little was sent"),
        (370, 0, 177_531, "fewer: it turns again, half of that"),
    ] {
        let RampValue::Delay(delay) = story.window(sent, 1, complaints) else { panic!("it is the delay") };
        assert_eq!(delay.as_micros(), delay_us, "{why}");
    }
    for _ in 0..100 {
        story.window(6000, 1, 0);
    }
    assert_eq!(story.climb.current(), RampValue::Delay(ms(20)), "no shorter than the shortest");
    for _ in 0..100 {
        story.window(6000, 1, 9);
    }
    assert_eq!(story.climb.current(), RampValue::Delay(ms(2000)), "no longer than the longest");
}

#[test]
fn concurrency_follows_the_complaints_window_by_window() {
    let mut story = Story::of(by_concurrency(1..=1));
    for (under_way, complaints, most, why) in [
        (20, 0, 22, "a tenth more"),
        (10, 0, 22, "not used by half"),
        (22, 1, 22, "as wished"),
        (22, 0, 24, "a tenth more"),
        (24, 0, 24, "no more than the most"),
        (24, 2, 23, "half a tenth less"),
    ] {
        assert_eq!(story.window(100, under_way, complaints), RampValue::Concurrency(most), "{why}");
    }
    for _ in 0..200 {
        story.window(100, 1, 9);
    }
    assert_eq!(story.climb.current(), RampValue::Concurrency(1));
}

#[test]
fn an_hour_in_which_nobody_asks_is_no_step() {
    let mut story = Story::of(by_delay(1..=1));
    story.now += MINUTE * 60;
    assert_eq!(story.window(0, 1, 0), RampValue::Delay(ms(200)));
}

/// Each second behind a ramp-up, before an origin that answers 429 beyond `rate` requests a second.
fn climbs(rampup: Rampup, rate: u32, seed: u64, hours: u64) -> Vec<SecondStats> {
    let backoff = Backoff {
        statuses: OVERLOAD_STATUSES.into(),
        factor: 2,
        min_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(300),
        jitter: Jitter::default(),
        window: MINUTE,
    };
    let rules =
        ThrottleConfig { backoff: Some(backoff), controller: Some(Controller::Rampup(rampup)), ..permissive_config() };
    let origin = Origin {
        servers: 200,
        pages: ServiceTime::Noisy(0.1),
        rate_limit: Some(rate),
        queue_timeout: Duration::from_secs(30),
    };
    Simulation::of(&rules, &[Phase { from_s: 0, origin, clients: 300 }], seed).run(hours * 3600)
}

#[test]
fn it_settles_at_the_target_and_holds() {
    for rate in [8, 20, 45] {
        let seconds = climbs(by_delay(1..=3), rate, 1, 2);
        let settled = &seconds[3600..];
        let answered = settled.iter().map(|second| f64::from(second.answered)).sum::<f64>() / 3600.0;
        assert!(answered >= 0.93 * f64::from(rate), "{answered} of {rate}");
        let minutes: Vec<u32> =
            settled.chunks(60).map(|minute| minute.iter().map(|second| second.overloaded).sum()).collect();
        let met = minutes.iter().filter(|count| (1..=3).contains(*count)).count();
        assert!(met >= 45, "{met} of 60 windows: {minutes:?}");
        let delays = settled.iter().map(|second| second.pace.delay);
        let (least, most) = (delays.clone().min().expect("some"), delays.max().expect("some"));
        assert!(most <= least.mul_f64(1.12), "{least:?} to {most:?}");
    }
}

#[test]
fn complaints_that_are_wished_do_not_make_rests_longer() {
    let seconds = climbs(by_delay(1..=1), 20, 1, 2);
    let answered: u32 = seconds[3600..].iter().map(|second| second.answered).sum();
    assert!(answered > 3600 * 18, "a rest a minute, of a second: {answered}");
}
