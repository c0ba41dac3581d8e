//! The origin's own cache, asked in place of a refusal.

use super::request_handler::RequestHandler;
use crate::gateway::cache::CacheFetch;
use crate::gateway::cost;
use crate::gateway::request_context::RequestContext;
use crate::gateway::response_body::ResponseBody;
use crate::gateway::upstream::{RequestBody, UpstreamResponse};
use std::rc::Rc;
use tidegate_engine::AcquireOutcome;
use tidegate_http1::{Fields, Name, Response};
use tracing::warn;

impl RequestHandler {
    /// Responds with what the origin's own cache has for a refused request (RFC 9111 section 5.2.1.7), or refuses it. Takes
    /// only free slots.
    pub(super) async fn respond_from_origin_cache(
        self: Rc<Self>,
        mut context: Box<RequestContext>,
        fetch: Box<CacheFetch>,
    ) -> Response<ResponseBody> {
        let AcquireOutcome::Acquired(slots) = self.acquire_slots(&context) else { return self.refuse(context) };
        let current = Rc::clone(context.current());
        context.ask_origin_cache(fetch);
        self.prepare_upstream_request(&mut context);
        if let Some(rules) = self.fetch_rules(&current, context.evaluation().route) {
            context.prepare_fetch(rules, self.worker.now());
        }
        let (_, _, head) = context.upstream_parts();
        head.fields.insert(Name::CacheControl, b"only-if-cached");
        context.resolve_target();
        let (result, _) = self.send_upstream(None, RequestBody::Empty, &mut context, slots).await;
        let fetch = context.take_fetch();
        let upstream = match result {
            Ok(upstream) if !is_failure(&upstream) => upstream,
            Ok(_) | Err(_) => {
                context.end_without_origin_cache();
                return self.refuse(context);
            }
        };
        context.settle(|_, expected| expected);
        let fields = &upstream.response.fields;
        context.charge_unexpected_costs(fields);
        if !is_from_cache(fields) || context.has_charges() {
            if !context.has_charges() {
                context.charge_as_unexpected();
            }
            if current.distrust_origin_cache() {
                warn!(
                    "origin.only_if_cached: the origin answered a request for its cache with a response that has no Age and no \
                     hit in Cache-Status, or a cost: charging it, and refusing such requests until the next reload"
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
