//! Requests that the gateway makes itself: `tidegate cache warm`, and refreshes with surplus units.

use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, ReceivedRequest, signal};
use crate::support::program::{ExitOutcome, Program, run};
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

const RULES: &str = "\
workers: 1
headers: { retry_after_spread: 0% }
bot_detection: { enabled: false }
hosts: [example.com]
cache: { disk: off }
quotas:
  api:
    limit: 10
    window: { calendar: day, zone: UTC }
    tiers: { bot: [ { above: 50%, shed: 100% } ] }
classes:
  - { name: bot, when: { kind: [declared_bot, verified_bot] } }
  - { name: person, when: { kind: human } }
routes:
  - { match: \"/private/**\", cost: { api: 1 }, cache: off }
  - { match: \"/**\", cost: { api: 1 }, cache: { ttl: 1h } }
";

fn pages() -> Origin {
    Origin::with_script(|request, connection| {
        let fields = "Vary: Accept-Encoding\r\nETag: \"1\"\r\n";
        connection.reply("200 OK", fields, format!("page {}", request.target).as_bytes());
    })
}

fn warm(gateway: &TestGateway, arguments: &[&str]) -> ExitOutcome {
    let admin = gateway.admin_address().to_string();
    run(&[&["cache", "warm", "--admin", &admin][..], arguments].concat(), b"")
}

fn cache_status(gateway: &TestGateway, path: &str) -> String {
    gateway.connect().get(path, "").field("cache-status").to_owned()
}

#[test]
fn warm_fetches_what_is_not_stored_as_a_request_of_the_class() {
    let origin = pages();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    gateway.connect().get("/a", "");
    let dir = tempfile::tempdir().expect("a directory");
    let sitemap = dir.path().join("sitemap.xml");
    let text = "<urlset><url><loc>http://example.com/b?x=1&amp;utm_source=2</loc></url>\
                <url><loc>http://example.com/private/c</loc></url></urlset>";
    std::fs::write(&sitemap, text).expect("a file");
    let outcome = warm(&gateway, &["--class", "bot", "http://example.com/a", &sitemap.display().to_string()]);
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
    assert_eq!(
        outcome.output,
        "1 fetched and stored, 1 were fresh\n1 not stored: status 200, not cached; the first is http://example.com/private/c\n"
    );
    assert!(cache_status(&gateway, "/b?x=1").starts_with("tidegate; hit"));
    let received = origin.received_requests();
    assert_eq!(
        received.iter().map(|request| request.target.as_str()).collect::<Vec<_>>(),
        ["/a", "/b?x=1", "/private/c"]
    );
    let stats = || serde_json::from_str::<Value>(&gateway.admin_get("/api/v1/cache").1).expect("JSON");
    gateway.connect().get("/b?x=1", "");
    let saved = stats();
    assert_eq!(
        json!([saved["requests"]["hit"], saved["saved"][0]["units"], saved["most_requested"][0]["hits"]]),
        json!([3, 2, 2]),
        "the own hit saves nothing: {saved}"
    );
    let log = gateway.read_log();
    let warmed: Vec<&Value> = log.iter().filter(|line| line["fill"] == "warm").collect();
    let of = |line: &Value| json!([line["client"], line["class"], line["path"], line["cache"], line["charged"]]);
    assert_eq!(of(warmed[0]), json!(["0.0.0.0", "bot", "/a", "hit", {}]));
    assert_eq!(of(warmed[1]), json!(["0.0.0.0", "bot", "/b", "miss", { "api": 1 }]));
    assert_eq!(warmed.len(), 3);
}

#[test]
fn pages_of_another_host_in_a_sitemap_are_skipped_and_counted() {
    let origin = pages();
    let dir = tempfile::tempdir().expect("a directory");
    let sitemap = dir.path().join("sitemap.xml");
    let text = "<?xml version='1.0' encoding='UTF-16'?>\
                <urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:image='urn:image'>\
                <url><loc>http://example.com/größe</loc><image:loc>http://example.com/1.jpg</image:loc></url>\
                <url><loc>http://cdn.example.com/2</loc></url></urlset>";
    let utf16: Vec<u8> = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(&sitemap, utf16).expect("a file");
    for (hosts, skipped) in [("", 1), ("hosts: ['*.example.com', example.com]\n", 0)] {
        let rules = format!("{hosts}{}", RULES.replace("hosts: [example.com]\n", ""));
        let gateway = TestGateway::with_rules(origin.address(), &rules);
        let before = origin.received_requests().len();
        let outcome = warm(&gateway, &["--class", "bot", &sitemap.display().to_string()]);
        assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
        let line = "1 not stored: status 421, skipped, of another host than the first page of the sitemap; the first is \
                    http://cdn.example.com/2\n";
        assert_eq!(outcome.output.contains(line), skipped == 1, "{}", outcome.output);
        assert_eq!(origin.received_requests().len() - before, 2 - skipped);
    }
}

#[test]
fn interrupted_warm_says_why_it_waited_and_what_it_did() {
    let origin = pages();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let dir = tempfile::tempdir().expect("a directory");
    let list = dir.path().join("pages.txt");
    let text: String = (0..8).map(|number| format!("http://example.com/{number}\n")).collect();
    std::fs::write(&list, &text).expect("a file");
    let (admin, file) = (gateway.admin_address().to_string(), list.display().to_string());
    let arguments = ["cache", "warm", "--admin", &admin, "--class", "bot", "--max-wait", "24h", &file];
    let mut program = Program::start(&arguments);
    program.wait_for_error("5 of 8: the class bot is refused; next attempt in 12 h 00 min");
    program.signal("INT");
    let outcome = program.wait_for_exit();
    assert_eq!((outcome.code, outcome.output.as_str()), (1, "5 fetched and stored, 0 were fresh\n"));
    let stopped = "stopped by Ctrl-C; 5 of 8 pages are done, the next is http://example.com/5";
    assert!(outcome.errors.contains(stopped), "{}", outcome.errors);
    // Its refusal and its units are not those of a client.
    let state: Value = serde_json::from_str(&gateway.admin_get("/api/v1/state").1).expect("JSON");
    assert_eq!(json!([state["top_clients"], state["spenders"]["clients"]]), json!([[], []]), "{state}");
    std::fs::write(&list, format!("{text}item/9\n")).expect("a file");
    let invalid = run(&arguments, b"");
    assert!(invalid.code == 2 && invalid.errors.contains("pages.txt:9: found \"item/9\""), "{}", invalid.errors);
}

#[test]
fn warm_keeps_to_the_limits_of_the_class() {
    let origin = pages();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let urls: Vec<String> = (0..8).map(|number| format!("http://example.com/{number}")).collect();
    let mut arguments = vec!["--class", "bot", "--max-wait", "1m"];
    arguments.extend(urls.iter().map(String::as_str));
    let outcome = warm(&gateway, &arguments);
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert!(
        outcome.errors.contains("the class bot is refused for 12 h 00 min, more than --max-wait 60 s")
            && outcome.errors.contains("5 of 8 pages are done, the next is http://example.com/5"),
        "{}",
        outcome.errors
    );
    assert_eq!(origin.received_requests().len(), 5, "the tier begins at half of the quota");
    for (arguments, error) in [
        (["--class", "robot", "http://example.com/a"], "class: found \"robot\"; known here: bot, person"),
        (["--class", "bot", "http:///a"], "give a URL with scheme and host"),
        (["--class", "bot", "/no/such/file"], "/no/such/file: "),
    ] {
        let outcome = warm(&gateway, &arguments);
        assert!(
            outcome.code == 2 && outcome.errors.contains(error),
            "{arguments:?}: {} {}",
            outcome.code,
            outcome.errors
        );
    }
    // Another host than the own ones is refused like a client's request for it.
    let foreign = warm(&gateway, &["--class", "bot", "http://other.example/a"]);
    assert_eq!(
        (foreign.code, foreign.output.as_str()),
        (
            0,
            "0 fetched and stored, 0 were fresh\n1 not stored: status 421, not cached; the first is http://other.example/a\n"
        )
    );
}

#[test]
fn surplus_refreshes_what_clients_request() {
    let origin = pages();
    let rules = RULES.replace("limit: 10\n", "limit: 100\n    pacing: even\n").replace("above: 50%", "above: 95%");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let bot = "User-Agent: ExampleBot/1.0\r\nAccept-Encoding: gzip\r\n";
    for page in 0..3 {
        (0..page + 2).for_each(|_| drop(gateway.connect().get(&format!("/{page}"), bot)));
    }
    assert_eq!(origin.received_requests().len(), 3);
    // Nine hours before the end of the day nothing is refreshed; in the last three hours, what is stale is.
    gateway.clock.advance(2 * HOUR);
    gateway.connect().get("/other", "");
    assert_eq!(gateway.metric("tidegate_cache_refreshed_units_total{quota=\"api\",class=\"bot\"}"), 0.0);
    gateway.clock.advance(9 * HOUR);
    gateway.connect().get("/other", "");
    let is_refresh = |request: &ReceivedRequest| {
        request.fields.contains_key("if-none-match") && request.fields["accept-encoding"] == "gzip"
    };
    wait_until("the stale pages are refreshed with the coding that clients accepted", || {
        origin.received_requests().iter().filter(|request| is_refresh(request)).count() >= 3
    });
    wait_until("the responses are stored", || {
        (0..3).all(|page| {
            gateway.connect().get(&format!("/{page}"), bot).field("cache-status").starts_with("tidegate; hit")
        })
    });
    let (_, stats) = gateway.admin_get("/api/v1/cache");
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    let log = gateway.read_log();
    let refreshes: Vec<&Value> = log.iter().filter(|line| line["fill"] == "refresh").collect();
    let mut pages: Vec<&str> = refreshes.iter().filter_map(|line| line["path"].as_str()).take(3).collect();
    pages.sort_unstable();
    assert_eq!(pages, ["/0", "/1", "/2"], "a copy that no client was sent is not refreshed");
    for line in refreshes {
        assert_eq!(
            json!([line["client"], line["class"], line["verdict"]]),
            json!(["0.0.0.0", "bot", "admitted"]),
            "{line}"
        );
    }
    assert_eq!(stats["refreshed"][0]["class"], "bot");
    assert!(stats["refreshed"][0]["units"].as_f64() >= Some(3.0), "{stats}");
}

#[test]
fn refused_request_is_answered_by_the_cache_of_the_origin() {
    let origin = Origin::with_script(|request, connection| {
        let is_for_cache = request.fields.get("cache-control").is_some_and(|value| value == "only-if-cached");
        match (is_for_cache, request.target.as_str()) {
            (true, "/cached") => connection.reply("200 OK", "Age: 5\r\nCache-Control: max-age=60\r\n", b"cached"),
            (true, "/ignores") => connection.reply("200 OK", "", b"new"),
            (true, _) => connection.reply("504 Gateway Timeout", "", b"none"),
            (false, _) => connection.reply("200 OK", "Cache-Control: max-age=60\r\n", b"new"),
        }
    });
    let rules = RULES.replace("workers: 1\n", "workers: 1\norigin: { only_if_cached: true, url: \"ORIGIN\" }\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    gateway.set_used("api", 6);
    let bot = "User-Agent: ExampleBot/1.0\r\n";
    let get = |path: &str| gateway.connect().get(path, bot);
    let used = || gateway.metric("tidegate_quota_used{quota=\"api\"}");
    let answered = get("/cached");
    assert_eq!((answered.status, answered.text().as_str()), (200, "cached"));
    assert!(get("/cached").field("cache-status").starts_with("tidegate; hit"), "stored by the gateway from now on");
    assert_eq!(get("/missing").status, 429);
    assert_eq!(used(), 6.0, "neither costs a unit");
    assert_eq!(get("/ignores").text(), "new");
    assert_eq!(used(), 7.0, "a response that is not from the cache is charged");
    let asked = origin.received_requests().len();
    assert_eq!(get("/missing").status, 429);
    assert_eq!(origin.received_requests().len(), asked, "the origin is not trusted any more");
    let log = gateway.read_log();
    let of = |line: &Value| json!([line["verdict"], line["reason"], line["status"], line["cache"]]);
    assert_eq!(of(&log[0]), json!(["refused", "tier", 200, "miss"]));
    assert_eq!(of(&log[2]), json!(["refused", "tier", 429, "miss"]));
}

#[test]
fn warm_does_not_ask_a_failing_origin_again() {
    let origin = Origin::with_script(|_, connection| connection.reply("503 Service Unavailable", "", b"busy"));
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let urls: Vec<String> = (0..8).map(|number| format!("http://example.com/{number}")).collect();
    let mut arguments = vec!["--class", "person"];
    arguments.extend(urls.iter().map(String::as_str));
    let outcome = warm(&gateway, &arguments);
    assert_eq!(outcome.code, 1);
    assert!(outcome.errors.contains("the origin failed 5 times in a row, last with status 503"), "{}", outcome.errors);
    assert_eq!(origin.received_requests().len(), 5, "each page once");
    let sitemap = warm(&gateway, &["--class", "person", "http://example.com/sitemap.xml"]);
    assert!(sitemap.code == 2 && sitemap.errors.contains("a sitemap is read from a file"), "{}", sitemap.errors);
}

#[test]
fn head_and_range_get_a_stale_copy_in_place_of_a_refusal() {
    let origin = pages();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let bot = "User-Agent: ExampleBot/1.0\r\n";
    gateway.connect().get("/a", bot);
    gateway.clock.advance(2 * HOUR);
    gateway.set_used("api", 10);
    let range = gateway.connect().get("/a", &format!("{bot}Range: bytes=0-3\r\n"));
    assert_eq!((range.status, range.text().as_str()), (206, "page"));
    let mut client = gateway.connect();
    client.send(format!("HEAD /a HTTP/1.1\r\nHost: example.com\r\n{bot}\r\n"));
    assert_eq!(client.response_to("HEAD").status, 200);
}

/// Rules with a throttled scope in which a client may take two slots, and one request may ask the origin's cache.
fn throttled_rules() -> String {
    let scope = "scopes: { default: { concurrency: 8, per_client: 25%, queue: { max_wait: 2s } } }";
    RULES.replace("workers: 1\n", &format!("workers: 1\norigin: {{ only_if_cached: true, url: ORIGIN }}\n{scope}\n"))
}

#[test]
fn requests_for_the_cache_of_the_origin_take_few_slots_also_after_their_clients_left() {
    let (release, held) = signal();
    let held = parking_lot::Mutex::new(held);
    let origin = Origin::with_script(move |request, connection| match request.fields.contains_key("cache-control") {
        true => {
            held.lock().wait();
            connection.reply("200 OK", "", b"new");
        }
        false => connection.reply("200 OK", "", b"page"),
    });
    let gateway = TestGateway::with_rules(origin.address(), &throttled_rules());
    gateway.set_used("api", 6);
    let used = || gateway.metric("tidegate_quota_used{quota=\"api\"}");
    let request = |number: usize| {
        let mut client = gateway.connect();
        client.send(format!(
            "GET /page/{number} HTTP/1.1\r\nHost: example.com\r\nUser-Agent: ExampleBot/1.0\r\nX-Forwarded-For: 192.0.{number}.1\r\n\r\n"
        ));
        client
    };
    let first = request(0);
    wait_until("the origin's cache to be asked", || origin.received_requests().len() == 1);
    assert_eq!(request(1).read_response().status, 429, "one at a time");
    assert_eq!(gateway.connect().get("/person", "User-Agent: Mozilla/5.0 Firefox/140.0\r\n").status, 200);
    drop(first);
    assert_eq!(request(2).read_response().status, 429, "the origin still works on the first");
    assert_eq!(origin.received_requests().len(), 2);
    let before = used();
    release.notify();
    wait_until("the response to be charged, although its client left", || used() == before + 1.0);
    assert_eq!(request(3).read_response().status, 429, "the origin ignored only-if-cached");
}

#[test]
fn client_that_waits_for_slots_of_its_own_holds_no_page_from_others() {
    let (release, held) = signal();
    let held = parking_lot::Mutex::new(held);
    let origin = Origin::with_script(move |request, connection| {
        if request.target.starts_with("/slow") {
            held.lock().wait();
        }
        connection.reply("200 OK", "Cache-Control: max-age=60\r\n", b"page");
    });
    let rules = throttled_rules()
        .replace("limit: 10", "limit: 1000")
        .replace("max_wait: 2s", "max_wait: 10h")
        .replace("url: ORIGIN", "url: ORIGIN, response_timeout: 10h");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let request = |path: &str, address: &str| {
        let mut client = gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: {address}\r\n\r\n"));
        client
    };
    let _slow = [request("/slow/1", "192.0.2.1"), request("/slow/2", "192.0.2.1")];
    wait_until("the client to use its slots", || origin.received_requests().len() == 2);
    let mut own: Vec<_> = (0..5).map(|_| request("/popular", "192.0.2.1")).collect();
    wait_until("its requests to wait", || gateway.metric("tidegate_queue_length{scope=\"default\"}") > 0.0);
    let mut other = request("/popular", "198.51.100.1");
    let is_popular = |request: &ReceivedRequest| request.target == "/popular";
    wait_until("the page to be fetched, by the other client", || {
        gateway.clock.advance(Duration::from_secs(1));
        origin.received_requests().iter().any(is_popular)
    });
    assert_eq!(other.read_response().text(), "page");
    assert_eq!(origin.received_requests().into_iter().filter(is_popular).count(), 1);
    release.notify();
    release.notify();
    for client in &mut own {
        assert_eq!(client.read_response().text(), "page", "also those of the client get the copy");
    }
    assert_eq!(origin.received_requests().into_iter().filter(is_popular).count(), 1);
}

#[test]
fn refresh_has_the_fields_of_the_client_once_and_replaces_its_copy() {
    let origin = Origin::with_script(|request, connection| {
        connection.reply("200 OK", "Vary: User-Agent, Host\r\nETag: \"1\"\r\n", request.head.as_bytes());
    });
    let rules = RULES.replace("limit: 10\n", "limit: 100\n    pacing: even\n").replace("above: 50%", "above: 95%");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let bot = "User-Agent: ExampleBot/1.0\r\n";
    (0..3).for_each(|_| drop(gateway.connect().get("/varied", bot)));
    gateway.clock.advance(11 * HOUR);
    gateway.connect().get("/other", "");
    let refresh =
        || origin.received_requests().into_iter().find(|request| request.fields.contains_key("if-none-match"));
    wait_until("the refresh", || refresh().is_some());
    let head = refresh().expect("the origin received it").head.to_ascii_lowercase();
    for line in ["host: example.com", "user-agent: examplebot/1.0", "x-forwarded-proto: http"] {
        let name = line.split_once(':').expect("a field").0;
        let lines: Vec<&str> = head.lines().filter(|found| found.starts_with(&format!("{name}:"))).collect();
        assert_eq!(lines, [line]);
    }
    wait_until("the copy of the client to be fresh", || {
        gateway.connect().get("/varied", bot).field("cache-status").starts_with("tidegate; hit; ttl=3600")
    });
}
