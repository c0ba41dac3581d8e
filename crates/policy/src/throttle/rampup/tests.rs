use super::*;
use crate::throttle::backoff::{Backoff, OVERLOAD_STATUSES};
use crate::throttle::controller::Controller;
use crate::throttle::simulation::{Phase, SecondStats, ServiceTime, SimulatedOrigin, Simulation, permissive_config};
use crate::throttle::{Jitter, ThrottleConfig};
use std::num::NonZeroU32;

const MINUTE: Duration = Duration::from_secs(60);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn delay_rampup(target: RangeInclusive<u32>) -> Rampup {
    Rampup { target, window: MINUTE, variable: RampVariable::Delay { start: ms(200), min: ms(20), max: ms(2000) } }
}

fn concurrency_rampup(target: RangeInclusive<u32>) -> Rampup {
    Rampup { target, window: MINUTE, variable: RampVariable::Concurrency { start: 20, max: 24 } }
}

struct RampScenario {
    rampup: Rampup,
    state: RampState,
    now: Timestamp,
}

impl RampScenario {
    fn with_rampup(rampup: Rampup) -> Self {
        let now = Timestamp::from_seconds(1000);
        Self { state: RampState::new(&rampup, now), rampup, now }
    }

    /// Simulates a window with this many requests, requests in flight at each, and overload responses.
    fn window(&mut self, sent: u32, in_flight: u32, overloads: u32) -> RampValue {
        (0..sent).for_each(|_| self.state.on_sent(&self.rampup, in_flight, self.now));
        (0..overloads).for_each(|_| self.state.on_overload(&self.rampup, self.now));
        self.now += MINUTE;
        self.state.on_sent(&self.rampup, in_flight, self.now);
        self.state.current()
    }
}

#[test]
fn delay_follows_overloads_window_by_window() {
    let mut scenario = RampScenario::with_rampup(delay_rampup(1..=2));
    for (sent, overloads, delay_us, reason) in [
        (300, 0, 180_000, "below target: a tenth faster"),
        (300, 0, 162_000, "a tenth faster again"),
        (100, 0, 162_000, "less than half used: unchanged"),
        (370, 1, 162_000, "on target"),
        (370, 2, 162_000, "on target"),
        (370, 3, 170_526, "above target: half the step, as the direction changed"),
        (10, 9, 184_352, "above again: 1.5 times the step, despite few requests"),
        (370, 0, 177_531, "below target: half the step, as the direction changed"),
    ] {
        let RampValue::Delay(delay) = scenario.window(sent, 1, overloads) else { panic!("not a delay") };
        assert_eq!(delay.as_micros(), delay_us, "{reason}");
    }
    for _ in 0..100 {
        scenario.window(6000, 1, 0);
    }
    assert_eq!(scenario.state.current(), RampValue::Delay(ms(20)), "down to the minimum");
    for _ in 0..100 {
        scenario.window(6000, 1, 9);
    }
    assert_eq!(scenario.state.current(), RampValue::Delay(ms(2000)), "up to the maximum");
}

#[test]
fn concurrency_follows_overloads_window_by_window() {
    let mut scenario = RampScenario::with_rampup(concurrency_rampup(1..=1));
    for (in_flight, overloads, limit, reason) in [
        (20, 0, 22, "a tenth more"),
        (10, 0, 22, "less than half used"),
        (22, 1, 22, "on target"),
        (22, 0, 24, "a tenth more"),
        (24, 0, 24, "up to the maximum"),
        (24, 2, 23, "half a tenth fewer"),
    ] {
        assert_eq!(scenario.window(100, in_flight, overloads), RampValue::Concurrency(limit), "{reason}");
    }
    for _ in 0..200 {
        scenario.window(100, 1, 9);
    }
    assert_eq!(scenario.state.current(), RampValue::Concurrency(1));
}

#[test]
fn idle_hour_is_not_a_step() {
    let mut scenario = RampScenario::with_rampup(delay_rampup(1..=1));
    scenario.now += MINUTE * 60;
    assert_eq!(scenario.window(0, 1, 0), RampValue::Delay(ms(200)));
}

#[test]
fn idle_window_is_no_step_and_half_a_limit_is_used() {
    let mut scenario = RampScenario::with_rampup(concurrency_rampup(1..=1));
    scenario.now += MINUTE;
    scenario.state.on_overload(&scenario.rampup, scenario.now);
    assert_eq!(scenario.state.current(), RampValue::Concurrency(20), "no request was sent");
    assert_eq!(scenario.window(100, 10, 0), RampValue::Concurrency(20), "on target");
    assert_eq!(scenario.window(100, 9, 0), RampValue::Concurrency(20));
    let mut scenario = RampScenario::with_rampup(concurrency_rampup(1..=1));
    assert_eq!(scenario.window(100, 10, 0), RampValue::Concurrency(22), "half of 20 slots");
}

#[test]
fn overload_within_the_target_is_tolerated() {
    let mut scenario = RampScenario::with_rampup(delay_rampup(1..=2));
    let tolerated = [1, 2, 3].map(|_| {
        scenario.state.on_overload(&scenario.rampup, scenario.now);
        scenario.state.within_target(&scenario.rampup)
    });
    assert_eq!(tolerated, [true, true, false]);
    scenario.state.on_overload(&scenario.rampup, scenario.now + MINUTE);
    assert!(scenario.state.within_target(&scenario.rampup), "a new window");
}

#[test]
fn changed_settings_keep_the_value_within_their_bounds() {
    let mut scenario = RampScenario::with_rampup(delay_rampup(1..=2));
    let bounds = |min, max| RampVariable::Delay { start: ms(1), min: ms(min), max: ms(max) };
    for (variable, value) in [
        (bounds(100, 300), RampValue::Delay(ms(200))),
        (bounds(100, 150), RampValue::Delay(ms(150))),
        (bounds(170, 300), RampValue::Delay(ms(170))),
        (RampVariable::Concurrency { start: 7, max: 9 }, RampValue::Concurrency(7)),
    ] {
        scenario.state.update_config(&Rampup { variable, ..delay_rampup(1..=2) }, scenario.now);
        assert_eq!(scenario.state.current(), value);
    }
}

/// Simulates a ramp-up before an origin that returns 429 beyond `rate` requests per second; returns the statistics of
/// each second.
fn simulate(rampup: Rampup, rate: u32, seed: u64, hours: u64) -> Vec<SecondStats> {
    let backoff = Backoff {
        statuses: OVERLOAD_STATUSES.into(),
        factor: 2,
        min_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(300),
        jitter: Jitter::default(),
        window: MINUTE,
        min_clients: NonZeroU32::MIN,
    };
    let config =
        ThrottleConfig { backoff: Some(backoff), controller: Some(Controller::Rampup(rampup)), ..permissive_config() };
    let origin = SimulatedOrigin {
        servers: 200,
        service_time: ServiceTime::Uniform(0.1),
        rate_limit: Some(rate),
        queue_timeout: Duration::from_secs(30),
    };
    Simulation::new(&config, &[Phase { from_s: 0, origin, clients: 300 }], seed).run(hours * 3600)
}

#[test]
fn delay_settles_at_the_overload_target() {
    for rate in [8, 20, 45] {
        let seconds = simulate(delay_rampup(1..=3), rate, 1, 2);
        let settled = &seconds[3600..];
        let answered = settled.iter().map(|second| f64::from(second.response_count)).sum::<f64>() / 3600.0;
        assert!(answered >= 0.93 * f64::from(rate), "{answered} of {rate}");
        let minutes: Vec<u32> =
            settled.chunks(60).map(|minute| minute.iter().map(|second| second.overload_count).sum()).collect();
        let on_target = minutes.iter().filter(|count| (1..=3).contains(*count)).count();
        assert!(on_target >= 45, "{on_target} of 60 windows: {minutes:?}");
        let delays = settled.iter().map(|second| second.limits.delay);
        let (min, max) = (delays.clone().min().expect("delays"), delays.max().expect("delays"));
        assert!(max <= min.mul_f64(1.12), "{min:?} to {max:?}");
    }
}

#[test]
fn targeted_overloads_do_not_lengthen_backoff() {
    let seconds = simulate(delay_rampup(1..=1), 20, 1, 2);
    let answered: u32 = seconds[3600..].iter().map(|second| second.response_count).sum();
    assert!(answered > 3600 * 18, "one backoff of 1 s per minute: {answered}");
}
