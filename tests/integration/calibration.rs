//! The origin keeps a count of its own, and tells of it: ours can only become stricter by it. And what requests cost is
//! learned from it.

use crate::support::gate::Gate;
use crate::support::origin::{Origin, Wire};
use parking_lot::Mutex;
use std::time::Duration;

const SYNCED: &str = "
quotas:
  api:
    limit: 100
    window: { fixed: 1h }
    sync_from:
      remaining_header: X-RateLimit-Remaining
      reset_header: X-RateLimit-Reset
      exhausted: { statuses: [403, 429], body_or_header: dailyLimitExceeded }
routes: [{ match: /free }, { match: /**, cost: { api: 1 } }]
";

/// An origin that answers each request with the next of these fields, statuses and bodies.
fn origin(answers: &'static [(&'static str, &'static str, &'static str)]) -> Origin {
    let next = Mutex::new(answers.iter());
    Origin::scripted(move |_, wire: &mut Wire| {
        let (status, fields, body) = next.lock().next().copied().unwrap_or(("200 OK", "", "more"));
        wire.reply(status, fields, body.as_bytes());
    })
}

/// A gate in the middle of its window.
fn gate(origin: &Origin, rules: &str) -> Gate {
    // One worker: that is what passing time waits for.
    let gate = Gate::before(origin.address(), &format!("workers: 1\n{rules}"));
    gate.pass(Duration::from_secs(1800));
    gate
}

fn left(gate: &Gate) -> f64 {
    let (used, reserved) = gate.books();
    100.0 - used - reserved
}

#[test]
fn what_others_spend_is_seen_and_kept_off_the_limit() {
    for ledger in ["memory", "file"] {
        others_spend(&format!("ledger: {ledger}\n{SYNCED}"));
    }
}

fn others_spend(rules: &str) {
    let origin = origin(&[
        ("200 OK", "X-RateLimit-Remaining: 99\r\n", "one"),
        ("200 OK", "X-RateLimit-Remaining: 40\r\n", "two"),
        ("200 OK", "X-RateLimit-Remaining: 90\r\n", "three"),
    ]);
    let gate = gate(&origin, rules);
    let mut client = gate.connect();
    assert_eq!(client.get("/a", "").status, 200);
    assert_eq!((left(&gate), gate.metric("tidegate_quota_drift{quota=\"api\"}")), (99.0, 0.0));
    client.get("/b", "");
    assert_eq!((left(&gate), gate.metric("tidegate_quota_drift{quota=\"api\"}")), (40.0, 58.0));
    client.get("/c", "");
    assert_eq!(left(&gate), 39.0, "it can only become stricter");
    assert_eq!(gate.metric("tidegate_quota_drift{quota=\"api\"}"), -51.0);
    let served = (0..100).filter(|_| client.get("/d", "").status == 200).count();
    assert!(served <= 39, "{served} of the 39 that are left");
}

#[test]
fn an_exhausted_origin_closes_the_quota_until_it_is_renewed() {
    let origin = origin(&[
        ("429 Too Many Requests", "", "slow down"),
        ("403 Forbidden", "X-RateLimit-Reset: 600\r\n", "{\"reason\": \"dailyLimitExceeded\"}"),
    ]);
    let gate = gate(&origin, SYNCED);
    let mut client = gate.connect();
    assert_eq!(client.get("/a", "").status, 429, "the origin's own, of another kind");
    assert_eq!(left(&gate), 99.0);
    assert_eq!(client.get("/b", "").status, 403);
    let refused = client.get("/c", "");
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("quota")));
    let wait: u64 = refused.field("retry-after").parse().expect("a number");
    assert!((600..=720).contains(&wait), "{wait}");
    assert_eq!(client.get("/free", "").status, 200, "what costs nothing is served");
    gate.clock.advance(Duration::from_secs(599));
    assert_eq!(client.get("/d", "").status, 429);
    gate.clock.advance(Duration::from_secs(1));
    assert_eq!(client.get("/e", "").status, 200, "a shorter limit of the origin's own is over");
    assert_eq!(origin.seen().len(), 4);
}

#[test]
fn a_429_that_is_answered_in_the_origins_place_is_heard_out() {
    let backoff = "scopes: { default: { backoff: { jitter: 0%, min_delay: 5s }, queue: { max_wait: 0s } } }";
    let origin = Origin::scripted(|seen, wire| {
        wire.send(
            "HTTP/1.1 429 Too Many Requests\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{\"reason\": \"dailyLim\r\n",
        );
        match seen.target.as_str() {
            "/silent" => assert!(wire.sees_the_end()),
            _ => assert!(wire.send("b\r\nitExceeded\"\r\n0\r\n\r\n")),
        }
    });
    let gate = gate(&origin, &format!("{SYNCED}{backoff}\nlimits: {{ first_byte_timeout: 1s }}"));
    let mut waits = gate.connect();
    waits.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.wait_for_metric("tidegate_origin_backoff_seconds{scope=\"default\"}", 5.0);
    gate.pass(Duration::from_secs(31));
    let told = waits.answer();
    assert_eq!((told.status, told.json()["reason"].as_str()), (503, Some("backoff")), "it has said nothing in time");
    assert_eq!(left(&gate), 99.0);
    assert_eq!(gate.connect().get("/told", "").json()["reason"], "backoff");
    assert_eq!((gate.connect().get("/next", "").json()["reason"].as_str(), left(&gate)), (Some("quota"), 0.0));
}

#[test]
fn the_operators_word_opens_what_the_origins_has_closed() {
    for ledger in ["memory", "file"] {
        let origin = origin(&[("429 Too Many Requests", "Retry-After: 600\r\nX-Reason: dailyLimitExceeded\r\n", "")]);
        let gate = gate(&origin, &format!("ledger: {ledger}\n{SYNCED}"));
        let mut client = gate.connect();
        client.get("/a", "");
        assert_eq!(client.get("/b", "").status, 429);
        assert!(gate.state()["quotas"][0]["closed_until"].is_string());
        gate.set_used("api", 10);
        assert_eq!((client.get("/b", "").status, left(&gate)), (200, 89.0));
        assert!(gate.state()["quotas"][0]["closed_until"].is_null());
    }
}

#[test]
fn without_a_time_of_renewal_it_stays_closed_to_the_end_of_the_window() {
    let origin = origin(&[("429 Too Many Requests", "X-Reason: dailyLimitExceeded\r\n", "")]);
    let gate = gate(&origin, SYNCED);
    let mut client = gate.connect();
    client.get("/a", "");
    assert_eq!((client.get("/b", "").status, left(&gate)), (429, 0.0));
    gate.clock.advance(Duration::from_secs(1799));
    assert_eq!(client.get("/b", "").status, 429);
    gate.clock.advance(Duration::from_secs(1));
    assert_eq!(client.get("/b", "").status, 200);
}

#[test]
fn a_word_about_another_window_changes_nothing() {
    let origin = origin(&[
        ("200 OK", "X-RateLimit-Remaining: 3\r\nX-RateLimit-Reset: 40000\r\n", "another day"),
        ("200 OK", "X-RateLimit-Remaining: 3\r\nX-RateLimit-Reset: 1790\r\n", "this hour"),
    ]);
    let gate = gate(&origin, SYNCED);
    let mut client = gate.connect();
    client.get("/a", "");
    assert_eq!(left(&gate), 99.0);
    client.get("/b", "");
    assert_eq!(left(&gate), 3.0);
}

#[test]
fn the_last_word_of_a_window_does_not_close_the_next() {
    let origin = origin(&[("200 OK", "X-RateLimit-Remaining: 0\r\n", "late")]);
    let gate = gate(&origin, SYNCED);
    gate.pass(Duration::from_secs(1800));
    gate.connect().get("/a", "");
    assert_eq!(left(&gate), 99.0, "the new hour has just begun");
}

#[test]
fn what_pages_cost_is_learned_and_kept_over_a_reload() {
    let rules = "
quotas: { api: { limit: 100, window: { fixed: 1h }, cost_header: X-Cost } }
routes: [{ match: /dear/*, cost: { api: learned } }, { match: /**, cost: { api: 1 } }]
";
    let origin = Origin::scripted(|seen, wire| {
        let cost = if seen.target.starts_with("/dear") { "X-Cost: 12\r\n" } else { "X-Cost: 0.25\r\n" };
        wire.reply("200 OK", cost, b"page");
    });
    let gate = gate(&origin, rules);
    let mut client = gate.connect();
    for page in 0..5 {
        client.get(&format!("/dear/{page}"), "");
    }
    assert_eq!(gate.books().0, 60.0, "settled is what they cost");
    gate.reload(origin.address(), &format!("workers: 1\n{rules}")).expect("good rules");
    client.get("/dear/again", "");
    client.get("/cheap", "");
    let log = gate.into_log();
    let expected: Vec<f64> = log.iter().map(|line| line["cost"]["api"].as_f64().expect("a number")).collect();
    assert_eq!(expected, [1.0, 2.0, 4.0, 8.0, 12.0, 12.0, 1.0]);
}
