//! `tidegate robots check`: checks a robots.txt, and shows what each crawler of the built-in list may fetch.

use super::{CommandError, print};
use clap::{Args, Subcommand};
use http::StatusCode;
use std::fs;
use std::io::{self, Read};
use std::process::ExitCode;
use std::time::Duration;
use tidegate_crawlers::robots::{CrawlerAccess, DecidingRule, RobotsCheck, check_robots};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_crawlers::verify::fetch::{AllowedAddresses, FetchError, FetchLimits, FetchOutcome, Fetcher, Validators};
use tidegate_replay::terminal::{Align, columns, json_document, printable, truncate, wrap};

/// Subcommands of `tidegate robots`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum RobotsCommand {
    /// Checks a robots.txt, and shows what each crawler of the built-in list may fetch
    ///
    /// Finds lines that no crawler reads, or only some; groups that apply to no crawler or not as they seem to; rules that
    /// never win; and what is beyond the 500 KiB that crawlers read (RFC 9309). The gateway reads robots.txt in the same way.
    /// What a crawler may fetch is what the file says: whether it keeps to that is for the crawler to decide. Exit code 2 if
    /// there is a finding.
    Check(CheckArgs),
}

/// Arguments of `tidegate robots check`.
#[derive(Clone, Debug, Args)]
pub(super) struct CheckArgs {
    /// URL of a site or of its robots.txt, or a file; `-` is standard input.
    #[arg(value_name = "URL|FILE")]
    source: String,
    /// Path, with its query, that is looked up for each crawler.
    #[arg(long, default_value = "/")]
    path: String,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Limits of the fetch. The whole of a text that is too long for crawlers is fetched, up to a size that is none.
const LIMITS: FetchLimits = FetchLimits {
    max_bytes: MAX_BYTES,
    timeout: Duration::from_secs(20),
    max_redirects: 5,
    allowed_addresses: AllowedAddresses::Named,
};

/// Maximum size of a text, in bytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Width of the output, in columns.
const WIDTH: usize = 80;

/// Runs `tidegate robots`.
pub(super) fn run(command: &RobotsCommand) -> ExitCode {
    let RobotsCommand::Check(args) = command;
    match check(args) {
        Ok(code) => code,
        Err(error) => error.report(),
    }
}

fn check(args: &CheckArgs) -> Result<ExitCode, CommandError> {
    if !args.path.starts_with('/') {
        return Err(CommandError::Usage(format!("--path: found {:?}; write a path such as /search?q=a", args.path)));
    }
    let text = read(&args.source)?;
    let operators = OperatorTable::builtin();
    let crawlers: Vec<(&str, &str)> =
        operators.product_tokens().map(|(product, operator)| (operators.name(operator), product)).collect();
    let mut result = check_robots(&text, &args.path, &crawlers);
    let has_no_token = |name: &&str| crawlers.iter().all(|(operator, _)| operator != name);
    result.without_token = operators.names().filter(has_no_token).map(str::to_owned).collect();
    let output = match args.json {
        true => json_document(&result).map_err(|error| CommandError::Failed(error.to_string()))?,
        false => report(&args.source, &args.path, &result),
    };
    let printed = print(&output);
    Ok(if result.findings.is_empty() { printed } else { ExitCode::from(2) })
}

/// Reads the text. A site without robots.txt (404 and the like) has an empty one.
fn read(source: &str) -> Result<Vec<u8>, CommandError> {
    let invalid = |error: &dyn std::fmt::Display| CommandError::Usage(format!("{source}: {error}"));
    if let Some((scheme, rest)) = source.split_once("://") {
        let url = match rest.split_once('/') {
            None => format!("{source}/robots.txt"),
            Some((_, "")) => format!("{source}robots.txt"),
            Some(_) => source.to_owned(),
        };
        return match ["http", "https"].contains(&scheme) {
            true => fetch(&url),
            false => Err(invalid(&"not an address of the web; write https://example.com")),
        };
    }
    let unreadable = |error: io::Error| {
        invalid(&format_args!("{error}; name a robots.txt, or the URL of a site, such as https://example.com"))
    };
    let mut text = Vec::new();
    let mut limited: Box<dyn Read> = match source {
        "-" => Box::new(io::stdin().lock()),
        file => Box::new(fs::File::open(file).map_err(unreadable)?),
    };
    limited.by_ref().take(MAX_BYTES as u64 + 1).read_to_end(&mut text).map_err(unreadable)?;
    match text.len() > MAX_BYTES {
        true => Err(invalid(&format_args!("longer than {} MiB; name a robots.txt", MAX_BYTES >> 20))),
        false => Ok(text),
    }
}

fn fetch(url: &str) -> Result<Vec<u8>, CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::Failed(format!("{url}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
    match runtime.block_on(Fetcher::with_public_roots().fetch(url, &LIMITS, &Validators::default())) {
        Ok(FetchOutcome::Document(document)) => Ok(document.body.to_vec()),
        Ok(FetchOutcome::NotModified) => Ok(Vec::new()),
        // RFC 9309 section 2.3.1.3; for 429, large crawlers and the gateway do what they do for 5xx.
        Err(FetchError::Status(status)) if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
            eprintln!("{url}: status {status}: without a robots.txt, crawlers may fetch everything");
            Ok(Vec::new())
        }
        Err(FetchError::Status(status)) if status.is_server_error() || status.is_client_error() => {
            Err(failed(&format_args!("status {status}: crawlers fetch nothing until this is over")))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Returns the findings, and below them what each crawler may fetch.
fn report(source: &str, path: &str, result: &RobotsCheck) -> String {
    let mut text = String::new();
    for finding in &result.findings {
        let place = format!("line {}: ", finding.line);
        let message = printable(&format!("{}; {}", finding.problem, finding.hint));
        text += &format!("{place}{}\n", wrap(&message, place.len(), 4, WIDTH));
    }
    if result.omitted > 0 {
        text += &format!("and {} more findings\n", result.omitted);
    }
    if result.findings.is_empty() {
        text += &wrap(&printable(&format!("{source}: nothing found")), 0, 4, WIDTH);
        text.push('\n');
    }
    let path = truncate(&printable(path), 40);
    let header = ["operator", "crawlers", "may fetch", &path].map(str::to_owned).to_vec();
    let operators = result.access.chunk_by(|one, next| one.operator == next.operator);
    let rows = operators.flat_map(|entries| entries.iter().map(move |entry| row(entry, entries.len() == 1)));
    let without_token = result
        .without_token
        .iter()
        .map(|operator| [operator, "no token", "-", "no group can name it"].map(str::to_owned).to_vec());
    let table = columns(0, &[Align::Left; 4], std::iter::once(header).chain(rows).chain(without_token));
    let lines: Vec<String> = table.lines().map(|line| truncate(line, WIDTH)).collect();
    format!("{text}\n{}\n", lines.join("\n"))
}

/// Returns the row of crawlers with the same result, which are all of the operator if `is_all`.
fn row(access: &CrawlerAccess, is_all: bool) -> Vec<String> {
    let CrawlerAccess { operator, products, allowed, group, rule } = access;
    let others = match products.len() - 1 {
        0 => String::new(),
        others => format!(" +{others}"),
    };
    let crawlers = match is_all && products.len() > 1 {
        true => format!("all {}", products.len()),
        false => format!("{}{others}", truncate(&products[0], 21 - others.len())),
    };
    let reason = match (rule, group) {
        (Some(DecidingRule { line, text }), _) => format!("line {line}: {}", printable(text)),
        (None, Some(group)) => format!("no rule in group {group}"),
        (None, None) => "no group".into(),
    };
    vec![operator.clone(), crawlers, if *allowed { "yes" } else { "no" }.into(), reason]
}
