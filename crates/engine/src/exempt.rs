//! Buckets of exempt requests that reach the origin: of each client, of each network, and of all clients together.

use super::admission::Decision;
use super::{Admission, BucketUsage};
use tidegate_policy::bucket::{Bucket, BucketState};
use tidegate_policy::budget::Payer;
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::{StableClassId, Timestamp};

impl Admission {
    /// Decides on an exempt request that takes a token from its client's bucket, and from those that it shares. Returns
    /// `None` if one of these is empty: an ordinary request is not refused for what others did either.
    pub(super) fn admit_exempt(
        &self,
        key: ClientKey,
        request: &DecisionRequest<'_>,
        exemption: Exemption,
        now: Timestamp,
    ) -> Option<Decision> {
        let (clients, class) = (&self.engine.clients, bucket_class(exemption, Sharing::Client));
        let decision = clients.with(key, class, |client| {
            let mut level = client.bucket_state();
            let mut decision = self.decide(request, Payer::of(key), (None, None), &mut level, &[], now);
            client.set_bucket_state(level);
            let sequence = clients.next_sequence(key);
            decision.bucket = Some(BucketUsage { sequence, ..BucketUsage::new(&Exemption::BUCKET, level, now) });
            decision
        });
        let takes = |(sharing, key, bucket): (Sharing, ClientKey, Bucket)| {
            clients.with(key, bucket_class(exemption, sharing), |shared| {
                bucket.take(shared.bucket_state(), now).map(|level| shared.set_bucket_state(level)).is_ok()
            })
        };
        let shared = [
            (Sharing::Network, ClientKey::from_u64(key.network()), Exemption::NETWORK_BUCKET),
            (Sharing::All, ClientKey::SHARED_BY_ALL, Exemption::TOTAL_BUCKET),
        ];
        let is_shared = decision.permit.is_some() && request.class_rules.enforce;
        (!is_shared || shared.into_iter().all(takes)).then_some(decision)
    }

    /// Returns the state of the bucket from which a request takes a token, as a client of `class`.
    pub(super) fn bucket_state(
        &self,
        exemption: Option<Exemption>,
        key: ClientKey,
        class: StableClassId,
    ) -> BucketState {
        let bounded = exemption.filter(|exemption| exemption.is_bounded());
        let class = bounded.map_or(class, |exemption| bucket_class(exemption, Sharing::Client));
        self.engine.clients.with(key, class, |client| client.bucket_state())
    }
}

/// Who shares a bucket of exempt requests.
#[derive(Clone, Copy)]
enum Sharing {
    Client,
    Network,
    All,
}

/// Returns what stands for a class in the key of the buckets of an exemption, so that those of clients and networks are
/// apart, also for new ones while the table of clients is full. No class gets this id: they are counted from 0.
fn bucket_class(exemption: Exemption, sharing: Sharing) -> StableClassId {
    let number = sharing as usize * Exemption::ALL.len() + exemption as usize;
    StableClassId::MAX - number as StableClassId
}
