//! A real gate on ports of its own, told by YAML, gone at the end of the test.

use super::TIMEOUT;
use super::client::Client;
use super::report;
use super::wait::wait_until;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tidegate::clock::Clock;
use tidegate::config;
use tidegate::policy::Timestamp;
use tidegate::service::{ExternalAccess, Service, SettingsSource};

/// Noon of some day: hours away from the end of any window that a test uses.
pub const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

/// No two gates draw the same number.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// A running gate.
pub struct Gate {
    service: Option<Service>,
    world: ExternalAccess,
    yaml: Arc<Mutex<String>>,
    folder: TempDir,
    /// Number of whole answers that its clients have received since it was started.
    answered: Arc<AtomicU64>,
    pub clock: Clock,
}

impl Gate {
    /// A gate before `origin` on a clock that stands at noon, with `rules` in YAML beside what every test needs.
    pub fn before(origin: SocketAddr, rules: &str) -> Self {
        Self::with_clock(origin, rules, Clock::manual(NOON))
    }

    /// The same by a clock of the test's own.
    pub fn with_clock(origin: SocketAddr, rules: &str, clock: Clock) -> Self {
        Self::started(ExternalAccess::default(), origin, rules, clock)
    }

    /// The same in a world of the test's own.
    pub fn in_world(world: ExternalAccess, origin: SocketAddr, rules: &str) -> Self {
        Self::started(world, origin, rules, Clock::manual(NOON))
    }

    fn started(world: ExternalAccess, origin: SocketAddr, rules: &str, clock: Clock) -> Self {
        let folder = tempfile::tempdir().expect("a folder of its own");
        let yaml = Arc::new(Mutex::new(yaml(origin, folder.path(), rules)));
        report::logs_to(&log_path(folder.path()));
        let mut gate = Self { service: None, world, yaml, folder, answered: Arc::default(), clock };
        gate.start();
        gate
    }

    /// Stops it and starts it anew, with the same rules in the same folder.
    pub fn restart(&mut self) {
        self.service.take().expect("running").shut_down();
        self.start();
    }

    fn start(&mut self) {
        let source: SettingsSource = {
            let yaml = Arc::clone(&self.yaml);
            let file = self.folder.path().join("tidegate.yaml");
            Box::new(move |operators| config::load(&file, &yaml.lock(), &[], &[], operators))
        };
        let seed = 42 + STARTED.fetch_add(1, Ordering::Relaxed);
        self.answered.store(0, Ordering::SeqCst);
        match Service::start_with(self.world.clone(), source, self.clock.clone(), seed) {
            Ok(service) => self.service = Some(service),
            Err(error) => panic!("the gate does not start:\n{error}"),
        }
        self.wait_until_ready();
    }

    fn service(&self) -> &Service {
        self.service.as_ref().expect("running until the test ends it")
    }

    /// Where clients are served.
    pub fn address(&self) -> SocketAddr {
        self.service().listen()[0]
    }

    /// Where operators are.
    pub fn admin_address(&self) -> SocketAddr {
        self.service().admin().expect("tests have an admin listener")
    }

    /// A new connection to it.
    pub fn connect(&self) -> Client {
        Client::connect(self.address()).counted_in(&self.answered)
    }

    /// Writes other rules, for the next reload.
    pub fn write(&self, origin: SocketAddr, rules: &str) {
        *self.yaml.lock() = yaml(origin, self.folder.path(), rules);
    }

    /// Puts other rules in force; what the gate says of them.
    pub fn reload(&self, origin: SocketAddr, rules: &str) -> Result<String, String> {
        self.write(origin, rules);
        self.service().reload()
    }

    /// Looks whether an address list has changed.
    pub fn look_at_lists(&self) {
        self.service().reload_address_lists();
    }

    /// What the admin listener answers to `GET path`, once every answer that a client has received is recorded: a record
    /// is written after the last byte has been sent.
    pub fn admin(&self, path: &str) -> (u16, String) {
        self.wait_for_records();
        self.ask_admin("GET", path, "")
    }

    fn wait_for_records(&self) {
        let answered = self.answered.load(Ordering::SeqCst) as f64;
        wait_until("every answer to be recorded", || {
            let samples = self.samples();
            let recorded: f64 =
                samples.iter().filter(|(name, _)| name.starts_with(RESPONSES)).map(|(_, count)| count).sum();
            recorded >= answered
        });
    }

    /// The state as the admin API tells it.
    pub fn state(&self) -> Value {
        serde_json::from_str(&self.admin("/api/v1/state").1).expect("the state is JSON")
    }

    /// Settled and reserved of the first quota.
    pub fn books(&self) -> (f64, f64) {
        let quota = &self.state()["quotas"][0];
        (quota["used"].as_f64().expect("a number"), quota["reserved"].as_f64().expect("a number"))
    }

    /// All samples that the gate exports, by name and labels as written, once every answer is recorded.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        self.wait_for_records();
        self.samples()
    }

    fn samples(&self) -> BTreeMap<String, f64> {
        let (_, text) = self.ask_admin("GET", "/metrics", "");
        let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        samples.map(sample).collect()
    }

    /// One sample; zero where there is none yet.
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics().get(name).copied().unwrap_or(0.0)
    }

    /// Asks until the sample is `value`.
    #[track_caller]
    pub fn wait_for_metric(&self, name: &str, value: f64) {
        wait_until(&format!("{name} to be {value}"), || self.metric(name) == value);
    }

    /// Lets `span` pass, and returns once the worker (of which there is one) has looked at all of its connections
    /// since: one that said nothing, and may be silent for a second, is closed by then.
    pub fn pass(&self, span: Duration) {
        assert!(span >= Duration::from_millis(1250), "a silent client is borne for that long");
        assert!(self.yaml().contains("workers: 1\n"), "another worker may look at its connections later");
        let mut silent = self.connect();
        // Connections are accepted in turn: once a later one has its answer (not a request that counts as one), the
        // silent one is under watch.
        assert_eq!(self.connect().send("GET / HTTP/1.1\r\n\r\n").answer().status, 400);
        self.clock.advance(span);
        assert!(silent.is_closed(), "first_byte_timeout is 1s in a test that lets time pass");
    }

    /// Stops the gate and reads all of its access log.
    pub fn into_log(self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.into_log_text().lines().map(parse).collect()
    }

    /// The same as it is written.
    pub fn into_log_text(mut self) -> String {
        self.service.take().expect("running").shut_down();
        std::fs::read_to_string(log_path(self.folder.path())).expect("a log was written")
    }

    /// Its YAML, as it was written last.
    pub fn yaml(&self) -> String {
        self.yaml.lock().clone()
    }

    /// Lets what is under way end, as SIGTERM does.
    pub fn shut_down(mut self) {
        self.service.take().expect("running").shut_down();
    }

    /// Corrects by hand what a quota has used.
    pub fn set_used(&self, quota: &str, used: u32) {
        let body = format!("{{\"used\": {used}}}");
        let (status, told) = self.ask_admin("PUT", &format!("/api/v1/quotas/{quota}/used"), &body);
        assert_eq!(status, 200, "{told}");
    }

    fn wait_until_ready(&self) {
        wait_until("the gateway to be ready", || self.admin("/readyz").0 == 200);
    }

    /// Sends one request to the admin listener.
    pub fn ask_admin(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let address = self.admin_address();
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, body.to_owned())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.shut_down();
        }
    }
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("access.log")
}

/// Counts every response once it is recorded.
const RESPONSES: &str = "tidegate_responses_total{";

/// A test's own connection is a trusted proxy: it may say whose request it is.
const BEHIND_LOOPBACK: &str = "clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }";

fn yaml(origin: SocketAddr, folder: &Path, rules: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: \"127.0.0.1:0\" }}\nstate_dir: {folder}\n{ledger}\n{verify}\n\
         log: {{ access: {{ path: {log} }}, level: warn }}\n\
         {clients}\n{rules}\n{origin}\n",
        folder = folder.display(),
        // What a test counts is of no use to the next.
        ledger = if rules.contains("ledger:") { "" } else { "ledger: memory" },
        // Nobody beyond this machine is asked about crawlers.
        verify = if rules.contains("verify:") { "" } else { "verify: { dns: off, refresh: off }" },
        log = log_path(folder).display(),
        // A test that sets more of the origin than its address writes the section itself, with ORIGIN in it.
        rules = rules.replace("ORIGIN", &format!("http://{origin}")),
        clients = if rules.contains("clients:") { "" } else { BEHIND_LOOPBACK },
        origin =
            if rules.contains("origin:") { String::new() } else { format!("origin: {{ url: \"http://{origin}\" }}") },
    )
}
