use super::*;
use crate::policy::throttle::controller::Controller;
use crate::policy::throttle::simulation::{
    Origin, Phase, SecondStats, ServiceTime, Simulation, Summary, permissive_config,
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
    fn with_bounds(floor: u32, ceiling: u32) -> Self {
        let (gradient, now) = (Gradient { min: floor, max: ceiling }, Timestamp::from_seconds(1000));
        Self { gradient, limit: GradientLimit::new(&gradient, now), now }
    }

    /// Simulates one window of responses with `latency_ms`.
    fn run_window(&mut self, latency_ms: u64) -> &mut Self {
        let whole = self.limit.current();
        self.window(whole, &[(WINDOW_SAMPLES, Some(LoadSample::Success(ms(latency_ms))))])
    }

    fn window(&mut self, under_way: u32, signs: &[(u32, Option<LoadSample>)]) -> &mut Self {
        self.now += ms(1);
        let sent = self.now;
        for sign in signs.iter().flat_map(|&(count, sign)| (0..count).map(move |_| sign)) {
            self.limit.on_sent(under_way, self.now);
            self.now += MIN_WINDOW;
            if let Some(sign) = sign {
                self.limit.on_outcome(&self.gradient, sign, sent, under_way, self.now);
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
    let mut story = GradientScenario::with_bounds(1, 64).without_drain();
    assert_eq!(story.current_limit(), 8);
    for (latency_ms, limit, why) in [
        (100, 8, "the first window is the baseline"),
        (100, 10, "same latency: the square root, 2.83, is added"),
        (110, 13, "a tenth slower: 5 / 7 of the square root of 10.83"),
        (135, 13, "at the tolerance: unchanged"),
        (270, 6, "twice the tolerance: halved"),
        (1000, 3, "ten times slower: halved at most"),
        (90, 5, "fastest: the square root added, baseline halfway"),
    ] {
        story.run_window(latency_ms);
        assert_eq!(story.current_limit(), limit, "{why}, at {latency_ms} ms");
    }
    let baseline = story.limit.baseline.expect("a baseline after the first window");
    assert!((baseline - 0.095).abs() < 1e-9);
    for _ in 0..100 {
        story.run_window(90);
    }
    assert_eq!(story.current_limit(), 64, "up to the maximum");
    let mut story = GradientScenario::with_bounds(6, 64).without_drain();
    story.run_window(100).run_window(1000).run_window(400).run_window(400);
    assert_eq!(story.current_limit(), 6, "down to the minimum");
}

#[test]
fn limit_below_half_use_is_unchanged() {
    for sign in [LoadSample::Success(ms(1)), LoadSample::Success(ms(60_000)), LoadSample::Overloaded] {
        let mut story = GradientScenario::with_bounds(1, 64);
        story.run_window(100).run_window(100).run_window(100);
        let before = story.current_limit();
        for _ in 0..50 {
            story.window(before / 2 - 1, &[(WINDOW_SAMPLES, Some(sign))]);
        }
        assert_eq!(story.current_limit(), before, "{sign:?}");
    }
}

#[test]
fn overloads_reduce_the_limit_by_at_most_half() {
    for (good, congested, left) in
        [(WINDOW_SAMPLES - 2, 2, 90), (WINDOW_SAMPLES / 2, WINDOW_SAMPLES / 2, 50), (0, WINDOW_SAMPLES, 50)]
    {
        let mut story = GradientScenario::with_bounds(1, 100);
        story.limit.most = 100.0;
        story.window(100, &[(congested, Some(LoadSample::Overloaded)), (good, Some(LoadSample::Success(ms(100))))]);
        assert_eq!(story.current_limit(), left, "{congested} of {WINDOW_SAMPLES}");
    }
    let mut story = GradientScenario::with_bounds(1, 100);
    story.limit.most = 100.0;
    let sent = story.now;
    story.window(100, &[(WINDOW_SAMPLES, Some(LoadSample::Overloaded))]);
    for _ in 0..WINDOW_SAMPLES {
        story.limit.on_outcome(&GRADIENT, LoadSample::Overloaded, sent, 50, story.now + ms(200));
    }
    assert_eq!(story.current_limit(), 50, "overload of earlier requests is the same congestion");
}

#[test]
fn fast_errors_never_raise_the_limit() {
    let mut story = GradientScenario::with_bounds(1, 100);
    story.run_window(100);
    let before = story.current_limit();
    for _ in 0..100 {
        story.window(before, &[(WINDOW_SAMPLES, None)]);
    }
    assert_eq!(story.current_limit(), before);
}

#[test]
fn slower_origin_becomes_the_new_baseline() {
    let mut story = GradientScenario::with_bounds(1, 64).without_drain();
    for _ in 0..8 {
        story.run_window(100);
    }
    let before = story.current_limit();
    let least = (0..6).map(|_| story.run_window(200).current_limit()).min().expect("six windows");
    assert!(least >= before / 4, "{least} of {before}");
    for _ in 0..8 {
        story.run_window(200);
    }
    assert!(story.current_limit() >= before, "{} of {before}", story.current_limit());
}

fn origin(servers: u32, pages: ServiceTime) -> Origin {
    Origin { servers, pages, rate_limit: None, queue_timeout: Duration::from_secs(30) }
}

/// Simulates a gradient controller before a sequence of origins; returns the statistics of each second.
fn simulate(seed: u64, seconds: u64, phases: &[(u64, Origin, u32)]) -> Vec<SecondStats> {
    let phases: Vec<Phase> =
        phases.iter().map(|&(from_s, origin, clients)| Phase { from_s, origin, clients }).collect();
    let rules = crate::policy::throttle::ThrottleConfig {
        controller: Some(Controller::Gradient(GRADIENT)),
        ..permissive_config()
    };
    Simulation::of(&rules, &phases, seed).run(seconds)
}

#[test]
fn changed_capacity_is_found_again() {
    // Small windows are too noisy for a mix of pages: with four servers, the limit is too low at times.
    let pages = [(ServiceTime::Even(0.1), 0.9), (ServiceTime::Noisy(0.1), 0.85), (ServiceTime::Mixed(0.05, 0.5), 0.5)];
    for (pages, share_of_few) in pages {
        for seed in 0..6 {
            let (many, few) = (origin(16, pages), origin(4, pages));
            let seconds = simulate(seed, 180, &[(0, many, 200), (60, few, 200), (120, many, 200)]);
            // After 10 s; after 15 s if the capacity fell to a quarter, after 20 s if it rose fourfold.
            for (from, to, servers, least_share) in
                [(10, 60, 16.0, 0.9), (75, 120, 4.0, share_of_few), (140, 180, 16.0, 0.9)]
            {
                let found = Summary::of(&seconds[from..to]);
                assert!(found.share >= least_share, "{pages:?} {seed} {from}: {found:?}");
                assert!(found.in_queue <= servers, "{pages:?} {seed} {from}: {found:?}");
            }
            let least = seconds[140..].iter().filter_map(|second| second.pace.limit).min();
            assert!(least >= Some(5), "drains keep at least five slots: {least:?}");
        }
    }
}

#[test]
fn any_capacity_is_found_at_any_latency() {
    for (servers, latency) in [(2, 0.02), (2, 0.1), (4, 0.3), (8, 0.05), (30, 0.1), (100, 0.3)] {
        for seed in 0..4 {
            let seconds = simulate(seed, 120, &[(0, origin(servers, ServiceTime::Noisy(latency)), 400)]);
            let found = Summary::of(&seconds[60..]);
            assert!(found.share >= 0.9, "{servers} {latency} {seed}: {found:?}");
            assert!(found.in_queue <= f64::from(servers) + 2.0, "{servers} {latency} {seed}: {found:?}");
        }
    }
}

#[test]
fn doubled_service_time_is_not_congestion() {
    for servers in [4, 8, 16, 40] {
        for seed in 0..4 {
            let (fast, slow) = (origin(servers, ServiceTime::Noisy(0.1)), origin(servers, ServiceTime::Noisy(0.2)));
            let seconds = simulate(seed, 150, &[(0, fast, 200), (60, slow, 200)]);
            let found = Summary::of(&seconds[90..]);
            assert!(found.share >= 0.85, "{servers} {seed}: {found:?}");
            assert!(found.in_queue <= f64::from(servers) + 2.0, "{servers} {seed}: {found:?}");
        }
    }
}

#[test]
fn low_traffic_leaves_the_limit_unchanged() {
    for clients in 1..4 {
        let well = origin(16, ServiceTime::Noisy(0.1));
        let slow = origin(16, ServiceTime::Noisy(1.0));
        let seconds = simulate(1, 120, &[(0, well, 200), (30, well, clients), (60, slow, clients)]);
        let limits: Vec<_> = seconds[35..].iter().map(|second| second.pace.limit).collect();
        assert!(limits.windows(2).all(|two| two[0] == two[1]), "{limits:?}");
    }
}

#[test]
fn hung_origin_lowers_the_limit_until_recovery() {
    let well = Origin { queue_timeout: Duration::from_secs(2), ..origin(16, ServiceTime::Noisy(0.1)) };
    let hung = Origin { servers: 0, ..well };
    let seconds = simulate(7, 90, &[(0, well, 200), (30, hung, 200), (50, well, 200)]);
    assert!(seconds[49].pace.limit <= Some(2), "{:?}", seconds[49]);
    assert!(Summary::of(&seconds[65..]).share > 0.9);
}
