//! Raw section `origin`.

use crate::scalars::{FilePath, Span};
use crate::section::{any, at_least_a_second, positive, section, text};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

section! {
    /// Servers behind the gateway.
    pub(crate) struct Origin {
        /// URL of the origin: `http://host:port`, `https://host:port` or `unix:/path`, without a path of a page.
        /// Required, here, as `urls` or as --origin.
        url: Option<String>;
        /// URLs of several servers with the same pages, in place of `url`. A request is sent to the one that has the
        /// fewest in flight. Default none.
        urls: Option<Vec<String>>;
        /// PEM file with the certificates of the authorities that may sign those of the origin; a certificate that the
        /// origin has signed itself stands for itself. This path, and those below, start at the directory of this file.
        /// They are read at a start and at a reload. Default those of public authorities (Mozilla's list, compiled in).
        ca: Option<FilePath>;
        /// Name that the certificates of the origin must have, and that is sent as SNI. Default the host of the URL.
        server_name: Option<String>;
        /// PEM file of the certificate that the gateway shows to the origin, with its chain. Requires `key`. Default
        /// none.
        certificate: Option<FilePath>;
        /// PEM file of the key of `certificate`. Default none.
        key: Option<FilePath>;
        /// False accepts any certificate of the origin: who can redirect the connection then reads and changes all
        /// pages.
        verify: bool = true => bool, any;
        /// True sends requests over HTTP/2, many at once on one connection; required for gRPC. A server with `https://`
        /// that does not choose HTTP/2 (ALPN) is sent HTTP/1.1; one without must accept HTTP/2 at once (h2c with prior
        /// knowledge). Upgrades, such as WebSockets, remain HTTP/1.1.
        http2: bool = false => bool, any;
        /// v1 or v2: each connection begins with a header of the PROXY protocol, which names the address of the client,
        /// with port 0. Only requests of the same address then share a connection. Excludes http2. Default none.
        proxy_protocol: Option<ProxyProtocol>;
        /// When one server of several is sent no requests.
        health: Health;
        /// Maximum time to connect, with the TLS handshake, more than 0; then the client receives 504.
        connect_timeout: Duration = Duration::from_secs(3) => Span, positive;
        /// Maximum time to the response head, and between parts of the body, more than 0; then the client receives 504,
        /// or the end of the connection if a part was sent. Also the longest time in which the origin takes no part of
        /// a request body. A route can have its own. Between parts of an event stream (`text/event-stream`) the default
        /// is 5m.
        response_timeout: Duration = Duration::from_secs(30) => Span, positive;
        /// Time until an unused connection is closed, more than 0. Keep it below the origin's own keep-alive (Node.js:
        /// 5 s).
        idle_timeout: Duration = Duration::from_secs(4) => Span, positive;
        /// Maximum number of connections to the origin, at least 1. Each worker has its part of them, and at least one: fewer
        /// than `workers` are as many as `workers`.
        max_connections: usize = 256 => u32, positive;
        /// True if the origin stops its work when a connection closes. A request whose client left is then aborted at
        /// once; otherwise it keeps its slots until the origin has responded.
        aborts_on_disconnect: bool = false => bool, any;
        /// True if the origin has a cache that honors `Cache-Control: only-if-cached` (RFC 9111 section 5.2.1.7), and
        /// says in `Age` or `Cache-Status` that a response is from it. A request that the rules refuse, and for which
        /// the gateway has no stored response, then asks that cache, which costs nothing; its 504 means that it has
        /// none.
        only_if_cached: bool = false => bool, any;
    }
}

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProxyProtocol {
    /// Version 1: text.
    V1,
    /// Version 2: binary.
    V2,
}

section! {
    /// Health of the servers of an origin with several. If none is healthy, all are sent requests.
    pub(crate) struct Health {
        /// Number of requests in a row without a response (refused, closed, timed out), or of failed checks, after
        /// which a server is ejected, at least 1.
        max_failures: u32 = 3 => u32, positive;
        /// Time until one request tries an ejected server again, more than 0. Its response ends the ejection.
        eject_for: Duration = Duration::from_secs(10) => Span, positive;
        /// Requests of the gateway itself, beside those of clients. They cost no units here; name a path that costs
        /// none at the origin. Default none.
        check: Option<Check>;
    }
}

section! {
    /// Active check: a GET request to each server. Any status below 400 is healthy.
    pub(crate) struct Check {
        /// Path of the request, such as /healthz. Required.
        path: Option<String> = None => String, text(path_and_query);
        /// Time between two checks, at least 1s.
        interval: Duration = Duration::from_secs(10) => Span, at_least_a_second;
        /// Maximum time of a check, more than 0.
        timeout: Duration = Duration::from_secs(2) => Span, positive;
    }
}

fn path_and_query(path: &str) -> Option<String> {
    let is_valid = path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
    (!is_valid).then(|| format!("found {path:?}; write a path such as /healthz"))
}
