//! Renders the state as text: problems first, then addresses, quotas, scopes, clients, corrections and warnings.

use super::quota;
use super::state::{Client, Correction, Scope, State};
use super::view::View;
use crate::terminal::Align::{self, Left, Right};
use crate::terminal::{columns, display_width, format_duration, group_digits, wrap};
use std::net::SocketAddr;

/// Renders the state as text.
pub(super) fn render(state: &State, view: &View) -> String {
    let mut parts = vec![headline(state, view), warnings(state, view), addresses(state, view)];
    parts.extend(state.quotas.iter().map(|of| quota::block(of, Some(&state.time), view)));
    parts.push(scopes(&state.scopes, view));
    parts.push(clients(&state.top_clients, view));
    parts.push(corrections(state, view));
    parts.push(notes(&state.notes, view));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn headline(state: &State, view: &View) -> String {
    let State { version, revision, uptime_s, time, .. } = state;
    let build = match revision.as_str() {
        "" | "unknown" => version.clone(),
        revision => format!("{version} ({revision})"),
    };
    let name = view.ink.bold(&format!("tidegate {build}"));
    format!("{name}, up {}; times in {}\n", format_duration(*uptime_s), view.zone_name(time))
}

/// Renders the problems that require an action.
fn warnings(state: &State, view: &View) -> String {
    let mut text = String::new();
    let mut tell = |what: &str, said: &str| {
        text.push_str(&view.ink.red(&format!("  {what}")));
        text.push_str(&format!(" {}\n", wrap(said, what.chars().count() + 3, 4, view.width)));
    };
    for missing in &state.not_ready_reasons {
        tell("Not ready:", missing);
    }
    if let Some(trouble) = &state.ledger_error {
        tell("Ledger:", trouble);
    }
    if let Some(warning) = &state.untrusted_proxy {
        tell("Proxy:", warning);
    }
    if let Some(failed) = &state.settings.last_reload_failed {
        let when = view.local(&failed.time, Some(&state.time));
        tell("Reload failed", &format!("at {when}; the previous configuration is still active:\n{}", failed.errors));
    }
    if state.log_lines_dropped > 0 {
        let lines = group_digits(state.log_lines_dropped);
        tell("Access log:", &format!("{lines} lines dropped, because the writer could not keep up."));
    }
    text
}

fn addresses(state: &State, view: &View) -> String {
    let State { listen, admin, origin, settings, connections, time, .. } = state;
    let known = match origin.addresses.as_slice() {
        [] => "not resolved yet".into(),
        [one] if *one == origin.authority => String::new(),
        [one] => format!("at {one}"),
        [first, others @ ..] => format!("at {first} and {} more", others.len()),
    };
    let mut rows = vec![
        row("listening on", &listen.join(", "), ""),
        row("origin", &origin.authority, &known),
        row("connections", &group_digits(*connections), ""),
        row("config loaded", &view.local(&settings.loaded_at, Some(time)), ""),
    ];
    if let Some(admin) = admin {
        rows.insert(1, row("admin", admin, ""));
    }
    columns(2, &[Left, Left], rows.into_iter())
}

fn row(name: &str, value: &str, remark: &str) -> Vec<String> {
    let value = if remark.is_empty() { value.to_owned() } else { format!("{value}, {remark}") };
    vec![name.to_owned(), value]
}

fn scopes(scopes: &[Scope], view: &View) -> String {
    let row = |name: String, of: &Scope| {
        let inflight = group_digits(of.inflight);
        let inflight =
            of.limit.map_or_else(|| inflight.clone(), |limit| format!("{inflight} of {}", group_digits(limit)));
        let waiting = of.queue_length.map_or("-".into(), group_digits);
        vec![name, inflight, waiting, delay_text(of.delay_s.unwrap_or_default()), backoff_text(of, view)]
    };
    let rows = scopes.iter().flat_map(|of| {
        let by = of.active_controller().map_or_else(String::new, |name| format!(", {name}"));
        let name = match of.partitions {
            None => format!("{}{by}", of.name),
            Some(1) => format!("{}{by}, 1 partition", of.name),
            Some(count) => format!("{}{by}, {} partitions", of.name, group_digits(count)),
        };
        let busy = of.busiest_partitions.iter().filter(|value| value.is_busy()).take(VALUES);
        let value = |of: &Scope| row(format!("  {}", if of.name.is_empty() { "(none)" } else { &of.name }), of);
        std::iter::once(row(name, of)).chain(busy.map(value)).collect::<Vec<_>>()
    });
    let head = [("scope", Left), ("in flight", Right), ("queued", Right), ("delay", Right), ("state", Left)];
    table("scopes of the origin", &head, rows, view)
}

/// Formats the time between two requests.
fn delay_text(seconds: f64) -> String {
    match seconds {
        none if none <= 0.0 => "-".into(),
        short if short < 1.0 => format!("{:.0} ms", short * 1000.0),
        long => format!("{long:.1} s").replace(".0 s", " s"),
    }
}

fn backoff_text(of: &Scope, view: &View) -> String {
    let rest = of.backoff_s.unwrap_or_default().ceil() as u64;
    match (rest, of.backoff_level.unwrap_or_default()) {
        (0, 0) => "-".into(),
        (0, level) => format!("recovering (level {level})"),
        (rest, level) => view.ink.red(&format!("backing off for {} (level {level})", format_duration(rest))),
    }
}

fn clients(clients: &[Client], view: &View) -> String {
    let tokens = |of: &Client| of.bucket_remaining.map_or("-".into(), group_digits);
    let until = |of: &Client| match (&of.limited_by, of.limited_for_s) {
        (Some(_), Some(seconds)) => format!("limited for {}", format_duration(seconds)),
        (Some(rule), None) => rule.clone(),
        (None, _) => "-".into(),
    };
    let rows = clients.iter().filter(|of| of.refused > 0).take(CLIENTS);
    let rows = rows.map(|of| vec![of.key.clone(), of.class.clone(), group_digits(of.refused), tokens(of), until(of)]);
    let head = [("key", Left), ("class", Left), ("refused", Right), ("tokens left", Right), ("state", Left)];
    table("most refused clients", &head, rows, view)
}

fn corrections(state: &State, view: &View) -> String {
    let row = |of: &Correction| {
        let when = view.local(&of.time, Some(&state.time));
        let who = format!("{}{}", host(of.peer.as_deref()), if of.token { ", token" } else { "" });
        vec![when, of.quota.clone(), of.from.to_string(), of.to.to_string(), of.by.clone().unwrap_or("-".into()), who]
    };
    let head =
        [("at", Left), ("quota", Left), ("was", Right), ("is", Right), ("by (unverified)", Left), ("from", Left)];
    table("manual corrections", &head, state.corrections.iter().map(row), view)
}

/// Returns the peer without its port, which identifies nothing after the connection is closed.
fn host(peer: Option<&str>) -> String {
    let Some(peer) = peer else { return "-".into() };
    peer.parse::<SocketAddr>().map_or_else(|_| peer.to_owned(), |address| address.ip().to_string())
}

fn notes(notes: &[String], view: &View) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let lines: String = notes.iter().map(|note| format!("  {}\n", wrap(note, 2, 4, view.width))).collect();
    format!("{}\n{lines}", view.ink.bold("warnings"))
}

/// Renders a table with its title; empty if there are no rows. The first column is truncated if the table is wider than
/// the page, because its content often comes from clients and may be long.
fn table(title: &str, head: &[(&str, Align)], rows: impl Iterator<Item = Vec<String>>, view: &View) -> String {
    let (names, alignment): (Vec<&str>, Vec<Align>) = head.iter().copied().unzip();
    let mut rows: Vec<Vec<String>> =
        std::iter::once(names.iter().map(|name| view.ink.dim(name)).collect()).chain(rows).collect();
    if rows.len() == 1 {
        return String::new();
    }
    let widest = |place: usize| rows.iter().map(|row| display_width(&row[place])).max().unwrap_or_default();
    let others: usize = (1..head.len()).map(|place| GAP + widest(place)).sum();
    let room = view.width.saturating_sub(INDENT + others).max(MIN_COLUMN);
    rows.iter_mut().skip(1).for_each(|row| row[0] = shortened(&row[0], room));
    format!("{}\n{}", view.ink.bold(title), columns(INDENT, &alignment, rows.into_iter()))
}

/// Truncates a text to `room` columns, with an ellipsis.
fn shortened(text: &str, room: usize) -> String {
    match text.chars().count() > room {
        true => text.chars().take(room - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Columns before a table, and between two columns of it.
const INDENT: usize = 2;
const GAP: usize = 2;

/// Minimum width of a truncated text, in columns.
const MIN_COLUMN: usize = 12;

/// Number of clients and of partitions shown; the API returns more.
const CLIENTS: usize = 10;
const VALUES: usize = 5;
