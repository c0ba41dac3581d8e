//! Pacing with three instances and one quota in a real Redis: a week of unequal traffic on a clock that the test
//! advances.
//!
//! The server uses its own clock. It only requires that a window has not ended and is not far in the future, so the
//! current week can be simulated in seconds.

use crate::support::pacing_harness::{
    BotTreatment, ClientLabel, DAY, PacingPolicy, SyntheticWeek, TraceRequest, decide, rules,
};
use crate::support::redis::RedisServer;
use crate::support::wait::{TIMEOUT, wait_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_engine::ledger::redis::{HostPort, Incarnation, RedisAddress, RedisEndpoint, Timeouts};
use tidegate_engine::ledger::{RedisStore, Store};
use tidegate_engine::{Admission, Engine, LeaseMode};
use tidegate_policy::{Rules, Timestamp, Units};

const INSTANCES: usize = 3;

#[test]
fn instances_with_unequal_traffic_pace_evenly() {
    for policy in [PacingPolicy::Even, PacingPolicy::Learned] {
        let week = WeekResult::simulate_week(policy, None);
        week.assert_follows_plan(policy, 0.02);
        for day in 0..7 {
            let shares = week.search_requests.map(|instance| instance[day].admitted_ratio());
            let (min, max) = (shares.iter().copied().fold(1.0, f64::min), shares.iter().copied().fold(0.0, f64::max));
            assert!(max - min <= 0.1, "{policy:?}, day {day}: {shares:?}");
        }
    }
}

#[test]
fn dead_instances_share_passes_to_others() {
    const CRASH_AT: u64 = 3 * DAY + DAY / 2;
    for policy in [PacingPolicy::Even, PacingPolicy::Learned] {
        let week = WeekResult::simulate_week(policy, Some(CRASH_AT));
        // The other instances detect their higher demand late. Tiers limit the lead over the plan to a burst.
        week.assert_follows_plan(policy, BURST_RATIO + 0.01);
    }
}

/// Result of a simulated week.
struct WeekResult {
    limit: u64,
    served: u64,
    human_refusals: u64,
    /// Units served until each hour, and units planned until then.
    by_hour: Vec<(u64, u64)>,
    /// Requests of search engines, by instance and day.
    search_requests: [[AdmitCounts; 7]; INSTANCES],
}

#[derive(Clone, Copy, Default)]
struct AdmitCounts {
    requests: u64,
    admitted: u64,
}

impl WeekResult {
    /// Simulates a week with three instances, which get 60 %, 30 % and 10 % of the traffic. The quota is half of the
    /// demand. At `crash_at` the busiest instance crashes, and its clients move to the others.
    fn simulate_week(policy: PacingPolicy, crash_at: Option<u64>) -> Self {
        let redis = RedisServer::start(&[]);
        let start = Clock::system().now().seconds() / (7 * DAY) * 7 * DAY;
        let requests: Vec<TraceRequest> = SyntheticWeek::generate(1, &[]).into_iter().step_by(SAMPLING_STEP).collect();
        let (limit, first) = (requests.len() as u64 / 2, requests[0].at);
        let rules = rules((policy, BotTreatment::Paced), "fixed: 7d", limit);
        let new_instance =
            |number| PacedInstance::new(&redis, number, Arc::clone(&rules), Timestamp::from_seconds(start));
        let mut instances: Vec<PacedInstance> = (1..=INSTANCES as u64).map(new_instance).collect();
        let mut result =
            Self { limit, served: 0, human_refusals: 0, by_hour: Vec::new(), search_requests: Default::default() };
        let mut round = 0;
        for (number, request) in requests.iter().enumerate() {
            let elapsed = request.at - first;
            while round <= elapsed {
                let now = Timestamp::from_seconds(start + round);
                for instance in &mut instances {
                    instance.refresh_leases(now);
                }
                if round.is_multiple_of(HOUR) {
                    result.by_hour.push((result.served, instances[0].planned_units(now)));
                }
                if instances.len() == INSTANCES && crash_at.is_some_and(|crash_at| round >= crash_at) {
                    instances.remove(0).crash_process(&redis);
                }
                round += if round < 7 * DAY - HOUR { REFRESH_INTERVAL } else { LAST_HOUR_INTERVAL };
            }
            let index = [0, 0, 0, 1, 0, 1, 0, 2, 0, 1][number % 10].min(instances.len() - 1);
            let is_served = u64::from(instances[index].try_admit(request, Timestamp::from_seconds(start + elapsed)));
            result.served += is_served;
            match request.label {
                ClientLabel::Person => result.human_refusals += 1 - is_served,
                ClientLabel::Search => {
                    result.search_requests[index][(elapsed / DAY) as usize].record_request(is_served);
                }
                ClientLabel::Bot => {}
            }
        }
        result
    }

    /// Asserts that no human request was refused, the limit was kept and at least 98 % of it was used. At no time usage
    /// was ahead of the plan by more than `ahead`, a ratio of the limit, or behind it by more than a burst.
    fn assert_follows_plan(&self, policy: PacingPolicy, ahead: f64) {
        let fraction = |units: u64| units as f64 / self.limit as f64;
        for (hour, (served, planned)) in self.by_hour.iter().enumerate() {
            let deviation = fraction(*served) - fraction(*planned);
            assert!(
                (-BURST_RATIO..=ahead).contains(&deviation),
                "{policy:?}, hour {hour}: {served} served, {planned} planned"
            );
        }
        assert_eq!(self.human_refusals, 0, "{policy:?}");
        assert!(self.served <= self.limit, "{policy:?}: {} of {}", self.served, self.limit);
        assert!(fraction(self.served) >= 0.98, "{policy:?}: {} of {}", self.served, self.limit);
    }
}

impl AdmitCounts {
    fn record_request(&mut self, admitted: u64) {
        self.requests += 1;
        self.admitted += admitted;
    }

    fn admitted_ratio(&self) -> f64 {
        self.admitted as f64 / self.requests as f64
    }
}

/// A gateway without its listener: quota counters with their plan, and the store that leases units.
struct PacedInstance {
    engine: Arc<Engine>,
    admission: Admission,
    store: RedisStore,
    is_low: Arc<AtomicBool>,
    /// Redis hash field that registers the instance.
    hash_field: String,
}

impl PacedInstance {
    fn new(redis: &RedisServer, number: u64, rules: Arc<Rules>, now: Timestamp) -> Self {
        let is_low = Arc::new(AtomicBool::new(true));
        let low_flag = Arc::clone(&is_low);
        let engine = Engine::new(LeaseMode::Leased(Arc::new(move || low_flag.store(true, Ordering::Relaxed))), 1000);
        let admission = engine.admission(rules, now);
        let address = RedisAddress::Tcp(HostPort { host: "127.0.0.1".into(), port: redis.port });
        let server = RedisEndpoint { address, tls: None, user: None, password: None, database: 0 };
        // Long timeouts: the server is reachable, however busy the machine is.
        let timeouts = Timeouts { connect: TIMEOUT, reply: TIMEOUT };
        let store = RedisStore::new(server, "tidegate", false, Incarnation::ephemeral(number)).with_timeouts(timeouts);
        let registered = registered_instances(redis);
        let mut instance = Self { engine, admission, store, is_low, hash_field: String::new() };
        wait_until("a new ledger to grant leases, which takes three seconds", || {
            instance.refresh_leases(now) > Units::ZERO
        });
        instance.hash_field = registered_instances(redis)
            .into_iter()
            .find(|row| !registered.contains(row))
            .expect("instance is registered");
        instance
    }

    /// Crashes as by `kill -9`, one minute ago by the server's clock.
    fn crash_process(self, redis: &RedisServer) {
        let entry = redis.cli(&["HGET", KEY, &self.hash_field]);
        let (registered_at, rest) = entry.split_once(' ').expect("entry starts with the time of registration");
        let registered_at: u64 = registered_at.parse().expect("microseconds");
        redis.cli(&["HSET", KEY, &self.hash_field, &format!("{} {rest}", registered_at - 60_000_000)]);
    }

    /// Refreshes the leases, as an instance does once a second and when a quota runs low. Returns the units held.
    fn refresh_leases(&mut self, now: Timestamp) -> Units {
        let requests = self.engine.lease_requests(now, Duration::ZERO);
        let Ok(leases) = run_on_runtime(self.store.lease(&requests, now)) else { return Units::ZERO };
        self.engine.apply_leases(&requests, &leases, now);
        leases[0].held
    }

    fn try_admit(&mut self, request: &TraceRequest, now: Timestamp) -> bool {
        // A request that finds the lease used up is retried after a second.
        for _ in 0..2 {
            if self.is_low.swap(false, Ordering::Relaxed) {
                self.refresh_leases(now);
            }
            let decision = decide(&self.admission, request, now);
            if !decision.verdict.waits_for_lease() {
                return decision.permit.map(|permit| permit.settle(|_, expected| expected)).is_some();
            }
        }
        false
    }

    fn planned_units(&self, now: Timestamp) -> u64 {
        self.admission.quotas(now)[0].plan.as_ref().map_or(0, |plan| plan.planned.floor())
    }
}

/// Returns the registered instances.
fn registered_instances(redis: &RedisServer) -> Vec<String> {
    let rows = redis.cli(&["HKEYS", KEY]);
    rows.lines().filter(|row| row.starts_with("g ")).map(str::to_owned).collect()
}

/// Redis key of the quota.
const KEY: &str = "{tidegate:api}:leases";

/// Interval of lease refreshes, in seconds, except in the last hour. Production uses one second, but such a test would
/// run for hours.
const REFRESH_INTERVAL: u64 = 600;
const LAST_HOUR_INTERVAL: u64 = 10;
const HOUR: u64 = 3600;

/// Sampling step: one of this many requests of the week is simulated.
const SAMPLING_STEP: usize = 4;

/// Default lead of a class over its plan, as a ratio of the limit.
const BURST_RATIO: f64 = 0.05;

/// Runs `future` on the runtime of this thread: a connection belongs to the runtime on which it was opened.
fn run_on_runtime<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime can be created");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}
