//! `tidegate replay`: what a policy would have done with the requests of a log.

use super::log::LogArgs;
use super::progress::{Progress, Reading};
use super::{DEFAULT_FILE, Trouble, create, policy, print};
use crate::replay::log::{Counts, Merged};
use crate::replay::report::Report;
use crate::replay::{Replay, page, summary};
use crate::service::crawlers;
use crate::terminal::Ink;
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a replay is told on the command line.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    log: LogArgs,
    /// The policy that is tried.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// Another policy, set beside it: both decide about the same lines.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Writes the whole report there, as one JSON document.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the report there, as one page with charts for a browser.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes each verdict there, as one line of JSON.
    #[arg(long, value_name = "FILE")]
    verdicts: Option<PathBuf>,
}

/// Replays. Exit code 2 where a file is wrong, 1 where it cannot be read to its end.
pub fn run(args: &ReplayArgs) -> ExitCode {
    match report(args) {
        Ok(report) => print(&summary::summary(&report, Ink::of_output(io::stdout().is_terminal()))),
        Err(trouble) => trouble.tell(),
    }
}

fn report(args: &ReplayArgs) -> Result<Report, Trouble> {
    let policy = |file| policy::read(file, crawlers::without_dns).map_err(Trouble::Wrong);
    let (policy, other) = (policy(&args.config)?, args.compare.as_deref().map(policy).transpose()?);
    let both: Vec<_> = std::iter::once(&policy).chain(&other).collect();
    let assumptions = args.log.assumptions(&both)?;
    let files = args.log.open()?;
    let verdicts = args.verdicts.as_deref().map(create).transpose()?;
    let json = args.json.as_deref().map(create).transpose()?;
    let html = args.html.as_deref().map(create).transpose()?;
    let (progress, reading) = (Progress::begin(), Reading::of(&files));
    let replay = Replay {
        files: files.sources.iter().map(|source| source.name.clone()).collect(),
        lines: Merged::new(files.sources, args.log.window),
        window: args.log.window,
        assumptions,
    };
    let watch = &mut |counts: &Counts| progress.show(|elapsed| reading.drawn(counts.lines, elapsed));
    let report = replay.run(policy, other, verdicts, watch);
    progress.clear();
    let report = report?;
    if let Some(mut file) = json {
        let written = serde_json::to_writer_pretty(&mut file, &report).map_err(io::Error::from);
        let written = written.and_then(|()| file.write_all(b"\n")).and_then(|()| file.flush());
        written.map_err(|error| Trouble::Failed(format!("the report cannot be written: {error}")))?;
    }
    if let Some(mut file) = html {
        let written = file.write_all(page::page(&report).as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| Trouble::Failed(format!("the page cannot be written: {error}")))?;
    }
    Ok(report)
}
