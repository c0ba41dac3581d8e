//! Prometheus and Alertmanager as processes, and promtool. `./test` installs them.

use super::client::Client;
use super::wait::{wait_for, wait_until};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A server with its own directory on a free port of loopback, killed at the end of the test.
struct Server {
    process: Child,
    address: SocketAddr,
    dir: TempDir,
}

impl Server {
    /// Starts a server with `config`, and waits until it is ready.
    fn start(program: &str, config: &str, dir: TempDir, arguments: &[&str]) -> Self {
        let (config_file, log) = (dir.path().join("config.yaml"), dir.path().join("log"));
        fs::write(&config_file, config).expect("configuration is writable");
        let process = Command::new(program)
            .arg(format!("--config.file={}", config_file.display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .args(arguments)
            .current_dir(dir.path())
            .stderr(File::create(&log).expect("log is writable"))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {program} ({error}); run ./test to install it"));
        let mut server = Self { process, address: SocketAddr::from(([127, 0, 0, 1], 0)), dir };
        server.address = wait_for(&format!("{program} to listen"), || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let exit = server.process.try_wait().expect("status of a child");
            assert!(exit.is_none(), "{program} does not start:\n{text}");
            text.split("msg=\"Listening on\" address=").nth(1)?.split_once('\n')?.0.parse().ok()
        });
        let client = || Client::connect(server.address);
        wait_until(&format!("{program} to be ready"), || client().get("/-/ready", "").status == 200);
        server
    }

    fn get(&self, path: &str) -> Value {
        let response = Client::connect(self.address).get(path, "");
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A Prometheus that scrapes gateways twice a second and evaluates rules as often.
pub struct Prometheus(Server);

impl Prometheus {
    /// Starts a server that scrapes `gateway` in the job `job`, evaluates `rules`, and sends alerts to `alertmanager`.
    pub fn scraping(gateway: SocketAddr, job: &str, rules: &str, alertmanager: Option<&Alertmanager>) -> Self {
        let targets = alertmanager.map(|alertmanager| alertmanager.0.address.to_string());
        let config = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [rules.yaml]\n\
             scrape_configs: [ {{ job_name: {job}, static_configs: [ {{ targets: ['{gateway}'] }} ] }} ]\n\
             alerting: {{ alertmanagers: [ {{ static_configs: [ {{ targets: {targets:?} }} ] }} ] }}\n",
            targets = Vec::from_iter(targets),
        );
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::write(dir.path().join("rules.yaml"), rules).expect("rules are writable");
        Self(Server::start("prometheus", &config, dir, &["--storage.tsdb.path=data", "--log.level=info"]))
    }

    /// Returns the data of `GET path` of the HTTP API. `parameters` are encoded. Panics if the request is refused.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let encoded = parameters.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        let query = encoded.collect::<Vec<_>>().join("&");
        self.0.get(&format!("/api/v1/{path}?{query}"))["data"].take()
    }
}

/// An Alertmanager that notifies nobody.
pub struct Alertmanager(Server);

impl Alertmanager {
    pub fn start() -> Self {
        let config = "{ route: { receiver: nobody, group_wait: 0s }, receivers: [ { name: nobody } ] }";
        let dir = tempfile::tempdir().expect("temporary directory");
        let arguments = ["--storage.path=data", "--cluster.listen-address="];
        Self(Server::start("prometheus-alertmanager", config, dir, &arguments))
    }

    /// Returns the alerts that fire.
    pub fn alerts(&self) -> Vec<Value> {
        self.0.get("/api/v2/alerts").as_array().expect("a list of alerts").clone()
    }
}

/// Runs promtool in `dir` with `input`.
pub fn promtool(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let mut process = Command::new("promtool")
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run promtool ({error}); run ./test to install it"));
    process.stdin.take().expect("input is piped").write_all(input.as_bytes()).expect("promtool reads its input");
    process.wait_with_output().expect("promtool exits")
}

/// Encodes a value of a query string.
fn encode(value: &str) -> String {
    let encode_byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(encode_byte).collect()
}
