//! The lease script on a real server, with a clock and run id of the test, compared with the usage of simulated
//! instances.

use super::connection::RedisConnection;
use super::*;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::cell::RefCell;
use std::rc::Rc;
use tidegate_policy::lease::WindowKey;
use tidegate_policy::window::Span;
use tokio::runtime::Runtime;

mod budgets;

#[path = "../../../../../tests/integration/support/wait.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the integration tests")]
mod wait;

#[path = "../../../../../tests/integration/support/redis.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests that restart it")]
mod real;

/// Timeouts that a test server meets on any busy machine.
const TEST_TIMEOUTS: Timeouts = Timeouts { connect: wait::TIMEOUT, reply: wait::TIMEOUT };

const LIMIT: u64 = 10_000;
const LENGTH: u64 = 100;
const START: u64 = 1_800_000_000;
const QUOTA: &str = "api";

/// A server with a simulated clock and run id.
struct RedisFixture {
    runtime: Runtime,
    connection: RefCell<RedisConnection>,
    port: u16,
    prefix: String,
    /// Time since [`START`], in milliseconds.
    clock: RefCell<u64>,
    runs: RefCell<u64>,
    saved: RefCell<Option<String>>,
    change: (&'static str, &'static str),
}

impl RedisFixture {
    fn new(port: u16, name: u64) -> Rc<Self> {
        Self::with_script_change(port, name, ("", ""))
    }

    /// Creates a fixture with a script in which a part is replaced.
    fn with_script_change(port: u16, name: u64, change: (&'static str, &'static str)) -> Rc<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let control = "return redis.call(unpack(ARGV))";
        let connection = RefCell::new(RedisConnection::new(RedisEndpoint::local(port), control, TEST_TIMEOUTS));
        let fixture = Self {
            runtime,
            connection,
            port,
            prefix: format!("t{name}"),
            clock: RefCell::default(),
            runs: RefCell::default(),
            saved: RefCell::default(),
            change,
        };
        fixture.new_run();
        fixture.advance(0);
        Rc::new(fixture)
    }

    fn key(&self) -> String {
        format!("{{{}:{QUOTA}}}:leases", self.prefix)
    }

    fn control(&self, words: &[&str]) -> Value {
        let mut call = vec![self.key()];
        call.extend(words.iter().map(|&word| word.to_owned()));
        let mut connection = self.connection.borrow_mut();
        self.runtime.block_on(connection.run(&[&call], Timestamp::default())).expect("the server is up").remove(0)
    }

    /// Runs another script with an argument.
    fn run(&self, script: &'static str, argument: &str) {
        let mut connection = RedisConnection::new(RedisEndpoint::local(self.port), script, TEST_TIMEOUTS);
        let call = [self.key(), argument.to_owned()].to_vec();
        self.runtime.block_on(connection.run(&[&call], Timestamp::default())).expect("the server is up");
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(START) + Duration::from_millis(*self.clock.borrow())
    }

    fn advance(&self, milliseconds: u64) {
        *self.clock.borrow_mut() += milliseconds;
        let (key, now) = (self.key(), self.now());
        let (seconds, micro) = (now.seconds().to_string(), (now.0 / 1000 % 1_000_000).to_string());
        self.control(&["MSET", &format!("{key}:seconds"), &seconds, &format!("{key}:micro"), &micro]);
    }

    fn new_run(&self) {
        *self.runs.borrow_mut() += 1;
        self.control(&["SET", &format!("{}:run", self.key()), &format!("run_id:{:x}", *self.runs.borrow())]);
    }

    /// Saves a copy under another key, because the output of `DUMP` is binary.
    fn save(&self) {
        let copy = format!("{}:saved", self.key());
        self.control(&["COPY", &self.key(), &copy, "REPLACE"]);
        *self.saved.borrow_mut() = Some(copy);
    }

    fn restore(&self) {
        self.control(&["DEL", &self.key()]);
        if let Some(copy) = self.saved.borrow().as_deref() {
            self.control(&["COPY", copy, &self.key(), "REPLACE"]);
        }
        self.new_run();
    }

    fn wipe(&self) {
        self.control(&["DEL", &self.key()]);
    }

    fn store(&self, identity: Incarnation, fallback_enabled: bool) -> RedisStore {
        let mut store = RedisStore::new(RedisEndpoint::local(self.port), &self.prefix, fallback_enabled, identity)
            .with_timeouts(TEST_TIMEOUTS);
        let clock = "redis.call('MGET', key .. ':seconds', key .. ':micro')";
        let run = "redis.call('GET', key .. ':run')";
        if !self.change.0.is_empty() {
            store.client.script = store.client.script.replace(self.change.0, self.change.1);
        }
        store.client.script =
            store.client.script.replace("redis.call('TIME')", clock).replace("redis.call('INFO', 'server')", run);
        store
    }
}

/// Actual usage and lease of a window by one instance.
#[derive(Clone, Copy, Default)]
struct GatewayModel {
    taken: u64,
    held: u64,
}

/// An instance, as its lease refresher and its engine would drive it.
struct SimulatedGateway {
    fixture: Rc<RedisFixture>,
    store: RedisStore,
    /// Usage and leases, by number of the window.
    usage_by_window: BTreeMap<u64, GatewayModel>,
    lookback: u32,
    limit: u64,
    reachable: bool,
    name: u64,
    demand: u64,
    delayed: Vec<Vec<String>>,
    lost: u64,
    last_error: Option<StoreError>,
}

impl SimulatedGateway {
    fn new(fixture: &Rc<RedisFixture>, number: u64, fallback_enabled: bool, lookback: u32) -> Self {
        let store = fixture.store(Incarnation::ephemeral(number), fallback_enabled);
        Self {
            fixture: Rc::clone(fixture),
            store,
            usage_by_window: BTreeMap::new(),
            lookback,
            limit: LIMIT,
            reachable: true,
            name: number,
            demand: 500,
            delayed: Vec::new(),
            lost: 0,
            last_error: None,
        }
    }

    fn window(&self) -> u64 {
        (self.fixture.now().seconds() - START) / LENGTH
    }

    fn lease_request(&self, window: u64, usage: GatewayModel, wanted: u64) -> LeaseRequest {
        let start = Timestamp::from_seconds(START + window * LENGTH);
        let span = Span { start, end: start + Duration::from_secs(LENGTH) };
        LeaseRequest {
            quota: QUOTA.into(),
            limit: Units::from_milli(self.limit),
            window: WindowKey { id: start.0, span: Some(span), lookback: self.lookback },
            taken: Units::from_milli(usage.taken),
            held: Units::from_milli(usage.held),
            wanted: Units::from_milli(wanted),
            urgent: Units::from_milli(self.demand / 10),
            expected_demand: Units::ZERO,
        }
    }

    /// Returns the requests that the refresher would send now: the current window, the next one shortly before its
    /// start, and returns of ended ones.
    fn lease_requests(&mut self) -> Vec<(u64, LeaseRequest)> {
        let current = self.window();
        let second = self.fixture.now().seconds() - START;
        let next = (second + 10) / LENGTH;
        self.usage_by_window.entry(current).or_default();
        self.usage_by_window.entry(next).or_default();
        let numbers: Vec<u64> = self.usage_by_window.keys().copied().collect();
        let mut requests = Vec::new();
        for number in numbers.into_iter().filter(|number| number + 3 >= current) {
            let demand = if number < current { 0 } else { self.demand };
            let usage = self.usage_by_window.entry(number).or_default();
            let wanted = usage.taken + demand;
            // Stop using returned units before the call.
            let before = *usage;
            usage.held = usage.held.min(wanted);
            let request = self.lease_request(number, before, wanted);
            requests.push((number, request));
        }
        requests
    }

    fn refresh(&mut self) {
        let requests = self.lease_requests();
        let list: Vec<LeaseRequest> = requests.iter().map(|(_, request)| request.clone()).collect();
        self.store.client.server = RedisEndpoint::local(if self.reachable { self.fixture.port } else { 1 });
        let now = self.fixture.now();
        let fixture = Rc::clone(&self.fixture);
        match fixture.runtime.block_on(self.store.lease(&list, now)) {
            Ok(leases) => {
                self.last_error = None;
                for ((number, _), lease) in requests.iter().zip(leases) {
                    self.usage_by_window.entry(*number).or_default().held = lease.held.milli();
                    self.lost += lease.lost.milli();
                }
            }
            Err(error) => self.last_error = Some(error),
        }
    }

    /// The server executes the call, but its reply is lost.
    fn refresh_with_lost_reply(&mut self) {
        let list: Vec<LeaseRequest> = self.lease_requests().into_iter().map(|(_, request)| request).collect();
        self.store.client.server = RedisEndpoint::local(self.fixture.port);
        let reported_state = self.store.reported_state.clone();
        let now = self.fixture.now();
        let fixture = Rc::clone(&self.fixture);
        let _ = fixture.runtime.block_on(self.store.run_round(&list, Operation::Lease, now));
        self.store.reported_state = reported_state;
    }

    /// The call is buffered, and the instance has dropped it.
    fn refresh_delayed(&mut self) {
        for (_, request) in self.lease_requests() {
            let call = self.store.encode_call(&request, Operation::Lease, false);
            self.delayed.push(call);
        }
    }

    /// Delivers the buffered calls.
    fn deliver_delayed(&mut self) {
        let calls = std::mem::take(&mut self.delayed);
        let mut connection =
            RedisConnection::new(RedisEndpoint::local(self.fixture.port), &self.store.client.script, TEST_TIMEOUTS);
        let now = self.fixture.now();
        let calls: Vec<&[String]> = calls.iter().map(Vec::as_slice).collect();
        self.fixture.runtime.block_on(connection.run(&calls, now)).expect("the server is up");
    }

    fn spend(&mut self, amount: u64) {
        let current = self.window();
        if let Some(usage) = self.usage_by_window.get_mut(&current) {
            usage.taken += amount.min(usage.held.saturating_sub(usage.taken));
        }
    }

    /// Kills and restarts the instance, which loses its record of the usage.
    fn restart(&mut self, incarnation: u64) {
        let identity = Incarnation::of_instance(&incarnation::token(self.name), incarnation);
        let fallback_enabled = self.store.fallback_enabled;
        self.store = self.fixture.store(identity, fallback_enabled);
        self.usage_by_window.clear();
    }

    /// Returns the maximum usage of a window without another reply from the server.
    fn max_usage(&self, window: u64) -> u64 {
        let id = (START + window * LENGTH) * 1_000_000_000;
        let share = self.store.windows.get(&(QUOTA.to_owned(), id)).map_or(0, |state| state.fallback.milli());
        self.usage_by_window.get(&window).map_or(0, |usage| usage.held.max(usage.taken) + share)
    }

    fn taken(&self) -> u64 {
        self.usage_by_window.get(&self.window()).map_or(0, |usage| usage.taken)
    }
}

/// Several instances, and the usage by their earlier incarnations.
struct GatewayFleet {
    fixture: Rc<RedisFixture>,
    instances: Vec<SimulatedGateway>,
    /// Usage by lost incarnations, by window.
    lost_usage: BTreeMap<u64, u64>,
    last_incarnation: u64,
    lookback: u64,
}

impl GatewayFleet {
    fn new(fixture: &Rc<RedisFixture>, count: u64, fallback_enabled: bool, lookback: u32) -> Self {
        let instances =
            (1..=count).map(|number| SimulatedGateway::new(fixture, number, fallback_enabled, lookback)).collect();
        Self {
            fixture: Rc::clone(fixture),
            instances,
            lost_usage: BTreeMap::new(),
            last_incarnation: 1000,
            lookback: u64::from(lookback),
        }
    }

    /// Advances the time. Each reachable instance sends a request every second.
    fn advance(&mut self, milliseconds: u64) {
        let mut left = milliseconds;
        while left > 0 {
            let step = left.min(1000);
            self.fixture.advance(step);
            left -= step;
            self.instances.iter_mut().for_each(SimulatedGateway::refresh);
        }
    }

    fn check_limit(&self) -> Result<(), String> {
        let windows: std::collections::BTreeSet<u64> =
            self.instances.iter().flat_map(|instance| instance.usage_by_window.keys().copied()).collect();
        for &last in &windows {
            let overlapping = last.saturating_sub(self.lookback)..=last;
            let of_window = |window: u64| -> u64 {
                let live: u64 = self.instances.iter().map(|instance| instance.max_usage(window)).sum();
                live + self.lost_usage.get(&window).copied().unwrap_or(0)
            };
            let sum: u64 = overlapping.map(of_window).sum();
            if sum > LIMIT {
                let each: Vec<u64> = self.instances.iter().map(|instance| instance.max_usage(last)).collect();
                return Err(format!("{sum} of {LIMIT} in window {last}: {each:?}, {:?}", self.lost_usage));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Event {
    Spend(usize, u64),
    SetDemand(usize, u64),
    Refresh(usize),
    RefreshWithLostReply(usize),
    RefreshDelayed(usize),
    DeliverDelayed(usize),
    Disconnect(usize),
    Reconnect(usize),
    Restart(usize),
    Advance(u64),
    Save,
    Restore,
    Wipe(bool),
}

/// What happens more often than else in a scenario. Each rule of the script matters where its kind of event is frequent.
#[derive(Clone, Copy)]
enum Frequent {
    Nothing,
    DelayedCalls,
    Losses,
}

impl Frequent {
    /// Returns the weights of refreshes, delayed calls, disconnects and wipes.
    fn weights(self) -> [u32; 4] {
        match self {
            Self::Nothing => [6, 2, 2, 1],
            Self::DelayedCalls => [6, 8, 2, 1],
            Self::Losses => [8, 2, 4, 3],
        }
    }
}

fn event(frequent: Frequent) -> impl Strategy<Value = Event> {
    let instance = 0usize..3;
    let [refreshes, delays, disconnects, wipes] = frequent.weights();
    prop_oneof![
        8 => (instance.clone(), 0u64..6000).prop_map(|(instance, amount)| Event::Spend(instance, amount)),
        3 => (instance.clone(), 0u64..8000).prop_map(|(instance, amount)| Event::SetDemand(instance, amount)),
        refreshes => instance.clone().prop_map(Event::Refresh),
        2 => instance.clone().prop_map(Event::RefreshWithLostReply),
        delays => instance.clone().prop_map(Event::RefreshDelayed),
        delays => instance.clone().prop_map(Event::DeliverDelayed),
        disconnects => instance.clone().prop_map(Event::Disconnect),
        3 => instance.clone().prop_map(Event::Reconnect),
        2 => instance.prop_map(Event::Restart),
        6 => prop_oneof![6 => 1u64..3000, 2 => Just(5000), 1 => Just(70_000)].prop_map(Event::Advance),
        1 => Just(Event::Save),
        1 => Just(Event::Restore),
        wipes => any::<bool>().prop_map(Event::Wipe),
    ]
}

fn apply(fleet: &mut GatewayFleet, event: &Event) {
    match *event {
        Event::Spend(instance, amount) => fleet.instances[instance].spend(amount),
        Event::SetDemand(instance, amount) => fleet.instances[instance].demand = amount,
        Event::Refresh(instance) => fleet.instances[instance].refresh(),
        Event::RefreshWithLostReply(instance) => fleet.instances[instance].refresh_with_lost_reply(),
        Event::RefreshDelayed(instance) => fleet.instances[instance].refresh_delayed(),
        Event::DeliverDelayed(instance) => fleet.instances[instance].deliver_delayed(),
        // One instance must keep the state: if all lose it, it is lost (docs/GUARANTEES.md).
        Event::Disconnect(instance) if fleet.instances.iter().filter(|instance| instance.reachable).count() > 1 => {
            fleet.instances[instance].reachable = false;
        }
        Event::Disconnect(_) => {}
        Event::Reconnect(instance) => fleet.instances[instance].reachable = true,
        Event::Restart(instance) => {
            fleet.last_incarnation += 1;
            for (window, usage) in &fleet.instances[instance].usage_by_window {
                *fleet.lost_usage.entry(*window).or_default() += usage.taken;
            }
            fleet.instances[instance].delayed.clear();
            fleet.instances[instance].restart(fleet.last_incarnation);
            fleet.instances[instance].reachable = true;
            // The other instances learn of a new one within a second.
            fleet.advance(1000);
        }
        Event::Advance(milliseconds) => fleet.advance(milliseconds),
        Event::Save => fleet.fixture.save(),
        Event::Restore => {
            fleet.instances.iter_mut().for_each(|instance| instance.delayed.clear());
            fleet.fixture.restore();
            fleet.advance(1000);
        }
        Event::Wipe(restarted) => {
            if restarted {
                fleet.instances.iter_mut().for_each(|instance| instance.delayed.clear());
                fleet.fixture.new_run();
            }
            fleet.fixture.wipe();
            fleet.advance(1000);
        }
    }
}

/// Runs `cases` random scenarios on the script, with a part replaced. Returns the first violation of the limit. `seed` is
/// the one of a replaced part.
fn run_scenarios(
    port: u16,
    cases: u32,
    first_name: u64,
    changed: (&'static str, &'static str),
    frequent: Frequent,
    seed: u8,
) -> Result<(), String> {
    let names = std::cell::Cell::new(first_name);
    let shrinking = if changed.0.is_empty() { 1000 } else { 0 };
    let config = ProptestConfig { cases, max_shrink_iters: shrinking, failure_persistence: None, ..Default::default() };
    // A fixed seed, so that a changed script always fails in the same scenario. The seeds are chosen to find it early.
    let mut runner = match changed.0.is_empty() {
        true => TestRunner::new(config),
        false => TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32])),
    };
    let scenarios =
        (proptest::collection::vec(event(frequent), 1..80), any::<bool>(), prop_oneof![Just(0u32), Just(2)]);
    let outcome = runner.run(&scenarios, |(events, fallback_enabled, lookback)| {
        names.set(names.get() + 1);
        let fixture = RedisFixture::with_script_change(port, names.get(), changed);
        let mut fleet = GatewayFleet::new(&fixture, 3, fallback_enabled, lookback);
        fleet.advance(4000);
        for event in &events {
            apply(&mut fleet, event);
            fleet.check_limit().map_err(|message| TestCaseError::fail(format!("after {event:?}: {message}")))?;
        }
        Ok(())
    });
    outcome.map_err(|failure| failure.to_string())
}

/// `TIDEGATE_CASES` sets a number of scenarios beyond the time of a test run.
#[test]
fn usage_never_exceeds_the_limit_in_any_scenario() {
    let redis = real::RedisServer::start(&[]);
    let cases = std::env::var("TIDEGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60);
    run_scenarios(redis.port, cases, 0, ("", ""), Frequent::Losses, 0).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Each rule of the script is necessary: without it, some scenario exceeds the limit.
#[test]
fn every_script_rule_is_necessary() {
    let redis = real::RedisServer::start(&[]);
    let rules = [
        (
            "an overtaken call is executed",
            "request.seq <= own_incarnation.seq then",
            "request.seq < 0 then",
            (Frequent::DelayedCalls, 13),
        ),
        (
            "fallback units are released before the instance confirms",
            "fallback = math.max(known_fallback, fallback),",
            "fallback = fallback,",
            (Frequent::Nothing, 11),
        ),
        ("no instance is waited for", "#missing_holders == 0 then", "true then", (Frequent::Losses, 4)),
        (
            "a server restart is not detected",
            "elseif quota.run_id ~= run_id then",
            "elseif false then",
            (Frequent::Nothing, 1),
        ),
        (
            "reports of other instances' units are ignored",
            "kind == 'h' and windows[name] then",
            "false then",
            (Frequent::Nothing, 1),
        ),
        (
            "later sub-windows are ignored",
            "free = math.min(free, limit - units_counting_in(later_window) - retained)",
            "",
            (Frequent::Nothing, 1),
        ),
        (
            "earlier sub-windows are ignored",
            "if counts_in(other, target) then",
            "if false then",
            (Frequent::Nothing, 1),
        ),
        (
            "reports of other instances' last calls are ignored",
            "tonumber(a) > incarnation.last_call then",
            "false then",
            (Frequent::Losses, 4),
        ),
        (
            "fallback units do not count for others",
            "held_sum + lease.held + lease.fallback, taken_sum",
            "held_sum + lease.held, taken_sum",
            (Frequent::Nothing, 1),
        ),
    ];
    std::thread::scope(|scope| {
        for (number, (defect, rule, without, (frequent, seed))) in (1u64..).zip(rules) {
            assert!(include_str!("script.lua").contains(rule), "{rule}");
            let port = redis.port;
            scope.spawn(move || {
                let outcome = run_scenarios(port, 60, number * 10_000, (rule, without), frequent, seed);
                let found = outcome.expect_err(&format!("{defect}: no scenario of this seed finds it, try others"));
                println!("{defect}: {}", found.lines().next().unwrap_or_default());
            });
        }
    });
}

#[test]
fn nearly_the_whole_limit_can_be_used() {
    let redis = real::RedisServer::start(&[]);
    for (name, fallback_enabled) in [(1, false), (2, true)] {
        let fixture = RedisFixture::new(redis.port, name);
        let mut fleet = GatewayFleet::new(&fixture, 3, fallback_enabled, 0);
        for second in 0..60 {
            fleet.advance(1000);
            fleet.instances.iter_mut().for_each(|instance| {
                instance.spend(300);
                // Model the refresher: about a second of spending, and small steps near the limit.
                instance.demand = if second < 30 { 500 } else { 20 };
            });
            assert_eq!(fleet.check_limit(), Ok(()));
        }
        let taken: u64 = fleet.instances.iter().map(SimulatedGateway::taken).sum();
        assert!(taken >= LIMIT * 99 / 100, "{taken} of {LIMIT}, fallback: {fallback_enabled}");
    }
}

#[test]
fn new_ledger_waits_once_for_known_instances() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, false, 0);
    fleet.advance(2000);
    assert_eq!(fleet.instances[0].max_usage(0), 0);
    fleet.advance(3000);
    assert_eq!(fleet.instances[0].max_usage(0), 500);
    fleet.advance(96_000);
    assert_eq!((fleet.instances[0].window(), fleet.instances[0].max_usage(1)), (1, 500));
}

#[test]
fn missing_instance_closes_only_the_current_window() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 2, false, 0);
    fleet.advance(5000);
    fleet.instances[1].reachable = false;
    fixture.wipe();
    fixture.new_run();
    fleet.advance(10_000);
    fleet.instances[0].spend(500);
    fleet.advance(20_000);
    assert_eq!(fleet.instances[0].max_usage(0), 500, "no new units of this window");
    fleet.advance(70_000);
    assert_eq!((fleet.instances[0].window(), fleet.instances[0].max_usage(1)), (1, 500), "the next window is leased");
    fleet.instances[1].reachable = true;
    fleet.instances[0].spend(500);
    fleet.advance(2000);
    assert_eq!(fleet.instances[0].max_usage(1), 1000, "leases resume once the instance is back");
}

#[test]
fn manual_correction_ends_waiting_for_all_instances() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 2, false, 0);
    fleet.advance(5000);
    fleet.instances[1].reachable = false;
    fixture.wipe();
    fixture.new_run();
    fleet.advance(5000);
    let instance = &mut fleet.instances[0];
    let request = instance.lease_request(0, instance.usage_by_window[&0], 0);
    let corrected = instance.store.correct(&request, Units::from_milli(9_000), fixture.now());
    fixture.runtime.block_on(corrected).expect("the correction succeeds");
    instance.demand = 5000;
    fleet.advance(3000);
    // The unreachable instance holds 500 units of the limit; they count as not taken.
    assert_eq!(fleet.instances[0].max_usage(0), 500);
    let request = fleet.instances[0].lease_request(0, fleet.instances[0].usage_by_window[&0], 500);
    let lease =
        fixture.runtime.block_on(fleet.instances[0].store.lease(&[request], fixture.now())).expect("a lease")[0];
    assert_eq!(lease.taken_by_others, Units::from_milli(9_000));
}

#[test]
fn restarted_instance_loses_the_units_that_it_held() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 2, false, 0);
    fleet.advance(5000);
    fleet.instances[0].spend(100);
    fleet.instances[0].demand = 400;
    fleet.advance(1000);
    fleet.instances[0].restart(77);
    fleet.instances[0].demand = 0;
    fleet.advance(5000);
    assert_eq!(fleet.instances[0].lost, 400);
    fleet.instances[1].demand = 20_000;
    fleet.advance(50_000);
    let (left, others) = (LIMIT - 100 - 400, fleet.instances[1].max_usage(0));
    assert!(others <= left && others + 3 >= left, "{others} of {left}");
}

#[test]
fn disconnected_instance_spends_only_its_fallback() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 2, true, 0);
    fleet.advance(6000);
    let potential = fleet.instances[0].max_usage(0);
    assert!(potential > 1500, "{potential}");
    fleet.instances[0].reachable = false;
    fleet.instances[0].spend(500);
    fleet.instances[1].demand = 20_000;
    for _ in 0..20 {
        fleet.advance(1000);
        fleet.instances[0].spend(u64::MAX);
    }
    assert_eq!(fleet.instances[0].taken(), potential);
    assert!(matches!(fleet.instances[0].last_error, Some(StoreError::Unreachable(_))));
    assert_eq!(fleet.check_limit(), Ok(()));
    fleet.instances[0].reachable = true;
    fleet.advance(2000);
    assert_eq!(fleet.check_limit(), Ok(()));
}

#[test]
fn first_use_windows_are_shared_by_all_instances() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut stores = [1, 2].map(|number| fixture.store(Incarnation::ephemeral(number), false));
    let request = |ordinal, span, taken: u64, held: u64| LeaseRequest {
        quota: QUOTA.into(),
        limit: Units::from_milli(LIMIT),
        window: WindowKey { id: ordinal, span, lookback: 0 },
        taken: Units::from_milli(taken),
        held: Units::from_milli(held),
        wanted: Units::from_milli(9_000),
        urgent: Units::from_milli(1),
        expected_demand: Units::ZERO,
    };
    let mut lease = |store: usize, request: LeaseRequest| {
        fixture.runtime.block_on(stores[store].lease(&[request], fixture.now())).expect("a lease")[0]
    };
    lease(0, request(0, None, 0, 0));
    fixture.advance(4000);
    let first = lease(0, request(0, None, 0, 0));
    assert_eq!((first.held.milli(), first.span), (9_000, None), "the window is not open yet");
    let span = Span { start: fixture.now(), end: fixture.now() + Duration::from_secs(10) };
    lease(0, request(0, Some(span), 1, 9_000));
    let second = lease(1, request(0, None, 0, 0));
    assert_eq!((second.held.milli(), second.span), (500, Some(span)), "the first instance opens the window for all");
    fixture.advance(11_000);
    // Two windows later, an instance without knowledge of the first starts with ordinal 0.
    lease(0, request(1, None, 0, 0));
    let next = Span { start: fixture.now(), end: fixture.now() + Duration::from_secs(10) };
    lease(0, request(1, Some(next), 1, 500));
    fixture.advance(100_000);
    lease(0, request(2, None, 0, 0));
    for (instance, ordinal, held_by_others) in [(3, 0, 9_000), (4, 1, 9_500)] {
        let mut late = fixture.store(Incarnation::ephemeral(instance), false);
        let request = request(ordinal, None, 0, 0);
        let lease = fixture.runtime.block_on(late.lease(&[request], fixture.now())).expect("a lease")[0];
        let others = (lease.held_by_others.milli(), lease.span);
        assert_eq!(others, (held_by_others, None), "a new instance uses the third window");
    }
}

#[test]
fn usage_of_overlapping_window_definitions_counts() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 2, false, 0);
    fleet.advance(5000);
    let instance = &mut fleet.instances[0];
    let mut request = instance.lease_request(0, GatewayModel::default(), LIMIT);
    let span = request.window.span.expect("the window has a span");
    let half = Span { start: span.start + Duration::from_secs(1), end: span.start + Duration::from_secs(50) };
    (request.window.id, request.window.span) = (half.start.0, Some(half));
    for _ in 0..40 {
        let lease =
            fixture.runtime.block_on(instance.store.lease(&[request.clone()], fixture.now())).expect("a lease")[0];
        assert_eq!(lease.held_by_others.milli(), 1000);
        request.held = lease.held;
    }
    assert!(request.held.milli() <= LIMIT - 1000 && request.held.milli() > LIMIT - 1010, "{}", request.held);
}

#[test]
fn clock_skew_error_states_the_offset() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, false, 0);
    fleet.advance(5000);
    let instance = &mut fleet.instances[0];
    let request = instance.lease_request(3, GatewayModel::default(), 100);
    let now = fixture.now() + Duration::from_secs(300);
    let error = fixture.runtime.block_on(instance.store.lease(&[request], now)).expect_err("the window is not open");
    let message = "no leases for api; synchronize clocks (NTP)";
    assert_eq!(
        error.to_string(),
        format!("clock skew of +300 s against redis at 127.0.0.1:{}: {message}", fixture.port)
    );
    fixture.advance(300_000);
    let request = instance.lease_request(0, GatewayModel::default(), 1000);
    let now = fixture.now() - Duration::from_secs(300);
    let error = fixture.runtime.block_on(instance.store.lease(&[request], now)).expect_err("the window has ended");
    assert!(matches!(error, StoreError::ClockSkew { is_ahead: false, .. }), "{error}");
}

#[test]
fn limits_up_to_the_largest_are_exact() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let limit = 1 << 53;
    let mut fleet = GatewayFleet::new(&fixture, 2, false, 0);
    for instance in &mut fleet.instances {
        (instance.limit, instance.demand) = (limit, limit / 2 - 1);
    }
    fleet.advance(60_000);
    let all: u64 = fleet.instances.iter().map(|instance| instance.max_usage(0)).sum();
    assert!(all <= limit && all >= limit - 4, "{all} of {limit}");
}

const BROKEN: &str = "broken";

/// Returns a request for a quota that the server cannot lease, because its key holds another type.
fn broken_request(fixture: &RedisFixture, like: &LeaseRequest) -> LeaseRequest {
    fixture.control(&["SET", &fixture.key().replace(QUOTA, BROKEN), "not a ledger"]);
    LeaseRequest { quota: BROKEN.into(), ..like.clone() }
}

#[test]
fn error_of_one_quota_leaves_the_others_leased() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, false, 0);
    fleet.advance(5000);
    let instance = &mut fleet.instances[0];
    assert_eq!(instance.store.last_error(), None);
    let usage = instance.usage_by_window[&0];
    let healthy = instance.lease_request(0, usage, 700);
    let [taken, held, wanted] = [30, 50, 40].map(Units::from_milli);
    let broken = LeaseRequest { taken, held, wanted, ..broken_request(&fixture, &healthy) };
    let lost_before =
        WindowState { lease: Lease { lost: Units::from_milli(5), ..Lease::default() }, ..WindowState::default() };
    instance.store.windows.insert((BROKEN.into(), broken.window.id), lost_before);
    let mut lease = |requests: &[LeaseRequest]| fixture.runtime.block_on(instance.store.lease(requests, fixture.now()));

    let leases = lease(&[broken.clone(), healthy.clone()]).expect("one quota is leased");
    assert_eq!((leases[0].held, leases[0].lost), (wanted, Units::ZERO), "neither more units nor a second loss");
    assert_eq!(leases[1].held.milli(), 700);
    assert!(lease(&[broken.clone(), LeaseRequest { held: leases[1].held, ..healthy }]).is_err(), "no lease grew");
    assert!(lease(std::slice::from_ref(&broken)).is_err());
    let store = &mut instance.store;
    assert!(fixture.runtime.block_on(store.correct(&broken, Units::ZERO, fixture.now())).is_err());
}

#[test]
fn error_of_a_quota_is_the_one_of_the_last_round() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, false, 0);
    fleet.advance(5000);
    let instance = &mut fleet.instances[0];
    let healthy = instance.lease_request(0, instance.usage_by_window[&0], 700);
    let requests = [broken_request(&fixture, &healthy), healthy];
    fixture.runtime.block_on(instance.store.lease(&requests, fixture.now())).expect("one quota is leased");
    let error = instance.store.last_error().expect("one quota is not leased");
    assert!(error.starts_with("redis at 127.0.0.1:"), "{error}");
    fixture.runtime.block_on(instance.store.lease(&requests[1..], fixture.now())).expect("a lease");
    assert_eq!(instance.store.last_error(), None);
}

#[test]
fn lost_state_is_reported_with_the_missing_instance_until_it_returns() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 2, false, 0);
    let message = |fleet: &GatewayFleet| fleet.instances[0].store.last_error().unwrap_or_default();
    fleet.advance(1000);
    assert!(
        message(&fleet).contains("has no state of api: leases start in about three seconds"),
        "{}",
        message(&fleet)
    );
    fleet.advance(4000);
    assert_eq!(message(&fleet), "");
    fleet.advance(100_000);
    fleet.instances[1].reachable = false;
    fixture.wipe();
    fixture.new_run();
    fleet.advance(5000);
    let missing = format!("instance {} has not reported", fleet.instances[1].store.incarnation.holder);
    assert!(message(&fleet).contains(&missing), "{} of {missing}", message(&fleet));
    fleet.instances[1].reachable = true;
    fleet.advance(2000);
    assert_eq!(message(&fleet), "");
}

#[test]
fn fallback_leases_neither_lose_units_twice_nor_drop_other_windows() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, true, 0);
    fleet.advance(6000);
    let instance = &mut fleet.instances[0];
    let usage = instance.usage_by_window[&0];
    let known = instance.lease_request(0, usage, usage.held + 100);
    instance.store.windows.get_mut(&(QUOTA.into(), known.window.id)).expect("leased").lease.lost = Units::from_milli(5);
    let unknown = instance.lease_request(1, GatewayModel { taken: 10, held: 30 }, 20);
    instance.store.client.server = RedisEndpoint::local(1);
    let leases =
        fixture.runtime.block_on(instance.store.lease(&[known, unknown], fixture.now())).expect("fallback units");
    assert_eq!((leases[0].held.milli(), leases[0].lost), (usage.held + 100, Units::ZERO));
    assert_eq!(leases[1].held.milli(), 20);
}

#[test]
fn fallback_units_in_use_are_a_problem_until_the_server_is_back() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, true, 0);
    fleet.advance(6000);
    let instance = &mut fleet.instances[0];
    assert_eq!(instance.store.last_error(), None);
    let request = instance.lease_request(0, instance.usage_by_window[&0], 100);
    let server = std::mem::replace(&mut instance.store.client.server, RedisEndpoint::local(1));
    let lease = |store: &mut RedisStore| {
        fixture.runtime.block_on(store.lease(std::slice::from_ref(&request), fixture.now())).expect("units");
    };
    lease(&mut instance.store);
    let problem = instance.store.last_error().expect("the server is unreachable");
    assert!(problem.starts_with("cannot reach redis at 127.0.0.1:1: "), "{problem}");
    assert!(problem.ends_with(". Fallback units are used until it is available"), "{problem}");
    instance.store.client.server = server;
    lease(&mut instance.store);
    assert_eq!(instance.store.last_error(), None);
}

#[test]
fn idle_windows_are_forgotten() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, false, 0);
    fleet.advance(5000);
    let instance = &mut fleet.instances[0];
    let idle = instance.lease_request(0, instance.usage_by_window[&0], 500);
    let used = instance.lease_request(1, GatewayModel::default(), 0);
    let is_known =
        |store: &RedisStore, window: &LeaseRequest| store.windows.contains_key(&(QUOTA.into(), window.window.id));
    for _ in 0..2 * MAX_IDLE_ROUNDS {
        assert!(is_known(&instance.store, &idle));
        fixture.runtime.block_on(instance.store.lease(std::slice::from_ref(&used), fixture.now())).expect("a lease");
        if !is_known(&instance.store, &idle) {
            break;
        }
    }
    assert!(!is_known(&instance.store, &idle) && is_known(&instance.store, &used));
}

#[test]
fn clock_skew_is_an_error_only_if_it_prevents_a_lease() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let mut fleet = GatewayFleet::new(&fixture, 1, false, 0);
    fleet.advance(5000);
    let instance = &mut fleet.instances[0];
    let usage = instance.usage_by_window[&0];
    let [more, no_more, all] =
        [usage.held + 1, usage.held, 2 * LIMIT].map(|wanted| instance.lease_request(0, usage, wanted));
    let skewed = |seconds: u64| fixture.now() + Duration::from_secs(seconds);
    let mut is_error = |request: &LeaseRequest, now| {
        fixture.runtime.block_on(instance.store.lease(std::slice::from_ref(request), now)).is_err()
    };
    assert!(!is_error(&all, skewed(300)), "the window is open, although the limit ends the lease");
    fixture.advance(LENGTH * 1000);
    assert_eq!([0, 1, 2].map(|seconds| is_error(&more, skewed(seconds))), [false, false, true], "the window has ended");
    assert!(!is_error(&no_more, skewed(300)));
}

#[test]
fn database_of_the_endpoint_is_used() {
    let redis = real::RedisServer::start(&[]);
    let fixture = RedisFixture::new(redis.port, 1);
    let request = SimulatedGateway::new(&fixture, 1, false, 0).lease_request(0, GatewayModel::default(), 100);
    for (database, exists) in [(3, 0), (0, 1)] {
        let server = RedisEndpoint { database, ..RedisEndpoint::local(redis.port) };
        let mut store =
            RedisStore::new(server, &fixture.prefix, false, Incarnation::ephemeral(1)).with_timeouts(TEST_TIMEOUTS);
        let _ = fixture.runtime.block_on(store.lease(std::slice::from_ref(&request), fixture.now()));
        assert_eq!(fixture.control(&["EXISTS", &fixture.key()]), Value::Int(exists), "database {database}");
    }
}

#[test]
fn timeouts_are_those_of_the_store() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("an address").port();
    let short = Timeouts { connect: Duration::from_millis(1), reply: Duration::from_millis(1) };
    let mut store =
        RedisStore::new(RedisEndpoint::local(port), "t", false, Incarnation::ephemeral(1)).with_timeouts(short);
    let key = WindowKey { id: 0, span: None, lookback: 0 };
    let request = LeaseRequest {
        quota: QUOTA.into(),
        limit: Units::ZERO,
        window: key,
        taken: Units::ZERO,
        held: Units::ZERO,
        wanted: Units::ZERO,
        urgent: Units::ZERO,
        expected_demand: Units::ZERO,
    };
    let error =
        runtime.block_on(store.lease(&[request], Timestamp::default())).expect_err("no server responds").to_string();
    assert!(error.contains("timed out after 1ms"), "{error}");
}

#[test]
fn one_gateway_at_a_time_orders_a_certificate() {
    let redis = real::RedisServer::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let gateway = |name: &str| {
        let mut shared = SharedCertificates::new(RedisEndpoint::local(redis.port), "site", name.to_owned());
        shared.client.timeouts = TEST_TIMEOUTS;
        shared
    };
    let now = Timestamp::from_seconds(START);
    let later = now + Duration::from_secs(60);
    let (mut first, mut second) = (gateway("first"), gateway("second"));
    runtime.block_on(async {
        let sync = async |gateway: &mut SharedCertificates, id, now| {
            gateway.sync("example.com", id, true, now).await.expect("a reply")
        };
        assert!(!first.sync("example.com", "", false, now).await.expect("a reply").may_order, "none is due");
        assert!(sync(&mut first, "", now).await.may_order);
        assert!(sync(&mut first, "", now).await.may_order, "after a restart of its order");
        first.publish("example.com", "challenges", now).await.expect("a reply");
        let seen = sync(&mut second, "", now).await;
        assert_eq!((seen.may_order, seen.challenges.as_str()), (false, "challenges"));
        assert!(second.sync("example.org", "", true, now).await.expect("a reply").may_order, "another certificate");

        // After a failure, both wait.
        first.fail("example.com", later, 3, "no such domain", now).await.expect("a reply");
        for gateway in [&mut first, &mut second] {
            let seen = sync(gateway, "", now).await;
            assert_eq!((seen.may_order, seen.retry_at, seen.failures), (false, later, 3));
            assert_eq!((seen.error.as_str(), seen.challenges.as_str()), ("no such domain", ""));
        }

        // One that is gone holds the order for a while, and is not heard then.
        assert!(sync(&mut first, "", later).await.may_order);
        assert!(!sync(&mut second, "", later).await.may_order);
        redis.cli(&["HSET", "{site}:certificate:example.com", "held_until", "1"]);
        assert!(sync(&mut second, "", later).await.may_order);
        first.publish("example.com", "others", later).await.expect("a reply");
        first.fail("example.com", later + Duration::from_secs(60), 4, "late", later).await.expect("a reply");
        let seen = sync(&mut second, "", later).await;
        assert_eq!((seen.may_order, seen.challenges.as_str(), seen.error.as_str()), (true, "", "no such domain"));

        // The newest certificate stays.
        second.store("example.com", "b", "pem", START + 100, later).await.expect("a reply");
        first.store("example.com", "a", "old", START + 50, later).await.expect("a reply");
        let seen = sync(&mut first, "a", later).await;
        assert_eq!((seen.may_order, seen.id.as_str(), seen.pem.as_deref()), (false, "b", Some("pem")));
        assert_eq!((seen.starts_at, seen.failures, seen.error.as_str()), (START + 100, 0, ""));
        let seen = sync(&mut second, "b", later).await;
        assert_eq!((seen.may_order, seen.pem), (true, None), "the next one");

        // A gateway without a secret keeps its certificate, and the others may order at once.
        first.release("example.com", later).await.expect("a reply");
        assert!(!sync(&mut first, "", later).await.may_order, "the order is not its own");
        second.release("example.com", later).await.expect("a reply");
        let seen = sync(&mut first, "", later).await;
        assert_eq!((seen.may_order, seen.id.as_str(), seen.pem, seen.starts_at), (true, "", None, 0));
        redis.cli(&["FLUSHALL"]);
        assert!(sync(&mut second, "b", later).await.may_order, "of a server that lost its data");
    });
}
