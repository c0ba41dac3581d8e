//! Values of a line by their meaning, and the request that they describe.

use super::client_rule::ClientRule;
use super::field::{Encoding, Field, Meaning};
use super::value::{LineTime, Value};
use crate::log::combined::{self, RequestTarget};
use crate::log::line::normalize_host;
use crate::log::{LineError, LogField, LogLine, LoggedClient, MissingFields, RequestLine, quoted};
use http::{Method, Version};
use std::borrow::Cow;
use tidegate_policy::bot_detection::HeadersSeen;

/// Values of a line.
#[derive(Debug, Default)]
pub(in crate::log) struct FieldValues<'a> {
    values: [Option<(Value<'a>, Meaning)>; Field::COUNT],
    /// Names of the request headers, if the line has all of them.
    headers: Option<HeadersSeen>,
}

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::log) struct FieldSet(u32);

impl FieldSet {
    /// Adds a field.
    pub(in crate::log) fn insert(&mut self, field: Field) {
        self.0 |= 1 << field as u32;
    }

    /// Returns true if the set contains no field.
    pub(in crate::log) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the fields of both sets.
    pub(in crate::log) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the set contains `field`.
    pub(in crate::log) fn contains(self, field: Field) -> bool {
        self.0 & 1 << field as u32 != 0
    }
}

impl<'a> FieldValues<'a> {
    /// Returns the values of a line with these headers, if it has all of them.
    pub(in crate::log) fn with_headers(headers: Option<HeadersSeen>) -> Self {
        Self { headers, ..Self::default() }
    }

    /// Sets a value, unless one of this field is set or `value` is a text without a content.
    pub(in crate::log) fn set(&mut self, meaning: Meaning, value: Value<'a>) {
        let is_empty = matches!(value, Value::Text(_)) && value.text().is_none();
        let slot = &mut self.values[meaning.field as usize];
        if slot.is_none() && !is_empty {
            *slot = Some((value, meaning));
        }
    }

    /// Sets the time of the line, also in place of an earlier one if both are valid.
    pub(in crate::log) fn replace_time(&mut self, meaning: Meaning, value: Value<'a>) {
        let has_time = self.value(Field::Time).is_some_and(|earlier| earlier.time().is_some());
        if has_time && value.time().is_some() {
            self.values[Field::Time as usize] = None;
        }
        self.set(meaning, value);
    }

    /// Returns the fields that have a value.
    pub(in crate::log) fn fields(&self) -> FieldSet {
        let mut set = FieldSet::default();
        Field::NAMES.into_iter().filter(|(_, field)| self.value(*field).is_some()).for_each(|(_, it)| set.insert(it));
        set
    }

    /// Returns the value of a field.
    pub(in crate::log) fn value(&self, field: Field) -> Option<&Value<'a>> {
        self.values[field as usize].as_ref().map(|(value, _)| value)
    }

    /// Returns the text of a field; `None` if it is a number.
    pub(in crate::log) fn text(&self, field: Field) -> Option<&[u8]> {
        self.value(field).and_then(Value::text)
    }

    /// Returns the decoded text of a field; `None` if it is a number.
    pub(in crate::log) fn decoded(&self, field: Field) -> Option<Cow<'_, [u8]>> {
        let (value, meaning) = self.values[field as usize].as_ref()?;
        match meaning.encoding {
            Encoding::Plain => value.text().map(Cow::Borrowed),
            encoding => value.clone().into_text(encoding),
        }
    }

    fn take_text(&mut self, field: Field) -> Option<Cow<'a, [u8]>> {
        let (value, meaning) = self.values[field as usize].take()?;
        value.into_text(meaning.encoding)
    }

    /// Returns the line, and its UTC offset. `known` are the fields that the log has; without a value on this line they were
    /// not sent.
    pub(in crate::log) fn into_line(
        mut self,
        known: FieldSet,
        clients: &ClientRule,
    ) -> Result<(LogLine<'a>, i64), LineError> {
        if [Field::Request, Field::Uri, Field::Path, Field::Status].iter().all(|it| self.value(*it).is_none()) {
            return Err(LineError::NotRequest);
        }
        let client =
            clients.client(self.decoded(Field::Client).as_deref(), self.decoded(Field::Forwarded).as_deref())?;
        let LineTime { at, has_fraction, utc_offset } = self.time().ok_or(LineError::InvalidTime)?;
        let status = self.value(Field::Status).and_then(Value::unsigned);
        let status = status.and_then(|status| u16::try_from(status).ok()).filter(|it| (100..1000).contains(it));
        let status = status.ok_or(LineError::InvalidStatus)?;
        let bytes = self.value(Field::Bytes).and_then(Value::unsigned).unwrap_or(0);
        let latency = self.values[Field::Latency as usize].take();
        let latency = latency.and_then(|(value, meaning)| value.duration(meaning));
        let headers_seen = self.headers_seen();
        let (request, request_host) = self.request();
        let host = request_host.or_else(|| self.take_text(Field::Host).map(quoted::text)).map(normalize_host);
        let (referer, user_agent) = (self.take_text(Field::Referer), self.take_text(Field::UserAgent));
        let missing = MissingFields::from_fields(&[LogField::Cost])
            .with(LogField::Fraction, !has_fraction)
            .with(LogField::Host, host.is_none())
            .with(LogField::Referer, referer.is_none() && headers_seen.is_none() && !known.contains(Field::Referer))
            .with(
                LogField::UserAgent,
                user_agent.is_none() && headers_seen.is_none() && !known.contains(Field::UserAgent),
            )
            .with(LogField::Headers, headers_seen.is_none())
            .with(LogField::Latency, latency.is_none());
        let client = LoggedClient::Address(client);
        let native = None;
        let line = LogLine {
            at,
            client,
            request,
            host,
            status,
            bytes,
            referer,
            user_agent,
            latency,
            headers_seen,
            missing,
            native,
        };
        Ok((line, utc_offset))
    }

    /// Returns the time of the line.
    pub(in crate::log) fn time(&self) -> Option<LineTime> {
        match (self.value(Field::Time), self.value(Field::Date), self.value(Field::Clock)) {
            (Some(time), ..) => time.time(),
            (None, Some(Value::Text(date)), Some(Value::Text(clock))) => {
                Value::Text([&**date, b"T", &**clock].concat().into()).time()
            }
            _ => None,
        }
    }

    /// Returns the headers of a line that has all of them.
    fn headers_seen(&self) -> Option<HeadersSeen> {
        let is_http_10 = self.version() == Version::HTTP_10;
        let is_tls = match self.value(Field::Tls) {
            Some(Value::Text(text)) => matches!(&**text, b"https" | b"on" | b"true"),
            value => value.is_some(),
        };
        Some(self.headers?.with(HeadersSeen::TLS, is_tls).with(HeadersSeen::HTTP_10, is_http_10))
    }

    fn version(&self) -> Version {
        let text = self.text(Field::Protocol).unwrap_or_default();
        std::str::from_utf8(text).ok().and_then(combined::parse_version).unwrap_or(Version::HTTP_11)
    }

    /// Returns the request line, and its host if it contains one.
    fn request(&mut self) -> (Option<RequestLine<'a>>, Option<Cow<'a, str>>) {
        if let Some(line) = self.take_text(Field::Request) {
            return combined::parse_request_line(line);
        }
        let version = self.version();
        let method = self.take_text(Field::Method).and_then(|method| Method::from_bytes(&method).ok());
        let target = self.take_text(Field::Uri).or_else(|| self.take_text(Field::Path)).map(quoted::text);
        let (Some(method), Some(target)) = (method, target) else { return (None, None) };
        let (host, path, query) = split_target(target);
        let query = query.or_else(|| {
            let query = quoted::text(self.take_text(Field::Query)?);
            Some(match query {
                Cow::Borrowed(query) => Cow::Borrowed(query.strip_prefix('?').unwrap_or(query)),
                Cow::Owned(query) => Cow::Owned(query.strip_prefix('?').map(str::to_owned).unwrap_or(query)),
            })
        });
        (Some(RequestLine { method, path, query, version }), host)
    }
}

type SplitTarget<'a> = (Option<Cow<'a, str>>, Cow<'a, str>, Option<Cow<'a, str>>);

fn split_target(target: Cow<'_, str>) -> SplitTarget<'_> {
    match target {
        Cow::Borrowed(target) => {
            let RequestTarget { host, path, query } = RequestTarget::parse(target);
            (host.map(Cow::Borrowed), path.into(), query.map(Cow::Borrowed))
        }
        Cow::Owned(target) => {
            let RequestTarget { host, path, query } = RequestTarget::parse(&target);
            let owned = |text: &str| Cow::Owned(text.to_owned());
            (host.map(owned), owned(path), query.map(owned))
        }
    }
}
