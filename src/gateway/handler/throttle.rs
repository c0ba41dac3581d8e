//! Slots of a request in its throttled scopes.

use super::request_handler::RequestHandler;
use crate::gateway::connection_timeouts::TICK;
use crate::gateway::request_context::RequestContext;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tidegate_engine::{AcquireOutcome, QueuePoll, QueuedRequest, SlotGuard, ThrottleRejection};
use tidegate_policy::throttle::overload::RequestSource;
use tidegate_policy::throttle::partition::{self, PartitionInput};
use tokio::time::sleep;

impl RequestHandler {
    /// Acquires a slot in each scope of the route, or queues the request.
    pub(super) fn acquire_slots(&self, context: &RequestContext) -> AcquireOutcome {
        let (current, request, evaluation) = (context.current(), context.client_request(), context.evaluation());
        if !current.admission.is_throttled(evaluation.route) {
            return AcquireOutcome::Acquired(None);
        }
        let fields = &request.head.fields;
        let rules = &current.settings.rules;
        let source = RequestSource::new(evaluation.key, context.address_key(), evaluation.route);
        let input = PartitionInput {
            route: &rules[evaluation.route].name,
            request: request.facts(),
            header: &|name| partition::single_value(fields.get_all_by_text(name.as_str())),
        };
        current.admission.acquire_slots(
            source,
            evaluation.classification.class,
            &input,
            context.random(),
            self.worker.monotonic_now(),
        )
    }

    /// Waits until the queued request is granted its slots or rejected.
    pub(super) async fn wait_for_slot(&self, mut queued: QueuedRequest) -> Result<SlotGuard, ThrottleRejection> {
        let worker = &self.worker;
        let mut timer = pin!(sleep(Duration::ZERO));
        std::future::poll_fn(|context| {
            loop {
                let now = worker.monotonic_now();
                let poll_at = match queued.poll(context.waker(), now) {
                    QueuePoll::Granted(slots) => return Poll::Ready(Ok(slots)),
                    QueuePoll::Rejected(rejection) => return Poll::Ready(Err(rejection)),
                    QueuePoll::Pending { poll_at } => poll_at,
                };
                // The runtime's clock may differ from the gateway's: check again within a tick.
                timer.set(sleep(poll_at.saturating_duration_since(now).min(TICK)));
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}
