//! How crawlers are known, and what robots.txt asks of them.

use super::format::duration;
use crate::config::Settings;
use crate::config::settings::{CrawlPolicy, CrawlerOperator, ProofMethod, RangeFile, Robots, Signatures, Verify};
use crate::policy::class::Class;
use crate::policy::crawl_delay::{self, CrawlBudget, CrawlDelay, CrawlDelays};
use crate::policy::decide::CRAWL_POLICY_PATH;
use crate::policy::{ClassId, ClientKind, OperatorId, Units};
use crate::verify::{self, OperatorTable};
use std::time::Duration;

pub(super) fn verify(verify: &Verify) -> String {
    let lists = match verify.refresh {
        Some(every) => format!("lists fetched anew every {}", duration(every)),
        None => "no list is fetched".into(),
    };
    let dns = match &verify.dns {
        None => "DNS is not asked".into(),
        Some(dns) if dns.nameservers.is_empty() => "DNS is asked of the system's name servers".into(),
        Some(dns) => {
            let servers: Vec<String> = dns.nameservers.iter().map(ToString::to_string).collect();
            format!("DNS is asked of {}", servers.join(", "))
        }
    };
    let signatures = match &verify.signatures {
        None => "signatures are not looked at".into(),
        Some(Signatures { unlisted_agents, max_lifetime }) => {
            let whose = if *unlisted_agents { "anybody's" } else { "operators'" };
            format!("{whose} signatures count for up to {}, by keys fetched from their agents", duration(*max_lifetime))
        }
    };
    format!("{lists}; {dns}; {signatures}")
}

/// A gate starts without them, and takes them over once they are right.
pub(super) fn range_file_warnings(settings: &Settings) -> Vec<String> {
    let told = |RangeFile { file, named_at, .. }: &RangeFile| {
        let trouble = verify::validate_file(file)?;
        Some(format!("{named_at}: {} cannot be used: {trouble}; until it can, it proves nobody", file.display()))
    };
    settings.range_files.iter().filter_map(told).collect()
}

/// What a token that was another's means for those who really are the other's.
pub(super) fn reassigned_tokens(settings: &Settings) -> Vec<String> {
    let builtin = OperatorTable::builtin();
    let mut notes = Vec::new();
    for (token, whose) in builtin.tokens() {
        let whose = builtin.name(whose);
        let takes = |written: &&CrawlerOperator| {
            written.name != whose && written.tokens.iter().flatten().any(|own| own.eq_ignore_ascii_case(token))
        };
        let Some(taker) = settings.operators.iter().find(takes) else { continue };
        let has_all = taker.complete.as_ref().is_some_and(|complete| !complete.is_empty());
        let become_what = if has_all { "impostors" } else { "declared bots" };
        notes.push(format!(
            "operators.{name}.tokens: whoever says {token} is held to {name} now, so the real crawlers of {whose} are {become_what}, \
             unless {name}'s ranges, names or keys prove them",
            name = taker.name
        ));
    }
    notes
}

/// What the file says of an operator. What it says of itself is taken from whoever had it.
pub(super) fn operator(operator: &CrawlerOperator, builtin: &OperatorTable) -> String {
    let mut told = Vec::new();
    let taken = |list: &Option<Vec<String>>, from: &mut dyn Iterator<Item = (&str, OperatorId)>| {
        let had: Vec<(String, &str)> = from.map(|(text, whose)| (text.to_owned(), builtin.name(whose))).collect();
        let told = |text: &String| {
            let is_anothers =
                |(known, name): &&(String, &str)| known.eq_ignore_ascii_case(text) && *name != operator.name;
            had.iter().find(is_anothers).map_or(text.clone(), |(_, name)| format!("{text} (no longer {name})"))
        };
        list.as_ref().map(|list| list.iter().map(told).collect::<Vec<String>>())
    };
    let mut tell = |what: &str, list: Option<Vec<String>>| {
        if let Some(list) = list {
            told.push(format!("{what} {}", if list.is_empty() { "none".into() } else { list.join(", ") }));
        }
    };
    tell("says", taken(&operator.tokens, &mut builtin.tokens()));
    tell("comes from", operator.ranges.clone());
    tell("is called", operator.names.as_ref().map(|names| names.iter().map(ToString::to_string).collect()));
    let means = |known: &ProofMethod| match known {
        ProofMethod::Addresses => "addresses".to_owned(),
        ProofMethod::Names => "names".to_owned(),
    };
    match operator.complete.as_ref().map(|complete| complete.iter().map(means).collect::<Vec<String>>()) {
        Some(none) if none.is_empty() => tell("never", Some(vec!["an impostor".into()])),
        complete => tell("always known by", complete),
    }
    tell("signs as", taken(&operator.signature_agents, &mut builtin.signature_agents()));
    let is_built_in = || builtin.names().any(|name| name == operator.name);
    let told = match told.is_empty() {
        false => told.join("; "),
        true if is_built_in() => "as built in".into(),
        true => "nothing is said of it".into(),
    };
    format!("{}: {told}", operator.name)
}

/// What robots.txt asks of whom, while nobody knows what people use of a budget.
pub(super) fn robots(settings: &Settings, operators: &[String]) -> Vec<String> {
    let Robots { delays, file, trap, .. } = &settings.robots;
    let text = file.as_ref().map_or_else(|| "the origin's".into(), |file| file.display().to_string());
    let mut lines = vec![format!("\nrobots.txt: {text}")];
    let asks = |whom: &str, delay: &CrawlDelay| match delay {
        CrawlDelay::Seconds(seconds) => format!("  asks {whom} for {seconds}s between two requests"),
        CrawlDelay::Auto(class) => {
            let budgets = crawl_delay::budgets(&settings.rules, *class, |_| Units::ZERO);
            // Nothing left is the longest of all.
            match budgets.max_by_key(|budget| budget.required_delay_s().unwrap_or(u32::MAX)) {
                Some(budget) => {
                    let (seconds, short) = (budget.affordable_delay(), budget_warning(&budget));
                    format!("  asks {whom} for what the budget affords, at first {seconds}s{short}")
                }
                None => format!("  asks {whom} for nothing: auto follows a quota, and no route has a cost"),
            }
        }
    };
    let classes = &settings.rules.classes;
    for Group { class, delay, operators } in groups(delays, classes, operators) {
        let whom = match class.and_then(|ClassId(place)| classes.get(usize::from(place))) {
            Some(class) if operators.len() > MAX_LISTED_OPERATORS => {
                format!("the {} operators of class {}", operators.len(), class.name)
            }
            _ => operators.join(", "),
        };
        lines.push(asks(&whom, &delay));
    }
    lines.extend(delays.default.iter().map(|delay| asks("unknown bots", delay)));
    lines.extend(trap.iter().map(|path| format!("  forbids {path}, which nothing links to")));
    lines
}

/// What a delay cannot do for a budget.
fn budget_warning(budget: &CrawlBudget) -> String {
    match budget.required_delay_s() {
        None => "; it has no budget, tiers refuse it wholly".into(),
        Some(seconds) if seconds > crawl_delay::MAX_DELAY_S => {
            let lasts = budget.window.as_secs() * u64::from(crawl_delay::MAX_DELAY_S) / u64::from(seconds);
            let unit = if lasts >= 3600 { 3600 } else { 60 };
            let lasts = duration(Duration::from_secs(lasts.div_ceil(unit) * unit));
            let most = crawl_delay::MAX_DELAY_S;
            format!(
                "; it needs {seconds}s, crawlers read {most}s at most: it lasts about {lasts} of {}",
                duration(budget.window)
            )
        }
        Some(_) => String::new(),
    }
}

/// Operators in one class who are asked the same.
struct Group<'a> {
    class: Option<ClassId>,
    delay: CrawlDelay,
    operators: Vec<&'a str>,
}

fn groups<'a>(delays: &CrawlDelays, classes: &[Class], operators: &'a [String]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for &(operator, delay) in &delays.per_operator {
        let class = crawl_delay::class_of(classes, ClientKind::VerifiedBot, Some(operator));
        let name = operators.get(usize::from(operator.0)).map_or("?", String::as_str);
        match groups.iter_mut().find(|group| (group.class, group.delay) == (class, delay)) {
            Some(group) => group.operators.push(name),
            None => groups.push(Group { class, delay, operators: vec![name] }),
        }
    }
    groups
}

/// What strangers are told.
pub(super) fn crawl_policy(policy: Option<&CrawlPolicy>) -> String {
    let Some(CrawlPolicy { contact, units, .. }) = policy else { return "crawl policy: not told".into() };
    let units = if *units { ", with units" } else { "" };
    let contact = contact.as_ref().map_or_else(String::new, |contact| format!(", more from {contact}"));
    format!("crawl policy: told at {CRAWL_POLICY_PATH}{units}{contact}")
}

/// As many operators as fit a line are named, more are counted.
const MAX_LISTED_OPERATORS: usize = 4;
