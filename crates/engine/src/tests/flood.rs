//! More clients than the capacity: forged keys neither affect existing clients nor gain requests.

use super::*;

const MAX_CLIENTS: usize = 8;
const ACTIVE_CLIENTS: u64 = 4;
const LIMITED: ClassId = ClassId(2);
/// Bucket of a limited client in [`rules`]: two requests at once, one more every ten seconds.
const CAPACITY: u64 = 2;
const INTERVAL_S: u64 = 10;

/// Step of the property test.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request of an existing client.
    Active(u64),
    /// This many new clients, with two requests each.
    NewKeys(u64),
    /// Eviction of idle clients.
    EvictIdle,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let kind = prop_oneof![
        (0..ACTIVE_CLIENTS).prop_map(Step::Active),
        (1u64..30).prop_map(Step::NewKeys),
        Just(Step::EvictIdle),
    ];
    // All steps together take less than the ten minutes after which a client is idle.
    (0u64..5_000, kind)
}

proptest! {
    #[test]
    fn new_key_flood_keeps_active_clients_and_limit(
        steps in proptest::collection::vec(step(), 1..100),
    ) {
        let small = Engine::new(LeaseMode::Local, MAX_CLIENTS).admission(rules(vec![], vec![route(&[])]), NOON);
        let unbounded = Engine::new(LeaseMode::Local, 1_000_000).admission(rules(vec![], vec![route(&[])]), NOON);
        let request = |admission: &Admission, key: u64, now| {
            let decision = admission.admit(ClientKey::from_u64(key), LIMITED, RouteId(0), "/item/1", now);
            let wait = decision.verdict.refusal().map(|refusal| refusal.wait);
            (wait, decision.bucket.map(|bucket| (bucket.remaining, bucket.full_after)))
        };
        for key in 0..ACTIVE_CLIENTS {
            prop_assert_eq!(request(&small, key, NOON), request(&unbounded, key, NOON));
        }
        let (mut now, mut next_key, mut admitted) = (NOON, ACTIVE_CLIENTS, 0);
        for (pause_ms, step) in steps {
            now += Duration::from_millis(pause_ms);
            match step {
                Step::Active(key) => prop_assert_eq!(request(&small, key, now), request(&unbounded, key, now)),
                Step::EvictIdle => small.evict_idle(now),
                Step::NewKeys(count) => {
                    for key in next_key..next_key + count {
                        admitted += [(); 2].iter().filter(|()| request(&small, key, now).0.is_none()).count() as u64;
                    }
                    next_key += count;
                }
            }
            prop_assert!(small.engine().clients_tracked() <= MAX_CLIENTS);
            let free_entries = MAX_CLIENTS as u64 - ACTIVE_CLIENTS;
            let shared = CAPACITY + now.saturating_duration_since(NOON).as_secs() / INTERVAL_S;
            let requests = 2 * (next_key - ACTIVE_CLIENTS);
            prop_assert!(admitted <= free_entries * CAPACITY + shared, "{} of {} admitted", admitted, requests);
        }
    }
}

#[test]
fn idle_clients_make_room_for_new_ones() {
    let admission = Engine::new(LeaseMode::Local, MAX_CLIENTS).admission(rules(vec![], vec![route(&[])]), NOON);
    let remaining = |key, now| {
        let decision = admission.admit(ClientKey::from_u64(key), LIMITED, RouteId(0), "/item/1", now);
        decision.bucket.map(|bucket| bucket.remaining)
    };
    for key in 0..MAX_CLIENTS as u64 {
        assert_eq!(remaining(key, NOON), Some(1));
    }
    assert_eq!((remaining(100, NOON), remaining(101, NOON)), (Some(1), Some(0)), "new clients share a bucket");
    let later = NOON + Duration::from_secs(605);
    assert_eq!(remaining(0, later), Some(1), "an active client is kept");
    let idle = NOON + Duration::from_secs(611);
    admission.evict_idle(idle);
    assert_eq!(admission.engine().clients_tracked(), 1);
    assert_eq!(
        (remaining(102, idle), remaining(103, idle)),
        (Some(1), Some(1)),
        "new clients have their own buckets again"
    );
    assert_eq!(remaining(0, idle), Some(0), "an active client keeps its bucket state");
}
