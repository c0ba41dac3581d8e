//! Demo: an origin with a small quota, a gateway in front of it, and a simulated day of traffic.
//!
//! The gateway and the connections are real. Only the day passes faster, because the load generator sets the gateway's
//! clock. All shown figures come from the gateway's responses and metrics and from the origin's own counters.

pub mod config;
mod crawlers;
pub mod frame;
pub mod load_generator;
pub mod log;
pub mod origin;
mod people;
pub mod scoreboard;
pub mod scrape;
mod screen;
pub mod site;
pub mod summary;
pub mod traffic;

pub use crawlers::HOSTING_NETWORKS;
pub use screen::Screen;

use crate::clock::Clock;
use crate::policy::Timestamp;
use anyhow::{Context, Result};
use load_generator::LoadGenerator;
use origin::{Origin, OriginOptions};
use scoreboard::Scoreboard;
use scrape::Scrape;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Options of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Real duration of the day, in seconds.
    pub seconds: u64,
    /// Seed of the traffic.
    pub seed: u64,
    /// Amount of traffic, as a ratio of a full-size day.
    pub scale: f64,
    /// Action after the summary.
    pub after_run: AfterRun,
}

/// Action after the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRun {
    /// Keep the gateway running until Ctrl-C.
    KeepRunning,
    /// Exit.
    Exit,
}

/// A running gateway, as seen by the demo.
pub trait RunningGateway {
    /// Returns the address of the client listener.
    fn listen(&self) -> SocketAddr;
    /// Returns the address of the admin listener.
    fn admin(&self) -> SocketAddr;
    /// Finishes the requests in flight and stops.
    fn shutdown(self: Box<Self>);
}

/// Outcome of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DemoOutcome {
    /// All checks passed.
    Passed,
    /// Failed checks, one sentence each.
    Failed(Vec<String>),
    /// Ctrl-C was pressed before the end of the day.
    Interrupted,
}

impl Default for Options {
    fn default() -> Self {
        Self { seconds: 60, seed: 1, scale: 0.25, after_run: AfterRun::KeepRunning }
    }
}

/// Start of the day: an arbitrary midnight in UTC.
const DAY_START: Timestamp = Timestamp::from_seconds(20_700 * 24 * 60 * 60);

/// Time in which the origin generates a page.
const LATENCY: Duration = Duration::from_millis(8);

const CONNECTIONS: usize = 24;

/// Runs the demo. `start` starts a gateway from YAML text and a clock.
pub async fn run(
    options: Options,
    screen: &mut Screen,
    start: impl FnOnce(&str, Clock) -> Result<Box<dyn RunningGateway>>,
) -> Result<DemoOutcome> {
    let origin = Origin::start(OriginOptions { latency: LATENCY, caches_pages: true, ..OriginOptions::default() })
        .context("cannot start the demo origin")?;
    let clock = Clock::frozen_at(DAY_START);
    let yaml = config::yaml(free_port(8080), free_port(9090), origin.address());
    let gateway = start(&yaml, clock.clone()).context("cannot start the gateway")?;

    let day = Arc::new(traffic::generate(options.seed, options.scale));
    screen.print(&summary::intro(config::RULES_EXCERPT, options.seconds, day.len(), screen.color_mode()))?;
    let generator = LoadGenerator {
        day: Arc::clone(&day),
        gateway: gateway.listen(),
        day_start: DAY_START,
        clock: clock.clone(),
        duration: Some(Duration::from_secs(options.seconds)),
        connections: CONNECTIONS,
    };
    let Some(scoreboard) = run_with_display(generator, gateway.admin(), screen).await? else {
        gateway.shutdown();
        return Ok(DemoOutcome::Interrupted);
    };

    let served = origin.totals();
    let scrape = Scrape::fetch(gateway.admin()).await.context("cannot read the gateway's metrics")?;
    screen.print(&format!("\n{}\n", summary::summary(&scoreboard, &served, &scrape, screen.color_mode())))?;
    let failed_checks = summary::failed_checks(&scoreboard, &served);
    for check in &failed_checks {
        screen.print(&format!("Check failed: {check}.\n"))?;
    }
    if options.after_run == AfterRun::KeepRunning {
        screen.print(&summary::next_steps(gateway.listen(), gateway.admin()))?;
        wait_for_exit(&clock).await?;
    }
    gateway.shutdown();
    Ok(if failed_checks.is_empty() { DemoOutcome::Passed } else { DemoOutcome::Failed(failed_checks) })
}

/// Generates the load and shows its progress. Returns `None` if Ctrl-C was pressed.
async fn run_with_display(
    generator: LoadGenerator,
    admin: SocketAddr,
    screen: &mut Screen,
) -> Result<Option<Scoreboard>> {
    let (day, clock) = (Arc::clone(&generator.day), generator.clock.clone());
    let mut scoreboard = Scoreboard { thresholds: config::SHED_THRESHOLDS.into(), ..Scoreboard::default() };
    let (sender, mut responses) = mpsc::unbounded_channel();
    let task = tokio::spawn(generator.send(sender));
    let mut redraw = tokio::time::interval(screen.frame_interval());
    loop {
        tokio::select! {
            biased;
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("cannot handle Ctrl-C")?;
                task.abort();
                return Ok(None);
            }
            _ = redraw.tick() => {
                scoreboard.now = clock.now().saturating_duration_since(DAY_START);
                // A failed scrape is replaced by the next one; only the last one must succeed.
                if let Ok(scrape) = Scrape::fetch(admin).await {
                    scoreboard.read(&scrape, config::QUOTA);
                }
                screen.draw(&scoreboard)?;
            }
            response = responses.recv() => match response {
                Some(response) => scoreboard.record(&day[response.index], &response),
                None => break,
            },
        }
    }
    scoreboard.now = traffic::DAY;
    scoreboard.read(&Scrape::fetch(admin).await.context("cannot read the gateway's metrics")?, config::QUOTA);
    screen.draw(&scoreboard)?;
    Ok(Some(scoreboard))
}

/// Starts the next day at normal speed and waits for Ctrl-C.
async fn wait_for_exit(clock: &Clock) -> Result<()> {
    let tick = Duration::from_millis(100);
    let mut now = DAY_START + traffic::DAY;
    let mut ticks = tokio::time::interval(tick);
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => return interrupted.context("cannot handle Ctrl-C"),
            _ = ticks.tick() => {
                clock.set(now);
                now += tick;
            }
        }
    }
}

/// Returns `preferred` on the loopback interface if it is free, else port 0, for which the system selects a port.
fn free_port(preferred: u16) -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], preferred));
    match std::net::TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
    }
}
