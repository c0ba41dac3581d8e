//! The commands, one file each.

pub mod admin_client;
pub mod check;
pub mod classify;
mod config_file;
pub mod demo;
mod error;
pub mod explain;
pub mod init;
mod load_policy;
pub mod log_args;
mod output;
mod progress;
pub mod quota;
pub mod replay;
pub mod schema;
pub mod serve;
pub mod status;
pub mod tune;
pub mod user;

pub use config_file::ConfigArg;
pub use error::CommandError;

use crate::service::crawlers;
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;
use clap::{Args, Parser, Subcommand};
use config_file::path_or_default;
use error::{failed, print_errors};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A reverse proxy for sites whose origin lives on a quota: people first, crawlers told honestly when to come back.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gate (the default). SIGTERM drains, SIGHUP reloads, SIGUSR1 reopens the access log.
    Serve(ServeArgs),
    /// Says what a file means, or every mistake in it (exit code 2).
    Check {
        /// The file; where none is named, ./tidegate.yaml, or else config/tidegate.yaml.
        file: Option<PathBuf>,
    },
    /// Says what a policy would have done with the requests of access logs.
    Replay(replay::ReplayArgs),
    /// Finds the tiers with which a goal is met on access logs, and shows what else could be had.
    Tune(tune::TuneArgs),
    /// Shows a day of people, crawlers and impostors at a gate, in about a minute.
    Demo(demo::DemoArgs),
    /// Says what kind of client each user agent on standard input is: KIND, tab, name of the bot or -.
    Classify {
        /// Whose `agents:` rules go before the built-in list; where none is named, that list alone.
        #[arg(long)]
        config: Option<PathBuf>,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Says why a request is treated as it is, step by step, and what would have let it through.
    Explain(Box<explain::ExplainArgs>),
    /// Proposes a first, commented YAML file from a site's access log.
    Init {
        /// Access logs in the combined or common format, or the gate's own; gzip is read, `-` is standard input.
        #[arg(required = true, value_name = "LOG")]
        logs: Vec<PathBuf>,
    },
    /// Shows or corrects the quotas of a running gate.
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Shows all of a running gate at a glance: where it is, what is used up, who is refused.
    Status {
        /// As the admin API tells it.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        gate: admin_client::AdminArgs,
    },
    /// Prints the JSON Schema of the YAML file, for editors.
    Schema,
}

/// How commands end, and how they tell why.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 it could not be done, told as `tidegate: WHY`; 2 what was asked for is wrong, or a file \
that was named, told a line for each mistake as `WHERE: what is wrong; what would do`.";

/// What `serve` is told on the command line.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    file: ConfigArg,
    /// Listens here instead.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Forwards to this origin instead.
    #[arg(long, value_name = "URL")]
    origin: Option<String>,
}

/// Runs the command line.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => serve::run(&cli.serve),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Check { file }) => check_file(file.as_ref()),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Classify { config, json }) => classify_lines(config.as_deref(), json),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Tune(args)) => tune::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Init { logs }) => init::run(&logs),
        Some(Command::Quota(command)) => quota::run(&command),
        Some(Command::Status { json, gate }) => status::run(&gate, json),
        Some(Command::Schema) => print(&schema::schema()),
    }
}

fn check_file(named: Option<&PathBuf>) -> ExitCode {
    let file = match path_or_default(named) {
        Ok(file) => file,
        Err(none) => return print_errors(&none),
    };
    let operators = OperatorTable::builtin();
    let names: Vec<&str> = operators.names().collect();
    match check::check(&file, &environment(), &names) {
        Ok(summary) => print(&summary),
        Err(mistakes) => print_errors(&mistakes),
    }
}

fn classify_lines(config: Option<&Path>, json: bool) -> ExitCode {
    let builtin = OperatorTable::builtin();
    let names: Vec<&str> = builtin.names().collect();
    let settings = match config.map(|file| crate::config::read(file, &environment(), &[], &names)).transpose() {
        Ok(settings) => settings,
        Err(mistakes) => return print_errors(&mistakes),
    };
    let rules = settings.as_ref().map(|settings| settings.rules.user_agent_rules.clone()).unwrap_or_default();
    let operators = settings.as_ref().map_or(builtin, crawlers::operators);
    let agents = UserAgentMatcher::builtin(operators.tokens());
    let done = classify::run(&agents, &rules, io::stdin().lock(), io::BufWriter::new(io::stdout().lock()), json);
    exit_code(done)
}

/// The environment as text; what is not text cannot be meant for us.
fn environment() -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.into_string().ok();
    std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}

/// Prints a result.
fn print(text: &str) -> ExitCode {
    exit_code(io::stdout().lock().write_all(text.as_bytes()))
}

/// How printing ended. A reader that has left is no failure of ours.
fn exit_code(printed: io::Result<()>) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => failed(&error),
        _ => ExitCode::SUCCESS,
    }
}
