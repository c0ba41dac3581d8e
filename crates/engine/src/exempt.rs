//! Buckets of exempt requests that reach the origin: one per client, and one for all clients together.

use super::admission::Decision;
use super::{Admission, BucketUsage};
use tidegate_policy::bucket::{BucketState, EmptyUntil};
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{Reason, Refusal, RefusedQuotas, StableClassId, Timestamp, Verdict};

impl Admission {
    /// Decides on an exempt request that takes a token from its client's bucket and one from that of all clients.
    pub(super) fn admit_exempt(
        &self,
        key: ClientKey,
        request: &DecisionRequest<'_>,
        exemption: Exemption,
        now: Timestamp,
    ) -> Decision {
        let (clients, class) = (&self.engine.clients, bucket_class(exemption));
        let mut decision = clients.with(key, class, |client| {
            let mut level = client.bucket_state();
            let mut decision = self.decide(request, key, None, &mut level, &[], now);
            client.set_bucket_state(level);
            let sequence = clients.next_sequence(key);
            decision.bucket = Some(BucketUsage { sequence, ..BucketUsage::new(&Exemption::BUCKET, level, now) });
            decision
        });
        if decision.permit.is_some() && request.class_rules.enforce {
            let taken = clients.with(ClientKey::SHARED_BY_CLASS, class, |total| {
                Exemption::TOTAL_BUCKET.take(total.bucket_state(), now).map(|level| total.set_bucket_state(level))
            });
            if let Err(EmptyUntil(refill_at)) = taken {
                let wait = refill_at.saturating_duration_since(now);
                decision.permit = None;
                decision.verdict =
                    Verdict::Refuse(Refusal { reason: Reason::Bucket, quotas: RefusedQuotas::NONE, wait });
            }
        }
        decision
    }

    /// Returns the state of the bucket from which a request takes a token, as a client of `class`.
    pub(super) fn bucket_state(
        &self,
        exemption: Option<Exemption>,
        key: ClientKey,
        class: StableClassId,
    ) -> BucketState {
        let bounded = exemption.filter(|exemption| exemption.is_bounded());
        let class = bounded.map_or(class, bucket_class);
        self.engine.clients.with(key, class, |client| client.bucket_state())
    }
}

/// Returns what stands for a class in the key of the buckets of an exemption. No class gets this id: they are counted from 0.
fn bucket_class(exemption: Exemption) -> StableClassId {
    StableClassId::MAX - exemption as StableClassId
}
