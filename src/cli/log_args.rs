//! Arguments of all commands that replay access logs: the logs, and assumptions about facts that they lack.

use super::CommandError;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_config as config;
use tidegate_engine::baseline_store::BaselineStore;
use tidegate_engine::demand_store::DemandStore;
use tidegate_policy::Units;
use tidegate_replay::log::{LogFieldName, LogFiles, LogFormat, LogOptions};
use tidegate_replay::{Assumptions, LearnedState, Policy, RetryModel};

/// Access logs and assumptions.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Access logs; plain, gzip, zstd or bzip2; - is standard input.
    #[arg(required = true, value_name = "LOG")]
    pub(super) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) format: LogFormatArgs,
    #[command(flatten)]
    pub(super) assumption_args: AssumptionArgs,
}

/// Format of the logs, if it is not detected.
#[derive(Clone, Debug, Default, Args)]
pub struct LogFormatArgs {
    /// Format of the logs, if it is not detected: a format string of nginx (log_format), Apache (LogFormat) or HAProxy, or a
    /// name. Example: '$remote_addr [$time_local] "$request" $status'
    ///
    /// Names are combined (also common, and the gateway's own log), caddy, traefik, cloudflare, json, haproxy, alb, elb and
    /// w3c. A format string of nginx that writes JSON and a line #Fields: of a W3C log are format strings, too. The report
    /// says which format was found, with which columns, and what could not be read.
    #[arg(long, value_name = "FORMAT")]
    format: Option<LogFormat>,
    /// Name that a log gives a field. Example: client=remote_addr
    ///
    /// NAME is a name of a JSON object, with a dot for a name within another object, a column of a W3C log, or capture.1 for
    /// the first captured header of HAProxy. FIELD is one of client, forwarded (X-Forwarded-For), time, date, time_of_day,
    /// request, method, uri, path, query, host, protocol, status, bytes, referer, user_agent, latency (in seconds) and tls.
    #[arg(long, value_name = "FIELD=NAME")]
    field: Vec<LogFieldName>,
}

impl LogFormatArgs {
    /// Returns what the arguments say about the format.
    pub(super) fn options(&self) -> LogOptions {
        LogOptions { format: self.format.clone(), fields: self.field.clone() }
    }
}

/// Assumptions about facts that logs lack.
#[derive(Clone, Debug, Args)]
pub struct AssumptionArgs {
    /// Actual cost of a request of a route, of each of its quotas, if the log lacks it. Example: /item/*=0.8
    ///
    /// ROUTE is written as the `match` of the route. Default: the expected cost.
    #[arg(long, value_name = "ROUTE=UNITS", value_parser = parse_cost)]
    actual_cost: Vec<(String, Units)>,
    /// Time for which the origin caches a page itself; such a page costs nothing. Example: 14d
    ///
    /// This is the origin's own cache, not the section `cache` of the gateway (--max-age).
    /// Pages are distinguished by host, path and query; a million are kept. Default: every response is generated.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    cache_ttl: Option<Duration>,
    /// Lifetime that the origin gives its responses (Cache-Control: max-age), for a simulated cache of the gateway.
    /// Example: 10m
    ///
    /// The section `cache` of the configuration is simulated unless the log names what a cache did. This lifetime
    /// overrides the `ttl` of routes, as that of the origin does. Default: the `ttl` of the route; without both, a
    /// stored response is only sent in place of a refusal.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_age: Option<Duration>,
    /// Time for which a request holds its reservation, if the log lacks the latency.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "200ms")]
    latency: Duration,
    /// Reaction of refused clients.
    #[arg(long, value_enum, default_value_t = RetryModelArg::Ignore)]
    retry_model: RetryModelArg,
    /// Judges the behavior of clients anew in the gateway's own log, in place of the logged verdicts: with other settings of
    /// bot_detection, or another version.
    #[arg(long)]
    reclassify: bool,
    /// State directory with what the gateway had learned before the log: that of `learn`, or of a gateway. Default: nothing
    #[arg(long, value_name = "DIR")]
    learned: Option<PathBuf>,
    /// Lateness up to which lines are sorted.
    ///
    /// Servers write a line when the request is complete. Later lines are counted and take the latest time before them.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
    pub(super) reorder_window: Duration,
}

/// Reaction of refused clients.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RetryModelArg {
    /// Each request occurs once, at its logged time
    Ignore,
    /// Refused bots send nothing until Retry-After has passed, then retry and continue at the intervals of the log;
    /// they drop a page after eight refusals; people do not retry
    Obey,
    /// Verified bots obey, all other clients ignore
    VerifiedOnly,
}

impl LogArgs {
    /// Opens the files.
    pub(super) fn open(&self) -> Result<LogFiles, CommandError> {
        LogFiles::open_with(&self.logs, &self.format.options()).map_err(|error| CommandError::Usage(error.to_string()))
    }
}

impl Default for AssumptionArgs {
    /// Returns the defaults of the options.
    fn default() -> Self {
        let Assumptions { cache_ttl, max_age, latency, .. } = Assumptions::default();
        Self {
            actual_cost: Vec::new(),
            cache_ttl,
            max_age,
            latency,
            retry_model: RetryModelArg::Ignore,
            reclassify: false,
            learned: None,
            reorder_window: Duration::from_secs(60),
        }
    }
}

impl AssumptionArgs {
    /// Returns the assumptions. Fails if a route with an actual cost is in none of the `policies`, or if nothing was learned.
    pub(super) fn assumptions(&self, policies: &[&Policy]) -> Result<Assumptions, CommandError> {
        for (route, _) in &self.actual_cost {
            let has_route = |policy: &&Policy| policy.settings.rules.routes.iter().any(|known| known.name == *route);
            if !policies.iter().any(has_route) {
                return Err(CommandError::Usage(format!(
                    "--actual-cost: unknown route {route:?}; name it as `tidegate check` does"
                )));
            }
        }
        Ok(Assumptions {
            cache_ttl: self.cache_ttl,
            max_age: self.max_age,
            latency: self.latency,
            retry_model: self.retry_model.into(),
            // Of several costs of a route, the first one counts.
            costs: self.actual_cost.iter().rev().cloned().collect(),
            reclassify: self.reclassify,
            learned: self.learned.as_deref().map(|dir| read_learned(dir, policies)).transpose()?.unwrap_or_default(),
        })
    }
}

/// Reads what a gateway or `learn` has stored in its state directory.
fn read_learned(state_dir: &Path, policies: &[&Policy]) -> Result<LearnedState, CommandError> {
    let invalid = |error: String| CommandError::Usage(format!("--learned: {error}"));
    let operators = policies.first().into_iter().flat_map(|policy| policy.operators.names());
    let demand = DemandStore::new(state_dir, operators).read().map_err(|error| invalid(error.to_string()))?;
    let baseline = BaselineStore::new(state_dir).read().map_err(|error| invalid(error.to_string()))?;
    let learned = LearnedState { demand, baseline: baseline.unwrap_or_default() };
    match learned.is_empty() {
        true => Err(invalid(format!(
            "nothing was learned in {}; name the state_dir of a gateway, or write it with `tidegate learn`",
            state_dir.display()
        ))),
        false => Ok(learned),
    }
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    config::duration(text).ok_or_else(|| "write a duration such as 200ms, 60s or 14d".to_owned())
}

fn parse_cost(text: &str) -> Result<(String, Units), String> {
    let (route, units) = text.rsplit_once('=').ok_or("write ROUTE=UNITS, such as /item/*=0.8")?;
    let units = units.parse().map_err(|_| format!("invalid amount {units:?}; write a number such as 0.8"))?;
    Ok((route.to_owned(), units))
}

impl From<RetryModelArg> for RetryModel {
    fn from(arg: RetryModelArg) -> Self {
        match arg {
            RetryModelArg::Ignore => Self::Ignore,
            RetryModelArg::Obey => Self::Obey,
            RetryModelArg::VerifiedOnly => Self::VerifiedOnly,
        }
    }
}
