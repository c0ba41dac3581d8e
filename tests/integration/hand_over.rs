//! Hand-overs to a new process under load: no request fails, and the count stays exact.

use crate::support::client::Client;
use crate::support::origin::{Origin, signal};
use crate::support::program::Program;
use crate::support::tls::Certificates;
use crate::support::wait::wait_until;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use tempfile::TempDir;

/// Number of hand-overs of the longest test; TIDEGATE_HAND_OVERS replaces it.
const HAND_OVERS: usize = 4;

/// A gateway whose process changes.
struct ChangingGateway {
    program: Program,
    dir: TempDir,
    address: SocketAddr,
    tls_address: SocketAddr,
    admin: SocketAddr,
}

impl ChangingGateway {
    fn start(origin: &Origin, certificates: &Certificates) -> Self {
        Self::with_rules(origin, certificates, "limits: { drain_timeout: 10m }")
    }

    fn with_rules(origin: &Origin, certificates: &Certificates, rules: &str) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("gate.yaml");
        let yaml = format!(
            "listen: [127.0.0.1:0, {{ address: '127.0.0.2:0', tls: {{ {} }} }}]\nadmin: {{ listen: \"127.0.0.1:0\" }}\n\
             state_dir: {}\nworkers: 2\norigin: {{ url: \"http://{}\", idle_timeout: 10m }}\n\
             quotas: {{ api: {{ limit: 100000000, window: {{ calendar: month, zone: UTC }} }} }}\n\
             routes: [{{ match: /**, cost: {{ api: 1 }} }}]\n{rules}",
            certificates.issue("site", &["localhost"]),
            dir.path().join("state").display(),
            origin.address(),
        );
        fs::write(&file, yaml).expect("file is writable");
        let program = Program::start(&["serve", "--config", &file.display().to_string()]);
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut gateway = Self { program, dir, address: any, tls_address: any, admin: any };
        (gateway.address, gateway.tls_address, gateway.admin) = gateway.read_ready_line();
        gateway
    }

    fn read_ready_line(&mut self) -> (SocketAddr, SocketAddr, SocketAddr) {
        let line = self.program.read_line();
        let addresses: Vec<SocketAddr> = line
            .split("://")
            .skip(1)
            .map(|rest| rest.split([' ', ',']).next().unwrap_or_default().parse().unwrap_or_else(|_| panic!("{line}")))
            .collect();
        match addresses[..] {
            [plain, tls, _, admin] => (plain, tls, admin),
            _ => panic!("other addresses in {line}"),
        }
    }

    fn config_file(&self) -> PathBuf {
        self.dir.path().join("gate.yaml")
    }

    /// Returns the ids of the gateway's processes.
    fn processes(&self) -> Vec<u32> {
        let file = self.config_file().display().to_string();
        let ids = fs::read_dir("/proc").expect("processes are listed").filter_map(|entry| {
            let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let command = fs::read(format!("/proc/{id}/cmdline")).ok()?;
            // A process that has ended and was not waited for has no command.
            String::from_utf8_lossy(&command).contains(&file).then_some(id)
        });
        ids.collect()
    }

    fn signal(&self, name: &str) {
        for id in self.processes() {
            let status = Command::new("kill").args(["-s", name, &id.to_string()]).status().expect("kill is installed");
            assert!(status.success());
        }
    }

    /// Hands over to a new process, which serves at the same addresses.
    fn hand_over(&mut self) {
        let before = self.processes();
        assert_eq!(before.len(), 1);
        self.signal("USR2");
        let (address, tls_address, admin) = self.read_ready_line();
        assert_eq!((address, tls_address), (self.address, self.tls_address));
        self.admin = admin;
        wait_until("the old process to end", || !self.processes().contains(&before[0]));
    }

    fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.admin).expect("admin listener is running");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin);
        stream.write_all(request.as_bytes()).expect("gateway reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("gateway responds");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.trim().parse().expect("a number")
    }
}

impl Drop for ChangingGateway {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

/// Clients that send requests one after the other, on connections that they keep.
struct Load {
    is_ended: Arc<AtomicBool>,
    responses: Arc<AtomicU64>,
    failures: Arc<parking_lot::Mutex<BTreeMap<String, u64>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(address: SocketAddr, clients: usize) -> Self {
        let (is_ended, responses, failures) = (Arc::default(), Arc::default(), Arc::default());
        let mut load = Self { is_ended, responses, failures, threads: Vec::new() };
        for _ in 0..clients {
            let (is_ended, responses, failures) =
                (Arc::clone(&load.is_ended), Arc::clone(&load.responses), Arc::clone(&load.failures));
            load.threads.push(std::thread::spawn(move || {
                while !is_ended.load(Ordering::SeqCst) {
                    if let Err(error) = run_connection(address, &is_ended, &responses) {
                        *failures.lock().entry(error).or_default() += 1;
                    }
                }
            }));
        }
        load
    }

    /// Waits for `count` more responses.
    fn wait_for(&self, count: u64) {
        let target = self.responses.load(Ordering::SeqCst) + count;
        wait_until("responses", || self.responses.load(Ordering::SeqCst) >= target);
    }

    /// Ends the load. Returns the number of responses, and the failures.
    fn end(self) -> (u64, BTreeMap<String, u64>) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let failures = self.failures.lock().clone();
        (self.responses.load(Ordering::SeqCst), failures)
    }
}

/// Sends requests until the gateway ends the connection with a response, as it announces.
fn run_connection(address: SocketAddr, is_ended: &AtomicBool, responses: &AtomicU64) -> Result<(), String> {
    let stream = TcpStream::connect(address).map_err(|error| format!("connect: {error}"))?;
    let mut reader = BufReader::new(&stream);
    while !is_ended.load(Ordering::SeqCst) {
        (&stream)
            .write_all(b"GET /page HTTP/1.1\r\nHost: example.com\r\n\r\n")
            .map_err(|error| format!("write: {error}"))?;
        let (mut line, mut length, mut is_last) = (String::new(), 0, false);
        reader.read_line(&mut line).map_err(|error| format!("read: {error}"))?;
        if !line.starts_with("HTTP/1.1 200 ") {
            return Err(format!("response {line:?}"));
        }
        loop {
            line.clear();
            reader.read_line(&mut line).map_err(|error| format!("read: {error}"))?;
            let field = line.trim_end().to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length: ") {
                length = value.parse().map_err(|_| line.clone())?;
            }
            is_last |= field == "connection: close";
            if field.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).map_err(|error| format!("body: {error}"))?;
        responses.fetch_add(1, Ordering::SeqCst);
        if is_last {
            return Ok(());
        }
    }
    Ok(())
}

/// curl over TLS and HTTP/2, again and again. It fails if a request does.
struct CurlLoop {
    is_ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl CurlLoop {
    /// Requests `path`, which may be several: curl expands `[1-9]`, and requests up to eight at once on a connection.
    fn start(gateway: &ChangingGateway, certificates: &Certificates, path: &str) -> Self {
        let is_ended = Arc::<AtomicBool>::default();
        let (ended, port, authority) = (Arc::clone(&is_ended), gateway.tls_address.port(), certificates.path("ca.pem"));
        let url = format!("https://localhost:{port}{path}");
        let thread = std::thread::spawn(move || {
            let mut requests = 0;
            while !ended.load(Ordering::SeqCst) {
                let output = Command::new("curl")
                    .args(["--silent", "--show-error", "--fail", "--http2", "--parallel", "--parallel-max", "8"])
                    .args(["--write-out", "%{http_code}\\n", "--output", "/dev/null"])
                    .args(["--resolve", &format!("localhost:{port}:127.0.0.2"), "--cacert"])
                    .args([authority.as_os_str(), url.as_ref()])
                    .output()
                    .expect("curl is installed");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                requests += String::from_utf8_lossy(&output.stdout).matches("200\n").count() as u64;
            }
            requests
        });
        Self { is_ended, thread }
    }

    /// Returns the number of requests. Panics if one has failed.
    fn end(self) -> u64 {
        self.is_ended.store(true, Ordering::SeqCst);
        self.thread.join().expect("no request of curl fails")
    }
}

fn hand_overs() -> usize {
    std::env::var("TIDEGATE_HAND_OVERS").ok().and_then(|count| count.parse().ok()).unwrap_or(HAND_OVERS)
}

#[test]
fn no_request_fails_and_each_is_counted_once_through_hand_overs() {
    let (origin, certificates) = (Origin::plain(), Certificates::new());
    let mut gateway = ChangingGateway::start(&origin, &certificates);
    let load = Load::start(gateway.address, 8);
    let curl = CurlLoop::start(&gateway, &certificates, "/curl");
    load.wait_for(100);
    for _ in 0..hand_overs() {
        gateway.hand_over();
        load.wait_for(100);
    }
    let by_curl = curl.end();
    let (responses, failures) = load.end();
    assert_eq!(failures, BTreeMap::new(), "of {responses} requests");
    assert!(by_curl > 0);
    let sent = origin.received_requests().len() as f64;
    assert_eq!((responses + by_curl) as f64, sent);
    wait_until("the ledger to have all", || gateway.metric("tidegate_quota_used{quota=\"api\"}") >= sent);
    let wasted = gateway.metric("tidegate_quota_used{quota=\"api\"}") - sent;
    assert_eq!(wasted, 0.0);
}

#[test]
fn process_that_does_not_start_leaves_the_old_one_serving() {
    let (origin, certificates) = (Origin::plain(), Certificates::new());
    let mut gateway = ChangingGateway::start(&origin, &certificates);
    let load = Load::start(gateway.address, 2);
    load.wait_for(10);
    let yaml = fs::read_to_string(gateway.config_file()).expect("file is readable");
    fs::write(gateway.config_file(), format!("{yaml}\nnonsense: 1\n")).expect("file is writable");
    gateway.signal("USR2");
    gateway.program.wait_for_error("Upgrade failed, serving on: the new process ended");
    load.wait_for(10);
    fs::write(gateway.config_file(), yaml).expect("file is writable");
    gateway.hand_over();
    load.wait_for(10);
    assert_eq!(load.end().1, BTreeMap::new());
}

#[test]
fn process_that_fails_after_it_took_over_is_replaced_by_the_old_one() {
    let (origin, certificates) = (Origin::plain(), Certificates::new());
    let mut gateway = ChangingGateway::start(&origin, &certificates);
    let load = Load::start(gateway.address, 2);
    load.wait_for(10);
    // The new process finds the address of its admin listener in use.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let yaml = fs::read_to_string(gateway.config_file()).expect("file is readable");
    let address = taken.local_addr().expect("socket is bound");
    fs::write(
        gateway.config_file(),
        yaml.replace("admin: { listen: \"127.0.0.1:0\" }", &format!("admin: {{ listen: \"{address}\" }}")),
    )
    .expect("file is writable");
    let before = gateway.processes();
    gateway.signal("USR2");
    gateway
        .program
        .wait_for_error("Upgrade failed, serving again with the settings of the start: the new process ended");
    let (address, _, admin) = gateway.read_ready_line();
    assert_eq!((address, gateway.processes()), (gateway.address, before));
    assert_ne!(admin, taken.local_addr().expect("socket is bound"), "the file is still wrong");
    load.wait_for(10);
    drop(taken);
    gateway.hand_over();
    load.wait_for(10);
    assert_eq!(load.end().1, BTreeMap::new());
}

/// The new process has the stored responses while the old one completes a request that changes a page.
#[test]
fn write_through_the_old_process_removes_what_the_new_one_has_stored() {
    let (arrived, has_arrived) = signal();
    let (release, released) = signal();
    let origin = Origin::with_script(move |request, connection| {
        if request.method == "POST" {
            arrived.notify();
            released.wait();
        }
        connection.reply("200 OK", "Cache-Control: max-age=3600\r\n", b"page");
    });
    let certificates = Certificates::new();
    // A tenth of it is for the last requests of open connections.
    let rules = "cache: {}\nlimits: { drain_timeout: 1m }";
    let mut gateway = ChangingGateway::with_rules(&origin, &certificates, rules);
    let fetch = |gateway: &ChangingGateway| {
        let response = Client::connect(gateway.address).get("/page", "");
        assert_eq!(response.status, 200);
        response.field("cache-status").to_owned()
    };
    assert!(fetch(&gateway).contains("stored"));
    let mut writer = Client::connect(gateway.address);
    writer.send("POST /page HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n");
    has_arrived.wait();
    let before = gateway.processes();
    gateway.signal("USR2");
    gateway.admin = gateway.read_ready_line().2;
    wait_until("the new process to have the copy", || fetch(&gateway).contains("hit"));
    release.notify();
    assert_eq!(writer.read_response().status, 200);
    wait_until("the old process to end", || !gateway.processes().contains(&before[0]));
    wait_until("another fetch", || fetch(&gateway).contains("stored"));
}

/// wrk and curl report no failure. At the end of a connection (GOAWAY), h2load counts requests that it does not begin as failed,
/// so it is here for its load.
#[test]
fn clients_at_full_load_see_no_failure_through_hand_overs() {
    let (origin, certificates) = (Origin::plain(), Certificates::new());
    let mut gateway = ChangingGateway::start(&origin, &certificates);
    let url = format!("https://{}/", gateway.tls_address);
    // Ends by itself if the test fails.
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "-c8", "-d5m", &url]).stdout(Stdio::piped()).stderr(Stdio::null());
    let wrk = wrk.spawn().expect("wrk is not installed; run ./test");
    let is_ended = Arc::new(AtomicBool::new(false));
    let h2load = {
        let is_ended = Arc::clone(&is_ended);
        std::thread::spawn(move || {
            let mut reports = Vec::new();
            while !is_ended.load(Ordering::SeqCst) {
                let run = Command::new("h2load").args(["-t1", "-c4", "-m4", "-D1", &url]).output();
                reports.push(run.expect("h2load is not installed; run ./test").stdout);
            }
            reports
        })
    };
    let curl = CurlLoop::start(&gateway, &certificates, "/curl/[1-50]");
    let mut sent = 0;
    for _ in 0..=hand_overs() {
        wait_until("requests", || origin.received_requests().len() > sent + 500);
        gateway.hand_over();
        sent = origin.received_requests().len();
    }
    wait_until("requests", || origin.received_requests().len() > sent + 500);
    assert!(curl.end() > 0);
    is_ended.store(true, Ordering::SeqCst);
    for report in h2load.join().expect("no panic") {
        let report = String::from_utf8_lossy(&report);
        assert!(report.contains(" 0 timeout") && report.contains(" 0 3xx, 0 4xx, 0 5xx"), "{report}");
    }
    assert!(Command::new("kill").args(["-s", "INT", &wrk.id().to_string()]).status().is_ok_and(|kill| kill.success()));
    let report = wrk.wait_with_output().expect("wrk ends").stdout;
    let report = String::from_utf8_lossy(&report);
    assert!(
        report.contains(" requests in ") && !report.contains("Socket errors") && !report.contains("Non-2xx"),
        "{report}"
    );
    let used = || gateway.metric("tidegate_quota_used{quota=\"api\"}");
    wait_until("the ledger to have all", || used() >= origin.received_requests().len() as f64);
    assert_eq!(used(), origin.received_requests().len() as f64);
}

#[test]
fn new_process_opens_as_many_connections_to_the_origin() {
    let arrived = Arc::new(Barrier::new(4));
    let origin = Origin::with_script(move |_, connection| {
        arrived.wait();
        connection.reply("200 OK", "", b"page");
    });
    let certificates = Certificates::new();
    let mut gateway = ChangingGateway::start(&origin, &certificates);
    let mut clients = [(); 4].map(|()| Client::connect(gateway.address));
    clients.iter_mut().for_each(|client| {
        client.send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    });
    clients.iter_mut().for_each(|client| assert_eq!(client.read_response().status, 200));
    assert_eq!(origin.connections(), 4);
    drop(clients);
    gateway.hand_over();
    wait_until("connections without a request", || origin.connections() == 8);
    assert_eq!(origin.received_requests().len(), 4);
}

/// Requests that cost more than their reservation, or cost something on a route without a cost, while the old process completes
/// them: the new one counts them, too.
#[test]
fn costs_beyond_reservations_are_counted_by_the_new_process() {
    let (arrived, has_arrived) = signal();
    let (release, released) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrived.notify();
        released.wait();
        connection.reply("200 OK", "X-Cost: 5\r\n", b"page");
    });
    let certificates = Certificates::new();
    let mut gateway = ChangingGateway::start(&origin, &certificates);
    let yaml = fs::read_to_string(gateway.config_file()).expect("file is readable");
    let yaml = yaml
        .replace("limit: 100000000,", "limit: 100000000, cost_header: X-Cost,")
        .replace("routes: [", "routes: [{ match: /free },")
        .replace("drain_timeout: 10m", "drain_timeout: 1m");
    fs::write(gateway.config_file(), yaml).expect("file is writable");
    gateway.hand_over();
    let mut clients = ["/page", "/page", "/free"].map(|path| {
        let mut client = Client::connect(gateway.address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n"));
        client
    });
    clients.iter().for_each(|_| has_arrived.wait());
    gateway.signal("USR2");
    gateway.admin = gateway.read_ready_line().2;
    let used = || gateway.metric("tidegate_quota_used{quota=\"api\"}");
    wait_until("the reservations to count", || used() == 2.0);
    clients.iter().for_each(|_| release.notify());
    clients.iter_mut().for_each(|client| assert_eq!(client.read_response().status, 200));
    wait_until("the costs to count", || used() == 15.0);
}

/// The same for budgets, which also get back what a request did not cost; a restart finds all of it.
#[test]
fn costs_of_requests_in_flight_are_charged_to_budgets_by_the_new_process() {
    let (arrived, has_arrived) = signal();
    let (release, released) = signal();
    let origin = Origin::with_script(move |request, connection| {
        arrived.notify();
        released.wait();
        let cost = if request.head.starts_with("GET /cheap") { "X-Cost: 1\r\n" } else { "X-Cost: 5\r\n" };
        connection.reply("200 OK", cost, b"page");
    });
    let certificates = Certificates::new();
    // The SHA-256 of `key-of-acme`.
    let rules = "limits: { drain_timeout: 1m }\napi_keys: [{ name: acme, class: pro, sha256: \
                 689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245 }]\n\
                 classes: [{ name: pro, when: { api_key: own } }]\n";
    let mut gateway = ChangingGateway::with_rules(&origin, &certificates, rules);
    let quota =
        "customer: { per: api_key, metrics_by_key: true, limit: 100, cost_header: X-Cost, window: { fixed: 87600h } }";
    let routes = "{ match: /free }, { match: /cheap, cost: { customer: 3 } }, { match: /dear, cost: { customer: 2 } }";
    let yaml = fs::read_to_string(gateway.config_file()).expect("file is readable");
    let yaml =
        yaml.replace("quotas: {", &format!("quotas: {{ {quota},")).replace("routes: [", &format!("routes: [{routes},"));
    fs::write(gateway.config_file(), yaml).expect("file is writable");
    gateway.hand_over();
    let used = |gateway: &ChangingGateway| gateway.metric("tidegate_budget_used{quota=\"customer\",key=\"acme\"}");
    assert_eq!(used(&gateway), 0.0);
    let mut clients = ["/dear", "/cheap", "/free"].map(|path| {
        let mut client = Client::connect(gateway.address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nX-Api-Key: key-of-acme\r\n\r\n"));
        client
    });
    clients.iter().for_each(|_| has_arrived.wait());
    gateway.signal("USR2");
    gateway.admin = gateway.read_ready_line().2;
    wait_until("the reservations to count", || used(&gateway) == 5.0);
    clients.iter().for_each(|_| release.notify());
    clients.iter_mut().for_each(|client| assert_eq!(client.read_response().status, 200));
    wait_until("the costs to count", || used(&gateway) == 5.0 + 1.0 + 5.0);
    wait_until("the old process to end", || gateway.processes().len() == 1);
    gateway.hand_over();
    assert_eq!(used(&gateway), 11.0, "they are recorded");
}
