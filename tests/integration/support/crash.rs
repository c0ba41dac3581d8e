//! The real program with its own state directory, killed under load and restarted.

use super::client::Client;
use super::origin::Origin;
use super::running_gateway::RunningGateway;
use super::wait::{wait_for, wait_until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Number of concurrent requests.
const CLIENTS: u64 = 4;

/// A page that costs one unit, and an origin that counts its requests by time of arrival.
struct CrashFixture {
    origin: Origin,
    _dir: TempDir,
    state_dir: PathBuf,
    served: Arc<AtomicU64>,
}

impl CrashFixture {
    fn new() -> Self {
        let served = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&served);
        let origin = Origin::with_script(move |_, connection| {
            counter.fetch_add(1, Ordering::SeqCst);
            connection.reply("200 OK", "", b"page");
        });
        Self::with_origin(origin, served)
    }

    fn with_origin(origin: Origin, served: Arc<AtomicU64>) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        Self { origin, state_dir: dir.path().join("state"), _dir: dir, served }
    }

    fn start(&self, limit: u64, window: &str) -> RunningGateway {
        let rules = format!(
            "log: {{ level: warn }}\nquotas: {{ api: {{ limit: {limit}, window: {window} }} }}\n\
             routes: [ {{ match: /page, cost: {{ api: 1 }} }} ]\n",
        );
        RunningGateway::start(&self.state_dir, self.origin.address(), &rules)
    }

    fn served_units(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }
}

/// Returns the settled and reserved units.
fn counted_units(gateway: &RunningGateway) -> u64 {
    let state: Value = serde_json::from_str(&gateway.admin_request("GET", "/api/v1/state", "")).expect("JSON");
    let quota = &state["quotas"][0];
    quota["used"].as_u64().expect("whole units") + quota["reserved"].as_u64().expect("whole units")
}

fn lost_units(gateway: &RunningGateway) -> f64 {
    gateway.metric("tidegate_quota_lost_total{quota=\"api\"}")
}

/// Sends requests from several clients until `is_done` returns true for the number of responses, or the gateway has
/// crashed. Returns the number of responses by status.
fn load(address: SocketAddr, is_done: impl Fn(u64) -> bool + Sync) -> StatusCounts {
    let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let statuses = StatusCounts::default();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Some(status) = request_status(address) else { return };
                    statuses.record(status);
                    if is_done(count.fetch_add(1, Ordering::Relaxed) + 1) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    statuses
}

#[derive(Default)]
struct StatusCounts {
    ok: AtomicU64,
    quota_exhausted: AtomicU64,
    lease_shortfall: AtomicU64,
}

impl StatusCounts {
    fn record(&self, status: u16) {
        let counter = match status {
            200 => &self.ok,
            429 => &self.quota_exhausted,
            503 => &self.lease_shortfall,
            other => panic!("unexpected status {other}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends one request on a new connection. Returns `None` if the gateway has crashed.
fn request_status(address: SocketAddr) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(super::TIMEOUT)).ok()?;
    stream.write_all(b"GET /page HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n").ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    std::str::from_utf8(response.get(9..12)?).ok()?.parse().ok()
}

/// Kills a gateway under load at varying times, and restarts it with its state.
pub fn kill_repeatedly(rounds: u64) {
    run_kill_rounds(&CrashFixture::new(), rounds, || ());
}

/// Like [`kill_repeatedly`], on a disk with space for the ledger only.
pub fn kill_on_full_disk(disk: &Path, rounds: u64) {
    let fixture = CrashFixture { state_dir: disk.join("state"), ..CrashFixture::new() };
    run_kill_rounds(&fixture, rounds, || {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(disk.join("other")).expect("a file");
        while file.write_all(&[0; 4096]).is_ok() {}
    });
}

/// Runs the kill rounds. Calls `after_start` after each start.
fn run_kill_rounds(fixture: &CrashFixture, rounds: u64, after_start: impl Fn()) {
    // Large enough for all rounds: a lease is at most 1/64 of the limit, and two leases may be lost per crash.
    let limit = rounds * 600;
    let bound = 2 * (limit / 64).max(4) + CLIENTS;
    let (mut excess, mut total, mut largest) = (0, 0, 0);
    for round in 0..rounds {
        let gateway = fixture.start(limit, "{ fixed: 7d }");
        after_start();
        let (served, counted) = (fixture.served_units(), counted_units(&gateway));
        assert!(counted >= served, "round {round}: {counted} units counted, {served} served");
        let wasted = (counted - served).saturating_sub(excess);
        assert!(wasted <= bound, "round {round}: {wasted} units wasted, limit {bound}");
        assert!(lost_units(&gateway) <= (bound + CLIENTS) as f64, "round {round}");
        excess = counted - served;
        largest = largest.max(wasted);
        total += wasted;
        // Pseudo-random between 1 and 257 requests: 7919 is prime.
        let kill_after = 1 + (round * 7919) % 257;
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let address = gateway.address;
            scope.spawn(move || {
                load(address, |count| {
                    if count == kill_after {
                        let _ = sender.send(());
                    }
                    // Continue until the gateway has crashed.
                    false
                })
            });
            receiver.recv_timeout(super::TIMEOUT).expect("gateway serves requests");
            gateway.program.signal("KILL");
        });
        gateway.program.kill();
    }
    // The remainder can be used to the last unit.
    let gateway = fixture.start(limit, "{ fixed: 7d }");
    let left = limit - counted_units(&gateway);
    assert!(left > 0, "units are left after all rounds");
    let before = fixture.served_units();
    let statuses =
        load(gateway.address, |_| fixture.served_units() - before >= left || fixture.served_units() >= limit);
    assert_eq!(status_when_exhausted(&gateway), 429);
    assert_eq!(fixture.served_units() - before, left, "all remaining units can be used");
    assert!(fixture.served_units() <= limit, "{} units served, limit {limit}", fixture.served_units());
    println!(
        "{rounds} kills: {} of {limit} served, {total} wasted in all, {largest} by one, {bound} allowed; then {} short of {left}",
        fixture.served_units(),
        statuses.lease_shortfall.load(Ordering::Relaxed),
    );
}

/// Returns the status of a request when the quota is used up. A lease may still be in transit.
fn status_when_exhausted(gateway: &RunningGateway) -> u16 {
    wait_for("the last lease", || request_status(gateway.address).filter(|status| *status != 503))
}

/// Suspends a gateway in the middle of a window of two seconds, and resumes it in the next window.
pub fn suspend_across_window_end() {
    const LIMIT: u64 = 60;
    let windows: Arc<parking_lot::Mutex<std::collections::BTreeMap<u64, u64>>> = Arc::default();
    let fixture = {
        let counts = Arc::clone(&windows);
        let served = Arc::new(AtomicU64::new(0));
        let origin = Origin::with_script(move |request, connection| {
            // The gateway's time of admission is unknown. A request is short: it arrives in the window of its
            // admission, or just after it.
            let _ = request;
            *counts.lock().entry(unix_seconds() / 2).or_default() += 1;
            connection.reply("200 OK", "", b"page");
        });
        CrashFixture::with_origin(origin, served)
    };
    let gateway = fixture.start(LIMIT, "{ fixed: 2s }");
    for _ in 0..2 {
        let before = unix_seconds() / 2;
        load(gateway.address, |count| count >= 20);
        gateway.program.signal("STOP");
        wait_until("the next window", || unix_seconds() / 2 > before);
        gateway.program.signal("CONT");
        load(gateway.address, |count| count >= 2 * LIMIT);
    }
    let windows = windows.lock().clone();
    for (window, served) in &windows {
        // A request that was admitted before the suspension may arrive after it: at most one per client.
        assert!(*served <= LIMIT + CLIENTS, "{served} in window {window}: {windows:?}");
    }
}

#[allow(clippy::disallowed_methods, reason = "the origin counts by real time")]
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Restarts a gateway cleanly, with and without a correction: the count is exact.
pub fn clean_restart() {
    let fixture = CrashFixture::new();
    let gateway = fixture.start(1000, "{ fixed: 7d }");
    load(gateway.address, |count| count >= 50);
    let counted = counted_units(&gateway);
    assert_eq!(counted, fixture.served_units());
    gateway.program.signal("TERM");
    assert_eq!(gateway.program.wait_for_exit().code, 0);

    let gateway = fixture.start(1000, "{ fixed: 7d }");
    assert_eq!((counted_units(&gateway), lost_units(&gateway)), (counted, 0.0), "a clean stop loses no units");
    for used in [700, 10, 0, 500] {
        let response = gateway.admin_request("PUT", "/api/v1/quotas/api/used", &format!("{{\"used\": {used}}}"));
        assert!(response.contains(&format!("\"to\":{used}")), "{response}");
        assert_eq!(counted_units(&gateway), used);
    }
    gateway.program.kill();
    let gateway = fixture.start(1000, "{ fixed: 7d }");
    let counted = counted_units(&gateway);
    assert!((500..=500 + 2 * 15).contains(&counted), "{counted}");
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/page", "").status, 200);
}
