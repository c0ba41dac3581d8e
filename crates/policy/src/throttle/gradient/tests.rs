use super::*;
use crate::throttle::controller::Controller;
use crate::throttle::simulation::{
    Phase, SecondStats, ServiceTime, SimulatedOrigin, Simulation, Summary, permissive_config,
};

const GRADIENT: Gradient = Gradient { min: 1, max: 256 };

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Simulated limit whose slots are all used in each window.
struct GradientScenario {
    gradient: Gradient,
    limit: GradientLimit,
    now: Timestamp,
}

impl GradientScenario {
    fn with_bounds(min: u32, max: u32) -> Self {
        let (gradient, now) = (Gradient { min, max }, Timestamp::from_seconds(1000));
        Self { gradient, limit: GradientLimit::new(&gradient, now), now }
    }

    /// Simulates one window of responses with `latency_ms`.
    fn run_window(&mut self, latency_ms: u64) -> &mut Self {
        let limit = self.limit.current();
        self.window(limit, &[(WINDOW_SAMPLES, Some(LoadSample::Success(ms(latency_ms))))])
    }

    fn window(&mut self, in_flight: u32, samples: &[(u32, Option<LoadSample>)]) -> &mut Self {
        self.now += ms(1);
        let sent = self.now;
        for sample in samples.iter().flat_map(|&(count, sample)| (0..count).map(move |_| sample)) {
            self.limit.on_sent(in_flight, self.now);
            self.now += MIN_WINDOW;
            if let Some(sample) = sample {
                self.limit.on_outcome(&self.gradient, sample, sent, in_flight, self.now);
            }
        }
        self
    }

    fn current_limit(&self) -> u32 {
        self.limit.current()
    }

    /// Disables drains.
    fn without_drain(mut self) -> Self {
        self.limit.windows_to_drain = u32::MAX;
        self
    }
}

#[test]
fn limit_follows_the_algorithm_window_by_window() {
    let mut scenario = GradientScenario::with_bounds(1, 64).without_drain();
    assert_eq!(scenario.current_limit(), 8);
    for (latency_ms, limit, reason) in [
        (100, 8, "the first window is the baseline"),
        (100, 10, "same latency: the square root, 2.83, is added"),
        (110, 13, "a tenth slower: 5 / 7 of the square root of 10.83"),
        (135, 13, "at the tolerance: unchanged"),
        (270, 6, "twice the tolerance: halved"),
        (1000, 3, "ten times slower: halved at most"),
        (90, 5, "fastest: the square root added, baseline halfway"),
    ] {
        scenario.run_window(latency_ms);
        assert_eq!(scenario.current_limit(), limit, "{reason}, at {latency_ms} ms");
    }
    let baseline = scenario.limit.baseline.expect("a baseline after the first window");
    assert!((baseline - 0.095).abs() < 1e-9);
    for _ in 0..100 {
        scenario.run_window(90);
    }
    assert_eq!(scenario.current_limit(), 64, "up to the maximum");
    let mut scenario = GradientScenario::with_bounds(6, 64).without_drain();
    scenario.run_window(100).run_window(1000).run_window(400).run_window(400);
    assert_eq!(scenario.current_limit(), 6, "down to the minimum");
}

#[test]
fn limit_below_half_use_is_unchanged() {
    for sample in [LoadSample::Success(ms(1)), LoadSample::Success(ms(60_000)), LoadSample::Overloaded] {
        let mut scenario = GradientScenario::with_bounds(1, 64);
        scenario.run_window(100).run_window(100).run_window(100);
        let before = scenario.current_limit();
        for _ in 0..50 {
            scenario.window(before / 2 - 1, &[(WINDOW_SAMPLES, Some(sample))]);
        }
        assert_eq!(scenario.current_limit(), before, "{sample:?}");
    }
}

#[test]
fn overloads_reduce_the_limit_by_at_most_half() {
    for (successes, overloads, limit) in
        [(WINDOW_SAMPLES - 2, 2, 90), (WINDOW_SAMPLES / 2, WINDOW_SAMPLES / 2, 50), (0, WINDOW_SAMPLES, 50)]
    {
        let mut scenario = GradientScenario::with_bounds(1, 100);
        scenario.limit.limit = 100.0;
        scenario
            .window(100, &[(overloads, Some(LoadSample::Overloaded)), (successes, Some(LoadSample::Success(ms(100))))]);
        assert_eq!(scenario.current_limit(), limit, "{overloads} of {WINDOW_SAMPLES}");
    }
    let mut scenario = GradientScenario::with_bounds(1, 100);
    scenario.limit.limit = 100.0;
    let sent = scenario.now;
    scenario.window(100, &[(WINDOW_SAMPLES, Some(LoadSample::Overloaded))]);
    for _ in 0..WINDOW_SAMPLES {
        scenario.limit.on_outcome(&GRADIENT, LoadSample::Overloaded, sent, 50, scenario.now + ms(200));
    }
    assert_eq!(scenario.current_limit(), 50, "overload of earlier requests is the same congestion");
}

#[test]
fn fast_errors_never_raise_the_limit() {
    let mut scenario = GradientScenario::with_bounds(1, 100);
    scenario.run_window(100);
    let before = scenario.current_limit();
    for _ in 0..100 {
        scenario.window(before, &[(WINDOW_SAMPLES, None)]);
    }
    assert_eq!(scenario.current_limit(), before);
}

#[test]
fn slower_origin_becomes_the_new_baseline() {
    let mut scenario = GradientScenario::with_bounds(1, 64).without_drain();
    for _ in 0..8 {
        scenario.run_window(100);
    }
    let before = scenario.current_limit();
    let min_limit = (0..6).map(|_| scenario.run_window(200).current_limit()).min().expect("six windows");
    assert!(min_limit >= before / 4, "{min_limit} of {before}");
    for _ in 0..8 {
        scenario.run_window(200);
    }
    assert!(scenario.current_limit() >= before, "{} of {before}", scenario.current_limit());
}

#[test]
fn latency_at_the_minimum_limit_is_soon_the_baseline() {
    let mut scenario = GradientScenario::with_bounds(8, 64).without_drain();
    scenario.run_window(100);
    let limits: Vec<u32> = (0..5).map(|_| scenario.run_window(300).current_limit()).collect();
    assert_eq!(limits[..3], [8; 3], "first taken for a queue");
    assert!(limits[4] > 8, "{limits:?}");
}

#[test]
fn drain_that_uncovers_a_lower_latency_makes_it_the_baseline() {
    let after_drain = |latency: f64| {
        let mut limit = GradientScenario::with_bounds(1, 64).limit;
        (limit.limit, limit.windows_to_drain) = (12.0, 1000);
        limit.continue_drain(&GRADIENT, Drain { limit_before: 20.0, latency: 0.05 }, 0.1, latency);
        (limit.baseline.map(|baseline| (baseline * 1000.0).round()), limit.windows_to_drain)
    };
    assert_eq!(after_drain(0.07), (Some(70.0), FIRST_DRAIN_WINDOWS), "much lower: more of it may be queueing time");
    assert_eq!(after_drain(0.09), (Some(90.0), DRAIN_INTERVAL_WINDOWS));
    assert_eq!(after_drain(0.12), (Some(110.0), 1000), "within the tolerance: halfway");
    assert_eq!(after_drain(0.2), (None, 1000), "unchanged");
}

#[test]
fn window_begins_with_its_first_request() {
    let mut scenario = GradientScenario::with_bounds(1, 64);
    scenario.now += Duration::from_secs(3600);
    let sent = scenario.now;
    (0..WINDOW_SAMPLES).for_each(|_| scenario.limit.on_sent(8, sent));
    let mut has_baseline_after = |elapsed: Duration| {
        for _ in 0..WINDOW_SAMPLES {
            scenario.limit.on_outcome(&GRADIENT, LoadSample::Success(ms(10)), sent, 8, sent + elapsed);
        }
        scenario.limit.baseline.is_some()
    };
    assert!(!has_baseline_after(MIN_WINDOW - ms(1)) && has_baseline_after(MIN_WINDOW));
}

#[test]
fn few_responses_suffice_after_a_long_window() {
    let has_baseline = |count: u32, elapsed: Duration| {
        let mut limit = GradientScenario::with_bounds(1, 64).limit;
        let sent = Timestamp::from_seconds(2000);
        (0..count).for_each(|_| limit.on_sent(8, sent));
        for _ in 0..count {
            limit.on_outcome(&GRADIENT, LoadSample::Success(ms(10)), sent, 8, sent + elapsed);
        }
        limit.baseline.is_some()
    };
    let (few, many) = (MIN_WINDOW_SAMPLES, WINDOW_SAMPLES);
    assert_eq!([few - 1, few, many].map(|count| has_baseline(count, MAX_WINDOW)), [false, true, true]);
    assert_eq!([few, many - 1, many].map(|count| has_baseline(count, MAX_WINDOW - ms(1))), [false, false, true]);
}

#[test]
fn limit_of_which_half_is_used_is_adapted() {
    let limit_after = |in_flight| {
        let mut scenario = GradientScenario::with_bounds(1, 64).without_drain();
        scenario.run_window(100);
        scenario.window(in_flight, &[(WINDOW_SAMPLES, Some(LoadSample::Success(ms(100))))]).current_limit()
    };
    assert_eq!([3, 4].map(limit_after), [8, 10]);
}

fn origin(servers: u32, pages: ServiceTime) -> SimulatedOrigin {
    SimulatedOrigin { servers, service_time: pages, rate_limit: None, queue_timeout: Duration::from_secs(30) }
}

/// Simulates a gradient controller before a sequence of origins; returns the statistics of each second.
fn simulate(seed: u64, seconds: u64, phases: &[(u64, SimulatedOrigin, u32)]) -> Vec<SecondStats> {
    let phases: Vec<Phase> =
        phases.iter().map(|&(from_s, origin, clients)| Phase { from_s, origin, clients }).collect();
    let config =
        crate::throttle::ThrottleConfig { controller: Some(Controller::Gradient(GRADIENT)), ..permissive_config() };
    Simulation::new(&config, &phases, seed).run(seconds)
}

#[test]
fn changed_capacity_is_found_again() {
    // Small windows are too noisy for a mix of pages: with four servers, the limit is too low at times.
    let pages =
        [(ServiceTime::Constant(0.1), 0.9), (ServiceTime::Uniform(0.1), 0.85), (ServiceTime::Bimodal(0.05, 0.5), 0.5)];
    for (pages, min_share_of_few) in pages {
        for seed in 0..6 {
            let (many, few) = (origin(16, pages), origin(4, pages));
            let seconds = simulate(seed, 180, &[(0, many, 200), (60, few, 200), (120, many, 200)]);
            // After 10 s; after 15 s if the capacity fell to a quarter, after 20 s if it rose fourfold.
            for (from, to, servers, min_share) in
                [(10, 60, 16.0, 0.9), (75, 120, 4.0, min_share_of_few), (140, 180, 16.0, 0.9)]
            {
                let summary = Summary::from_stats(&seconds[from..to]);
                assert!(summary.capacity_ratio >= min_share, "{pages:?} {seed} {from}: {summary:?}");
                assert!(summary.queue_length <= servers, "{pages:?} {seed} {from}: {summary:?}");
            }
            let min_limit = seconds[140..].iter().filter_map(|second| second.limits.limit).min();
            assert!(min_limit >= Some(5), "drains keep at least five slots: {min_limit:?}");
        }
    }
}

#[test]
fn any_capacity_is_found_at_any_latency() {
    for (servers, latency) in [(2, 0.02), (2, 0.1), (4, 0.3), (8, 0.05), (30, 0.1), (100, 0.3)] {
        for seed in 0..4 {
            let seconds = simulate(seed, 120, &[(0, origin(servers, ServiceTime::Uniform(latency)), 400)]);
            let summary = Summary::from_stats(&seconds[60..]);
            assert!(summary.capacity_ratio >= 0.9, "{servers} {latency} {seed}: {summary:?}");
            assert!(summary.queue_length <= f64::from(servers) + 2.0, "{servers} {latency} {seed}: {summary:?}");
        }
    }
}

#[test]
fn doubled_service_time_is_not_congestion() {
    for servers in [4, 8, 16, 40] {
        for seed in 0..4 {
            let (fast, slow) = (origin(servers, ServiceTime::Uniform(0.1)), origin(servers, ServiceTime::Uniform(0.2)));
            let seconds = simulate(seed, 150, &[(0, fast, 200), (60, slow, 200)]);
            let summary = Summary::from_stats(&seconds[90..]);
            assert!(summary.capacity_ratio >= 0.85, "{servers} {seed}: {summary:?}");
            assert!(summary.queue_length <= f64::from(servers) + 2.0, "{servers} {seed}: {summary:?}");
        }
    }
}

#[test]
fn low_traffic_leaves_the_limit_unchanged() {
    for clients in 1..4 {
        let healthy = origin(16, ServiceTime::Uniform(0.1));
        let slow = origin(16, ServiceTime::Uniform(1.0));
        let seconds = simulate(1, 120, &[(0, healthy, 200), (30, healthy, clients), (60, slow, clients)]);
        let limits: Vec<_> = seconds[35..].iter().map(|second| second.limits.limit).collect();
        assert!(limits.windows(2).all(|pair| pair[0] == pair[1]), "{limits:?}");
    }
}

#[test]
fn hung_origin_lowers_the_limit_until_recovery() {
    let healthy = SimulatedOrigin { queue_timeout: Duration::from_secs(2), ..origin(16, ServiceTime::Uniform(0.1)) };
    let hung = SimulatedOrigin { servers: 0, ..healthy };
    let seconds = simulate(7, 90, &[(0, healthy, 200), (30, hung, 200), (50, healthy, 200)]);
    assert!(seconds[49].limits.limit <= Some(2), "{:?}", seconds[49]);
    assert!(Summary::from_stats(&seconds[65..]).capacity_ratio > 0.9);
}
