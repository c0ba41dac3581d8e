//! `tidegate cache warm`: fetches pages into the cache of a running gateway.

use super::admin_client::AdminArgs;
use super::log_args::parse_duration;
use super::progress::{Progress, progress_bar, time_left};
use super::warm_urls::WarmUrls;
use super::{CommandError, print};
use crate::admin::cache::WarmDocument;
use clap::Args;
use http::Method;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_replay::terminal::{format_duration, group_digits};

/// Arguments of `tidegate cache warm`.
#[derive(Clone, Debug, Args)]
pub(super) struct WarmArgs {
    /// URLs, such as https://example.com/item/42, and files: a sitemap, or one URL a line. `-` is standard input.
    #[arg(required = true, value_name = "URL|FILE")]
    what: Vec<String>,
    /// Class that the requests are made for.
    #[arg(long)]
    class: String,
    /// Longest single wait after a refusal. One that takes longer ends the command.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse_duration)]
    max_wait: Duration,
    /// Address and token of the admin listener.
    #[command(flatten)]
    admin: AdminArgs,
}

/// Counts of what became of the pages.
#[derive(Default)]
struct WarmCounts {
    fetched: u64,
    fresh: u64,
    /// Number of pages by reason, with the first one.
    not_stored: BTreeMap<String, (u64, String)>,
    /// Number of failures of the origin in a row.
    failures: u32,
}

const PATH: &str = "/api/v1/cache/warm";
/// Failures of the origin in a row that end the command: each may cost a page's units.
const MAX_FAILURES: u32 = 5;
/// Wait after a refusal that names none.
const DEFAULT_WAIT_S: u64 = 10;

/// Fetches all pages.
pub(super) fn run(arguments: &WarmArgs) -> ExitCode {
    let result = WarmUrls::read(&arguments.what).and_then(|urls| warm(arguments, &urls));
    match result {
        Ok(text) => print(&text),
        Err(error) => error.report(),
    }
}

fn warm(arguments: &WarmArgs, urls: &WarmUrls) -> Result<String, CommandError> {
    let progress = Progress::start();
    let mut counts = WarmCounts::default();
    let total = urls.0.len();
    for (index, url) in urls.0.iter().enumerate() {
        let done = index as f64 / total as f64;
        progress.show(|elapsed| {
            let (index, total) = (group_digits(index as u64), group_digits(total as u64));
            format!("{}  {index} of {total}, {} left", progress_bar(done), time_left(done, elapsed))
        });
        let outcome =
            fetch(arguments, &progress, url).inspect_err(|_| progress.clear()).map_err(|error| match error {
                CommandError::Failed(message) => {
                    CommandError::Failed(format!("{message}; {index} of {total} pages are done, the next is {url}"))
                }
                usage => usage,
            })?;
        counts.add(&outcome, url);
        if counts.failures == MAX_FAILURES {
            progress.clear();
            let (text, status) = (counts.text(), outcome.status);
            return Err(CommandError::Failed(format!(
                "the origin failed {MAX_FAILURES} times in a row, last with status {status} for {url}; so far: {}",
                text.trim_end().replace('\n', "; ")
            )));
        }
    }
    progress.clear();
    Ok(counts.text())
}

/// Fetches one page; waits as long as refusals say.
fn fetch(arguments: &WarmArgs, progress: &Progress, url: &str) -> Result<WarmDocument, CommandError> {
    let body = serde_json::json!({ "url": url, "class": arguments.class }).to_string();
    loop {
        let response = arguments.admin.request(Method::POST, PATH, &body)?;
        let outcome: WarmDocument = serde_json::from_str(&response).map_err(|error| {
            CommandError::Failed(format!(
                "unreadable response of the gateway: {error}; check that it has the version of this command"
            ))
        })?;
        if !outcome.refused {
            return Ok(outcome);
        }
        let wait = Duration::from_secs(outcome.retry_after_s.unwrap_or(DEFAULT_WAIT_S));
        if wait > arguments.max_wait {
            let (wait, limit) = (format_duration(wait.as_secs()), format_duration(arguments.max_wait.as_secs()));
            return Err(CommandError::Failed(format!(
                "the class {} is refused for {wait}, more than --max-wait {limit}",
                arguments.class
            )));
        }
        progress.show(|_| format!("refused; waiting {}", format_duration(wait.as_secs())));
        std::thread::sleep(wait);
    }
}

impl WarmCounts {
    fn add(&mut self, outcome: &WarmDocument, url: &str) {
        let WarmDocument { status, cache_status, .. } = outcome;
        self.failures = if *status >= 500 { self.failures + 1 } else { 0 };
        let detail = cache_status.split("detail=").nth(1);
        match (cache_status.contains("; hit"), cache_status.contains("; stored"), detail) {
            (true, _, None) => self.fresh += 1,
            (_, true, _) => self.fetched += 1,
            (is_hit, _, detail) => {
                let why = match (is_hit, detail) {
                    (true, Some("refused")) => "the class is refused, and a stale copy is stored",
                    (_, detail) => detail.unwrap_or("not cached"),
                };
                let entry = self.not_stored.entry(format!("status {status}, {why}")).or_default();
                entry.0 += 1;
                if entry.0 == 1 {
                    url.clone_into(&mut entry.1);
                }
            }
        }
    }

    fn text(&self) -> String {
        let mut text =
            format!("{} fetched and stored, {} were fresh\n", group_digits(self.fetched), group_digits(self.fresh));
        for (why, (count, first)) in &self.not_stored {
            text.push_str(&format!("{} not stored: {why}; the first is {first}\n", group_digits(*count)));
        }
        text
    }
}
