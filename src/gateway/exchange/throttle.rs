//! Slots of a request in its throttled scopes.

use super::known::Known;
use super::within;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::transport::connection_timeouts::TICK;
use crate::gateway::worker::Worker;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tidegate_engine::{AcquireOutcome, QueuePoll, QueuedRequest, SlotGuard, ThrottleRejection};
use tidegate_policy::cache::CacheFill;
use tidegate_policy::throttle::overload::RequestSource;
use tidegate_policy::throttle::partition::{self, PartitionInput};
use tokio::time::sleep;

/// Time for which a request that waits for slots keeps others from fetching the same response. Deadlines are checked at ticks, so
/// none is one to two of them.
const MAX_FETCH_QUEUE_TIME: Duration = Duration::ZERO;

/// Acquires a slot in each scope of the route, or waits for them in the queue, and records the wait. A refresh takes only what
/// no request waits for.
pub(in crate::gateway) async fn acquire_slots(journal: &mut Journal) -> Result<Option<SlotGuard>, ThrottleRejection> {
    match acquire(journal, journal.known.fill() != Some(CacheFill::Refresh)) {
        AcquireOutcome::Acquired(slots) => Ok(slots),
        AcquireOutcome::Rejected(rejection) => Err(rejection),
        AcquireOutcome::Queued(queued) => {
            // Boxed to keep the future of requests that need not wait small.
            let acquired = Box::pin(wait_for_slot_of_fetch(queued, journal)).await;
            journal.origin.end_queue_wait(journal.known.worker().now());
            acquired.map(Some)
        }
    }
}

/// Acquires a slot in each scope of the route, if all are free.
pub(in crate::gateway) fn acquire_free_slots(journal: &Journal) -> Option<Option<SlotGuard>> {
    match acquire(journal, false) {
        AcquireOutcome::Acquired(slots) => Some(slots),
        AcquireOutcome::Queued(_) | AcquireOutcome::Rejected(_) => None,
    }
}

fn acquire(journal: &Journal, may_wait: bool) -> AcquireOutcome {
    let Known { config, request, classified, .. } = &*journal.known;
    if !config.admission.is_throttled(classified.route) {
        return AcquireOutcome::Acquired(None);
    }
    let fields = &request.head.fields;
    let rules = &config.settings.rules;
    let source = RequestSource::new(classified.key, journal.known.address_key(), classified.route);
    let input = PartitionInput {
        route: &rules[classified.route].name,
        request: request.facts(),
        header: &|name| partition::single_value(fields.get_all_by_text(name.as_str())),
    };
    config.admission.acquire_slots(
        source,
        classified.classification.class,
        &input,
        journal.known.random(),
        may_wait,
        journal.worker().monotonic_now(),
    )
}

/// Waits until the queued request is granted its slots or rejected. If it fetches a response that others wait for, it
/// leaves the fetch to one of them after a moment: its client may have used up its share of the slots.
async fn wait_for_slot_of_fetch(queued: QueuedRequest, journal: &mut Journal) -> Result<SlotGuard, ThrottleRejection> {
    let worker = Rc::clone(journal.worker());
    let mut waiting = pin!(wait_for_slot(&worker, queued));
    if let Some(fetch) = journal.cache.fetch.as_deref_mut().filter(|fetch| fetch.guard.is_some()) {
        let deadline = worker.upstream().new_deadline(MAX_FETCH_QUEUE_TIME);
        if let Some(acquired) = within(&deadline, waiting.as_mut()).await {
            return acquired;
        }
        fetch.hand_over();
    }
    waiting.await
}

/// Waits until the queued request is granted its slots or rejected.
async fn wait_for_slot(worker: &Worker, mut queued: QueuedRequest) -> Result<SlotGuard, ThrottleRejection> {
    let mut timer = pin!(sleep(Duration::ZERO));
    std::future::poll_fn(|cx| {
        loop {
            let now = worker.monotonic_now();
            let poll_at = match queued.poll(cx.waker(), now) {
                QueuePoll::Granted(slots) => return Poll::Ready(Ok(slots)),
                QueuePoll::Rejected(rejection) => return Poll::Ready(Err(rejection)),
                QueuePoll::Pending { poll_at } => poll_at,
            };
            // The runtime's clock may differ from the gateway's: check again within a tick.
            timer.set(sleep(poll_at.saturating_duration_since(now).min(TICK)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}
