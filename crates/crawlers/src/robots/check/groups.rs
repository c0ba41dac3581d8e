//! Groups that apply to no crawler, or not as they seem to.

use super::super::directives::eq_ignore_case;
use super::super::parser::{RecordKind, RobotsRecord, WILDCARD};
use super::{CheckedText, RobotsFinding, shown};

/// Product tokens that are read in robots.txt, and never sent as a user agent.
const ROBOTS_ONLY: [&str; 2] = ["Google-Extended", "Applebot-Extended"];

/// Product tokens that their operators no longer read, and those that took their place.
const RETIRED: [(&str, &str); 2] = [("anthropic-ai", "ClaudeBot"), ("Claude-Web", "Claude-User")];

/// Maximum length of a name that is compared with others, in bytes.
const MAX_NEAR_LENGTH: usize = 64;

/// Reports groups; `products` are the product tokens of known crawlers with these `names`.
pub(super) fn check(source: &CheckedText<'_>, names: &[&str], products: &[&[u8]], findings: &mut Vec<RobotsFinding>) {
    let known: Vec<&[u8]> = products.iter().copied().chain(ROBOTS_ONLY.map(str::as_bytes)).collect();
    let mut named: std::collections::BTreeMap<Vec<u8>, (usize, usize)> = std::collections::BTreeMap::new();
    for (index, group) in source.groups.groups().enumerate() {
        check_records(source, group, findings);
        for record in group {
            let RecordKind::UserAgent(product) = record.kind else { continue };
            let line = source.line_of(record);
            check_product(product, &known, line, findings);
            check_single(source, record, product, names, findings);
            let key = product.to_ascii_lowercase();
            let &mut (first_group, first_line) = named.entry(key).or_insert((index, line));
            if first_line == line || product.is_empty() {
                continue;
            }
            let product = shown(product);
            let (problem, hint) = match first_group == index {
                true => (format!("{product} is already named in line {first_line}"), "remove it"),
                false => (
                    format!("{product} has a group at line {first_line}; some crawlers read only one of both"),
                    "write all rules for it in one group",
                ),
            };
            findings.push(RobotsFinding::new(line, problem, hint));
        }
    }
}

/// Reports a group without rules, and user agents that share rules although a delay stands between them.
fn check_records(source: &CheckedText<'_>, group: &[RobotsRecord<'_>], findings: &mut Vec<RobotsFinding>) {
    let Some(first) = group.first() else { return };
    let is_rule = |record: &RobotsRecord<'_>| matches!(record.kind, RecordKind::Allow(_) | RecordKind::Disallow(_));
    let is_other = |record: &RobotsRecord<'_>| matches!(record.kind, RecordKind::Other | RecordKind::CrawlDelay(_));
    if !group.iter().any(is_rule) && !group.iter().any(is_other) {
        findings.push(RobotsFinding::new(
            source.line_of(first),
            "a group without a rule allows everything",
            "write Disallow: / or remove the group",
        ));
    }
    let is_agent = |record: &RobotsRecord<'_>| matches!(record.kind, RecordKind::UserAgent(_));
    let seems_to_end = |pair: &&[RobotsRecord<'_>]| is_other(&pair[0]) || source.has_blank_line(&pair[0], &pair[1]);
    let between = group.windows(2).filter(|pair| is_agent(&pair[1])).find(seems_to_end);
    if let Some([_, next]) = between.filter(|_| group.iter().any(is_rule)) {
        let first = source.line_of(first);
        findings.push(RobotsFinding::new(
            source.line_of(next),
            format!("shares the rules below with the user agents from line {first} on: only a rule ends a group"),
            "write Disallow: at the end of the group above, or no blank line if the rules are for all",
        ));
    }
}

/// Reports a line with more than one name, of which only the first is read. A version is no name, and neither are the other
/// words of the name of a known crawler.
fn check_single(
    source: &CheckedText<'_>,
    record: &RobotsRecord<'_>,
    product: &[u8],
    names: &[&str],
    findings: &mut Vec<RobotsFinding>,
) {
    let line = source.line_text(record);
    let colon = line.iter().position(|byte| *byte == b':');
    let separator = colon.or_else(|| line.iter().position(u8::is_ascii_whitespace));
    let value = separator.map_or(&line[..0], |separator| line[separator + 1..].trim_ascii());
    let is_known = names.iter().any(|name| eq_ignore_case(value, name));
    let mut words = value.split(|byte| matches!(byte, b',' | b';' | b'|') || byte.is_ascii_whitespace());
    let is_name = |word: &[u8]| word.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'*');
    if !is_known && !product.is_empty() && words.by_ref().skip_while(|word| word.is_empty()).skip(1).any(is_name) {
        findings.push(RobotsFinding::new(
            source.line_of(record),
            format!("crawlers read only {} in this line", shown(product)),
            "write a line User-agent: for each crawler",
        ));
    }
}

fn check_product(product: &[u8], known: &[&[u8]], line: usize, findings: &mut Vec<RobotsFinding>) {
    if let Some((_, current)) = RETIRED.iter().find(|(retired, _)| eq_ignore_case(product, retired)) {
        let problem = format!("{} is no longer read by its operator", shown(product));
        findings.push(RobotsFinding::new(line, problem, format!("write {current}")));
    }
    let is_known = known.iter().any(|known| known.eq_ignore_ascii_case(product));
    if is_known || product == WILDCARD {
        return;
    }
    if let Some(near) = known.iter().find(|known| is_near(product, known)) {
        let problem = format!("no known crawler is called {}", shown(product));
        findings.push(RobotsFinding::new(line, problem, format!("write {}, if it is meant", shown(near))));
    }
}

/// Returns true if `text` differs from `name` in one letter, or in two if the name is long.
pub(super) fn is_near(text: &[u8], name: &[u8]) -> bool {
    let allowed = match name.len() {
        0..5 => return false,
        5..10 => 1,
        _ => 2,
    };
    text.len() <= MAX_NEAR_LENGTH && text.len().abs_diff(name.len()) <= allowed && distance(text, name) <= allowed
}

/// Returns the number of letters to insert, remove, replace, or swap with the next, without regard to case.
fn distance(text: &[u8], name: &[u8]) -> usize {
    let [text, name] = [text, name].map(<[u8]>::to_ascii_lowercase);
    let mut rows: [Vec<usize>; 3] = [Vec::new(), Vec::new(), (0..=name.len()).collect()];
    for (row, letter) in text.iter().enumerate() {
        rows.rotate_left(1);
        let mut current = vec![row + 1];
        for (column, other) in name.iter().enumerate() {
            let replaced = rows[1][column] + usize::from(letter != other);
            let mut best = replaced.min(rows[1][column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *letter == name[column - 1] && text[row - 1] == *other {
                best = best.min(rows[0][column - 1] + 1);
            }
            current.push(best);
        }
        rows[2] = current;
    }
    rows[2][name.len()]
}
