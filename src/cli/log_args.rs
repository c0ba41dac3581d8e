//! Access logs on the command line, and what is taken for true where they are silent: the same for all who replay them.

use super::CommandError;
use crate::config;
use crate::policy::Units;
use crate::replay::log::LogFiles;
use crate::replay::{Assumptions, Policy, RetryModel};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Which logs, and how to take them.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Access logs: combined, common, or the gate's own; plain or .gz; - is standard input.
    #[arg(required = true, value_name = "LOG")]
    pub(super) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) taken: AssumptionArgs,
}

/// What is taken for true where logs are silent.
#[derive(Clone, Debug, Args)]
pub struct AssumptionArgs {
    /// What a request of a route really costs, of each of its quotas, where the log does not say: /item/*=0.8
    #[arg(long = "cost", value_name = "ROUTE=UNITS", value_parser = cost)]
    costs: Vec<(String, Units)>,
    /// The site keeps its own pages: one that was fetched costs nothing for this long, such as 14d.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    cache_ttl: Option<Duration>,
    /// How long a request holds what was set aside for it, where the log does not say.
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "200ms")]
    latency: Duration,
    /// What clients do that are refused.
    #[arg(long, value_enum, default_value_t = RetryModelArg::Ignore)]
    clients: RetryModelArg,
    /// By how much lines may be out of order; later ones are taken at the latest time before them.
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "60s")]
    pub(super) window: Duration,
}

/// What clients do that are refused.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RetryModelArg {
    /// What the log says: each request comes once, at its time
    #[value(name = "deaf")]
    Ignore,
    /// Bots stay away until Retry-After has passed, then ask for it again and for what they would have asked meanwhile
    Obey,
    /// Verified bots obey, all others are deaf
    #[value(name = "as-known")]
    VerifiedOnly,
}

impl LogArgs {
    /// Opens the files.
    pub(super) fn open(&self) -> Result<LogFiles, CommandError> {
        LogFiles::open(&self.logs).map_err(|error| CommandError::Usage(error.to_string()))
    }
}

impl Default for AssumptionArgs {
    /// As where nothing is said.
    fn default() -> Self {
        let Assumptions { cache_ttl, latency, costs, .. } = Assumptions::default();
        Self { costs, cache_ttl, latency, clients: RetryModelArg::Ignore, window: Duration::from_secs(60) }
    }
}

impl AssumptionArgs {
    /// What is taken for true. Each route whose cost is told is one of some policy.
    pub(super) fn assumptions(&self, policies: &[&Policy]) -> Result<Assumptions, CommandError> {
        for (route, _) in &self.costs {
            let known = |policy: &&Policy| policy.settings.rules.routes.iter().any(|known| known.name == *route);
            if !policies.iter().any(known) {
                return Err(CommandError::Usage(format!(
                    "--cost: there is no route {route:?}; name one as its `match` is written"
                )));
            }
        }
        Ok(Assumptions {
            cache_ttl: self.cache_ttl,
            latency: self.latency,
            clients: self.clients.into(),
            costs: self.costs.clone(),
        })
    }
}

fn span(text: &str) -> Result<Duration, String> {
    config::duration(text).ok_or_else(|| "write a span such as 200ms, 60s or 14d".to_owned())
}

fn cost(text: &str) -> Result<(String, Units), String> {
    let (route, units) = text.rsplit_once('=').ok_or("write ROUTE=UNITS, such as /item/*=0.8")?;
    let units = units.parse().map_err(|_| format!("{units:?} is no amount; write a number such as 0.8"))?;
    Ok((route.to_owned(), units))
}

impl From<RetryModelArg> for RetryModel {
    fn from(reaction: RetryModelArg) -> Self {
        match reaction {
            RetryModelArg::Ignore => Self::Ignore,
            RetryModelArg::Obey => Self::Obey,
            RetryModelArg::VerifiedOnly => Self::VerifiedOnly,
        }
    }
}
