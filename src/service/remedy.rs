//! What would have kept a promise: a replay of the gateway's own access log, on a thread of the lowest priority.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::AccessLog;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::promise::Promise;
use tidegate_policy::quota::Quota;
use tidegate_replay::init::Logs;
use tidegate_replay::init::plan::{Plan, PlanOptions, QUOTA, plan};
use tidegate_replay::log::LogOptions;
use tidegate_replay::terminal::group_digits;

/// Largest access log that is replayed. It takes some seconds of one core, and as much memory as it is long.
const MAX_LOG_BYTES: u64 = 128 << 20;

/// Length of the windows that `plan` proposes.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Text of a search without a result.
pub(super) const UNKNOWN_REMEDY: &str = "What would have kept it is not known";

/// Lowest priority: the thread runs when no other does.
const NICENESS: i32 = 19;

/// A search for the policy that would have kept a promise.
pub(super) struct RemedySearch {
    log: Option<PathBuf>,
    /// Name of the quota; `None` if `plan` proposes no policy like this one: it knows one quota of a day.
    quota: Option<String>,
    options: PlanOptions,
    promise: Promise,
    agents: Arc<UserAgentMatcher>,
    operators: Arc<OperatorTable>,
}

impl RemedySearch {
    /// Prepares the search for the first quota of `settings`.
    pub(super) fn new(settings: &Settings, agents: Arc<UserAgentMatcher>, operators: Arc<OperatorTable>) -> Self {
        let log = match &settings.log.access {
            AccessLog::File { path, .. } => Some(path.clone()),
            AccessLog::Off | AccessLog::Stdout => None,
        };
        let is_daily = |quota: &&Quota| {
            let window = &quota.window;
            window.nominal_length() == DAY && window.first_use_length().is_none() && !window.is_sliding()
        };
        let quota = match &settings.rules.quotas[..] {
            [quota] => Some(quota).filter(is_daily),
            _ => None,
        };
        let zone = quota.and_then(|quota| quota.window.zone()).map(str::to_owned);
        let limit = quota.map(|quota| (quota.limit.milli() / 1000).max(1));
        // The line of the origin is left out of the text.
        let options = PlanOptions { origin: "http://127.0.0.1".into(), limit, zone };
        let quota = quota.map(|quota| quota.name.clone());
        Self { log, quota, options, promise: settings.promise, agents, operators }
    }

    /// Returns what would have kept the promise, as sentences and lines of YAML. Lowers the priority of the calling thread.
    pub(super) fn run(&self) -> String {
        // Without the permission, the thread competes with the control thread alone.
        let _ = rustix::process::nice(NICENESS);
        let Some(log) = &self.log else {
            return "Without an access log in a file, it is not known what would have kept it.".to_owned();
        };
        let Some(quota) = &self.quota else {
            return "What would have kept it is looked for with one quota of a day alone; `tidegate replay` tries \
                    settings on the access log."
                .to_owned();
        };
        match self.try_run(log, quota) {
            Ok(text) => text,
            Err(error) => format!("{UNKNOWN_REMEDY}: {error}."),
        }
    }

    fn try_run(&self, log: &Path, quota: &str) -> Result<String, String> {
        let length = std::fs::metadata(log).map_err(|error| format!("{}: {error}", log.display()))?.len();
        if length > MAX_LOG_BYTES {
            return Err(format!("{} is larger than 128 MiB; run `tidegate plan` on it", log.display()));
        }
        let logs = Logs::from_paths(&[log.to_owned()], &LogOptions::default()).map_err(|error| error.to_string())?;
        let plan = |limit| {
            let options = PlanOptions { limit, ..self.options.clone() };
            plan(&logs, &options, &self.agents, &self.operators).map_err(|error| error.to_string())
        };
        let Plan { yaml, promise, .. } = plan(self.options.limit)?;
        if promise.calls.is_some() {
            return Err(
                "the access log is that of a model API, of which `tidegate plan` promises no such figures".to_owned()
            );
        }
        if self.promise.missed(&promise.figures()).is_empty() {
            let own_lines = ["#", "origin:", "clients:", "promise:"];
            let lines: Vec<&str> =
                yaml.lines().filter(|line| !own_lines.iter().any(|own| line.starts_with(own))).collect();
            return Ok(format!(
                "By a replay of the access log, these lines would have kept it:\n{}\n",
                lines.join("\n").replace(&format!("{{ {QUOTA}: "), &format!("{{ {quota}: "))
            ));
        }
        let Plan { promise, limit, .. } = plan(None)?;
        let limit = group_digits(limit);
        Ok(match self.promise.missed(&promise.figures()).is_empty() {
            true => {
                format!("By a replay of the access log, no settings keep it at this limit; {limit} units a day would.")
            }
            false => "By a replay of the access log, neither other settings nor a higher limit would have kept it; \
                      `tidegate status` says by which rules people were refused."
                .to_owned(),
        })
    }
}
