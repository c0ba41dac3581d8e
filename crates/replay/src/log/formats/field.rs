//! What a column or a name of a log means, and how its value is written.

/// Meaning of a value of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::log) enum Field {
    /// Address of the peer of the server: the client, or a proxy in front of the server.
    Client,
    /// Addresses that proxies have sent, as in `X-Forwarded-For`.
    Forwarded,
    /// Time of the request, with its date.
    Time,
    /// Date of the request, beside its time of the day.
    Date,
    /// Time of the day of the request, in UTC.
    Clock,
    /// Request line: method, target and version.
    Request,
    /// Request method.
    Method,
    /// Path and query, or the whole URL.
    Uri,
    /// Path without its query.
    Path,
    /// Query, with or without its question mark.
    Query,
    /// Request host, with or without its port.
    Host,
    /// HTTP version, such as `HTTP/1.1`.
    Protocol,
    /// Response status.
    Status,
    /// Bytes sent to the client.
    Bytes,
    /// Referer.
    Referer,
    /// User agent.
    UserAgent,
    /// Response time of the origin.
    Latency,
    /// TLS, or the scheme `https`.
    Tls,
}

impl Field {
    /// All fields with the names of the option `--field`.
    pub(in crate::log) const NAMES: [(&'static str, Self); 18] = [
        ("client", Self::Client),
        ("forwarded", Self::Forwarded),
        ("time", Self::Time),
        ("date", Self::Date),
        ("time_of_day", Self::Clock),
        ("request", Self::Request),
        ("method", Self::Method),
        ("uri", Self::Uri),
        ("path", Self::Path),
        ("query", Self::Query),
        ("host", Self::Host),
        ("protocol", Self::Protocol),
        ("status", Self::Status),
        ("bytes", Self::Bytes),
        ("referer", Self::Referer),
        ("user_agent", Self::UserAgent),
        ("latency", Self::Latency),
        ("tls", Self::Tls),
    ];

    /// Number of fields.
    pub(in crate::log) const COUNT: usize = Self::NAMES.len();

    /// Returns the name of the field.
    pub(in crate::log) const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Returns the field that a request header tells, by its name in any case, with `-` or `_`.
    pub(in crate::log) fn of_header(name: &str) -> Option<Self> {
        match &*name.to_ascii_lowercase().replace('_', "-") {
            "user-agent" => Some(Self::UserAgent),
            "referer" => Some(Self::Referer),
            "host" => Some(Self::Host),
            "x-forwarded-for" | "cf-connecting-ip" | "true-client-ip" | "x-real-ip" | "fastly-client-ip" => {
                Some(Self::Forwarded)
            }
            _ => None,
        }
    }

    /// Returns the field with this name.
    pub(in crate::log) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, field)| field)
    }
}

/// How a value is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::log) enum Encoding {
    /// As it was sent.
    #[default]
    Plain,
    /// With the escapes of Apache and nginx: `\"`, `\\` and `\x22`.
    Backslash,
    /// With a backslash in front of quotes and other bytes (flag `E` of HAProxy).
    AnyBackslash,
    /// With percent signs (CloudFront).
    Percent,
    /// With a plus sign for each blank (IIS).
    Plus,
    /// With `#` and two digits (HAProxy).
    Hash,
}

/// Meaning of a value, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) struct Meaning {
    pub(in crate::log) field: Field,
    pub(in crate::log) encoding: Encoding,
    /// Unit of a latency, in nanoseconds.
    pub(in crate::log) unit_ns: u64,
}

impl Meaning {
    /// Returns the meaning of a plain value; a latency is in seconds.
    pub(in crate::log) const fn of(field: Field) -> Self {
        Self { field, encoding: Encoding::Plain, unit_ns: SECOND }
    }

    /// Returns the meaning of a latency in another unit.
    pub(in crate::log) const fn latency(unit_ns: u64) -> Self {
        Self { field: Field::Latency, encoding: Encoding::Plain, unit_ns }
    }

    /// Returns the meaning of a value that is written otherwise.
    pub(in crate::log) const fn encoded(self, encoding: Encoding) -> Self {
        Self { encoding, ..self }
    }
}

/// A second, in nanoseconds.
pub(in crate::log) const SECOND: u64 = 1_000_000_000;
/// A millisecond, in nanoseconds.
pub(in crate::log) const MILLISECOND: u64 = 1_000_000;
/// A microsecond, in nanoseconds.
pub(in crate::log) const MICROSECOND: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_name() {
        for (index, (name, field)) in Field::NAMES.into_iter().enumerate() {
            assert_eq!((field as usize, field.name(), Field::from_name(name)), (index, name, Some(field)));
        }
    }
}
