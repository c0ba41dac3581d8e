//! A real gateway on its own ports, configured by YAML, stopped at the end of the test.

use super::TIMEOUT;
use super::client::Client;
use super::report;
use super::tls_tunnel::{self, TlsTunnels};
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
use tidegate::service::{ExternalAccess, Service, SettingsSource};
use tidegate_config as config;
use tidegate_config::admin_address::AdminAddress;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;

/// Noon of a day, hours away from the end of any window that a test uses.
pub const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

/// Number of gateways started in this process, which gives each its own number.
static GATEWAY_COUNT: AtomicU64 = AtomicU64::new(0);

/// A running gateway.
pub struct TestGateway {
    service: Option<Service>,
    access: ExternalAccess,
    yaml: Arc<Mutex<String>>,
    dir: TempDir,
    /// Number of complete responses that its clients have received since it was started.
    response_count: Arc<AtomicU64>,
    /// TLS towards clients, if tests run over it, and the rules have no listener of their own.
    tls: Option<TlsTunnels>,
    pub clock: Clock,
}

impl TestGateway {
    /// Starts a gateway in front of `origin` on a clock that stays at noon, with `rules` added to the YAML of every
    /// test.
    pub fn with_rules(origin: SocketAddr, rules: &str) -> Self {
        Self::with_clock(origin, rules, Clock::manual(NOON))
    }

    /// Like [`Self::with_rules`], with another clock.
    pub fn with_clock(origin: SocketAddr, rules: &str, clock: Clock) -> Self {
        Self::launch(ExternalAccess::default(), origin, rules, clock)
    }

    /// Like [`Self::with_rules`], with other network access.
    pub fn with_network(access: ExternalAccess, origin: SocketAddr, rules: &str) -> Self {
        Self::launch(access, origin, rules, Clock::manual(NOON))
    }

    fn launch(access: ExternalAccess, origin: SocketAddr, rules: &str, clock: Clock) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tls = (tls_tunnel::is_requested() && !has_listener(rules)).then(TlsTunnels::new);
        let yaml = Arc::new(Mutex::new(yaml(origin, dir.path(), tls.as_ref(), rules)));
        report::record_access_log(&log_path(dir.path()));
        let mut gateway = Self { service: None, access, yaml, dir, response_count: Arc::default(), tls, clock };
        gateway.start();
        gateway
    }

    /// Stops the gateway and starts it again, with the same rules in the same directory.
    pub fn restart(&mut self) {
        self.restart_after(|| {});
    }

    /// Restarts the gateway and waits until it knows the responses on its disk.
    pub fn restart_with_disk(&mut self) {
        self.restart();
        wait_until("the index of the disk", || {
            let (_, document) = self.admin_get("/api/v1/cache");
            let document: Value = serde_json::from_str(&document).expect("JSON");
            document["disk"]["is_loaded"] == true
        });
    }

    /// Stops the gateway, calls `change`, and starts the gateway again.
    pub fn restart_after(&mut self, change: impl FnOnce()) {
        self.service.take().expect("gateway is running").shut_down();
        change();
        self.start();
    }

    /// Returns the state directory.
    pub fn state_dir(&self) -> &Path {
        self.dir.path()
    }

    fn start(&mut self) {
        let source: SettingsSource = {
            let yaml = Arc::clone(&self.yaml);
            let file = self.dir.path().join("tidegate.yaml");
            Arc::new(move |operators, text| {
                let text = text.map_or_else(|| yaml.lock().clone(), str::to_owned);
                config::load(&file, &text, &[], &[], operators)
            })
        };
        let seed = 42 + GATEWAY_COUNT.fetch_add(1, Ordering::Relaxed);
        self.response_count.store(0, Ordering::SeqCst);
        match Service::start_with(self.access.clone(), source, self.clock.clone(), seed) {
            Ok(service) => {
                self.tls.iter_mut().for_each(|tunnels| tunnels.start(service.listen()[0]));
                self.service = Some(service);
            }
            Err(error) => panic!("the gateway does not start:\n{error}"),
        }
        self.wait_until_ready();
    }

    fn service(&self) -> &Service {
        self.service.as_ref().expect("gateway runs until the test stops it")
    }

    /// Returns the address of the client listener.
    pub fn address(&self) -> SocketAddr {
        self.tls.as_ref().and_then(TlsTunnels::address).unwrap_or_else(|| self.service().listen()[0])
    }

    /// Returns the addresses of all client listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.service().listen()
    }

    /// Returns the address of the listener for other proxies.
    pub fn forward_auth_address(&self) -> SocketAddr {
        self.service().forward_auth().expect("the rules have forward_auth")
    }

    /// Returns the address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.service().admin().and_then(AdminAddress::tcp).expect("tests have an admin listener")
    }

    /// Opens a new connection to the gateway.
    pub fn connect(&self) -> Client {
        Client::connect(self.address()).with_response_counter(&self.response_count)
    }

    /// Writes other rules, for the next reload.
    pub fn write(&self, origin: SocketAddr, rules: &str) {
        *self.yaml.lock() = yaml(origin, self.dir.path(), self.tls.as_ref(), rules);
    }

    /// Reloads with other rules. Returns the messages of the gateway.
    pub fn reload(&self, origin: SocketAddr, rules: &str) -> Result<String, String> {
        self.write(origin, rules);
        self.service().reload()
    }

    /// Reloads address lists and certificates that have changed.
    pub fn reload_files(&self) {
        self.service().reload_files();
    }

    /// Sends `GET path` to the admin listener and returns the response. First waits until each response that a client
    /// has received is recorded, because a record is written after the last byte is sent.
    pub fn admin_get(&self, path: &str) -> (u16, String) {
        self.wait_for_records();
        self.admin_request("GET", path, "")
    }

    fn wait_for_records(&self) {
        let responses = self.response_count.load(Ordering::SeqCst) as f64;
        wait_until("all responses to be recorded", || {
            let samples = self.samples();
            let recorded: f64 =
                samples.iter().filter(|(name, _)| name.starts_with(RESPONSES_METRIC)).map(|(_, count)| count).sum();
            recorded >= responses
        });
    }

    /// Returns the state from the admin API.
    pub fn state(&self) -> Value {
        serde_json::from_str(&self.admin_get("/api/v1/state").1).expect("the state is JSON")
    }

    /// Returns settled and reserved units of the first quota.
    pub fn counters(&self) -> (f64, f64) {
        let quota = &self.state()["quotas"][0];
        (quota["used"].as_f64().expect("a number"), quota["reserved"].as_f64().expect("a number"))
    }

    /// Returns all exported samples by name and labels, after all responses are recorded.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        self.wait_for_records();
        self.samples()
    }

    fn samples(&self) -> BTreeMap<String, f64> {
        let (_, text) = self.admin_request("GET", "/metrics", "");
        let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        samples.map(sample).collect()
    }

    /// Returns one sample, or 0 if it does not exist.
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics().get(name).copied().unwrap_or(0.0)
    }

    /// Polls until the sample is `value`.
    #[track_caller]
    pub fn wait_for_metric(&self, name: &str, value: f64) {
        wait_until(&format!("{name} to be {value}"), || self.metric(name) == value);
    }

    /// Advances the clock by `span` and returns after the worker (there must be one) has checked the timeouts of all
    /// its connections. A connection that has sent no byte for a second is closed by then.
    pub fn advance_and_sweep(&self, span: Duration) {
        assert!(span >= Duration::from_millis(1250), "span must exceed the timeout of a silent connection");
        assert!(self.yaml().contains("workers: 1\n"), "another worker may check its connections later");
        let mut silent_client = self.connect();
        // Connections are accepted in order: after the response to a later one (an invalid request, which is not
        // counted), the silent one is tracked.
        assert_eq!(self.connect().send("GET / HTTP/1.1\r\n\r\n").read_response().status, 400);
        self.clock.advance(span);
        assert!(silent_client.is_closed(), "first_byte_timeout must be 1s in a test that advances the clock");
    }

    /// Stops the gateway and returns the lines of its access log of requests that the rules have decided on. The harness itself
    /// sends invalid ones.
    pub fn read_log(self) -> Vec<Value> {
        self.read_whole_log().into_iter().filter(|line| line["verdict"] != "rejected").collect()
    }

    /// Like [`Self::read_log`], with the lines of rejected requests.
    pub fn read_whole_log(self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.read_log_text().lines().map(parse).collect()
    }

    /// Like [`Self::read_whole_log`], as text.
    pub fn read_log_text(mut self) -> String {
        self.service.take().expect("gateway is running").shut_down();
        std::fs::read_to_string(log_path(self.dir.path())).expect("access log exists")
    }

    /// Returns the YAML that was written last.
    pub fn yaml(&self) -> String {
        self.yaml.lock().clone()
    }

    /// Completes the requests in flight and stops, like on SIGTERM.
    pub fn shut_down(mut self) {
        self.service.take().expect("gateway is running").shut_down();
    }

    /// Sets the used units of a quota manually.
    pub fn set_used(&self, quota: &str, used: u32) {
        let body = format!("{{\"used\": {used}}}");
        let (status, response) = self.admin_request("PUT", &format!("/api/v1/quotas/{quota}/used"), &body);
        assert_eq!(status, 200, "{response}");
    }

    fn wait_until_ready(&self) {
        wait_until("the gateway to be ready", || self.admin_get("/readyz").0 == 200);
    }

    /// Returns the token that the rules of the test set for the admin listener.
    fn admin_token(&self) -> Option<String> {
        let yaml = self.yaml.lock();
        let (_, value) = yaml.split_once(" token: ")?;
        value.split([',', ' ', '\n']).next().map(str::to_owned)
    }

    /// Sends one request to the admin listener.
    pub fn admin_request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let address = self.admin_address();
        let mut stream = TcpStream::connect(address).expect("admin listener is running");
        stream.set_read_timeout(Some(TIMEOUT)).expect("timeout can be set");
        let length = body.len();
        let authorization = match self.admin_token() {
            Some(token) => format!("Authorization: Bearer {token}\r\n"),
            None => String::new(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             {authorization}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("gateway reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("gateway responds");
        let (head, body) = response.split_once("\r\n\r\n").expect("HTTP response");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("status code");
        (status, body.to_owned())
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.shut_down();
        }
    }
}

fn log_path(dir: &Path) -> PathBuf {
    dir.join("access.log")
}

/// Metric that counts every response once it is recorded.
const RESPONSES_METRIC: &str = "tidegate_responses_total{";

/// Rules that trust the test's own connections as proxies, so that tests can set client addresses.
const TRUST_LOOPBACK_PROXIES: &str = "clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }";

fn has_listener(rules: &str) -> bool {
    rules.lines().any(|line| line.starts_with("listen:"))
}

fn yaml(origin: SocketAddr, dir: &Path, tls: Option<&TlsTunnels>, rules: &str) -> String {
    format!(
        "{listen}\n{admin}\nstate_dir: {dir}\n{ledger}\n{verify}\n\
         log: {{ access: {{ path: {log} }}, level: warn }}\n\
         {clients}\n{classes}\n{rules}\n{origin}\n",
        listen = match tls {
            _ if has_listener(rules) => String::new(),
            Some(tunnels) => tunnels.listener(),
            None => "listen: 127.0.0.1:0".to_owned(),
        },
        admin = if rules.contains("admin:") { "" } else { "admin: { listen: \"127.0.0.1:0\" }" },
        dir = dir.display(),
        // Counters of a test are not needed by the next test.
        ledger = if rules.contains("ledger:") { "" } else { "ledger: memory" },
        // Tests send no DNS queries and fetch no lists, unless they configure it.
        verify = if rules.contains("verify:") { "" } else { "verify: { dns: off, refresh_interval: off }" },
        log = log_path(dir).display(),
        // A test that sets more of the origin than its URL writes the section itself, with ORIGIN in it.
        rules = rules.replace("ORIGIN", &format!("http://{origin}")),
        // The built-in classes and the pacing for them are for tests that name them.
        classes = if rules.contains("classes:") { "" } else { "classes: []" },
        clients = if rules.contains("clients:") { "" } else { TRUST_LOOPBACK_PROXIES },
        origin =
            if rules.contains("origin:") { String::new() } else { format!("origin: {{ url: \"http://{origin}\" }}") },
    )
}
