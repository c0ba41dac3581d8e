//! The attacks of slowhttptest, with two thousand connections each, without TLS and with it: other clients are served
//! meanwhile. `./test` installs it.

use crate::support::client::Client;
use crate::support::nginx::Nginx;
use crate::support::running_gateway::RunningGateway;
use crate::support::tls::Certificates;
use rustix::process::{Resource, getrlimit};
use std::process::{Command, Stdio};
use std::time::Duration;
use tidegate_engine::clock::Clock;

/// The limits are the defaults.
const RULES: &str = "
log: { access: off, level: warn }
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas: { api: { limit: 1000000, window: { fixed: 24h } } }
scopes: { default: { concurrency: 16 } }
routes: [{ match: \"/**\", cost: { api: 1 } }]
";

/// Beside `/page`, which is larger than the system's buffers of a connection.
const NGINX: &str = "location = /small { return 200 small; }";

/// Serves people while slowhttptest runs with `options`, without TLS, then with it.
fn assert_people_are_served_beside(options: &[&str], path: &str) {
    assert_served("http", options, path);
    assert_served("https", options, path);
}

/// Serves people while slowhttptest runs with `options`. Prints the longest time.
fn assert_served(scheme: &str, options: &[&str], path: &str) {
    const PEOPLE: std::ops::Range<u8> = 0..50;
    const SITE: &str = "site.example";
    let origin = Nginx::start(NGINX);
    let dir = tempfile::tempdir().expect("temporary directory");
    let certificates = Certificates::new();
    let listen = match scheme {
        "https" => format!("{{ address: '127.0.0.1:0', tls: {{ {} }} }}", certificates.issue("site", &[SITE])),
        _ => "127.0.0.1:0".to_owned(),
    };
    let gateway = RunningGateway::start_at(dir.path(), origin.address, &listen, RULES);
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let connections = files.saturating_sub(100).min(2000);
    let mut attack = Command::new("slowhttptest")
        // A slow machine has fewer handshakes in progress than the limit.
        .args(["-c", &connections.to_string(), "-r", if scheme == "https" { "250" } else { "1000" }])
        .args(["-l", "8", "-p", "60"])
        .args(options)
        .args(["-u", &format!("{scheme}://{}{path}", gateway.address)])
        .stdout(Stdio::null())
        .spawn()
        .expect("slowhttptest is installed; run ./test");
    let (clock, mut longest, mut served, mut open) = (Clock::system(), Duration::ZERO, 0, 0.0_f64);
    for person in PEOPLE.cycle() {
        let started_at = clock.monotonic_now();
        let address = format!("X-Forwarded-For: 192.0.2.{person}\r\n");
        let response = match scheme {
            "https" => certificates.connect(gateway.address, SITE).get("/small", &address),
            _ => Client::connect(gateway.address).get("/small", &address),
        };
        assert_eq!(response.status, 200, "{scheme} {options:?}: person {person}");
        longest = longest.max(clock.monotonic_now().saturating_duration_since(started_at));
        served += 1;
        if person == 0 {
            open = open.max(gateway.metric("tidegate_client_connections"));
        }
        if attack.try_wait().expect("a child process").is_some() {
            break;
        }
    }
    let requests: f64 = gateway.samples("tidegate_requests_total{").iter().sum();
    let hostile = requests - f64::from(served);
    println!(
        "{scheme} {options:?}: {served} people were served, in at most {longest:?}; {open} connections, {hostile} requests"
    );
    assert!(open.max(hostile) >= 50.0, "the attack has not taken place");
}

#[test]
fn slow_request_heads_hold_up_nobody() {
    assert_people_are_served_beside(&["-H", "-i", "10", "-t", "GET"], "/small");
}

#[test]
fn slow_request_bodies_hold_up_nobody() {
    assert_people_are_served_beside(&["-B", "-i", "10", "-s", "8192", "-t", "POST"], "/small");
}

#[test]
fn overlapping_ranges_hold_up_nobody() {
    assert_people_are_served_beside(&["-R", "-a", "10", "-b", "3000", "-t", "GET"], "/page");
}

#[test]
fn slow_readers_of_large_pages_hold_up_nobody() {
    assert_people_are_served_beside(&["-X", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"], "/page");
}
