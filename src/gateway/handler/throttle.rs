//! Slots of a request in its throttled scopes.

use super::RequestHandler;
use crate::engine::{AcquireOutcome, QueuePoll, QueuedRequest, SlotGuard, ThrottleRejection};
use crate::gateway::request_context::RequestContext;
use crate::gateway::target;
use crate::gateway::worker::TICK;
use crate::policy::route::normalize;
use crate::policy::throttle::partition::{self, PartitionInput};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep;

impl RequestHandler {
    /// Acquires a slot in each scope of the route, or queues the request.
    pub(super) fn acquire_slots(&self, visit: &RequestContext) -> AcquireOutcome {
        let (current, visitor) = (visit.current(), visit.client_request());
        if !current.admission.is_throttled(visitor.route) {
            return AcquireOutcome::Acquired(None);
        }
        // The path and query that the rules matched.
        let head = &visitor.head;
        let Ok(path) = normalize(head.target.path()) else { return AcquireOutcome::Acquired(None) };
        let said = PartitionInput {
            route: &current.settings.rules.routes[visitor.route].name,
            host: &target::asked_host(head),
            path: &path,
            query: head.target.query(),
            header: &|name| partition::single_value(head.fields.get_all_by_text(name.as_str())),
        };
        let class = visitor.classified.class;
        current.admission.acquire_slots(
            visitor.key,
            class,
            visitor.route,
            &said,
            visit.random(),
            self.0.worker.monotonic_now(),
        )
    }

    /// Waits until the queued request is granted its slots or rejected.
    pub(super) async fn wait_for_slot(&self, mut waiting: QueuedRequest) -> Result<SlotGuard, ThrottleRejection> {
        let worker = &self.0.worker;
        let mut alarm = pin!(sleep(Duration::ZERO));
        std::future::poll_fn(|context| {
            loop {
                let now = worker.monotonic_now();
                let look_again = match waiting.poll(context.waker(), now) {
                    QueuePoll::Granted(pass) => return Poll::Ready(Ok(pass)),
                    QueuePoll::Rejected(closed) => return Poll::Ready(Err(closed)),
                    QueuePoll::Pending { poll_at: look_again } => look_again,
                };
                // The runtime's clock may differ from the gateway's: check again within a tick.
                alarm.set(sleep(look_again.saturating_duration_since(now).min(TICK)));
                if alarm.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}
