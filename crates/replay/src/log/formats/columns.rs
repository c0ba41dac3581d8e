//! Lines of columns: W3C extended logs (IIS, CloudFront), and load balancers of Amazon.

use super::field::{Encoding, Field, MILLISECOND, Meaning};
use super::record::{FieldSet, FieldValues};
use super::value::Value;
use crate::log::LineError;
use std::borrow::Cow;

/// Columns of a log.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::log) struct Columns {
    /// Name and meaning of each column.
    columns: Vec<(String, Option<Meaning>)>,
    quoting: Quoting,
    separator: u8,
    /// Columns that a line needs; later versions of the format have more.
    least: usize,
    /// True if a line may have more columns than are named.
    is_open: bool,
}

/// Column behind that of the client, with an address and a port, or `-`.
const TARGET: &str = "target:port";

/// How a value is quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quoting {
    /// A quote within quotes is doubled.
    W3c,
    /// A quote within quotes has a backslash in front.
    Backslash,
}

impl Columns {
    /// Returns the columns of a directive `#Fields:` of the W3C; `None` if there is none.
    pub(in crate::log) fn of_directive(line: &[u8]) -> Option<Self> {
        let directive = std::str::from_utf8(line.strip_prefix(b"#Fields:")?).ok()?.trim();
        let names: Vec<&str> = directive.split_ascii_whitespace().collect();
        let is_iis = names.contains(&"sc-win32-status") || names.contains(&"sc-substatus");
        let is_cloudfront = names.contains(&"x-edge-location");
        let column = |name: &&str| (String::from(*name), w3c_meaning(name, is_iis, is_cloudfront));
        let columns: Vec<_> = names.iter().map(column).collect();
        // CloudFront names the columns with blanks in between, and separates their values by tabs.
        let separator = if is_cloudfront || directive.contains('\t') { b'\t' } else { b' ' };
        (!columns.is_empty()).then_some(Self {
            least: columns.len(),
            columns,
            quoting: Quoting::W3c,
            separator,
            is_open: false,
        })
    }

    /// Returns the columns of an application load balancer.
    pub(in crate::log) fn of_load_balancer() -> Self {
        Self::of_table(ALB, 14)
    }

    /// Returns the columns of a classic load balancer.
    pub(in crate::log) fn of_classic_load_balancer() -> Self {
        Self::of_table(&ALB[1..14], 13)
    }

    fn of_table(table: &[(&str, Option<Meaning>)], least: usize) -> Self {
        let columns = table.iter().map(|(name, meaning)| (String::from(*name), *meaning)).collect();
        Self { columns, quoting: Quoting::Backslash, separator: b' ', least, is_open: true }
    }

    /// Returns the meanings that the columns have.
    pub(in crate::log) fn fields(&self) -> FieldSet {
        let mut fields = FieldSet::default();
        self.columns.iter().filter_map(|(_, meaning)| *meaning).for_each(|meaning| fields.insert(meaning.field));
        fields
    }

    /// Returns the name and the meaning of each column that has one.
    pub(in crate::log) fn names(&self) -> impl Iterator<Item = (&str, Meaning)> {
        self.columns.iter().filter_map(|(name, meaning)| Some((&**name, (*meaning)?)))
    }

    /// Gives the column `name` a meaning. Returns false if there is no such column.
    pub(in crate::log) fn set_meaning(&mut self, name: &str, meaning: Meaning) -> bool {
        let mut found = false;
        for (known, its_meaning) in &mut self.columns {
            if known.eq_ignore_ascii_case(name) {
                (*its_meaning, found) = (Some(meaning), true);
            } else if its_meaning.is_some_and(|other| other.field == meaning.field) {
                *its_meaning = None;
            }
        }
        found
    }

    /// Reads the values of a line.
    pub(in crate::log) fn read<'a>(&self, line: &'a [u8]) -> Result<FieldValues<'a>, LineError> {
        let (mut values, mut rest, mut index) = (FieldValues::default(), Some(line), 0);
        while let Some(text) = rest {
            let (value, after) = self.next_value(text)?;
            match self.columns.get(index) {
                // A later column has the time of the request, and not of the response.
                Some((_, Some(meaning))) if meaning.field == Field::Time => {
                    values.replace_time(*meaning, Value::Text(value));
                }
                Some((_, Some(meaning))) => values.set(*meaning, Value::Text(value)),
                // A broken column before that of the client would make this one the client.
                Some((name, None)) if name == TARGET && *value != *b"-" && !value.contains(&b':') => {
                    return Err(LineError::OtherFormat);
                }
                Some((_, None)) => {}
                None if self.is_open => break,
                None => return Err(LineError::OtherFormat),
            }
            (rest, index) = (after, index + 1);
        }
        if index < self.least {
            return Err(LineError::Truncated);
        }
        Ok(values)
    }

    /// Splits off a value; `None` behind it is the end of the line.
    fn next_value<'a>(&self, text: &'a [u8]) -> Result<SplitValue<'a>, LineError> {
        let Some(quoted) = text.strip_prefix(b"\"") else {
            return Ok(match memchr::memchr(self.separator, text) {
                Some(end) => (Cow::Borrowed(&text[..end]), Some(&text[end + 1..])),
                None => (Cow::Borrowed(text), None),
            });
        };
        let (mut end, mut has_doubled) = (0, false);
        loop {
            let special = match self.quoting {
                Quoting::W3c => memchr::memchr(b'"', &quoted[end..]),
                Quoting::Backslash => memchr::memchr2(b'"', b'\\', &quoted[end..]),
            };
            end += special.ok_or(LineError::Truncated)?;
            match (quoted[end], self.quoting, quoted.get(end + 1)) {
                (b'\\', ..) if end + 2 <= quoted.len() => end += 2,
                (b'"', Quoting::W3c, Some(b'"')) => (end, has_doubled) = (end + 2, true),
                (b'"', ..) => break,
                _ => return Err(LineError::Truncated),
            }
        }
        let value = match has_doubled {
            true => Cow::Owned(without_doubled_quotes(&quoted[..end])),
            false => Cow::Borrowed(&quoted[..end]),
        };
        match quoted.get(end + 1) {
            None => Ok((value, None)),
            Some(next) if *next == self.separator => Ok((value, Some(&quoted[end + 2..]))),
            // A quote that is not escaped: what follows may be the client's.
            Some(_) => Err(LineError::OtherFormat),
        }
    }
}

/// A value, and the rest of its line.
type SplitValue<'a> = (Cow<'a, [u8]>, Option<&'a [u8]>);

fn without_doubled_quotes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().peekable();
    while let Some(byte) = bytes.next() {
        out.push(*byte);
        if *byte == b'"' && bytes.peek() == Some(&&b'"') {
            bytes.next();
        }
    }
    out
}

/// Returns the meaning of a column of the W3C, and of the programs that use its format.
fn w3c_meaning(name: &str, is_iis: bool, is_cloudfront: bool) -> Option<Meaning> {
    let text = match (is_iis, is_cloudfront) {
        (true, _) => Encoding::Plus,
        (_, true) => Encoding::Percent,
        _ => Encoding::Plain,
    };
    let name = name.to_ascii_lowercase();
    Some(match &*name {
        "date" => Meaning::of(Field::Date),
        "time" => Meaning::of(Field::Clock),
        "c-ip" => Meaning::of(Field::Client),
        "x-forwarded-for" | "cs(x-forwarded-for)" => Meaning::of(Field::Forwarded).encoded(text),
        "cs-method" => Meaning::of(Field::Method),
        "cs-uri" => Meaning::of(Field::Uri),
        "cs-uri-stem" => Meaning::of(Field::Path),
        "cs-uri-query" => Meaning::of(Field::Query),
        // CloudFront logs the name of the distribution as the header, and the header by this name.
        "x-host-header" => Meaning::of(Field::Host),
        "cs-host" | "cs(host)" if !is_cloudfront => Meaning::of(Field::Host),
        "cs-version" | "cs-protocol-version" => Meaning::of(Field::Protocol),
        "sc-status" => Meaning::of(Field::Status),
        "sc-bytes" => Meaning::of(Field::Bytes),
        "cs(referer)" => Meaning::of(Field::Referer).encoded(text),
        "cs(user-agent)" => Meaning::of(Field::UserAgent).encoded(text),
        "time-taken" if is_iis => Meaning::latency(MILLISECOND),
        // That of CloudFront contains the download.
        "time-taken" if !is_cloudfront => Meaning::of(Field::Latency),
        _ => return None,
    })
}

/// Columns of an application load balancer of Amazon. Those of the classic one are the second to the fourteenth.
#[rustfmt::skip]
const ALB: &[(&str, Option<Meaning>)] = &[
    ("type", None),
    ("time", Some(Meaning::of(Field::Time))),
    ("elb", None),
    ("client:port", Some(Meaning::of(Field::Client))),
    (TARGET, None),
    ("request_processing_time", None),
    ("target_processing_time", Some(Meaning::of(Field::Latency))),
    ("response_processing_time", None),
    ("elb_status_code", Some(Meaning::of(Field::Status))),
    ("target_status_code", None),
    ("received_bytes", None),
    ("sent_bytes", Some(Meaning::of(Field::Bytes))),
    ("request", Some(Meaning::of(Field::Request).encoded(Encoding::Backslash))),
    ("user_agent", Some(Meaning::of(Field::UserAgent).encoded(Encoding::Backslash))),
    ("ssl_cipher", None),
    ("ssl_protocol", None),
    ("target_group_arn", None),
    ("trace_id", None),
    ("domain_name", None),
    ("chosen_cert_arn", None),
    ("matched_rule_priority", None),
    ("request_creation_time", Some(Meaning::of(Field::Time))),
];
