//! Which requests are exported, and the queue of those that are.

use super::context::{Parent, TraceContext};
use super::spans::Spans;
use std::collections::HashMap;
#[cfg(test)]
use std::net::Ipv4Addr;
use std::net::{IpAddr, Ipv6Addr};
use tidegate_access_log::{Record, RecordedOutcome};
use tidegate_config::settings::Traces;

/// Choice of the requests that are exported.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a>(pub &'a Traces);

impl Choice<'_> {
    /// Returns true if a request is exported whatever becomes of it: as a trusted sender has chosen, or by `random`, a number
    /// in [0, 1] that its client cannot choose.
    pub fn samples(self, trusted: Option<Parent>, random: f64) -> bool {
        trusted.map_or_else(|| random < self.0.sample.ratio(), |parent| parent.is_sampled)
    }

    /// Returns true if a finished request is exported: a sampled one, a refusal, a failure, or one that waited long for its
    /// turn and the origin. A client that reads slowly does not make its requests slow ones.
    pub fn keeps(self, context: &TraceContext, record: &Record<'_>) -> bool {
        let wait = record.decision.scope_wait + record.response.origin.map(|call| call.duration).unwrap_or_default();
        context.is_sampled
            || matches!(record.decision.outcome, RecordedOutcome::Refused(_))
            || record.response.status >= 500
            || wait >= self.0.slow
    }
}

/// Maximum number of requests that wait for their export.
pub const QUEUE_LENGTH: usize = 1024;

/// Maximum number of them from one client: its refusals, failures and slow requests displace none of other clients.
const QUEUED_OF_CLIENT: u16 = QUEUE_LENGTH as u16 / 16;

/// Finished requests that wait for their export.
#[derive(Debug, Default)]
pub struct SpanQueue {
    spans: Vec<Spans>,
    by_client: HashMap<IpAddr, u16>,
    dropped: u64,
}

impl SpanQueue {
    /// Adds a request. It is dropped if the queue is full, or has as many of the client as it may have.
    pub fn push(&mut self, spans: Spans) {
        if self.spans.len() < QUEUE_LENGTH {
            let of_client = self.by_client.entry(network(spans.client)).or_default();
            if *of_client < QUEUED_OF_CLIENT {
                *of_client += 1;
                self.spans.push(spans);
                return;
            }
        }
        self.dropped += 1;
    }

    /// Removes all requests, and appends them to `out`. Returns the number of those dropped since the last call.
    pub fn drain_into(&mut self, out: &mut Vec<Spans>) -> u64 {
        out.append(&mut self.spans);
        self.by_client.clear();
        std::mem::take(&mut self.dropped)
    }
}

/// Returns the addresses that one client has at least: an IPv4 address, or a /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_access_log::sample::sample_record;

    fn spans(client: IpAddr) -> Spans {
        let context = TraceContext::new(None, [1, 2, 3], false);
        Spans { client, ..Spans::new(&sample_record(), context) }
    }

    proptest! {
        /// Whatever the order, each client has its share of the queue as long as 16 of them fill it, and nothing is lost uncounted.
        #[test]
        fn no_client_displaces_requests_of_others(
            pushes in prop::collection::vec((0_u128..12, 0_u128..1000, 1_usize..300), 1..40),
        ) {
            let (mut queue, mut expected, mut pushed) = (SpanQueue::default(), HashMap::<u128, usize>::new(), 0);
            for (client, address, count) in pushes {
                let address = IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | client << 64 | address));
                (0..count).for_each(|_| queue.push(spans(address)));
                *expected.entry(client).or_default() += count;
                pushed += count;
            }
            let mut queued = Vec::new();
            let dropped = queue.drain_into(&mut queued);
            prop_assert_eq!(queued.len() + dropped as usize, pushed);
            for (client, count) in expected {
                let is_of_client = |spans: &&Spans| match spans.client {
                    IpAddr::V6(address) => address.to_bits() >> 64 & 0xffff_ffff == client,
                    IpAddr::V4(_) => false,
                };
                prop_assert_eq!(queued.iter().filter(is_of_client).count(), count.min(usize::from(QUEUED_OF_CLIENT)));
            }
        }
    }

    #[test]
    fn queue_is_bounded_for_all_clients() {
        let mut queue = SpanQueue::default();
        (0..3 * QUEUE_LENGTH as u32).for_each(|client| queue.push(spans(Ipv4Addr::from_bits(client).into())));
        let mut queued = Vec::new();
        assert_eq!(queue.drain_into(&mut queued), 2 * QUEUE_LENGTH as u64);
        assert_eq!(queued.len(), QUEUE_LENGTH);
        assert!(queue.by_client.is_empty());
    }
}
