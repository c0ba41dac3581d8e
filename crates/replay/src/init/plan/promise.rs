//! What a policy keeps, in figures that an owner understands.

use super::super::cache_savings::CacheShares;
use super::super::dry_run::{DailyDemand, PEOPLE};
use super::super::self_requests::CRON;
use super::PlanOptions;
use super::call_promise::{CallPromise, assumptions};
use super::policy_text::PolicyText;
use super::share::{percent, ratio};
use crate::display_zone::{DisplayZone, seconds};
use crate::log::ClientNotes;
use crate::report::{BotReport, ClassReport, MIN_REQUESTS_PER_HOUR, PolicyReport, Report, WindowReport};
use crate::serialize;
use crate::terminal::{group_digits, printable};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use tidegate_config::SEARCH_ENGINES;
use tidegate_policy::promise as policy;
use tidegate_policy::tier::Share;
use tidegate_policy::{Reason, Timestamp, Units};

/// Name of the built-in class of search engines.
const SEARCH: &str = policy::Promise::SEARCH_CLASS;

/// Reason of refusals of a client that has used its share.
const CLIENT_SHARE: &str = Reason::ClientShare.name();

/// Steps of promised shares, in millionths.
const TENTH_OF_PERCENT: u32 = 1000;
const PERCENT: u32 = 10_000;

/// Largest share of an hour that is promised, in millionths: one refused page of fifty is no miss.
const MAX_SERVED: u32 = 980_000;

/// Number of unproven requests from which search engines that are never proven are doubtful.
const MIN_UNPROVEN_CLAIMS: u64 = 20;

/// Number of search engines that are named.
const MAX_ENGINES: usize = 3;

/// Figures that a policy keeps on its logs. Shares are of requests that cost units, 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct Promise {
    /// Number of requests.
    pub requests: u64,
    /// Share of people's requests that is refused, without those of clients that use more than people need; null without any.
    pub people_refused: Option<f64>,
    /// Number of requests of a browser's user agent that are refused because their client or its network used more than people
    /// need.
    pub refused_beyond_share: u64,
    /// Share of the requests of verified search engines that is admitted; null without any.
    pub search_admitted: Option<f64>,
    /// The same in the worst hour with ten requests; null without such an hour.
    pub search_worst_hour: Option<f64>,
    /// The most active search engines, each with the share of the units it asks for that it gets.
    pub engines: Vec<(String, f64)>,
    /// Share of the requests of other bots that is admitted; null without any.
    pub bots_admitted: Option<f64>,
    /// Largest share of the limit that is left over in a whole window in which more is asked for; null without one.
    pub left_over: Option<f64>,
    /// Units charged beyond the limit.
    #[serde(serialize_with = "serialize::units")]
    pub overrun: Units,
    /// Without the policy: the first time at which the limit was used up, on the day on which that was the earliest; null if it
    /// never was.
    #[serde(serialize_with = "serialize::optional_rfc3339")]
    pub spent_without: Option<Timestamp>,
    /// Figures of the calls of a model API; null for a site.
    pub calls: Option<CallPromise>,
    /// `spent_without` in words, in the zone of the quota.
    #[serde(skip)]
    spent_without_text: String,
    #[serde(skip)]
    bots_refused_by: String,
    #[serde(skip)]
    notes: Vec<String>,
    #[serde(skip)]
    span: String,
    #[serde(skip)]
    is_less_than_a_day: bool,
}

impl Promise {
    /// Returns the figures of a replay under the policy, and then under its limit alone.
    pub(super) fn new(
        report: &Report,
        demand: &DailyDemand,
        own_calls: Option<(IpAddr, u64)>,
        health_checks: &[(&str, u64)],
        is_less_than_a_day: bool,
    ) -> Self {
        let [policy, without] = &report.policies[..] else { unreachable!("two policies are replayed") };
        let zone = DisplayZone::for_report(report);
        let (people, search) = (class(policy, PEOPLE), class(policy, SEARCH));
        let beyond_share = people.and_then(|class| class.refused.get(CLIENT_SHARE).copied()).unwrap_or(0);
        let is_other = |class: &&ClassReport| ![PEOPLE, SEARCH].contains(&class.name.as_str());
        let spent = windows(without).iter().filter_map(|window| Some((window.spent?, window.start)));
        let spent_without =
            spent.min_by_key(|(spent, start)| spent.saturating_duration_since(*start)).map(|(spent, _)| spent);
        let mut notes = Vec::new();
        if let Some((address, calls)) = own_calls {
            let calls = group_digits(calls);
            notes.push(format!("{calls} calls of the site to itself ({CRON} from {address}) cost nothing"));
        }
        for (path, calls) in health_checks {
            let calls = group_digits(*calls);
            notes.push(format!(
                "{calls} calls of {path} by machines of the site (health checks, loopback) cost nothing"
            ));
        }
        let unread: u64 = report.log.invalid_lines.values().map(|error| error.lines).sum();
        if unread > 0 {
            let (unread, lines) = (group_digits(unread), group_digits(report.log.lines));
            notes.push(format!("not read: {unread} of {lines} lines; `tidegate replay` says why"));
        }
        notes.extend(reading_notes(&report.log.clients));
        notes.extend(unverified_note(policy));
        notes.extend(cache_note(&demand.cache));
        if let Some(network) = demand.only_network() {
            notes.push(format!(
                "nearly all requests come from {network}: it looks like a proxy, and crawlers and shares of clients need the \
                 addresses behind it"
            ));
        }
        Self {
            requests: report.log.requests,
            people_refused: people
                .filter(|class| class.costly > 0)
                .map(|class| 1.0 - ratio((class.costly_admitted + beyond_share, class.costly))),
            refused_beyond_share: beyond_share,
            search_admitted: admitted_share(search),
            search_worst_hour: worst_hour(policy),
            engines: engines(policy),
            bots_admitted: admitted_share(policy.classes.iter().filter(is_other)),
            left_over: left_over(policy, without),
            overrun: windows(policy).iter().map(|window| window.overrun).max().unwrap_or_default(),
            spent_without,
            calls: None,
            spent_without_text: spent_text(windows(without), spent_without, &zone),
            bots_refused_by: refused_by(policy.classes.iter().filter(is_other)),
            notes,
            is_less_than_a_day,
            span: format!(
                "{} to {}",
                zone.format(seconds(report.log.first), "%-d %b %Y %H:%M"),
                zone.format(seconds(report.log.last), "%-d %b %Y %H:%M")
            ),
        }
    }

    /// Returns the figures as those of one window.
    pub fn figures(&self) -> policy::KeptFigures {
        policy::KeptFigures {
            people_refused: self.people_refused,
            search_served: self.search_worst_hour,
            left_over: self.left_over,
            overrun: self.overrun,
        }
    }

    /// Returns what the gateway can be held to: the figures, rounded towards the lenient side, since no day is like another.
    pub(super) fn rounded(&self) -> policy::Promise {
        let millionths = |ratio: f64| (ratio * 1e6).round() as u32;
        let up_to =
            |step: u32| move |ratio: f64| Share::from_millionths(millionths(ratio).max(1).next_multiple_of(step));
        let down_to =
            |step: u32| move |ratio: f64| Share::from_millionths((millionths(ratio) / step * step).min(MAX_SERVED));
        policy::Promise {
            people_refused: self.people_refused.map(up_to(TENTH_OF_PERCENT)),
            search_served: self.search_worst_hour.map(down_to(PERCENT)),
            left_over: self.left_over.map(up_to(PERCENT)),
        }
    }

    /// Returns the promise as a comment of the file, with what was assumed.
    pub(super) fn comment(
        &self,
        names: &[String],
        policy: &PolicyText,
        options: &PlanOptions,
        zone_remark: &str,
    ) -> String {
        let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
        let mut text = format!(
            "# What this policy keeps, on the {} {} of {} ({}):\n",
            group_digits(self.requests),
            if self.requests == 1 { "request" } else { "requests" },
            names.join(", "),
            self.span
        );
        for line in self.lines() {
            let _ = writeln!(text, "#   {line}");
        }
        let mut assumed = policy.tokens.as_ref().map_or_else(|| vec!["one unit is one page".to_owned()], assumptions);
        if options.limit.is_none() {
            let day = match self.is_less_than_a_day {
                true => "a day at the rate of the log, which is shorter",
                false => "the busiest day of the log",
            };
            assumed.push(format!("the limit is {day} (--limit {})", policy.limit));
        }
        if options.zone.is_none() {
            assumed.push(format!("the day begins at midnight in {}, as {zone_remark} (--zone)", policy.zone));
        }
        let _ = writeln!(text, "# Assumed: {}.", assumed.join("; "));
        let learned = if self.calls.is_none() { "The figures hold after `tidegate learn` on this log. " } else { "" };
        let _ = writeln!(text, "# {learned}`tidegate check` prints all that is left out here.");
        text
    }

    /// Returns the figures, one sentence each.
    pub fn lines(&self) -> Vec<String> {
        if let Some(calls) = &self.calls {
            let limit = format!("limit: {}", self.spent_without_text);
            return calls.lines().into_iter().chain([limit]).chain(self.notes.iter().cloned()).collect();
        }
        let engines: Vec<String> =
            self.engines.iter().map(|(name, admitted)| format!("{name} {}", percent(*admitted))).collect();
        let worst =
            self.search_worst_hour.map_or_else(String::new, |ratio| format!("; {} in the worst hour", percent(ratio)));
        let engines = if engines.is_empty() { String::new() } else { format!(" ({})", engines.join(", ")) };
        let served = |who: &str, admitted: Option<f64>| match admitted {
            Some(admitted) => format!("{who}: {} of their pages served", percent(admitted)),
            None => format!("{who}: none in the log"),
        };
        let mut lines = vec![
            match self.people_refused {
                Some(refused) => format!("people: {} of their pages refused", percent(refused)),
                None => "people: none in the log".to_owned(),
            },
            served("verified search engines", self.search_admitted) + &engines + &worst,
            served("other bots", self.bots_admitted) + &self.bots_refused_by,
        ];
        if self.refused_beyond_share > 0 {
            let refused = group_digits(self.refused_beyond_share);
            let who = "addresses that use more than people need (programs, or many people behind one address)";
            lines.insert(1, format!("{who}: {refused} pages refused"));
        }
        if let Some(left_over) = self.left_over {
            lines.push(format!("left over of a day on which more is asked for: {} at most", percent(left_over)));
        }
        lines.push(format!("without it: {}", self.spent_without_text));
        lines.extend(self.notes.iter().cloned());
        lines
    }
}

fn class<'a>(policy: &'a PolicyReport, name: &str) -> Option<&'a ClassReport> {
    policy.classes.iter().find(|class| class.name == name)
}

fn windows(policy: &PolicyReport) -> &[WindowReport] {
    policy.quotas.first().map_or(&[], |quota| &quota.windows)
}

/// Returns the share of the requests with a cost of the classes that is admitted, if there are any.
fn admitted_share<'a>(classes: impl IntoIterator<Item = &'a ClassReport>) -> Option<f64> {
    let add = |(part, all): (u64, u64), class: &ClassReport| (part + class.costly_admitted, all + class.costly);
    let (admitted, costly) = classes.into_iter().fold((0, 0), add);
    (costly > 0).then(|| ratio((admitted, costly)))
}

fn spent_text(windows: &[WindowReport], spent: Option<Timestamp>, zone: &DisplayZone) -> String {
    let Some(spent) = spent else { return "the limit suffices for all requests of the log".to_owned() };
    let (days, time) = (windows.len(), zone.format(seconds(spent), "%H:%M"));
    let spent_days = windows.iter().filter(|window| window.spent.is_some()).count();
    format!(
        "nothing would be left for anyone on {spent_days} of {days} days (parts included), at the earliest from {time}"
    )
}

fn worst_hour(policy: &PolicyReport) -> Option<f64> {
    let of_search = policy.hours.iter().flat_map(|hour| &hour.classes).filter(|class| class.name == SEARCH);
    let ratios = of_search.filter(|class| class.costly >= MIN_REQUESTS_PER_HOUR).filter_map(|class| class.admit_ratio);
    ratios.min_by(f64::total_cmp)
}

fn engines(policy: &PolicyReport) -> Vec<(String, f64)> {
    let is_engine = |name: &str| SEARCH_ENGINES.contains(&name);
    let mut engines: Vec<_> = policy
        .bots
        .iter()
        .filter(|bot| bot.kind == "verified_bot" && is_engine(&bot.name) && !bot.units_asked.is_zero())
        .collect();
    engines.sort_by_key(|bot| std::cmp::Reverse(bot.requests));
    let share =
        |bot: &&BotReport| (bot.name.clone(), bot.units.as_f64() / bot.units_asked.as_f64().max(f64::MIN_POSITIVE));
    engines.iter().take(MAX_ENGINES).map(share).collect()
}

fn left_over(policy: &PolicyReport, without: &PolicyReport) -> Option<f64> {
    let exceeded = windows(policy)
        .iter()
        .zip(windows(without))
        .filter(|(window, without)| window.whole && without.spent.is_some());
    let exceeded = exceeded.map(|(window, _)| window);
    let share =
        |window: &WindowReport| window.left.as_f64() / window.used.saturating_add(window.left).as_f64().max(0.001);
    exceeded.map(share).max_by(f64::total_cmp)
}

/// Returns how often each check refused requests of the classes, as the end of a sentence; empty if none did.
fn refused_by<'a>(classes: impl Iterator<Item = &'a ClassReport>) -> String {
    let mut refused = BTreeMap::<&str, u64>::new();
    for (reason, requests) in classes.flat_map(|class| &class.refused) {
        *refused.entry(reason).or_default() += requests;
    }
    let counts: Vec<String> =
        refused.into_iter().map(|(reason, requests)| format!("{reason} {}", group_digits(requests))).collect();
    if counts.is_empty() { String::new() } else { format!(" (refused by {})", counts.join(", ")) }
}

/// Returns how the lines were read, and what is doubtful about it.
fn reading_notes(clients: &ClientNotes) -> impl Iterator<Item = String> {
    let ClientNotes { formats, columns, warnings } = clients;
    let read = format!("read as {}; client: {}", formats.join(", "), columns.join(", "));
    [read].into_iter().chain(warnings.iter().map(|warning| format!("doubtful: {warning}"))).map(|note| printable(&note))
}

/// Returns a doubt if many requests claim search engines and not one of them is proven: their addresses are in another
/// column, or they are all impostors.
fn unverified_note(policy: &PolicyReport) -> Option<String> {
    let is_engine = |bot: &&BotReport| SEARCH_ENGINES.iter().any(|engine| engine.eq_ignore_ascii_case(&bot.name));
    let claims = policy.bots.iter().filter(is_engine);
    let (verified, unproven): (Vec<&BotReport>, Vec<_>) = claims.partition(|bot| bot.kind == "verified_bot");
    let requests: u64 = unproven.iter().map(|bot| bot.requests).sum();
    (verified.is_empty() && requests >= MIN_UNPROVEN_CLAIMS).then(|| {
        format!(
            "doubtful: {} requests claim to be search engines, and none of them has an address of one; see how the client is read",
            group_digits(requests)
        )
    })
}

fn cache_note(cache: &CacheShares) -> Option<String> {
    let share = |(lifetime, hits): &(&str, u64)| format!("{} ({lifetime})", percent(ratio((*hits, cache.requests))));
    let (first, last) = (cache.hits.first()?, cache.hits.last()?);
    (last.1 > 0).then(|| {
        format!(
            "copies of pages would serve {} to {} of them without a unit: add `cache: {{}}` if they are the same for all",
            share(first),
            share(last)
        )
    })
}
