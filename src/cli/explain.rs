//! `tidegate explain`: why a request is treated as it is, and what would have let it through.

mod from_log;
mod log_line;
mod render;
mod target;
mod time_arg;
mod what_if;

pub use render::render;

use super::admin_client::AdminArgs;
use super::log_args::AssumptionArgs;
use super::status::View;
use super::{CommandError, load_policy, print};
use crate::clock::Clock;
use crate::explain::{Environment, Explanation, explain};
use crate::replay::Policy;
use crate::service::crawlers;
use clap::Args;
use http::Method;
use jiff::tz::TimeZone;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use target::ExplainTarget;

/// Which request.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// What is asked for: a URL, a path, or the id of a decision that a running gate has made (X-Tidegate-Decision).
    #[arg(value_name = "URL or ID")]
    what: Option<String>,
    /// A line of an access log, in place of a request that is made up: the lines before it are replayed. Where these are in
    /// several files, give each, and the number of the line with its own.
    #[arg(long, value_name = "FILE:LINE", conflicts_with_all = ["what", "ip", "user_agent", "header", "method", "at"])]
    log: Vec<String>,
    /// Who connects: the client, or a trusted proxy that says in a header for whom it asks.
    #[arg(long, value_name = "IP")]
    ip: Option<IpAddr>,
    /// Its user agent; without it, none is sent.
    #[arg(long, value_name = "UA")]
    user_agent: Option<String>,
    /// Another header that it sends.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Its method.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// How much of a quota has been used when it comes, in units or percent; of the others, nothing. Of a line of a log it
    /// replaces what the replay finds.
    #[arg(long, value_name = "QUOTA=N or N%")]
    used: Vec<String>,
    /// When it comes, such as 2026-11-21T14:00, or 14:00 for today; now, where nothing is said.
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// As one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    taken: Option<AssumptionArgs>,
    #[command(flatten)]
    gate: AdminArgs,
}

/// Explains what becomes of a request, or what became of it.
pub fn run(args: &ExplainArgs) -> ExitCode {
    match explanation(args).and_then(|explanation| shown(&explanation, args.json)) {
        Ok(text) => print(&text),
        Err(why) => why.report(),
    }
}

fn explanation(args: &ExplainArgs) -> Result<Explanation, CommandError> {
    match ExplainTarget::of(args).map_err(CommandError::Usage)? {
        ExplainTarget::Decision(id) => {
            let said = args.gate.request(Method::GET, &format!("/api/v1/decisions/{id}/explanation"), "")?;
            let unread = |error| format!("the gate's answer cannot be read: {error}; is it of this version?");
            serde_json::from_str(&said).map_err(|error| CommandError::Failed(unread(error)))
        }
        ExplainTarget::Line(line) => from_log::explanation(args, &line),
        ExplainTarget::Hypothetical(url) => with_known(&args.gate.file.path()?, |known| {
            let made_up = target::hypothetical(args, url, known, Clock::system().now(), &TimeZone::system())?;
            made_up.into_input(known).map(|case| explain(&case)).map_err(|mistake| mistake.to_string())
        }),
    }
}

/// Lets `look` see what a gate with this file would know.
fn with_known(
    file: &Path,
    look: impl FnOnce(Environment<'_>) -> Result<Explanation, String>,
) -> Result<Explanation, CommandError> {
    let Policy { settings, operators, agents, lists, .. } =
        load_policy::read(file, crawlers::operators).map_err(CommandError::Usage)?;
    look(Environment { settings: &settings, agents: &agents, operators: &operators, lists: &lists })
        .map_err(CommandError::Usage)
}

fn shown(explanation: &Explanation, json: bool) -> Result<String, CommandError> {
    match json {
        true => serde_json::to_string_pretty(explanation)
            .map(|text| text + "\n")
            .map_err(|error| CommandError::Failed(error.to_string())),
        false => Ok(render(explanation, &View::for_stdout())),
    }
}
