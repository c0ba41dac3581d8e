//! Caddy in front of the gateway, with the file of docs/OPERATIONS.md: TLS for clients, and their addresses for the gateway.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::wait::wait_until;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

#[test]
fn documented_caddyfile_passes_the_address_and_the_scheme_of_clients() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "routes: [ { match: '/**' } ]\n");
    let caddy = Caddy::start(gateway.address());
    let url = format!("https://localhost:{}/page?q=1", caddy.address.port());
    let forged =
        ["-H", "X-Forwarded-For: 66.249.66.1", "-H", "X-Forwarded-Proto: http", "-H", "Forwarded: for=66.249.66.1"];
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "-k",
        "-A",
        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{http_version}",
    ])
    .args(forged)
    .arg(&url);
    // Caddy listens before it has made its certificate; handshakes fail until then.
    let mut response = String::new();
    wait_until("Caddy to have a certificate", || {
        let output = curl.output().expect("curl is not installed; run ./test");
        response = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success()
    });
    assert_eq!(response, "200 2");
    let line: Value = serde_json::from_str(gateway.read_log_text().trim()).expect("one line");
    assert_eq!((&line["client"], &line["tls"]), (&"127.0.0.1".into(), &true.into()), "{line}");
    assert_eq!(line["host"], format!("localhost:{}", caddy.address.port()), "{line}");
}

/// A Caddy process with a certificate of its own, killed at the end of the test.
struct Caddy {
    process: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Caddy {
    /// Starts Caddy with the documented file, in front of `gateway`.
    fn start(gateway: SocketAddr) -> Self {
        let manual = include_str!("../../docs/OPERATIONS.md");
        let (_, rest) = manual.split_once("```caddyfile\n").expect("a Caddyfile");
        let (documented, _) = rest.split_once("```").expect("its end");
        let dir = tempfile::tempdir().expect("temporary directory");
        let address = Origin::free_address();
        // In place of a certificate for a public name: one of Caddy's own authority, which no trust store learns of.
        let site = documented
            .replace("example.com {", &format!("https://localhost:{} {{\ntls internal", address.port()))
            .replace("127.0.0.1:8080", &gateway.to_string());
        let file = dir.path().join("Caddyfile");
        let global = "{\nadmin off\nskip_install_trust\nauto_https disable_redirects\n}\n";
        std::fs::write(&file, format!("{global}{site}")).expect("file is writable");
        let program = Path::new("/usr/bin/caddy");
        assert!(program.exists(), "caddy is not installed; run ./test");
        let process = Command::new(program)
            .args(["run", "--config"])
            .arg(&file)
            .env("HOME", dir.path())
            .env("XDG_DATA_HOME", dir.path())
            .env("XDG_CONFIG_HOME", dir.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("caddy starts");
        wait_until("Caddy to listen", || TcpStream::connect(address).is_ok());
        Self { process, address, _dir: dir }
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
