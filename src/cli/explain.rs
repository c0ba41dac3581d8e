//! `tidegate explain`: explains a decision and the changes that would admit the request.

mod from_log;
mod log_line;
mod render;
mod target;
mod time_arg;
mod what_if;

pub use render::render;

use super::admin_client::AdminArgs;
use super::log_args::{AssumptionArgs, LogFormatArgs};
use super::status::View;
use super::{CommandError, load_policy, print};
use crate::service::crawlers;
use clap::Args;
use http::Method;
use jiff::tz::TimeZone;
use std::net::IpAddr;
use std::process::ExitCode;
use tidegate_engine::clock::Clock;
use tidegate_replay::explain::{Environment, Explanation, explain};
use tidegate_replay::terminal::json_document;

use from_log::LogReplay;
use target::ExplainTarget;

/// Arguments of `tidegate explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// URL or path of a hypothetical request, or the id of a decision of a running gateway (X-Tidegate-Decision).
    ///
    /// A hypothetical request finds unused quotas unless --used is given, a full bucket, and the current time unless
    /// --at is given. A result that depends on earlier requests is given for both cases. DNS is not queried, signatures
    /// are not verified, and no behavior is known.
    ///
    /// The gateway keeps the last 1,024 decisions of each worker; older ones are in the access log (--log). A decision
    /// is explained by the current configuration; the output says if that would decide otherwise. Options that describe
    /// a request are an error with an id.
    #[arg(value_name = "URL or ID")]
    what: Option<String>,
    /// Line of an access log to explain; the lines before it are replayed. Repeat for earlier files of the log.
    ///
    /// Accepts all formats that `replay` reads, plain or compressed. If earlier lines are in other files,
    /// name these without a line: --log access.log.1 --log access.log:4711. If the pacing plan refused the line, the
    /// log is also replayed with a limit larger by 10, 25, 50 and 100 %, and with two and four times the weight of the
    /// class, until one admits the line.
    #[arg(long, value_name = "FILE:LINE", conflicts_with_all = ["what", "ip", "user_agent", "header", "method", "at"])]
    log: Vec<String>,
    /// Peer address; required for a hypothetical request. It is the client, or a trusted proxy that sends its address.
    #[arg(long, value_name = "IP")]
    ip: Option<IpAddr>,
    /// User agent of the request (default: none).
    #[arg(long, value_name = "UA")]
    user_agent: Option<String>,
    /// Header of the request, such as an API key, or X-Forwarded-For if --ip is a trusted proxy. Repeatable.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Method of the request (default: GET).
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Used units of a quota, or percent of its limit (default: 0). With --log, replaces the replayed usage.
    #[arg(long, value_name = "QUOTA=N or N%")]
    used: Vec<String>,
    /// Time of the request, such as 2026-11-21T14:00, or 14:00 for today (default: now).
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Prints one JSON document, as GET /api/v1/decisions/{id}/explanation of the admin API does.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: LogFormatArgs,
    #[command(flatten)]
    assumption_args: Option<AssumptionArgs>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Explains a decision and prints the explanation.
pub fn run(args: &ExplainArgs) -> ExitCode {
    match explanation(args).and_then(|explanation| render_output(&explanation, args.json)) {
        Ok(text) => print(&text),
        Err(error) => error.report(),
    }
}

fn explanation(args: &ExplainArgs) -> Result<Explanation, CommandError> {
    match ExplainTarget::from_args(args).map_err(CommandError::Usage)? {
        ExplainTarget::Decision(id) => {
            let body = args.admin.request(Method::GET, &format!("/api/v1/decisions/{id}/explanation"), "")?;
            let describe = |error| {
                format!("unreadable response of the gateway: {error}; check that it has the version of this command")
            };
            serde_json::from_str(&body).map_err(|error| CommandError::Failed(describe(error)))
        }
        ExplainTarget::Line(line) => {
            let file = args.admin.file.path()?;
            let policy = load_policy::read(&file, crawlers::without_dns).map_err(CommandError::Usage)?;
            target::parse_used_options(args, Environment::from(&policy)).map_err(CommandError::Usage)?;
            line.check(&args.format.options()).map_err(CommandError::Usage)?;
            let log = LogReplay { args, line: &line };
            let mut explanation = log.explain_with(&policy)?;
            explanation.remedies.extend(what_if::remedies(&log, &file, &policy, &explanation)?);
            Ok(explanation)
        }
        ExplainTarget::Hypothetical(url) => {
            let policy =
                load_policy::read(&args.admin.file.path()?, crawlers::operators).map_err(CommandError::Usage)?;
            let environment = Environment::from(&policy);
            let request = target::hypothetical(args, url, environment, Clock::system().now(), &TimeZone::system())
                .map_err(CommandError::Usage)?;
            let input = request.into_input(environment).map_err(|error| CommandError::Usage(error.to_string()))?;
            Ok(explain(&input))
        }
    }
}

fn render_output(explanation: &Explanation, json: bool) -> Result<String, CommandError> {
    match json {
        true => json_document(explanation).map_err(|error| CommandError::Failed(error.to_string())),
        false => Ok(render(explanation, &View::for_stdout())),
    }
}
