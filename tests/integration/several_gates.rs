//! Three whole gates before one origin, with one allowance in a real Redis: the origin itself counts.

use crate::support::client::Client;
use crate::support::gate::Gate;
use crate::support::origin::Origin;
use crate::support::redis::RedisServer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate::clock::Clock;

const LIMIT: usize = 3000;

#[test]
fn three_gates_serve_what_was_bought_and_no_more_while_redis_is_killed_and_forgets() {
    let Some(mut redis) = RedisServer::start(&[]) else { return };
    let origin = Origin::plain();
    let rules = format!(
        "ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}', when_lost: share }} }}\n\
         quotas: {{ q: {{ limit: {LIMIT}, window: {{ fixed: 7d }} }} }}\n\
         routes: [{{ match: '/**', cost: {{ q: 1 }} }}]",
        redis.port
    );
    let gates: Vec<Gate> = (0..3).map(|_| Gate::with_clock(origin.address(), &rules, Clock::system())).collect();
    let over = AtomicBool::new(false);
    let used = std::thread::scope(|scope| {
        for gate in &gates {
            scope.spawn(|| visit(gate, &over));
        }
        let until = |least: usize| {
            (0..900).any(|_| {
                std::thread::sleep(Duration::from_millis(50));
                origin.seen().len() >= least
            })
        };
        let begun = until(LIMIT / 3);
        redis.restart();
        let used = begun && until(LIMIT * 99 / 100);
        std::thread::sleep(Duration::from_millis(500));
        over.store(true, Ordering::SeqCst);
        used
    });
    let served = origin.seen().len();
    assert!(served <= LIMIT, "{served} of {LIMIT} served");
    assert!(used, "only {served} of {LIMIT} could be used");
}

/// Asks for one page after the other, and waits a little after a refusal.
fn visit(gate: &Gate, over: &AtomicBool) {
    let mut client = Client::connect(gate.address());
    while !over.load(Ordering::SeqCst) {
        if client.get("/page", "").status != 200 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
