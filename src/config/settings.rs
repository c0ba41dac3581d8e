//! The configuration as meant: checked values that only [`super::load`] can make.

use super::SourceMap;
use crate::policy::Rules;
use crate::policy::crawl_delay::CrawlDelays;
use crate::policy::dns_pattern::DnsPattern;
use crate::policy::secret::Secret;
use crate::policy::tier::Share;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
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
    /// How much clients may hold on to.
    pub limits: Limits,
    /// What clients are told in header fields.
    pub headers: Headers,
    /// What robots.txt says.
    pub robots: Robots,
    /// What the gate tells strangers of its rules, if anything.
    pub crawl_policy: Option<CrawlPolicy>,
    /// What is written about requests, and by the gate about itself.
    pub log: Log,
    /// Operators of crawlers that are added to the built-in ones, or differ from them.
    pub operators: Vec<CrawlerOperator>,
    /// The names of all operators, by the numbers that the rules know them by.
    pub operator_names: Vec<String>,
    /// How crawlers are held to what they say.
    pub verify: Verify,
    /// Who may have what.
    pub rules: Arc<Rules>,
    /// Where the address lists are, in the order of their names in the rules.
    pub lists: Vec<AddressList>,
    /// The files that operators' `ranges` name.
    pub range_files: Vec<RangeFile>,
    /// What is right but worth knowing, a sentence each: mostly keys that this version does not carry out.
    pub warnings: Vec<String>,
    /// Where each of these was written.
    pub source_map: SourceMap,
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

/// A list of addresses in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressList {
    /// Its name in rules, logs and metrics.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// Where the file is named: `tidegate.yaml:3:12: lists.hosting.file`.
    pub named_at: String,
}

/// A file with the addresses of an operator's crawlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeFile {
    /// The file.
    pub file: PathBuf,
    /// Where it is named: `tidegate.yaml:3:12: operators.acme.ranges`.
    pub named_at: String,
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
    pub when_lost: LedgerFailureMode,
}

/// What a gate does that is cut off from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerFailureMode {
    /// Spends nothing more.
    Refuse,
    /// Spends the part of what is left that was put aside for it.
    Fallback,
}

/// An operator of crawlers as the file tells it; what it leaves out is as built in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrawlerOperator {
    /// Its name; a plain one.
    pub name: String,
    /// What its crawlers call themselves.
    pub tokens: Option<Vec<String>>,
    /// Networks, URLs of lists that may be fetched, or files.
    pub ranges: Option<Vec<String>>,
    /// What their addresses are called in DNS.
    pub names: Option<Vec<DnsPattern>>,
    /// By what all of them are known.
    pub complete: Option<Vec<ProofMethod>>,
    /// By which addresses its agents sign.
    pub signature_agents: Option<Vec<String>>,
}

/// By what crawlers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofMethod {
    /// By their addresses.
    Addresses,
    /// By the names of their addresses.
    Names,
}

/// How crawlers are held to what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verify {
    /// Whom to ask in DNS, if anybody.
    pub dns: Option<Dns>,
    /// How often published lists are fetched, if they are.
    pub refresh: Option<Duration>,
    /// Which signatures on requests count; `None` where these are not looked at.
    pub signatures: Option<Signatures>,
}

/// Which signatures count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signatures {
    /// The keys of agents that no known operator has are fetched too.
    pub unlisted_agents: bool,
    /// The longest that a signature may hold; not zero.
    pub max_lifetime: Duration,
}

/// Whom to ask in DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dns {
    /// These name servers, or the system's where there is none.
    pub nameservers: Vec<SocketAddr>,
    /// How long each has for an answer; not zero.
    pub timeout: Duration,
}

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

/// What robots.txt says besides what the origin says.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Robots {
    /// Who is asked for which delay.
    pub delays: CrawlDelays,
    /// The file that is served in the origin's place.
    pub file: Option<PathBuf>,
    /// The path that is forbidden to everybody and linked nowhere.
    pub trap: Option<String>,
}

/// What the gate tells strangers of its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrawlPolicy {
    /// Whom to ask for more: a `mailto:` or `https:` address.
    pub contact: Option<String>,
    /// Quotas are told in units, too, not only in shares.
    pub units: bool,
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

impl Settings {
    /// The files of the address lists, in the order of their names in the rules, each with where it is named.
    pub fn list_files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.lists.iter().map(|list| (list.file.as_path(), list.named_at.as_str()))
    }
}

impl Origin {
    /// Its address, where that is what was written, not a name.
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, self.port))
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
