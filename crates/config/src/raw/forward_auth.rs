//! Raw section `forward_auth`.

use crate::scalars::{Size, Socket, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// Address, time and memory of the listener for other proxies.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ForwardAuthListener {
    /// Address and port, for HTTP/1.1 and HTTP/2 without TLS. Peers are loopback addresses and clients.trusted_proxies;
    /// others get 403. The address of the client is that of clients.address_from, or of X-Forwarded-For if that is peer.
    /// A change takes effect at the next start. Required.
    pub listen: Option<Socket>,
    /// Time for the proxy to report the cost of an admitted request (POST /settle). After it, the expected cost is charged
    /// and the request is logged. With 0s, both happen at once. Default 60s.
    pub settle_after: Option<Span>,
    /// Prefix of the path of a request that asks about itself, as those of Envoy do (path_prefix): the method, the fields
    /// and the rest of the path are those of the client. Default /envoy.
    pub path_prefix: Option<String>,
    /// Memory for admitted requests whose cost is not known; at least 1MiB. Above it, the oldest ones are charged as
    /// expected. Default 64MiB, enough for about 9,000 requests.
    pub memory: Option<Size>,
}
