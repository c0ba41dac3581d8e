//! `tidegate cache warm`: fetches pages into the cache of a running gateway.

use super::admin_client::AdminArgs;
use super::log_args::parse_duration;
use super::progress::{Progress, progress_bar, time_left};
use super::warm_urls::{WarmUrl, WarmUrls};
use super::{CommandError, print};
use crate::admin::cache::WarmDocument;
use clap::Args;
use http::Method;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_replay::terminal::{format_duration, group_digits};
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `tidegate cache warm`.
#[derive(Clone, Debug, Args)]
pub(super) struct WarmArgs {
    /// URLs, such as https://example.com/item/42, and files: a sitemap, or one URL a line, plain or gzip. `-` is standard input.
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
/// Maximum duration of one page: the gateway waits for the origin as long as for every client.
const PAGE_TIMEOUT: Duration = Duration::from_secs(600);
/// Failures of the origin in a row that end the command: each may cost a page's units.
const MAX_FAILURES: u32 = 5;
/// Wait after a refusal that names none.
const DEFAULT_WAIT_S: u64 = 10;
/// Time between two pictures of the remaining wait.
const COUNTDOWN_STEP: Duration = Duration::from_secs(1);
/// Exit code of a second Ctrl-C: 128 and the number of the signal, as shells have it.
const EXIT_INTERRUPTED: i32 = 130;

/// Ctrl-C of the terminal.
struct Interrupts(Receiver<()>);

/// A command that fetches pages.
struct Warming<'a> {
    arguments: &'a WarmArgs,
    progress: Progress,
    clock: Clock,
    interrupts: Interrupts,
}

/// Result of one page.
enum PageOutcome {
    Done(WarmDocument),
    Interrupted,
}

/// Fetches all pages.
pub(super) fn run(arguments: &WarmArgs) -> ExitCode {
    let result = WarmUrls::read(&arguments.what).and_then(|urls| {
        let interrupts = Interrupts::receive().map_err(|error| CommandError::Failed(error.to_string()))?;
        Warming { arguments, progress: Progress::start(), clock: Clock::system(), interrupts }.warm(&urls.0)
    });
    match result {
        Ok(text) => print(&text),
        Err(error) => error.report(),
    }
}

impl Warming<'_> {
    fn warm(&self, urls: &[WarmUrl]) -> Result<String, CommandError> {
        let mut counts = WarmCounts::default();
        let total = urls.len();
        for (index, page) in urls.iter().enumerate() {
            let url = &page.url;
            let done = index as f64 / total as f64;
            let position = format!("{} of {}", group_digits(index as u64), group_digits(total as u64));
            self.progress
                .show(|elapsed| format!("{}  {position}, {} left", progress_bar(done), time_left(done, elapsed)));
            let outcome = self.fetch(page, &position).inspect_err(|_| self.progress.clear());
            let outcome = outcome.map_err(|error| match error {
                CommandError::Failed(message) => {
                    CommandError::Failed(format!("{message}; {index} of {total} pages are done, the next is {url}"))
                }
                usage => usage,
            })?;
            let PageOutcome::Done(outcome) = outcome else {
                self.progress.clear();
                print(&counts.text());
                return Err(CommandError::Failed(format!(
                    "stopped by Ctrl-C; {index} of {total} pages are done, the next is {url}"
                )));
            };
            counts.add(&outcome, url);
            if counts.failures == MAX_FAILURES {
                self.progress.clear();
                let (text, status) = (counts.text(), outcome.status);
                return Err(CommandError::Failed(format!(
                    "the origin failed {MAX_FAILURES} times in a row, last with status {status} for {url}; so far: {}",
                    text.trim_end().replace('\n', "; ")
                )));
            }
        }
        self.progress.clear();
        Ok(counts.text())
    }

    /// Fetches one page; waits as long as refusals say. `position` is shown meanwhile.
    fn fetch(&self, page: &WarmUrl, position: &str) -> Result<PageOutcome, CommandError> {
        let WarmArgs { class, max_wait, admin, .. } = self.arguments;
        let body = serde_json::json!({ "url": page.url, "class": class, "site": page.site }).to_string();
        let mut waited = Duration::ZERO;
        loop {
            if self.interrupts.wait(Duration::ZERO) {
                return Ok(PageOutcome::Interrupted);
            }
            let response = admin.request_within(PAGE_TIMEOUT, Method::POST, PATH, &body)?;
            let outcome: WarmDocument = serde_json::from_str(&response).map_err(|error| {
                CommandError::Failed(format!(
                    "unreadable response of the gateway: {error}; check that it has the version of this command"
                ))
            })?;
            if !outcome.refused {
                return Ok(PageOutcome::Done(outcome));
            }
            let wait = Duration::from_secs(outcome.retry_after_s.unwrap_or(DEFAULT_WAIT_S));
            waited += wait;
            if waited > *max_wait {
                let (waited, limit) = (format_duration(waited.as_secs()), format_duration(max_wait.as_secs()));
                return Err(CommandError::Failed(format!(
                    "the class {class} is refused for {waited}, more than --max-wait {limit}"
                )));
            }
            if self.wait(wait, position) {
                return Ok(PageOutcome::Interrupted);
            }
        }
    }

    /// Waits before the next attempt, and says so. Returns true if Ctrl-C ended the wait.
    fn wait(&self, wait: Duration, position: &str) -> bool {
        let class = &self.arguments.class;
        let text = |left: Duration| {
            let left = format_duration(left.as_secs_f64().ceil() as u64);
            format!("{position}: the class {class} is refused; next attempt in {left}")
        };
        if !self.progress.is_terminal() {
            let _ = writeln!(io::stderr(), "{}", text(wait));
        }
        let end = self.clock.monotonic_now() + wait;
        loop {
            let left = end.saturating_duration_since(self.clock.monotonic_now());
            if left.is_zero() {
                return false;
            }
            self.progress.show_now(|_| text(left));
            if self.interrupts.wait(left.min(COUNTDOWN_STEP)) {
                return true;
            }
        }
    }
}

impl Interrupts {
    /// Receives Ctrl-C from now on: the first ends the command with its summary, the second at once.
    fn receive() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut signals = runtime.block_on(async { signal(SignalKind::interrupt()) })?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                signals.recv().await;
                // Fails if the command has ended.
                let _ = sender.send(());
                signals.recv().await;
                std::process::exit(EXIT_INTERRUPTED);
            });
        });
        Ok(Self(receiver))
    }

    /// Waits for Ctrl-C, for at most `timeout`. Returns true if it came.
    fn wait(&self, timeout: Duration) -> bool {
        self.0.recv_timeout(timeout).is_ok()
    }
}

impl WarmCounts {
    fn add(&mut self, outcome: &WarmDocument, url: &str) {
        let WarmDocument { status, stored, cache_status, .. } = outcome;
        self.failures = if *status >= 500 { self.failures + 1 } else { 0 };
        let detail = cache_status.split("detail=").nth(1);
        match (cache_status.contains("; hit"), *stored, detail) {
            (true, _, None) => self.fresh += 1,
            (_, true, _) => self.fetched += 1,
            (is_hit, _, detail) => {
                let why = match (is_hit, detail) {
                    (true, Some("refused")) => "the class is refused, and a stale copy is stored",
                    (false, Some("other-host")) => "skipped, of another host than the first page of the sitemap",
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
