//! robots.txt parser (RFC 9309): assigns lines to groups. The text itself is not changed.
//!
//! Parsing cannot fail: lines that are not records are skipped. Records are recognized as leniently as large crawlers
//! do (`useragent`, a space instead of the colon), because an added line must not end up in another group.

use smallvec::SmallVec;
use std::ops::Range;

/// Delay between two requests, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Delay(u64);

/// Groups of a robots.txt.
pub(super) struct RobotsText<'t> {
    records: Vec<RobotsRecord<'t>>,
    /// Ranges of record indexes. A group extends from its first user agent to that of the next group.
    groups: Vec<Range<usize>>,
}

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RobotsRecord<'t> {
    /// Byte range of the line in the text, including the line ending.
    pub(super) span: Range<usize>,
    pub(super) kind: RecordKind<'t>,
}

/// Meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind<'t> {
    /// Product token to which the group applies; `*` is the wildcard.
    UserAgent(&'t [u8]),
    Disallow(&'t [u8]),
    Allow(&'t [u8]),
    /// `None` if the value is not a number.
    CrawlDelay(Option<Delay>),
    /// Other records that apply to the group.
    Other,
    /// Records that apply to the whole site, wherever they are.
    Sitewide,
}

/// Product token of the group for all crawlers without a group of their own.
pub(super) const WILDCARD: &[u8] = b"*";

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<'t> RobotsText<'t> {
    pub(super) fn parse(text: &'t [u8]) -> Self {
        let mut parsed = Self { records: Vec::new(), groups: Vec::new() };
        let mut has_rules = true;
        for span in lines(text) {
            let line = &text[span.clone()];
            let line = if span.start == 0 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
            let Some(kind) = parse_record(line) else { continue };
            match kind {
                RecordKind::UserAgent(_) if has_rules => {
                    parsed.groups.push(parsed.records.len()..parsed.records.len());
                    has_rules = false;
                }
                RecordKind::Allow(_) | RecordKind::Disallow(_) => has_rules = true,
                _ => {}
            }
            // Records before the first user agent apply to no crawler.
            if let Some(group) = parsed.groups.last_mut() {
                parsed.records.push(RobotsRecord { span, kind });
                group.end = parsed.records.len();
            }
        }
        parsed
    }

    /// Returns the records of each group, in the order of the text.
    pub(super) fn groups(&self) -> impl DoubleEndedIterator<Item = &[RobotsRecord<'t>]> {
        self.groups.iter().map(|group| &self.records[group.clone()])
    }

    /// Returns the records of all groups that name `product`.
    pub(super) fn groups_of(&self, product: &[u8]) -> impl Iterator<Item = &[RobotsRecord<'t>]> {
        let is_match = move |record: &RobotsRecord<'_>| matches!(record.kind, RecordKind::UserAgent(agent) if agent.eq_ignore_ascii_case(product));
        self.groups().filter(move |group| group.iter().any(is_match))
    }
}

impl Delay {
    pub(super) const fn from_seconds(seconds: u32) -> Self {
        Self(seconds as u64 * 1000)
    }

    /// Parses `10`, `0.5`, `60.`. Decimals after the third are truncated; more than nine digits are rejected.
    fn parse(value: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?;
        let (whole, part) = value.split_once('.').unwrap_or((value, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || (whole.is_empty() && part.is_empty()) || whole.len() > 9 {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let thousandths = part.bytes().chain(*b"000").take(3).fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        Some(Self(whole * 1000 + thousandths))
    }
}

impl std::fmt::Display for Delay {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 % 1000 {
            0 => write!(out, "{}", self.0 / 1000),
            thousandths => {
                let part = format!("{thousandths:03}");
                write!(out, "{}.{}", self.0 / 1000, part.trim_end_matches('0'))
            }
        }
    }
}

/// Returns the product token at the start of a user-agent value or crawler name; empty if there is none.
pub(super) fn product_token(value: &[u8]) -> &[u8] {
    if value.first() == Some(&b'*') && value.get(1).is_none_or(u8::is_ascii_whitespace) {
        return WILDCARD;
    }
    let is_of_name = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    &value[..value.iter().position(|byte| !is_of_name(byte)).unwrap_or(value.len())]
}

/// Returns user agents with the records up to the next user agent. RFC 9309 has them in one group until there is a
/// rule, but crawlers that read delays, and authors that write them, take a delay for the end of a group.
pub(super) fn record_runs<'g, 't>(group: &'g [RobotsRecord<'t>]) -> impl Iterator<Item = &'g [RobotsRecord<'t>]> {
    let is_agent = |record: &RobotsRecord<'_>| matches!(record.kind, RecordKind::UserAgent(_));
    group.chunk_by(move |one, next| is_agent(one) || !is_agent(next))
}

/// Returns the byte range of the number in a line that states a delay.
pub(super) fn number_range(line: &[u8]) -> Range<usize> {
    let before_comment = line.split(|&byte| byte == b'#').next().unwrap_or_default();
    let end = before_comment.trim_ascii_end().len();
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    line[..end].iter().rposition(|byte| !is_of_number(byte)).map_or(0, |before| before + 1)..end
}

pub(super) fn largest_delay(run: &[RobotsRecord<'_>]) -> Option<Delay> {
    run.iter().filter_map(stated_delay).max()
}

pub(super) fn stated_delay(record: &RobotsRecord<'_>) -> Option<Delay> {
    match record.kind {
        RecordKind::CrawlDelay(delay) => delay,
        _ => None,
    }
}

/// Returns the byte range of each line, with its ending: CR, LF or both.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let length = match rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            None => rest.len(),
            Some(end) if rest[end..].starts_with(b"\r\n") => end + 2,
            Some(end) => end + 1,
        };
        let line = start..start + length;
        start = line.end;
        Some(line)
    })
}

/// Returns the meaning of a line; `None` if it is no record.
pub(super) fn parse_record(line: &[u8]) -> Option<RecordKind<'_>> {
    let line = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
    let (key, value) = match line.iter().position(|&byte| byte == b':') {
        Some(colon) => (line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii_start()),
        // Exactly two words; anything else is prose.
        None => {
            match *line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect::<SmallVec<[_; 3]>>() {
                [key, value] => (key, value),
                _ => return None,
            }
        }
    };
    let is = |names: &[&str]| names.iter().any(|name| key.eq_ignore_ascii_case(name.as_bytes()));
    Some(if is(&["user-agent", "useragent", "user agent"]) {
        RecordKind::UserAgent(product_token(value))
    } else if is(&["disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"]) {
        RecordKind::Disallow(value)
    } else if is(&["allow"]) {
        RecordKind::Allow(value)
    } else if is(&["crawl-delay", "crawl delay"]) {
        RecordKind::CrawlDelay(Delay::parse(value))
    } else if is(&["sitemap", "sitemaps", "site-map", "host"]) {
        RecordKind::Sitewide
    } else if key.is_empty() || !line.contains(&b':') {
        return None;
    } else {
        RecordKind::Other
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record_kinds(text: &str) -> Vec<RecordKind<'_>> {
        RobotsText::parse(text.as_bytes()).records.iter().map(|record| record.kind).collect()
    }

    #[test]
    fn keys_are_parsed_in_any_case_or_misspelling() {
        for line in [
            "user-agent: a",
            "USER-AGENT : a",
            " useragent:a # c",
            "User Agent: a/2.1",
            "user-agent\ta",
            "\u{feff}User-agent: a",
        ] {
            assert_eq!(record_kinds(line), [RecordKind::UserAgent(b"a")], "{line}");
        }
        assert_eq!(
            record_kinds("User-agent: *\nDisalow: /x"),
            [RecordKind::UserAgent(b"*"), RecordKind::Disallow(b"/x")]
        );
    }

    #[test]
    fn all_line_endings_are_accepted() {
        for ending in ["\r", "\n", "\r\n", "\n\r", "\r\n\r\n"] {
            let text = ["User-agent: a", "Crawl-delay: 2.5", "Allow: /"].join(ending);
            assert_eq!(
                record_kinds(&text),
                [RecordKind::UserAgent(b"a"), RecordKind::CrawlDelay(Some(Delay(2500))), RecordKind::Allow(b"/")],
                "{ending:?}"
            );
        }
    }

    #[test]
    fn only_a_rule_ends_a_user_agent_group() {
        let text = RobotsText::parse(
            b"Disallow: /nobody\nUser-agent: a\n\nSitemap: /s\nUser-agent: b\nDisallow:\nUser-agent: c\nNoise: 1\n",
        );
        let agents = |group: &[RobotsRecord<'_>]| {
            group.iter().filter(|record| matches!(record.kind, RecordKind::UserAgent(_))).count()
        };
        assert_eq!(text.groups().map(agents).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(text.groups_of(b"B").count(), 1);
    }

    #[test]
    fn unknown_lines_are_ignored() {
        for line in ["", "#", "hello", "be nice to us", ": /", "\0\0\0", "\u{fffd}", "<html lang=en>"] {
            assert_eq!(record_kinds(&format!("User-agent: a\n{line}\n")).len(), 1, "{line}");
        }
    }

    #[test]
    fn crawl_delay_number_is_found_in_any_format() {
        for (line, number) in [
            ("Crawl-delay: 10\r\n", "10"),
            ("crawl-delay:.5", ".5"),
            (" Crawl delay : 60. # at night 90\n", "60."),
            ("crawl-delay\t7 \t\n", "7"),
        ] {
            assert_eq!(&line[number_range(line.as_bytes())], number, "{line:?}");
        }
    }

    #[test]
    fn crawl_delay_parsing_and_display_agree() {
        for (input, expected) in
            [("10", "10"), ("0.5", "0.5"), ("60.", "60"), (".25", "0.25"), ("1.23456", "1.234"), ("007", "7")]
        {
            assert_eq!(Delay::parse(input.as_bytes()).map(|delay| delay.to_string()).as_deref(), Some(expected));
        }
        for invalid in ["", ".", "-1", "1e3", "ten", "1s", "9999999999", "1.2.3"] {
            assert_eq!(Delay::parse(invalid.as_bytes()), None, "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn concatenated_lines_equal_the_text(text in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..300)) {
            let joined: Vec<u8> = lines(&text).flat_map(|line| text[line].to_vec()).collect();
            prop_assert_eq!(&joined, &text);
            RobotsText::parse(&text);
        }
    }
}
