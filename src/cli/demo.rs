//! `tidegate demo`: runs a real gateway and real connections on a simulated day, which passes faster.

use super::output::OutputPaths;
use super::serve::random_seed;
use super::{CommandError, failed};
use crate::demo::{self, Options, RunningGateway, Screen};
use crate::service::{Service, SettingsSource};
use clap::Args;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_config as config;
use tidegate_config::admin_address::AdminAddress;
use tidegate_replay::terminal::ColorMode;

/// Arguments of `tidegate demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Real duration of the simulated day, in seconds.
    #[arg(long, default_value_t = Options::default().seconds, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Seed of the traffic.
    #[arg(long, default_value_t = Options::default().seed)]
    seed: u64,
    /// Exits after the summary instead of keeping the gateway running.
    #[arg(long)]
    no_wait: bool,
    /// Listen address of the gateway (default: 127.0.0.1:8080, or a free port).
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Address of the admin listener (default: 127.0.0.1:9090, or a free port).
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// Writes an access log of simulated days to FILE instead, as a site without a gateway has it; `-` is standard
    /// output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seconds", "no_wait", "listen", "admin"])]
    log: Option<PathBuf>,
    /// Number of days in the log.
    #[arg(long, requires = "log", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
}

/// Runs the demo. Returns exit code 1 if one of its checks fails.
pub fn run(args: &DemoArgs) -> ExitCode {
    if let Some(file) = &args.log {
        return write_log(file, args).map_or_else(|error| error.report(), |()| ExitCode::SUCCESS);
    }
    let options = Options {
        seconds: args.seconds,
        seed: args.seed,
        keeps_running: !args.no_wait,
        listen: [args.listen, args.admin],
        ..Options::default()
    };
    match run_demo(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("{error:#}")),
    }
}

/// Returns true if the reader closed the pipe, such as `head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn write_log(file: &Path, args: &DemoArgs) -> Result<(), CommandError> {
    let mut out = OutputPaths::with_inputs(&[], []).add_output("--log", file)?.open()?;
    let result = demo::log::write(args.days, args.seed, Options::default().scale, &mut out);
    result.map_err(|error| out.failed(&error))?;
    out.finish()
}

fn run_demo(options: Options) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(demo::run(options, &mut screen(), |yaml, clock| {
        let yaml = yaml.to_owned();
        let source: SettingsSource =
            Arc::new(move |operators, _| config::load(Path::new("(demo)"), &yaml, &[], &[], operators));
        let service = Service::start(source, clock, random_seed())?;
        Ok(RunningGateway {
            listen: service.listen()[0],
            admin: service.admin().and_then(AdminAddress::tcp).expect("the demo configuration has an admin listener"),
            shut_down: Box::new(move || service.shut_down()),
        })
    }))
}

fn screen() -> Screen {
    let out = io::stdout();
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = out.is_terminal().then(|| columns().unwrap_or(DEFAULT_WIDTH));
    Screen::new(Box::new(out), width, ColorMode::for_output(width.is_some()))
}

/// Width of a terminal of unknown width, in columns.
const DEFAULT_WIDTH: usize = 80;
