//! `tidegate plan`: proposes a policy of a few lines from access logs, and says what it keeps.

use super::log_args::LogFormatArgs;
use super::output::{OutputPaths, OutputTarget};
use super::{CommandError, init, print};
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_config::{self as config, SettingPath, calendar};
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_replay::init::Logs;
use tidegate_replay::init::plan::{Plan, PlanOptions, plan};
use tidegate_replay::page;
use tidegate_replay::terminal::json_document;

/// Maximum number of units a day.
const MAX_LIMIT: u64 = 1_000_000_000_000;

/// Arguments of `plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// Access logs, plain, gzip, zstd or bzip2; `-` is standard input. The input is read three times, so a pipe is kept in
    /// memory, up to 1 GiB.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    format: LogFormatArgs,
    /// Pages a day that were bought, or tokens of a model API (default: those of the busiest day of the log).
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT))]
    limit: Option<u64>,
    /// IANA name of the time zone in which the day begins, such as America/Los_Angeles (default: by the clock of the log).
    #[arg(long, value_name = "ZONE", value_parser = parse_zone)]
    zone: Option<String>,
    /// URL of the site itself.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:3000")]
    origin: String,
    /// Writes the promise as one JSON document; - is standard output, which then contains nothing else.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes one HTML page with charts of the log under the policy, and without it; - is standard output, which then contains
    /// nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs `plan`. Exit code 2 if the logs are unreadable or contain no requests, or if an option is invalid.
pub fn run(args: &PlanArgs) -> ExitCode {
    match propose(args) {
        Ok(Some(yaml)) => print(&yaml),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// Proposes a policy and writes the requested documents. Returns the policy, or `None` if a document occupies standard output.
fn propose(args: &PlanArgs) -> Result<Option<String>, CommandError> {
    let mut outputs = OutputPaths::with_inputs(&args.logs, []);
    let mut target =
        |option, path: &Option<PathBuf>| path.as_deref().map(|path| outputs.add_output(option, path)).transpose();
    let (json, html) = (target("--json", &args.json)?, target("--html", &args.html)?);
    let has_free_stdout = !json.iter().chain(&html).any(OutputTarget::is_standard_output);
    let operators = Arc::new(OperatorTable::builtin());
    let agents = Arc::new(UserAgentMatcher::builtin(operators.product_tokens()));
    check_origin(&args.origin, &operators)?;
    let options = PlanOptions { origin: args.origin.clone(), limit: args.limit, zone: args.zone.clone() };
    let logs = Logs::from_paths(&args.logs, &args.format.options());
    let logs = logs.map_err(|error| init::command_error(error.into(), &args.logs))?;
    let plan = plan(&logs, &options, &agents, &operators);
    let Plan { yaml, promise, report, .. } = plan.map_err(|error| init::command_error(error, &args.logs))?;
    let figures = json_document(&promise).map_err(io::Error::from);
    let documents = [(json, figures), (html, Ok(page::page_with_promise(&report, &promise.lines())))];
    for (target, document) in documents {
        let Some(target) = target else { continue };
        let mut out = target.open()?;
        document.and_then(|text| out.write_all(text.as_bytes())).map_err(|error| out.failed(&error))?;
        out.finish()?;
    }
    Ok(has_free_stdout.then_some(yaml))
}

fn check_origin(url: &str, operators: &OperatorTable) -> Result<(), CommandError> {
    let names: Vec<&str> = operators.names().collect();
    let option = (SettingPath::ROOT.origin().url(), url.to_owned());
    let settings = config::load(Path::new("(no file)"), "", &[], &[option], &names);
    settings.map(drop).map_err(|errors| CommandError::Usage(errors.to_string()))
}

fn parse_zone(zone: &str) -> Result<String, String> {
    match calendar::is_zone(zone) {
        true => Ok(zone.to_owned()),
        false => Err("unknown time zone; use an IANA name such as America/Los_Angeles".to_owned()),
    }
}
