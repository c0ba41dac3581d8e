use super::*;
use crate::throttle::rampup::RampVariable;
use crate::throttle::simulation::{
    Phase, SecondStats, ServiceTime, SimulatedOrigin, Simulation, Summary, permissive_config,
};

const CLIENTS: u32 = 64;

fn origin(servers: u32, pages: ServiceTime) -> SimulatedOrigin {
    SimulatedOrigin { servers, service_time: pages, rate_limit: None, queue_timeout: Duration::from_secs(30) }
}

fn autothrottle(target_concurrency: f64) -> Controller {
    Controller::Autothrottle(Autothrottle {
        target_concurrency,
        start_delay: Duration::ZERO,
        max_delay: Duration::from_secs(5),
        success_statuses: vec![200],
        log_adjustments: false,
    })
}

/// Returns the start of the first ten seconds in which the origin works at 90 % of its capacity, with at most as many
/// queued requests as servers.
fn convergence_time(seconds: &[SecondStats], servers: u32) -> Option<usize> {
    let is_converged = |window: &[SecondStats]| {
        let summary = Summary::from_stats(window);
        summary.capacity_ratio >= 0.9 && summary.queue_length <= f64::from(servers)
    };
    seconds.windows(10).position(is_converged)
}

/// `cargo test -p tidegate-policy compares_controllers -- --nocapture` prints the table of docs/PERFORMANCE.md.
#[test]
fn compares_controllers() {
    let gradient = || Controller::Gradient(Gradient { min: 1, max: 256 });
    let configs = [
        ("nothing", permissive_config()),
        ("`concurrency: 16`", ThrottleConfig { concurrency: NonZeroU32::new(16), ..permissive_config() }),
        ("`autothrottle`, target 16", ThrottleConfig { controller: Some(autothrottle(16.0)), ..permissive_config() }),
        ("`autothrottle`, target 4", ThrottleConfig { controller: Some(autothrottle(4.0)), ..permissive_config() }),
        ("`adaptive_concurrency: gradient`", ThrottleConfig { controller: Some(gradient()), ..permissive_config() }),
    ];
    let (noisy, slow, mixed) = (ServiceTime::Uniform(0.1), ServiceTime::Uniform(0.2), ServiceTime::Bimodal(0.05, 0.5));
    let origins = [
        ("16 servers, 100 ms", origin(16, noisy)),
        ("then 4", origin(4, noisy)),
        ("then 16 again", origin(16, noisy)),
        ("then pages of 200 ms", origin(16, slow)),
        ("then of 50 ms, each tenth of 500", origin(16, mixed)),
    ];
    let phases: Vec<Phase> = (0..)
        .step_by(60)
        .zip(origins)
        .map(|(from_s, (_, origin))| Phase { from_s, origin, clients: CLIENTS })
        .collect();
    println!("| origin | | share | wait | found after |\n|---|---|---|---|---|");
    let runs = configs.map(|(name, config)| (name, Simulation::new(&config, &phases, 1).run(300)));
    for (index, (label, origin)) in origins.into_iter().enumerate() {
        for (name, run) in &runs {
            let minute = &run[index * 60..(index + 1) * 60];
            let Summary { capacity_ratio: share, mean_wait: wait, .. } = Summary::from_stats(&minute[20..]);
            let convergence =
                convergence_time(minute, origin.servers).map_or("never".into(), |after| format!("{after} s"));
            println!("| {label} | {name} | {:.0} % | {:.0} ms | {convergence} |", share * 100.0, wait * 1000.0);
            if *name == "`adaptive_concurrency: gradient`" {
                assert!(share > 0.8 && wait < 1.5 * origin.service_time.mean(), "{label}: {share} {wait}");
            }
        }
    }
}

#[test]
fn controller_keeps_its_state_only_for_its_kind() {
    let now = Timestamp::from_seconds(1000);
    let config = ThrottleConfig { controller: Some(autothrottle(1.0)), ..permissive_config() };
    let state = ControllerState::Autothrottle(Duration::from_secs(9));
    assert_eq!(
        config.update_controller(state, now),
        ControllerState::Autothrottle(Duration::from_secs(5)),
        "within new bounds"
    );
    assert_eq!(permissive_config().update_controller(state, now), ControllerState::Fixed);
    assert_eq!(config.update_controller(ControllerState::Fixed, now), ControllerState::Autothrottle(Duration::ZERO));
}

const NOW: Timestamp = Timestamp::from_seconds(1000);

fn outcome(status: u16, latency_s: u64) -> OriginOutcome {
    let latency = Duration::from_secs(latency_s);
    OriginOutcome { status: Some(status), latency, latency_counts: true, retry_after: None, is_unreachable: false }
}

fn rampup(variable: RampVariable) -> Rampup {
    Rampup { target: 1..=2, window: Duration::from_secs(60), variable }
}

#[test]
fn controller_replaces_the_limit_that_it_adapts() {
    let limits = |state: ControllerState, concurrency: u32| {
        let mut config = ThrottleConfig { concurrency: NonZeroU32::new(concurrency), ..permissive_config() };
        config.spacing.delay = Duration::from_secs(1);
        let effective = config.effective_limits(&state);
        (effective.limit, effective.delay.as_secs())
    };
    let gradient = ControllerState::Gradient(GradientLimit::new(&Gradient { min: 6, max: 6 }, NOW));
    let ramp = |variable| ControllerState::Rampup(RampState::new(&rampup(variable), NOW));
    let delay = Duration::from_secs(3);
    assert_eq!(limits(ControllerState::Fixed, 9), (Some(9), 1));
    assert_eq!(limits(ControllerState::Autothrottle(delay), 9), (Some(9), 3));
    assert_eq!([0, 4, 9].map(|max| limits(gradient, max)), [(Some(6), 1), (Some(4), 1), (Some(6), 1)]);
    assert_eq!(limits(ramp(RampVariable::Concurrency { start: 5, max: 8 }), 9), (Some(5), 1));
    assert_eq!(limits(ramp(RampVariable::Delay { start: delay, min: delay, max: delay }), 9), (Some(9), 3));
}

#[test]
fn requests_and_outcomes_reach_the_controller() {
    let gradient = Controller::Gradient(Gradient { min: 1, max: 64 });
    for controller in [autothrottle(1.0), gradient] {
        let config = ThrottleConfig { controller: Some(controller), ..permissive_config() };
        let before = config.update_controller(ControllerState::Fixed, NOW);
        let (mut sent, mut answered) = (before, before);
        config.on_sent(&mut sent, 4, NOW);
        assert_eq!(sent == before, matches!(before, ControllerState::Autothrottle(_)), "autothrottle has no window");
        config.on_outcome(&mut answered, &outcome(200, 2), NOW, 4, NOW);
        assert_ne!(answered, before);
    }
}

#[test]
fn only_measured_successes_and_overload_are_load_samples() {
    let config = permissive_config();
    let not_measured = OriginOutcome { latency_counts: false, ..outcome(200, 1) };
    let samples = [outcome(200, 1), not_measured, outcome(404, 1), outcome(500, 1), outcome(503, 1)];
    let success = Some(LoadSample::Success(Duration::from_secs(1)));
    let expected = [success, None, None, None, Some(LoadSample::Overloaded)];
    assert_eq!(samples.map(|sample| config.load_sample(&sample)), expected);
}

#[test]
fn changed_bounds_apply_to_the_current_value() {
    let limit_with = |state, controller| {
        let config = ThrottleConfig { controller: Some(controller), ..permissive_config() };
        let state = config.update_controller(state, NOW);
        (state, config.effective_limits(&state).limit)
    };
    let gradient = |min, max| Controller::Gradient(Gradient { min, max });
    let (state, limit) = limit_with(ControllerState::Fixed, gradient(1, 64));
    assert_eq!(limit, Some(8));
    assert_eq!(
        [(1, 5), (10, 64), (1, 64)].map(|(min, max)| limit_with(state, gradient(min, max)).1),
        [5, 10, 8].map(Some)
    );
    let ramp = |max| Controller::Rampup(rampup(RampVariable::Concurrency { start: 20, max }));
    let (state, _) = limit_with(ControllerState::Fixed, ramp(24));
    assert_eq!([24, 15].map(|max| limit_with(state, ramp(max)).1), [20, 15].map(Some));
}
