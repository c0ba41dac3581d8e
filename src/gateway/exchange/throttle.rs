//! Slots of a request in its throttled scopes.

use super::client_connection::RequestHandler;
use super::within;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::transport::connection_timeouts::TICK;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tidegate_engine::{AcquireOutcome, QueuePoll, QueuedRequest, SlotGuard, ThrottleRejection};
use tidegate_policy::cache::CacheFill;
use tidegate_policy::throttle::overload::RequestSource;
use tidegate_policy::throttle::partition::{self, PartitionInput};
use tokio::time::sleep;

/// Time for which a request that waits for slots keeps others from fetching the same response.
const MAX_FETCH_QUEUE_TIME: Duration = Duration::ZERO;

impl RequestHandler {
    /// Acquires a slot in each scope of the route, or queues the request. A refresh takes only what no request waits for.
    pub(in crate::gateway) fn acquire_slots(&self, context: &RequestContext) -> AcquireOutcome {
        self.acquire(context, self.fill_reason() != Some(CacheFill::Refresh))
    }

    /// Acquires a slot in each scope of the route, if all are free.
    pub(in crate::gateway) fn acquire_free_slots(&self, context: &RequestContext) -> Option<Option<SlotGuard>> {
        match self.acquire(context, false) {
            AcquireOutcome::Acquired(slots) => Some(slots),
            AcquireOutcome::Queued(_) | AcquireOutcome::Rejected(_) => None,
        }
    }

    fn acquire(&self, context: &RequestContext, may_wait: bool) -> AcquireOutcome {
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
            may_wait,
            self.worker.monotonic_now(),
        )
    }

    /// Waits until the queued request is granted its slots or rejected. If it fetches a response that others wait for, it
    /// leaves the fetch to one of them after a moment: its client may have used up its share of the slots.
    pub(in crate::gateway) async fn wait_for_slot_of_fetch(
        &self,
        queued: QueuedRequest,
        context: &mut RequestContext,
    ) -> Result<SlotGuard, ThrottleRejection> {
        let mut waiting = pin!(self.wait_for_slot(queued));
        if let Some(fetch) = context.fetch_mut().filter(|fetch| fetch.guard.is_some()) {
            let deadline = self.worker.upstream().new_deadline(MAX_FETCH_QUEUE_TIME);
            if let Some(acquired) = within(&deadline, waiting.as_mut()).await {
                return acquired;
            }
            fetch.hand_over();
        }
        waiting.await
    }

    /// Waits until the queued request is granted its slots or rejected.
    pub(in crate::gateway) async fn wait_for_slot(
        &self,
        mut queued: QueuedRequest,
    ) -> Result<SlotGuard, ThrottleRejection> {
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
