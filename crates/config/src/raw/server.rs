//! Raw sections `admin`, `headers`, `robots` and `log`.

use crate::scalars::{AdminSocket, FilePath, Percent, Size};
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
