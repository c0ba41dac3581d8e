//! Command line: argument parsing and dispatch. Each command is one module.

pub mod admin_client;
mod cache;
pub mod check;
pub mod classify;
mod completions;
mod config_file;
mod customers;
pub mod demo;
mod descriptors;
mod error;
pub mod explain;
pub mod init;
mod keys;
pub mod learn;
mod load_policy;
pub mod log_args;
mod man;
mod notify;
mod output;
pub mod plan;
mod progress;
pub mod quota;
pub mod replay;
mod robots;
pub mod schema;
pub mod serve;
pub mod status;
mod switch;
mod systemd;
pub mod tune;
mod usage;
pub mod user;
mod warm;
mod warm_urls;

pub use config_file::ConfigArg;
pub use error::CommandError;

use crate::service::crawlers;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, value_parser};
use clap_complete::Shell;
use error::{failed, print_errors};
use jiff::tz::TimeZone;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;

/// An adaptive rate-limiting reverse proxy for origins with a metered quota
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gateway (the default command)
    ///
    /// SIGTERM drains, SIGHUP reloads and reopens the access log, SIGUSR1 reopens the access log. `${...}` in the file
    /// and the variables TIDEGATE__* are read once; a reload uses the environment of the start. Relative paths in the
    /// file (`state_dir`, `log.access.path`, `address_lists`, `ranges`, `robots.override_file`) start at the working
    /// directory, not at the directory of the file.
    Serve {
        /// Configuration file, as --config.
        file: Option<PathBuf>,
        #[command(flatten)]
        args: ServeArgs,
    },
    /// Validates a configuration file and prints a summary or all errors
    ///
    /// Reports all errors at once (exit code 2). Warns about a missing `override_file`, an unreadable range file, and
    /// routes and scopes without effect. The line `crawlers:` of the summary lists the servers that the gateway
    /// contacts. Classes and keys of quotas that the file leaves out are shown as it would write them.
    Check {
        /// Configuration file, as --config.
        file: Option<PathBuf>,
        /// Prints the file with these classes and keys written out, in place of the summary.
        #[arg(long)]
        explain_defaults: bool,
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Replays access logs through the policy and reports the decisions
    ///
    /// Several files become one log in the order of time. Invalid lines are skipped and counted by error, with the
    /// position of the first. A replay contacts no server and neither reads nor changes a running gateway; crawlers are
    /// verified by the built-in ranges. Units are those charged in the end. Times are in the zone of the first quota
    /// with a calendar. The same log and files give the same report, byte by byte.
    Replay(replay::ReplayArgs),
    /// Learns demand and behavior from access logs, so that the first day is like a later one
    ///
    /// Writes what pacing and bot detection would have learned from the logs into `state_dir` (`demand.json`,
    /// `baseline.json`), where the gateway reads it at its start. The gateway must not run. Requests pass through the
    /// configuration as in `replay`; refused requests count as demand, as they do in a running gateway. Hours are those
    /// of the time zone of the quota. The first hour counts if the log contains at least half of it, the last if the log
    /// ends in its last minute. A log of less than 20 hours gives no forecast by hour. An hour without a request counts as an hour without demand, unless no
    /// request arrives for more than a day. Of each hour of the week, the last four weeks count. What is learned of
    /// bots in the log of another server has the weight of at most 20 clients, so that live traffic soon corrects it.
    /// Run it as the user of the gateway and in its working directory, where a relative `state_dir` starts.
    Learn(learn::LearnArgs),
    /// Searches for tier settings that meet a goal on recorded traffic
    ///
    /// Varies tiers of classes with tiers, and the pacing and weights of one quota. A class without tiers stays
    /// without; a class that is refused from the first unit stays refused, unless the goal names it. No class gets a
    /// larger weight than one of higher priority, unless the file has it so. Of the candidates that meet the goal, the
    /// one with the fewest changed values is proposed; if none does, the nearest, with exit code 1. That a goal cannot
    /// be met is stated only if it is known, with the reason. A quota with `enforce: false` refuses nothing and cannot
    /// be tuned. The log is kept in memory, up to 1 GiB of lines; a longer one is refused.
    Tune(tune::TuneArgs),
    /// Runs a simulated day of traffic against a local gateway
    Demo(demo::DemoArgs),
    /// Classifies user agents read from standard input
    ///
    /// Prints one line for each line of input: KIND, tab, name of the bot or `-`.
    Classify {
        /// Configuration file whose `user_agent_rules` apply before the built-in list (default: the built-in list only).
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Prints one JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Explains a decision and what would change it
    ///
    /// Each step shows what it found, its result, and the setting that decided, with its line; `by default` is a
    /// setting that the file does not contain. The results are pass, refuse, shadow (would refuse if enforced), depends
    /// (on earlier requests), skipped, and unknown (known only to a running gateway). Each change of the last list
    /// alone would admit the request. Retry-After is shown without `retry_after_spread`, except for decisions that were
    /// made. The renewal of a quota is shown in the zone of its window, all other times in the local zone.
    Explain(Box<explain::ExplainArgs>),
    /// Generates an initial configuration from access logs
    ///
    /// Prints a file that `check` accepts. Each value has a comment with the figure it comes from; CHANGE marks values
    /// that only the administrator knows. Units are pages: a pattern with at least one in a hundred page requests
    /// becomes a route that costs 1, everything else is free. Numbers, dates, hashes, long names and names of which a
    /// directory has many become `*`. Asset patterns are free routes above it if it could match them. Bots are
    /// recognized by user agent and published addresses; DNS is not queried. Times are those of the log's clock. A
    /// replay on the same log gives the limit, which is the usage of the busiest day, and the demand of people;
    /// undeclared bots count as people. `enforce: false` of the quota and of people means that no request is refused until
    /// both lines are removed. Calls of WordPress to its own /wp-cron.php get a class of their own.
    Init {
        /// Access logs, plain, gzip, zstd or bzip2; `-` is standard input. The input is read twice, so a pipe is kept in memory,
        /// up to 1 GiB.
        #[arg(required = true, value_name = "LOG")]
        logs: Vec<PathBuf>,
        #[command(flatten)]
        format: log_args::LogFormatArgs,
    },
    /// Proposes a policy of a few lines from access logs, and says what it keeps
    ///
    /// Prints a configuration of at most twelve lines, and above it as a comment what it keeps on the logs: the share of people's
    /// pages that is refused, of the pages that verified search engines and other bots get, and when the limit would be used up
    /// without it. A unit is a page; files such as pictures and styles, calls of WordPress to its own /wp-cron.php, and health
    /// checks cost nothing. All that the file leaves out is by default (`tidegate check --explain-defaults`).
    Plan(plan::PlanArgs),
    /// Refuses a client, network, operator or class for a while
    ///
    /// The refusals have status 429 and the reason `blocked`, also where `enforce: false` is set, until the time of the
    /// switch is over; robots.txt stays readable. It takes effect with the next request, survives restarts, and applies
    /// to all gateways that share a ledger. Of several switches the most specific one counts: an address before a
    /// network, an operator, a class. A blocked operator includes clients that only claim to be its crawlers. Changes
    /// are in the gateway's log (target `audit`) with the user name (before sudo).
    Block(switch::SwitchArgs),
    /// Exempts a client, network, operator or class from all refusals but those of the quota, for a while
    ///
    /// The client passes blocks, buckets, shares, tiers and pacing. The limit of a quota and the throttle of the origin
    /// still apply. An operator's crawlers are allowed only with proof. Otherwise as `block`.
    Allow(switch::SwitchArgs),
    /// Begins or ends maintenance: clients get 503
    #[command(subcommand)]
    Maintenance(switch::MaintenanceCommand),
    /// Shows or removes the stored responses of a running gateway
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Creates the API keys of customers
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Shows what customers have used of their budgets in the current windows
    Usage(customers::UsageArgs),
    /// Tests the webhooks of notifications
    #[command(subcommand)]
    Notify(notify::NotifyCommand),
    /// Checks a robots.txt
    #[command(subcommand)]
    Robots(robots::RobotsCommand),
    /// Shows or corrects the quotas of a running gateway
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Shows the state of a running gateway
    ///
    /// Problems come first. Times use the local zone of this machine; TZ=... changes it. `lost`, `overrun` and `drift`
    /// are shown only if they are not zero. The admit share of an unpaced class is shown as `unpaced`. The delay of a
    /// scope is the current time between two requests; its level is the number of consecutive overloads, less one for
    /// each quiet window. Shows the ten most refused clients (API: twenty) and the five busiest partitions of a scope.
    Status(status::StatusArgs),
    /// Prints the JSON Schema of the configuration file, for editors
    Schema,
    /// Prints the completions of a shell
    ///
    /// Bash reads them from /etc/bash_completion.d/tidegate or ~/.local/share/bash-completion/completions/tidegate, zsh
    /// from a file _tidegate in a directory of `fpath`, fish from ~/.config/fish/completions/tidegate.fish.
    Completions {
        /// Shell that reads the completions.
        shell: Shell,
    },
    /// Writes the man pages of all commands into a directory
    ///
    /// Writes tidegate.1 and a page for each command, such as tidegate-quota-set.1, and replaces pages that exist. Man
    /// finds them in a directory man1 of its path, such as /usr/local/share/man/man1.
    Man {
        /// Directory of the pages; created if it does not exist.
        dir: PathBuf,
    },
}

/// Escapes a name as one segment of a path, because a mistyped one may contain any character.
fn path_segment(name: &str) -> String {
    let mut segment = String::new();
    for byte in name.bytes() {
        match byte {
            plain if plain.is_ascii_alphanumeric() || matches!(plain, b'_' | b'-') => segment.push(char::from(plain)),
            other => segment.push_str(&format!("%{other:02X}")),
        }
    }
    segment
}

/// Exit codes of all commands and the format of their errors.
const EXIT_CODES: &str = "\
--config FILE may stand before or after the command. Without a file, each command reads ./tidegate.yaml, or else \
config/tidegate.yaml; only `classify` then uses the built-in list. Results are printed on standard output, everything else on standard error.\n\n\
Exit codes: 0 done; 1 the operation failed, printed as `tidegate: REASON`, or `tune` did not meet its goal; 2 the \
request or a named file is invalid, printed with one line per error as `WHERE: what is wrong; hint`.";

/// Arguments of `tidegate serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    file: ConfigArg,
    /// Listen address; replaces `listen` of the file.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// URL of the origin; replaces `origin.url` of the file.
    #[arg(long, value_name = "URL")]
    origin: Option<String>,
}

/// Returns the command line. The help of a command that reads no configuration file does not have the option of all others.
fn command_line() -> clap::Command {
    let hidden = || Arg::new("config").long("config").value_parser(value_parser!(PathBuf)).global(true).hide(true);
    let hide = |command: clap::Command, name| command.mut_subcommand(name, |command| command.arg(hidden()));
    WITHOUT_FILE.into_iter().fold(Cli::command(), hide)
}

/// Commands that read no configuration file.
const WITHOUT_FILE: [&str; 7] = ["demo", "init", "plan", "robots", "schema", "completions", "man"];

/// Parses the command line and runs the command.
pub fn run() -> ExitCode {
    let cli = match command_line().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    match cli.run() {
        Ok(code) => code,
        Err(error) => error.report(),
    }
}

impl Cli {
    fn run(self) -> Result<ExitCode, CommandError> {
        let Self { serve, command } = self;
        let Some(command) = command else { return Ok(serve::run(&serve)) };
        serve.check_unused(&command)?;
        Ok(match command {
            Command::Serve { file, args } => {
                serve::run(&ServeArgs { file: config_or_positional(args.file, file)?, ..args })
            }
            Command::Check { file, explain_defaults, config } => {
                check_file(&config_or_positional(config, file)?.path()?, explain_defaults)
            }
            Command::Demo(args) => demo::run(&args),
            Command::Classify { config, json } => classify_lines(config.as_deref(), json),
            Command::Replay(args) => replay::run(&args),
            Command::Learn(args) => learn::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Init { logs, format } => init::run(&logs, &format),
            Command::Plan(args) => plan::run(&args),
            Command::Block(args) => switch::run(&args, "block"),
            Command::Allow(args) => switch::run(&args, "allow"),
            Command::Maintenance(command) => switch::run_maintenance(&command),
            Command::Cache(command) => cache::run(&command),
            Command::Keys(command) => keys::run(&command),
            Command::Usage(args) => customers::run(&args),
            Command::Notify(command) => notify::run(&command),
            Command::Robots(command) => robots::run(&command),
            Command::Quota(command) => quota::run(&command),
            Command::Status(args) => status::run(&args),
            Command::Schema => print(&schema::schema()),
            Command::Completions { shell } => print(&completions::completions(command_line(), shell)),
            Command::Man { dir } => man::run(command_line(), &dir),
        })
    }
}

/// Returns `--config`, or else `file` from the position in its place. Returns an error if both are named.
fn config_or_positional(config: ConfigArg, file: Option<PathBuf>) -> Result<ConfigArg, CommandError> {
    match (config.config, file) {
        (Some(config), Some(file)) => {
            let (config, file) = (config.display(), file.display());
            let message = format!("command line: two configuration files, {config} and {file}; name one");
            Err(CommandError::Usage(message))
        }
        (config, file) => Ok(ConfigArg { config: config.or(file) }),
    }
}

impl ServeArgs {
    /// Returns an error if an option has no effect on `command`.
    fn check_unused(&self, command: &Command) -> Result<(), CommandError> {
        let reads_no_file = matches!(
            command,
            Command::Demo(_)
                | Command::Init { .. }
                | Command::Plan(_)
                | Command::Robots(_)
                | Command::Schema
                | Command::Completions { .. }
                | Command::Man { .. }
        );
        let unused = [
            ("--listen", self.listen.is_some(), "write it after serve"),
            ("--origin", self.origin.is_some(), "write it after serve"),
            ("--config", self.file.config.is_some() && reads_no_file, "the command reads no configuration file"),
        ];
        match unused.into_iter().find(|(_, is_unused, _)| *is_unused) {
            Some((option, _, hint)) => {
                Err(CommandError::Usage(format!("command line: {option} has no effect here; {hint}")))
            }
            None => Ok(()),
        }
    }
}

fn check_file(file: &Path, explains_defaults: bool) -> ExitCode {
    let (environment, operators) = (environment(), OperatorTable::builtin_names());
    let result = match explains_defaults {
        true => check::explain_defaults(file, &environment, &operators),
        false => check::check(file, &environment, &operators),
    };
    match result {
        Ok(text) => print(&text),
        Err(errors) => print_errors(&errors),
    }
}

fn classify_lines(config: Option<&Path>, json: bool) -> ExitCode {
    let names = OperatorTable::builtin_names();
    let settings = match config.map(|file| tidegate_config::read(file, &environment(), &[], &names)).transpose() {
        Ok(settings) => settings,
        Err(errors) => return print_errors(&errors),
    };
    let rules = settings.as_ref().map(|settings| settings.rules.user_agent_rules.clone()).unwrap_or_default();
    let operators = settings.as_ref().map_or_else(OperatorTable::builtin, crawlers::operators);
    let agents = UserAgentMatcher::builtin(operators.product_tokens());
    let result = classify::run(&agents, &rules, io::stdin().lock(), io::BufWriter::new(io::stdout().lock()), json);
    exit_code(result)
}

/// Returns the environment variables that are valid UTF-8; configuration variables always are. `TZ` is the IANA name of the
/// system's time zone, if it has one, also where the system sets no variable, or one in another form.
fn environment() -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.into_string().ok();
    let variables = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
    let zone = TimeZone::system().iana_name().map(|zone| ("TZ".to_owned(), zone.to_owned()));
    variables.filter(|(name, _)| name != "TZ" || zone.is_none()).chain(zone.clone()).collect()
}

/// Prints a result on standard output.
fn print(text: &str) -> ExitCode {
    exit_code(io::stdout().lock().write_all(text.as_bytes()))
}

/// Returns the exit code after printing. A closed pipe is not a failure.
fn exit_code(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => failed(&error),
        _ => ExitCode::SUCCESS,
    }
}
