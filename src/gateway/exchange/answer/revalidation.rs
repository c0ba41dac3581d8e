//! Answers with a stale response that is validated meanwhile.

use super::copy::{copy_response, copy_status};
use crate::gateway::cache::{CacheFetch, StoredResponse};
use crate::gateway::exchange::cache_trip::CopyReason;
use crate::gateway::exchange::forward::forward;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::throttle::acquire_slots;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::upstream::RequestBody;
use std::rc::Rc;
use tidegate_http_cache::CacheResult;
use tidegate_http1::Response;
use tidegate_policy::time::ceil_seconds;

/// Responds with a stale response, and validates it on behalf of all without letting the client wait (RFC 5861
/// section 3). The request pays for the validation.
pub(in crate::gateway) fn respond_while_revalidating(
    mut journal: Box<Journal>,
    copy: &StoredResponse,
    fetch: Box<CacheFetch>,
) -> Response<ResponseBody> {
    let now = journal.worker().now();
    let (status, fields, mut body) = copy_response(&journal, copy, copy_status(copy, CopyReason::Reusable, now), now);
    let length = body.len();
    let body = match body.take_small() {
        Some(bytes) => ResponseBody::full(bytes),
        None => ResponseBody::stored_of_completed(body, &journal),
    };
    journal.cache.result = Some(CacheResult::Stale);
    journal.begin_response(status);
    journal.client.add_bytes(length);
    journal.client.disconnect(false);
    journal.cache.begin_fetch(fetch);
    let worker = Rc::clone(journal.worker());
    worker.run_detached(revalidate(journal));
    Response { status, fields, body }
}

/// Validates a stored response in the background.
pub(in crate::gateway) async fn revalidate(mut journal: Box<Journal>) {
    match acquire_slots(&mut journal).await {
        // Dropping the response stores the rest of its body.
        Ok(slots) => drop(forward(RequestBody::Empty, journal, slots).await),
        Err(rejection) => {
            // A client has its response; the gateway itself repeats its request later.
            if journal.known.fill().is_some() {
                journal.client.retry_after = Some(ceil_seconds(rejection.retry_after).max(1));
            }
            journal.origin.settle_unknown();
            journal.finish();
        }
    }
}
