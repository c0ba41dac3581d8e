//! Background task that refreshes the leases of the engine from a ledger, on its own thread.

use super::store::{Lease, LeaseRequest, Store, StoreError};
use crate::{Engine, LeaseMode};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_policy::Timestamp;
use tidegate_policy::key_lease::KeyReply;
use tokio::sync::Notify;
use tracing::{info, warn};

/// Maximum time between two refreshes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between two refreshes while a lease does not cover the current need.
const SHORTFALL_INTERVAL: Duration = Duration::from_millis(50);
/// Minimum time between two refreshes, so that quotas that run low together are refreshed together.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Number of consecutive failures of which one is logged.
const WARN_EVERY_FAILURES: u32 = 60;

/// Wakes a sleeping lease refresher. Created before the engine and the refresher that share it.
#[derive(Clone, Default)]
pub struct WakeHandle(Arc<Notify>);

/// Refreshes leases from a ledger until it is closed.
pub struct LeaseRefresher {
    wake_handle: WakeHandle,
    shared: Arc<RefresherState>,
    lease_updates: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct RefresherState {
    progress: Mutex<RefreshProgress>,
    progressed: Condvar,
}

#[derive(Default)]
struct RefreshProgress {
    started_count: u64,
    ended_count: u64,
    ready: bool,
    stopping: bool,
    last_error: Option<String>,
}

/// Time that refreshes take. A long one, such as one with a sync, counts less and less for the next seconds.
#[derive(Default)]
struct RefreshTime {
    longest: Duration,
    ended_at: Timestamp,
}

impl RefreshTime {
    /// Time after which a refresh no longer counts.
    const MAX_AGE: Duration = Duration::from_secs(4);

    fn at(&self, now: Timestamp) -> Duration {
        let left = Self::MAX_AGE.saturating_sub(now.saturating_duration_since(self.ended_at));
        self.longest.mul_f64(left.as_secs_f64() / Self::MAX_AGE.as_secs_f64())
    }

    fn record(&mut self, started_at: Timestamp, ended_at: Timestamp) {
        let took = ended_at.saturating_duration_since(started_at);
        if took >= self.at(ended_at) {
            *self = Self { longest: took, ended_at };
        }
    }
}

impl WakeHandle {
    /// Returns the lease mode of an engine that wakes the refresher through this handle.
    pub fn lease_mode(&self) -> LeaseMode {
        let wake_handle = Arc::clone(&self.0);
        LeaseMode::Leased(Arc::new(move || wake_handle.notify_one()))
    }

    /// Returns the same for a ledger that several instances share.
    pub fn shared_lease_mode(&self) -> LeaseMode {
        let wake_handle = Arc::clone(&self.0);
        LeaseMode::Shared(Arc::new(move || wake_handle.notify_one()))
    }
}

impl LeaseRefresher {
    /// Refreshes the leases of `engine` from `store`, whenever it is woken and at least once a second.
    pub fn start<S: Store>(
        store: S,
        engine: Arc<Engine>,
        wake_handle: WakeHandle,
        now: impl Fn() -> Timestamp + Send + 'static,
    ) -> io::Result<Self> {
        let (shared, lease_updates) = (Arc::new(RefresherState::default()), Arc::new(Notify::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = {
            let (wake_handle, shared, lease_updates) =
                (wake_handle.clone(), Arc::clone(&shared), Arc::clone(&lease_updates));
            let refresh = move || runtime.block_on(run(store, &engine, &wake_handle, &shared, &lease_updates, now));
            std::thread::Builder::new().name("ledger".into()).spawn(refresh)?
        };
        Ok(Self { wake_handle, shared, lease_updates, thread: Mutex::new(Some(thread)) })
    }

    /// Returns a handle that is notified after each response of the ledger.
    pub fn lease_updates(&self) -> Arc<Notify> {
        Arc::clone(&self.lease_updates)
    }

    /// Returns true once the ledger has responded without an error.
    pub fn is_ready(&self) -> bool {
        self.shared.progress.lock().ready
    }

    /// Returns the current error of the ledger, if any.
    pub fn last_error(&self) -> Option<String> {
        self.shared.progress.lock().last_error.clone()
    }

    /// Waits until a refresh that starts after this call has ended. Returns false if that takes longer than the
    /// timeout.
    pub fn flush(&self, timeout: Duration) -> bool {
        let mut progress = self.shared.progress.lock();
        let target = progress.started_count + 1;
        self.wake_handle.0.notify_one();
        let waiting = |progress: &mut RefreshProgress| progress.ended_count < target && !progress.stopping;
        !self.shared.progressed.wait_while_for(&mut progress, waiting, timeout).timed_out()
    }

    /// Returns held units that are not taken. No units may be taken afterwards.
    pub fn close(&self) {
        self.shared.progress.lock().stopping = true;
        self.wake_handle.0.notify_one();
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            warn!("Lease thread panicked: held units count as used");
        }
    }
}

impl Drop for LeaseRefresher {
    /// Closes the refresher, also if a later step of the start fails: else its leases would count as lost in a crash.
    fn drop(&mut self) {
        self.close();
    }
}

async fn run<S: Store>(
    mut store: S,
    engine: &Engine,
    wake_handle: &WakeHandle,
    shared: &RefresherState,
    lease_updates: &Notify,
    now: impl Fn() -> Timestamp,
) {
    let mut failures = 0;
    let mut last_tick = Timestamp::default();
    let mut refresh_time = RefreshTime::default();
    loop {
        let stopping = {
            let mut progress = shared.progress.lock();
            progress.started_count += 1;
            progress.stopping
        };
        let started_at = now();
        let round = if stopping {
            release_all(&mut store, engine, started_at).await.map(|()| REFRESH_INTERVAL)
        } else {
            let is_tick = started_at.saturating_duration_since(last_tick) >= REFRESH_INTERVAL || started_at < last_tick;
            if is_tick {
                last_tick = started_at;
            }
            let refreshed = refresh_once(&mut store, engine, started_at, refresh_time.at(started_at)).await;
            let keys_refreshed = refresh_keys(&mut store, engine, started_at, is_tick).await;
            refreshed.and_then(|is_satisfied| Ok(pause_after(is_satisfied).min(keys_refreshed?)))
        };
        refresh_time.record(started_at, now());
        let pause = *round.as_ref().unwrap_or(&REFRESH_INTERVAL);
        match &round {
            Ok(_) if failures > 0 => {
                failures = 0;
                info!("Ledger available again");
            }
            Ok(_) => {}
            Err(error) => {
                if failures % WARN_EVERY_FAILURES == 0 {
                    warn!("Ledger unavailable: {error}. {}", consequence(shared.progress.lock().ready));
                }
                failures += 1;
            }
        }
        {
            let mut progress = shared.progress.lock();
            progress.ended_count = progress.started_count;
            progress.ready |= round.is_ok();
            progress.last_error = match &round {
                Ok(_) => store.last_error(),
                Err(error) => Some(error.to_string()),
            };
            shared.progressed.notify_all();
            lease_updates.notify_waiters();
        }
        if stopping {
            return;
        }
        let _ = tokio::time::timeout(pause, wake_handle.0.notified()).await;
        tokio::time::sleep(MIN_INTERVAL).await;
    }
}

/// Returns the time until the next refresh; `is_satisfied` is true if no lease lacks units that may come soon.
const fn pause_after(is_satisfied: bool) -> Duration {
    if is_satisfied { REFRESH_INTERVAL } else { SHORTFALL_INTERVAL }
}

/// Returns what an unavailable ledger means for requests. `has_leased` is true if it has responded before.
fn consequence(has_leased: bool) -> &'static str {
    match has_leased {
        true => "Requests are admitted until the current leases are used up",
        false => "It has not responded since the start, so there are no leases: requests that cost units are refused",
    }
}

/// Refreshes all leases in one call. Returns true if each lease covers the current need.
async fn refresh_once<S: Store>(
    store: &mut S,
    engine: &Engine,
    now: Timestamp,
    refresh_time: Duration,
) -> Result<bool, StoreError> {
    correct(store, engine, now).await?;
    let requests = engine.lease_requests(now, refresh_time);
    if requests.is_empty() {
        return Ok(true);
    }
    match store.lease(&requests, now).await {
        Ok(leases) => {
            engine.apply_leases(&requests, &leases, now);
            Ok(requests.iter().zip(&leases).all(is_satisfied))
        }
        Err(error) => {
            if matches!(error, StoreError::Unreachable(_)) {
                engine.enable_fallback();
            }
            Err(error)
        }
    }
}

/// Refreshes leases of keys that need it, a bounded number of each quota: further ones wait until all quotas had their turn.
/// Returns the time until the next refresh.
async fn refresh_keys<S: Store>(
    store: &mut S,
    engine: &Engine,
    now: Timestamp,
    is_tick: bool,
) -> Result<Duration, StoreError> {
    let calls = engine.key_lease_calls(now, is_tick);
    let mut pause = REFRESH_INTERVAL;
    // A call at a time: units that one returns are not used until its reply.
    for (index, call) in calls.iter().enumerate() {
        let reply = store.lease_keys(call, now).await;
        let reply = reply.inspect_err(|_| calls[index..].iter().for_each(|call| engine.requeue_key_leases(call)))?;
        let is_satisfied = engine.apply_key_leases(call, &reply);
        let continues = call.has_more && matches!(reply, KeyReply::Granted(_));
        pause = pause.min(if continues { Duration::ZERO } else { pause_after(is_satisfied) });
    }
    Ok(pause)
}

async fn release_all<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<(), StoreError> {
    correct(store, engine, now).await?;
    let closed = store.close(&engine.last_lease_requests(now), now).await;
    for call in engine.last_report_of_keys(now) {
        store.lease_keys(&call, now).await?;
    }
    closed
}

async fn correct<S: Store>(store: &mut S, engine: &Engine, now: Timestamp) -> Result<(), StoreError> {
    for (request, used) in engine.pending_corrections(now) {
        if let Err(error) = store.correct(&request, used, now).await {
            if !matches!(error, StoreError::Refused(_)) {
                engine.requeue_correction(&request);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Returns false if more units are available than were leased, and they are needed soon.
fn is_satisfied((request, lease): (&LeaseRequest, &Lease)) -> bool {
    let needed = request
        .taken
        .saturating_add(request.urgent)
        .min(request.wanted)
        .min(request.limit.saturating_sub(lease.held_by_others));
    lease.held >= needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Admission;
    use std::collections::HashMap;
    use std::pin::pin;
    use tidegate_policy::budget::{Budget, BudgetKey};
    use tidegate_policy::fixtures;
    use tidegate_policy::identity::ClientKey;
    use tidegate_policy::key_lease::{Beyond, KeyGrant, KeyLeaseCall, KeyLeaseRow, KeyOperation};
    use tidegate_policy::quota::Quota;
    use tidegate_policy::throttle::Scope;
    use tidegate_policy::{ClassId, RouteId, Rules, Units};

    const NOON: Timestamp = Timestamp::from_seconds(43_200);
    /// Upper bound of a wait for the thread; tests end at its event.
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A ledger that grants what the test says, and records its calls.
    #[derive(Clone)]
    struct FakeStore(Arc<Mutex<FakeLedger>>);

    struct FakeLedger {
        calls: Vec<(&'static str, usize)>,
        grant: fn(&LeaseRequest) -> Lease,
        error: Option<fn() -> StoreError>,
        problem: Option<String>,
    }

    impl FakeStore {
        fn new() -> Self {
            let grant = |request: &LeaseRequest| Lease { held: request.wanted, ..Lease::default() };
            Self(Arc::new(Mutex::new(FakeLedger { calls: Vec::new(), grant, error: None, problem: None })))
        }

        fn call(&self, name: &'static str, count: usize) -> Result<(), StoreError> {
            let mut ledger = self.0.lock();
            ledger.calls.push((name, count));
            ledger.error.map_or(Ok(()), |error| Err(error()))
        }

        /// Takes the names of the calls, each with its number of requests.
        fn take_calls(&self) -> Vec<(&'static str, usize)> {
            std::mem::take(&mut self.0.lock().calls)
        }

        fn fail(&self, error: fn() -> StoreError) {
            self.0.lock().error = Some(error);
        }

        fn recover(&self) {
            self.0.lock().error = None;
        }
    }

    impl Store for FakeStore {
        async fn lease(&mut self, requests: &[LeaseRequest], _: Timestamp) -> Result<Vec<Lease>, StoreError> {
            self.call("lease", requests.len())?;
            let grant = self.0.lock().grant;
            Ok(requests.iter().map(grant).collect())
        }

        fn last_error(&self) -> Option<String> {
            self.0.lock().problem.clone()
        }

        async fn close(&mut self, requests: &[LeaseRequest], _: Timestamp) -> Result<(), StoreError> {
            self.call("close", requests.len())
        }

        async fn correct(&mut self, _: &LeaseRequest, used: Units, _: Timestamp) -> Result<(), StoreError> {
            self.call("correct", used.floor() as usize)
        }
    }

    fn unreachable() -> StoreError {
        StoreError::Unreachable("ledger: gone".into())
    }

    fn refused() -> StoreError {
        StoreError::Refused("not here".into())
    }

    /// An engine with quotas of 1000 units, and its ledger.
    struct Fixture {
        store: FakeStore,
        engine: Arc<Engine>,
        admission: Admission,
        wake_handle: WakeHandle,
    }

    impl Fixture {
        fn new(quotas: &[&str]) -> Self {
            let wake_handle = WakeHandle::default();
            let engine = Engine::new(wake_handle.lease_mode(), 10);
            let rules = Rules {
                classes: vec![fixtures::class("all")],
                quotas: quotas.iter().map(|name| fixtures::quota(name, 1000)).collect(),
                routes: vec![fixtures::route(if quotas.is_empty() { &[] } else { &[(0, 1)] })],
                scopes: vec![Scope::unthrottled("default")],
                ..fixtures::rules()
            };
            let admission = engine.admission(Arc::new(rules), NOON);
            Self { store: FakeStore::new(), engine, admission, wake_handle }
        }

        fn refresh(&self) -> Result<bool, StoreError> {
            block_on(refresh_once(&mut self.store.clone(), &self.engine, NOON, Duration::ZERO))
        }

        fn correct(&self, used: u64) {
            self.admission.set_used("api", Units::from_whole(used), NOON).expect("the quota exists");
        }

        fn admits(&self) -> bool {
            self.admission.admit(ClientKey::from_u64(1), ClassId(0), RouteId(0), "/", NOON).permit.is_some()
        }

        fn start(&self) -> LeaseRefresher {
            let (store, engine) = (self.store.clone(), Arc::clone(&self.engine));
            LeaseRefresher::start(store, engine, self.wake_handle.clone(), || NOON).expect("a thread")
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(future)
    }

    fn lease_request(taken: u64, urgent: u64, wanted: u64) -> LeaseRequest {
        let mut requests = Vec::new();
        let fixture = Fixture::new(&["api"]);
        requests.append(&mut fixture.engine.lease_requests(NOON, Duration::ZERO));
        let [taken, urgent, wanted] = [taken, urgent, wanted].map(Units::from_whole);
        LeaseRequest { taken, urgent, wanted, ..requests.remove(0) }
    }

    #[test]
    fn lease_satisfies_if_it_covers_the_urgent_need_or_all_that_is_available() {
        let satisfies = |request: &LeaseRequest, held: u64, others: u64| {
            let [held, held_by_others] = [held, others].map(Units::from_whole);
            is_satisfied((request, &Lease { held, held_by_others, ..Lease::default() }))
        };
        let request = lease_request(5, 10, 50);
        assert_eq!([14, 15].map(|held| satisfies(&request, held, 0)), [false, true]);
        assert_eq!([985, 986].map(|others| satisfies(&request, 14, others)), [false, true]);
        assert!(satisfies(&lease_request(5, 10, 12), 12, 0), "no more is wanted");
    }

    #[test]
    fn all_quotas_are_leased_in_one_call() {
        let fixture = Fixture::new(&["api", "export"]);
        assert!(fixture.refresh().expect("the ledger responds"));
        assert_eq!(fixture.store.take_calls(), [("lease", 2)]);
        assert!(fixture.admits());
        fixture.store.0.lock().grant = |request| {
            if request.quota == "api" { Lease::default() } else { Lease { held: request.wanted, ..Lease::default() } }
        };
        assert!(!fixture.refresh().expect("the ledger responds"), "one lease is short");
        let unlimited = Fixture::new(&[]);
        assert!(unlimited.refresh().expect("nothing is needed"));
        assert_eq!(unlimited.store.take_calls(), []);
    }

    #[test]
    fn correction_precedes_the_leases_until_the_ledger_answers_it() {
        let fixture = Fixture::new(&["api"]);
        fixture.correct(20);
        fixture.store.fail(unreachable);
        for _ in 0..2 {
            assert!(fixture.refresh().is_err());
            assert_eq!(fixture.store.take_calls(), [("correct", 20)]);
        }
        fixture.store.recover();
        fixture.refresh().expect("the ledger responds");
        assert_eq!(fixture.store.take_calls(), [("correct", 20), ("lease", 1)]);
        fixture.correct(30);
        fixture.store.fail(refused);
        assert!(fixture.refresh().is_err());
        fixture.store.recover();
        fixture.store.take_calls();
        fixture.refresh().expect("the ledger responds");
        assert_eq!(fixture.store.take_calls(), [("lease", 1)], "a refused correction is not repeated");
    }

    #[test]
    fn fallback_units_are_for_an_unreachable_ledger_only() {
        for (error, is_admitted) in [(unreachable as fn() -> StoreError, true), (refused, false)] {
            let fixture = Fixture::new(&["api"]);
            fixture.store.0.lock().grant = |_| Lease { fallback: Units::from_whole(5), ..Lease::default() };
            fixture.refresh().expect("the ledger responds");
            assert!(!fixture.admits());
            fixture.store.fail(error);
            assert!(fixture.refresh().is_err());
            assert_eq!(fixture.admits(), is_admitted);
        }
    }

    #[test]
    fn refresher_reports_whether_the_ledger_works() {
        let fixture = Fixture::new(&["api"]);
        fixture.store.fail(unreachable);
        let refresher = fixture.start();
        assert!(refresher.flush(TIMEOUT) && !refresher.is_ready());
        assert_eq!(refresher.last_error().as_deref(), Some("cannot reach ledger: gone"));
        fixture.store.recover();
        assert!(refresher.flush(TIMEOUT) && refresher.is_ready());
        assert_eq!(refresher.last_error(), None);
        fixture.store.0.lock().problem = Some("the disk is slow".into());
        assert!(refresher.flush(TIMEOUT));
        assert_eq!(refresher.last_error().as_deref(), Some("the disk is slow"));
        fixture.store.fail(unreachable);
        assert!(refresher.flush(TIMEOUT) && refresher.is_ready(), "it was ready before");
    }

    #[test]
    fn consequence_of_an_unavailable_ledger_depends_on_whether_there_are_leases() {
        assert!(consequence(false).ends_with("there are no leases: requests that cost units are refused"));
        assert!(consequence(true).ends_with("until the current leases are used up"));
    }

    #[test]
    fn flush_refreshes_after_its_call_and_notifies() {
        let fixture = Fixture::new(&["api"]);
        let refresher = fixture.start();
        let call_count = |_| {
            fixture.store.take_calls();
            let lease_updates = refresher.lease_updates();
            let mut notified = pin!(lease_updates.notified());
            notified.as_mut().enable();
            assert!(refresher.flush(TIMEOUT));
            block_on(notified);
            fixture.store.take_calls().len()
        };
        let fewest = (0..20).map(call_count).min();
        assert_eq!(fewest, Some(1), "one refresh, unless another had begun");
    }

    #[test]
    fn long_refresh_counts_less_and_less_for_four_seconds() {
        let ms = Duration::from_millis;
        let mut refresh_time = RefreshTime::default();
        assert_eq!(refresh_time.at(NOON), Duration::ZERO);
        refresh_time.record(NOON - ms(20), NOON);
        refresh_time.record(NOON + ms(999), NOON + ms(1000));
        assert_eq!(
            [0, 1000, 2000, 4000, 9000].map(|after| refresh_time.at(NOON + ms(after))),
            [20, 15, 10, 0, 0].map(ms)
        );
        refresh_time.record(NOON + ms(1970), NOON + ms(2000));
        assert_eq!(refresh_time.at(NOON + ms(2000)), ms(30), "a longer one counts at once");
    }

    #[test]
    fn engine_wakes_the_refresher() {
        let wake_handle = WakeHandle::default();
        let LeaseMode::Leased(wake) = wake_handle.lease_mode() else { panic!("units are leased") };
        wake();
        block_on(wake_handle.0.notified());
    }

    #[test]
    fn closed_refresher_has_returned_its_units_and_makes_no_further_calls() {
        let fixture = Fixture::new(&["api"]);
        let refresher = fixture.start();
        assert!(refresher.flush(TIMEOUT));
        fixture.correct(7);
        refresher.close();
        let calls = fixture.store.take_calls();
        assert_eq!(calls.iter().filter(|(name, _)| *name == "close").count(), 1, "{calls:?}");
        assert_eq!(calls.last(), Some(&("close", 1)));
        assert!(calls.contains(&("correct", 7)));
        assert!(refresher.flush(TIMEOUT), "nothing to wait for");
        drop(refresher);
        assert_eq!(fixture.store.take_calls(), []);
        drop(fixture.start());
        assert_eq!(fixture.store.take_calls().last(), Some(&("close", 1)), "a dropped refresher is closed");
    }

    /// A ledger of budgets of keys that records its calls: operation, quota and number of rows.
    struct KeyLedger {
        calls: Vec<(KeyOperation, String, usize)>,
        reply: fn(&KeyLeaseCall) -> Result<KeyReply, StoreError>,
    }

    impl KeyLedger {
        fn new(reply: fn(&KeyLeaseCall) -> Result<KeyReply, StoreError>) -> Self {
            Self { calls: Vec::new(), reply }
        }

        fn refresh(&mut self, engine: &Engine, is_tick: bool) -> Result<Duration, StoreError> {
            block_on(refresh_keys(self, engine, NOON, is_tick))
        }
    }

    impl Store for KeyLedger {
        async fn lease(&mut self, _: &[LeaseRequest], _: Timestamp) -> Result<Vec<Lease>, StoreError> {
            Ok(Vec::new())
        }

        async fn close(&mut self, _: &[LeaseRequest], _: Timestamp) -> Result<(), StoreError> {
            Ok(())
        }

        async fn lease_keys(&mut self, call: &KeyLeaseCall, _: Timestamp) -> Result<KeyReply, StoreError> {
            self.calls.push((call.operation, call.quota.clone(), call.rows.len()));
            (self.reply)(call)
        }
    }

    /// Returns the admission of requests that are charged to two budgets of their client each, or, on the second route, to one.
    fn two_budgets() -> Admission {
        let budget = |name: &str| {
            let budget = Budget {
                per: BudgetKey::Client,
                class_limits: HashMap::new(),
                key_limits: HashMap::new(),
                class_keys: vec![ClientKey::of_class("all")],
                max_keys: 10_000,
                has_metrics_by_key: false,
            };
            Quota { budget: Some(budget), ..fixtures::quota(name, 1000) }
        };
        let rules = Rules {
            classes: vec![fixtures::class("all")],
            quotas: vec![budget("a"), budget("b")],
            routes: vec![fixtures::route(&[(0, 1), (1, 1)]), fixtures::route(&[(0, 1)])],
            scopes: vec![Scope::unthrottled("default")],
            ..fixtures::rules()
        };
        let engine = Engine::new(WakeHandle::default().shared_lease_mode(), 10_000);
        engine.admission(Arc::new(rules), NOON)
    }

    /// Requests a lease of each budget of a route for a client.
    fn request_lease(admission: &Admission, client: u64, route: RouteId) {
        assert!(admission.admit(ClientKey::from_u64(client), ClassId(0), route, "/", NOON).permit.is_none());
    }

    fn granted(call: &KeyLeaseCall) -> Result<KeyReply, StoreError> {
        let grant = |row: &KeyLeaseRow| KeyGrant::Counted {
            held: row.wanted,
            taken_by_others: Units::ZERO,
            forgotten: Units::ZERO,
            beyond: Beyond::Nothing,
        };
        Ok(KeyReply::Granted(call.rows.iter().map(grant).collect()))
    }

    #[test]
    fn all_budgets_ask_before_the_first_is_reported_and_no_key_is_forgotten() {
        let admission = two_budgets();
        request_lease(&admission, 1, RouteId(0));
        let mut ledger = KeyLedger::new(|call| match call.operation {
            KeyOperation::Lease => Ok(KeyReply::ReportRequested { loss: 1 }),
            _ => Err(unreachable()),
        });
        let is_due = ledger.refresh(admission.engine(), true).expect("the ledger responds");
        assert_eq!(is_due, SHORTFALL_INTERVAL);
        assert!(ledger.refresh(admission.engine(), false).is_err());
        ledger.reply = granted;
        // The report once more, and then the leases.
        for _ in 0..2 {
            ledger.refresh(admission.engine(), false).expect("the ledger responds");
        }
        let report = KeyOperation::Report { loss: 1, is_last: true };
        let call = |operation, quota: &str, rows| (operation, quota.to_owned(), rows);
        let (leases, reports) = (
            ["a", "b"].map(|quota| call(KeyOperation::Lease, quota, 1)),
            ["a", "b"].map(|quota| call(report, quota, 0)),
        );
        assert_eq!(ledger.calls, [&leases[..], &reports[..1], &reports[..], &leases[..]].concat());
    }

    #[test]
    fn keys_of_a_flood_wait_until_other_quotas_had_their_turn() {
        const FLOOD: u64 = 1_300;
        let admission = two_budgets();
        (1..FLOOD).for_each(|client| request_lease(&admission, client, RouteId(1)));
        request_lease(&admission, FLOOD, RouteId(0));
        let mut ledger = KeyLedger::new(granted);
        let mut round = || {
            let pause = ledger.refresh(admission.engine(), false).expect("the ledger responds");
            let calls = std::mem::take(&mut ledger.calls).into_iter();
            (calls.map(|(_, quota, rows)| (quota, rows)).collect::<Vec<_>>(), pause)
        };
        let call = |quota: &str, rows| (quota.to_owned(), rows);
        assert_eq!(round(), (vec![call("a", 500), call("b", 1)], Duration::ZERO));
        assert_eq!(round(), (vec![call("a", 500)], Duration::ZERO));
        assert_eq!(round(), (vec![call("a", 300)], REFRESH_INTERVAL));
    }

    #[test]
    fn report_of_many_keys_goes_on_after_a_lost_reply_and_leaves_other_quotas_their_turn() {
        let admission = two_budgets();
        (1..=1_300).for_each(|client| request_lease(&admission, client, RouteId(1)));
        let mut ledger = KeyLedger::new(granted);
        (0..3).for_each(|_| _ = ledger.refresh(admission.engine(), false).expect("the ledger responds"));
        ledger.reply = |_| Ok(KeyReply::ReportRequested { loss: 1 });
        ledger.refresh(admission.engine(), true).expect("the ledger responds");
        ledger.calls.clear();
        let mut rows = Vec::new();
        for number in 0..5 {
            // The second reply is lost.
            ledger.reply = if number == 1 { |_| Err(unreachable()) } else { granted };
            request_lease(&admission, 2_000 + number, RouteId(0));
            let _ = ledger.refresh(admission.engine(), false);
            rows.extend(std::mem::take(&mut ledger.calls).into_iter().map(|(_, quota, rows)| (quota, rows)));
        }
        let of = |name: &str| -> Vec<usize> {
            rows.iter().filter(|(quota, _)| quota == name).map(|(_, rows)| *rows).collect()
        };
        assert_eq!(of("a"), [500, 500, 500, 300, 0], "no row is reported again, but those of the lost reply");
        assert!(of("b").len() >= 4, "{rows:?}");
    }
}
