//! Three whole gates before one origin, with one allowance in a real Redis: the origin itself counts.

#[path = "support/redis.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests of the ledger")]
mod redis;
mod support;

use redis::RedisServer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::client::Client;
use support::gate::{Gate, NOON};
use support::origin::Origin;
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

#[test]
fn three_paced_gates_serve_crawlers_about_what_one_would_and_refuse_no_people() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let origin = Origin::plain();
    let rules = |ledger: &str| {
        format!(
            "{ledger}\nbehaviour: {{ enabled: false }}\n\
             limits: {{ keep_alive_timeout: 1h, first_byte_timeout: 1h, head_timeout: 1h }}\nquotas:\n  q:\n    limit: {LIMIT}\n    pacing: even\n    \
             window: {{ calendar: day, zone: UTC }}\n    tiers: {{ bot: [{{ above: 99%, shed: 100% }}] }}\n\
             classes: [{{ name: bot, when: {{ kind: declared_bot }} }}, {{ name: person }}]\n\
             routes: [{{ match: '/**', cost: {{ q: 1 }} }}]"
        )
    };
    let one = rules("ledger: memory");
    let many = rules(&format!("ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}', when_lost: share }} }}", redis.port));
    let gates = |count: usize, rules: &str| -> Vec<Gate> {
        let clock = Clock::by_hand(NOON);
        (0..count).map(|_| Gate::with_clock(origin.address(), rules, clock.clone())).collect()
    };
    let (alone, people_refused_alone) = half_a_day(&gates(1, &one));
    let (together, people_refused) = half_a_day(&gates(3, &many));
    assert_eq!((people_refused_alone, people_refused), (0, 0));
    let people = 12 * 30;
    assert!(together + people <= LIMIT, "{together} for crawlers and {people} for people of {LIMIT}");
    assert!(together.abs_diff(alone) * 10 <= alone, "{together} by three gates, {alone} by one");
}

/// Twelve hours in which people ask for 30 pages each and crawlers for 450: how many crawlers were served, and how many
/// people refused.
fn half_a_day(gates: &[Gate]) -> (usize, usize) {
    let (mut served, mut people_refused) = (0, 0);
    for turn in 0..12 * 480 {
        // Sixteen turns after each other come to two minutes.
        let agent = if turn % 16 == 0 { "" } else { "User-Agent: curl/8.0\r\n" };
        let is_served = gates[turn % gates.len()].connect().get("/page", agent).status == 200;
        match agent.is_empty() {
            true => people_refused += usize::from(!is_served),
            false => served += usize::from(is_served),
        }
        gates[0].clock.advance(Duration::from_millis(7490));
    }
    (served, people_refused)
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
