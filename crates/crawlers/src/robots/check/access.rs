//! What crawlers may fetch: the rule with the longest pattern that matches, of the groups that apply (RFC 9309 section
//! 2.2.2).

use super::super::directives::effective_group;
use super::super::parser::RecordKind;
use super::rules::{PathPattern, pattern_of};
use super::{CheckedText, CrawlerAccess, DecidingRule};
use std::collections::BTreeMap;

/// Returns what each crawler may fetch. Crawlers of one operator with the same result are one entry.
pub(super) fn access(
    source: &CheckedText<'_>,
    path: &str,
    crawlers: &[(&str, &str)],
    products: &[&[u8]],
) -> Vec<CrawlerAccess> {
    let path = PathPattern::of_path(path.as_bytes());
    let is_crawler = |name: &[u8]| products.iter().any(|product| product.eq_ignore_ascii_case(name));
    // Most crawlers read the same group.
    let mut by_group: BTreeMap<Option<&[u8]>, Verdict> = BTreeMap::new();
    let mut results: Vec<CrawlerAccess> = Vec::new();
    for ((operator, product), token) in crawlers.iter().zip(products) {
        let group = effective_group(&source.groups, token, is_crawler);
        let (allowed, rule) = by_group.entry(group).or_insert_with(|| verdict(source, &path, group)).clone();
        let result = CrawlerAccess {
            operator: (*operator).to_owned(),
            products: vec![(*product).to_owned()],
            allowed,
            group: group.map(|name| String::from_utf8_lossy(name).into_owned()),
            rule,
        };
        let is_same = |other: &&mut CrawlerAccess| {
            (&other.operator, other.allowed, &other.group, &other.rule)
                == (&result.operator, result.allowed, &result.group, &result.rule)
        };
        match results.iter_mut().find(is_same) {
            Some(other) => other.products.extend(result.products),
            None => results.push(result),
        }
    }
    results
}

/// Whether a path may be fetched, and the rule that says so.
type Verdict = (bool, Option<DecidingRule>);

/// Returns the verdict of a group.
fn verdict(source: &CheckedText<'_>, path: &PathPattern, group: Option<&[u8]>) -> Verdict {
    let records = group.into_iter().flat_map(|name| source.groups.groups_of(name)).flatten();
    let matching =
        records.filter_map(|record| Some((pattern_of(record)?, record))).filter(|(rule, _)| rule.covers(path));
    let is_allow = |kind| matches!(kind, RecordKind::Allow(_));
    // Of rules with equal length, the one that allows wins. The rules themselves can always be fetched.
    let rule = matching.max_by_key(|(pattern, record)| (pattern.len(), is_allow(record.kind)));
    let Some((_, record)) = rule.filter(|_| !path.is_robots_txt()) else { return (true, None) };
    (is_allow(record.kind), Some(DecidingRule { line: source.line_of(record), text: source.text_of(record) }))
}
