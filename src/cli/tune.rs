//! `tidegate tune`: searches for tiers that meet a goal.

use super::log_args::LogArgs;
use super::output::{OutputPaths, OutputTarget};
use super::progress::{Progress, ReadProgress, progress_bar, time_left};
use super::{CommandError, ConfigArg, load_policy, print};
use crate::service::crawlers;
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_config::{self as config, Settings};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::QuotaId;
use tidegate_policy::quota::Quota;
use tidegate_policy::rng::Rng;
use tidegate_replay::Policy;
use tidegate_replay::log::MergedLog;
use tidegate_replay::terminal::{ColorMode, group_digits, json_document};
use tidegate_replay::tune::report::TuningReport;
use tidegate_replay::tune::{
    ConfigEditor, Goal, GoalContext, GoalError, InMemoryLog, Search, SearchSpace, TuneError, TuneResult, Tuner,
    Unmeasured, summary,
};

/// Arguments of `tune`.
#[derive(Clone, Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    file: ConfigArg,
    /// Goal: terms separated by commas, the most important first, each as WHAT MEASURE <= or >= NUMBER [%]. Measures of a
    /// class: refused, admitted, evenness. Measures of a quota: unused, used. Example: "person refused <= 0, search
    /// admitted >= 90 %, unused <= 2 %"
    #[arg(long, value_name = "GOAL")]
    goal: String,
    /// Quota whose tiers and pacing are varied; required if there are several.
    #[arg(long, value_name = "NAME")]
    quota: Option<String>,
    /// Maximum number of policies tried, the extremes first.
    ///
    /// The command takes as long as this many replays, on all cores.
    #[arg(long, value_name = "NUMBER", default_value = "240", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    max_trials: u16,
    /// Takes this point of the trade-offs instead of the policy nearest to the goal.
    ///
    /// Numbers are stable for the same log, file, goal and --max-trials.
    #[arg(long, value_name = "NUMBER")]
    select: Option<usize>,
    /// Writes the configuration file with the found values; - is standard output, instead of the report.
    ///
    /// The tuned file itself cannot be the output. A changed line ends with `# by tidegate tune`, in place of a comment
    /// that may be wrong now. A value that comes from a YAML anchor or the environment is reported and not changed.
    /// Without this option no file is written.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints the report as one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs `tune`. Exit code 0 if the goal is met or a point was selected; 1 if no tried policy meets it (the nearest is
/// still shown and written) or a result cannot be written; 2 if the goal or a file is invalid.
pub fn run(args: &TuneArgs) -> ExitCode {
    let tuned = tune_and_write(args).and_then(|(tuned, prints_report)| {
        let shown = if prints_report { render_output(args, &tuned.report)? } else { String::new() };
        Ok((shown, tuned.report.met || args.select.is_some()))
    });
    match tuned {
        Ok((shown, met)) => match print(&shown) {
            ExitCode::SUCCESS if !met => ExitCode::from(1),
            code => code,
        },
        Err(error) => error.report(),
    }
}

/// Tunes and writes the file. Returns the result, and false if the file occupies standard output instead of the report.
fn tune_and_write(args: &TuneArgs) -> Result<(TuneResult, bool), CommandError> {
    let file = args.file.path()?;
    let mut outputs = OutputPaths::with_inputs(&args.log.logs, [("--config", Some(file.as_path()))]);
    if args.json {
        outputs.add_output("--json", Path::new("-"))?;
    }
    let target = args.output.as_deref().map(|path| outputs.add_output("--output", path)).transpose()?;
    let prints_report = !target.as_ref().is_some_and(OutputTarget::is_standard_output);
    let tuned = run_tuner(args, &file)?;
    if let Some(target) = target {
        let mut out = target.open()?;
        out.write_all(tuned.text.as_bytes()).map_err(|error| out.failed(&error))?;
        out.finish()?;
    }
    Ok((tuned, prints_report))
}

fn render_output(args: &TuneArgs, report: &TuningReport) -> Result<String, CommandError> {
    match args.json {
        false => Ok(summary::summary(report, ColorMode::for_output(io::stdout().is_terminal()))),
        true => {
            json_document(report).map_err(|error| CommandError::Failed(format!("cannot write the report: {error}")))
        }
    }
}

fn run_tuner(args: &TuneArgs, path: &Path) -> Result<TuneResult, CommandError> {
    let file = config::read_text(path).map_err(|errors| CommandError::Usage(errors.to_string()))?;
    let present = load_policy::from_text(path, &file, crawlers::without_dns).map_err(CommandError::Usage)?;
    let operators = OperatorTable::builtin_names();
    let settings = &present.settings;
    let quota = quota(args, &present)?;
    let goal = goal(args, settings, quota)?;
    let space = SearchSpace::new(settings, quota, &goal).map_err(CommandError::Usage)?;
    let assumptions = args.log.assumption_args.assumptions(&[&present])?;
    let progress = Progress::start();
    let recording = read_log(args, &progress)?;
    let tuner = Tuner {
        log: &recording,
        assumptions: &assumptions,
        goal: &goal,
        space: &space,
        editor: &ConfigEditor::new(&file, settings),
        policy: &present,
        settings: &|text| load_policy::settings(path, text, &operators),
        threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let effort = usize::from(args.max_trials);
    let search = Search { max_evaluations: effort, rng: Rng::from_seed(SEED, "tune") };
    let tuned = tuner.run(search, args.select, &mut |tried| {
        progress.show(|elapsed| {
            let done = tried as f64 / effort as f64;
            let tried = format!("{} of {} policies", group_digits(tried as u64), group_digits(effort as u64));
            format!("{}  {tried}, at most {} left", progress_bar(done), time_left(done, elapsed))
        });
    });
    progress.clear();
    Ok(tuned?)
}

fn read_log(args: &TuneArgs, progress: &Progress) -> Result<InMemoryLog, CommandError> {
    let files = args.log.open()?;
    let reading = ReadProgress::new(&files);
    let lines = MergedLog::new(files.sources, args.log.assumption_args.reorder_window);
    let result = InMemoryLog::read(lines, &mut |lines| progress.show(|elapsed| reading.render(lines, elapsed)));
    progress.clear();
    Ok(result?)
}

/// Returns the tuned quota: one of those that may have tiers and pacing, which budgets have not.
fn quota(args: &TuneArgs, policy: &Policy) -> Result<QuotaId, CommandError> {
    let quotas = &policy.settings.rules.quotas;
    let of_all: Vec<(QuotaId, &str)> = (quotas.iter().enumerate())
        .filter(|(_, quota)| quota.budget.is_none())
        .map(|(index, quota)| (QuotaId::from_index(index), quota.name.as_str()))
        .collect();
    let names = || of_all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let named = |name: &String| of_all.iter().find(|(_, known)| known == name).map(|(id, _)| *id);
    let problem = match (&args.quota, &of_all[..]) {
        (_, []) if quotas.is_empty() => format!("{}: no quota to tune", policy.name),
        (_, []) => format!(
            "{}: no quota to tune: each has a budget for each key (`per`), without tiers and pacing; add a quota without `per`",
            policy.name
        ),
        (None, [(id, _)]) => return Ok(*id),
        (None, _) => format!("--quota: required; name one of the quotas {}", names()),
        (Some(name), _) => match named(name) {
            Some(id) => return Ok(id),
            None if quotas.iter().any(|quota| quota.name == *name) => format!(
                "--quota: {name} has a budget for each key (`per`), without tiers and pacing; name one of the quotas {}",
                names()
            ),
            None => format!("--quota: unknown quota {name:?}; the quotas are {}", names()),
        },
    };
    Err(CommandError::Usage(problem))
}

fn unmeasured(quota: &Quota) -> Option<Unmeasured> {
    match (&quota.budget, quota.window.is_sliding()) {
        (Some(_), _) => Some(Unmeasured::Budgets),
        (None, true) => Some(Unmeasured::Sliding),
        (None, false) => None,
    }
}

fn goal(args: &TuneArgs, settings: &Settings, tuned: QuotaId) -> Result<Goal, CommandError> {
    let rules = &settings.rules;
    let context = GoalContext {
        classes: rules.classes.iter().map(|class| class.name.as_str()).collect(),
        quotas: rules.quotas.iter().map(|quota| (quota.name.as_str(), unmeasured(quota))).collect(),
        default_quota: &rules[tuned].name,
    };
    Goal::read(&args.goal, &context).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(GoalError::to_string).collect();
        CommandError::Usage(lines.join("\n"))
    })
}

impl From<TuneError> for CommandError {
    fn from(error: TuneError) -> Self {
        match error {
            TuneError::Replay(error) => error.into(),
            TuneError::TooLong { .. }
            | TuneError::Edit(_)
            | TuneError::InvalidConfig(_)
            | TuneError::NoSuchPoint { .. } => Self::Usage(error.to_string()),
        }
    }
}
/// Constant, so that the same log gives the same bytes.
const SEED: u64 = 1979;
