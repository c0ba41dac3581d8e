//! Notifications to webhooks: each event once, whatever the receiver does, and no secret anywhere.

use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use crate::support::program::run;
use crate::support::tls::Certificates;
use crate::support::wait::wait_until;
use crate::support::webhook_receiver::WebhookReceiver;
use serde_json::json;

/// A quota of ten pages, and the webhooks `notify`.
fn rules(notify: &str) -> String {
    format!(
        "quotas: {{ api: {{ limit: 10, window: {{ fixed: 24h }} }} }}\n\
         routes: [{{ match: \"/item/*\", cost: {{ api: 1 }} }}]\n\
         notify: [{notify}]\n"
    )
}

fn visit(gateway: &TestGateway, pages: usize) {
    for _ in 0..pages {
        gateway.connect().get("/item/1", "");
    }
}

#[test]
fn levels_of_a_quota_are_sent_once_over_restarts_and_reloads() {
    let (origin, receiver) = (Origin::plain(), WebhookReceiver::accepting());
    let rules = rules(&receiver.yaml(""));
    let mut gateway = TestGateway::with_rules(origin.address(), &rules);
    visit(&gateway, 8);
    receiver.wait_for(1);
    visit(&gateway, 2);
    receiver.wait_for(2);
    gateway.wait_for_metric("tidegate_notifications_total{result=\"sent\"}", 2.0);
    assert_eq!(receiver.event_names(), ["quota_80", "quota_spent"]);
    let event = &receiver.events()[1];
    assert_eq!((&event["subject"], &event["time"]), (&json!("api"), &json!("2027-01-15T12:00:00Z")));
    assert_eq!(event["figures"], json!({ "limit": 10.0, "used": 10.0, "window_end": "2027-01-16T00:00:00Z" }));
    let file = gateway.state_dir().join("notifications.json");
    wait_until("the state on disk", || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("quota_spent")));

    gateway.restart();
    gateway.reload(origin.address(), "no: key").expect_err("an invalid key");
    receiver.wait_for(3);
    assert_eq!(receiver.event_names(), ["quota_80", "quota_spent", "reload_failed"]);
    assert!(receiver.events()[2]["text"].as_str().expect("text").contains("unknown key \"no\""));

    let request = &receiver.requests()[0];
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/SECRET?token=SECRET"));
    assert_eq!(request.field("content-type"), "application/json");
    let state = gateway.state().to_string();
    assert!(!state.contains("SECRET"), "{state}");
}

#[test]
fn webhook_that_hangs_or_fails_holds_up_no_other_and_no_request() {
    let origin = Origin::plain();
    let hanging = WebhookReceiver::with_script(|_, connection| {
        connection.expect_eof();
    });
    let (again, failed_once) = signal();
    let failing = WebhookReceiver::with_script(move |_, connection| match failed_once.is_notified() {
        true => connection.reply("200 OK", "", b"ok"),
        false => {
            again.notify();
            connection.reply("500 Internal Server Error", "", b"");
        }
    });
    let redirecting = WebhookReceiver::with_script(|_, connection| {
        connection.reply("307 Temporary Redirect", "Location: http://127.0.0.1:1/elsewhere\r\n", b"");
    });
    let healthy = WebhookReceiver::accepting();
    let webhooks = [
        hanging.yaml(""),
        failing.yaml(", format: text"),
        redirecting.yaml(", format: slack"),
        healthy.yaml(", on: quota_spent"),
    ];
    let gateway = TestGateway::with_rules(origin.address(), &rules(&webhooks.join(", ")));
    visit(&gateway, 10);
    hanging.wait_for(1);
    healthy.wait_for(1);
    failing.wait_for(2);
    redirecting.wait_for(1);
    assert_eq!(gateway.connect().get("/free", "").status, 200);
    gateway.wait_for_metric("tidegate_notifications_total{result=\"failed\"}", 1.0);
    gateway.wait_for_metric("tidegate_notifications_total{result=\"sent\"}", 2.0);
    // Twice the same, and not sent elsewhere.
    assert_eq!(failing.bodies()[0], failing.bodies()[1]);
    assert!(failing.bodies()[0].contains(": 10 of 10 units of the quota api are used"), "{:?}", failing.bodies());
    assert!(redirecting.bodies()[0].starts_with("{\"text\":\"Tidegate on "), "{:?}", redirecting.bodies());
    assert_eq!((redirecting.bodies().len(), healthy.event_names()), (1, vec!["quota_spent".to_owned()]));
}

#[test]
fn outage_of_the_origin_is_sent_when_it_lasts() {
    let receiver = WebhookReceiver::accepting();
    let notify = receiver.yaml(", on: origin_down");
    let gateway = TestGateway::with_rules(Origin::unreachable(), &rules(&notify));
    assert_eq!(gateway.connect().get("/free", "").status, 502);
    // The observation that sees it first, and those after 30 seconds on the clock of the gateway.
    wait_until("the notification", || {
        gateway.clock.advance(std::time::Duration::from_secs(5));
        !receiver.bodies().is_empty()
    });
    let text = receiver.events()[0]["text"].as_str().expect("text").to_owned();
    assert!(text.starts_with("The origin has not responded for ") && text.contains("Connection refused"), "{text}");
}

#[test]
fn test_command_says_which_webhook_accepts() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    let check = |notify: &str, command: &[&str]| {
        std::fs::write(&file, format!("origin: http://127.0.0.1:1\nnotify: [{notify}]\n")).expect("file is writable");
        run(&[command, &["--config", &file.display().to_string()]].concat(), b"")
    };
    let accepting = WebhookReceiver::accepting();
    let outcome = check(&accepting.yaml(", format: slack, on: [quota_80]"), &["notify", "test"]);
    let url = accepting.yaml("");
    let url = url.split('"').nth(1).and_then(|url| url.strip_suffix("/SECRET?token=SECRET")).expect("a URL").to_owned();
    assert_eq!(
        (outcome.code, outcome.output.as_str(), outcome.errors.as_str()),
        (0, &*format!("{url}: accepted\n"), "")
    );
    assert!(accepting.bodies()[0].contains("This is a test"), "{:?}", accepting.bodies());

    let refusing = WebhookReceiver::with_script(|_, connection| connection.reply("403 Forbidden", "", b""));
    let webhooks = format!("{}, {}", refusing.yaml(""), accepting.yaml(""));
    let outcome = check(&webhooks, &["notify", "test"]);
    assert_eq!((outcome.code, outcome.output.as_str()), (1, &*format!("{url}: accepted\n")));
    assert!(outcome.errors.contains(": answers with status 403 Forbidden"), "{}", outcome.errors);
    assert!(!outcome.errors.contains("SECRET"), "{}", outcome.errors);

    let outcome = check(&accepting.yaml(", summary: daily"), &["check"]);
    assert!(
        outcome.output.contains(&format!("notifications to {url}: all events, a summary of each day\n")),
        "{}",
        outcome.output
    );
    let outcome = check("", &["notify", "test"]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.errors.contains("no webhook; write notify:"), "{}", outcome.errors);
}

#[test]
fn certificate_of_a_webhook_is_verified() {
    let certificates = Certificates::new();
    certificates.issue("receiver", &["localhost"]);
    let origin = Origin::plain();
    let rules = format!(
        "listen: {{ address: 127.0.0.1:0, tls: {{ certificate: {}, key: {} }} }}\n",
        certificates.path("receiver.pem").display(),
        certificates.path("receiver.key").display()
    );
    // Another gateway receives: it speaks TLS.
    let receiver = TestGateway::with_rules(origin.address(), &rules);
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    let notify = |keys: &str| {
        let port = receiver.address().port();
        let yaml =
            format!("origin: http://127.0.0.1:1\nnotify: [{{ webhook: \"https://localhost:{port}/SECRET\"{keys} }}]\n");
        std::fs::write(&file, yaml).expect("file is writable");
        run(&["notify", "test", "--config", &file.display().to_string()], b"")
    };
    let outcome = notify("");
    assert_eq!(outcome.code, 1, "{}", outcome.output);
    assert!(outcome.errors.contains("invalid peer certificate: UnknownIssuer"), "{}", outcome.errors);
    let authority = certificates.path("ca.pem");
    let outcome = notify(&format!(", ca: {}", authority.display()));
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
    assert_eq!(origin.last_request().target, "/SECRET");
    let outcome = notify(", ca: nothing.pem");
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.errors.contains("notify[0].ca: ") && outcome.errors.contains("cannot be read"),
        "{}",
        outcome.errors
    );
}

#[test]
fn invalid_webhooks_are_errors_without_their_secret() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    for (notify, expected) in [
        ("{ format: json }", "notify[0].webhook: missing; name the URL"),
        ("{ webhook: \"ftp://a/SECRET\" }", "notify[0].webhook: not an https:// or http:// URL"),
        ("{ webhook: \"https://a:x/SECRET\" }", "notify[0].webhook: has no valid host and port"),
        ("{ webhook: \"https://SECRET@a/\" }", "notify[0].webhook: has a user before the host"),
        (
            "{ webhook: \"https://a/SECRET\", on: [quota_81] }",
            "notify[0].on: found \"quota_81\" (did you mean \"quota_80\"?)",
        ),
        ("{ webhook: \"https://a/SECRET\", on: spent }", "notify[0].on: found \"spent\""),
        ("{ webhook: \"https://a/SECRET\", format: xml }", "notify[0].format: found \"xml\""),
        ("{ webhook: \"http://a/SECRET\", ca: ca.pem }", "notify[0].ca: the webhook has no https://"),
        ("{ webhook: \"https://a/SECRET\", event: all }", "notify[0].event: unknown key"),
    ] {
        std::fs::write(&file, format!("origin: http://127.0.0.1:1\nnotify: [{notify}]\n")).expect("file is writable");
        let outcome = run(&["check", &file.display().to_string()], b"");
        assert_eq!(outcome.code, 2, "{notify}");
        assert!(outcome.errors.contains(expected), "{notify}: {}", outcome.errors);
        assert!(!outcome.errors.contains("SECRET"), "{}", outcome.errors);
    }
}
