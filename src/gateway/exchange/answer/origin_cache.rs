//! The origin's own cache, asked in place of a refusal.

use crate::gateway::cache::CacheFetch;
use crate::gateway::exchange::client_connection::RequestHandler;
use crate::gateway::exchange::cost;
use crate::gateway::exchange::forward::changed_head;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::shared_count::CountGuard;
use crate::gateway::upstream::{RequestBody, UpstreamResponse};
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

impl RequestHandler {
    /// Returns the request of a client that was refused for the origin's cache, if few others are in flight, and slots are
    /// free.
    pub(in crate::gateway) fn origin_cache_request(
        &self,
        context: &RequestContext,
        fetch: Box<CacheFetch>,
    ) -> Option<OriginCacheRequest> {
        let in_flight = &self.worker.shared().origin_cache_requests;
        let count = in_flight.try_add(context.current().max_origin_cache_requests)?;
        let slots = self.acquire_free_slots(context)?;
        Some(OriginCacheRequest { fetch, slots, count })
    }

    /// Responds with what the origin's own cache has for a refused request (RFC 9111 section 5.2.1.7), or refuses it.
    pub(in crate::gateway) async fn respond_from_origin_cache(
        self: Rc<Self>,
        mut context: Box<RequestContext>,
        request: OriginCacheRequest,
    ) -> Response<ResponseBody> {
        let OriginCacheRequest { fetch, slots, count: _count } = request;
        let current = Rc::clone(context.current());
        context.ask_origin_cache(fetch);
        self.prepare_upstream_request(&mut context);
        if let Some(rules) = self.fetch_rules(&current, context.evaluation().route) {
            context.prepare_fetch(rules, self.worker.now());
        }
        let (_, _, head) = context.upstream_parts();
        head.fields.insert(Name::CacheControl, b"only-if-cached");
        context.resolve_target();
        let head = changed_head(&context);
        let client = self.proxied_client(&context);
        let sent = self.send_upstream(head.as_deref(), RequestBody::Empty, &mut context, slots, client);
        let (result, _) = sent.await;
        let fetch = context.take_fetch();
        let upstream = match result {
            Ok(upstream) if !is_failure(&upstream) => upstream,
            Ok(_) | Err(_) => {
                context.end_without_origin_cache();
                return self.refuse(context);
            }
        };
        context.settle(|_, _, expected| expected);
        let fields = &upstream.response.fields;
        context.charge_unexpected_costs(upstream.response.status, fields);
        if !is_from_cache(fields) || context.has_charges() {
            if !context.has_charges() {
                context.charge_as_unexpected();
            }
            // The redirect of a server in front of the cache says nothing about the cache.
            if !upstream.response.status.is_redirection() {
                let route = context.evaluation().route;
                current.distrust_origin_cache(route, self.worker.now());
                warn!(
                    "origin.only_if_cached: the origin answered a request for its cache on route {} with a response that has \
                     no Age and no hit in Cache-Status, or a cost: charging it, and refusing such requests there for an hour",
                    current.settings.rules[route].name
                );
            }
        }
        match fetch {
            Some(fetch) => self.respond_to_fetch(context, upstream, fetch),
            None => self.stream_response(context, upstream, bytes::Bytes::new(), None),
        }
    }
}

/// Returns true for a response that says that the cache has none, or that is no response to the request.
fn is_failure(upstream: &UpstreamResponse) -> bool {
    upstream.response.status.is_client_error() || upstream.response.status.is_server_error()
}

fn is_from_cache(fields: &Fields) -> bool {
    cost::was_cache_hit(fields) || fields.contains(Name::Age)
}
