//! Scalar values: durations, sizes, shares, amounts, addresses.

use crate::admin_address::AdminAddress;
use crate::authority::socket_address;
use crate::number;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate_policy::cost::Cost;
use tidegate_policy::dns_pattern::DnsPattern;
use tidegate_policy::name_pattern::NamePattern;
use tidegate_policy::network::IpPrefix;
use tidegate_policy::network_origin::Country;
use tidegate_policy::own_hosts::OwnHost;
use tidegate_policy::tier::Share;
use tidegate_policy::units::Units;

/// Maximum duration. Longer ones are errors, and sums of them could overflow.
const MAX_DURATION: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// Defines a type that is written as one word, as text or number.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident($inner:ty), $needs:literal, $pattern:literal, digits: $digits:literal, $parse:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(super) struct $name(pub $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let parse: fn(&str) -> Option<$inner> = $parse;
                deserializer.deserialize_any(Word { parse, needs: $needs, digits: $digits }).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                match $digits {
                    true => json_schema!({ "type": ["string", "number"], "pattern": placeholder($pattern), "minimum": 0 }),
                    false => json_schema!({ "type": "string", "pattern": placeholder($pattern) }),
                }
            }
        }
    };
}

/// A count of which 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct CountLimit(pub u32);

impl<'de> Deserialize<'de> for CountLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse: fn(&str) -> Option<u32> = number::whole;
        let needs = "a whole number up to 4294967295; write it in digits, or 0 for no limit";
        deserializer.deserialize_any(Word { parse, needs, digits: true }).map(Self)
    }
}

impl JsonSchema for CountLimit {
    fn schema_name() -> Cow<'static, str> {
        "CountLimit".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        u32::json_schema(generator)
    }
}

/// Returns the pattern of a word or of `${NAME}`, whose value an editor cannot check.
fn placeholder(pattern: &str) -> String {
    format!("^({pattern}|.*\\$\\{{.*)$")
}

struct Word<T> {
    parse: fn(&str) -> Option<T>,
    needs: &'static str,
    /// True if numbers are accepted, too.
    digits: bool,
}

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.needs)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        let parsed = if self.digits { (self.parse)(&number.to_string()) } else { None };
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        let parsed = if self.digits { (self.parse)(&number.to_string()) } else { None };
        parsed.ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

word! {
    /// A duration such as `250ms`, `5s`, `10m`, `24h` or `7d`.
    Span(Duration), "a duration; write it like 250ms, 5s, 10m, 24h or 7d", "[0-9]+(ms|s|m|h|d)", digits: false, duration
}

word! {
    /// A crawl delay such as `10s`, or `auto`.
    Delay(Option<Duration>), "a delay; write auto, or a duration such as 10s", "auto|[0-9]+(ms|s|m|h|d)", digits: false, delay
}

word! {
    /// A size such as `64KiB` or `10MiB`.
    Size(u64), "a size; write it like 64KiB, 10MiB or 2GiB, in the units B, KiB, MiB or GiB", "[0-9]+(B|KiB|MiB|GiB)", digits: false, size
}

word! {
    /// A share such as `50%` or `12.5%`.
    Percent(Share), "a share such as 75%; write a number from 0 to 100 with a percent sign", "[0-9.]+%", digits: false, parse_share
}

word! {
    /// A relative change such as `10%` or `-10%`.
    Change(f64), "a share such as 10%, or -10%; write a number from -100 to 100 with a percent sign", "-?[0-9.]+%", digits: false, change
}

word! {
    /// An amount in units such as `10000` or `0.25`.
    Amount(Units), "an amount, to a thousandth; write it like 10000 or 0.25", "[0-9.]+", digits: true, units
}

word! {
    /// Expected cost of a request: an amount, or `learned`.
    Price(Cost), "an amount to a thousandth, or learned; write it like 10 or 0.25", "[0-9.]+|learned", digits: true, parse_cost
}

word! {
    /// A threshold of usage: a share of the limit, or an amount in units.
    Mark(ThresholdValue), "a share of the limit or an amount; write it like 60% or 6000", "[0-9.]+%?", digits: true, parse_threshold
}

word! {
    /// A network such as `10.0.0.0/8` or `2001:db8::/32`, or one address.
    Range(IpPrefix), "an address range; write it like 10.0.0.0/8 or \"2001:db8::/32\"", "[0-9a-fA-F.:]+(/[0-9]+)?", digits: false, IpPrefix::parse
}

word! {
    /// An address with port such as `127.0.0.1:8080` or `[::1]:8080`.
    Socket(SocketAddr), "an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"", "[0-9a-fA-F.:\\[\\]]+:[0-9]+", digits: false, socket_address
}

word! {
    /// Redirect to https: at the port of the first listener with TLS, or at a given one.
    HttpsRedirect(Option<u16>), "https, or https with a port; write https or https:443", "https(:[0-9]+)?", digits: false, https_redirect
}

word! {
    /// The address of the admin listener, such as `127.0.0.1:9090` or `unix:/run/tidegate/admin.sock`.
    AdminSocket(AdminAddress), "an address and port, or the path of a Unix socket; write it like 127.0.0.1:9090 or unix:/run/tidegate/admin.sock", "[0-9a-fA-F.:\\[\\]]+:[0-9]+|unix:/.+", digits: false, |text| text.parse().ok()
}

word! {
    /// A pattern of the names in client certificates.
    CertificateName(NamePattern), "a name of up to 256 characters; write it like partner or \"*.partner.example\"", ".+", digits: false, |text| text.parse().ok()
}

word! {
    /// A pattern of the values of a header field or cookie.
    ValuePattern(NamePattern), "a value of up to 256 characters; write it like acme or \"acme*\", and a number in quotes, like \"2\"", ".+", digits: false, |text| text.parse().ok()
}

word! {
    /// A pattern of a value in JSON.
    JsonValue(NamePattern), "a value of up to 256 characters; write it like search or \"tools/*\", and truth values in quotes", ".+", digits: true, |text| text.parse().ok()
}

word! {
    /// A country.
    CountryCode(Country), "the two letters of a country; write it like DE", "[A-Za-z]{2}", digits: false, |text| text.parse().ok()
}

word! {
    /// A time of day such as `06:30`.
    TimeOfDay(jiff::civil::Time), "a time of day; write it like \"06:30\"", "[0-2][0-9]:[0-5][0-9]", digits: false, time_of_day
}

word! {
    /// Name of a header field.
    Field(http::HeaderName), "the name of a header; write it like X-API-Cost", "[-!#$%&'*+.^_`|~0-9A-Za-z]+", digits: false, |text| text.parse().ok()
}

word! {
    /// A request method.
    Verb(http::Method), "a method; write it in capitals such as GET", "[A-Z-]+", digits: false, method
}

word! {
    /// A rate such as `10/s`: a count and an interval.
    Rate((u32, Duration)), "a rate; write it like 10/s, 60/m or 100/h", "[0-9]+/(s|m|h|d)", digits: false, rate
}

word! {
    /// Number of threads, or `auto`.
    Threads(Option<std::num::NonZeroUsize>), "a number of threads; write auto or a number from 1 to 1024", "auto|[0-9]+", digits: true, threads
}

word! {
    /// A pattern of DNS names such as `crawl.example.com` or `bot-*.example.com`.
    Pattern(DnsPattern), "a DNS name; write crawl.example.com, which includes all names below it, or bot-*.example.com", "[-_*.0-9A-Za-z]+", digits: false, |text| text.parse().ok()
}

word! {
    /// An own host such as `example.com`, `*.example.com` or `192.0.2.1`.
    Host(OwnHost), "a host; write example.com, \"*.example.com\" for all names below it, or an address, without scheme and port", "[-_*.:0-9A-Za-z\\[\\]]+", digits: false, |text| text.parse().ok()
}

/// Path of a file or a directory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilePath(pub String);

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a path; write one such as ./tls/site.pem, or leave the key out";
        deserializer.deserialize_any(Word { parse: Self::parse, needs, digits: false })
    }
}

impl FilePath {
    /// Returns the path that `text` is; `None` for text without a name.
    pub(super) fn parse(text: &str) -> Option<Self> {
        (!text.trim().is_empty() && !text.contains('\0')).then(|| Self(text.to_owned()))
    }
}

impl JsonSchema for FilePath {
    fn schema_name() -> Cow<'static, str> {
        "FilePath".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// Usage from which a tier applies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ThresholdValue {
    /// Share of the limit.
    LimitShare(Share),
    /// Units.
    Units(Units),
}

impl ThresholdValue {
    /// Returns the threshold in units. A share of the limit is rounded up: 0.1 % of 0.5 units is one thousandth, not 0.
    pub(super) fn units(self, limit: Units) -> Units {
        match self {
            Self::Units(units) => units,
            Self::LimitShare(share) => {
                let millionths = u128::from(limit.milli()) * u128::from(share.millionths());
                let milli = millionths.div_ceil(u128::from(Share::ALL.millionths()));
                Units::from_milli(u64::try_from(milli).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Parses a duration of the file or the command line, such as `250ms`, `5s`, `10m`, `24h` or `7d`.
pub fn duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let count: u64 = number::whole(text.strip_suffix(unit)?)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    count.checked_mul(milliseconds).map(Duration::from_millis).filter(|&span| span <= MAX_DURATION)
}

impl fmt::Display for Span {
    /// Writes the duration as the file does, in the largest unit of which it is a multiple; one day as 24h, one minute as
    /// 60s.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let units = [(86_400_000, 2, "d"), (3_600_000, 1, "h"), (60_000, 2, "m"), (1000, 1, "s")];
        let fits =
            |(unit, least, _): &(u128, u128, _)| milliseconds >= unit * least && milliseconds.is_multiple_of(*unit);
        match units.into_iter().find(fits) {
            Some((unit, _, name)) => write!(out, "{}{name}", milliseconds / unit),
            None if milliseconds == 0 => out.write_str("0s"),
            None => write!(out, "{milliseconds}ms"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.0 * 100.0)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.strftime("%H:%M").fmt(out)
    }
}

/// Serializes a word as the file writes it.
macro_rules! serialize_as_text {
    ($($Type:ident $(.$inner:tt)?),*) => {
        $(impl Serialize for $Type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self$(.$inner)?)
            }
        })*
    };
}

serialize_as_text!(Change, Span, Size, TimeOfDay, AdminSocket.0, Percent.0, Socket.0);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.milli() % 1000 {
            0 => serializer.serialize_u64(self.0.milli() / 1000),
            _ => serializer.serialize_f64(self.0.as_f64()),
        }
    }
}

impl fmt::Display for Size {
    /// Writes the size as the file does, in the largest unit of which it is a multiple.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(out, "{}{name}", bytes / unit),
            None => write!(out, "{bytes}B"),
        }
    }
}

impl Delay {
    /// Parses a crawl delay. Returns `None` if `text` is not one.
    pub(super) fn read(text: &str) -> Option<Self> {
        delay(text).map(Self)
    }
}

fn delay(text: &str) -> Option<Option<Duration>> {
    if text == "auto" { Some(None) } else { duration(text).map(Some) }
}

fn size(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let count: u64 = number::whole(text.strip_suffix(unit)?)?;
    let bytes = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    count.checked_mul(bytes)
}

fn parse_share(text: &str) -> Option<Share> {
    let percent = number::decimal(text.strip_suffix('%')?)?;
    let millionths = percent.milli() * 10;
    u32::try_from(millionths).ok().filter(|&millionths| millionths <= 1_000_000).map(Share::from_millionths)
}

fn change(text: &str) -> Option<f64> {
    match text.strip_prefix('-') {
        Some(magnitude) => parse_share(magnitude).map(|share| -share.ratio()),
        None => parse_share(text).map(Share::ratio),
    }
}

/// Parses an amount in units. More than three decimals are an error, because amounts are not rounded.
fn units(text: &str) -> Option<Units> {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction.trim_end_matches('0'));
    number::decimal(text).filter(|_| fraction.len() <= 3)
}

fn parse_cost(text: &str) -> Option<Cost> {
    match text {
        "learned" => Some(Cost::Learned),
        amount => units(amount).map(Cost::Fixed),
    }
}

fn parse_threshold(text: &str) -> Option<ThresholdValue> {
    match text.ends_with('%') {
        true => parse_share(text).map(ThresholdValue::LimitShare),
        false => units(text).map(ThresholdValue::Units),
    }
}

fn https_redirect(text: &str) -> Option<Option<u16>> {
    match text.strip_prefix("https")? {
        "" => Some(None),
        port => number::whole(port.strip_prefix(':')?).filter(|&port| port > 0).map(Some),
    }
}

fn time_of_day(text: &str) -> Option<jiff::civil::Time> {
    let is_valid = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let (hour, minute) = text.split_once(':').filter(|(hour, minute)| is_valid(hour) && is_valid(minute))?;
    jiff::civil::Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

fn method(text: &str) -> Option<http::Method> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    text.parse().ok().filter(|_| plain)
}

fn rate(text: &str) -> Option<(u32, Duration)> {
    let (count, unit) = text.split_once('/')?;
    let interval = matches!(unit, "s" | "m" | "h" | "d").then(|| duration(&format!("1{unit}")))??;
    Some((number::whole(count.trim_end())?, interval))
}

fn threads(text: &str) -> Option<Option<std::num::NonZeroUsize>> {
    match text {
        "auto" => Some(None),
        _ => number::whole(text).filter(|&count: &std::num::NonZeroUsize| count.get() <= 1024).map(Some),
    }
}
