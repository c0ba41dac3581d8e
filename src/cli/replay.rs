//! `tidegate replay`: what a policy would have done with the requests of a log.

use super::log_args::LogArgs;
use super::output::{Output, OutputPaths, OutputTarget};
use super::progress::{Progress, ReadProgress};
use super::{CommandError, ConfigArg, load_policy, print};
use crate::replay::log::{Counts, MergedLog};
use crate::replay::report::Report;
use crate::replay::{Replay, page, summary};
use crate::service::crawlers;
use crate::terminal::ColorMode;
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a replay is told on the command line.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    file: ConfigArg,
    /// Another policy, set beside it: both decide about the same lines.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Writes the whole report there, as one JSON document; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the report there, as one page with charts for a browser; - is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes each verdict there, of both policies, as one line of JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    verdicts: Option<PathBuf>,
}

/// Replays. Exit code 2 where a file is wrong, or cannot be read to its end.
pub fn run(args: &ReplayArgs) -> ExitCode {
    match replayed(args) {
        Ok(Some(report)) => print(&summary::summary(&report, ColorMode::for_output(io::stdout().is_terminal()))),
        Ok(None) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(),
    }
}

/// Writes what is asked for. Returns what is to be said of it, unless a document has standard output for itself.
fn replayed(args: &ReplayArgs) -> Result<Option<Report>, CommandError> {
    let file = args.file.path()?;
    let targets = Targets::of(args, &file)?;
    let is_told = targets.leave_standard_output();
    let policy = |file| load_policy::read(file, crawlers::without_dns).map_err(CommandError::Usage);
    let (policy, other) = (policy(&file)?, args.compare.as_deref().map(policy).transpose()?);
    let both: Vec<_> = std::iter::once(&policy).chain(&other).collect();
    let assumptions = args.log.taken.assumptions(&both)?;
    let files = args.log.open()?;
    let [mut verdicts, json, html] = targets.open()?;
    let (progress, reading) = (Progress::begin(), ReadProgress::of(&files));
    let replay = Replay {
        files: files.sources.iter().map(|source| source.name.clone()).collect(),
        lines: MergedLog::new(files.sources, args.log.taken.window),
        window: args.log.taken.window,
        assumptions,
    };
    let watch = &mut |counts: &Counts| progress.show(|elapsed| reading.render(counts.lines, elapsed));
    let report = replay.run(policy, other, verdicts.as_mut().map(|out| out as &mut dyn Write), watch);
    progress.clear();
    let report = report?;
    if let Some(mut out) = json {
        let written = serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from);
        written.and_then(|()| out.write_all(b"\n")).map_err(|error| out.failed(&error))?;
        out.finish()?;
    }
    if let Some(mut out) = html {
        out.write_all(page::page(&report).as_bytes()).map_err(|error| out.failed(&error))?;
        out.finish()?;
    }
    verdicts.map_or(Ok(()), Output::finish)?;
    Ok(is_told.then_some(report))
}

/// Where verdicts, report and page go.
struct Targets([Option<OutputTarget>; 3]);

impl Targets {
    fn of(args: &ReplayArgs, file: &Path) -> Result<Self, CommandError> {
        let read = [("--config", Some(file)), ("--compare", args.compare.as_deref())];
        let mut places = OutputPaths::with_inputs(&args.log.logs, read);
        let mut target =
            |option, path: &Option<PathBuf>| path.as_deref().map(|path| places.add_output(option, path)).transpose();
        let verdicts = target("--verdicts", &args.verdicts)?;
        Ok(Self([verdicts, target("--json", &args.json)?, target("--html", &args.html)?]))
    }

    fn leave_standard_output(&self) -> bool {
        !self.0.iter().flatten().any(OutputTarget::is_standard_output)
    }

    fn open(self) -> Result<[Option<Output>; 3], CommandError> {
        let [verdicts, json, html] = self.0.map(|target| target.map(OutputTarget::open).transpose());
        Ok([verdicts?, json?, html?])
    }
}
