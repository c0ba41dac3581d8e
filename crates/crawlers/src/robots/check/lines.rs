//! Lines that no crawler reads, or only some.

use super::super::parser::{RecordKind, lines, parse_record};
use super::super::terms::{LICENSE, directive};
use super::{CheckedText, RobotsFinding, before_comment, shown};

/// Directives beside those of RFC 9309 that some crawlers read, in lower case.
const KNOWN_OTHERS: [&str; 7] =
    ["cache-delay", "clean-param", "content-signal", "content-usage", "crawl-delay", "license", "schemamap"];

/// Directives that no crawler reads, or one: what is wrong, and what would do.
const UNREAD: [(&str, &str, &str); 4] = [
    ("Host", "is read by no crawler any more (until 2018 by Yandex)", "redirect from other hosts, and remove it"),
    (
        "Noindex",
        "is read by no crawler any more (until 2019 by Google)",
        "send X-Robots-Tag: noindex with the page, and remove it",
    ),
    ("Request-rate", "is read by no known crawler but SeznamBot", "write Crawl-delay for the others"),
    ("Visit-time", "is read by no known crawler", "remove it, or write # before it"),
];

/// Directives as they are spelled.
const DIRECTIVES: [&str; 5] = ["User-agent", "Allow", "Disallow", "Crawl-delay", "Sitemap"];

/// Reports lines by themselves.
pub(super) fn check(source: &CheckedText<'_>, findings: &mut Vec<RobotsFinding>) {
    let mut has_agent = false;
    for (index, span) in lines(source.text).enumerate() {
        let line = before_comment(&source.text[span]);
        if line.is_empty() {
            continue;
        }
        let kind = parse_record(line);
        let mut report = |problem: String, hint: &str| findings.push(RobotsFinding::new(index + 1, problem, hint));
        let Some(kind) = kind else {
            match line.contains(&b':') {
                true => report(format!("{:?} has no name before the colon", shown(line)), "write Name: value"),
                false => {
                    report(format!("{:?} has no colon; no crawler reads it", shown(line)), "write # before a comment");
                }
            }
            continue;
        };
        let name = directive(line);
        if let Some((_, problem, hint)) = UNREAD.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known.as_bytes()))
        {
            report(format!("{:?} {problem}", shown(name)), hint);
            continue;
        }
        if let Some((problem, hint)) = spelling(line, kind) {
            report(problem, &hint);
        }
        match kind {
            RecordKind::UserAgent(product) => {
                has_agent = true;
                if product.is_empty() {
                    let problem = format!("{:?} names no crawler", shown(line));
                    report(problem, "write a product token of letters, - and _, such as Googlebot, or *");
                }
            }
            RecordKind::Sitewide if line.contains(&b':') && !is_url(value_of(line)) => {
                let problem = format!("{:?} is no full URL; most crawlers do not read it", shown(line));
                report(problem, "write the scheme and the host, too, such as https://example.com/sitemap.xml");
            }
            RecordKind::Sitewide => {}
            // It may stand in a group, and above all.
            RecordKind::Other if directive(line).eq_ignore_ascii_case(LICENSE.as_bytes()) => {}
            _ if !has_agent => {
                report(
                    format!("{:?} stands above the first User-agent: it applies to no crawler", shown(line)),
                    "write User-agent: * above it",
                );
            }
            RecordKind::CrawlDelay(None) => {
                report(format!("{:?} has no number", shown(line)), "write seconds, such as Crawl-delay: 10");
            }
            RecordKind::Disallow(_) | RecordKind::Allow(_) | RecordKind::CrawlDelay(Some(_)) | RecordKind::Other => {}
        }
    }
}

/// Returns what is behind the colon.
fn value_of(line: &[u8]) -> &[u8] {
    line.splitn(2, |&byte| byte == b':').nth(1).unwrap_or_default().trim_ascii()
}

fn is_url(value: &[u8]) -> bool {
    let begins_with = |scheme: &[u8]| value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    begins_with(b"https://") || begins_with(b"http://")
}

/// Returns what is unusual about the name of a record.
fn spelling(line: &[u8], kind: RecordKind<'_>) -> Option<(String, String)> {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return Some((
            format!("{:?} has no colon; only some crawlers read it", shown(line)),
            "write Name: value".into(),
        ));
    };
    let name = line[..colon].trim_ascii_end();
    let usual = match kind {
        RecordKind::UserAgent(_) => &["User-agent"][..],
        RecordKind::Disallow(_) => &["Disallow"],
        RecordKind::Allow(_) => &["Allow"],
        RecordKind::CrawlDelay(_) => &["Crawl-delay"],
        RecordKind::Sitewide => &["Sitemap"],
        RecordKind::Other => return unknown(name),
    };
    let is_usual = usual.iter().any(|usual| name.eq_ignore_ascii_case(usual.as_bytes()));
    (!is_usual).then(|| {
        (format!("{:?} is a spelling that only some crawlers read", shown(name)), format!("write {}", usual[0]))
    })
}

fn unknown(name: &[u8]) -> Option<(String, String)> {
    if KNOWN_OTHERS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
        return None;
    }
    let near = DIRECTIVES.iter().find(|directive| super::groups::is_near(name, directive.as_bytes()));
    let hint = near.map_or_else(|| "remove it, or write # before it".to_owned(), |near| format!("write {near}"));
    Some((format!("{:?} is no directive that crawlers read", shown(name)), hint))
}
