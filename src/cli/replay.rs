//! `tidegate replay`: what a policy would have done with the requests of a log.

use super::{DEFAULT_FILE, failed, policy, print, wrong};
use crate::config;
use crate::policy::Units;
use crate::replay::log::{self, Counts, Merged};
use crate::replay::report::Report;
use crate::replay::{Assumptions, Clients, Failed, Policy, Replay, page, summary};
use crate::service::crawlers;
use crate::terminal::Ink;
use clap::{Args, ValueEnum};
use progress::Progress;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

mod progress;

/// What a replay is told on the command line.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Access logs: combined, common, or the gate's own; plain or .gz; - is standard input.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
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
    #[arg(long, value_enum, default_value_t = Reaction::Deaf)]
    clients: Reaction,
    /// By how much lines may be out of order; later ones are taken at the latest time before them.
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "60s")]
    window: Duration,
}

/// What clients do that are refused.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reaction {
    /// What the log says: each request comes once, at its time
    Deaf,
    /// Bots stay away until Retry-After has passed, then ask for it again and for what they would have asked meanwhile
    Obey,
    /// Verified bots obey, all others are deaf
    AsKnown,
}

/// Why there is no report.
enum Trouble {
    Wrong(String),
    Failed(String),
}

/// Replays. Exit code 2 where a file is wrong, 1 where it cannot be read to its end.
pub fn run(args: &ReplayArgs) -> ExitCode {
    match report(args) {
        Ok(report) => print(&summary::summary(&report, Ink::of_output(io::stdout().is_terminal()))),
        Err(Trouble::Wrong(mistakes)) => wrong(&mistakes),
        Err(Trouble::Failed(why)) => failed(&why),
    }
}

fn report(args: &ReplayArgs) -> Result<Report, Trouble> {
    let policy = |file| policy::read(file, crawlers::without_dns).map_err(Trouble::Wrong);
    let (policy, other) = (policy(&args.config)?, args.compare.as_deref().map(policy).transpose()?);
    for (route, _) in &args.costs {
        let known = |policy: &Policy| policy.settings.rules.routes.iter().any(|known| known.name == *route);
        if !known(&policy) && !other.as_ref().is_some_and(known) {
            return Err(Trouble::Wrong(format!(
                "--cost: there is no route {route:?}; name one as its `match` is written"
            )));
        }
    }
    let files = log::Files::open(&args.logs).map_err(|error| Trouble::Wrong(error.to_string()))?;
    let verdicts = args.verdicts.as_deref().map(create).transpose()?;
    let json = args.json.as_deref().map(create).transpose()?;
    let html = args.html.as_deref().map(create).transpose()?;
    let progress = Progress::over(files.bytes, files.read.clone());
    let replay = Replay {
        files: files.sources.iter().map(|source| source.name.clone()).collect(),
        lines: Merged::new(files.sources, args.window),
        window: args.window,
        assumptions: Assumptions {
            cache_ttl: args.cache_ttl,
            latency: args.latency,
            clients: args.clients.into(),
            costs: args.costs.clone(),
        },
    };
    let report = replay.run(policy, other, verdicts, &mut |counts: &Counts| progress.show(counts.lines));
    progress.clear();
    let report = report.map_err(|error| match error {
        Failed::Nothing { .. } => Trouble::Wrong(error.to_string()),
        _ => Trouble::Failed(error.to_string()),
    })?;
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

fn create(path: &Path) -> Result<Box<dyn Write>, Trouble> {
    match File::create(path) {
        Ok(file) => Ok(Box::new(BufWriter::new(file))),
        Err(error) => Err(Trouble::Wrong(format!("{}: cannot be written: {error}", path.display()))),
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

impl From<Reaction> for Clients {
    fn from(reaction: Reaction) -> Self {
        match reaction {
            Reaction::Deaf => Self::Deaf,
            Reaction::Obey => Self::Obey,
            Reaction::AsKnown => Self::AsKnown,
        }
    }
}
