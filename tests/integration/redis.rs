//! Several instances and a real Redis: the limit is never exceeded, also when the server fails, and it can be used up.

use crate::support::TIMEOUT;
use crate::support::origin::Origin;
use crate::support::redis::RedisServer;
use crate::support::wait::{pass_real_time, wait_for, wait_until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_engine::ledger::redis::{
    HostPort, Incarnation, RedisAddress, RedisEndpoint, SharedCertificates, SharedSessionSecret, SharedSwitches,
    Timeouts,
};
use tidegate_engine::ledger::{Lease, LeaseRequest, RedisStore, Store, StoreError, WindowKey};
use tidegate_engine::switch_store::SwitchEntry;
use tidegate_policy::window::Span;
use tidegate_policy::{Timestamp, Units};

pub(super) const LIMIT: u64 = 1_000_000;
/// Lease interval of the tests, shorter than the default of about one second.
const LEASE_INTERVAL: Duration = Duration::from_millis(50);

#[test]
fn three_instances_spend_one_quota_completely() {
    run_three_instances(&[], true, |_, _| {});
}

#[test]
fn redis_restart_without_data_reopens_no_quota() {
    run_three_instances(&[], true, |redis, _| redis.restart());
}

#[test]
fn redis_restart_with_old_data_reopens_no_quota() {
    run_three_instances(&[], false, |redis, progress| {
        redis.cli(&["SAVE"]);
        progress.wait_for_spent(LIMIT / 2);
        redis.restart();
    });
}

#[test]
fn deleted_redis_data_reopens_no_quota() {
    run_three_instances(&[], false, |redis, _| drop(redis.cli(&["FLUSHALL"])));
}

/// Freezes the server for longer than the time after which instances lease from their fallback shares. Longer outages
/// behave the same.
#[test]
fn frozen_redis_switches_instances_to_fallback() {
    run_three_instances(&[], true, |redis, _| {
        redis.set_frozen(true);
        pass_real_time(Duration::from_secs(3));
        redis.set_frozen(false);
    });
}

#[test]
fn redis_client_pause_switches_to_fallback() {
    run_three_instances(&[], true, |redis, _| drop(redis.cli(&["CLIENT", "PAUSE", "2500", "ALL"])));
}

#[test]
fn unusable_redis_endpoints_give_clear_errors() {
    let error = lease_error(local_endpoint(Origin::unreachable().port()));
    assert!(error.contains("cannot reach redis at 127.0.0.1:") && error.contains("refused"), "{error}");

    let http_port = server_sending(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = lease_error(local_endpoint(http_port));
    assert!(error.contains("is this the port of Redis"), "{error}");

    let error_port = server_sending(b"-ERR unknown command 'AUTH', with args beginning with: 'hunter2'\r\n");
    let error = lease_error(RedisEndpoint { password: Some("hunter2".into()), ..local_endpoint(error_port) });
    assert!(error.contains("authentication required or failed") && !error.contains("hunter2"), "{error}");

    let silent_port = server_sending(b"");
    let error = lease_error(local_endpoint(silent_port));
    assert!(error.contains("connect timed out after 250ms"), "{error}");

    let address = RedisAddress::Tcp(HostPort { host: "no-such-host.invalid".into(), port: 1 });
    let error = lease_error(RedisEndpoint { address, ..local_endpoint(1) });
    assert!(error.contains("redis at no-such-host.invalid:1"), "{error}");
}

#[test]
fn redis_password_is_required_and_never_shown() {
    let redis = RedisServer::start(&["--requirepass", "hunter2"]);
    let error = lease_error(local_endpoint(redis.port));
    assert!(error.contains("authentication required"), "{error}");
    let error = lease_error(RedisEndpoint { password: Some("hunter3".into()), ..local_endpoint(redis.port) });
    assert!(error.contains("authentication required or failed") && !error.contains("hunter3"), "{error}");
    let right = RedisEndpoint { password: Some("hunter2".into()), ..local_endpoint(redis.port) };
    assert!(!format!("{right} {right:?}").contains("hunter2"));
    assert_eq!(
        request_lease(&mut redis_store(right, 1), &lease_request("api", 10))
            .map(|_| ())
            .map_err(|error| error.to_string()),
        Ok(())
    );
}

/// The rights in `docs/MULTIPLE_INSTANCES.md` are sufficient and necessary.
#[test]
fn documented_redis_acl_is_sufficient() {
    let redis = RedisServer::start(&[]);
    let docs = include_str!("../../docs/MULTIPLE_INSTANCES.md");
    let example = docs.lines().find(|line| line.starts_with("ACL SETUSER")).expect("an example");
    let arguments: Vec<&str> =
        example.split(' ').map(|argument| if argument == ">PASSWORD" { ">pass" } else { argument }).collect();
    assert_eq!(redis.cli(&arguments), "OK");
    let user = RedisEndpoint { user: Some("gate".into()), password: Some("pass".into()), ..local_endpoint(redis.port) };
    let mut store = redis_store(user.clone(), 1);
    request_lease(&mut store, &lease_request("api", 10)).expect("a lease");
    let now = Clock::system().now();
    let mut switches = SharedSwitches::new(user.clone(), "tidegate");
    let change = SwitchEntry {
        target: "192.0.2.1/32".into(),
        effect: Some("block".into()),
        changed_at_us: now.0 / 1000,
        until_s: Some(now.seconds() + 60),
        except: Vec::new(),
        why: None,
        by: None,
        peer: None,
    };
    // On a busy machine, a reply may be too late.
    let exchanged =
        wait_for("the switches", || run_on_runtime(switches.exchange(std::slice::from_ref(&change), now)).ok());
    assert_eq!(exchanged, [change]);
    let mut secret = SharedSessionSecret::new(user.clone(), "tidegate");
    let agreed = wait_for("the secret", || run_on_runtime(secret.agree("00", now)).ok());
    assert_eq!(agreed, "00");
    let mut certificates = SharedCertificates::new(user, "tidegate", "gateway".into());
    let mut order = async || {
        certificates.sync("site", "", true, now).await?;
        certificates.publish("site", "[]", now).await?;
        certificates.fail("site", now, 1, "error", now).await?;
        certificates.store("site", "id", "pem", 1, now).await
    };
    wait_until("an order", || run_on_runtime(order()).is_ok());
    redis.cli(&["ACL", "SETUSER", "gate", "-evalsha"]);
    let error = request_lease(&mut store, &lease_request("api", 10)).expect_err("user lacks the right").to_string();
    assert!(error.contains("permission denied by ACL"), "{error}");
}

#[test]
fn redis_without_memory_grants_no_leases() {
    let redis = RedisServer::start(&["--maxmemory", "100kb", "--maxmemory-policy", "noeviction"]);
    let mut store = redis_store(local_endpoint(redis.port), 1);
    let error =
        request_lease(&mut store, &lease_request("api", 10)).expect_err("server has no memory left").to_string();
    assert!(error.contains("out of memory"), "{error}");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    request_lease(&mut store, &lease_request("api", 10)).expect("server has memory again");
}

#[test]
fn read_only_replica_grants_no_leases() {
    let primary = RedisServer::start(&[]);
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let error = lease_error(local_endpoint(replica.port));
    assert!(error.contains("read-only replica"), "{error}");
}

#[test]
fn stopped_instance_returns_unspent_units() {
    let redis = RedisServer::start(&[]);
    let (mut first, mut second) =
        (redis_store(local_endpoint(redis.port), 1), redis_store(local_endpoint(redis.port), 2));
    let request = LeaseRequest { urgent: Units::from_milli(LIMIT), ..lease_request("api", LIMIT) };
    let held = |store: &mut RedisStore| request_lease(store, &request).expect("a lease").held.milli();
    wait_until("all of the quota to be leased", || held(&mut first) == LIMIT);
    assert_eq!(held(&mut second), 0);
    let last = LeaseRequest { taken: Units::from_milli(10), held: Units::from_milli(LIMIT), ..request.clone() };
    run_on_runtime(first.close(&[last], Clock::system().now())).expect("server accepts the last report");
    assert_eq!(held(&mut second), LIMIT - 10);
}

#[test]
fn flushed_redis_script_is_loaded_again() {
    let redis = RedisServer::start(&[]);
    let mut store = redis_store(local_endpoint(redis.port), 1);
    request_lease(&mut store, &lease_request("api", 10)).expect("a lease");
    redis.cli(&["SCRIPT", "FLUSH"]);
    request_lease(&mut store, &lease_request("api", 10)).expect("a lease");
}

#[test]
fn quota_key_expires_after_its_window() {
    let redis = RedisServer::start(&[]);
    let request = lease_request("api", 10);
    request_lease(&mut redis_store(local_endpoint(redis.port), 1), &request).expect("a lease");
    assert_eq!(redis.cli(&["KEYS", "*"]), "{tidegate:api}:leases");
    let expires_at: u64 = redis.cli(&["PEXPIRETIME", "{tidegate:api}:leases"]).parse().expect("a number");
    assert!(expires_at > request.window.span.expect("window has an end").end.0 / 1_000_000);
}

#[test]
fn cluster_redirects_to_the_quota_slot() {
    let cluster = ["--cluster-enabled", "yes"];
    let (first, second) = (RedisServer::start(&cluster), RedisServer::start(&cluster));
    first.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
    second.cli(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
    first.cli(&["CLUSTER", "MEET", "127.0.0.1", &second.port.to_string()]);
    let is_ok = |node: &RedisServer| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    wait_until("both nodes to agree", || {
        is_ok(&first) && is_ok(&second) && first.cli(&["CLUSTER", "SLOTS"]).contains(&second.port.to_string())
    });
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let requests: Vec<LeaseRequest> = names.iter().map(|name| lease_request(name, 10)).collect();
    let mut store = redis_store(local_endpoint(first.port), 1);
    let leases = run_on_runtime(store.lease(&requests, Clock::system().now())).expect("leases of all quotas");
    assert_eq!(leases.len(), names.len());
    let keys = |node: &RedisServer| node.cli(&["KEYS", "*"]).lines().count();
    assert!(keys(&first) > 0 && keys(&second) > 0, "{} and {}", keys(&first), keys(&second));
    for name in names {
        let tag = format!("tidegate:{name}");
        let slot = |key: &str| first.cli(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(slot(&format!("{{{tag}}}:leases")), slot(&tag));
    }
}

/// Shared progress of three instances, and whether they must stop.
#[derive(Default)]
pub(super) struct FleetProgress {
    spent: AtomicU64,
    rounds: AtomicU64,
    must_stop: AtomicBool,
}

impl FleetProgress {
    pub(super) fn wait_for_spent(&self, min: u64) {
        wait_until(&format!("{min} of {LIMIT} to be used"), || self.spent.load(Ordering::SeqCst) >= min);
    }

    /// Waits until each instance has had the time for about four lease requests.
    fn wait_for_rounds(&self) {
        let before = self.rounds.load(Ordering::SeqCst);
        wait_until("more lease rounds", || self.rounds.load(Ordering::SeqCst) >= before + 12);
    }
}

/// Runs three instances that use random amounts until the limit is used up. `disturb` runs in the middle.
fn run_three_instances(options: &[&str], shares: bool, disturb: impl FnOnce(&mut RedisServer, &FleetProgress)) {
    let mut redis = RedisServer::start(options);
    spend_limit(&local_endpoint(redis.port), shares, |progress| disturb(&mut redis, progress));
}

/// Runs three instances at `server` that use random amounts until the limit is used up. `disturb` runs in the middle.
pub(super) fn spend_limit(server: &RedisEndpoint, shares: bool, disturb: impl FnOnce(&FleetProgress)) {
    let progress = Arc::new(FleetProgress::default());
    let template = lease_request("api", 0);
    let threads: Vec<_> = (1..=3)
        .map(|number| {
            let store = RedisStore::new(server.clone(), "tidegate", shares, Incarnation::ephemeral(number));
            let (template, progress) = (template.clone(), Arc::clone(&progress));
            std::thread::spawn(move || spend_until_stopped(store, number, &template, &progress))
        })
        .collect();
    progress.wait_for_spent(LIMIT / 3);
    disturb(&progress);
    progress.wait_for_spent(LIMIT * 99 / 100);
    // An instance that could exceed the limit would do so now.
    progress.wait_for_rounds();
    progress.must_stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("instance does not panic"));
    let spent = progress.spent.load(Ordering::SeqCst);
    assert!(spent <= LIMIT, "{spent} of {LIMIT}");
}

/// Runs one instance. It requests about as many units as it uses until the next request, and fewer as usage nears the
/// limit.
fn spend_until_stopped(mut store: RedisStore, number: u64, template: &LeaseRequest, progress: &FleetProgress) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime can be created");
    let clock = Clock::system();
    let (mut taken, mut held, mut random) = (0, 0, number);
    let mut left = LIMIT;
    while !progress.must_stop.load(Ordering::SeqCst) {
        let wanted = taken + (left / 20).clamp(100, 20_000);
        let request = LeaseRequest {
            taken: Units::from_milli(taken),
            held: Units::from_milli(held),
            wanted: Units::from_milli(wanted),
            urgent: Units::from_milli(100),
            ..template.clone()
        };
        held = held.min(wanted);
        if let Ok(leases) = runtime.block_on(store.lease(&[request], clock.now())) {
            held = leases[0].held.milli();
            left = LIMIT.saturating_sub(leases[0].held_by_others.milli() + held);
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let amount = (random >> 33) % (held - taken + 1);
        taken += amount;
        progress.spent.fetch_add(amount, Ordering::SeqCst);
        progress.rounds.fetch_add(1, Ordering::SeqCst);
        pass_real_time(LEASE_INTERVAL);
    }
}

/// Starts a server that sends `bytes` to every client. Returns its port.
fn server_sending(bytes: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut streams = Vec::new();
        for stream in listener.incoming().take(3) {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(bytes);
            streams.push(stream);
        }
    });
    port
}

pub(super) fn local_endpoint(port: u16) -> RedisEndpoint {
    let address = RedisAddress::Tcp(HostPort { host: "127.0.0.1".into(), port });
    RedisEndpoint { address, tls: None, user: None, password: None, database: 0 }
}

fn redis_store(server: RedisEndpoint, number: u64) -> RedisStore {
    // A busy machine can delay a response beyond the timeouts of a gateway.
    let timeouts = Timeouts { connect: TIMEOUT, reply: TIMEOUT };
    RedisStore::new(server, "tidegate", false, Incarnation::ephemeral(number)).with_timeouts(timeouts)
}

fn lease_request(quota: &str, wanted: u64) -> LeaseRequest {
    let start = Timestamp(Clock::system().now().0 / 1000 * 1000);
    let span = Span { start, end: start + Duration::from_secs(3600) };
    LeaseRequest {
        quota: quota.into(),
        limit: Units::from_milli(LIMIT),
        window: WindowKey { id: start.0, span: Some(span), lookback: 0 },
        taken: Units::ZERO,
        held: Units::ZERO,
        wanted: Units::from_milli(wanted),
        urgent: Units::from_milli(wanted),
        expected_demand: Units::ZERO,
    }
}

fn request_lease(store: &mut RedisStore, request: &LeaseRequest) -> Result<Lease, StoreError> {
    run_on_runtime(store.lease(std::slice::from_ref(request), Clock::system().now())).map(|leases| leases[0])
}

/// Returns the error of a server from which no lease can be obtained.
pub(super) fn lease_error(server: RedisEndpoint) -> String {
    let mut store = RedisStore::new(server, "tidegate", false, Incarnation::ephemeral(1));
    let first = request_lease(&mut store, &lease_request("api", 10)).expect_err("server grants no lease");
    request_lease(&mut store, &lease_request("api", 10)).expect_err("server grants no lease on retry");
    first.to_string()
}

/// Runs `future` on the runtime of this thread: a connection belongs to the runtime on which it was opened.
fn run_on_runtime<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime can be created");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}
