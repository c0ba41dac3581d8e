//! `tidegate learn`: writes into the state directory what a gateway would have learned from access logs.

use super::log_args::LogArgs;
use super::progress::{Progress, ReadProgress};
use super::{CommandError, ConfigArg, load_policy, print};
use crate::service::crawlers;
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::LearnedDemand;
use tidegate_engine::baseline_store::BaselineStore;
use tidegate_engine::demand_store::DemandStore;
use tidegate_engine::state_lock::{StateLock, StateLockError};
use tidegate_policy::Rules;
use tidegate_replay::LearnedState;
use tidegate_replay::learn::{LearnReport, summary};
use tidegate_replay::log::MergedLog;
use tidegate_replay::terminal::{ColorMode, json_document};
use tidegate_replay::{Assumptions, LogLearning, Policy, Replay};

/// Arguments of `learn`.
#[derive(Clone, Debug, Args)]
pub struct LearnArgs {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    file: ConfigArg,
    /// Replaces what a gateway or an earlier `learn` has stored.
    ///
    /// The demand of quotas without a request in the log is kept, and the baseline if the log shows none.
    #[arg(long)]
    replace: bool,
    /// Prints the report as one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs `learn`. Exit code 2 if a file is invalid, cannot be read to its end, or would be replaced without `--replace`; 1 if
/// a gateway runs on the state directory or the result cannot be written.
pub fn run(args: &LearnArgs) -> ExitCode {
    match learn(args).and_then(|report| render_output(args, &report)) {
        Ok(text) => print(&text),
        Err(error) => error.report(),
    }
}

fn learn(args: &LearnArgs) -> Result<LearnReport, CommandError> {
    let policy = load_policy::read(&args.file.path()?, crawlers::without_dns).map_err(CommandError::Usage)?;
    check_learns(&policy)?;
    let assumptions = args.log.assumption_args.assumptions(&[&policy])?;
    let rules = Arc::clone(&policy.settings.rules);
    let target = LearnedFiles::new(&policy.settings.state_dir, &policy.operators);
    // Checked before the log is read, which may take minutes. The lock is not held meanwhile: a gateway may start.
    target.check_unused_dir()?;
    target.check_replaceable(args.replace)?;
    let learning = read_log(args, policy, assumptions)?;
    let written = target.write(&learning, &rules, args.replace)?;
    Ok(learning.into_report(&rules, written))
}

/// Returns an error if a gateway with this policy learns nothing.
fn check_learns(policy: &Policy) -> Result<(), CommandError> {
    let rules = &policy.settings.rules;
    if rules.bot_detection.is_some() || rules.quotas.iter().any(|quota| quota.pacing.is_some()) {
        return Ok(());
    }
    let name = &policy.name;
    Err(CommandError::Usage(format!(
        "{name}: no quota is paced and bot_detection is disabled, so there is nothing to learn; write pacing: learned in a quota"
    )))
}

fn read_log(args: &LearnArgs, policy: Policy, assumptions: Assumptions) -> Result<LogLearning, CommandError> {
    let files = args.log.open()?;
    let (progress, reading) = (Progress::start(), ReadProgress::new(&files));
    let reorder_window = args.log.assumption_args.reorder_window;
    let replay = Replay {
        files: files.sources.iter().map(|source| source.name.clone()).collect(),
        lines: MergedLog::new(files.sources, reorder_window),
        reorder_window,
        assumptions,
    };
    let on_progress = &mut |lines| progress.show(|elapsed| reading.render(lines, elapsed));
    let learning = replay.learn(policy, on_progress);
    progress.clear();
    Ok(learning?)
}

fn render_output(args: &LearnArgs, report: &LearnReport) -> Result<String, CommandError> {
    match args.json {
        false => Ok(summary::summary(report, ColorMode::for_output(io::stdout().is_terminal()))),
        true => {
            json_document(report).map_err(|error| CommandError::Failed(format!("cannot write the report: {error}")))
        }
    }
}

/// Files of a state directory with what a gateway learns.
struct LearnedFiles {
    state_dir: PathBuf,
    demand: DemandStore,
    baseline: BaselineStore,
}

impl LearnedFiles {
    fn new(state_dir: &Path, operators: &OperatorTable) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            demand: DemandStore::new(state_dir, operators.names()),
            baseline: BaselineStore::new(state_dir),
        }
    }

    /// Returns an error if the directory exists and cannot be locked.
    fn check_unused_dir(&self) -> Result<(), CommandError> {
        match self.state_dir.exists() {
            true => self.lock().map(drop),
            false => Ok(()),
        }
    }

    fn lock(&self) -> Result<StateLock, CommandError> {
        let dir = self.state_dir.display();
        StateLock::exclusive(&self.state_dir).map_err(|error| match error {
            StateLockError::Locked => CommandError::Failed(format!(
                "state_dir: {dir} is in use by a running gateway, which would overwrite what is learned; stop it, \
                 run learn, and start it again"
            )),
            StateLockError::Other(error) => CommandError::Failed(format!(
                "state_dir: cannot use {dir}: {error}; run learn as the user of the gateway, in its working directory"
            )),
        })
    }

    /// Returns an error if a file exists and must not be replaced.
    fn check_replaceable(&self, replace: bool) -> Result<(), CommandError> {
        let existing = [self.demand.path(), self.baseline.path()].into_iter().filter(|path| path.exists());
        let names: Vec<String> = existing.map(|path| path.display().to_string()).collect();
        if replace || names.is_empty() {
            return Ok(());
        }
        let verb = if names.len() == 1 { "exists" } else { "exist" };
        let names = names.join(" and ");
        Err(CommandError::Usage(format!(
            "{names}: already {verb}, from a gateway or an earlier learn; keep it, or replace it with --replace"
        )))
    }

    /// Writes what was learned, unless it is nothing. Returns the files written.
    fn write(&self, learning: &LogLearning, rules: &Rules, replace: bool) -> Result<Vec<String>, CommandError> {
        let LearnedState { demand, baseline } = learning.state();
        let has_baseline = rules.bot_detection.is_some() && !baseline.is_empty();
        if demand.is_empty() && !has_baseline {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        // A gateway may have run while the log was read.
        self.check_replaceable(replace)?;
        let mut written = Vec::new();
        if !demand.is_empty() {
            let saved = self.demand.save(&self.with_other_quotas(demand));
            written.push(written_path(self.demand.path(), saved)?);
        }
        if has_baseline {
            written.push(written_path(self.baseline.path(), self.baseline.save(&baseline))?);
        }
        Ok(written)
    }

    /// Adds the stored demand of quotas that `learned` lacks. A damaged file has none.
    fn with_other_quotas(&self, learned: Vec<LearnedDemand>) -> Vec<LearnedDemand> {
        let mut stored = self.demand.restore().unwrap_or_default();
        stored.retain(|stored| learned.iter().all(|learned| learned.quota != stored.quota));
        [learned, stored].concat()
    }
}

/// Returns the absolute path of a file that was `saved`.
fn written_path(path: &Path, saved: io::Result<()>) -> Result<String, CommandError> {
    saved.map_err(|error| {
        CommandError::Failed(format!("state_dir: cannot write {}: {error}; free space there", path.display()))
    })?;
    Ok(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string())
}
