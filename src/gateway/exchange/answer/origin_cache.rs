//! The origin's own cache, asked in place of a refusal.

use super::fetch::respond_to_fetch;
use super::origin::stream_response;
use super::refusal::refuse;
use crate::gateway::cache::CacheFetch;
use crate::gateway::exchange::charges::{charge_as_unexpected, charge_unexpected_costs};
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::origin_head::{changed_head, prepare_fetch, prepare_head};
use crate::gateway::exchange::origin_trip::{OriginStage, RequestUnits};
use crate::gateway::exchange::send::{proxied_client, send};
use crate::gateway::exchange::throttle::acquire_free_slots;
use crate::gateway::message::cost;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::shared_count::CountGuard;
use crate::gateway::upstream::RequestBody;
use bytes::Bytes;
use http::StatusCode;
use std::rc::Rc;
use tidegate_engine::SlotGuard;
use tidegate_http1::{Fields, Name, Response};
use tracing::warn;

/// A refused request that may ask the origin's own cache, with its slots.
pub(in crate::gateway) struct OriginCacheRequest {
    fetch: Box<CacheFetch>,
    slots: Option<SlotGuard>,
    /// Its count among the few in flight.
    count: CountGuard,
}

/// Returns the request of a client that was refused for the origin's cache, if few others are in flight, and slots are
/// free.
pub(in crate::gateway) fn origin_cache_request(
    journal: &Journal,
    fetch: Box<CacheFetch>,
) -> Option<OriginCacheRequest> {
    let in_flight = &journal.worker().shared().origin_cache_requests;
    let count = in_flight.try_add(journal.known.config.max_origin_cache_requests)?;
    let slots = acquire_free_slots(journal)?;
    Some(OriginCacheRequest { fetch, slots, count })
}

/// Responds with what the origin's own cache has for a refused request (RFC 9111 section 5.2.1.7), or refuses it.
pub(in crate::gateway) async fn respond_from_origin_cache(
    mut journal: Box<Journal>,
    request: OriginCacheRequest,
) -> Response<ResponseBody> {
    let OriginCacheRequest { fetch, slots, count: _count } = request;
    let config = Rc::clone(&journal.known.config);
    let permit = config.admission.origin_cache_permit(journal.known.classified.classification.class);
    journal.origin.units = RequestUnits::Reserved(permit);
    journal.cache.is_for_origin_cache = true;
    journal.cache.begin_fetch(fetch);
    prepare_head(&mut journal.known);
    prepare_fetch(&mut journal);
    journal.known.request.head.fields.insert(Name::CacheControl, b"only-if-cached");
    journal.known.request.resolve_target();
    let (head, client) = (changed_head(&journal.known), proxied_client(&journal));
    let (result, _) = send(head.as_deref(), RequestBody::Empty, &mut journal, slots, client).await;
    let fetch = journal.cache.fetch.take();
    let upstream = match result {
        Ok(upstream) if !is_error(upstream.response.status) => upstream,
        Ok(_) | Err(_) => {
            // Nothing counts as sent.
            journal.origin.settle_unknown();
            journal.end_at_origin();
            journal.origin.stage = OriginStage::Unsent;
            return refuse(journal);
        }
    };
    journal.origin.settle(|_, expected| expected);
    let fields = &upstream.response.fields;
    charge_unexpected_costs(&journal.known, &mut journal.origin, upstream.response.status, fields);
    if !is_from_cache(fields) || journal.origin.has_charges() {
        if !journal.origin.has_charges() {
            charge_as_unexpected(&journal.known, &mut journal.origin, &journal.quota_usage);
        }
        // The redirect of a server in front of the cache says nothing about the cache.
        if !upstream.response.status.is_redirection() {
            let route = journal.known.classified.route;
            config.distrust_origin_cache(route, journal.worker().now());
            warn!(
                "{}.only_if_cached: the origin answered a request for its cache on route {} with a response that has \
                 no Age and no hit in Cache-Status, or a cost: charging it, and refusing such requests there for an hour",
                config.settings.origin(route).path,
                config.settings.rules[route].name
            );
        }
    }
    match fetch {
        Some(fetch) => respond_to_fetch(journal, upstream, fetch),
        None => stream_response(journal, upstream, Bytes::new(), None),
    }
}

/// Returns true for the status of a cache that has no response, and for other errors.
fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn is_from_cache(fields: &Fields) -> bool {
    cost::was_cache_hit(fields) || fields.contains(Name::Age)
}
