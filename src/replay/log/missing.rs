//! What policy would like to know of a request and a line may not say.

use std::fmt;

/// One thing that policy looks at, or that a verdict depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogField {
    /// The client's address: the log has a host name instead.
    Address,
    /// The time within the second.
    Fraction,
    /// The host that was asked.
    Host,
    /// The user agent.
    UserAgent,
    /// The referer.
    Referer,
    /// Which headers were there, and whether the client spoke TLS.
    Headers,
    /// What the answer really cost.
    Cost,
    /// How long the origin took.
    Latency,
}

/// Some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingFields(u8);

impl LogField {
    /// All of them.
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

    /// Its name in reports.
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

    /// What is done without it.
    pub const fn substitute(self) -> &'static str {
        match self {
            Self::Address => "clients known by host name only: each name is a client, and nobody's crawler by address",
            Self::Fraction => "times in whole seconds: requests of one second are taken in the order of the log",
            Self::Host => "no host: routes that ask for one do not fit",
            Self::UserAgent => "no user agent: bots cannot be told from people by name",
            Self::Referer => "no referer: behaviour is judged without it",
            Self::Headers => "no headers: behaviour is judged without them; keys and signatures are unknown",
            Self::Cost => "no actual cost: every request costs what its route is expected to",
            Self::Latency => "no latency: every request takes the same time",
        }
    }
}

impl MissingFields {
    /// None.
    pub const NONE: Self = Self(0);

    /// These.
    pub const fn of(facts: &[LogField]) -> Self {
        let (mut bits, mut place) = (0, 0);
        while place < facts.len() {
            bits |= 1 << facts[place] as u8;
            place += 1;
        }
        Self(bits)
    }

    /// These and `fact`, where `missing`.
    #[must_use]
    pub const fn with(self, fact: LogField, missing: bool) -> Self {
        Self(self.0 | (missing as u8) << fact as u8)
    }

    /// True when `fact` is among them.
    pub const fn contains(self, fact: LogField) -> bool {
        self.0 & 1 << fact as u8 != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = LogField> {
        LogField::ALL.into_iter().filter(move |fact| self.contains(*fact))
    }

    /// As one number, to count lines by it.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The facts of that number.
    pub const fn from_bits(number: u8) -> Self {
        Self(number)
    }
}

impl fmt::Display for LogField {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
