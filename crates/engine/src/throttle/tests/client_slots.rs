//! One client occupies a part of the slots and of the queue.

use super::*;

fn with_client_slots(concurrency: u32, slots: u32) -> throttle::ThrottleConfig {
    let client_slots = ClientSlots::Count(NonZeroU32::new(slots).expect("not zero"));
    throttle::ThrottleConfig { client_slots, ..with_concurrency(concurrency) }
}

fn acquired(fixture: &ThrottleFixture, client: u64, count: usize) -> Vec<SlotGuard> {
    let guard = |_| match fixture.acquire(&["api"], client, HIGH_PRIORITY, 0) {
        AcquireOutcome::Acquired(Some(guard)) => guard,
        _ => panic!("expected slots"),
    };
    (0..count).map(guard).collect()
}

/// Returns the number of scope instances, including those of clients.
fn instance_count(fixture: &ThrottleFixture) -> usize {
    fixture.throttle.scheduler.lock().instances.len()
}

#[test]
fn client_with_all_its_slots_waits_while_others_are_served() {
    let fixture = ThrottleFixture::with_scopes(&[("api", with_client_slots(8, 3))]);
    let mut first = acquired(&fixture, 1, 3);
    let mut waiter = fixture.expect_queued(&["api"], 1, HIGH_PRIORITY, 0);
    let second = acquired(&fixture, 2, 3);
    let third = acquired(&fixture, 3, 2);
    assert_eq!(fixture.state("api", 0).in_flight, 8);
    drop(second);
    assert!(matches!(waiter.poll_at(1), QueuePoll::Pending { .. }), "a slot of another client is not its own");
    let _fourth = acquired(&fixture, 4, 3);
    first.pop();
    assert!(waiter.is_woken());
    let waiting = waiter.poll_granted(2);
    drop((first, waiting, third));
    assert_eq!(instance_count(&fixture), 2, "only the client with slots has an instance");
}

#[test]
fn client_fills_its_part_of_the_queue() {
    let config = with_client_slots(8, 2);
    let queue = QueueConfig { max_wait: seconds(2), max_length: 12 };
    let fixture = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { queue, ..config })]);
    let _held = acquired(&fixture, 1, 2);
    let waiters: Vec<TestClient> = (0..3).map(|_| fixture.expect_queued(&["api"], 1, HIGH_PRIORITY, 0)).collect();
    assert_eq!(&*fixture.expect_rejected(&["api"], HIGH_PRIORITY, 0).scope, "api");
    let _others = acquired(&fixture, 2, 2);
    drop(waiters);
    assert_eq!(fixture.state("api", 0).queue_length, 0);
}

#[test]
fn slots_of_a_client_follow_the_limit_of_the_scope() {
    let quarter = |limit| throttle::ThrottleConfig { client_slots: ClientSlots::Quarter, ..with_concurrency(limit) };
    let fixture = ThrottleFixture::with_scopes(&[("api", quarter(8))]);
    let mut held = acquired(&fixture, 1, 2);
    let mut waiter = fixture.expect_queued(&["api"], 1, HIGH_PRIORITY, 0);
    let scope = |config| Scope { name: "api".into(), throttle: Some(config), partitioning: None };
    fixture.throttle.update_config(&[scope(quarter(12))]);
    held.push(waiter.poll_granted(0));
    let _ = fixture.expect_queued(&["api"], 1, HIGH_PRIORITY, 0);
    fixture.throttle.update_config(&[scope(quarter(2))]);
    drop(held);
    let _all = acquired(&fixture, 1, 2);
}

#[test]
fn clients_that_come_and_go_leave_no_instance() {
    let config = with_client_slots(4, 2);
    let queue = QueueConfig { max_wait: seconds(2), max_length: 4 };
    let fixture = ThrottleFixture::with_scopes(&[("api", throttle::ThrottleConfig { queue, ..config })]);
    for client in 0..10_000 {
        let _ = fixture.acquire(&["api"], client, LOW_PRIORITY, client);
    }
    let held = [acquired(&fixture, 1, 2), acquired(&fixture, 2, 2)];
    for client in 0..10_000 {
        let priority = (client % 5) as u8;
        let waiter = match fixture.acquire(&["api"], client, priority, 0) {
            AcquireOutcome::Queued(request) => Some(TestClient::new(request)),
            _ => None,
        };
        drop(waiter);
    }
    let mut waiters: Vec<TestClient> =
        (10..14).map(|client| fixture.expect_queued(&["api"], client, LOW_PRIORITY, 0)).collect();
    let favored = fixture.expect_queued(&["api"], 15, HIGH_PRIORITY, 0);
    for waiter in &mut waiters {
        let _ = waiter.poll_at(5000);
    }
    drop((waiters, favored, held));
    assert_eq!(instance_count(&fixture), 1);
}
