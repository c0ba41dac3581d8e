//! `tidegate cache`: the stored responses of a running gateway.

use super::admin_client::AdminArgs;
use super::warm::{self, WarmArgs};
use super::{CommandError, path_segment, print};
use crate::admin::cache::{CacheDocument, CacheRequests, SavedUnits};
use clap::{Args, Subcommand};
use http::Method;
use serde::Deserialize;
use std::fmt::Write;
use std::process::ExitCode;
use tidegate_replay::terminal::{Align, columns, decimal, ellipsize, group_digits, printable};

/// Subcommands of `tidegate cache`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum CacheCommand {
    /// Shows what is stored, how much of the traffic it answers, the units it saved, and the URLs requested most.
    Stats {
        /// Prints the document of GET /api/v1/cache.
        #[arg(long)]
        json: bool,
        /// Address and token of the admin listener.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Removes stored responses, so that the next request for one fetches it again.
    ///
    /// A URL has the scheme and host that clients use, such as https://example.com/item/42. The number of removed
    /// entries is printed; each removal is in the gateway's log (target `audit`).
    Purge {
        #[command(flatten)]
        what: PurgeTarget,
        /// Prints the response of the admin API.
        #[arg(long)]
        json: bool,
        /// Address and token of the admin listener.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Fetches pages that are not stored, one after the other, as requests of a class and within its limits.
    ///
    /// When the class is refused, the command says so, waits as long as Retry-After says, and goes on. The units that the
    /// pages cost are charged as for a client of the class. Ctrl-C ends it with a summary and exit code 1; what is fetched
    /// stays.
    Warm(#[command(flatten)] WarmArgs),
}

/// Stored responses to remove.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct PurgeTarget {
    /// URL whose responses are removed.
    url: Option<String>,
    /// Beginning of URLs whose responses are removed, such as https://example.com/shop/.
    #[arg(long, value_name = "URL")]
    prefix: Option<String>,
    /// Tag in `Cache-Tag` or `Surrogate-Key` of responses that are removed.
    #[arg(long)]
    tag: Option<String>,
}

/// Response to a removal.
#[derive(Deserialize)]
struct PurgeResponse {
    removed: u64,
}

/// Shows or removes stored responses.
pub(super) fn run(command: &CacheCommand) -> ExitCode {
    let text = match command {
        CacheCommand::Warm(arguments) => return warm::run(arguments),
        CacheCommand::Stats { json, admin } => {
            let response = admin.request(Method::GET, PATH, "");
            response.and_then(|response| if *json { Ok(response) } else { Ok(stats(&parse(&response)?)) })
        }
        CacheCommand::Purge { what, json, admin } => {
            let response = admin.request(Method::DELETE, &format!("{PATH}?{}", what.query()), "");
            response.and_then(|response| if *json { Ok(response) } else { Ok(purged(&parse(&response)?)) })
        }
    };
    match text {
        Ok(text) => print(&format!("{}\n", text.trim_end())),
        Err(error) => error.report(),
    }
}

impl PurgeTarget {
    fn query(&self) -> String {
        let pair = |key, value: &Option<String>| value.as_ref().map(|value| format!("{key}={}", path_segment(value)));
        let pairs = [pair("url", &self.url), pair("prefix", &self.prefix), pair("tag", &self.tag)];
        pairs.into_iter().flatten().collect::<Vec<_>>().join("&")
    }
}

fn parse<T: for<'de> Deserialize<'de>>(response: &str) -> Result<T, CommandError> {
    serde_json::from_str(response).map_err(|error| {
        CommandError::Failed(format!(
            "unreadable response of the gateway: {error}; check that it has the version of this command"
        ))
    })
}

fn purged(PurgeResponse { removed }: &PurgeResponse) -> String {
    match removed {
        0 => "0 removed: nothing is stored under that name; give scheme and host as clients use them, or see \
              tidegate cache stats"
            .to_owned(),
        removed => format!("{} removed", group_digits(*removed)),
    }
}

/// Renders the state of the cache.
fn stats(document: &CacheDocument) -> String {
    let mut text = String::new();
    let CacheRequests { hit, stale, revalidated, miss, bypass } = &document.requests;
    let share = document.hit_ratio.map_or("no requests yet".to_owned(), |ratio| {
        format!(
            "{} % of the requests on cached routes answered without the origin",
            decimal(format!("{:.1}", ratio * 100.0))
        )
    });
    let _ = writeln!(text, "{share}");
    let _ = writeln!(
        text,
        "requests: {} hit, {} stale, {} revalidated, {} miss, {} bypass",
        group_digits(*hit),
        group_digits(*stale),
        group_digits(*revalidated),
        group_digits(*miss),
        group_digits(*bypass)
    );
    let _ = writeln!(
        text,
        "memory: {} of {} MiB, {} entries, {} displaced to make space since the start",
        mebibytes(document.memory_bytes),
        mebibytes(document.memory_limit_bytes),
        group_digits(document.entries),
        group_digits(document.evictions)
    );
    if let Some(disk) = &document.disk {
        let _ = writeln!(
            text,
            "disk: {} of {} MiB, {} entries, {} displaced to make space, {} not written, {} errors since the start{}",
            mebibytes(disk.bytes),
            mebibytes(disk.limit_bytes),
            group_digits(disk.entries),
            group_digits(disk.evictions),
            group_digits(disk.dropped),
            group_digits(disk.errors),
            if disk.is_loaded { "" } else { "; still reading the index" }
        );
    }
    for saved in &document.saved {
        let _ = writeln!(text, "saved: {} {} of {} for {}", saved.units, saved.units.noun(), saved.quota, saved.class);
    }
    for refreshed in &document.refreshed {
        let SavedUnits { units, quota, class } = refreshed;
        let _ = writeln!(text, "refreshed with surplus: {units} {} of {quota} for {class}", units.noun());
    }
    if !document.most_requested.is_empty() {
        let head = ["hits", "saved", "KiB", "requested most"].map(str::to_owned).to_vec();
        let rows = document.most_requested.iter().map(|url| {
            let kibibytes = group_digits(url.bytes.div_ceil(1024));
            vec![group_digits(url.hits), url.saved.to_string(), kibibytes, ellipsize(&printable(&url.url), URL_WIDTH)]
        });
        let alignment = [Align::Right, Align::Right, Align::Right, Align::Left];
        let _ = write!(text, "\n{}", columns(0, &alignment, std::iter::once(head).chain(rows)));
    }
    text
}

fn mebibytes(bytes: u64) -> String {
    decimal(format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
}

/// Width of URLs in the output.
const URL_WIDTH: usize = 52;

const PATH: &str = "/api/v1/cache";
