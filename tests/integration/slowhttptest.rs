//! The attacks of slowhttptest, with two thousand connections each: other clients are served meanwhile. `./test` installs
//! it.

use crate::support::client::Client;
use crate::support::nginx::Nginx;
use crate::support::running_gateway::RunningGateway;
use rustix::process::{Resource, getrlimit};
use std::io::Read;
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

/// Serves people while slowhttptest runs with `options`. Prints the longest time.
fn assert_people_are_served_beside(options: &[&str], path: &str) {
    const PROBES: std::ops::Range<u8> = 0..250;
    let origin = Nginx::start(NGINX);
    let dir = tempfile::tempdir().expect("temporary directory");
    let gateway = RunningGateway::start(dir.path(), origin.address, RULES);
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let connections = files.saturating_sub(100).min(2000);
    let mut attack = Command::new("slowhttptest")
        .args(["-c", &connections.to_string(), "-r", "1000", "-l", "8", "-p", "60"])
        .args(options)
        .args(["-u", &format!("http://{}{path}", gateway.address)])
        .stdout(Stdio::piped())
        .spawn()
        .expect("slowhttptest is installed; run ./test");
    let mut output = attack.stdout.take().expect("output is piped");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        output.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    });

    let (clock, mut longest, mut served) = (Clock::system(), Duration::ZERO, 0);
    for person in PROBES.cycle() {
        let started_at = clock.monotonic_now();
        let mut client = Client::connect(gateway.address);
        let response = client.get("/small", &format!("X-Forwarded-For: 192.0.2.{person}\r\n"));
        assert_eq!(response.status, 200, "{options:?}: person {person}");
        longest = longest.max(clock.monotonic_now().saturating_duration_since(started_at));
        served += 1;
        if attack.try_wait().expect("a child process").is_some() {
            break;
        }
    }
    let report = reader.join().expect("no panic").expect("readable output");
    let count = |state: &str| -> u64 {
        let line = report.lines().rev().find(|line| line.contains(state));
        line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or_else(|| panic!("{report}"))
    };
    let (connected, closed) = (count("connected:"), count("closed:"));
    println!(
        "{options:?}: {served} people were served, in at most {longest:?}; {connected} connected, {closed} closed"
    );
    assert!(connected + closed >= connections / 2, "{report}");
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
