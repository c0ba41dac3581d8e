//! `tidegate plan`: a policy of a few lines from logs, and what it promises on them.
//!
//! The policy relies on what a file may leave out: classes, pacing, tiers. It states what only the log knows: the limit, its
//! zone, the share of a client, and the paths that are no pages. The promise is measured by a replay of the logs.

mod call_promise;
mod policy_text;
mod promise;
mod share;
#[cfg(test)]
mod tests;
mod token_text;

pub use super::dry_run::QUOTA;
pub use call_promise::CallPromise;
pub use promise::Promise;

use super::analysis::{LogAnalysis, REORDER_WINDOW};
use super::dry_run::DailyDemand;
use super::error::{DryRunError, InitError};
use super::generate::{CLIENT_HEADROOM, QuotaFigures, round_up};
use super::logs::Logs;
use super::self_requests::CRON;
use crate::learned_state::LearnedState;
use crate::log::{LogReadError, MergedLog};
use crate::report::Report;
use crate::terminal::group_digits;
use crate::{Assumptions, Policy, Replay};
use policy_text::PolicyText;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use tidegate_config as config;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use token_text::TokenText;

/// What no log knows. `None` is taken from the log.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// URL of the origin.
    pub origin: String,
    /// Units a day that were bought: pages, or tokens of a model API.
    pub limit: Option<u64>,
    /// IANA name of the time zone in which the day begins.
    pub zone: Option<String>,
}

/// A proposed policy.
pub struct Plan {
    /// The configuration file: the promise as a comment, then the policy.
    pub yaml: String,
    /// What the policy keeps on the logs.
    pub promise: Promise,
    /// Limit of the policy, in units.
    pub limit: u64,
    /// Replay of the logs under the policy, and then without one but the limit.
    pub report: Report,
}

/// Number of calls of the site to itself from which they are taken for that.
const MIN_OWN_CALLS: u64 = 20;

/// Limit of the dry run, in which nothing is refused. No charge is above it.
const DRAFT_LIMIT: u64 = 1_000_000_000_000;

/// One of so many lines may be late: some servers log a long request at its end with the time of its start.
const LATE_LINES_DIVISOR: u64 = 10;

/// Proposes a policy for the site of the logs. Fails if they are not in the order of time: all figures would be wrong.
pub fn plan(
    logs: &Logs,
    options: &PlanOptions,
    agents: &Arc<UserAgentMatcher>,
    operators: &Arc<OperatorTable>,
) -> Result<Plan, InitError> {
    let analysis = LogAnalysis::from_logs(logs, agents, operators)?;
    let (late, total) = (analysis.requests.late_lines, analysis.requests.total);
    if late > total / LATE_LINES_DIVISOR {
        return Err(InitError::NotInOrder { late, total });
    }
    let zone = analysis.time_range.zone();
    let mut free_paths: Vec<String> =
        analysis.asset_extensions().iter().map(|extension| format!("/**/*.{extension}")).collect();
    // A few lines are easily forged.
    let own_calls = analysis.self_requests.busiest().filter(|(_, calls)| *calls >= MIN_OWN_CALLS);
    let health_checks = analysis.health_checks.paths();
    let own_paths = own_calls.map(|_| CRON).into_iter().chain(health_checks.iter().map(|(path, _)| *path));
    free_paths.splice(..0, own_paths.map(str::to_owned));
    let mut policy = PolicyText {
        origin: options.origin.clone(),
        zone: options.zone.clone().unwrap_or_else(|| zone.name.clone()),
        limit: DRAFT_LIMIT,
        per_client: None,
        is_enforced: false,
        free_paths,
        tokens: analysis
            .is_of_model_api()
            .then(|| TokenText { tokens: analysis.model_calls.token_use(), key_limit: DRAFT_LIMIT }),
        promise: None,
    };
    let demand = DailyDemand::replay(&policy.to_string(), policy.quota(), logs, &analysis)?;
    policy.limit = options.limit.unwrap_or_else(|| round_up(demand.busiest).min(DRAFT_LIMIT));
    policy.per_client = Some(QuotaFigures::client_percent(&demand, policy.limit));
    if let Some(tokens) = &mut policy.tokens {
        tokens.key_limit = round_up(demand.busiest_customer * CLIENT_HEADROOM).min(policy.limit);
    }
    policy.is_enforced = true;
    let report = replay(&policy, logs, agents, operators)?;
    let is_less_than_a_day = analysis.time_range.is_less_than_a_day();
    let (own_calls, health_checks) = match policy.tokens {
        Some(_) => (None, Vec::new()),
        None => (own_calls, health_checks),
    };
    let mut promise = Promise::new(&report, &demand, own_calls, &health_checks, is_less_than_a_day);
    promise.calls = policy.tokens.as_ref().map(|TokenText { tokens, .. }| CallPromise::new(&report, tokens.keys));
    let mut yaml = promise.comment(&logs.names(), &policy, options, &zone.remark);
    if late > 0 {
        let _ = writeln!(
            yaml,
            "# {} of the lines are over a minute late, and count as if sent at once: sort the log by time.",
            group_digits(late)
        );
    }
    // Of pages.
    policy.promise = policy.tokens.is_none().then(|| promise.rounded());
    yaml += &policy.to_string();
    Ok(Plan { yaml, promise, limit: policy.limit, report })
}

/// Replays the logs under the policy, as after `tidegate learn`, and under its limit alone.
fn replay(
    policy: &PolicyText,
    logs: &Logs,
    agents: &Arc<UserAgentMatcher>,
    operators: &Arc<OperatorTable>,
) -> Result<Report, InitError> {
    let names: Vec<&str> = operators.names().collect();
    let load = |name: &str, yaml: &str| {
        let settings = config::load(Path::new(name), yaml, &[], &[], &names)
            .map_err(|errors| DryRunError::InvalidConfig(errors.to_string()))?;
        let (operators, user_agents) = (Arc::clone(operators), Arc::clone(agents));
        Ok::<_, DryRunError>(Policy {
            name: name.into(),
            settings,
            operators,
            user_agents,
            lists: Arc::default(),
            network_databases: Arc::default(),
        })
    };
    let replay = |learned: LearnedState| {
        let lines = MergedLog::new(logs.open()?, REORDER_WINDOW);
        let (files, assumptions) = (logs.names(), Assumptions { learned, ..Assumptions::default() });
        Ok::<_, LogReadError>(Replay { files, lines, reorder_window: REORDER_WINDOW, assumptions })
    };
    let with_plan = || load("the plan", &policy.to_string());
    let without_plan = load("the limit alone", &policy.limit_alone())?;
    let learned = replay(LearnedState::default())?.learn(with_plan()?, &mut |_| {})?.state();
    Ok(replay(learned)?.run(with_plan()?, Some(without_plan), None, &mut |_| {})?)
}
