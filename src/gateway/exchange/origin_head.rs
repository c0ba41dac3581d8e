//! The head of a request for the origin.

use super::answer::compress::restore_validators;
use super::client_connection::ClientConnection;
use super::journal::Journal;
use super::known::Known;
use crate::gateway::cache::FetchRules;
use crate::gateway::message::header_rules::change_request;
use crate::gateway::message::headers;
use crate::gateway::message::target;
use http::{Uri, Version};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::IpAddr;
use tidegate_config::settings::{HeaderRules, Rewrite};
use tidegate_engine::Classified;
use tidegate_http1::{Fields, Name, RequestHead};
use tidegate_policy::identity::{ClientAddress, ProxyTrust};

/// Prepares the head for the origin: removes connection-specific fields and adds the gateway's own.
pub(in crate::gateway) fn prepare_head(known: &mut Known) {
    let Known { connection, config, request, client, classified: Classified { classification, .. }, .. } = known;
    let (rules, shared, head) = (&config.settings.rules, connection.worker.shared(), &mut request.head);
    let host: SmallVec<[u8; 64]> = SmallVec::from_slice(target::host(head));
    let fields = &mut head.fields;
    headers::strip_hop_by_hop(fields);
    // An origin may merge trailers into the head, which would then be one of another route or customer.
    headers::retain_trailers(fields, |name| !rules.read_header(name));
    // Without it, an origin need send no trailers (RFC 9110 section 6.5.1).
    if config.has_cost_trailers && !fields.contains(Name::Te) {
        fields.append(Name::Te, b"trailers");
    }
    restore_validators(rules, fields);
    headers::join_cookies(fields);
    let via = match head.version {
        Version::HTTP_2 => &shared.via.http2,
        _ => &shared.via.http1,
    };
    if head.target.authority().is_some() || !fields.contains(Name::Host) {
        fields.insert(Name::Host, &host);
    }
    write_forwarding(fields, connection, &rules.trust, &client.address, &host);
    fields.append(Name::Via, via.as_bytes());
    fields.append(Name::Class, rules[classification.class].name.as_bytes());
    if let Some(operator) = classification.operator {
        fields.append(Name::Operator, shared.operators.name(operator).as_bytes());
    }
}

/// Returns the fields of the request by which the cache selects a response: those that the origin is sent of the client's way
/// to the gateway, not those that the client claims.
pub(in crate::gateway) fn selecting_fields<'a>(known: &'a Known, rules: FetchRules<'_>) -> Cow<'a, Fields> {
    let Known { connection, request, client, .. } = known;
    let (fields, trust) = (&request.head.fields, &known.rules().trust);
    // Responses of the URL may name the address header of a vendor in `Vary`.
    let is_claimed = |name| !connection.is_trusted(trust) && fields.get_all_by_text(name).next().is_some();
    if !rules.is_keyed_by_forwarding() && !rules.address_header.is_some_and(is_claimed) {
        return Cow::Borrowed(fields);
    }
    let mut fields = fields.clone();
    write_forwarding(&mut fields, connection, trust, &client.address, target::host(&request.head));
    Cow::Owned(fields)
}

/// Writes the client's way to the gateway: its address and proxies, the scheme and the host. Removes what it could forge of
/// them, and copies of the gateway's own fields.
fn write_forwarding(
    fields: &mut Fields,
    connection: &ClientConnection,
    trust: &ProxyTrust,
    address: &ClientAddress,
    host: &[u8],
) {
    headers::strip_untrusted(fields, &trust.source, connection.is_trusted(trust));
    write_client_address(fields, connection, address);
    if !fields.contains(Name::ForwardedProto) {
        fields.append(Name::ForwardedProto, if connection.listener.tls.is_some() { b"https" } else { b"http" });
    }
    if !fields.contains(Name::ForwardedHost) {
        fields.append(Name::ForwardedHost, host);
    }
}

/// Rewrites the request for the origin, if it is a fetch for the cache.
pub(in crate::gateway) fn prepare_fetch(journal: &mut Journal) {
    let Known { connection, config, request, classified, .. } = &mut *journal.known;
    if let Some(rules) = FetchRules::of_route(&config.settings, classified.route) {
        journal.cache.prepare(request, rules, connection.worker.now());
    }
}

/// Returns the head for the origin with the changes of the route; `None` if there are none. The request keeps the head without
/// them, for the log and the cache: what is the same for all requests of a route selects no response.
pub(in crate::gateway) fn changed_head(known: &Known) -> Option<Box<RequestHead>> {
    let HeaderRules { rewrite, request: changes, .. } = known.header_rules()?;
    if changes.is_empty() && rewrite.is_none() {
        return None;
    }
    let mut head = Box::new(known.request.head.clone());
    change_request(&mut head.fields, changes);
    if let Some(rewrite) = rewrite {
        rewrite_target(&mut head.target, rewrite, &known.request.resolved_path());
    }
    Some(head)
}

/// Writes the path that the origin is sent in place of `path`. `OPTIONS *` has none.
fn rewrite_target(target: &mut Uri, rewrite: &Rewrite, path: &str) {
    if path.starts_with('/') {
        // The target alone is valid: the origin is never sent the path of the client.
        let rewritten = target::with_path(target, &rewrite.path(path));
        *target = rewritten.map_or_else(|_| rewrite.target.parse().unwrap_or_default(), |rewritten| *rewritten);
    }
}

/// Writes the address of the client, and of the proxies that it came by.
fn write_client_address(fields: &mut Fields, connection: &ClientConnection, address: &ClientAddress) {
    let ClientConnection { peer, peer_text, .. } = connection;
    fields.insert_with(Name::ForwardedFor, |text| match address.client == *peer && address.hops.is_empty() {
        true => text.write_str(peer_text),
        false => write_forwarded_for(text, address, *peer),
    });
}

/// Writes the client, the trusted hops and the peer.
fn write_forwarded_for(text: &mut impl Write, address: &ClientAddress, peer: IpAddr) -> fmt::Result {
    write!(text, "{}", address.client)?;
    address.hops.iter().chain([&peer]).try_for_each(|hop| write!(text, ", {hop}"))
}
