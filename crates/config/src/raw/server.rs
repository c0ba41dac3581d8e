//! Raw sections `admin`, `headers`, `robots`, `log` and `limits`.

use crate::scalars::{AdminSocket, CountLimit, FilePath, Percent, Size, Span};
use crate::serde_forms::{OneOrMany, SecretText, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Listener for the administrator.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Admin {
    /// Address and port, or `unix:/path` of a Unix socket. If it is 0.0.0.0 or `[::]`, the commands connect to loopback. A
    /// Unix socket admits the user and the group of the gateway. Default 127.0.0.1:9090.
    pub listen: Option<AdminSocket>,
    /// Bearer token that requests must send; required beyond loopback. Without a token the listener accepts only
    /// requests whose Host is localhost, a loopback address or the listen address; it refuses requests that a browser
    /// page of another site sends. At least 16 characters. Default none.
    pub token: Option<SecretText>,
    /// Bearer token for requests that change nothing, such as those of Prometheus and `tidegate status`. At least 16
    /// characters; requires token. Default none.
    pub read_token: Option<SecretText>,
}

/// Listener for the administrator, or off.
#[derive(Clone)]
pub(crate) enum AdminListener {
    Off,
    On(Admin),
}

impl From<Admin> for AdminListener {
    fn from(keys: Admin) -> Self {
        Self::On(keys)
    }
}

impl<'de> Deserialize<'de> for AdminListener {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "an admin listener; use off or { listen: 127.0.0.1:9090 }";
        string_or_map::<D, Self, Admin>(deserializer, needs, |word| (word == "off").then_some(Self::Off))
    }
}

impl JsonSchema for AdminListener {
    fn schema_name() -> Cow<'static, str> {
        "AdminListener".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<Admin>();
        json_schema!({ "anyOf": [{ "enum": ["off"] }, keys] })
    }
}

/// Rate limit header fields of responses.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Headers {
    /// `RateLimit` and `RateLimit-Policy` fields as in the IETF draft: draft-11 or off. Default draft-11.
    pub ratelimit: RateLimit,
    /// Older `X-RateLimit` or `RateLimit` fields as well, for the most binding policy: a list of atlassian, github and
    /// draft-03. Default none.
    pub legacy: Vec<Legacy>,
    /// Random share, up to this one, added to each Retry-After. Without it all refused clients would return in the same
    /// second. Default 20%.
    pub retry_after_spread: Option<Percent>,
    /// true: pages of other origins may read refusals and errors of the gateway, such as a 429 with its Retry-After. These get
    /// `Access-Control-Allow-Origin` with the Origin of the request and `Access-Control-Expose-Headers`, but no
    /// `Access-Control-Allow-Credentials`. Without these fields a script sees a network error. Fields that response_headers
    /// of the route sets stay. Default true.
    pub cors: Option<bool>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
pub(crate) enum RateLimit {
    #[default]
    #[serde(rename = "draft-11")]
    Draft11,
    #[serde(rename = "off")]
    Off,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Legacy {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Interval-Seconds`, `-FillRate`, and `Retry-After` on every response.
    Atlassian,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Used`, `-Reset` in seconds since 1970, `-Resource`.
    Github,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now.
    #[serde(rename = "draft-03")]
    Draft03,
}

/// Handling of robots.txt.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Robots {
    /// true: writes each crawl_delay into robots.txt. Default true.
    pub merge_crawl_delay: Option<bool>,
    /// File that replaces the origin's robots.txt on every host. It is read every second. An emptied file takes effect
    /// after a second, if it is still empty, because many editors truncate a file before writing it. It is the response
    /// to GET and HEAD only; requests with other methods are forwarded to the origin. Default none.
    pub override_file: Option<FilePath>,
    /// Path that robots.txt disallows and no page links to: a request for it is a bot signal. The gateway adds the
    /// Disallow line itself. Letters, digits, `/`, `-`, `_` and `.` only, such as /private-area. Link to it from no
    /// page. Default none.
    pub honeypot: Option<String>,
}

/// Access log and log level.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// Access log, one line per request: off, stdout, or { path, format }. `off` disables it. It is written in batches.
    /// Default the file access.log in state_dir.
    pub access: Option<Access>,
    /// Log level on standard error: error, warn, info, debug or trace. What administrators do (target audit) is logged at
    /// every level. Default info.
    pub level: Level,
    /// Names of query parameters whose values the access log shows as [redacted], in any letter case: one, or a list.
    /// This includes the query of the Referer. Replays cannot match routes by these values. Default none.
    pub redact: OneOrMany<String>,
}

/// Handling of paths that origins read in different ways.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Paths {
    #[default]
    Strict,
    Lenient,
    Raw,
}

#[derive(Clone)]
pub(crate) enum Access {
    Off,
    Stdout,
    File(AccessFile),
}

/// Access log in a file.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AccessFile {
    /// File that lines are appended to; it can be reopened with SIGUSR1 or SIGHUP. Required.
    pub path: Option<FilePath>,
    /// Format of the lines: json, which can be replayed. Default json.
    pub format: Format,
    /// Size above which the file is renamed to FILE.1, FILE.1 to FILE.2 and so on, and a new one begun; at least 1MiB.
    /// Default none: another program such as logrotate does it.
    pub max_size: Option<Size>,
    /// Number of earlier files that max_size keeps, at least 1. Default 4.
    pub keep: Option<u32>,
}

impl From<AccessFile> for Access {
    fn from(file: AccessFile) -> Self {
        Self::File(file)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    #[default]
    Json,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl<'de> Deserialize<'de> for Access {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "an access log; use off, stdout or { path: FILE }";
        string_or_map::<D, Self, AccessFile>(deserializer, needs, |word| match word {
            "off" => Some(Self::Off),
            "stdout" => Some(Self::Stdout),
            _ => None,
        })
    }
}

impl JsonSchema for Access {
    fn schema_name() -> Cow<'static, str> {
        "Access".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let file = generator.subschema_for::<AccessFile>();
        json_schema!({ "anyOf": [{ "enum": ["off", "stdout"] }, file] })
    }
}

/// Connection, size and time limits. The defaults suit most sites.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// Maximum number of client connections, at least 1; further ones are closed. Default 10000.
    pub max_connections: Option<u32>,
    /// Maximum number of client connections per address or IPv6 prefix (clients.ipv6_prefix); further ones are closed.
    /// The default does not hold for trusted proxies and loopback addresses, from which many clients arrive. 0 is no
    /// limit. Default 512.
    pub max_connections_per_address: Option<CountLimit>,
    /// Memory for client connections, with their requests and responses in progress; at least 16MiB. Above it, the
    /// connections that occupy most are closed. Checked four times a second. Default a quarter of the memory that the
    /// machine, or the control group of the process, has.
    pub memory: Option<Size>,
    /// Time until the first byte on a new connection, more than 0. Default 10s.
    pub first_byte_timeout: Option<Span>,
    /// Time for the TLS handshake of a new connection, more than 0. Default 5s.
    pub handshake_timeout: Option<Span>,
    /// Time to receive the PROXY protocol header of a new connection, more than 0. Default 5s.
    pub proxy_header_timeout: Option<Span>,
    /// Maximum number of TLS handshakes in progress on one thread, at least 1; further connections are closed. Default
    /// 1000.
    pub max_handshakes: Option<u32>,
    /// Maximum number of TLS handshakes in progress per address or IPv6 prefix; further connections are closed. 0 is no
    /// limit; there is none for trusted proxies. Default 100.
    pub max_handshakes_per_address: Option<CountLimit>,
    /// Time to receive a request head, more than 0. Default 10s.
    pub header_timeout: Option<Span>,
    /// Idle time between two requests of a connection, more than 0. Default 60s.
    pub keep_alive_timeout: Option<Span>,
    /// Longest pause within a request body, more than 0. Default 30s.
    pub request_body_timeout: Option<Span>,
    /// Longest time for which a client does not read its response, more than 0. What the kernel holds for a client, about
    /// 100 KiB, is not seen: one that reads less than that in this time may be disconnected. Default 30s.
    pub response_write_timeout: Option<Span>,
    /// Maximum size of a request head, 8KiB to 1MiB; larger ones receive 431. Default 32KiB.
    pub max_header_size: Option<Size>,
    /// Maximum number of header fields of a request, at least 1; more receive 431. Default 100.
    pub max_headers: Option<u16>,
    /// Maximum number of header fields of a response of the origin; one with more is a failure of the origin, and the client
    /// receives 502. At least 1. A change applies to new connections to the origin. Default 256.
    pub max_response_headers: Option<u16>,
    /// Maximum size of a request body; larger ones receive 413. Default 64MiB.
    pub max_body_size: Option<Size>,
    /// Part of a request body that is received into memory before the request takes slots; the rest is received into an
    /// unnamed file in state_dir. Routes with stream: true receive neither. Default 64KiB.
    pub buffer_body: Option<Size>,
    /// Maximum size of all files with bodies together: request bodies beyond buffer_body, and responses that were received
    /// ahead of slow clients. One client has a quarter of it. Further request bodies receive 503, and further slow clients
    /// occupy their slots. Default 1GiB.
    pub buffer_disk: Option<Size>,
    /// Least average rate per second, after 10 seconds, of a request body, and, beyond its first 128 KiB, of a response for
    /// which the client lets the gateway wait. Slower request bodies receive 408; slower readers are disconnected. 0B is no
    /// limit. Default 500B.
    pub min_rate: Option<Size>,
    /// Number of requests after which a connection is closed gracefully, at least 1. Default 10000.
    pub max_requests_per_connection: Option<u32>,
    /// Maximum number of concurrent requests on one HTTP/2 connection, at least 1. Default 100.
    pub http2_max_concurrent_streams: Option<u32>,
    /// Maximum number of clients whose buckets are kept in memory, at least 1. When they are reached, new clients
    /// share one bucket per class. A change takes effect at the next start. Default 1000000.
    pub max_tracked_clients: Option<u32>,
    /// Maximum number of values of a header or cookie (bucket key) that one address may send within an hour, each as a
    /// client of its own; at least 1. Further values count as the client of the address. Default 256.
    pub max_credentials_per_address: Option<u32>,
    /// Time for requests in flight to finish at shutdown, more than 0. Idle connections stay open for a tenth of it, because
    /// a request may be on its way. Default 10s.
    pub drain_timeout: Option<Span>,
    /// Maximum number of upgraded connections, such as WebSockets, at least 1. Each holds a connection to the origin, beyond
    /// origin.max_connections. Further upgrades receive 503. Default 1024.
    pub max_upgrades: Option<u32>,
    /// Maximum number of upgraded connections per address, IPv6 per clients.ipv6_prefix, at least 1. Further upgrades receive
    /// 503. Default 100.
    pub max_upgrades_per_address: Option<u32>,
    /// Time without a byte in either direction after which an upgraded connection, such as a WebSocket, is closed, more than
    /// 0. Default 10m.
    pub upgrade_idle_timeout: Option<Span>,
    /// Maximum time of an upgraded connection, more than 0. Default 24h.
    pub upgrade_timeout: Option<Span>,
    /// True if an upgraded connection keeps the slots of its request in its scopes; otherwise they are free once the origin
    /// has upgraded it. Default false.
    pub upgrade_holds_slots: bool,
}
