use super::*;
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
