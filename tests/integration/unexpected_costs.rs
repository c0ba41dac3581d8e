//! Costs that the origin reports for routes without a cost.

use crate::support::client::Client;
use crate::support::frames::Http2Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, SignalReceiver, SignalSender, signal};
use std::time::Duration;

const RULES: &str = "
quotas:
  api: { limit: 20, window: { fixed: 24h }, cost_header: X-API-Cost }
  other: { limit: 20, window: { fixed: 24h }, cost_header: X-Other-Cost }
routes:
  - { match: \"/item/*\", cost: { api: 1 } }
  - { match: \"/free/*\" }
";

fn costing_origin() -> Origin {
    Origin::with_script(|request, connection| {
        let fields = match request.target.as_str() {
            "/free/nothing" => "X-API-Cost: 0\r\n",
            "/free/invalid" => "X-API-Cost: four\r\n",
            "/free/none" => "",
            "/item/1" => "X-API-Cost: 2\r\nX-Other-Cost: 0.5\r\n",
            _ => "X-API-Cost: 4\r\n",
        };
        connection.reply("200 OK", fields, b"page");
    })
}

#[test]
fn reported_cost_of_a_free_route_is_charged_and_counted() {
    let origin = costing_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let used = |index: usize| gateway.state()["quotas"][index]["used"].as_f64().expect("used units");
    for (path, api, other) in [
        ("/free/none", 0.0, 0.0),
        ("/free/nothing", 0.0, 0.0),
        ("/free/invalid", 0.0, 0.0),
        ("/free/page", 4.0, 0.0),
        ("/elsewhere", 8.0, 0.0),
        ("/item/1", 10.0, 0.5),
    ] {
        assert_eq!(gateway.connect().get(path, "").status, 200, "{path}");
        assert_eq!((used(0), used(1)), (api, other), "{path}");
    }
    for (route, units) in [("/free/*", 4.0), ("/**", 4.0), ("/item/*", 0.5)] {
        let name = format!("tidegate_unexpected_cost_total{{route=\"{route}\"}}");
        assert_eq!(gateway.metric(&name), units, "{route}");
    }
    let log = gateway.read_log();
    let line = |path: &str| log.iter().find(|line| line["path"] == path).expect("a line").clone();
    assert_eq!(line("/free/page")["unexpected_cost"], serde_json::json!({"api": 4}));
    assert_eq!(line("/item/1")["unexpected_cost"], serde_json::json!({"other": 0.5}));
    assert_eq!(line("/item/1")["charged"], serde_json::json!({"api": 2}));
    assert!(line("/free/nothing").get("unexpected_cost").is_none());
}

#[test]
fn unexpected_costs_exhaust_the_quota_of_costed_routes() {
    let origin = costing_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for path in ["/free/1", "/a", "/b", "/c", "/d", "/e"] {
        assert_eq!(gateway.connect().get(path, "").status, 200, "{path}: the first of its kind");
    }
    assert_eq!(gateway.connect().get("/item/1", "").status, 429, "no units remain");
    let quota = &gateway.state()["quotas"][0];
    assert_eq!((quota["used"].as_f64(), quota["overrun"].as_f64()), (Some(20.0), Some(4.0)), "{quota}");
}

#[test]
fn one_request_of_a_costed_path_without_a_route_passes_at_a_spent_quota() {
    let origin = site_with_a_search();
    let gateway = TestGateway::with_rules(origin.address(), README_RULES);
    for page in ["/", "/about", "/news/1", "/news/2", "/news/3", "/news/4"] {
        (0..4).for_each(|_| assert_eq!(gateway.connect().get(page, FIREFOX).status, 200, "{page}"));
    }
    gateway.set_used("api", 10_000);
    let status = |target: &str| gateway.connect().get(target, FIREFOX).status;
    assert_eq!(status("/search?s=shoes"), 200, "nothing is known of the path yet");
    for target in [
        "/search?s=shoes",
        "/search?s=boots&page=2",
        "/search",
        "/Search",
        "/search/",
        "//search",
        "/%73earch",
        "/x/../search",
        "/search.json",
        "/SEARCH?a",
    ] {
        assert_eq!(status(target), 429, "{target}");
    }
    for method in ["HEAD", "POST", "PUT"] {
        let mut client = gateway.connect();
        client.send(format!("{method} /search HTTP/1.1\r\nHost: a\r\n{FIREFOX}Content-Length: 0\r\n\r\n"));
        assert_eq!(client.response_to(method).status, 429, "{method}");
    }
    // Pages that are free stay open, also those that were not seen before.
    for page in ["/", "/?utm_source=mail", "/about", "/news/77", "/imprint", "/app.css"] {
        assert_eq!(status(page), 200, "{page}");
    }
    let quota = &gateway.state()["quotas"][0];
    assert_eq!((quota["used"].as_f64(), quota["overrun"].as_f64()), (Some(10_000.0), Some(4.0)), "{quota}");
}

#[test]
fn made_up_paths_pass_a_few_times_and_close_no_free_page() {
    let origin = site_with_a_search();
    let gateway = TestGateway::with_rules(origin.address(), README_RULES);
    let status = |target: &str| gateway.connect().get(target, FIREFOX).status;
    (0..4).for_each(|number| assert_eq!(status(&format!("/news/{number}")), 200));
    gateway.set_used("api", 10_000);
    let passed = |targets: &[String]| targets.iter().filter(|target| status(target) == 200).count();
    let numbers: Vec<String> = (0..30).map(|number| format!("/search/q{number}")).collect();
    assert_eq!(passed(&numbers), 1);
    let words: Vec<String> = ('a'..='z').map(|letter| format!("/search/word{letter}")).collect();
    assert!(passed(&words) <= 8);
    // One page of a free kind costs: it closes itself alone.
    assert_eq!([status("/news/666"), status("/news/666"), status("/news/5")], [200, 429, 200]);
}

#[test]
fn refusal_by_a_generalized_cost_names_the_pages_that_taught_it() {
    let origin = site_with_a_search();
    let gateway = TestGateway::with_rules(origin.address(), README_RULES);
    for letter in 'a'..='i' {
        assert_eq!(gateway.connect().get(&format!("/search/word{letter}"), FIREFOX).status, 200);
    }
    gateway.set_used("api", 10_000);
    let refused = gateway.connect().get("/search/about", FIREFOX);
    assert_eq!(refused.status, 429);
    let cost = &gateway.state()["path_costs"][0];
    let examples = serde_json::json!(["/search/worda", "/search/wordb", "/search/wordc"]);
    assert_eq!((&cost["generalized_from"], &cost["examples"]), (&serde_json::json!(9), &examples));
    let id = refused.field("x-tidegate-decision");
    let (_, explanation) = gateway.admin_get(&format!("/api/v1/decisions/{id}/explanation"));
    let expected = "learned from 9 other pages of /search/**, such as /search/worda, /search/wordb, /search/wordc";
    assert!(explanation.contains(expected), "{explanation}");
}

#[test]
fn parallel_first_requests_of_a_costed_path_pass_one_at_a_time() {
    let origin = Origin::with_script(|request, connection| {
        std::thread::sleep(Duration::from_millis(20));
        let fields = if request.target.starts_with("/search") { "X-API-Cost: 4\r\n" } else { "" };
        connection.reply("200 OK", fields, b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), README_RULES);
    gateway.set_used("api", 10_000);
    let statuses = |path: &'static str| -> Vec<u16> {
        let get = |_| gateway.connect().get(path, FIREFOX).status;
        std::thread::scope(|scope| {
            let requests: Vec<_> = (0..12).map(|number| scope.spawn(move || get(number))).collect();
            requests.into_iter().map(|request| request.join().expect("a response")).collect()
        })
    };
    assert_eq!(statuses("/search?s=x").iter().filter(|&&status| status == 200).count(), 1);
    assert_eq!(statuses("/imprint"), [200; 12], "a free page stays open");
}

#[test]
fn incomplete_bodies_keep_no_unknown_path_from_others() {
    let origin = site_with_forms();
    let gateway = TestGateway::with_rules(origin.address(), SHARED_RULES);
    gateway.set_used("api", 10_000);
    let mut slow: Vec<Client> = ('a'..='h').map(|name| begin_post(&gateway, ATTACKER, &format!("/{name}"))).collect();
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"bodies\"}", 8.0);
    for page in ["/imprint", "/a", "/h"] {
        assert_eq!(get(&gateway, OTHER, page), 200, "{page}");
    }
    for client in &mut slow {
        assert_eq!(client.send("dy").read_response().status, 200, "free pages");
    }
}

#[test]
fn bodies_of_one_costed_path_pass_once_however_many_are_complete() {
    let origin = site_with_forms();
    let gateway = TestGateway::with_rules(origin.address(), SHARED_RULES);
    gateway.set_used("api", 10_000);
    let mut slow: Vec<Client> = (0..8).map(|_| begin_post(&gateway, ATTACKER, "/search")).collect();
    gateway.wait_for_metric("tidegate_quota_reserved{quota=\"bodies\"}", 8.0);
    let statuses: Vec<u16> = slow.iter_mut().map(|client| client.send("dy").read_response().status).collect();
    assert_eq!(statuses, [200, 429, 429, 429, 429, 429, 429, 429]);
    let state = gateway.state();
    let [api, bodies] = [&state["quotas"][0], &state["quotas"][1]];
    assert_eq!((api["overrun"].as_f64(), bodies["used"].as_f64()), (Some(4.0), Some(1.0)), "{state}");
    assert_eq!(gateway.metric("tidegate_quota_reserved{quota=\"bodies\"}"), 0.0);
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn slow_pages_of_one_client_or_network_keep_no_other_page_from_others() {
    for (attackers, share) in [([1; 8], 2), ([1, 2, 3, 4, 5, 6, 7, 8], 4)] {
        let (origin, arrival, release) = site_with_slow_pages();
        let gateway = TestGateway::with_rules(origin.address(), SHARED_RULES);
        gateway.set_used("api", 10_000);
        let slow = attackers.iter().zip('a'..).map(|(attacker, name)| {
            let mut client = gateway.connect();
            client.send(head(&format!("GET /slow/{name}"), &format!("192.0.2.{attacker}"), "\r\n"));
            client
        });
        let slow: Vec<Client> = slow.collect();
        (0..share).for_each(|_| arrival.wait());
        assert_eq!(get(&gateway, OTHER, "/imprint"), 200);
        (0..slow.len()).for_each(|_| release.notify());
    }
}

#[test]
fn streams_of_one_connection_keep_no_unknown_page_from_others() {
    let (origin, arrival, release) = site_with_slow_pages();
    let gateway = TestGateway::with_rules(origin.address(), SHARED_RULES);
    gateway.set_used("api", 10_000);
    let mut client = Http2Client::connect(gateway.address());
    for (number, name) in (0..8).zip('a'..) {
        assert!(client.get_path(2 * number + 1, &format!("/slow/{name}"), "Firefox"));
    }
    (0..2).for_each(|_| arrival.wait());
    assert_eq!(get(&gateway, OTHER, "/imprint"), 200);
    (0..8).for_each(|_| release.notify());
}

#[test]
fn slow_pages_of_many_networks_leave_their_places_to_others() {
    let (origin, arrival, release) = site_with_slow_pages();
    let gateway = TestGateway::with_rules(origin.address(), SHARED_RULES);
    gateway.set_used("api", 10_000);
    let slow = (0..8).zip('a'..).map(|(network, name)| {
        let mut client = gateway.connect();
        client.send(head(&format!("GET /slow/{name}"), &format!("198.51.{network}.1"), "\r\n"));
        client
    });
    let mut slow: Vec<Client> = slow.collect();
    (0..8).for_each(|_| arrival.wait());
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(get(&gateway, OTHER, "/imprint"), 200);
    (0..8).for_each(|_| release.notify());
    for client in &mut slow {
        assert_eq!(client.read_response().status, 200);
    }
}

#[test]
fn made_up_free_paths_of_one_client_keep_no_free_page_of_others_unknown() {
    let origin = Origin::with_script(|request, connection| {
        let fields = if request.target.starts_with("/paid/word") { "X-API-Cost: 1\r\n" } else { "" };
        connection.reply("200 OK", fields, b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), &SHARED_RULES.replace("limit: 1000,", "limit: 100000,"));
    let mut attacker = gateway.connect();
    let fields = format!("X-Forwarded-For: {ATTACKER}\r\n");
    let letters = || 'a'..='z';
    let names =
        letters().flat_map(|one| letters().flat_map(move |two| ["x", "y"].map(|end| format!("/{one}{two}{end}"))));
    for path in names.take(1030) {
        (0..4).for_each(|_| assert_eq!(attacker.get(&path, &fields).status, 200));
    }
    (0..4).for_each(|_| assert_eq!(get(&gateway, OTHER, "/paid/help"), 200));
    for letter in 'a'..='i' {
        assert_eq!(attacker.get(&format!("/paid/word{letter}"), &fields).status, 200);
    }
    gateway.set_used("api", 10_000);
    assert_eq!([get(&gateway, OTHER, "/paid/help"), get(&gateway, OTHER, "/paid/wordx")], [200, 429]);
}

#[test]
fn shed_bots_are_refused_from_the_second_report_on() {
    let origin = site_with_a_search();
    let gateway = TestGateway::with_rules(origin.address(), README_RULES);
    let status = |target: &str| gateway.connect().get(target, "User-Agent: curl/8.5.0\r\n").status;
    assert_eq!(status("/item/1"), 429, "all are shed");
    assert_eq!([status("/search?s=1"), status("/search?s=2"), status("/about")], [200, 429, 200]);
    let state = gateway.state();
    let expected =
        serde_json::json!({"path": "/search", "quota": "api", "units": 4, "generalized_from": 0, "examples": []});
    assert_eq!(state["path_costs"], serde_json::json!([expected]));
    let person = gateway.connect().get("/search?s=3", FIREFOX);
    assert_eq!((person.status, gateway.metric("tidegate_unexpected_cost_total{route=\"/**\"}")), (200, 8.0));
    let log = gateway.read_log();
    let line = log.iter().find(|line| line["query"] == "s=2").expect("a line");
    assert_eq!((&line["cost"], &line["reason"]), (&serde_json::json!({"api": 4}), &serde_json::json!("tier")));
    let line = log.iter().find(|line| line["query"] == "s=3").expect("a line");
    assert_eq!(line["charged"], serde_json::json!({"api": 4}));
}

#[test]
fn implausible_cost_is_charged_as_the_highest_plausible_one() {
    let origin = Origin::with_script(|request, connection| {
        let cost = if request.target == "/item/1" { "2" } else { "999999999999999" };
        connection.reply("200 OK", &format!("X-API-Cost: {cost}\r\n"), b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), README_RULES);
    let used = || gateway.state()["quotas"][0]["used"].as_f64();
    for (page, expected) in [("/item/1", 2.0), ("/item/2", 102.0), ("/search", 202.0), ("/item/1", 204.0)] {
        assert_eq!(gateway.connect().get(page, FIREFOX).status, 200);
        assert_eq!(used(), Some(expected), "{page}");
    }
    assert_eq!(gateway.metric("tidegate_quota_implausible_costs_total{quota=\"api\"}"), 2.0);
}

/// The quota, classes and routes of the README.
const README_RULES: &str = "
quotas:
  api:
    limit: 10000
    per_client: 5%
    window: { fixed: 24h }
    cost_header: X-API-Cost
    tiers: { bot: [ { above: 0%, shed: 100% } ] }
classes:
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot, impostor] } }
  - { name: person, when: { kind: human } }
routes: [ { match: \"/item/*\", cost: { api: 1 } } ]
bot_detection: { enabled: false }
";

/// Clients behind a proxy. Each request without a cost in `api` reserves a unit of `bodies` from its decision on.
const SHARED_RULES: &str = "
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas:
  api: { limit: 10000, window: { fixed: 24h }, cost_header: X-API-Cost }
  bodies: { limit: 1000, window: { fixed: 24h } }
routes: [ { match: \"/item/*\", cost: { api: 1 } }, { match: \"/**\", cost: { bodies: 1 } } ]
";
const ATTACKER: &str = "192.0.2.1";
const OTHER: &str = "203.0.113.9";

const FIREFOX: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n";

fn site_with_a_search() -> Origin {
    Origin::with_script(|request, connection| {
        let path = request.target.to_ascii_lowercase();
        let is_search = ["search", "%73earch", "/news/666"].iter().any(|name| path.contains(name));
        connection.reply("200 OK", if is_search { "X-API-Cost: 4\r\n" } else { "" }, b"page");
    })
}

/// Starts an origin that responds once it has received the body. A search costs.
fn site_with_forms() -> Origin {
    Origin::with_script(|request, connection| {
        connection.read_body(request);
        let fields = if request.target == "/search" { "X-API-Cost: 4\r\n" } else { "" };
        connection.reply("200 OK", fields, b"page");
    })
}

/// Starts an origin that responds below `/slow/` only after the test notifies it, once for each request. Returns the origin,
/// the signal that it received such a request, and the control that releases a response.
fn site_with_slow_pages() -> (Origin, SignalReceiver, SignalSender) {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |request, connection| {
        if request.target.starts_with("/slow/") {
            arrival_sender.notify();
            release_receiver.wait();
        }
        connection.reply("200 OK", "", b"page");
    });
    (origin, arrival, release)
}

fn head(request_line: &str, client: &str, end: &str) -> String {
    format!("{request_line} HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: {client}\r\n{end}")
}

fn get(gateway: &TestGateway, client: &str, path: &str) -> u16 {
    gateway.connect().get(path, &format!("X-Forwarded-For: {client}\r\n")).status
}

/// Sends the head of a request and half of its body.
fn begin_post(gateway: &TestGateway, client: &str, path: &str) -> Client {
    let mut connection = gateway.connect();
    connection.send(head(&format!("POST {path}"), client, "Content-Length: 4\r\n\r\nbo"));
    connection
}
