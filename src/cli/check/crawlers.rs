//! How crawlers are known, and what robots.txt asks of them.

use super::words::duration;
use crate::config::Settings;
use crate::config::settings::{CrawlerOperator, KnownBy, Robots, Verify};
use crate::policy::crawl_delay::{self, CrawlDelay};
use crate::policy::{OperatorId, Units};

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
    format!("{lists}; {dns}")
}

pub(super) fn operator(operator: &CrawlerOperator) -> String {
    let mut told = Vec::new();
    let mut tell = |what: &str, list: Option<Vec<String>>| {
        if let Some(list) = list {
            told.push(format!("{what} {}", if list.is_empty() { "none".into() } else { list.join(", ") }));
        }
    };
    tell("says", operator.tokens.clone());
    tell("comes from", operator.ranges.clone());
    tell("is called", operator.names.as_ref().map(|names| names.iter().map(ToString::to_string).collect()));
    let means = |known: &KnownBy| match known {
        KnownBy::Addresses => "addresses".to_owned(),
        KnownBy::Names => "names".to_owned(),
    };
    tell("always known by", operator.complete.as_ref().map(|complete| complete.iter().map(means).collect()));
    format!("{}: {}", operator.name, if told.is_empty() { "as built in".into() } else { told.join("; ") })
}

/// What robots.txt asks of whom, while nobody knows what people use of a budget.
pub(super) fn robots(settings: &Settings, operators: &[String]) -> Vec<String> {
    let Robots { delays, file, trap, .. } = &settings.robots;
    let text = file.as_ref().map_or_else(|| "the origin's".into(), |file| file.display().to_string());
    let mut lines = vec![format!("\nrobots.txt: {text}")];
    let name = |id: &OperatorId| operators.get(usize::from(id.0)).map_or("?", String::as_str);
    let mut asks = |whom: &str, delay: &CrawlDelay| {
        lines.push(match delay {
            CrawlDelay::Seconds(seconds) => format!("  asks {whom} for {seconds}s between two requests"),
            CrawlDelay::Auto(class) => {
                let budgets = crawl_delay::budgets(&settings.rules, *class, |_| Units::ZERO);
                match budgets.map(|budget| budget.affords()).max() {
                    Some(seconds) => format!("  asks {whom} for what the budget affords, at first {seconds}s"),
                    None => format!("  asks {whom} for nothing: auto follows a quota, and no route has a cost"),
                }
            }
        });
    };
    delays.of_operators.iter().for_each(|(operator, delay)| asks(name(operator), delay));
    delays.of_everybody.iter().for_each(|delay| asks("unknown bots", delay));
    lines.extend(trap.iter().map(|path| format!("  forbids {path}, which nothing links to")));
    lines
}
