//! The newcomer's first minute: an origin with a small quota, a gate before it, and a day of traffic.
//!
//! The gate is the real one and so are the connections; only the day runs faster, because the gate's clock is moved
//! along with it. What is shown comes from the gate's answers and metrics and from the origin's own books.

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

/// What can be asked of the demonstration.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Real seconds that the day takes.
    pub seconds: u64,
    /// The day's seed.
    pub seed: u64,
    /// How much traffic, against a full-size day.
    pub scale: f64,
    /// Whether the gate stays up after the summary.
    pub afterwards: AfterRun,
}

/// What happens after the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRun {
    /// The gate stays up until Ctrl-C.
    Stay,
    /// It is over.
    Exit,
}

/// A running gate, as the demonstration needs it.
pub trait Gate {
    /// Where it serves.
    fn listen(&self) -> SocketAddr;
    /// Where it tells of itself.
    fn admin(&self) -> SocketAddr;
    /// Finishes what is under way, and stops.
    fn shutdown(self: Box<Self>);
}

/// How the demonstration ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DemoOutcome {
    /// Everything was as promised.
    Passed,
    /// These promises were broken.
    Failed(Vec<String>),
    /// Somebody pressed Ctrl-C before the day was over.
    Interrupted,
}

impl Default for Options {
    fn default() -> Self {
        Self { seconds: 60, seed: 1, scale: 0.25, afterwards: AfterRun::Stay }
    }
}

/// A midnight on which the day begins; any would do.
const BEGINS: Timestamp = Timestamp::from_seconds(20_700 * 24 * 60 * 60);

/// What a page takes to be made.
const LATENCY: Duration = Duration::from_millis(8);

const CONNECTIONS: usize = 24;

/// Shows a day. `start` starts a gate from YAML text and a clock.
pub async fn run(
    options: Options,
    screen: &mut Screen,
    start: impl FnOnce(&str, Clock) -> Result<Box<dyn Gate>>,
) -> Result<DemoOutcome> {
    let origin = Origin::start(OriginOptions { latency: LATENCY, caches_pages: true, ..OriginOptions::default() })
        .context("the demonstration's origin cannot start")?;
    let clock = Clock::frozen_at(BEGINS);
    let yaml = config::yaml(free_port(8080), free_port(9090), origin.address());
    let gate = start(&yaml, clock.clone()).context("the gate cannot start")?;

    let day = Arc::new(traffic::generate(options.seed, options.scale));
    screen.print(&summary::intro(config::RULES_EXCERPT, options.seconds, day.len(), screen.color_mode()))?;
    let crowd = LoadGenerator {
        day: Arc::clone(&day),
        gate: gate.listen(),
        begins: BEGINS,
        clock: clock.clone(),
        takes: Some(Duration::from_secs(options.seconds)),
        connections: CONNECTIONS,
    };
    let Some(board) = run_with_display(crowd, gate.admin(), screen).await? else {
        gate.shutdown();
        return Ok(DemoOutcome::Interrupted);
    };

    let served = origin.served();
    let scrape = Scrape::of(gate.admin()).await.context("the gate's metrics cannot be read")?;
    screen.print(&format!("\n{}\n", summary::summary(&board, &served, &scrape, screen.color_mode())))?;
    let broken = summary::failed_checks(&board, &served);
    for promise in &broken {
        screen.print(&format!("Not as promised: {promise}.\n"))?;
    }
    if options.afterwards == AfterRun::Stay {
        screen.print(&summary::next_steps(gate.listen(), gate.admin()))?;
        wait_for_exit(&clock).await?;
    }
    gate.shutdown();
    Ok(if broken.is_empty() { DemoOutcome::Passed } else { DemoOutcome::Failed(broken) })
}

/// Sends the crowd and shows what becomes of it; nothing when Ctrl-C came first.
async fn run_with_display(crowd: LoadGenerator, admin: SocketAddr, screen: &mut Screen) -> Result<Option<Scoreboard>> {
    let (day, clock) = (Arc::clone(&crowd.day), crowd.clock.clone());
    let mut board = Scoreboard { marks: config::SHED_THRESHOLDS.into(), ..Scoreboard::default() };
    let (heard, mut answers) = mpsc::unbounded_channel();
    let sending = tokio::spawn(crowd.send(heard));
    let mut redraw = tokio::time::interval(screen.frame_interval());
    loop {
        tokio::select! {
            biased;
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("cannot listen for Ctrl-C")?;
                sending.abort();
                return Ok(None);
            }
            _ = redraw.tick() => {
                board.now = clock.now().saturating_duration_since(BEGINS);
                // A scrape that fails once is made up for by the next; the last one must succeed.
                if let Ok(scrape) = Scrape::of(admin).await {
                    board.read(&scrape, config::QUOTA);
                }
                screen.draw(&board)?;
            }
            answer = answers.recv() => match answer {
                Some(heard) => board.record(&day[heard.visit], &heard),
                None => break,
            },
        }
    }
    board.now = traffic::LENGTH;
    board.read(&Scrape::of(admin).await.context("the gate's metrics cannot be read")?, config::QUOTA);
    screen.draw(&board)?;
    Ok(Some(board))
}

/// Lets the next day begin, at the usual speed, until Ctrl-C.
async fn wait_for_exit(clock: &Clock) -> Result<()> {
    let tick = Duration::from_millis(100);
    let mut now = BEGINS + traffic::LENGTH;
    let mut ticks = tokio::time::interval(tick);
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => return interrupted.context("cannot listen for Ctrl-C"),
            _ = ticks.tick() => {
                clock.set(now);
                now += tick;
            }
        }
    }
}

/// `preferred` on the loopback interface when nobody has it; else whatever the system gives.
fn free_port(preferred: u16) -> SocketAddr {
    let wanted = SocketAddr::from(([127, 0, 0, 1], preferred));
    match std::net::TcpListener::bind(wanted) {
        Ok(_) => wanted,
        Err(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
    }
}
