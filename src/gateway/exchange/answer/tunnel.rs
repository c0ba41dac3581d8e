//! Upgrades of the protocol (RFC 9110 section 7.8), such as WebSockets: one request, one decision, one charge, one record
//! at the end of the connection.

use super::head::prepare_client_response;
use super::origin::respond_to_origin_failure;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::message::tunnel::Tunnel;
use crate::gateway::transport::upgrade_slot::UpgradeSlot;
use crate::gateway::transport::websocket;
use crate::gateway::upstream::{ForwardError, OriginBody, UpstreamResponse};
use http::{Method, Version};
use std::time::Duration;
use tidegate_http1::{Fields, Malformed, Name, RequestHead, Response, client, list};

/// Protocols to which the gateway does not switch: HTTP would pass it unread (h2c), and TLS is not the origin's.
const REFUSED_PROTOCOLS: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];

/// Time in which a client takes the end of its upgraded connection.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the protocol to which the client wants to switch. Another upgrade than to one protocol, with GET and without a
/// body, is ignored, as servers may (RFC 9110 section 7.8).
pub(in crate::gateway) fn wanted_protocol(head: &RequestHead, has_body: bool) -> Option<Vec<u8>> {
    if !head.fields.contains(Name::Upgrade) {
        return None;
    }
    let is_upgrade = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    let wants_upgrade = head.fields.all(Name::Connection).flat_map(list).any(is_upgrade);
    if head.method != Method::GET || has_body || !wants_upgrade || head.version == Version::HTTP_10 {
        return None;
    }
    let mut protocols = head.fields.all(Name::Upgrade).flat_map(list);
    let (Some(protocol), None) = (protocols.next(), protocols.next()) else { return None };
    // A protocol with a version, or what one origin reads as a protocol and another does not, is not passed on.
    let is_refused = REFUSED_PROTOCOLS.iter().any(|refused| refused.eq_ignore_ascii_case(protocol));
    (is_token(protocol) && !is_refused).then(|| protocol.to_vec())
}

/// Returns true if the origin switched to `protocol`, and to nothing else.
pub(in crate::gateway) fn is_switch_to(protocol: &[u8], response: &Fields) -> bool {
    let mut protocols = response.all(Name::Upgrade).flat_map(list);
    protocols.next().is_some_and(|switched| switched.eq_ignore_ascii_case(protocol)) && protocols.next().is_none()
}

/// Returns true for a token (RFC 9110 section 5.6.2).
fn is_token(text: &[u8]) -> bool {
    let is_token_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_token_byte)
}

/// Upgrade that a request asks for.
pub(in crate::gateway) struct WantedUpgrade {
    pub(in crate::gateway) protocol: Vec<u8>,
    slot: UpgradeSlot,
}

/// Returns the upgrade that the request asks for; `None` if there is none to pass on. Fails if too many connections are
/// upgraded.
pub(in crate::gateway) fn wanted_upgrade(journal: &Journal) -> Result<Option<WantedUpgrade>, ForwardError> {
    let request = &journal.known.request;
    let Some(protocol) = wanted_protocol(&request.head, request.has_body) else { return Ok(None) };
    let limits = &journal.known.config.settings.limits;
    let slot = UpgradeSlot::try_acquire(&journal.worker().shared, journal.known.address_key(), limits);
    slot.map(|slot| Some(WantedUpgrade { protocol, slot })).ok_or(ForwardError::TooManyUpgrades)
}

/// Responds to a request that the origin upgraded. Its end completes the request.
pub(in crate::gateway) fn respond_upgraded(
    mut journal: Box<Journal>,
    upstream: UpstreamResponse,
    upgrade: Option<WantedUpgrade>,
) -> Response<ResponseBody> {
    let UpstreamResponse { response: Response { status, mut fields, body }, pool_guard, .. } = upstream;
    let is_wanted = upgrade.as_ref().is_some_and(|upgrade| is_switch_to(&upgrade.protocol, &fields));
    // The gateway itself is the client of a WebSocket over HTTP/2, and compares its key.
    let head = &journal.known.request.head;
    let is_answered = head.version != Version::HTTP_2 || websocket::is_accepted(&head.fields, &fields);
    let (Some(WantedUpgrade { slot, protocol }), Some((origin, to_client)), true) =
        (upgrade, OriginBody::into_upgraded(body), is_wanted && is_answered)
    else {
        let error = ForwardError::OriginClosed { source: client::Error::from(Malformed::SwitchingProtocols) };
        return respond_to_origin_failure(journal, &error, None);
    };
    // The connection is not one of the pool any more; `limits.max_connections` bounds those of clients.
    drop(pool_guard);
    let limits = &journal.known.config.settings.limits;
    let (idle, end) = (limits.upgrade_idle_timeout, limits.upgrade_timeout);
    if !limits.upgrade_holds_slots {
        journal.end_at_origin();
    }
    prepare_client_response(&journal, status, &mut fields);
    fields.insert(Name::Connection, b"Upgrade");
    fields.insert(Name::Upgrade, &protocol);
    // It has timeouts of its own.
    journal.client.status = status;
    let upstream = journal.worker().upstream();
    let [idle, end, closing] = [idle, end, CLOSING_TIMEOUT].map(|limit| upstream.new_deadline(limit));
    let [a, b, c, d, ..] = journal.known.connection.new_nonce();
    let websocket_mask = protocol.eq_ignore_ascii_case(b"websocket").then_some([a, b, c, d]);
    let tunnel = Tunnel { websocket_mask, origin, to_client, journal, idle, end, closing, slot };
    Response { status, fields, body: ResponseBody::Tunnel(Some(Box::new(tunnel))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    fn wanted(upgrade: &str) -> Option<Vec<u8>> {
        let mut fields = Fields::new();
        fields.append(Name::Connection, b"keep-alive, Upgrade");
        fields.append(Name::Upgrade, upgrade.as_bytes());
        let head =
            RequestHead { method: Method::GET, target: Uri::from_static("/"), version: Version::HTTP_11, fields };
        wanted_protocol(&head, false)
    }

    #[test]
    fn protocol_is_one_token_that_is_not_refused() {
        for protocol in ["websocket", "WebSocket", "other", "tls-like", "h2c2", "x!"] {
            assert_eq!(wanted(protocol).as_deref(), Some(protocol.as_bytes()));
        }
        for protocol in [
            "h2c",
            "H2C",
            "h2",
            "http",
            "TLS",
            "h2c;x",
            "\"h2c\"",
            "foo/h2c",
            "h2c/1",
            "HTTP/2.0",
            "TLS/1.0",
            "websocket/13",
            "websocket, h2c",
            "h2c websocket",
            "websocket;h2c",
            "websocket h2c",
            "websocket\th2c",
            "(websocket)",
            "web@socket",
            "h2c,",
            "",
            " ",
        ] {
            assert_eq!(wanted(protocol), None, "{protocol:?}");
        }
    }

    #[test]
    fn origin_switches_to_what_was_asked_for_only() {
        for (upgrade, is_switch) in [
            (&["websocket"][..], true),
            (&["WebSocket"], true),
            (&[], false),
            (&[""], false),
            (&["h2c"], false),
            (&["websocket, h2c"], false),
            (&["h2c", "websocket"], false),
            (&["websocket", "websocket"], false),
            (&["websocket/13"], false),
        ] {
            let mut fields = Fields::new();
            upgrade.iter().for_each(|value| fields.append(Name::Upgrade, value.as_bytes()));
            assert_eq!(is_switch_to(b"websocket", &fields), is_switch, "{upgrade:?}");
        }
    }
}
