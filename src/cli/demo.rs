//! `tidegate demo`: runs a real gateway and real connections on a simulated day, which passes faster.

use super::output::OutputPaths;
use super::serve::random_seed;
use super::{CommandError, failed};
use crate::config;
use crate::demo::{self, AfterRun, DemoOutcome, Options, Screen};
use crate::service::{Service, SettingsSource};
use crate::terminal::ColorMode;
use clap::Args;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    /// Writes an access log of simulated days to FILE instead, as a site without a gateway has it; `-` is standard
    /// output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seconds", "no_wait"])]
    log: Option<PathBuf>,
    /// Number of days in the log.
    #[arg(long, requires = "log", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
}

/// Runs the demo. Returns exit code 1 if one of its checks fails.
pub fn run(args: &DemoArgs) -> ExitCode {
    let after_run = if args.no_wait { AfterRun::Exit } else { AfterRun::KeepRunning };
    if let Some(file) = &args.log {
        return write_log(file, args).map_or_else(|error| error.report(), |()| ExitCode::SUCCESS);
    }
    let options = Options { seconds: args.seconds, seed: args.seed, after_run, ..Options::default() };
    match run_demo(options) {
        Ok(DemoOutcome::Passed | DemoOutcome::Interrupted) => ExitCode::SUCCESS,
        Ok(DemoOutcome::Failed(_)) => ExitCode::FAILURE,
        Err(error) => failed(&format!("{error:#}")),
    }
}

fn write_log(file: &Path, args: &DemoArgs) -> Result<(), CommandError> {
    let mut out = OutputPaths::with_inputs(&[], []).add_output("--log", file)?.open()?;
    let result = demo::log::write(args.days, args.seed, Options::default().scale, &mut out);
    result.map_err(|error| out.failed(&error))?;
    out.finish()
}

fn run_demo(options: Options) -> anyhow::Result<DemoOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(demo::run(options, &mut screen(), |yaml, clock| {
        let yaml = yaml.to_owned();
        let source: SettingsSource =
            Box::new(move |operators| config::load(Path::new("(demo)"), &yaml, &[], &[], operators));
        Ok(Box::new(Service::start(source, clock, random_seed())?))
    }))
}

fn screen() -> Screen {
    let out = Box::new(io::stdout());
    if !out.is_terminal() {
        return Screen::lines(out);
    }
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    Screen::terminal(out, width, ColorMode::for_output(true))
}

impl demo::RunningGateway for Service {
    fn listen(&self) -> SocketAddr {
        Service::listen(self)[0]
    }

    fn admin(&self) -> SocketAddr {
        Service::admin(self).expect("the demo configuration has an admin listener")
    }

    fn shutdown(self: Box<Self>) {
        self.shut_down();
    }
}
