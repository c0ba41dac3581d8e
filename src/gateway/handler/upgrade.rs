//! Upgrades of the protocol (RFC 9110 section 7.8), such as WebSockets: one request, one decision, one charge, one record
//! at the end of the connection.

use super::client_response::prepare_client_response;
use super::request_handler::RequestHandler;
use crate::gateway::request_context::RequestContext;
use crate::gateway::response_body::ResponseBody;
use crate::gateway::tunnel::Tunnel;
use crate::gateway::upstream::{ForwardError, OriginBody, UpstreamResponse};
use http::{Method, Version};
use tidegate_http1::{Malformed, Name, RequestHead, Response, client, list};

/// Protocols to which the gateway does not switch: HTTP would pass it unread (h2c), and TLS is not the origin's.
const REFUSED_PROTOCOLS: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];

/// Returns the protocol to which the client wants to switch. Another upgrade than to one protocol, with GET and without a
/// body, is ignored, as servers may (RFC 9110 section 7.8).
pub(super) fn wanted_protocol(head: &RequestHead, has_body: bool) -> Option<Vec<u8>> {
    let is_upgrade = |option: &[u8]| option.eq_ignore_ascii_case(b"upgrade");
    let wants_upgrade = head.fields.all(Name::Connection).flat_map(list).any(is_upgrade);
    if head.method != Method::GET || has_body || !wants_upgrade || head.version == Version::HTTP_10 {
        return None;
    }
    let mut protocols = head.fields.all(Name::Upgrade).flat_map(list);
    let (Some(protocol), None) = (protocols.next(), protocols.next()) else { return None };
    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
    let is_refused = REFUSED_PROTOCOLS.iter().any(|refused| refused.eq_ignore_ascii_case(name));
    (!is_refused).then(|| protocol.to_vec())
}

impl RequestHandler {
    /// Responds to a request that the origin upgraded. Its end completes the request.
    pub(super) fn respond_upgraded(
        &self,
        mut context: Box<RequestContext>,
        upstream: UpstreamResponse,
    ) -> Response<ResponseBody> {
        let UpstreamResponse { response: Response { status, mut fields, body }, pool_guard, .. } = upstream;
        let protocol = fields.get(Name::Upgrade).unwrap_or_default().to_vec();
        let Some((origin, to_client)) = OriginBody::into_upgraded(body) else {
            let error = ForwardError::OriginClosed { source: client::Error::from(Malformed::SwitchingProtocols) };
            return self.respond_to_origin_failure(context, &error, None);
        };
        // The connection is not one of the pool any more; `limits.max_connections` bounds those of clients.
        drop(pool_guard);
        let limits = &context.current().settings.limits;
        let (idle, end) = (limits.upgrade_idle_timeout, limits.upgrade_timeout);
        if !limits.upgrade_holds_slots {
            context.end_upstream();
        }
        prepare_client_response(&context, status, &mut fields);
        fields.insert(Name::Connection, b"Upgrade");
        fields.insert(Name::Upgrade, &protocol);
        context.begin_tunnel(status);
        let upstream = self.worker.upstream();
        let tunnel = Tunnel::new(origin, to_client, context, upstream.new_deadline(idle), upstream.new_deadline(end));
        Response { status, fields, body: ResponseBody::Tunnel(Some(Box::new(tunnel))) }
    }
}
