//! The configuration as meant: checked values that only [`super::load`] can make.

use crate::policy::tier::Share;
use crate::policy::{OperatorId, Rules};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// All that the gate is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Where clients are served; at least one, none twice.
    pub listen: Vec<SocketAddr>,
    /// Threads that carry requests; `None` is one per core.
    pub workers: Option<NonZeroUsize>,
    /// The listener for operators, if there is one.
    pub admin: Option<Admin>,
    /// The directory of the ledger.
    pub state_dir: PathBuf,
    /// Where the count of what is spent is kept.
    pub ledger: Ledger,
    /// The server behind the gate.
    pub origin: Origin,
    /// How crawlers are proven to be whose they say they are.
    pub verify: Verify,
    /// How much clients may hold on to.
    pub limits: Limits,
    /// What clients are told in header fields.
    pub headers: Headers,
    /// What is written about requests, and by the gate about itself.
    pub log: Log,
    /// Who may have what.
    pub rules: Arc<Rules>,
    /// What is right but worth knowing, a sentence each: mostly keys that this version does not carry out.
    pub notes: Vec<String>,
}

/// Where the count of what is spent is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ledger {
    /// In the state directory: it survives restarts.
    File,
    /// In memory: a restart begins anew.
    Memory,
    /// In a Redis or Valkey, for all gates that use it with the same prefix.
    Redis(Redis),
}

/// The listener for operators.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Admin {
    /// Its address; beyond loopback only with a token.
    pub listen: SocketAddr,
    /// The bearer token that must be shown.
    pub token: Option<Secret>,
}

/// A Redis or Valkey that several gates share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redis {
    /// Its host: a name, or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user, where it is not the default one.
    pub user: Option<String>,
    /// The password, if it asks for one.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
    /// What its keys begin with; a plain name.
    pub prefix: String,
    /// What is done when it cannot be reached and the units in hand are spent.
    pub when_lost: WhenLost,
}

/// What a gate does that is cut off from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// Spends nothing more.
    Refuse,
    /// Spends the part of what is left that was put aside for it.
    Share,
}

/// Text that is compared, or shown to its addressee, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The server behind the gate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Origin {
    /// Its host: a name, or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Host and port as in a `Host` field: the port only where it is not 80, IPv6 in brackets.
    pub authority: String,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long it may take to begin its answer, and to go on with it.
    pub response_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// The most connections to it; at least 1.
    pub max_connections: usize,
}

/// How crawlers are proven to be whose they say they are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verify {
    /// By signatures on their requests; `None` where these are not looked at.
    pub signatures: Option<Signatures>,
}

/// Which signatures count.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Signatures {
    /// The keys of agents that no known operator has are fetched too.
    pub unlisted_agents: bool,
    /// Addresses by which agents of operators sign, beside those that are known.
    pub agents: Vec<(String, OperatorId)>,
    /// The longest that a signature may hold; not zero.
    pub max_lifetime: Duration,
}

/// How much clients may hold on to. No count and no duration is zero.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The most connections, all together.
    pub max_connections: usize,
    /// The most connections from one address, as clients are told apart, if there is a bound.
    pub max_connections_per_address: Option<NonZeroUsize>,
    /// How long a new connection may stay silent.
    pub first_byte_timeout: Duration,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long a connection is kept between requests.
    pub keep_alive_timeout: Duration,
    /// The longest pause within a request's body.
    pub request_body_timeout: Duration,
    /// How long a client may stop reading its answer.
    pub response_write_timeout: Duration,
    /// The largest head of a request, in bytes; from 8 KiB to 1 MiB.
    pub max_head_size: usize,
    /// The most header fields in a request.
    pub max_headers: usize,
    /// The largest body of a request, in bytes.
    pub max_body_size: u64,
    /// After so many requests a connection is closed in good order.
    pub requests_per_connection: u32,
    /// The most requests at once over one HTTP/2 connection.
    pub http2_streams: u32,
    /// The most clients whose buckets are remembered.
    pub max_clients: usize,
    /// How long requests under way may take to end when the gate is told to stop.
    pub drain_timeout: Duration,
}

/// What clients are told in header fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Headers {
    /// `RateLimit` and `RateLimit-Policy`.
    pub ratelimit: bool,
    /// Older fields beside them, each once.
    pub legacy: Vec<LegacyFamily>,
    /// Up to this share is added to each `Retry-After`.
    pub retry_after_spread: Share,
}

/// Header fields of older habits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyFamily {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Interval-Seconds`, `-FillRate`.
    Atlassian,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Used`, `-Reset` (a moment), `-Resource`.
    Github,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` (a span).
    Draft03,
}

/// What is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Log {
    /// One line a request.
    pub access: AccessLog,
    /// The least that the gate says of itself.
    pub level: LogLevel,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// To standard output.
    Stdout,
    /// To a file.
    File {
        /// The file.
        path: PathBuf,
    },
}

/// How much the gate says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What a person should act on.
    Error,
    /// Degraded but serving.
    Warn,
    /// Changes of state.
    Info,
    /// Single requests.
    Debug,
    /// Everything.
    Trace,
}

impl Origin {
    /// Its address, where that is what was written, not a name.
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, self.port))
    }
}

impl Secret {
    /// The secret `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret itself, for the one whom it is to be shown to.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The `Authorization` field of whoever knows it; `None` when it holds what no field may.
    pub fn authorization(&self) -> Option<http::HeaderValue> {
        let mut field = http::HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        field.set_sensitive(true);
        Some(field)
    }

    /// True when `offered` is the secret. Takes as long for a wrong guess as for a right one of that length.
    pub fn is(&self, offered: &[u8]) -> bool {
        let differing = self.0.bytes().zip(offered).fold(0, |differing, (ours, theirs)| differing | (ours ^ theirs));
        self.0.len() == offered.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

impl LogLevel {
    /// Its name in YAML and in log filters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}
