//! Demo: an origin with a small quota, a gateway in front of it, and a simulated day of traffic.
//!
//! The gateway and the connections are real. Only the day passes faster, because the load generator sets the gateway's
//! clock. All shown figures come from the gateway's responses and metrics and from the origin's own counters.

mod config;
mod crawlers;
pub mod day;
mod load_generator;
pub mod log;
mod origin;
mod paced;
mod people;
mod picture;
mod scoreboard;
mod scrape;
mod screen;
pub mod site;
mod summary;
pub mod traffic;
mod unprotected;

pub use screen::Screen;

use anyhow::{Context, Result};
use origin::MeteredOrigin;
use scoreboard::Scoreboard;
use scrape::Scrape;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tokio::sync::mpsc;
use traffic::{DAY_START, DemoRequest};
use unprotected::UnprotectedDay;

/// Options of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Real duration of the day, in seconds.
    pub seconds: u64,
    /// Seed of the traffic.
    pub seed: u64,
    /// Amount of traffic, as a ratio of a full-size day.
    pub scale: f64,
    /// True if the gateway keeps running after the summary, until Ctrl-C.
    pub keeps_running: bool,
    /// Client and admin address of the gateway; `None` for a free port of the loopback interface.
    pub listen: [Option<SocketAddr>; 2],
}

impl Default for Options {
    fn default() -> Self {
        Self { seconds: 60, seed: 1, scale: 0.25, keeps_running: true, listen: [None; 2] }
    }
}

/// A running gateway.
pub struct RunningGateway {
    /// Address of the client listener.
    pub listen: SocketAddr,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    /// Finishes the requests in flight and stops the gateway.
    pub shut_down: Box<dyn FnOnce()>,
}

/// Runs the demo until its end or Ctrl-C. `start` starts a gateway from YAML text and a clock. Returns false if a check
/// failed.
pub async fn run(
    options: Options,
    screen: &mut Screen,
    start: impl FnOnce(&str, Clock) -> Result<RunningGateway>,
) -> Result<bool> {
    let clock = Clock::frozen_at(DAY_START);
    let origin = MeteredOrigin::start(clock.clone()).context("cannot start the demo origin")?;
    let [listen, admin] = options.listen;
    let (listen, admin) = (listen.unwrap_or_else(|| free_port(8080)), admin.unwrap_or_else(|| free_port(9090)));
    // Nothing that the simulated clients teach is left for another gateway.
    let state_dir =
        tempfile::Builder::new().prefix("tidegate-demo-").tempdir().context("cannot store what is learned")?;
    let yaml = config::yaml(listen, admin, origin.address, state_dir.path());
    let gateway = start(&yaml, clock.clone()).context("cannot start the gateway")?;

    let day = Arc::new(day::generate(options.seed, options.scale));
    screen.print(&summary::intro(options.seconds, day.len(), gateway.admin, screen))?;
    let Some(scoreboard) = run_day(Arc::clone(&day), options.seconds, &gateway, &clock, screen).await? else {
        (gateway.shut_down)();
        return Ok(true);
    };

    let origin_units = origin.units();
    let detected = scrape(gateway.admin).await?.sum("tidegate_requests_total", "class=\"impostor\"") as u64;
    let paced = paced::units_by_hour(&day, options.seed, options.scale)?;
    let without = UnprotectedDay::new(&day, config::LIMIT);
    let comparison = picture::day(&scoreboard, &paced, &without, screen);
    let summary = summary::summary(&scoreboard, origin_units, detected, &comparison, screen);
    screen.print(&format!("\n{summary}\n"))?;
    let failed_checks = summary::failed_checks(&scoreboard, origin_units);
    for check in &failed_checks {
        screen.print(&format!("Check failed: {check}.\n"))?;
    }
    if options.keeps_running {
        screen.print(&summary::next_steps(gateway.listen, gateway.admin))?;
        wait_for_exit(&clock).await?;
    }
    (gateway.shut_down)();
    Ok(failed_checks.is_empty())
}

/// Sends the requests of the day in `seconds` and shows the progress. Returns `None` if Ctrl-C was pressed.
async fn run_day(
    day: Arc<Vec<DemoRequest>>,
    seconds: u64,
    gateway: &RunningGateway,
    clock: &Clock,
    screen: &mut Screen,
) -> Result<Option<Scoreboard>> {
    let mut scoreboard = Scoreboard::default();
    let (sender, mut responses) = mpsc::unbounded_channel();
    let (duration, requests) = (Duration::from_secs(seconds), Arc::clone(&day));
    let task = tokio::spawn(load_generator::send(requests, gateway.listen, clock.clone(), duration, sender));
    let mut updates = tokio::time::interval(screen.update_interval());
    loop {
        tokio::select! {
            biased;
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("cannot handle Ctrl-C")?;
                task.abort();
                return Ok(None);
            }
            _ = updates.tick() => {
                scoreboard.now = clock.now().saturating_duration_since(DAY_START);
                // A failed scrape is replaced by the next one; only the last one must succeed.
                if let Ok(scrape) = Scrape::fetch(gateway.admin).await {
                    scoreboard.read(&scrape);
                }
                screen.draw(&scoreboard)?;
            }
            response = responses.recv() => match response {
                Some((index, response)) => scoreboard.record(&day[index], response),
                None => break,
            },
        }
    }
    scoreboard.now = traffic::DAY;
    scoreboard.read(&scrape(gateway.admin).await?);
    screen.draw(&scoreboard)?;
    Ok(Some(scoreboard))
}

async fn scrape(admin: SocketAddr) -> Result<Scrape> {
    Scrape::fetch(admin).await.context("cannot read the gateway's metrics")
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
