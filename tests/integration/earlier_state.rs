//! State directories of earlier versions are used on: `tests/data/state/make` has kept one of each version that wrote a file in another
//! format than the version after it.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::run_with_env;
use crate::support::wait::wait_until;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tidegate_engine::clock::Clock;
use tidegate_policy::Timestamp;

/// 2026-11-27 12:00 UTC, as in `tests/data/state/make`.
const MADE_AT: Timestamp = Timestamp::from_seconds(1_795_780_800);

const RULES: &str = "ledger: file
quotas:
  units: { limit: 1000, window: { fixed: 720h }, pacing: off }
  customer: { per: { header: X-Customer }, limit: 10, window: { fixed: 720h } }
routes:
  - { match: '/item/*', cost: { units: 1, customer: 1 } }
  - { match: '/**' }
cache: { memory: 16MiB, disk: { size: 1GiB } }
";

/// What a version has kept, besides units, the log and a copy of `/page/1`.
struct Version {
    name: &'static str,
    has_budgets: bool,
    has_switches: bool,
    /// False if its copies are of another format, and left out.
    has_readable_copies: bool,
}

const VERSIONS: &[Version] = &[
    Version { name: "cache-1", has_budgets: false, has_switches: true, has_readable_copies: false },
    Version { name: "cache-2", has_budgets: false, has_switches: true, has_readable_copies: false },
    Version { name: "keys-3", has_budgets: true, has_switches: true, has_readable_copies: true },
    Version { name: "keys-2", has_budgets: true, has_switches: true, has_readable_copies: true },
    Version { name: "keys-1", has_budgets: true, has_switches: true, has_readable_copies: true },
];

#[test]
fn state_of_every_earlier_format_is_used_on() {
    let mut archives: Vec<PathBuf> = fs::read_dir(directory())
        .expect("directory is readable")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    archives.retain(|path| path.extension() == Some("gz".as_ref()));
    assert_eq!(archives.len(), VERSIONS.len(), "{archives:?}");
    for Version { name, has_budgets, has_switches, has_readable_copies } in VERSIONS {
        let origin =
            Origin::with_script(|_, connection| connection.reply("200 OK", "Cache-Control: no-store\r\n", b"new"));
        let clock = Clock::frozen_at(MADE_AT + Duration::from_secs(60));
        let mut gateway = TestGateway::with_clock(origin.address(), RULES, clock);
        let state = gateway.state_dir().to_owned();
        gateway.restart_after(|| replace(&state, &format!("{name}.tar.gz")));

        let shown = gateway.state();
        for lost in ["unusable", "damaged", "truncated", "lost", "set aside"] {
            assert!(!shown["notes"].to_string().contains(lost), "{name}: {}", shown["notes"]);
        }
        assert_eq!(gateway.counters(), (5.0, 0.0), "{name}: units");
        assert_eq!(shown.to_string().contains("203.0.113.9"), *has_switches, "{name}: switch");
        if *has_budgets {
            for (customer, left) in [("alpha", 7), ("beta", 8), ("gamma", 10)] {
                for _ in 0..left {
                    assert_eq!(get(&gateway, "/item/1", customer).status, 200, "{name}: {customer}");
                }
                assert_eq!(get(&gateway, "/item/1", customer).status, 429, "{name}: {customer}");
            }
        }
        wait_until("the index of the disk", || gateway.admin_get("/api/v1/cache").1.contains("\"is_loaded\":true"));
        let page = get(&gateway, "/page/1", "");
        let expected = if *has_readable_copies { "a page" } else { "new" };
        assert_eq!((page.status, page.text().as_str()), (200, expected), "{name}: {}", page.field("cache-status"));

        let [log, file] = ["access.log", "replay.yaml"].map(|name| state.join(name));
        fs::write(&file, format!("origin: http://127.0.0.1:1\n{RULES}")).expect("directory is writable");
        let arguments = [Path::new("replay"), Path::new("--config"), &file, &log];
        let replayed = run_with_env(&arguments.map(|argument| argument.to_str().expect("UTF-8")), b"", &[]);
        assert_eq!(replayed.code, 0, "{name}: {}", replayed.errors);
    }
}

fn get(gateway: &TestGateway, path: &str, customer: &str) -> Response {
    let mut client = gateway.connect();
    let customer = if customer.is_empty() { String::new() } else { format!("X-Customer: {customer}\r\n") };
    client.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: identity\r\n{customer}\r\n"));
    client.read_response()
}

/// Replaces a state directory by that of an archive.
fn replace(state: &Path, archive: &str) {
    for entry in fs::read_dir(state).expect("directory is readable") {
        let path = entry.expect("an entry").path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.expect("own directory");
    }
    let mut extract = Command::new("tar");
    extract.arg("-xzf").arg(directory().join(archive)).arg("--no-same-owner").arg("-C").arg(state);
    assert!(extract.status().is_ok_and(|status| status.success()), "{archive}");
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/state")
}
