//! Synchronization with the origin's own quota counters. Reported values can only tighten the gateway's counters.
//! Expected costs are learned from the costs that the origin reports.

use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection};
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
      exhausted: { statuses: [403, 429], contains: dailyLimitExceeded }
routes: [{ match: /free }, { match: /**, cost: { api: 1 } }]
";

/// Returns [`SYNCED`] with the place of the text of exhaustion.
fn synced_at(place: &str) -> String {
    SYNCED.replace("contains: dailyLimitExceeded", &format!("contains: dailyLimitExceeded, {place}"))
}

/// Returns an origin that responds to each request with the next of these fields, statuses and bodies.
fn origin_with_responses(responses: &'static [(&'static str, &'static str, &'static str)]) -> Origin {
    let next = Mutex::new(responses.iter());
    Origin::with_script(move |_, connection: &mut OriginConnection| {
        let (status, fields, body) = next.lock().next().copied().unwrap_or(("200 OK", "", "more"));
        connection.reply(status, fields, body.as_bytes());
    })
}

/// Returns a gateway in the middle of its window.
fn mid_window_gateway(origin: &Origin, rules: &str) -> TestGateway {
    // One worker, because advancing the clock waits for one worker only.
    let gateway = TestGateway::with_rules(origin.address(), &format!("workers: 1\n{rules}"));
    gateway.advance_and_sweep(Duration::from_secs(1800));
    gateway
}

fn remaining_units(gateway: &TestGateway) -> f64 {
    let (used, reserved) = gateway.counters();
    100.0 - used - reserved
}

#[test]
fn external_usage_reduces_remaining_quota() {
    for ledger in ["memory", "file"] {
        assert_external_usage_is_synced(&format!("ledger: {ledger}\n{SYNCED}"));
    }
}

fn assert_external_usage_is_synced(rules: &str) {
    let origin = origin_with_responses(&[
        ("200 OK", "X-RateLimit-Remaining: 99\r\n", "one"),
        ("200 OK", "X-RateLimit-Remaining: 40\r\n", "two"),
        ("200 OK", "X-RateLimit-Remaining: 90\r\n", "three"),
    ]);
    let gateway = mid_window_gateway(&origin, rules);
    let mut client = gateway.connect();
    assert_eq!(client.get("/a", "").status, 200);
    assert_eq!((remaining_units(&gateway), gateway.metric("tidegate_quota_drift{quota=\"api\"}")), (99.0, 0.0));
    client.get("/b", "");
    assert_eq!((remaining_units(&gateway), gateway.metric("tidegate_quota_drift{quota=\"api\"}")), (40.0, 58.0));
    client.get("/c", "");
    assert_eq!(remaining_units(&gateway), 39.0, "the reported value can only tighten the counter");
    assert_eq!(gateway.metric("tidegate_quota_drift{quota=\"api\"}"), -51.0);
    let served = (0..100).filter(|_| client.get("/d", "").status == 200).count();
    assert!(served <= 39, "{served} requests admitted with 39 units left");
}

#[test]
fn origin_exhaustion_closes_quota_until_reset() {
    let origin = origin_with_responses(&[
        ("429 Too Many Requests", "", "slow down"),
        ("403 Forbidden", "X-RateLimit-Reset: 600\r\n", "{\"reason\": \"dailyLimitExceeded\"}"),
    ]);
    let gateway = mid_window_gateway(&origin, &synced_at("json: /reason"));
    let mut client = gateway.connect();
    assert_eq!(client.get("/a", "").status, 429, "an unrelated 429 of the origin is forwarded");
    assert_eq!(remaining_units(&gateway), 99.0);
    assert_eq!(client.get("/b", "").status, 403);
    let refused = client.get("/c", "");
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("quota")));
    let wait: u64 = refused.field("retry-after").parse().expect("a number");
    assert!((600..=720).contains(&wait), "{wait}");
    assert_eq!(client.get("/free", "").status, 200, "free requests are admitted");
    gateway.clock.advance(Duration::from_secs(599));
    client = gateway.connect();
    assert_eq!(client.get("/d", "").status, 429);
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(client.get("/e", "").status, 200, "a shorter limit of the origin has ended");
    assert_eq!(origin.received_requests().len(), 4);
}

#[test]
fn replaced_429_body_is_scanned_for_exhaustion() {
    let backoff =
        "scopes: { default: { backoff: { jitter: 0%, min_delay: 5s, min_clients: 1 }, queue: { max_wait: 0s } } }";
    let origin = Origin::with_script(|request, connection| {
        connection.send(
            "HTTP/1.1 429 Too Many Requests\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{\"reason\": \"dailyLim\r\n",
        );
        match request.target.as_str() {
            "/silent" => assert!(connection.expect_eof()),
            _ => assert!(connection.send("c\r\nitExceeded\"}\r\n0\r\n\r\n")),
        }
    });
    let gateway = mid_window_gateway(
        &origin,
        &format!("{}{backoff}\nlimits: {{ first_byte_timeout: 1s }}", synced_at("json: /reason")),
    );
    let mut client = gateway.connect();
    client.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
    gateway.wait_for_metric("tidegate_origin_backoff_seconds{scope=\"default\"}", 5.0);
    gateway.advance_and_sweep(Duration::from_secs(31));
    let response = client.read_response();
    assert_eq!(
        (response.status, response.json()["reason"].as_str()),
        (503, Some("backoff")),
        "the origin sent no response in time"
    );
    assert_eq!(remaining_units(&gateway), 99.0);
    assert_eq!(gateway.connect().get("/told", "").json()["reason"], "backoff");
    assert_eq!(
        (gateway.connect().get("/next", "").json()["reason"].as_str(), remaining_units(&gateway)),
        (Some("quota"), 0.0)
    );
}

#[test]
fn text_at_any_place_counts_once_clients_of_two_networks_were_sent_it() {
    for fields in ["", "X-Reason: dailyLimitExceeded\r\n"] {
        let origin = Origin::with_script(move |request, connection| {
            let quote = if fields.is_empty() { "dailyLimitExceeded" } else { "" };
            match request.target.as_str() {
                "/quote" => connection.reply("403 Forbidden", fields, quote.as_bytes()),
                _ => connection.reply("200 OK", "", b"page"),
            }
        });
        let gateway = mid_window_gateway(&origin, SYNCED);
        let get = |path: &str, address: &str| {
            let response = gateway.connect().get(path, &format!("X-Forwarded-For: {address}\r\n"));
            response.status
        };
        for number in 0..20 {
            assert_eq!(get("/quote", &format!("192.0.2.{number}")), 403);
        }
        assert_eq!(get("/page", "198.51.100.1"), 200, "one network");
        gateway.advance_and_sweep(Duration::from_secs(3600));
        assert_eq!((get("/quote", "203.0.113.1"), get("/page", "192.0.2.1")), (403, 200), "another window");
        assert_eq!((get("/quote", "198.51.100.1"), get("/page", "192.0.2.1")), (403, 429), "two networks");
    }
}

#[test]
fn manual_correction_reopens_exhausted_quota() {
    for ledger in ["memory", "file"] {
        let origin = origin_with_responses(&[(
            "429 Too Many Requests",
            "Retry-After: 600\r\nX-Reason: dailyLimitExceeded\r\n",
            "",
        )]);
        let gateway = mid_window_gateway(&origin, &format!("ledger: {ledger}\n{}", synced_at("header: X-Reason")));
        let mut client = gateway.connect();
        client.get("/a", "");
        assert_eq!(client.get("/b", "").status, 429);
        assert!(gateway.state()["quotas"][0]["closed_until"].is_string());
        gateway.set_used("api", 10);
        assert_eq!((client.get("/b", "").status, remaining_units(&gateway)), (200, 89.0));
        assert!(gateway.state()["quotas"][0]["closed_until"].is_null());
    }
}

#[test]
fn exhaustion_without_reset_lasts_until_window_end() {
    let origin = origin_with_responses(&[("429 Too Many Requests", "X-Reason: dailyLimitExceeded\r\n", "")]);
    let gateway = mid_window_gateway(&origin, &synced_at("header: X-Reason"));
    let mut client = gateway.connect();
    client.get("/a", "");
    assert_eq!((client.get("/b", "").status, remaining_units(&gateway)), (429, 0.0));
    gateway.clock.advance(Duration::from_secs(1799));
    client = gateway.connect();
    assert_eq!(client.get("/b", "").status, 429);
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(client.get("/b", "").status, 200);
}

#[test]
fn sync_for_another_window_is_ignored() {
    let origin = origin_with_responses(&[
        ("200 OK", "X-RateLimit-Remaining: 3\r\nX-RateLimit-Reset: 40000\r\n", "another day"),
        ("200 OK", "X-RateLimit-Remaining: 3\r\nX-RateLimit-Reset: 1790\r\n", "this hour"),
    ]);
    let gateway = mid_window_gateway(&origin, SYNCED);
    let mut client = gateway.connect();
    client.get("/a", "");
    assert_eq!(remaining_units(&gateway), 99.0);
    client.get("/b", "");
    assert_eq!(remaining_units(&gateway), 3.0);
}

/// Requests and tokens of a minute, which OpenAI's API reports in each response.
const MODEL_API: &str = "
quotas:
  requests: { limit: 500, window: { sliding: 1m }, sync_from: x-ratelimit-remaining-requests }
  tokens:
    limit: 30000
    window: { sliding: 1m }
    cost_json: usage.total_tokens
    sync_from: x-ratelimit-remaining-tokens
routes: [{ match: /v1/**, cost: { requests: 1, tokens: 1000 } }]
";

/// Returns an origin whose responses, in turn, have these numbers of remaining requests and tokens with their reset times.
fn model_api(limits: &'static [[&'static str; 4]]) -> Origin {
    let next = Mutex::new(limits.iter());
    Origin::with_script(move |_, connection: &mut OriginConnection| {
        let [requests, requests_reset, tokens, tokens_reset] = next.lock().next().expect("no more responses");
        let fields = format!(
            "Content-Type: application/json\r\n\
             x-ratelimit-limit-requests: 500\r\nx-ratelimit-limit-tokens: 30000\r\n\
             x-ratelimit-remaining-requests: {requests}\r\nx-ratelimit-remaining-tokens: {tokens}\r\n\
             x-ratelimit-reset-requests: {requests_reset}\r\nx-ratelimit-reset-tokens: {tokens_reset}\r\n"
        );
        connection.reply("200 OK", &fields, br#"{"usage": {"prompt_tokens": 30, "total_tokens": 42}}"#);
    })
}

#[test]
fn requests_and_tokens_of_a_model_api_are_synchronized_at_once() {
    let origin = model_api(&[
        ["499", "120ms", "29958", "84ms"],
        ["300", "24s", "29916", "6m0s"],
        ["299", "24.12s", "10", "59.98s"],
    ]);
    let gateway = mid_window_gateway(&origin, MODEL_API);
    let used = |quota: &str| gateway.metric(&format!("tidegate_quota_used{{quota=\"{quota}\"}}"));
    let mut client = gateway.connect();
    assert_eq!((client.get("/v1/chat/completions", "").status, used("requests"), used("tokens")), (200, 1.0, 42.0));
    assert_eq!((client.get("/v1/chat/completions", "").status, used("requests"), used("tokens")), (200, 200.0, 84.0));
    let response = client.get("/v1/chat/completions", "");
    assert_eq!((response.status, used("requests")), (200, 201.0));
    assert!(used("tokens") >= 28_990.0, "{}", used("tokens"));
    let refused = client.get("/v1/chat/completions", "");
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("quota")));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["tokens"]));
    for quota in ["requests", "tokens"] {
        for cause in ["unreadable", "other_window"] {
            let ignored = format!("tidegate_quota_ignored_reports_total{{quota=\"{quota}\",cause=\"{cause}\"}}");
            assert_eq!(gateway.metric(&ignored), 0.0, "{ignored}");
        }
    }
}

#[test]
fn wrong_counts_of_a_model_api_are_ignored_and_counted() {
    let origin = model_api(&[
        ["-1", "1s", "0", "17ms"],
        ["many", "1s", "0", "-6m0s"],
        ["0", "9999999h", "0", "26h0m0s"],
        ["0", "soon", "99999999999999999999999", "1m0s"],
    ]);
    let gateway = mid_window_gateway(&origin, MODEL_API);
    let mut client = gateway.connect();
    for _ in 0..4 {
        assert_eq!(client.get("/v1/chat/completions", "").status, 200);
    }
    let used = |quota: &str| gateway.metric(&format!("tidegate_quota_used{{quota=\"{quota}\"}}"));
    assert_eq!((used("requests"), used("tokens")), (4.0, 168.0));
    for (quota, cause, count) in [
        ("requests", "unreadable", 4.0),
        ("requests", "other_window", 0.0),
        ("tokens", "unreadable", 2.0),
        ("tokens", "other_window", 2.0),
    ] {
        let ignored = format!("tidegate_quota_ignored_reports_total{{quota=\"{quota}\",cause=\"{cause}\"}}");
        assert_eq!(gateway.metric(&ignored), count, "{ignored}");
    }
}

#[test]
fn stale_sync_does_not_exhaust_new_window() {
    let origin = origin_with_responses(&[("200 OK", "X-RateLimit-Remaining: 0\r\n", "late")]);
    let gateway = mid_window_gateway(&origin, SYNCED);
    gateway.advance_and_sweep(Duration::from_secs(1800));
    gateway.connect().get("/a", "");
    assert_eq!(remaining_units(&gateway), 99.0, "a new window has begun");
}

#[test]
fn learned_costs_survive_a_reload() {
    let rules = "
quotas: { api: { limit: 100, window: { fixed: 1h }, cost_header: X-Cost } }
routes: [{ match: /dear/*, cost: { api: learned } }, { match: /**, cost: { api: 1 } }]
";
    let origin = Origin::with_script(|request, connection| {
        let cost = if request.target.starts_with("/dear") { "X-Cost: 12\r\n" } else { "X-Cost: 0.25\r\n" };
        connection.reply("200 OK", cost, b"page");
    });
    let gateway = mid_window_gateway(&origin, rules);
    let mut client = gateway.connect();
    for page in 0..5 {
        client.get(&format!("/dear/{page}"), "");
    }
    assert_eq!(gateway.counters().0, 60.0, "actual costs are settled");
    gateway.reload(origin.address(), &format!("workers: 1\n{rules}")).expect("valid rules");
    client.get("/dear/again", "");
    client.get("/cheap", "");
    let log = gateway.read_log();
    let expected: Vec<f64> = log.iter().map(|line| line["cost"]["api"].as_f64().expect("a number")).collect();
    assert_eq!(expected, [1.0, 2.0, 4.0, 8.0, 12.0, 12.0, 1.0]);
}

#[test]
fn response_that_the_origins_cache_kept_since_before_the_window_is_no_count() {
    let origin = origin_with_responses(&[
        ("200 OK", "X-RateLimit-Remaining: 0\r\nAge: 3600\r\n", "of the window before"),
        ("200 OK", "X-RateLimit-Remaining: 0\r\nDate: Fri, 15 Jan 2021 08:00:00 GMT\r\n", "of another year"),
        ("200 OK", "X-RateLimit-Remaining: 0\r\nCache-Status: cdn; hit\r\n", "of an unknown time"),
        ("429 Too Many Requests", "Retry-After: 60\r\nAge: 3600\r\n", "of the window before"),
        ("200 OK", "X-RateLimit-Remaining: 50\r\nAge: 60\r\n", "of this window"),
    ]);
    let rules = SYNCED.replace(", contains: dailyLimitExceeded", "");
    let gateway = mid_window_gateway(&origin, &rules);
    let mut client = gateway.connect();
    for used in [1.0, 2.0, 3.0, 4.0] {
        client.get("/a", "");
        assert_eq!(remaining_units(&gateway), 100.0 - used);
    }
    assert_eq!(client.get("/a", "").status, 200);
    assert_eq!(remaining_units(&gateway), 50.0);
}

#[test]
fn exhausted_quota_whose_reset_is_over_stays_open() {
    for fields in [
        "Retry-After: 0\r\n",
        "X-RateLimit-Reset: 0s\r\n",
        "X-RateLimit-Reset: 99999999\r\nRetry-After: 0\r\n",
        "X-RateLimit-Reset: soon\r\nRetry-After: 0\r\n",
    ] {
        let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
            "/over" => connection.reply("429 Too Many Requests", fields, b"again"),
            _ => connection.reply("200 OK", "", b"page"),
        });
        let rules = SYNCED.replace(", contains: dailyLimitExceeded", "");
        let gateway = mid_window_gateway(&origin, &rules);
        let mut client = gateway.connect();
        assert_eq!(client.get("/over", "").status, 429, "{fields}");
        assert_eq!(client.get("/page", "").status, 200, "{fields}");
        assert_eq!(remaining_units(&gateway), 98.0, "{fields}");
    }
}
