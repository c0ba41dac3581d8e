//! Three gates that pace one allowance from a real Redis: a week of unequal traffic on a clock that is moved by hand.
//!
//! The server goes by its own clock. It asks of a window only that it is not over and not far away, so the week that it is in
//! can be lived through in seconds.

use crate::support::pacing::{Asked, Bots, DAY, Policy, Week, Who, decide, rules};
use crate::support::redis::RedisServer;
use crate::support::wait::{TIMEOUT, wait_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate::clock::Clock;
use tidegate::engine::{Admission, AdmissionOutcome, Engine, LeaseMode};
use tidegate::ledger::redis::{Incarnation, RedisEndpoint, Timeouts};
use tidegate::ledger::{RedisStore, Store};
use tidegate::policy::{Reason, Refusal, Rules, Timestamp, Units};

const GATES: usize = 3;

#[test]
fn gates_with_unequal_traffic_serve_alike_and_together_no_more_than_was_planned() {
    for policy in [Policy::Even, Policy::Learned] {
        let week = Lived::week(policy, None);
        week.holds(policy, 0.02);
        for day in 0..7 {
            let shares = week.search.map(|gate| gate[day].share());
            let (least, most) =
                (shares.iter().copied().fold(1.0, f64::min), shares.iter().copied().fold(0.0, f64::max));
            assert!(most - least <= 0.1, "{policy:?}, day {day}: {shares:?}");
        }
    }
}

#[test]
fn what_a_gate_that_dies_would_have_had_the_others_have() {
    const DEATH: u64 = 3 * DAY + DAY / 2;
    for policy in [Policy::Even, Policy::Learned] {
        let week = Lived::week(policy, Some(DEATH));
        // The others hear only by and by how much more they are asked for; a burst ahead of the plan, tiers hold.
        week.holds(policy, BURST + 0.01);
    }
}

/// What came of a week.
struct Lived {
    limit: u64,
    served: u64,
    people_refused: u64,
    /// By hour: what had been served by then, and what was to be by the plan.
    by_hour: Vec<(u64, u64)>,
    /// Of search engines, by gate and by day.
    search: [[Served; 7]; GATES],
}

#[derive(Clone, Copy, Default)]
struct Served {
    asked: u64,
    served: u64,
}

impl Lived {
    /// Three gates, of which one has six tenths of the traffic and one a tenth, before an allowance of half of what is asked
    /// for. At `death` the busiest dies, and its clients go to the others.
    fn week(policy: Policy, death: Option<u64>) -> Self {
        let redis = RedisServer::start(&[]);
        let start = Clock::system().now().seconds() / (7 * DAY) * 7 * DAY;
        let asked: Vec<Asked> = Week::of(1, &[]).into_iter().step_by(ONE_OF).collect();
        let (limit, first) = (asked.len() as u64 / 2, asked[0].at);
        let rules = rules((policy, Bots::Paced), "fixed: 7d", limit);
        let gate = |number| Gate::new(&redis, number, Arc::clone(&rules), Timestamp::from_seconds(start));
        let mut gates: Vec<Gate> = (1..=GATES as u64).map(gate).collect();
        let mut lived = Self { limit, served: 0, people_refused: 0, by_hour: Vec::new(), search: Default::default() };
        let mut round = 0;
        for (number, asked) in asked.iter().enumerate() {
            let passed = asked.at - first;
            while round <= passed {
                let now = Timestamp::from_seconds(start + round);
                for gate in &mut gates {
                    gate.round(now);
                }
                if round.is_multiple_of(HOUR) {
                    lived.by_hour.push((lived.served, gates[0].line(now)));
                }
                if gates.len() == GATES && death.is_some_and(|death| round >= death) {
                    gates.remove(0).dies(&redis);
                }
                round += if round < 7 * DAY - HOUR { ROUND } else { LAST_ROUND };
            }
            let place = [0, 0, 0, 1, 0, 1, 0, 2, 0, 1][number % 10].min(gates.len() - 1);
            let is_served = u64::from(gates[place].serves(asked, Timestamp::from_seconds(start + passed)));
            lived.served += is_served;
            match asked.who {
                Who::Person => lived.people_refused += 1 - is_served,
                Who::Search => lived.search[place][(passed / DAY) as usize].count(is_served),
                Who::Bot => {}
            }
        }
        lived
    }

    /// No person was refused, nothing was overspent, hardly anything is left, and at no time more was served than was planned
    /// and this part of the limit `ahead`, or a burst less than that.
    fn holds(&self, policy: Policy, ahead: f64) {
        let part = |units: u64| units as f64 / self.limit as f64;
        for (hour, (served, planned)) in self.by_hour.iter().enumerate() {
            let off = part(*served) - part(*planned);
            assert!((-BURST..=ahead).contains(&off), "{policy:?}, hour {hour}: {served} served, {planned} planned");
        }
        assert_eq!(self.people_refused, 0, "{policy:?}");
        assert!(self.served <= self.limit, "{policy:?}: {} of {}", self.served, self.limit);
        assert!(part(self.served) >= 0.98, "{policy:?}: {} of {}", self.served, self.limit);
    }
}

impl Served {
    fn count(&mut self, served: u64) {
        self.asked += 1;
        self.served += served;
    }

    fn share(&self) -> f64 {
        self.served as f64 / self.asked as f64
    }
}

/// What a gate is beside its listener: the accounts with their plan, and the ledger that supplies them.
struct Gate {
    engine: Arc<Engine>,
    admission: Admission,
    store: RedisStore,
    runs_low: Arc<AtomicBool>,
    /// Where the server keeps that it was heard of.
    row: String,
}

impl Gate {
    fn new(redis: &RedisServer, number: u64, rules: Arc<Rules>, now: Timestamp) -> Self {
        let runs_low = Arc::new(AtomicBool::new(true));
        let bell = Arc::clone(&runs_low);
        let engine = Engine::new(LeaseMode::Leased(Arc::new(move || bell.store(true, Ordering::Relaxed))), 1000);
        let admission = engine.admission(rules, now);
        let server =
            RedisEndpoint { host: "127.0.0.1".into(), port: redis.port, user: None, password: None, database: 0 };
        // The server is there, however busy the machine is.
        let patient = Timeouts { connect: TIMEOUT, reply: TIMEOUT };
        let store = RedisStore::new(server, "tidegate", false, Incarnation::ephemeral(number)).with_timeouts(patient);
        let known = rows(redis);
        let mut gate = Self { engine, admission, store, runs_low, row: String::new() };
        wait_until("a new ledger to lease, which it does after three seconds", || gate.round(now) > Units::ZERO);
        gate.row = rows(redis).into_iter().find(|row| !known.contains(row)).expect("it was heard of");
        gate
    }

    /// Ends as `kill -9` ends it, a minute ago by the server's clock.
    fn dies(self, redis: &RedisServer) {
        let told = redis.cli(&["HGET", KEY, &self.row]);
        let (heard, rest) = told.split_once(' ').expect("when it was heard of comes first");
        let heard: u64 = heard.parse().expect("microseconds");
        redis.cli(&["HSET", KEY, &self.row, &format!("{} {rest}", heard - 60_000_000)]);
    }

    /// What the keeper does once a second, and whenever an account runs low; what it holds then.
    fn round(&mut self, now: Timestamp) -> Units {
        let asks = self.engine.lease_requests(now);
        let Ok(leases) = wait(self.store.lease(&asks, now)) else { return Units::ZERO };
        self.engine.apply_leases(&asks, &leases, now);
        leases[0].held
    }

    fn serves(&mut self, asked: &Asked, now: Timestamp) -> bool {
        // Who finds the lease spent is told to come back in a second.
        for _ in 0..2 {
            if self.runs_low.swap(false, Ordering::Relaxed) {
                self.round(now);
            }
            match decide(&self.admission, asked, now).ruling {
                AdmissionOutcome::Admitted(permit) => {
                    permit.settle(|_, expected| expected);
                    return true;
                }
                AdmissionOutcome::Refused(Refusal { reason: Reason::Ledger, .. }) => {}
                AdmissionOutcome::Refused(_) => return false,
            }
        }
        false
    }

    fn line(&self, now: Timestamp) -> u64 {
        self.admission.quotas(now)[0].plan.as_ref().map_or(0, |plan| plan.planned.floor())
    }
}

/// The gates that the server has heard of.
fn rows(redis: &RedisServer) -> Vec<String> {
    let rows = redis.cli(&["HKEYS", KEY]);
    rows.lines().filter(|row| row.starts_with("g ")).map(str::to_owned).collect()
}

/// Where the server keeps all of the quota.
const KEY: &str = "{tidegate:api}:leases";

/// Gates hear of each other once in so many seconds, and in the last hour more often: it is once in one, but that would be a
/// test of hours.
const ROUND: u64 = 600;
const LAST_ROUND: u64 = 10;
const HOUR: u64 = 3600;

/// One of so many requests of a week is enough.
const ONE_OF: usize = 4;

/// What a class may be ahead of its plan by default.
const BURST: f64 = 0.05;

/// A connection belongs to the runtime that it was opened on, as it does to the keeper's.
fn wait<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(work))
}
