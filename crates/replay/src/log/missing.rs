//! Fields that policies use and that log lines may lack.

use std::fmt;

/// A field that a policy uses or a verdict depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogField {
    /// Address of the client; missing if the log contains a host name instead.
    Address,
    /// Fraction of the second of the time.
    Fraction,
    /// Request host.
    Host,
    /// User agent.
    UserAgent,
    /// Referer.
    Referer,
    /// Request headers, and the use of TLS.
    Headers,
    /// Actual cost of the response.
    Cost,
    /// Response time of the origin.
    Latency,
}

/// Set of missing fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingFields(u8);

impl LogField {
    /// All fields.
    pub const ALL: [Self; 8] = [
        Self::Address,
        Self::Fraction,
        Self::Host,
        Self::UserAgent,
        Self::Referer,
        Self::Headers,
        Self::Cost,
        Self::Latency,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Fraction => "fraction",
            Self::Host => "host",
            Self::UserAgent => "user_agent",
            Self::Referer => "referer",
            Self::Headers => "headers",
            Self::Cost => "cost",
            Self::Latency => "latency",
        }
    }

    /// Returns the description of the gap and its substitute.
    pub const fn substitute(self) -> &'static str {
        match self {
            Self::Address => "no address: each host name is treated as one client, and none is verified by address",
            Self::Fraction => "times in whole seconds: requests of one second keep the order of the log",
            Self::Host => "no host: routes with a host do not match",
            Self::UserAgent => "no user agent: bots are not recognized by name",
            Self::Referer => "no referer: behavior is judged without referers",
            Self::Headers => "no headers: behavior is judged without them; keys, cookies and signatures are unknown",
            Self::Cost => "no actual cost: every request has the expected cost of its route",
            Self::Latency => "no latency: every request takes the same time",
        }
    }
}

impl MissingFields {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Creates a set of `facts`.
    pub const fn from_fields(facts: &[LogField]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < facts.len() {
            bits |= 1 << facts[index] as u8;
            index += 1;
        }
        Self(bits)
    }

    /// Adds `fact` if `missing`.
    #[must_use]
    pub const fn with(self, fact: LogField, missing: bool) -> Self {
        Self(self.0 | (missing as u8) << fact as u8)
    }

    /// Returns true if the set contains `fact`.
    pub const fn contains(self, fact: LogField) -> bool {
        self.0 & 1 << fact as u8 != 0
    }

    /// Iterates over the set.
    pub fn iter(self) -> impl Iterator<Item = LogField> {
        LogField::ALL.into_iter().filter(move |fact| self.contains(*fact))
    }

    /// Returns the set as a bit mask.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Creates the set of a bit mask.
    pub const fn from_bits(number: u8) -> Self {
        Self(number)
    }
}

impl fmt::Display for LogField {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
