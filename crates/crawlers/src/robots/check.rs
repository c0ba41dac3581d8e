//! Check of a robots.txt: lines that no crawler reads, groups and rules without effect, and what each crawler may fetch.
//!
//! The text is read as [`merge_directives`](super::merge_directives) reads it, so what is found here holds for the text that
//! the gateway serves.

mod access;
mod groups;
mod lines;
mod rules;

use super::parser::{RobotsRecord, RobotsText, product_token};
use serde::Serialize;
use std::borrow::Cow;

/// Size of the text that crawlers read, in bytes (RFC 9309 section 2.5).
const MAX_READ_BYTES: usize = 500 * 1024;
/// Maximum number of findings; a text with more has another error.
const MAX_FINDINGS: usize = 1000;

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RobotsCheck {
    /// What has no effect, or not the one it seems to have, in the order of the lines.
    pub findings: Vec<RobotsFinding>,
    /// Number of findings that are left out.
    pub omitted: usize,
    /// What crawlers may fetch, in the order of the crawlers.
    pub access: Vec<CrawlerAccess>,
    /// Operators that no group can name, because their crawlers have no product token; the caller knows them.
    pub without_token: Vec<String>,
}

/// A line without its effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RobotsFinding {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
    /// What would do.
    pub hint: String,
    /// What it is about: of too many findings, the most important are kept.
    #[serde(skip)]
    scope: FindingScope,
}

/// Part of a text that a finding is about, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FindingScope {
    Text,
    Group,
    Line,
}

/// Whether crawlers of one operator may fetch the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrawlerAccess {
    /// Name of the operator.
    pub operator: String,
    /// Product tokens with this result.
    pub products: Vec<String>,
    /// True if the path may be fetched.
    pub allowed: bool,
    /// Product token of the group that applies; `None` if there is none.
    pub group: Option<String>,
    /// Rule that decides; `None` if none matches.
    pub rule: Option<DecidingRule>,
}

/// A rule of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecidingRule {
    /// Number of its line, from 1.
    pub line: usize,
    /// The rule, without its comment.
    pub text: String,
}

/// Checks `text`. `crawlers` are operators, each with a product token of one of its crawlers; an operator may repeat.
/// `path` is the path, with its query, of the page that is looked up for each.
pub fn check_robots(text: &[u8], path: &str, crawlers: &[(&str, &str)]) -> RobotsCheck {
    let read = &text[..text.len().min(MAX_READ_BYTES)];
    let source = CheckedText::new(read);
    let products: Vec<&[u8]> = crawlers.iter().map(|(_, product)| product_token(product.as_bytes())).collect();
    let mut findings = Vec::new();
    if read.trim_ascii_start().starts_with(b"<") {
        let hint = "let the origin answer with its robots.txt or 404";
        findings.push(RobotsFinding::new(1, "an HTML page, not a robots.txt", hint).about(FindingScope::Text));
    } else {
        if text.len() > MAX_READ_BYTES {
            let problem = format!("{} bytes; crawlers read the first {MAX_READ_BYTES}", text.len());
            let finding = RobotsFinding::new(source.last_line(), problem, "move the rules that matter to the top");
            findings.push(finding.about(FindingScope::Text));
        }
        lines::check(&source, &mut findings);
        let mut of_groups = Vec::new();
        let names: Vec<&str> = crawlers.iter().map(|(_, product)| *product).collect();
        groups::check(&source, &names, &products, &mut of_groups);
        findings.extend(of_groups.into_iter().map(|finding| finding.about(FindingScope::Group)));
        rules::check(&source, &mut findings);
    }
    findings.sort_unstable();
    findings.dedup();
    let omitted = findings.len().saturating_sub(MAX_FINDINGS);
    if omitted > 0 {
        findings.sort_by_key(|finding| (finding.scope, finding.line));
        findings.truncate(MAX_FINDINGS);
        findings.sort_unstable();
    }
    RobotsCheck {
        findings,
        omitted,
        access: access::access(&source, path, crawlers, &products),
        without_token: Vec::new(),
    }
}

impl RobotsFinding {
    fn new(line: usize, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { line, problem: problem.into(), hint: hint.into(), scope: FindingScope::Line }
    }

    fn about(self, scope: FindingScope) -> Self {
        Self { scope, ..self }
    }
}

/// A text with its groups and the places of its lines.
struct CheckedText<'t> {
    text: &'t [u8],
    groups: RobotsText<'t>,
    /// Offset of the first byte of each line.
    line_starts: Vec<usize>,
}

impl<'t> CheckedText<'t> {
    fn new(text: &'t [u8]) -> Self {
        let line_starts = super::parser::lines(text).map(|line| line.start).collect();
        Self { text, groups: RobotsText::parse(text), line_starts }
    }

    /// Returns the number of the line of a record.
    fn line_of(&self, record: &RobotsRecord<'_>) -> usize {
        self.line_starts.partition_point(|start| *start <= record.span.start)
    }

    /// Returns true if a line without text stands between two records.
    fn has_blank_line(&self, record: &RobotsRecord<'_>, next: &RobotsRecord<'_>) -> bool {
        let between = self.text.get(record.span.end..next.span.start).unwrap_or_default();
        super::parser::lines(between).any(|line| between[line].trim_ascii().is_empty())
    }

    /// Returns a record as written, without its comment.
    fn line_text(&self, record: &RobotsRecord<'_>) -> &'t [u8] {
        before_comment(&self.text[record.span.clone()])
    }

    fn last_line(&self) -> usize {
        self.line_starts.len().max(1)
    }

    /// Returns a record as written, without its comment, cut after 200 bytes.
    fn text_of(&self, record: &RobotsRecord<'_>) -> String {
        shown(self.line_text(record)).into_owned()
    }
}

/// Returns the part of a line that is no comment, trimmed, without a byte order mark.
fn before_comment(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(super::parser::BYTE_ORDER_MARK).unwrap_or(line);
    line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii()
}

/// Returns text of the file for a message.
fn shown(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&text[..text.len().min(200)])
}

#[cfg(test)]
mod tests;
