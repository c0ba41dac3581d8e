//! Raw section `forward_auth`.

use crate::scalars::{Size, Socket, Span};
use crate::section::{any, at_least, section, text};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// First segments of paths that have another meaning on this listener.
const RESERVED_SEGMENTS: [&str; 2] = ["nginx", "settle"];

section! {
    /// Address, time and memory of the listener for other proxies.
    pub(crate) struct ForwardAuthListener {
        /// Address and port, for HTTP/1.1 and HTTP/2 without TLS. Peers are loopback addresses and
        /// clients.trusted_proxies; others get 403. The address of the client is that of clients.address_from, or of
        /// X-Forwarded-For if that is peer. A change takes effect at the next start. Required.
        listen: Option<Socket>;
        /// Time for the proxy to report the cost of an admitted request (POST /settle). After it, the expected cost is
        /// charged and the request is logged. With 0s, both happen at once.
        settle_after: Duration = Duration::from_secs(60) => Span, any;
        /// Prefix of the path of a request that asks about itself, as those of Envoy do (path_prefix): the method, the
        /// fields and the rest of the path are those of the client.
        path_prefix: String = "/envoy".to_owned() => String, text(path_prefix);
        /// Memory for admitted requests whose cost is not known; at least 1MiB. Above it, the oldest ones are charged as
        /// expected. 64MiB is enough for about 9,000 requests.
        memory: u64 = 64 * MIB => Size, at_least(MIB, 64 * MIB);
    }
}

/// Accepts a path that no reader resolves or decodes, and that has no other meaning on the listener.
fn path_prefix(text: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_valid = text.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|segment| !segment.is_empty() && segment.bytes().all(is_plain))
            && !RESERVED_SEGMENTS.contains(&rest.split('/').next().unwrap_or_default())
    });
    (!is_valid).then(|| {
        format!(
            "found {text:?}, needs a path without a slash at its end, other than /nginx and /settle; write letters, \
             digits and -, such as /envoy"
        )
    })
}
