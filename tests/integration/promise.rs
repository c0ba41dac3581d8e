//! The promise of a policy, compared with the windows of a running gateway.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::run;
use crate::support::wait::wait_until;
use crate::support::webhook_receiver::WebhookReceiver;
use serde_json::json;
use std::time::Duration;

const RULES: &str = "quotas: { api: { limit: 5, window: { fixed: 24h } } }\n\
                     classes: [{ name: person }]\n\
                     clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }\n\
                     routes: [{ match: \"/item/*\", cost: { api: 1 } }]\n\
                     promise: { people_refused: 10% }\n";

#[test]
fn window_that_misses_the_promise_is_shown_counted_and_sent_with_what_would_have_kept_it() {
    let (origin, receiver) = (Origin::plain(), WebhookReceiver::accepting());
    let notify = format!("notify: [{}]\n", receiver.yaml(", on: promise_missed"));
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{notify}"));
    for page in 0..10 {
        let fields = format!("X-Forwarded-For: 203.0.113.{page}\r\nUser-Agent: Mozilla/5.0 Firefox/128.0\r\n");
        let expected = if page < 5 { 200 } else { 429 };
        assert_eq!(gateway.connect().get(&format!("/item/{page}"), &fields).status, expected);
    }
    wait_until("the figures of the window", || gateway.state()["promise"]["current"]["people_refused"] == 0.5);
    let state = gateway.state();
    assert_eq!(state["promise"]["current"]["missed"], json!(["people_refused"]));
    assert_eq!((&state["promise"]["last"], &state["promise"]["missed"]), (&json!(null), &json!(null)));
    assert_eq!(gateway.metric("tidegate_promise_kept_ratio{figure=\"people_refused\",window=\"current\"}"), 0.5);
    let log = gateway.state_dir().join("access.log");
    wait_until("the log on disk", || std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 10));

    gateway.clock.advance(Duration::from_secs(24 * 3600));
    receiver.wait_for(1);
    let state = gateway.state();
    assert_eq!(state["promise"]["last"]["window_start"], "2027-01-15T00:00:00Z");
    assert_eq!(state["promise"]["last"]["missed"], json!(["people_refused"]));
    assert_eq!(gateway.metric("tidegate_promise_missed{figure=\"people_refused\"}"), 1.0);
    assert_eq!(gateway.metric("tidegate_promise_missed{figure=\"overrun\"}"), 0.0);
    let text = "The window from 2027-01-15T00:00:00Z missed the promise. 50.0 % of people's pages were refused (promised: at \
                most 10.0 %). By a replay of the access log, no settings keep it at this limit; 240 units a day would.";
    // The log is shorter than an hour, and counts as one.
    assert_eq!(state["promise"]["missed"], text);
    assert_eq!(receiver.events()[0]["text"], text);
    let admin = format!("http://{}", gateway.admin_address());
    let status = run(&["status", "--admin", &admin], b"");
    assert!(status.output.contains("Promise: The window from"), "{}{}", status.output, status.errors);
}

#[test]
fn promise_of_classes_that_are_not_there_is_an_error() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    for (rules, expected) in [
        ("promise: { search_served: 92% }", "promise: no quota; it is compared with the windows of the first quota"),
        (
            "quotas: { q: { limit: 1 } }\nclasses: [{ name: all }]\npromise: { search_served: 92% }",
            "promise.search_served: there is no class search; name the class of verified search engines search",
        ),
        ("quotas: { q: { limit: 1 } }\npromise: { left_over: 1 }", "promise.left_over: found 1, needs a share such as"),
    ] {
        std::fs::write(&file, format!("origin: http://127.0.0.1:1\n{rules}\n")).expect("file is writable");
        let outcome = run(&["check", &file.display().to_string()], b"");
        assert_eq!(outcome.code, 2, "{rules}: {}", outcome.output);
        assert!(outcome.errors.contains(expected), "{rules}: {}", outcome.errors);
    }
    let rules = "quotas: { q: { limit: 1 } }\npromise: { people_refused: 0.1%, search_served: 92%, left_over: 1% }";
    std::fs::write(&file, format!("origin: http://127.0.0.1:1\n{rules}\n")).expect("file is writable");
    let outcome = run(&["check", &file.display().to_string()], b"");
    assert!(
        outcome.output.contains(
            "promise: at most 0.1% of people's pages refused, at least 92% of the pages of verified search engines served in \
             each hour, at most 1% of the limit left over\n"
        ),
        "{}",
        outcome.output
    );
}
