//! Three complete instances in front of one origin, with one quota in a real Redis. The origin counts the requests.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::redis::RedisServer;
use crate::support::wait::{pass_real_time, wait_until};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_engine::clock::Clock;

const LIMIT: usize = 3000;

#[test]
fn instances_never_overspend_during_redis_restart() {
    let mut redis = RedisServer::start(&[]);
    let origin = Origin::plain();
    let rules = format!(
        "ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}', failure_mode: fallback }} }}\n\
         quotas: {{ q: {{ limit: {LIMIT}, window: {{ fixed: 7d }} }} }}\n\
         routes: [{{ match: '/**', cost: {{ q: 1 }} }}]",
        redis.port
    );
    let gateways: Vec<TestGateway> =
        (0..3).map(|_| TestGateway::with_clock(origin.address(), &rules, Clock::system())).collect();
    let (is_over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for gateway in &gateways {
            scope.spawn(|| request_until_stopped(gateway, &is_over, &refused));
        }
        let _ends = StopOnDrop(&is_over);
        let wait_for_served = |min| wait_until(&format!("{min} requests"), || origin.received_requests().len() >= min);
        wait_for_served(LIMIT / 3);
        redis.restart();
        wait_for_served(LIMIT * 99 / 100);
        // An instance that could exceed the limit would do so now.
        let before = refused.load(Ordering::SeqCst);
        wait_until("more refusals", || refused.load(Ordering::SeqCst) >= before + 100);
    });
    let served = origin.received_requests().len();
    assert!(served <= LIMIT, "{served} requests served, limit {LIMIT}");
}

/// Stops the clients, also if an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Requests one page after the other, with a short pause after each refusal.
fn request_until_stopped(gateway: &TestGateway, is_over: &AtomicBool, refused: &AtomicU64) {
    let mut client = Client::connect(gateway.address());
    while !is_over.load(Ordering::SeqCst) {
        if client.get("/page", "").status != 200 {
            refused.fetch_add(1, Ordering::SeqCst);
            pass_real_time(Duration::from_millis(5));
        }
    }
}
