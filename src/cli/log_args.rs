//! Arguments of all commands that replay access logs: the logs, and assumptions about facts that they lack.

use super::CommandError;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use tidegate_config as config;
use tidegate_policy::Units;
use tidegate_replay::log::LogFiles;
use tidegate_replay::{Assumptions, Policy, RetryModel};

/// Access logs and assumptions.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Access logs: combined, common, or the gateway's own format; plain, gzip, zstd or bzip2; - is standard input.
    #[arg(required = true, value_name = "LOG")]
    pub(super) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) assumption_args: AssumptionArgs,
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
        LogFiles::open(&self.logs).map_err(|error| CommandError::Usage(error.to_string()))
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
            reorder_window: Duration::from_secs(60),
        }
    }
}

impl AssumptionArgs {
    /// Returns the assumptions. Fails if a route with an actual cost is in none of the `policies`.
    pub(super) fn assumptions(&self, policies: &[&Policy]) -> Result<Assumptions, CommandError> {
        for (route, _) in &self.actual_cost {
            let has_route = |policy: &&Policy| policy.settings.rules.routes.iter().any(|known| known.name == *route);
            if !policies.iter().any(has_route) {
                return Err(CommandError::Usage(format!(
                    "--actual-cost: unknown route {route:?}; name it as its `match` is written"
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
        })
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
