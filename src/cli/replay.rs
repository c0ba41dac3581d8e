//! `tidegate replay`: replays access logs through a policy.

use super::log_args::LogArgs;
use super::output::{Output, OutputPaths, OutputTarget};
use super::progress::{Progress, ReadProgress};
use super::{CommandError, ConfigArg, load_policy, print};
use crate::service::crawlers;
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_replay::log::MergedLog;
use tidegate_replay::report::Report;
use tidegate_replay::terminal::{ColorMode, json_document};
use tidegate_replay::{Replay, page, summary};

/// Arguments of `replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    file: ConfigArg,
    /// Compares with another configuration file on the same lines.
    ///
    /// A client may be in another class under the second policy, because responses affect its classification. Requests
    /// that only one policy refuses are counted by their class under that policy.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Writes the report as one JSON document; - is standard output, which then contains nothing else.
    ///
    /// An existing file is replaced only once the report is complete. An input or another output is never overwritten
    /// (exit code 2).
    ///
    /// Times are in UTC. `costly` requests are those of routes with a cost. A window's `used` includes usage from
    /// before the log, if the log contains it. `first_refused` ignores classes that are refused from the first unit.
    /// `overrun` is what the origin charged beyond the limit. `worst` and `best` are hours with at least ten costly
    /// requests. `other_class` counts lines whose client is in another class under the second policy. `corrections`
    /// counts how often the logged usage differs from what its requests explain.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the report as one HTML page with charts; - is standard output, which then contains nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes one JSON line per decision of each policy; - is standard output, which then contains nothing else.
    ///
    /// `cost` is what was charged, or what a refused request would have been charged. `tier` is the highest tier of the
    /// class in any quota, null if the request costs nothing. A refusal by `ledger` names no quotas. `tidegate explain
    /// --used QUOTA=... --at` accepts `used` and `time` as they are.
    #[arg(long, value_name = "FILE")]
    verdicts: Option<PathBuf>,
}

/// Runs `replay`. Exit code 2 if a file is invalid or cannot be read to its end.
pub fn run(args: &ReplayArgs) -> ExitCode {
    match run_replay(args) {
        Ok(Some(report)) => print(&summary::summary(&report, ColorMode::for_output(io::stdout().is_terminal()))),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// Replays and writes the requested documents. Returns the report, or `None` if a document occupies standard output.
fn run_replay(args: &ReplayArgs) -> Result<Option<Report>, CommandError> {
    let file = args.file.path()?;
    // A conflict of paths is reported before anything is read; files are opened only once all inputs are valid.
    let targets = OutputTargets::from_args(args, &file)?;
    let prints_summary = targets.has_free_stdout();
    let read_policy = |file| load_policy::read(file, crawlers::without_dns).map_err(CommandError::Usage);
    let policy = read_policy(&file)?;
    let other = args.compare.as_deref().map(read_policy).transpose()?;
    let policies: Vec<_> = std::iter::once(&policy).chain(&other).collect();
    let assumptions = args.log.assumption_args.assumptions(&policies)?;
    let files = args.log.open()?;
    let Outputs { mut verdicts, json, html } = targets.open()?;
    let progress = Progress::start();
    let reading = ReadProgress::new(&files);
    let replay = Replay {
        files: files.sources.iter().map(|source| source.name.clone()).collect(),
        lines: MergedLog::new(files.sources, args.log.assumption_args.reorder_window),
        reorder_window: args.log.assumption_args.reorder_window,
        assumptions,
    };
    let on_progress = &mut |lines| progress.show(|elapsed| reading.render(lines, elapsed));
    let report = replay.run(policy, other, verdicts.as_mut().map(|out| out as &mut dyn Write), on_progress);
    progress.clear();
    let report = report?;
    if let Some(out) = json {
        write_json(out, &report)?;
    }
    if let Some(out) = html {
        write_html(out, &report)?;
    }
    if let Some(out) = verdicts {
        out.finish()?;
    }
    Ok(prints_summary.then_some(report))
}

fn write_json(mut out: Output, report: &Report) -> Result<(), CommandError> {
    let json = json_document(report).map_err(io::Error::from);
    json.and_then(|json| out.write_all(json.as_bytes())).map_err(|error| out.failed(&error))?;
    out.finish()
}

fn write_html(mut out: Output, report: &Report) -> Result<(), CommandError> {
    out.write_all(page::page(report).as_bytes()).map_err(|error| out.failed(&error))?;
    out.finish()
}

/// Requested outputs of `replay`, not yet opened.
struct OutputTargets {
    verdicts: Option<OutputTarget>,
    json: Option<OutputTarget>,
    html: Option<OutputTarget>,
}

/// Open outputs of `replay`.
struct Outputs {
    verdicts: Option<Output>,
    json: Option<Output>,
    html: Option<Output>,
}

impl OutputTargets {
    fn from_args(args: &ReplayArgs, file: &Path) -> Result<Self, CommandError> {
        let inputs = [("--config", Some(file)), ("--compare", args.compare.as_deref())];
        let mut outputs = OutputPaths::with_inputs(&args.log.logs, inputs);
        let mut target =
            |option, path: &Option<PathBuf>| path.as_deref().map(|path| outputs.add_output(option, path)).transpose();
        Ok(Self {
            verdicts: target("--verdicts", &args.verdicts)?,
            json: target("--json", &args.json)?,
            html: target("--html", &args.html)?,
        })
    }

    /// Returns true if no output occupies standard output.
    fn has_free_stdout(&self) -> bool {
        let mut targets = [&self.verdicts, &self.json, &self.html].into_iter().flatten();
        !targets.any(OutputTarget::is_standard_output)
    }

    fn open(self) -> Result<Outputs, CommandError> {
        let open = |target: Option<OutputTarget>| target.map(OutputTarget::open).transpose();
        Ok(Outputs { verdicts: open(self.verdicts)?, json: open(self.json)?, html: open(self.html)? })
    }
}
