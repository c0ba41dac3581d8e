//! Raw section `origin`.

use crate::scalars::{FilePath, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// Servers behind the gateway.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Origin {
    /// URL of the origin: `http://host:port`, `https://host:port` or `unix:/path`, without a path of a page. Required,
    /// here, as `urls` or as --origin.
    pub url: Option<String>,
    /// URLs of several servers with the same pages, in place of `url`. A request is sent to the one that has the fewest
    /// in flight. Default none.
    pub urls: Option<Vec<String>>,
    /// PEM file with the certificates of the authorities that may sign those of the origin; a certificate that the origin has
    /// signed itself stands for itself. This path, and those below, start at the directory of this file. They are read at a
    /// start and at a reload. Default those of public authorities (Mozilla's list, compiled in).
    pub ca: Option<FilePath>,
    /// Name that the certificates of the origin must have, and that is sent as SNI. Default the host of the URL.
    pub server_name: Option<String>,
    /// PEM file of the certificate that the gateway shows to the origin, with its chain. Requires `key`. Default none.
    pub certificate: Option<FilePath>,
    /// PEM file of the key of `certificate`. Default none.
    pub key: Option<FilePath>,
    /// False accepts any certificate of the origin: who can redirect the connection then reads and changes all pages.
    /// Default true.
    pub verify: Option<bool>,
    /// True sends requests over HTTP/2, many at once on one connection; required for gRPC. A server with `https://` that
    /// does not choose HTTP/2 (ALPN) is sent HTTP/1.1; one without must accept HTTP/2 at once (h2c with prior knowledge).
    /// Upgrades, such as WebSockets, remain HTTP/1.1. Default false.
    pub http2: bool,
    /// v1 or v2: each connection begins with a header of the PROXY protocol, which names the address of the client, with
    /// port 0. Only requests of the same address then share a connection. Excludes http2. Default none.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// When one server of several is sent no requests.
    pub health: Health,
    /// Maximum time to connect, with the TLS handshake, more than 0; then the client receives 504. Default 3s.
    pub connect_timeout: Option<Span>,
    /// Maximum time to the response head, and between parts of the body, more than 0; then the client receives 504, or the
    /// end of the connection if a part was sent. Also the longest time in which the origin takes no part of a request body.
    /// A route can have its own. Default 30s, and 5m between parts of an event stream (`text/event-stream`).
    pub response_timeout: Option<Span>,
    /// Time until an unused connection is closed, more than 0. Keep it below the origin's own keep-alive (Node.js: 5
    /// s). Default 4s.
    pub idle_timeout: Option<Span>,
    /// Maximum number of connections to the origin, at least 1. Default 256.
    pub max_connections: Option<u32>,
    /// True if the origin stops its work when a connection closes. A request whose client left is then aborted at once;
    /// otherwise it keeps its slots until the origin has responded. Default false.
    pub aborts_on_disconnect: bool,
    /// True if the origin has a cache that honors `Cache-Control: only-if-cached` (RFC 9111 section 5.2.1.7), and says in
    /// `Age` or `Cache-Status` that a response is from it. A request that the rules refuse, and for which the gateway has
    /// no stored response, then asks that cache, which costs nothing; its 504 means that it has none. Default false.
    pub only_if_cached: bool,
}

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProxyProtocol {
    /// Version 1: text.
    V1,
    /// Version 2: binary.
    V2,
}

/// Health of the servers of an origin with several. If none is healthy, all are sent requests.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Health {
    /// Number of requests in a row without a response (refused, closed, timed out), or of failed checks, after which a
    /// server is ejected, at least 1. Default 3.
    pub max_failures: Option<u32>,
    /// Time until one request tries an ejected server again, more than 0. Its response ends the ejection. Default 10s.
    pub eject_for: Option<Span>,
    /// Requests of the gateway itself, beside those of clients. They cost no units here; name a path that costs none at
    /// the origin. Default none.
    pub check: Option<Check>,
}

/// Active check: a GET request to each server. Any status below 400 is healthy.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    /// Path of the request, such as /healthz. Required.
    pub path: String,
    /// Time between two checks, at least 1s. Default 10s.
    #[serde(default)]
    pub interval: Option<Span>,
    /// Maximum time of a check, more than 0. Default 2s.
    #[serde(default)]
    pub timeout: Option<Span>,
}
