//! Directives of `Cache-Control` in requests and responses (RFC 9111 section 5.2, RFC 5861, RFC 8246), and of the
//! targeted field `CDN-Cache-Control` (RFC 9213).

use super::fields::{FieldLines, members};
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use std::time::Duration;

/// Largest number of seconds that a directive or `Age` means (RFC 9111 section 1.2.2).
const MAX_DELTA_SECONDS: u64 = 1 << 31;

/// Field that addresses gateways like this one.
const TARGETED_FIELD: &str = "cdn-cache-control";

/// Directives of a response. Qualified `private` and `no-cache` count as unqualified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// The response must not be stored.
    pub no_store: bool,
    /// The response must not be used without validation.
    pub no_cache: bool,
    /// The response is for one user.
    pub private: bool,
    /// The response is for all clients, also if the request had credentials.
    pub public: bool,
    /// `must-revalidate` or `proxy-revalidate`: never used stale.
    pub must_revalidate: bool,
    /// `must-revalidate`: allows the storage of responses to requests with `Authorization`.
    pub has_must_revalidate: bool,
    /// The response may be stored if its status is understood, whatever `no-store` says.
    pub must_understand: bool,
    /// A reload of the client need not validate the response while it is fresh.
    pub immutable: bool,
    /// Freshness lifetime; zero if it is invalid.
    pub max_age: Option<Duration>,
    /// Freshness lifetime for shared caches.
    pub s_maxage: Option<Duration>,
    /// Time for which the response may be used stale while it is validated.
    pub stale_while_revalidate: Duration,
    /// Time for which the response may be used stale if the origin fails; `None` if the origin does not say.
    pub stale_if_error: Option<Duration>,
    /// True if the directives are those of [`TARGETED_FIELD`], with which `Expires` does not count.
    pub is_targeted: bool,
}

/// Directives of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// The response must not be stored.
    pub no_store: bool,
    /// The client wants no response that was not validated.
    pub no_cache: bool,
    /// The client wants a stored response or none.
    pub only_if_cached: bool,
    /// Largest age that the client accepts.
    pub max_age: Option<Duration>,
    /// Time for which the response must stay fresh.
    pub min_fresh: Duration,
    /// Time for which a stale response is accepted; [`Duration::MAX`] for any.
    pub max_stale: Duration,
}

impl ResponseDirectives {
    /// Reads the directives of a response: those of `CDN-Cache-Control` if it is valid and not empty, else those of
    /// `Cache-Control`.
    pub fn read(fields: &impl FieldLines) -> Self {
        read_targeted(fields).unwrap_or_else(|| Self::of_cache_control(fields.lines("cache-control")))
    }

    /// Reads the directives in the lines of `Cache-Control`.
    pub fn of_cache_control<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut read = Self::default();
        members(lines).for_each(|member| {
            let (name, value) = name_and_value(member);
            read.set(name, || delta_seconds(value));
        });
        read
    }

    /// Sets one directive. Of a repeated one the first counts; an invalid lifetime is zero.
    fn set(&mut self, name: &[u8], seconds: impl FnOnce() -> Option<Duration>) {
        let or_zero = |seconds: Option<Duration>| seconds.unwrap_or(Duration::ZERO);
        match name.to_ascii_lowercase().as_slice() {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" => (self.must_revalidate, self.has_must_revalidate) = (true, true),
            b"proxy-revalidate" => self.must_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"immutable" => self.immutable = true,
            b"max-age" if self.max_age.is_none() => self.max_age = Some(or_zero(seconds())),
            b"s-maxage" if self.s_maxage.is_none() => self.s_maxage = Some(or_zero(seconds())),
            b"stale-while-revalidate" => self.stale_while_revalidate = or_zero(seconds()),
            b"stale-if-error" if self.stale_if_error.is_none() => self.stale_if_error = seconds(),
            _ => {}
        }
    }
}

/// Reads the targeted field; `None` if it is absent, empty or no dictionary (RFC 9213 section 2.1).
fn read_targeted(fields: &impl FieldLines) -> Option<ResponseDirectives> {
    if !fields.has(TARGETED_FIELD) {
        return None;
    }
    let lines: Vec<&[u8]> = fields.lines(TARGETED_FIELD).collect();
    let dictionary: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut read = ResponseDirectives { is_targeted: true, ..ResponseDirectives::default() };
    for (name, entry) in &dictionary {
        let ListEntry::Item(item) = entry else { continue };
        let seconds = || match &item.bare_item {
            BareItem::Integer(seconds) => u64::try_from(i64::from(*seconds)).ok().map(clamped_seconds),
            _ => None,
        };
        if item.bare_item != BareItem::Boolean(false) {
            read.set(name.as_str().as_bytes(), seconds);
        }
    }
    Some(read)
}

impl RequestDirectives {
    /// Reads the directives of a request. Of a repeated one, the first that is valid counts. `Pragma: no-cache` counts without
    /// `Cache-Control` (RFC 9111 section 5.4).
    pub fn read(fields: &impl FieldLines) -> Self {
        let mut read = Self::default();
        if !fields.has("cache-control") {
            read.no_cache = fields.members("pragma").any(|member| member.eq_ignore_ascii_case(b"no-cache"));
            return read;
        }
        let (mut min_fresh, mut max_stale) = (None, None);
        for member in fields.members("cache-control") {
            let (name, value) = name_and_value(member);
            match name.to_ascii_lowercase().as_slice() {
                b"no-store" => read.no_store = true,
                b"no-cache" => read.no_cache = true,
                b"only-if-cached" => read.only_if_cached = true,
                b"max-age" => read.max_age = read.max_age.or_else(|| delta_seconds(value)),
                b"min-fresh" => min_fresh = min_fresh.or_else(|| delta_seconds(value)),
                b"max-stale" if value.is_none() => max_stale = max_stale.or(Some(Duration::MAX)),
                b"max-stale" => max_stale = max_stale.or_else(|| delta_seconds(value)),
                _ => {}
            }
        }
        (read.min_fresh, read.max_stale) = (min_fresh.unwrap_or_default(), max_stale.unwrap_or_default());
        read
    }

    /// Returns the directives without those that ask for a fresher response.
    #[must_use]
    pub fn without_reload(self) -> Self {
        Self { no_cache: false, max_age: None, min_fresh: Duration::ZERO, ..self }
    }
}

/// Splits a directive into its name and its value, without quotes. White space around the equals sign is an error: the
/// directive counts, so that `private =x` is not shared, and its value is no number.
fn name_and_value(member: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some(at) = member.iter().position(|&byte| byte == b'=') else { return (member, None) };
    let (name, value) = (member[..at].trim_ascii_end(), &member[at + 1..]);
    if name.len() < at {
        return (name, Some(b""));
    }
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    (name, Some(unquoted.unwrap_or(value)))
}

/// Returns a number of seconds; `None` unless it is of digits only.
fn delta_seconds(value: Option<&[u8]>) -> Option<Duration> {
    parse_seconds(value?)
}

/// Parses a number of seconds, as in a directive or `Age`. Larger numbers are 2^31.
pub(super) fn parse_seconds(digits: &[u8]) -> Option<Duration> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number =
        digits.iter().fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(clamped_seconds(number))
}

fn clamped_seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(MAX_DELTA_SECONDS))
}
