//! Validates `robots`, and resolves the crawl delay of each operator.

use super::classes::operator_id;
use super::diagnostics::Diagnostics;
use crate::raw::classes::CrawlDelay as RawCrawlDelay;
use crate::raw::{self, server};
use crate::scalars::Delay;
use crate::setting_path::SettingPath;
use crate::settings::Robots;
use std::time::Duration;
use tidegate_policy::class::{Class, ClassMatcher};
use tidegate_policy::crawl_delay::{self, CrawlDelay, CrawlDelays};
use tidegate_policy::terms::UsageTerms;
use tidegate_policy::{ClassId, ClientKind, OperatorId};

pub(super) fn robots(raw: &raw::File, classes: &[Class], operators: &[&str], report: &mut Diagnostics) -> Robots {
    let server::Robots { merge_crawl_delay: merge, override_file: file, honeypot, terms, license } = &raw.robots;
    let delays = delays(&raw.classes, classes, operators, report);
    if !merge && delays != CrawlDelays::default() {
        let path = SettingPath::ROOT.robots().merge_crawl_delay();
        report.warning(format!("{path}: false keeps every crawl_delay out of robots.txt"));
    }
    Robots {
        delays: if *merge { delays } else { CrawlDelays::default() },
        override_file: file.as_ref().map(|file| (&file.0).into()),
        honeypot: honeypot.clone(),
        terms: if *terms { usage_terms(classes, report) } else { UsageTerms::default() },
        license: license.clone(),
    }
}

fn usage_terms(classes: &[Class], report: &mut Diagnostics) -> UsageTerms {
    let terms = UsageTerms::of_classes(classes);
    if terms.is_empty() {
        let hint = "write one, such as classes: [{ name: training, when: { purpose: training }, block: true }]";
        report.error(&SettingPath::ROOT.robots().terms(), "no class is for a purpose", hint);
    }
    terms
}

/// Returns the crawl delays. A delay by operator takes precedence over the delay of its class.
fn delays(raw: &[raw::classes::Class], classes: &[Class], operators: &[&str], report: &mut Diagnostics) -> CrawlDelays {
    let mut delays = CrawlDelays::default();
    let mut class_delays = Vec::with_capacity(raw.len());
    for (index, class) in raw.iter().enumerate() {
        let path = SettingPath::of_class(index).crawl_delay();
        let when = &classes[index].matcher;
        if !matches!(class.crawl_delay, RawCrawlDelay::None) && !can_match_crawlers(when) {
            report.error(
                &path,
                "this class matches no crawlers, so crawl_delay has no effect",
                "write it at the class of verified_bot or declared_bot",
            );
        }
        let RawCrawlDelay::ByOperator(named) = &class.crawl_delay else {
            class_delays.push(match &class.crawl_delay {
                RawCrawlDelay::All(delay) => {
                    warn_unknown_crawlers(when, &path, report);
                    Some(crawl_delay(delay, index, &path, report))
                }
                _ => None,
            });
            continue;
        };
        class_delays.push(None);
        for (operator, delay) in &named.0 {
            let path = path.entry(operator);
            let delay = crawl_delay(delay, index, &path, report);
            let Some(id) = operator_id(operator, &path, operators, report) else { continue };
            if !when.operators.is_empty() && !when.operators.contains(&id) {
                report.error(
                    &path,
                    format!("{operator} is not in this class"),
                    "write it at the class of its crawlers",
                );
            }
            match delays.per_operator.iter().any(|(known, _)| *known == id) {
                true => {
                    report.error(&path, format!("duplicate crawl_delay for operator {operator}"), "keep one of them");
                }
                false => delays.per_operator.push((id, delay)),
            }
        }
    }
    let bot_delay = |kind, operator| {
        let class = crawl_delay::find_bot_class(classes, kind, operator, None)?;
        class_delays.get(class.index()).copied().flatten()
    };
    for operator in (0..operators.len()).map(OperatorId::from_index) {
        if delays.per_operator.iter().all(|(known, _)| *known != operator) {
            let class_delay = bot_delay(ClientKind::VerifiedBot, Some(operator));
            delays.per_operator.extend(class_delay.map(|delay| (operator, delay)));
        }
    }
    delays.default = bot_delay(ClientKind::DeclaredBot, None);
    delays
}

/// Returns true if the class can contain crawlers that read robots.txt: suspected bots and impostors are excluded.
fn can_match_crawlers(when: &ClassMatcher) -> bool {
    when.kinds.is_empty()
        || when.kinds.iter().any(|kind| matches!(kind, ClientKind::VerifiedBot | ClientKind::DeclaredBot))
}

/// Warns about a delay for a class whose crawlers robots.txt cannot name: it names operators.
fn warn_unknown_crawlers(when: &ClassMatcher, path: &SettingPath, report: &mut Diagnostics) {
    if !(when.user_agents.is_empty() && when.purposes.is_empty() && when.depends_on_crawler_only()) {
        report.warning(format!(
            "{path}: not in robots.txt, because the class has other conditions than kind and operator; name the operators: crawl_delay: {{ bingbot: 30s }}"
        ));
    }
}

fn crawl_delay(delay: &Delay, class: usize, path: &SettingPath, report: &mut Diagnostics) -> CrawlDelay {
    let Some(span) = delay.0 else { return CrawlDelay::Auto(ClassId::from_index(class)) };
    let span = report.nonzero_duration(path, Some(span), Duration::from_secs(10));
    let seconds = crawl_delay::clamp_to_seconds(span);
    if !span.is_zero() && span != Duration::from_secs(seconds.into()) {
        report.warning(format!("{path}: crawlers read whole seconds from 1 to 30, so robots.txt has {seconds}s"));
    }
    CrawlDelay::Seconds(seconds)
}
