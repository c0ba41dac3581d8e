//! Summary lines of crawler verification, operators, robots.txt and the crawl policy.

use super::BuiltinOperators;
use super::format::duration;
use crate::Settings;
use crate::settings::{CrawlPolicy, CrawlerOperator, Robots, Signatures, Verify};
use std::time::Duration;
use tidegate_policy::class::Class;
use tidegate_policy::crawl_delay::{self, CrawlBudget, CrawlDelay, CrawlDelays};
use tidegate_policy::exempt::CRAWL_POLICY_PATH;
use tidegate_policy::{ClassId, ClientKind, ProofMethod, Units};

pub(super) fn verify(verify: &Verify) -> String {
    let lists = match verify.refresh_interval {
        Some(interval) => format!("range lists fetched every {}", duration(interval)),
        None => "no range list is fetched".into(),
    };
    let dns = match &verify.dns {
        None => "DNS off".into(),
        Some(dns) if dns.nameservers.is_empty() => "DNS through the system's name servers".into(),
        Some(dns) => {
            let servers: Vec<String> = dns.nameservers.iter().map(ToString::to_string).collect();
            format!("DNS through {}", servers.join(", "))
        }
    };
    let signatures = match &verify.signatures {
        None => "signatures off".into(),
        Some(Signatures { fetch_unlisted_keys: unlisted_agents, max_lifetime, accept_signature }) => {
            let agents = if *unlisted_agents { "any agent" } else { "operators' agents" };
            let asked = if *accept_signature { ", which refusals ask for" } else { "" };
            format!(
                "signatures of {agents} valid for up to {}, by keys fetched from the agents{asked}",
                duration(*max_lifetime)
            )
        }
    };
    format!("{lists}; {dns}; {signatures}")
}

/// Returns the summary line of an operator of the file. Product tokens and agents that it takes from a built-in
/// operator are marked.
pub(super) fn operator(operator: &CrawlerOperator, builtin: &BuiltinOperators<'_>) -> String {
    let mut parts = Vec::new();
    let annotate = |list: &Option<Vec<String>>, builtin: &[(&str, &str)]| {
        let mark_reassigned = |text: &String| {
            let is_reassigned =
                |(known, name): &&(&str, &str)| known.eq_ignore_ascii_case(text) && *name != operator.name;
            builtin.iter().find(is_reassigned).map_or(text.clone(), |(_, name)| format!("{text} (no longer {name})"))
        };
        list.as_ref().map(|list| list.iter().map(mark_reassigned).collect::<Vec<String>>())
    };
    let mut add = |label: &str, list: Option<Vec<String>>| {
        if let Some(list) = list {
            parts.push(format!("{label} {}", if list.is_empty() { "none".into() } else { list.join(", ") }));
        }
    };
    add("product tokens", annotate(&operator.product_tokens, &builtin.product_tokens));
    add("ranges", operator.ranges.clone());
    add("DNS names", operator.dns_names.as_ref().map(|names| names.iter().map(ToString::to_string).collect()));
    let method_name = |method: &ProofMethod| match method {
        ProofMethod::Address => "ranges".to_owned(),
        ProofMethod::Dns => "DNS names".to_owned(),
    };
    match operator.exhaustive.as_ref().map(|methods| methods.iter().map(method_name).collect::<Vec<String>>()) {
        Some(methods) if methods.is_empty() => add("impostors", Some(Vec::new())),
        methods => add("exhaustive", methods),
    }
    add("signature agents", annotate(&operator.signature_agents, &builtin.signature_agents));
    let is_built_in = || builtin.names.contains(&operator.name.as_str());
    let parts = match parts.is_empty() {
        false => parts.join("; "),
        true if is_built_in() => "as built in".into(),
        true => "no keys".into(),
    };
    format!("{}: {parts}", operator.name)
}

/// Returns the summary lines of robots.txt. Delays by `auto` assume that other clients use nothing of the budget.
pub(super) fn robots(settings: &Settings, operators: &[String]) -> Vec<String> {
    let Robots { delays, override_file: file, honeypot, terms, license } = &settings.robots;
    let text = file.as_ref().map_or_else(|| "from the origin".into(), |file| file.display().to_string());
    let mut lines = vec![format!("\nrobots.txt: {text}")];
    let delay_line = |crawlers: &str, delay: &CrawlDelay| match delay {
        CrawlDelay::Seconds(seconds) => format!("  crawl delay of {crawlers}: {seconds}s"),
        CrawlDelay::Auto(class) => {
            let budgets = crawl_delay::budgets(&settings.rules, *class, |_| Units::ZERO);
            // Without a budget, the delay would be infinite.
            match budgets.max_by_key(|budget| budget.required_delay_s().unwrap_or(u32::MAX)) {
                Some(budget) => {
                    let (seconds, warning) = (budget.affordable_delay(), budget_warning(&budget));
                    format!("  crawl delay of {crawlers}: auto, initially {seconds}s{warning}")
                }
                None => format!("  crawl delay of {crawlers}: none; auto requires a route with a cost"),
            }
        }
    };
    let classes = &settings.rules.classes;
    for CrawlDelayGroup { class, delay, operators } in group_delays(delays, classes, operators) {
        let crawlers = match class.and_then(|class| classes.get(class.index())) {
            Some(class) if operators.len() > MAX_LISTED_OPERATORS => {
                format!("the {} operators of class {}", operators.len(), class.name)
            }
            _ => operators.join(", "),
        };
        lines.push(delay_line(&crawlers, &delay));
    }
    lines.extend(delays.default.iter().map(|delay| delay_line("unknown bots", delay)));
    lines.extend(honeypot.iter().map(|path| format!("  honeypot: {path}")));
    if !terms.is_empty() {
        let permissions = [("search", terms.search), ("agent", terms.agent), ("training", terms.training)];
        let stated = permissions.iter().filter_map(|(purpose, permission)| Some((purpose, (*permission)?)));
        let stated: Vec<String> = stated
            .map(|(purpose, is_allowed)| format!("{purpose} {}", if is_allowed { "yes" } else { "no" }))
            .collect();
        lines.push(format!("  terms: {}", stated.join(", ")));
    }
    lines.extend(license.iter().map(|url| format!("  license: {url}")));
    lines
}

/// Returns why the longest crawl delay does not make `budget` last; empty if it does.
fn budget_warning(budget: &CrawlBudget) -> String {
    match budget.required_delay_s() {
        None => "; no budget: the tiers refuse all its requests".into(),
        Some(seconds) if seconds > crawl_delay::MAX_DELAY_S => {
            let lasts = budget.window.as_secs() * u64::from(crawl_delay::MAX_DELAY_S) / u64::from(seconds);
            let unit = if lasts >= 3600 { 3600 } else { 60 };
            let lasts = duration(Duration::from_secs(lasts.div_ceil(unit) * unit));
            let max = crawl_delay::MAX_DELAY_S;
            format!(
                "; the budget needs {seconds}s, but the maximum is {max}s: it lasts about {lasts} of {}",
                duration(budget.window)
            )
        }
        Some(_) => String::new(),
    }
}

/// Operators of one class with the same crawl delay.
struct CrawlDelayGroup<'a> {
    class: Option<ClassId>,
    delay: CrawlDelay,
    operators: Vec<&'a str>,
}

fn group_delays<'a>(delays: &CrawlDelays, classes: &[Class], operators: &'a [String]) -> Vec<CrawlDelayGroup<'a>> {
    let mut groups: Vec<CrawlDelayGroup<'a>> = Vec::new();
    for &(operator, delay) in &delays.per_operator {
        let class = crawl_delay::find_bot_class(classes, ClientKind::VerifiedBot, Some(operator), None);
        let name = operators.get(operator.index()).map_or("?", String::as_str);
        match groups.iter_mut().find(|group| (group.class, group.delay) == (class, delay)) {
            Some(group) => group.operators.push(name),
            None => groups.push(CrawlDelayGroup { class, delay, operators: vec![name] }),
        }
    }
    groups
}

/// Returns the summary line of the crawl policy.
pub(super) fn crawl_policy(policy: Option<&CrawlPolicy>) -> String {
    let Some(CrawlPolicy { contact, show_units: units, .. }) = policy else { return "crawl policy: off".into() };
    let units = if *units { ", with units" } else { "" };
    let contact = contact.as_ref().map_or_else(String::new, |contact| format!(", contact {contact}"));
    format!("crawl policy: at {CRAWL_POLICY_PATH}{units}{contact}")
}

/// Maximum number of operators that a line lists by name; of more, it shows the number.
const MAX_LISTED_OPERATORS: usize = 4;
