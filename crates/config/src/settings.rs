//! The validated configuration, [`Settings`]. Only [`super::load`] and its siblings create it.

mod error_page;
mod header_rules;
mod notifications;
mod origin;
mod receiver_url;
mod redirect;
mod rewrite;
mod traces;

pub use error_page::*;
pub use header_rules::*;
pub use notifications::*;
pub use origin::*;
pub use receiver_url::ReceiverUrl;
pub use redirect::*;
pub use rewrite::*;
pub use traces::Traces;

pub use crate::sections::crawl_policy::CrawlPolicy;
pub use crate::sections::headers::{Headers, LegacyFamily, RateLimitDraft};
pub use crate::sections::limits::Limits;
pub use crate::sections::sessions::Sessions;

use super::{SettingPath, SourceMap};
use crate::admin_address::AdminAddress;
use crate::section::stored_as_written;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::crawl_delay::CrawlDelays;
use tidegate_policy::dns_pattern::DnsPattern;
use tidegate_policy::own_hosts::OwnHosts;
use tidegate_policy::path::Ambiguity;
use tidegate_policy::promise::Promise;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::secret::Secret;
use tidegate_policy::terms::UsageTerms;
use tidegate_policy::{OriginId, ProofMethod, RequestFacts, RouteId, Rules};

/// Validated configuration of the gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Listeners for clients; at least one, without duplicate addresses.
    pub listen: Vec<Listener>,
    /// Number of threads that process requests; `None` is one per CPU core.
    pub workers: Option<NonZeroUsize>,
    /// Admin listener; `None` if it is off.
    pub admin: Option<Admin>,
    /// Listener for other proxies; `None` if there is none.
    pub forward_auth: Option<ForwardAuth>,
    /// Directory of the ledger and other state.
    pub state_dir: PathBuf,
    /// Storage of quota usage.
    pub ledger: Ledger,
    /// Servers behind the gateway, by [`OriginId`]; at least one.
    pub origins: Vec<Origin>,
    /// Hosts of the site; requests for others are rejected. `None` accepts every host.
    pub hosts: Option<OwnHosts>,
    /// Connection, size and time limits.
    pub limits: Limits,
    /// Text of the configuration file.
    pub text: Secret,
    /// File of the API keys; `None` if they are in the configuration.
    pub api_key_file: Option<PathBuf>,
    /// What clients learn of their limits.
    pub headers: Headers,
    /// HTML files for the gateway's own error responses.
    pub error_pages: Vec<ErrorPage>,
    /// Handling of robots.txt.
    pub robots: Robots,
    /// Crawl policy document; `None` if it is off.
    pub crawl_policy: Option<CrawlPolicy>,
    /// Cache of responses; `None` if nothing is stored.
    pub cache: Option<Cache>,
    /// Access log and log level.
    pub log: Log,
    /// Webhooks to which events are sent.
    pub webhooks: Vec<Webhook>,
    /// Export of traces; `None` if there is none.
    pub traces: Option<Traces>,
    /// What the policy promises for each window of the first quota.
    pub promise: Promise,
    /// Additional operators of crawlers, and changes to built-in ones.
    pub operators: Vec<CrawlerOperator>,
    /// Names of all operators, indexed by `OperatorId`.
    pub operator_names: Vec<String>,
    /// Verification of crawlers.
    pub verify: Verify,
    /// Sessions of browsers; `None` if there are none.
    pub sessions: Option<Sessions>,
    /// Database of autonomous systems.
    pub asn_database: Option<NetworkDatabaseFile>,
    /// Database of countries.
    pub country_database: Option<NetworkDatabaseFile>,
    /// Rules for decisions.
    pub rules: Arc<Rules>,
    /// Redirects, by [`RouteId`]; the last routes without any are left out.
    pub redirects: Vec<Option<Redirect>>,
    /// Changes of the heads of messages, by [`RouteId`]; the last routes without any are left out.
    pub header_rules: Vec<Option<HeaderRules>>,
    /// Maximum times to wait for parts of a response, by [`RouteId`]; the last routes without any are left out.
    pub response_timeouts: Vec<Option<Duration>>,
    /// Files of the address lists, in the order of their names in the rules.
    pub address_lists: Vec<AddressList>,
    /// Range files of the operators.
    pub range_files: Vec<RangeFile>,
    /// Values of keys that the file leaves out and that depend on others.
    pub defaults: Vec<DefaultValue>,
    /// Warnings about valid values, one sentence each: mostly keys without effect.
    pub warnings: Vec<String>,
    /// Locations of the settings.
    pub source_map: SourceMap,
}

/// A key that the file leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultValue {
    /// Path of the section that lacks the key.
    pub(super) section: SettingPath,
    /// The key and its value, as the file would write them.
    pub(super) text: String,
}

/// A database of networks in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDatabaseFile {
    /// The file.
    pub file: PathBuf,
    /// Location of its key.
    pub location: String,
}

/// Listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Address and port.
    pub address: SocketAddr,
    /// TLS; `None` is HTTP without TLS.
    pub tls: Option<Tls>,
    /// True if each connection begins with a header of the PROXY protocol, sent by a trusted proxy.
    pub proxy_protocol: bool,
    /// Redirects all requests to https; excludes `tls`, and requires own hosts.
    pub redirect: Option<HttpsRedirect>,
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Source of the certificates.
    pub certificates: CertificateSource,
    /// Authority of client certificates; `None` if clients are not asked for one.
    pub client_authority: Option<ClientAuthority>,
    /// Max-age of `Strict-Transport-Security`; `None` if the field is not added.
    pub hsts: Option<Duration>,
}

/// Source of the certificates of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files of the administrator, the default certificate first; at least one.
    Files(Vec<CertificateFiles>),
    /// A certificate that the gateway orders and renews.
    Acme(Acme),
}

/// Certificate from an ACME server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// DNS names of the certificate, in lower case; at least one. Wildcards have a `hook`.
    pub domains: Vec<String>,
    /// Command that sets DNS records; `None` if the server asks the gateway.
    pub hook: Option<Hook>,
    /// URL at which the server reaches the operator.
    pub contact: Option<String>,
    /// URL of the directory of the server.
    pub directory: String,
    /// Authorities that sign the certificate of the server, in PEM; `None` are the public ones.
    pub authority: Option<PathBuf>,
    /// Path of the keys.
    pub path: SettingPath,
}

impl Acme {
    /// Returns true if the certificate has the name `host`, in lower case, which may be a wildcard.
    pub fn covers(&self, host: &str) -> bool {
        self.domains.iter().any(|domain| match domain.strip_prefix('*') {
            Some(parent) if domain != host => host.find('.').is_some_and(|dot| host[dot..] == *parent),
            _ => domain == host,
        })
    }
}

/// Command that is run with further arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Path of the program, or its name in `PATH`.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
}

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate and intermediate certificates, in PEM.
    pub certificate: PathBuf,
    /// Private key, in PEM.
    pub key: PathBuf,
    /// OCSP response, in DER.
    pub ocsp: Option<PathBuf>,
    /// Path of the keys.
    pub path: SettingPath,
}

/// Authority of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthority {
    /// Certificates of the authority, in PEM.
    pub file: PathBuf,
    /// True if clients without a certificate are disconnected.
    pub is_required: bool,
    /// Path of the key.
    pub path: SettingPath,
}

/// Redirect of all requests to https.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// Port of the https URLs; `None` is that of the first listener with TLS.
    pub port: Option<u16>,
}

/// Storage of quota usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ledger {
    /// File in the state directory; usage survives restarts.
    File,
    /// Memory; a restart resets the usage.
    Memory,
    /// Redis or Valkey, shared by all instances with the same prefix.
    Redis(Redis),
}

/// Size of the cache of responses. Its rules are part of [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Memory for stored responses, in bytes.
    pub memory: u64,
    /// Bytes of the files in `state_dir/cache`; `None` if responses are stored in memory alone.
    pub disk: Option<u64>,
    /// Surplus units refresh stored responses.
    pub refreshes_surplus: bool,
}

/// An address list in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressList {
    /// Name in rules, logs and metrics.
    pub name: String,
    /// Path of the file.
    pub file: PathBuf,
    /// Location and path of the key: `tidegate.yaml:3:12: address_lists.hosting.file`.
    pub location: String,
}

/// A file with the published addresses of an operator's crawlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Location and path of the key: `tidegate.yaml:3:12: operators.acme.ranges`.
    pub location: String,
}

/// Admin listener.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Address; beyond this machine only with a token.
    pub listen: AdminAddress,
    /// Bearer token that requests must send.
    pub token: Option<Secret>,
    /// Bearer token for requests that change nothing.
    pub read_token: Option<Secret>,
}

/// Listener for other proxies, which ask whether they may forward a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Address, other than those for clients and for the administrator.
    pub listen: SocketAddr,
    /// Time after which the expected cost of an admitted request is charged; zero charges it at once.
    pub settle_after: Duration,
    /// Prefix of the path of requests that ask about themselves: begins with a slash, and does not end with one.
    pub path_prefix: String,
    /// Memory for admitted requests whose cost is not known, in bytes.
    pub memory: u64,
}

/// A Redis or Valkey server shared by several instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// Where the server is.
    pub address: RedisAddress,
    /// TLS to the server and to its Sentinels; `None` for plain text.
    pub tls: Option<RedisTls>,
    /// User name, if it is not the default user.
    pub user: Option<String>,
    /// Password, if the server requires one.
    pub password: Option<Secret>,
    /// Database number.
    pub database: u32,
    /// Prefix of the keys, in the form of a name.
    pub prefix: String,
    /// Secret with which certificates by ACME are encrypted in the server; `None` if none are stored there.
    pub certificate_secret: Option<Secret>,
    /// Behavior if the server is unreachable and the lease is used up.
    pub failure_mode: LedgerFailureMode,
}

/// Place of a Redis server.
///
/// Displayed as in messages, without user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisAddress {
    /// Host (a name, or an address without brackets) and port.
    Tcp(String, u16),
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// The primary of this name, whose address these Sentinels know.
    Sentinel {
        /// Hosts and ports of the Sentinels.
        sentinels: Vec<(String, u16)>,
        /// Name of the primary.
        primary: String,
    },
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        match self {
            Self::Tcp(host, port) => out.write_str(&written(&(host.clone(), *port))),
            Self::Unix(path) => path.display().fmt(out),
            Self::Sentinel { sentinels, primary } => {
                let sentinels: Vec<String> = sentinels.iter().map(written).collect();
                write!(out, "{primary} of Sentinel {}", sentinels.join(", "))
            }
        }
    }
}

/// TLS to a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisTls {
    /// Authorities of the server, in PEM; `None` for the public ones.
    pub ca: Option<PathBuf>,
}

/// Behavior of an instance without connection to the shared ledger, once its lease is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LedgerFailureMode {
    /// Refuses costed requests.
    Refuse,
    /// Uses the fallback units reserved for this instance.
    Fallback,
}

/// An operator of crawlers in the file. `None` keeps the built-in value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerOperator {
    /// Name of the operator.
    pub name: String,
    /// Product tokens in the user agent of its crawlers.
    pub product_tokens: Option<Vec<String>>,
    /// Networks, fetchable URLs of range lists, or files.
    pub ranges: Option<Vec<String>>,
    /// DNS names of its crawlers' addresses.
    pub dns_names: Option<Vec<DnsPattern>>,
    /// Proof methods that cover all of its crawlers.
    pub exhaustive: Option<Vec<ProofMethod>>,
    /// `Signature-Agent` values of its signed requests.
    pub signature_agents: Option<Vec<String>>,
    /// What the operator fetches pages for.
    pub purpose: Option<Purpose>,
}

/// Verification of crawlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Name servers for reverse DNS verification; `None` if it is off.
    pub dns: Option<Dns>,
    /// Interval for fetching published range lists; `None` if it is off.
    pub refresh_interval: Option<Duration>,
    /// Verification of signed requests; `None` if it is off.
    pub signatures: Option<Signatures>,
}

/// Verification of signed requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signatures {
    /// True if keys of agents without a known operator are fetched, too.
    pub fetch_unlisted_keys: bool,
    /// Maximum lifetime of a signature; not zero.
    pub max_lifetime: Duration,
    /// True if refusals of bots without proof ask for a signature.
    pub accept_signature: bool,
}

/// Name servers for verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// Addresses of the name servers; empty for those of the system.
    pub nameservers: Vec<SocketAddr>,
    /// Timeout of a query to one name server; not zero.
    pub timeout: Duration,
}

/// Handling of robots.txt.
#[derive(Clone, Debug, Default)]
pub struct Robots {
    /// Crawl delays by operator, and of unknown bots.
    pub delays: CrawlDelays,
    /// File that replaces the robots.txt of the origin.
    pub override_file: Option<PathBuf>,
    /// Honeypot path: robots.txt disallows it and no page links to it.
    pub honeypot: Option<String>,
    /// What pages may be used for, if robots.txt says so.
    pub terms: UsageTerms,
    /// URL of the license of the site.
    pub license: Option<String>,
}

/// Access log and log level.
#[derive(Clone, Debug)]
pub struct Log {
    /// Access log, one line per request.
    pub access: AccessLog,
    /// Minimum level of log lines.
    pub level: LogLevel,
    /// Names of query parameters whose values are not logged.
    pub redact: Vec<String>,
}

/// Rotation of the access log by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotation {
    /// Maximum size of the file, in bytes.
    pub max_size: u64,
    /// Number of earlier files kept.
    pub keep: u32,
}

/// Destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// No access log.
    Off,
    /// Standard output.
    Stdout,
    /// A file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Rotation by size; `None` if another program rotates it.
        rotation: Option<LogRotation>,
        /// Format of the lines.
        format: AccessLogFormat,
    },
}

/// Format of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// JSON, with all that a replay needs.
    #[default]
    Json,
    /// The combined format of Apache and nginx.
    Combined,
}

/// Level of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Conditions that require action.
    Error,
    /// Degraded service.
    Warn,
    /// Changes of state.
    Info,
    /// Single requests.
    Debug,
    /// All details.
    Trace,
}

impl Settings {
    /// Returns the files of the address lists, in the order of their names in the rules, each with its location in the
    /// configuration.
    pub fn address_list_files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.address_lists.iter().map(|list| (list.file.as_path(), list.location.as_str()))
    }

    /// Returns the origin of `route`.
    #[inline]
    pub fn origin(&self, route: RouteId) -> &Origin {
        &self.origins[self.rules[route].origin.index()]
    }

    /// Returns the servers of all origins, without their scheme, such as `127.0.0.1:3000`.
    pub fn authorities(&self) -> String {
        self.each_origin(Origin::authorities)
    }

    /// Returns the URLs of the servers of all origins.
    pub fn origin_urls(&self) -> String {
        self.each_origin(Origin::urls)
    }

    /// Returns what `text` says of each origin, behind its name where there are several.
    fn each_origin(&self, text: fn(&Origin) -> String) -> String {
        match &self.origins[..] {
            [origin] => text(origin),
            origins => {
                let named: Vec<_> =
                    origins.iter().map(|origin| format!("{} ({})", origin.name, text(origin))).collect();
                named.join(", ")
            }
        }
    }

    /// Returns the names of several origins, by their id; none if there is one.
    pub fn origin_names(&self) -> Vec<&str> {
        let names = self.origins.iter().map(|origin| origin.name.as_str());
        if self.origins.len() > 1 { names.collect() } else { Vec::new() }
    }

    /// Returns the name of an origin where there are several, for logs and metrics.
    #[inline]
    pub fn origin_name(&self, id: OriginId) -> Option<&str> {
        if self.origins.len() > 1 { Some(&self.origins[id.index()].name) } else { None }
    }

    /// Returns the redirect of `route`; `None` if its requests are for the origin.
    #[inline]
    pub fn redirect(&self, route: RouteId) -> Option<&Redirect> {
        self.redirects.get(route.index())?.as_ref()
    }

    /// Returns the changes of heads on `route`; `None` if there are none.
    #[inline]
    pub fn header_rules(&self, route: RouteId) -> Option<&HeaderRules> {
        self.header_rules.get(route.index())?.as_ref()
    }

    /// Returns the rewriting of paths on `route`; `None` if the origin is sent the client's.
    pub fn rewrite(&self, route: RouteId) -> Option<&Rewrite> {
        self.header_rules(route)?.rewrite.as_ref()
    }

    /// Checks that path, body and fields with several readings have one charge and one origin for all, and that all are rewritten
    /// alike.
    /// `resolved` is the path with its dot segments resolved.
    pub fn check_readings(&self, request: &RequestFacts<'_>, resolved: &str) -> Result<(), Ambiguity> {
        let rules = &self.rules;
        if rules.has_ambiguous_costs(request) {
            return Err(Ambiguity::Costs);
        }
        if rules.has_ambiguous_origin(request) {
            return Err(Ambiguity::Origin);
        }
        let route = rules.route(request);
        if request.is_ambiguous() {
            let rewrite = self.rewrite(route);
            if rules.routes_to_origins(request).any(|other| self.rewrite(other) != rewrite) {
                return Err(Ambiguity::Rewrite);
            }
        }
        if request.other_paths.is_empty() {
            return Ok(());
        }
        // Another reading than the normalized path may have led to the route.
        let is_read = || rules[route].path.matches(request.path);
        match self.rewrite(route) {
            Some(rewrite) if !(is_read() && rewrite.is_confined(resolved, rules.path_policy)) => {
                Err(Ambiguity::Rewrite)
            }
            _ => Ok(()),
        }
    }

    /// Returns the maximum time to the head of a response on `route`, and between parts of its body.
    #[inline]
    pub fn response_timeout(&self, route: RouteId) -> Duration {
        self.own_response_timeout(route).unwrap_or_else(|| self.origin(route).response_timeout)
    }

    /// Returns the maximum time between parts of an event stream on `route`.
    pub fn event_stream_timeout(&self, route: RouteId) -> Duration {
        self.own_response_timeout(route).unwrap_or_else(|| self.origin(route).event_stream_timeout)
    }

    /// Returns the `response_timeout` of `route`; `None` if it has that of the origin.
    #[inline]
    pub fn own_response_timeout(&self, route: RouteId) -> Option<Duration> {
        *self.response_timeouts.get(route.index())?
    }

    /// Returns the location and the path of a setting, for messages: `tidegate.yaml:3:12: listen.tls.key`.
    pub fn location_of(&self, path: &SettingPath) -> String {
        format!("{}: {path}", self.source_map.nearest_location(path))
    }

    /// Returns the keys that differ from those of a gateway started with `running`, and that it applies only after a
    /// restart.
    pub fn keys_needing_restart(&self, running: &Settings) -> Vec<&'static str> {
        let admin = |settings: &Settings| {
            settings.admin.as_ref().map(|admin| (admin.listen.clone(), admin.token.clone(), admin.read_token.clone()))
        };
        let forward_auth = |settings: &Settings| settings.forward_auth.as_ref().map(|forward_auth| forward_auth.listen);
        let max_clients = |settings: &Settings| settings.limits.max_tracked_clients;
        let has_disk = |settings: &Settings| settings.cache.is_some_and(|cache| cache.disk.is_some());
        [
            ("listen", running.listen != self.listen),
            ("workers", running.workers != self.workers),
            ("admin", admin(running) != admin(self)),
            ("forward_auth.listen", forward_auth(running) != forward_auth(self)),
            ("state_dir", running.state_dir != self.state_dir),
            ("ledger", running.ledger != self.ledger),
            ("cache.disk", has_disk(running) != has_disk(self)),
            ("operators", running.operators != self.operators),
            ("verify.dns", running.verify.dns != self.verify.dns),
            ("verify.refresh_interval", running.verify.refresh_interval != self.verify.refresh_interval),
            ("log.access", running.log.access != self.log.access),
            ("log.level", running.log.level != self.log.level),
            ("limits.max_tracked_clients", max_clients(running) != max_clients(self)),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect()
    }
}

impl NetworkDatabaseFile {
    /// Returns the file with the location of its key.
    pub fn source(&self) -> (&Path, &str) {
        (&self.file, &self.location)
    }
}

impl Listener {
    /// Returns a listener for HTTP without TLS.
    pub const fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, proxy_protocol: false, redirect: None }
    }

    /// Returns the scheme of its URLs: `https` or `http`.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl fmt::Display for DefaultValue {
    /// Writes the value with its path: `quotas.api.per_client: 5%`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.section.is_root() {
            true => out.write_str(&self.text),
            false => write!(out, "{}.{}", self.section, self.text),
        }
    }
}

stored_as_written!(LedgerFailureMode, LogLevel, NotificationFormat);

impl JsonSchema for LogLevel {
    fn schema_name() -> Cow<'static, str> {
        "Level".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let levels = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
        json_schema!({ "type": "string", "enum": levels.map(Self::name) })
    }
}

impl LogLevel {
    /// Returns the name in YAML and in log filters.
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
