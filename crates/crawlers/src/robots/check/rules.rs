//! Rules that decide nothing: they match no path, or another rule wins wherever they match.

use super::super::parser::{RecordKind, RobotsRecord};
use super::{CheckedText, RobotsFinding};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of rules of a crawler that are compared with each other.
const MAX_RULES: usize = 1000;
/// Maximum number of comparisons. Only a text made to be slow needs more.
const MAX_COMPARISONS: usize = 4_000_000;

/// A pattern of paths, in the form in which patterns and paths are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern {
    /// Bytes with `*` for any text, without the `$` at the end. These two characters of paths are encoded.
    bytes: Vec<u8>,
    /// True if the path must end with the pattern.
    is_anchored: bool,
    /// Bytes of the pattern as compared, with the `$`.
    length: usize,
}

/// Returns the pattern of a rule; `None` for other records, and for an empty one, which is no rule.
pub(super) fn pattern_of(record: &RobotsRecord<'_>) -> Option<PathPattern> {
    match record.kind {
        RecordKind::Allow(value) | RecordKind::Disallow(value) if !value.is_empty() => Some(PathPattern::new(value)),
        _ => None,
    }
}

impl PathPattern {
    fn new(value: &[u8]) -> Self {
        let bytes = normalized(value);
        let length = bytes.len();
        match bytes.strip_suffix(b"$") {
            Some(before) => Self { bytes: with_encoded(before, b"$"), is_anchored: true, length },
            None => Self { bytes: with_encoded(&bytes, b"$"), is_anchored: false, length },
        }
    }

    /// Returns the pattern that matches only this path.
    pub(super) fn of_path(path: &[u8]) -> Self {
        let bytes = with_encoded(&normalized(path), b"*$");
        Self { length: bytes.len(), bytes, is_anchored: true }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_robots_txt(&self) -> bool {
        self.bytes == b"/robots.txt"
    }

    /// Returns true if each path that matches `other` matches this pattern, as far as the text of both shows it: a `*` of
    /// `other` is matched by a `*` only.
    pub(super) fn covers(&self, other: &Self) -> bool {
        if self.is_anchored && !other.is_anchored {
            return false;
        }
        let mut parts = self.bytes.split(|&byte| byte == b'*');
        let Some(mut rest) = other.bytes.strip_prefix(parts.next().unwrap_or_default()) else { return false };
        let mut parts = parts.peekable();
        while let Some(part) = parts.next() {
            if self.is_anchored && parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some(start) = find(rest, part) else { return false };
            rest = &rest[start + part.len()..];
        }
        !self.is_anchored || rest.is_empty()
    }

    /// Returns true if no path matches, because a path begins with a slash.
    fn matches_nothing(&self) -> bool {
        !matches!(self.bytes.first(), Some(b'/' | b'*'))
    }
}

/// Returns the position of `part` in `text`.
fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

/// Returns a path or pattern with each octet in one spelling (RFC 9309 section 2.2.2): octets outside ASCII are encoded,
/// unreserved characters are not, and the hexadecimal digits of the others are capital letters.
fn normalized(value: &[u8]) -> Vec<u8> {
    let digit = |at: usize| value.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut bytes = Vec::with_capacity(value.len());
    let mut at = 0;
    while let Some(&byte) = value.get(at) {
        let encoded = if byte == b'%' { digit(at + 1).zip(digit(at + 2)) } else { None };
        let octet = encoded.map(|(high, low)| (high * 16 + low) as u8);
        at += if octet.is_some() { 3 } else { 1 };
        match octet {
            Some(octet) if octet.is_ascii_alphanumeric() || b"-._~".contains(&octet) => bytes.push(octet),
            Some(octet) => bytes.extend_from_slice(format!("%{octet:02X}").as_bytes()),
            None if byte.is_ascii() => bytes.push(byte),
            None => bytes.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    bytes
}

/// Returns a normalized path or pattern with these characters encoded, as a pattern writes them where it means the characters
/// themselves (RFC 9309 section 2.2.3).
fn with_encoded(bytes: &[u8], characters: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        match characters.contains(&byte) {
            true => encoded.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            false => encoded.push(byte),
        }
    }
    encoded
}

/// A rule of a crawler.
struct Rule<'s> {
    record: &'s RobotsRecord<'s>,
    pattern: PathPattern,
    is_allow: bool,
}

impl Rule<'_> {
    /// Returns true if this rule wins over `other` wherever that matches, with another result.
    fn beats(&self, other: &Self) -> bool {
        let is_stronger = match self.pattern.len().cmp(&other.pattern.len()) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => self.is_allow,
            std::cmp::Ordering::Less => false,
        };
        self.is_allow != other.is_allow && is_stronger && self.pattern.covers(&other.pattern)
    }

    /// Returns true if this rule stands before `other` and is the same.
    fn repeats(&self, other: &Self) -> bool {
        self.record.span.start < other.record.span.start
            && self.is_allow == other.is_allow
            && self.pattern == other.pattern
    }
}

/// Reports rules that decide nothing for any crawler that reads them.
pub(super) fn check(source: &CheckedText<'_>, findings: &mut Vec<RobotsFinding>) {
    let mut comparisons = MAX_COMPARISONS;
    // Rules that decide something for a crawler, and the others with the rule that beats or repeats them.
    let mut effective = BTreeSet::new();
    let mut useless: BTreeMap<usize, (String, &str)> = BTreeMap::new();
    for rules in rule_sets(source) {
        for rule in &rules {
            let line = source.line_of(rule.record);
            if rule.pattern.matches_nothing() {
                let problem = format!("{:?} matches nothing: a path begins with /", source.text_of(rule.record));
                findings.push(RobotsFinding::new(line, problem, "write the path from / on"));
                effective.insert(line);
                continue;
            }
            comparisons = comparisons.saturating_sub(rules.len());
            if comparisons == 0 {
                return;
            }
            let of_line = |other: &Rule<'_>| {
                format!("line {} ({:?})", source.line_of(other.record), source.text_of(other.record))
            };
            let winner = rules.iter().find(|other| other.beats(rule));
            let useless_by = match winner.or_else(|| rules.iter().find(|other| other.repeats(rule))) {
                Some(other) if other.is_allow == rule.is_allow => {
                    Some((format!("repeats {}", of_line(other)), "remove it"))
                }
                Some(other) => Some((format!("never applies, because {} wins", of_line(other)), "remove one of both")),
                None => None,
            };
            if let Some(by) = useless_by {
                useless.insert(line, by);
            } else {
                effective.insert(line);
            }
        }
    }
    let is_useless = |(line, _): &(usize, (String, &str))| !effective.contains(line);
    findings.extend(
        useless.into_iter().filter(is_useless).map(|(line, (problem, hint))| RobotsFinding::new(line, problem, hint)),
    );
}

/// Returns the rules of each set of groups that some crawler reads.
fn rule_sets<'s>(source: &'s CheckedText<'s>) -> Vec<Vec<Rule<'s>>> {
    let mut groups_by_product: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (index, group) in source.groups.groups().enumerate() {
        for record in group {
            if let RecordKind::UserAgent(product) = record.kind {
                let indexes = groups_by_product.entry(product.to_ascii_lowercase()).or_default();
                if indexes.last() != Some(&index) {
                    indexes.push(index);
                }
            }
        }
    }
    let sets: BTreeSet<Vec<usize>> = groups_by_product.into_values().collect();
    let groups: Vec<&[RobotsRecord<'s>]> = source.groups.groups().collect();
    let rules = |set: Vec<usize>| {
        let records = set.into_iter().flat_map(|index| groups[index]);
        let rule = |record: &'s RobotsRecord<'s>| {
            Some(Rule { record, pattern: pattern_of(record)?, is_allow: matches!(record.kind, RecordKind::Allow(_)) })
        };
        records.filter_map(rule).take(MAX_RULES).collect()
    };
    sets.into_iter().map(rules).collect()
}
