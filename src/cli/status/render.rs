//! Renders the state as text: problems and warnings first, then addresses, quotas, scopes, clients and corrections.

use super::view::View;
use super::{budget, quota};
use crate::admin::cache::SavedUnits;
use crate::admin::corrections::CorrectionDocument;
use crate::admin::state::{
    CacheUsageDocument, ClientDocument, KeptPromiseDocument, OriginDocument, OriginServerDocument, OutageDocument,
    PartitionDocument, PathCostDocument, PromiseDocument, ScopeDocument, SpenderDocument, SpendersDocument,
    StateDocument, SwitchDocument, ThrottleDocument, TrafficDocument,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tidegate_policy::Units;
use tidegate_replay::terminal::Align::{self, Left, Right};
use tidegate_replay::terminal::{
    columns, decimal, display_width, ellipsize, format_duration, group_digits, printable, wrap,
};

/// Renders who asks for the most units, below what needs an action and the quotas.
pub(super) fn render_top(state: &StateDocument, view: &View) -> String {
    let mut parts = vec![headline(state, view), warnings(state, view)];
    parts.extend(state.quotas.iter().map(|quota| quota::usage(quota, Some(&state.time), view)));
    parts.push(budget::budgets(state, view));
    parts.push(spenders(state, view));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Renders the state with what changes first: the usage of all quotas and the requests of all classes precede the details.
pub(super) fn render_watched(state: &StateDocument, view: &View) -> String {
    let mut parts = vec![headline(state, view), warnings(state, view)];
    parts.push(state.quotas.iter().map(|quota| quota::usage(quota, Some(&state.time), view)).collect());
    parts.push(budget::budgets(state, view));
    parts.push(promise(state, view));
    parts.push(traffic(&state.traffic, view));
    parts.push(scopes(&state.scopes, view));
    parts.push(clients(&state.top_clients, view));
    parts.push(cache(state));
    let details = |quota| quota::details(quota, Some(&state.time), view);
    parts.extend(state.quotas.iter().map(details).filter(|details| !details.is_empty()));
    parts.extend([notes(&state.notes, view), addresses(state, view), corrections(state, view)]);
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Renders the state as text.
pub(super) fn render(state: &StateDocument, view: &View) -> String {
    let mut parts =
        vec![headline(state, view), warnings(state, view), notes(&state.notes, view), addresses(state, view)];
    parts.extend(state.quotas.iter().map(|quota| quota::block(quota, Some(&state.time), view)));
    parts.push(budget::budgets(state, view));
    parts.push(promise(state, view));
    parts.push(cache(state));
    parts.push(traffic(&state.traffic, view));
    parts.push(scopes(&state.scopes, view));
    parts.push(clients(&state.top_clients, view));
    parts.push(corrections(state, view));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn headline(state: &StateDocument, view: &View) -> String {
    let StateDocument { version, revision, uptime_s, time, .. } = state;
    let build = match revision.as_str() {
        "" | "unknown" => version.clone(),
        revision => format!("{version} ({revision})"),
    };
    let name = view.color.bold(&format!("tidegate {build}"));
    format!("{name}, up {}; times in {}\n", format_duration(*uptime_s), view.zone_name(time))
}

/// Returns the costs of paths without a route, and what to do about them.
fn path_cost(cost: &PathCostDocument) -> String {
    let PathCostDocument { path, quota, units, generalized_from, examples } = cost;
    let sum = format!("{units} {} of {quota} by {}", units.noun(), printable(path));
    if *generalized_from == 0 {
        return format!("{sum}: add a route with a cost.");
    }
    let examples: Vec<String> = examples.iter().map(|path| printable(path)).collect();
    format!(
        "{sum}, generalized from {} pages such as {}: add routes with a cost for the pages that cost, or the others are \
         refused with them.",
        group_digits(*generalized_from),
        examples.join(", "),
    )
}

/// Renders the problems that require an action.
fn warnings(state: &StateDocument, view: &View) -> String {
    let mut text = String::new();
    let mut add = |label: &str, message: &str| {
        text.push_str(&view.color.red(&format!("  {label}")));
        text.push_str(&format!(" {}\n", wrap(message, label.chars().count() + 3, 4, view.width)));
    };
    for missing in &state.not_ready_reasons {
        add("Not ready:", missing);
    }
    for origin in state.all_origins() {
        let Some(OutageDocument { since, failed_requests, last_error }) = &origin.outage else { continue };
        let (count, since) = (group_digits(*failed_requests), view.local_exactly(since, Some(&state.time)));
        let origin = origin.label();
        let requests = if *failed_requests == 1 { "request" } else { "requests" };
        add("Origin:", &format!("no response of {origin} since {since}, {count} {requests} failed: {last_error}"));
    }
    let servers = state.all_origins().iter().flat_map(|origin| &origin.servers);
    for server in servers.filter(|server| !server.healthy) {
        let OriginServerDocument { url, failures, last_error, .. } = server;
        let reason = last_error.as_deref().unwrap_or("no response");
        add(
            "Origin server:",
            &format!("{url} ejected after {} failures: {reason}", group_digits(u64::from(*failures))),
        );
    }
    if let Some(error) = &state.ledger_error {
        add("Ledger:", error);
    }
    for switch in &state.switches {
        add("Switch:", &switch_line(switch, state, view));
    }
    if let Some(warning) = &state.untrusted_proxy {
        add("Proxy:", warning);
    }
    if let Some(failure) = &state.settings.last_reload_failed {
        let time = view.local(&failure.time, Some(&state.time));
        add("Reload failed", &format!("at {time}; the previous configuration is still active:\n{}", failure.errors));
    }
    if let Some(missed) = state.promise.as_ref().and_then(|promise| promise.missed.as_ref()) {
        let lines: Vec<String> = missed.lines().map(printable).collect();
        add("Promise:", &lines.join("\n"));
    }
    for cost in &state.path_costs {
        add("Costs without a route:", &path_cost(cost));
    }
    if state.log_lines_dropped > 0 {
        let lines = group_digits(state.log_lines_dropped);
        add(
            "Access log:",
            &format!("{lines} lines dropped, because they could not be written in time: the disk is full or slow."),
        );
    }
    text
}

/// Renders what the windows of the first quota keep of the promise; empty if nothing is promised.
fn promise(state: &StateDocument, view: &View) -> String {
    let Some(promised) = &state.promise else { return String::new() };
    let PromiseDocument { people_refused, search_served, left_over, current, last, .. } = promised;
    let line = |name: &str, window: &KeptPromiseDocument| {
        let figures = [
            (people_refused, &window.people_refused, "of people's pages refused", "at most"),
            (search_served, &window.search_served, "of search engines' pages served in the worst hour", "at least"),
            (left_over, &window.left_over, "of the limit left over", "at most"),
        ];
        let compared = figures.into_iter().filter_map(|(promised, kept, words, bound)| {
            let percent = |share: &Option<f64>| share.map(|share| format!("{:.1}%", share * 100.0));
            Some(format!("{} {words} ({bound} {})", percent(kept)?, percent(promised)?))
        });
        let compared: Vec<String> = compared.collect();
        let compared = if compared.is_empty() { "nothing to compare yet".to_owned() } else { compared.join("; ") };
        let verdict = if window.missed.is_empty() { "kept" } else { "missed" };
        let text = wrap(&format!("{name}: {verdict}: {compared}"), 2, 4, view.width);
        format!("  {}\n", text.replacen("missed", &view.color.red("missed"), 1))
    };
    let last = last.as_ref().map(|window| line("the last window", window)).unwrap_or_default();
    format!("{}\n{}{last}", view.color.bold("promise"), line("this window", current))
}

/// Returns a switch as one sentence, such as `block 192.0.2.0/24 until 14:00: scrapes (ann)`.
fn switch_line(switch: &SwitchDocument, state: &StateDocument, view: &View) -> String {
    let SwitchDocument { target, effect, until, except, why, by, .. } = switch;
    let mut text = if target == effect { effect.clone() } else { format!("{effect} {}", printable(target)) };
    if let Some(until) = until {
        text.push_str(&format!(" until {}", view.local(until, Some(&state.time))));
    }
    if !except.is_empty() {
        text.push_str(&format!(", except {}", printable(&except.join(", "))));
    }
    if let Some(why) = why {
        text.push_str(&format!(": {}", printable(why)));
    }
    if let Some(by) = by {
        text.push_str(&format!(" ({})", printable(by)));
    }
    text
}

/// Returns what the names of the servers do not say of their addresses.
fn resolved(origin: &OriginDocument) -> String {
    match origin.addresses.as_slice() {
        [] => "not resolved yet".into(),
        [one] if *one == origin.authority => String::new(),
        [one] => format!("at {one}"),
        // Servers whose addresses are their names.
        addresses if addresses.iter().all(|address| origin.authority.contains(address.as_str())) => String::new(),
        [first, others @ ..] => format!("at {first} and {} more", others.len()),
    }
}

fn addresses(state: &StateDocument, view: &View) -> String {
    let StateDocument { listen, admin, settings, connections, time, .. } = state;
    let mut rows = vec![row("listening on", &listen.join(", "), "")];
    rows.extend(state.all_origins().iter().map(|origin| row("origin", &origin.label(), &resolved(origin))));
    rows.push(row("connections", &group_digits(*connections), ""));
    rows.push(row("config loaded", &view.local(&settings.loaded_at, Some(time)), ""));
    if let Some(admin) = admin {
        rows.insert(1, row("admin", admin, ""));
    }
    columns(2, &[Left, Left], rows.into_iter())
}

fn row(name: &str, value: &str, remark: &str) -> Vec<String> {
    let value = if remark.is_empty() { value.to_owned() } else { format!("{value}, {remark}") };
    vec![name.to_owned(), value]
}

/// Renders the requests of each class. What rules in shadow mode would have refused is a column only if there is any.
fn traffic(traffic: &[TrafficDocument], view: &View) -> String {
    let has_shadow = traffic.iter().any(|class| class.shadow_refused > 0);
    let row = |class: &TrafficDocument| {
        let admitted = group_digits(class.admitted);
        let mut row = vec![class.class.clone(), admitted, group_digits(class.refused), reasons(&class.refused_by)];
        if has_shadow {
            row.extend([group_digits(class.shadow_refused), reasons(&class.shadow_refused_by)]);
        }
        row
    };
    let rows = traffic.iter().filter(|class| class.admitted + class.refused > 0).map(row);
    let mut header = vec![("class", Left), ("admitted", Right), ("refused", Right), ("mostly by", Left)];
    if has_shadow {
        header.extend([("in shadow", Right), ("mostly by", Left)]);
    }
    table("requests since the start", &header, rows, view)
}

/// Formats the most frequent reason, and the number of others.
fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let most_frequent = counts.iter().max_by_key(|(_, count)| **count);
    match (most_frequent, counts.len()) {
        (None, _) => "-".into(),
        (Some((reason, _)), 1) => reason.clone(),
        (Some((reason, _)), others) => format!("{reason}, {} more", others - 1),
    }
}

fn spenders(state: &StateDocument, view: &View) -> String {
    let SpendersDocument { since, clients, networks, paths, user_agents } = &state.spenders;
    let since = view.local(since, Some(&state.time));
    let cells = |spender: &SpenderDocument, name: String| {
        let SpenderDocument { requests, refused, units, units_asked, .. } = spender;
        vec![name, group_digits(*requests), group_digits(*refused), units.to_string(), units_asked.to_string()]
    };
    let kinds = |name: &str, rows: &[SpenderDocument], max: usize| {
        let header = [(name, Left), ("requests", Right), ("refused", Right), ("charged", Right), ("asked", Right)];
        let row = |spender: &SpenderDocument| {
            let name = printable(&spender.name);
            let kind = spender.kind.as_ref().map_or_else(String::new, |kind| format!(" {}", kind.replace('_', " ")));
            cells(spender, if name.is_empty() { "(none)".into() } else { format!("{name}{kind}") })
        };
        table(
            &format!("{name}s that asked for most units since {since}"),
            &header,
            rows.iter().take(max).map(row),
            view,
        )
    };
    let tables = [
        kinds("client", clients, MAX_CLIENTS),
        kinds("network", networks, MAX_OTHER_SPENDERS),
        kinds("path", paths, MAX_OTHER_SPENDERS),
        kinds("user agent", user_agents, MAX_OTHER_SPENDERS),
    ];
    match tables.concat().is_empty() {
        true => format!("No request has cost units since {since}.\n"),
        false => tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n"),
    }
}

/// Renders what the cache answered and saved; empty without a cache or requests.
fn cache(state: &StateDocument) -> String {
    let Some(CacheUsageDocument { hit_ratio: Some(ratio), saved, .. }) = &state.cache else { return String::new() };
    let mut by_quota = BTreeMap::<&str, Units>::new();
    for SavedUnits { quota, units, .. } in saved {
        let total = by_quota.entry(quota).or_default();
        *total = total.saturating_add(units.units().unwrap_or_default());
    }
    let mut text = format!(
        "cache: {} % of the requests on cached routes since the start",
        decimal(format!("{:.1}", ratio * 100.0))
    );
    for (quota, units) in by_quota {
        text.push_str(&format!("; {units} {} of {} saved", units.noun(), printable(quota)));
    }
    text.push('\n');
    text
}

fn scopes(scopes: &[ScopeDocument], view: &View) -> String {
    let row = |name: String, inflight: u64, throttle: Option<&ThrottleDocument>| {
        let inflight = group_digits(inflight);
        let dash = || "-".to_owned();
        let Some(throttle) = throttle else { return vec![name, inflight, dash(), dash(), dash()] };
        let inflight = match throttle.limit {
            Some(limit) => format!("{inflight} of {}", group_digits(limit)),
            None => inflight,
        };
        let queued = group_digits(throttle.queue_length);
        vec![name, inflight, queued, delay_text(throttle.delay_s), backoff_text(throttle, view)]
    };
    let rows = scopes.iter().flat_map(|scope| {
        let throttle = scope.throttle.as_ref();
        let controller = throttle.map(|throttle| throttle.controller.as_str()).filter(|name| *name != "fixed");
        let controller = controller.map_or_else(String::new, |name| format!(", {name}"));
        let name = match scope.partitions {
            None => format!("{}{controller}", scope.name),
            Some(1) => format!("{}{controller}, 1 partition", scope.name),
            Some(count) => format!("{}{controller}, {} partitions", scope.name, group_digits(count)),
        };
        let busy = scope.busiest_partitions.iter().flatten().filter(|value| is_busy(value)).take(MAX_PARTITIONS);
        let value = |value: &PartitionDocument| {
            let name = if value.partition.is_empty() { "(none)" } else { &value.partition };
            row(format!("  {name}"), value.inflight, Some(&value.throttle))
        };
        std::iter::once(row(name, scope.inflight, throttle)).chain(busy.map(value)).collect::<Vec<_>>()
    });
    let header = [("scope", Left), ("in flight", Right), ("queued", Right), ("delay", Right), ("state", Left)];
    table("scopes of the origin", &header, rows, view)
}

fn is_busy(partition: &PartitionDocument) -> bool {
    partition.inflight + partition.throttle.queue_length > 0 || partition.throttle.backoff_s > 0.0
}

/// Formats the time between two requests.
fn delay_text(seconds: f64) -> String {
    match seconds {
        none if none <= 0.0 => "-".into(),
        short if short < 1.0 => format!("{:.0} ms", short * 1000.0),
        long => format!("{long:.1} s").replace(".0 s", " s"),
    }
}

fn backoff_text(throttle: &ThrottleDocument, view: &View) -> String {
    let remaining = throttle.backoff_s.ceil() as u64;
    match (remaining, throttle.backoff_level) {
        (0, 0) if throttle.backoff_parts > 0 => format!("{} clients or routes", throttle.backoff_parts),
        (0, 0) => "-".into(),
        (0, level) => format!("recovering (level {level})"),
        (remaining, level) => {
            view.color.red(&format!("backing off for {} (level {level})", format_duration(remaining)))
        }
    }
}

fn clients(clients: &[ClientDocument], view: &View) -> String {
    let tokens = |client: &ClientDocument| client.bucket_remaining.map_or("-".into(), group_digits);
    let until = |client: &ClientDocument| match (&client.limited_by, client.limited_for_s) {
        (Some(_), Some(seconds)) => format!("limited for {}", format_duration(seconds)),
        (Some(rule), None) => rule.clone(),
        (None, _) => "-".into(),
    };
    let rows = clients.iter().filter(|client| client.refused > 0).take(MAX_CLIENTS);
    let rows = rows.map(|client| {
        vec![client.key.clone(), client.class.clone(), group_digits(client.refused), tokens(client), until(client)]
    });
    let header = [("key", Left), ("class", Left), ("refused", Right), ("tokens left", Right), ("state", Left)];
    table("most refused clients", &header, rows, view)
}

fn corrections(state: &StateDocument, view: &View) -> String {
    let row = |correction: &CorrectionDocument| {
        let time = view.local(&correction.time, Some(&state.time));
        let peer = format!("{}{}", host(correction.peer.as_deref()), if correction.token { ", token" } else { "" });
        vec![
            time,
            correction.quota.clone(),
            correction.from.to_string(),
            correction.to.to_string(),
            correction.by.clone().unwrap_or("-".into()),
            peer,
        ]
    };
    let header =
        [("at", Left), ("quota", Left), ("was", Right), ("is", Right), ("by (unverified)", Left), ("from", Left)];
    table("manual corrections", &header, state.corrections.iter().map(row), view)
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
    format!("{}\n{lines}", view.color.bold("warnings"))
}

/// Renders a table with its title; empty if there are no rows. The first column is truncated if the table is wider than
/// the page, because its content often comes from clients and may be long.
fn table(title: &str, header: &[(&str, Align)], rows: impl Iterator<Item = Vec<String>>, view: &View) -> String {
    let (names, alignment): (Vec<&str>, Vec<Align>) = header.iter().copied().unzip();
    let mut rows: Vec<Vec<String>> =
        std::iter::once(names.iter().map(|name| view.color.dim(name)).collect()).chain(rows).collect();
    if rows.len() == 1 {
        return String::new();
    }
    let widest = |index: usize| rows.iter().map(|row| display_width(&row[index])).max().unwrap_or_default();
    let others: usize = (1..header.len()).map(|index| GAP + widest(index)).sum();
    let width = view.width.saturating_sub(INDENT + others).max(MIN_COLUMN);
    rows.iter_mut().skip(1).for_each(|row| row[0] = ellipsize(&row[0], width));
    format!("{}\n{}", view.color.bold(title), columns(INDENT, &alignment, rows.into_iter()))
}

/// Columns before a table, and between two columns of it.
const INDENT: usize = 2;
const GAP: usize = 2;

/// Minimum width of a truncated text, in columns.
const MIN_COLUMN: usize = 12;

/// Number of clients and of partitions shown; the API returns more.
const MAX_CLIENTS: usize = 10;
const MAX_OTHER_SPENDERS: usize = 5;
const MAX_PARTITIONS: usize = 5;
