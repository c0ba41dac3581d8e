//! The key of a WebSocket handshake, by which a server shows that it understood the upgrade (RFC 6455 section 4).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_http1::Fields;

/// Field with the key of the client.
pub(super) const KEY: &str = "sec-websocket-key";
/// Field with the answer of the server.
pub(super) const ACCEPT: &str = "sec-websocket-accept";
/// Appended to the key for the answer (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the key made of a nonce.
pub(super) fn key(nonce: [u8; 16]) -> String {
    STANDARD.encode(nonce)
}

/// Returns true if `response` answers to the key in `request`.
pub(super) fn is_accepted(request: &Fields, response: &Fields) -> bool {
    let Some(key) = request.get_all_by_text(KEY).next() else { return false };
    let expected = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()));
    response.get_all_by_text(ACCEPT).any(|accept| accept == expected.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_that_of_the_rfc() {
        let fields = |name, value| [(name, value)].into_iter().collect::<Fields>();
        let request = fields(KEY, "dGhlIHNhbXBsZSBub25jZQ==");
        assert!(is_accepted(&request, &fields(ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
        assert!(!is_accepted(&request, &fields(ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOp=")));
        assert!(!is_accepted(&request, &Fields::new()) && !is_accepted(&Fields::new(), &Fields::new()));
    }
}
