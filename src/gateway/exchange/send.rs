//! Sending of a request to the origin, with its permit.

use super::client_connection::ClientConnection;
use super::journal::Journal;
use super::origin_trip::RequestUnits;
use super::scope_feedback::report_to_scopes;
use crate::gateway::cache::CacheFetch;
use crate::gateway::message::header_rules::change_response;
use crate::gateway::message::headers;
use crate::gateway::transport::proxy_protocol::ProxiedClient;
use crate::gateway::upstream::{ForwardError, RequestBody, UpstreamResponse, UpstreamTarget};
use http::{StatusCode, Version};
use std::rc::Rc;
use tidegate_config::settings::HeaderRules;
use tidegate_engine::{SlotGuard, ThrottleRejection};
use tidegate_http1::client::OnInterim;
use tidegate_http1::{Fields, Name, RequestHead};

/// Sends the request, or `own_head` instead of its head, on a connection that names `client`. Returns the response, and the
/// rejection if a scope entered backoff because of it.
pub(in crate::gateway) async fn send(
    own_head: Option<&RequestHead>,
    body: RequestBody,
    journal: &mut Journal,
    slots: Option<SlotGuard>,
    client: Option<ProxiedClient>,
) -> (Result<UpstreamResponse, ForwardError>, Option<ThrottleRejection>) {
    let connection = Rc::clone(&journal.known.connection);
    let (worker, config) = (&connection.worker, Rc::clone(&journal.known.config));
    let route = journal.known.classified.route;
    let response_timeout = config.settings.response_timeout(route);
    let mut target = UpstreamTarget {
        response_timeout,
        ..worker.upstream_target(&config, config.settings.rules[route].origin, client)
    };
    target.requester = (target.origin.http2 && journal.known.fill().is_none()).then(|| journal.known.address_key());
    journal.begin_at_origin(slots);
    let forwarding = Rc::clone(&journal.client.forwarding);
    let on_interim: OnInterim<'_> = &|status, fields| {
        if !forwarding.client_left() {
            send_interim(&connection, status, fields, config.settings.header_rules(route));
        }
    };
    // The client must understand interim responses, and the gateway be able to send them: hyper sends none over HTTP/2.
    let takes_interim = journal.known.request.head.version == Version::HTTP_11 && connection.fill.is_none();
    target.on_interim = takes_interim.then_some(on_interim);
    let RequestUnits::Reserved(permit) = &mut journal.origin.units else { unreachable!("sent and not settled") };
    let head = own_head.unwrap_or(&journal.known.request.head);
    let result = worker.upstream().send(permit, head, body, &target, &forwarding).await;
    let result = match head.fields.contains(Name::Upgrade) {
        true => result.map_err(ForwardError::of_upgrade),
        false => result,
    };
    if result.is_ok() {
        target.servers().outages.record_response();
    }
    let response = result.as_ref().map(|upstream| &upstream.response);
    journal.origin.answer(worker.now(), response.map(|response| response.status).ok());
    let is_for_origin_cache = journal.cache.is_for_origin_cache;
    let backoff = report_to_scopes(&journal.known, &journal.origin, is_for_origin_cache, response);
    (result, backoff)
}

/// Returns the client that a connection to the origin names; `None` without the PROXY protocol, for a request of the
/// gateway itself, and for a fetch whose response may be for other clients, too.
pub(in crate::gateway) fn proxied_client(journal: &Journal) -> Option<ProxiedClient> {
    let (known, fetch) = (&journal.known, journal.cache.fetch.as_deref());
    known.config.settings.origin(known.classified.route).proxy_protocol?;
    let destination = known.connection.listener.address.filter(|_| fetch.is_none_or(CacheFetch::may_name_client))?;
    Some(ProxiedClient { address: known.client_address(), destination })
}

/// Sends the client an interim response of the origin (RFC 9110 section 15.2), with the changes of the route.
pub(in crate::gateway) fn send_interim(
    connection: &ClientConnection,
    status: StatusCode,
    mut fields: Fields,
    rules: Option<&HeaderRules>,
) {
    headers::strip_response(&mut fields);
    if let Some(rules) = rules {
        change_response(&mut fields, &rules.response);
    }
    connection.connection_state.interim().push(status, &fields);
}
