//! How the gate is served, what it forwards to, and what it writes: as written.

use crate::config::scalars::{Percent, Size, Socket, Span};
use crate::config::serde_forms::{SecretText, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// The listener for operators.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Admin {
    /// Its address and port. Default 127.0.0.1:9090.
    pub listen: Option<Socket>,
    /// The bearer token that must be shown; required as soon as it listens beyond loopback. Default none.
    pub token: Option<SecretText>,
}

/// The listener for the administrator, unless it is off.
#[derive(Clone)]
pub(in crate::config) enum AdminListener {
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

/// The server behind the gate.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Origin {
    /// `http://host` or `http://host:port`. Must be given, here or as --origin.
    pub url: Option<String>,
    /// How long connecting may take; then the client gets 504. Default 3s.
    pub connect_timeout: Option<Span>,
    /// How long the origin may take to begin its answer, and to go on with it; then the client gets 504. Default 30s.
    pub response_timeout: Option<Span>,
    /// How long an unused connection is kept; keep it below the origin's own keep-alive. Default 4s.
    pub idle_timeout: Option<Span>,
    /// The most connections to the origin. Default 256.
    pub max_connections: Option<u32>,
}

/// What clients are told in header fields.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Headers {
    /// `RateLimit` and `RateLimit-Policy` as the IETF draft has them: draft-11 or off. Default draft-11.
    pub ratelimit: RateLimit,
    /// Older fields beside them, for the most binding policy: atlassian, github, draft-03. Default none.
    pub legacy: Vec<Legacy>,
    /// Up to this share is added to each Retry-After, so that nobody comes back in step. Default 20%.
    pub retry_after_spread: Option<Percent>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
pub(in crate::config) enum RateLimit {
    #[default]
    #[serde(rename = "draft-11")]
    Draft11,
    #[serde(rename = "off")]
    Off,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Legacy {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Interval-Seconds`, `-FillRate`, and `Retry-After` on every answer.
    Atlassian,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Used`, `-Reset` in seconds since 1970, `-Resource`.
    Github,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now.
    #[serde(rename = "draft-03")]
    Draft03,
}

/// What is done with robots.txt.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Robots {
    /// false: each class's crawl_delay stays out of robots.txt. Default true.
    pub merge_crawl_delay: Option<bool>,
    /// A file to serve in place of the origin's robots.txt, on every host; read again when it changes. Default none.
    pub file: Option<String>,
    /// A path that robots.txt forbids to everybody and that nothing links to: who asks for it does not heed robots.txt.
    /// Default none.
    pub trap: Option<String>,
}

/// What is written about requests.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Log {
    /// One line a request: off, stdout, or { path, format }. Default the file access.log in state_dir.
    pub access: Option<Access>,
    /// What the gate says of itself, on stderr: error, warn, info, debug or trace. Default info.
    pub level: Level,
}

#[derive(Clone)]
pub(in crate::config) enum Access {
    Off,
    Stdout,
    File(AccessFile),
}

/// An access log of its own.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct AccessFile {
    /// The file; it is added to, never cut.
    pub path: Option<String>,
    /// Its format; this version knows json, which can be replayed. Default json.
    pub format: Format,
}

impl From<AccessFile> for Access {
    fn from(file: AccessFile) -> Self {
        Self::File(file)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Format {
    #[default]
    Json,
    Combined,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Level {
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

/// How much one client, or all together, may hold on to. The defaults suit most sites.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Limits {
    /// The most connections from clients, all together; further ones are closed. Default 10000.
    pub max_connections: Option<u32>,
    /// The most connections from one address (IPv6: one prefix, as clients are told apart); further ones are closed. 0 is
    /// no bound, which a gate behind a proxy needs. Default 0.
    pub max_connections_per_address: Option<u32>,
    /// How long a new connection may stay silent. Default 10s.
    pub first_byte_timeout: Option<Span>,
    /// How long the head of a request may take to arrive. Default 10s.
    pub head_timeout: Option<Span>,
    /// How long a connection is kept between requests. Default 60s.
    pub keep_alive_timeout: Option<Span>,
    /// The longest pause within a request's body. Default 30s.
    pub request_body_timeout: Option<Span>,
    /// How long a client may stop reading its answer. Default 30s.
    pub response_write_timeout: Option<Span>,
    /// The largest head of a request; larger ones get 431. Default 32KiB.
    pub max_head_size: Option<Size>,
    /// The most header fields in a request; more get 431. Default 100.
    pub max_headers: Option<u16>,
    /// The largest body of a request; larger ones get 413. Default 64MiB.
    pub max_body_size: Option<Size>,
    /// After so many requests a connection is closed in good order. Default 10000.
    pub requests_per_connection: Option<u32>,
    /// The most requests at once over one HTTP/2 connection. Default 100.
    pub http2_streams: Option<u32>,
    /// The most clients whose buckets are remembered; beyond it the idle are forgotten first. Default 1000000.
    pub max_clients: Option<u32>,
    /// How long requests under way may take to end when the gate is told to stop. Default 10s.
    pub drain_timeout: Option<Span>,
}
