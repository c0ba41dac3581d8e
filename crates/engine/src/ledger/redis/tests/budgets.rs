//! The script of the budgets on a real server, with the leases of simulated instances, in all windows that keys can have.

use super::*;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_lease::{KeyBalance, KeyLeaseCall, KeyLeases, KeyReply, MAX_ROWS};
use tidegate_policy::key_usage::KeyWindows;

const LIMIT: u64 = 60;
const LENGTH: Duration = Duration::from_secs(120);
/// Number of keys that are counted apart, more than there are.
const MANY: usize = 100;

/// A fixed window is long enough for all steps.
const OF_QUOTA: Span = Span { start: Timestamp::from_seconds(START), end: Timestamp::from_seconds(START + 100_000) };

fn units(whole: u64) -> Units {
    Units::from_whole(whole)
}

fn key(number: u64) -> ClientKey {
    ClientKey::from_credential(number)
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    instance: usize,
    key: u64,
    /// Id of the window to settle.
    window: u64,
    at: Timestamp,
    /// Time at which the window of the key ends, as the instance knows.
    renewal: Timestamp,
    cost: u64,
    is_settled: bool,
}

/// One gateway.
struct Instance {
    leases: KeyLeases,
    store: RedisStore,
    /// Calls that the ledger has executed, with its replies, which have not arrived.
    in_flight: Vec<(KeyLeaseCall, KeyReply)>,
}

/// Gateways that share the budgets of one quota.
struct Fleet {
    fixture: Rc<RedisFixture>,
    windows: KeyWindows,
    max_keys: usize,
    max_rows: usize,
    instances: Vec<Instance>,
    runs: u64,
    admitted: Vec<Admitted>,
}

#[derive(Clone, Debug)]
enum Step {
    Request {
        instance: usize,
        key: u64,
        cost: u64,
    },
    /// A request that waits for a lease.
    RequestWithLease {
        instance: usize,
        key: u64,
        cost: u64,
    },
    /// Settles the latest request in flight at a share of its cost.
    Settle {
        quarters: u64,
    },
    Exchange {
        instance: usize,
        is_tick: bool,
    },
    /// Calls the ledger. The replies arrive with the next step that calls it.
    Send {
        instance: usize,
        is_tick: bool,
    },
    LoseReply {
        instance: usize,
    },
    Advance {
        milliseconds: u64,
    },
    Run {
        seconds: u64,
    },
    Kill {
        instance: usize,
    },
    Close {
        instance: usize,
    },
    Wipe,
}

impl Fleet {
    fn new(fixture: &Rc<RedisFixture>, windows: KeyWindows) -> Self {
        Self::with_max_keys(fixture, windows, MANY)
    }

    fn with_max_keys(fixture: &Rc<RedisFixture>, windows: KeyWindows, max_keys: usize) -> Self {
        let mut fleet = Self {
            fixture: Rc::clone(fixture),
            windows,
            max_keys,
            max_rows: MAX_ROWS,
            instances: Vec::new(),
            runs: 0,
            admitted: Vec::new(),
        };
        for number in 0..3 {
            let instance = fleet.start(number);
            fleet.instances.push(instance);
        }
        // A new server waits for instances.
        (0..3).for_each(|instance| fleet.exchange(instance, true));
        fixture.advance(3500);
        (0..3).for_each(|instance| fleet.exchange(instance, true));
        fleet
    }

    fn start(&mut self, number: usize) -> Instance {
        self.runs += 1;
        let mut store = self.fixture.store(Incarnation::of_instance(&format!("instance{number}"), self.runs), false);
        let key = self.fixture.key();
        let clock = format!("redis.call('MGET', '{key}:seconds', '{key}:micro')");
        let run = format!("redis.call('GET', '{key}:run')");
        let mut script = std::mem::take(&mut store.budgets.client.script);
        let (rule, replacement) = self.fixture.change;
        if !rule.is_empty() {
            script = script.replace(rule, replacement);
        }
        store.budgets.client.script =
            script.replace("redis.call('TIME')", &clock).replace("redis.call('INFO', 'server')", &run);
        Instance { leases: KeyLeases::new(self.windows, self.max_keys), store, in_flight: Vec::new() }
    }

    fn window(&self) -> Span {
        self.windows.table_span(OF_QUOTA, self.fixture.now())
    }

    fn call(&mut self, instance: usize, call: &KeyLeaseCall) -> KeyReply {
        let (now, store) = (self.fixture.now(), &mut self.instances[instance].store);
        self.fixture.runtime.block_on(store.lease_keys(call, now)).expect("the server is up")
    }

    /// Returns the next calls, which are made once all replies to earlier ones have arrived.
    fn calls(&mut self, instance: usize, is_tick: bool) -> Vec<KeyLeaseCall> {
        self.deliver(instance);
        let (window, now) = (self.window(), self.fixture.now());
        self.instances[instance].leases.calls(QUOTA, window, now, is_tick, self.max_rows)
    }

    /// Exchanges leases as the refresher does, until no more is to be said at once.
    fn exchange(&mut self, instance: usize, is_tick: bool) {
        let mut has_more = self.round(instance, is_tick);
        while has_more {
            has_more = self.round(instance, false);
        }
    }

    /// Makes one call for each window. Returns true if there is more to be said.
    fn round(&mut self, instance: usize, is_tick: bool) -> bool {
        self.send(instance, is_tick);
        self.deliver(instance)
    }

    fn send(&mut self, instance: usize, is_tick: bool) {
        for call in self.calls(instance, is_tick) {
            let reply = self.call(instance, &call);
            self.instances[instance].in_flight.push((call, reply));
        }
    }

    fn deliver(&mut self, instance: usize) -> bool {
        let mut has_more = false;
        for (call, reply) in std::mem::take(&mut self.instances[instance].in_flight) {
            self.instances[instance].leases.apply(&call, &reply);
            has_more |= match reply {
                KeyReply::Granted(_) => call.has_more,
                KeyReply::ReportRequested { .. } => true,
                KeyReply::NotOpen => false,
            };
        }
        has_more
    }

    /// Admits a request that the leases cover. Else requests one.
    fn request(&mut self, instance: usize, number: u64, cost: u64) -> bool {
        let (window, now, limit) = (self.window(), self.fixture.now(), units(LIMIT));
        let leases = &mut self.instances[instance].leases;
        let KeyBalance { taken, leased } = leases.balance(window.start.0, key(number), limit, units(cost), now);
        let after = taken.saturating_add(units(cost));
        if after > limit {
            return false;
        }
        if after > leased {
            leases.request(window, key(number), limit, units(cost), now);
            return false;
        }
        let (settled_in, _) = leases.reserve(window, key(number), limit, units(cost), now);
        let renewal = leases.renewal(window.start.0, key(number), now).unwrap_or(OF_QUOTA.end);
        let admitted =
            Admitted { instance, key: number, window: settled_in, at: now, renewal, cost, is_settled: false };
        self.admitted.push(admitted);
        true
    }

    /// Requests until the key is refused for its limit, and exchanges leases. Returns the number of requests admitted.
    fn spend(&mut self, instance: usize, number: u64, cost: u64) -> u64 {
        (0..100).filter(|_| self.request_with_lease(instance, number, cost)).count() as u64
    }

    /// Admits a request at once or after a lease.
    fn request_with_lease(&mut self, instance: usize, number: u64, cost: u64) -> bool {
        self.request(instance, number, cost) || {
            self.exchange(instance, false);
            self.request(instance, number, cost)
        }
    }

    fn settle(&mut self, quarters: u64) {
        let Some(request) = self.admitted.iter_mut().rev().find(|request| !request.is_settled) else { return };
        let charged = (request.cost * quarters).div_ceil(4);
        let Admitted { instance, key: number, window, cost, .. } = *request;
        (request.cost, request.is_settled) = (charged, true);
        self.instances[instance].leases.settle(window, key(number), units(cost), units(charged));
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Request { instance, key, cost } => _ = self.request(instance, key, cost),
            Step::RequestWithLease { instance, key, cost } => _ = self.request_with_lease(instance, key, cost),
            Step::Settle { quarters } => self.settle(quarters),
            Step::Exchange { instance, is_tick } => _ = self.round(instance, is_tick),
            Step::Send { instance, is_tick } => self.send(instance, is_tick),
            Step::LoseReply { instance } => {
                for call in self.calls(instance, false) {
                    self.call(instance, &call);
                    self.instances[instance].leases.requeue(&call);
                }
            }
            Step::Advance { milliseconds } => self.fixture.advance(milliseconds),
            // Instances call once a second.
            Step::Run { seconds } => {
                for _ in 0..seconds {
                    self.fixture.advance(997);
                    (0..3).for_each(|instance| self.exchange(instance, true));
                }
            }
            Step::Kill { instance } => {
                self.instances[instance] = self.start(instance);
                self.admitted.iter_mut().filter(|it| it.instance == instance).for_each(|it| it.is_settled = true);
            }
            Step::Close { instance } => {
                self.admitted.iter_mut().filter(|it| it.instance == instance).for_each(|it| it.is_settled = true);
                for call in self.instances[instance].leases.last_report(QUOTA, self.fixture.now()) {
                    self.call(instance, &call);
                }
                self.instances[instance] = self.start(instance);
            }
            Step::Wipe => {
                let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end return 0";
                let pattern = self.fixture.key().replace(":leases", ":budgets*");
                self.fixture.run(script, &pattern);
                self.fixture.new_run();
                self.fixture.advance(1);
            }
        }
    }

    /// Returns an error if the latest admitted request takes its key beyond the limit, in a window of its own, or in the span of a
    /// sliding one that ends then.
    fn check_limit(&self) -> Result<(), String> {
        let Some(last) = self.admitted.last() else { return Ok(()) };
        let counts = |earlier: &&Admitted| match self.windows {
            KeyWindows::Sliding { .. } => last.at < earlier.at + LENGTH,
            KeyWindows::OfQuota | KeyWindows::FirstUse { .. } => earlier.renewal == last.renewal,
        };
        let of_key = || self.admitted.iter().filter(|earlier| earlier.key == last.key && earlier.cost > 0);
        let used: u64 = of_key().filter(counts).map(|earlier| earlier.cost).sum();
        if used > LIMIT {
            return Err(format!("{used} of {LIMIT} used with {last:?}"));
        }
        let overlaps = |earlier: &&Admitted| {
            let apart = Duration::from_nanos(earlier.renewal.0.abs_diff(last.renewal.0));
            !apart.is_zero() && apart < LENGTH
        };
        let is_first_use = matches!(self.windows, KeyWindows::FirstUse { .. }) && last.cost > 0;
        match of_key().find(overlaps).filter(|_| is_first_use) {
            Some(earlier) => Err(format!("windows overlap: {earlier:?} {last:?}")),
            None => Ok(()),
        }
    }
}

fn step(loses_data: bool, keys: u64) -> impl Strategy<Value = Step> {
    let run = prop_oneof![4 => 0_u64..4, 1 => 0_u64..150].prop_map(|seconds| Step::Run { seconds });
    let advance =
        prop_oneof![4 => 0_u64..4000, 1 => 0_u64..150_000].prop_map(|milliseconds| Step::Advance { milliseconds });
    let end = (0_usize..3, any::<bool>())
        .prop_map(|(instance, is_killed)| if is_killed { Step::Kill { instance } } else { Step::Close { instance } });
    let (time, loss) =
        if loses_data { (run.boxed(), Just(Step::Wipe).boxed()) } else { (advance.boxed(), end.boxed()) };
    prop_oneof![
        15 => (0_usize..3, 0_u64..keys, 1_u64..30)
            .prop_map(|(instance, key, cost)| Step::Request { instance, key, cost }),
        15 => (0_usize..3, 0_u64..keys, 1_u64..30)
            .prop_map(|(instance, key, cost)| Step::RequestWithLease { instance, key, cost }),
        10 => (0_u64..=4).prop_map(|quarters| Step::Settle { quarters }),
        25 => (0_usize..3, any::<bool>()).prop_map(|(instance, is_tick)| Step::Exchange { instance, is_tick }),
        5 => (0_usize..3, any::<bool>()).prop_map(|(instance, is_tick)| Step::Send { instance, is_tick }),
        3 => (0_usize..3).prop_map(|instance| Step::LoseReply { instance }),
        10 => time,
        2 => loss,
    ]
}

fn all_windows() -> [KeyWindows; 3] {
    [KeyWindows::OfQuota, KeyWindows::sliding(LENGTH), KeyWindows::FirstUse { length: LENGTH }]
}

/// Runs random steps, with a part of the script replaced. Returns the first excess of a limit.
fn run_steps(
    port: u16,
    windows: KeyWindows,
    loses_data: bool,
    max_keys: usize,
    first_name: u64,
    config: &ProptestConfig,
    change: (&'static str, &'static str),
) -> Result<(), String> {
    let names = std::cell::Cell::new(first_name);
    let steps = proptest::collection::vec(step(loses_data, if max_keys == MANY { 2 } else { 6 }), 1..150);
    let config = ProptestConfig { failure_persistence: None, ..config.clone() };
    let mut runner = match change.0 {
        "" => TestRunner::new(config),
        // A changed script always fails in the same scenario.
        _ => TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32])),
    };
    let outcome = runner.run(&steps, |steps| {
        names.set(names.get() + 1);
        let mut fleet =
            Fleet::with_max_keys(&RedisFixture::with_script_change(port, names.get(), change), windows, max_keys);
        // Reports take several rounds, between which anything may happen.
        fleet.max_rows = if loses_data { 1 } else { MAX_ROWS };
        for step in &steps {
            fleet.apply(step);
            fleet.check_limit().map_err(|message| TestCaseError::fail(format!("after {step:?}: {message}")))?;
        }
        Ok(())
    });
    outcome.map_err(|failure| failure.to_string())
}

/// In any order of requests, settlements, calls, lost replies, clean and unclean ends, and losses of all data.
/// `TIDEGATE_CASES` sets a number of scenarios beyond the time of a test run.
#[test]
fn no_key_gets_more_than_its_limit_in_any_window_from_all_instances() {
    let redis = real::RedisServer::start(&[]);
    let cases = std::env::var("TIDEGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(30);
    let [of_quota, sliding, _] = all_windows();
    let usual = all_windows().into_iter().flat_map(|windows| [(windows, false, MANY), (windows, true, MANY)]);
    let flooded = [(of_quota, false, 2), (sliding, false, 2)];
    for (first_name, (windows, loses_data, max_keys)) in (1..).map(|row| 1_000_000 * row).zip(usual.chain(flooded)) {
        let config = ProptestConfig { cases, ..Default::default() };
        run_steps(redis.port, windows, loses_data, max_keys, first_name, &config, ("", ""))
            .unwrap_or_else(|failure| panic!("{windows:?}, {max_keys} keys: {failure}"));
    }
}

/// Each rule for windows of keys is necessary: without it, some scenario exceeds a limit.
#[test]
fn every_rule_of_windows_of_keys_is_necessary() {
    let [_, sliding, first_use] = all_windows();
    let rules = [
        (sliding, false, 2, ("closed.held + units", "closed.held")),
        (sliding, false, MANY, ("held_by_others + held_before - limit", "held_by_others - limit")),
        (
            sliding,
            true,
            MANY,
            ("request.counts_from <= quota.recovery_start", "request.starts <= quota.recovery_start"),
        ),
        (first_use, false, MANY, ("before and not has_ended(before)", "false")),
        (first_use, true, MANY, ("operation == 'report' and remaining > 0", "false")),
    ];
    let redis = real::RedisServer::start(&[]);
    for (first_name, (windows, loses_data, max_keys, change)) in (1..).map(|rule| 1_000_000 * rule).zip(rules) {
        assert!(include_str!("../budgets.lua").contains(change.0), "{change:?}");
        let config = ProptestConfig { cases: 300, max_shrink_iters: 0, ..Default::default() };
        let outcome = run_steps(redis.port, windows, loses_data, max_keys, first_name, &config, change);
        assert!(outcome.is_err(), "no scenario needs {change:?}");
    }
}

impl Fleet {
    /// Returns the time after which the key can pay, once the ledger has refused.
    fn wait(&mut self, instance: usize, number: u64, cost: u64) -> Duration {
        assert!(!self.request(instance, number, cost), "the budget is spent");
        self.exchange(instance, false);
        assert!(!self.request(instance, number, cost), "the budget is spent");
        let (window, now) = (self.window(), self.fixture.now());
        let renewal =
            self.instances[instance].leases.renewal(window.start.0, key(number), now).expect("a window of the key");
        renewal.saturating_duration_since(now)
    }

    fn advance(&self, time: Duration) {
        self.fixture.advance(u64::try_from(time.as_millis()).expect("a short time"));
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn units_of_a_sliding_window_come_back_when_promised() {
    let redis = real::RedisServer::start(&[]);
    let mut fleet = Fleet::new(&RedisFixture::new(redis.port, 1), KeyWindows::sliding(LENGTH));
    assert_eq!(fleet.spend(0, 1, 1), LIMIT, "all instances have the whole limit together");
    (0..3).for_each(|instance| assert!(fleet.wait(instance, 1, 1) >= LENGTH));

    assert_eq!((0..20).filter(|_| fleet.request_with_lease(0, 2, 1)).count(), 20);
    fleet.advance(LENGTH / 4);
    assert_eq!(fleet.spend(1, 2, 1), LIMIT - 20);
    // Units of both times are needed for the dearer request.
    let (of_first, of_both) = (fleet.wait(2, 2, 10), fleet.wait(2, 2, 30));
    assert!(of_first >= LENGTH - LENGTH / 4 && of_first < LENGTH, "{of_first:?}");
    assert_eq!(of_both, of_first + LENGTH / 4);
    assert_eq!(fleet.wait(2, 2, 10), of_both, "known for the dearer one");
    fleet.advance(of_first - MILLISECOND);
    assert_eq!(fleet.wait(2, 2, 10), MILLISECOND);
    fleet.advance(MILLISECOND);
    assert_eq!(fleet.spend(2, 2, 1), 20);
    assert_eq!(fleet.wait(0, 2, 10), LENGTH / 4);
    assert_eq!(fleet.check_limit(), Ok(()));
}

#[test]
fn instances_share_the_window_that_a_key_opens() {
    let redis = real::RedisServer::start(&[]);
    let mut fleet = Fleet::new(&RedisFixture::new(redis.port, 1), KeyWindows::FirstUse { length: LENGTH });
    assert_eq!(fleet.spend(0, 1, 1), LIMIT);
    assert_eq!(fleet.wait(1, 1, 1), LENGTH);
    fleet.advance(LENGTH / 2);
    assert!(fleet.request_with_lease(1, 2, 1));
    fleet.advance(LENGTH / 2 - MILLISECOND);
    assert_eq!([0, 2].map(|instance| fleet.wait(instance, 1, 1)), [MILLISECOND; 2]);
    fleet.advance(MILLISECOND);
    assert_eq!(fleet.spend(2, 1, 1), LIMIT, "the window of this key has ended");
    assert_eq!(fleet.spend(0, 2, 1), LIMIT - 1, "that of the other has not");
    assert_eq!(fleet.wait(2, 2, 1), LENGTH / 2);
    assert_eq!(fleet.check_limit(), Ok(()));
}

#[test]
fn replaced_windows_give_no_units_twice() {
    let redis = real::RedisServer::start(&[]);
    let pairs = (0..9).map(|pair| [pair / 3, pair % 3]).filter(|[before, after]| before != after);
    for (name, [before, after]) in (1..).zip(pairs.map(|pair| pair.map(|index| all_windows()[index]))) {
        let mut fleet = Fleet::new(&RedisFixture::new(redis.port, name), before);
        (0..40).for_each(|_| assert!(fleet.request_with_lease(0, 1, 1)));
        fleet.windows = after;
        let (window, now) = (fleet.window(), fleet.fixture.now());
        for instance in &mut fleet.instances {
            instance.leases.redefine(OF_QUOTA.start.0, after, window, now);
        }
        fleet.exchange(0, true);
        // Of a request that was decided before: more than expected.
        fleet.instances[0].leases.settle(fleet.admitted[0].window, key(1), units(1), units(3));
        fleet.exchange(0, true);
        assert_eq!(fleet.spend(1, 1, 1), LIMIT - 42, "{before:?} {after:?}");
    }
}

#[test]
fn lost_replies_and_moves_to_the_span_before_leak_nothing() {
    let redis = real::RedisServer::start(&[]);
    for (name, windows) in (1..).zip(all_windows()) {
        let mut fleet = Fleet::new(&RedisFixture::new(redis.port, name), windows);
        for _ in 0..4 {
            assert!(!fleet.request(0, 1, 5), "{windows:?}: no lease");
            fleet.apply(&Step::LoseReply { instance: 0 });
        }
        assert_eq!(fleet.spend(0, 1, 5), LIMIT / 5, "{windows:?}");
        // A window that another instance has opened in the span before.
        assert!(fleet.request_with_lease(0, 2, 1));
        fleet.advance(LENGTH - MILLISECOND);
        assert!(!fleet.request(1, 2, 1));
        let calls = fleet.calls(1, false);
        assert!(!fleet.request(1, 2, 1), "requested once more meanwhile");
        for call in calls {
            let reply = fleet.call(1, &call);
            assert!(matches!(reply, KeyReply::Granted(_)), "{reply:?}");
            fleet.instances[1].leases.apply(&call, &reply);
        }
        assert_eq!(fleet.spend(1, 2, 1), LIMIT - 1, "{windows:?}");
    }
}

#[test]
fn reply_is_for_no_lease_that_has_taken_the_place_of_its_own() {
    let redis = real::RedisServer::start(&[]);
    for (name, windows) in (1..).zip(all_windows()) {
        let mut fleet = Fleet::with_max_keys(&RedisFixture::new(redis.port, name), windows, 2);
        (0..20).for_each(|_| assert!(fleet.request_with_lease(0, 1, 1), "{windows:?}"));
        assert!(fleet.request_with_lease(0, 2, 1), "{windows:?}");
        (0..3).for_each(|_| fleet.exchange(0, true));
        assert!(!fleet.request(0, 1, 5), "{windows:?}: it was idle");
        fleet.send(0, true);
        assert!(!fleet.request(0, 3, 1), "{windows:?}: it has no lease");
        assert!(!fleet.request(0, 1, 5), "{windows:?}: it waits for the reply");
        fleet.deliver(0);
        assert_eq!(fleet.spend(0, 1, 1), LIMIT - 20, "{windows:?}");
    }
}

#[test]
fn request_in_flight_that_costs_nothing_is_refunded_while_made_up_keys_come() {
    let redis = real::RedisServer::start(&[]);
    for (name, windows) in (1..).zip(all_windows()) {
        let mut fleet = Fleet::with_max_keys(&RedisFixture::new(redis.port, name), windows, 5);
        (1..=2).for_each(|key| assert!(fleet.request_with_lease(0, key, 20), "{windows:?}"));
        (0..3).for_each(|_| fleet.exchange(0, true));
        for made_up in 10..20 {
            if fleet.request_with_lease(0, made_up, 1) {
                fleet.settle(4);
            }
        }
        (1..=2).for_each(|_| fleet.settle(0));
        (0..3).for_each(|_| fleet.exchange(0, true));
        let spent = (1..=2).map(|key| fleet.spend(1, key, 1)).collect::<Vec<_>>();
        assert_eq!(spent, [LIMIT; 2], "{windows:?}");
    }
}

#[test]
fn report_goes_on_over_lost_replies_and_begins_anew_after_another_loss() {
    let redis = real::RedisServer::start(&[]);
    for (name, windows) in (1..).zip(all_windows()) {
        let mut fleet = Fleet::new(&RedisFixture::new(redis.port, name), windows);
        (1..=4).for_each(|key| assert_eq!(fleet.spend(0, key, 1), LIMIT, "{windows:?}"));
        fleet.exchange(0, true);
        fleet.max_rows = 1;
        fleet.apply(&Step::Wipe);
        fleet.round(0, true);
        let reported = |fleet: &mut Fleet| {
            let calls = fleet.calls(0, false);
            let reply = fleet.call(0, &calls[0]);
            (calls.into_iter().next().expect("a call of the report"), reply)
        };
        let mut keys = Vec::new();
        for is_lost in [false, true, false] {
            let (call, reply) = reported(&mut fleet);
            keys.extend(call.rows.iter().map(|row| row.key));
            if is_lost {
                fleet.instances[0].leases.requeue(&call);
            } else {
                fleet.instances[0].leases.apply(&call, &reply);
            }
        }
        assert_eq!(keys, [1, 2, 2].map(key), "{windows:?}: only the lost row once more");
        fleet.apply(&Step::Wipe);
        (0..3).for_each(|instance| fleet.exchange(instance, true));
        fleet.advance(Duration::from_secs(4));
        (0..3).for_each(|instance| fleet.exchange(instance, true));
        let spent: u64 = (1..=4).map(|key| fleet.spend(1, key, 1)).sum();
        assert_eq!(spent, 0, "{windows:?}");
        assert_eq!(fleet.spend(1, 5, 1), LIMIT, "{windows:?}: the report has ended");
    }
}

#[test]
fn window_that_counts_no_more_is_unlinked() {
    let redis = real::RedisServer::start(&[]);
    for (name, windows) in (1..).zip(all_windows()) {
        let fixture = RedisFixture::new(redis.port, name);
        let mut fleet = Fleet::new(&fixture, windows);
        let pattern = fixture.key().replace(":leases", ":budgets:*");
        let hashes = || fixture.control(&["KEYS", &pattern]);
        let is_empty = |hashes: &Value| *hashes == Value::Array(Vec::new());
        assert!(fleet.request_with_lease(0, 1, 1), "{windows:?}");
        let window = fleet.window();
        assert!(!is_empty(&hashes()), "{windows:?}");
        fleet.advance(Duration::from_nanos(windows.counts_until(window).0 - fixture.now().0));
        fleet.windows = KeyWindows::FirstUse { length: 2 * LENGTH };
        fleet.instances[0] = fleet.start(0);
        fleet.exchange(0, true);
        assert!(!is_empty(&hashes()), "{windows:?}: the clock may be set back");
        fleet.advance(Duration::from_secs(61));
        fleet.exchange(0, true);
        assert!(is_empty(&hashes()), "{windows:?}: {:?}", hashes());
    }
}

/// Keys that share a budget and are counted apart afterwards have no second one.
#[test]
fn flood_gives_no_key_a_second_budget() {
    let redis = real::RedisServer::start(&[]);
    for (name, windows) in (1..).zip(all_windows()) {
        let mut fleet = Fleet::with_max_keys(&RedisFixture::new(redis.port, name), windows, 2);
        fleet.advance(LENGTH / 12 * 11);
        (10..15).for_each(|made_up| _ = fleet.request_with_lease(0, made_up, 1));
        let shared = fleet.spend(1, 1, 1);
        assert!(shared > LIMIT / 2 && shared <= LIMIT, "{windows:?}: {shared}");
        fleet.advance(LENGTH / 6);
        (0..3).for_each(|instance| fleet.exchange(instance, true));
        let later: u64 = (0..3).map(|instance| fleet.spend(instance, 1, 1)).sum();
        assert!(shared + later <= LIMIT, "{windows:?}: {shared} and {later}");
    }
}
