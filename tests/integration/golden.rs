//! The exact bytes of the formats that others read: access log lines, `/metrics`, `/api/v1/state` and `tidegate schema`.
//!
//! `UPDATE_GOLDEN=1 cargo test --test integration golden::` writes the files of `tests/data/golden`.

use crate::support::client::Client;
use crate::support::gateway::{NOON, TestGateway};
use crate::support::http2_statuses;
use crate::support::https_server::HttpsServer;
use crate::support::origin::{Origin, signal};
use crate::support::signer::{SignatureParams, Signer};
use crate::support::wait::wait_until;
use regex::Regex;
use std::path::Path;
use std::time::Duration;
use tidegate_crawlers::verify::fetch::AllowedAddresses;
use tidegate_engine::clock::Clock;

#[test]
fn log_metrics_and_state_are_golden() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let hosting = dir.path().join("hosting.txt");
    std::fs::write(&hosting, "198.51.100.0/24\n2001:db8:7::/48\n").expect("file is writable");
    let rules = RULES.replace("HOSTING", &hosting.display().to_string());

    let clock = Clock::manual(NOON);
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin_clock = clock.clone();
    let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
        "/search?second" => connection.reply("200 OK", "", b"hello"),
        "/search?held" | "/t/1?tenant=a" => {
            arrival_sender.notify();
            release_receiver.wait();
            connection.reply("200 OK", "", b"hello");
        }
        "/leave/before" => {
            arrival_sender.notify();
            connection.expect_eof();
        }
        "/leave/within" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc");
            connection.expect_eof();
        }
        "/fails" | "/fragile" => connection.reset(),
        "/item/cached" => connection.reply("200 OK", "Cache-Status: Origin; hit\r\n", b"known"),
        "/item/costly" => connection.reply("200 OK", "X-API-Cost: 3.5\r\n", b"costly"),
        "/item/missing" => connection.reply("404 Not Found", "", b""),
        "/robots.txt" => connection.reply("200 OK", "", b"User-agent: *\nDisallow: /private\n"),
        _ => {
            origin_clock.advance(Duration::from_micros(7_250));
            connection.reply("200 OK", "", b"hello");
        }
    });
    let gateway = TestGateway::with_clock(origin.address(), &rules, clock);
    let mut script = Script { client: gateway.connect(), gateway: &gateway, sent: 0 };

    // Admitted requests: methods, costs, origin responses.
    script.get("/", PERSON, "192.0.2.1");
    script.send("POST /item/2?q=%22a%22&b HTTP/1.1", "Content-Length: 0\r\nReferer: https://a.test/\"x\"\r\n");
    script.get("/item/costly", &browser("Accept: text/html\r\nAccept-Language: ja\r\n"), "2001:db8:1:2::7");
    script.get("/item/cached", "User-Agent: OurMonitor/1.0 caf\u{e9} \"\\\"\r\n", "192.0.2.1");
    script.get("/item/missing", PERSON, "192.0.2.1");
    script.get("/fails", PERSON, "192.0.2.1");
    script.get("/SMALL//x/../", PERSON, "192.0.2.1");
    script.get("/shadow", PERSON, "192.0.2.1");
    script.get("/shadow", PERSON, "192.0.2.1");

    // Refusals of each rule.
    script.get("/", "User-Agent: BadBot/1.0\r\n", "192.0.2.2");
    script.get("/item/1", "X-Api-Key: sesame\r\n", "192.0.2.3");
    script.get("/item/1", "X-Api-Key: sesame\r\n", "192.0.2.4");
    script.get("/item/1", CURL, "192.0.2.5");
    (0..5).for_each(|_| script.get("/paced", CURL, "192.0.2.5"));
    script.get("/paced", CURL, "192.0.2.5");
    script.get("/small", PERSON, "192.0.2.1");
    script.get("/small", PERSON, "192.0.2.1");
    script.get("/fragile", PERSON, "192.0.2.1");
    script.get("/fragile", PERSON, "192.0.2.1");
    script.get("/item/1", PERSON, "198.51.100.7");

    // Crawlers, robots.txt and the crawl policy.
    script.get("/robots.txt", GOOGLEBOT, "66.249.66.1");
    script.get("/robots.txt", CURL, "192.0.2.5");
    script.get("/item/1", GOOGLEBOT, "66.249.66.1");
    script.get("/item/2", GOOGLEBOT, "66.249.66.1");
    script.get("/", GOOGLEBOT, "192.0.2.66");
    script.get("/", GOOGLEBOT, "10.0.0.66");
    script.get("/", "", "192.0.2.6");
    script.get("/", "User-Agent: my-data-fetcher/0.1 (+http://a.test)\r\n", "192.0.2.6");
    script.get("/.well-known/crawl-policy", CURL, "192.0.2.5");
    for path in ["/item/1", "/item/2", "/never"] {
        script.get(path, &browser("X-Forwarded-Proto: https\r\n"), "192.0.2.7");
    }
    script.get("/item/3", &browser("X-Forwarded-Proto: https\r\n"), "192.0.2.7");
    let malformed = "Signature-Agent: garbage\r\nSignature-Input: garbage\r\nSignature: garbage\r\n";
    script.get("/item/3", &browser(malformed), "192.0.2.8");

    // HTTP/2, and requests that are rejected before classification.
    http2_statuses(gateway.address(), |_| {
        ["/item/h2?a=b", "/free"]
            .map(|path| {
                let request = http::Request::get(format!("http://h2.test{path}"));
                request.header("x-forwarded-for", "192.0.2.9").header("user-agent", "curl/8.0").body(()).expect("valid")
            })
            .into()
    });
    script.sent += 2;
    script.wait_for_records();
    assert_eq!(script.client.send("GET / HTTP/1.1\r\nX: a\r\n\r\n").read_response().status, 400);
    script.client = gateway.connect();

    // A request that waits for a slot, one that finds the queue full, and clients that leave.
    let (mut first, mut second) = (gateway.connect(), gateway.connect());
    first.send("GET /search?held HTTP/1.1\r\nHost: example.com\r\n\r\n");
    arrival.wait();
    second.send("GET /search?second HTTP/1.1\r\nHost: example.com\r\n\r\n");
    gateway.wait_for_metric("tidegate_queue_length{scope=\"search\"}", 1.0);
    gateway.clock.advance(Duration::from_millis(300));
    script.get("/search", PERSON, "192.0.2.1");
    release.notify();
    assert_eq!((first.read_response().status, second.read_response().status), (200, 200));
    script.sent += 2;
    script.wait_for_records();
    script.leave("/leave/before", || arrival.wait());
    script.leave("/leave/within", || ());

    // The state with a request in flight, which is logged last.
    first.send("GET /t/1?tenant=a HTTP/1.1\r\nHost: example.com\r\n\r\n");
    arrival.wait();
    gateway.wait_for_metric("tidegate_client_connections", 3.0);
    let (_, metrics) = gateway.admin_get("/metrics");
    let (_, state) = gateway.admin_get("/api/v1/state");
    release.notify();
    assert_eq!(first.read_response().status, 200);
    script.sent += 1;
    script.wait_for_records();
    drop(script);
    let log = gateway.read_log_text();

    assert_golden("access.jsonl", &normalized(&format!("{log}{}", signed_requests())));
    assert_golden("metrics.txt", &sorted_families(&normalized(&metrics)));
    assert_golden("state.json", &(normalized(&state) + "\n"));
}

#[test]
fn schema_is_golden() {
    assert_golden("schema.json", &(tidegate::cli::schema::schema() + "\n"));
}

/// Returns the log lines of an agent's requests before and after its keys are fetched.
fn signed_requests() -> String {
    let (origin, directory) = (Origin::plain(), HttpsServer::without_document());
    let agent = Signer::new(&directory.url());
    directory.publish_keys(&agent.directory());
    let rules =
        format!("workers: 1\noperators: {{ chatgpt-agent: {{ signature_agents: \"{}\" }} }}\n", directory.url());
    let gateway = TestGateway::with_network(directory.network(AllowedAddresses::Any), origin.address(), &rules);
    let mut client = gateway.connect();
    let mut send = |created| {
        let params = SignatureParams { host: "example.com", created, expires: NOON.seconds() + 3540, nonce: None };
        let fields = browser(&agent.signed_fields(&params)) + "X-Forwarded-For: 192.0.2.10\r\n";
        assert_eq!(client.get("/", &fields).status, 200);
        gateway.metrics();
    };
    let verified = "tidegate_requests_by_kind_total{kind=\"verified_bot\",verdict=\"admitted\"}";
    wait_until("the agent's keys to be fetched", || {
        send(NOON.seconds() - 60);
        gateway.metric(verified) > 0.0
    });
    // Valid from later on.
    send(NOON.seconds() + 3000);
    drop(client);
    let log = gateway.read_log_text();
    // Lines of an unknown signature are as many as requests were sent before the keys were fetched.
    let mut lines: Vec<&str> = log.lines().collect();
    lines.drain(1..lines.len() - 2);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Sends requests one by one, each after the previous one is recorded.
struct Script<'a> {
    gateway: &'a TestGateway,
    client: Client,
    sent: usize,
}

impl Script<'_> {
    fn get(&mut self, path: &str, fields: &str, address: &str) {
        let from = format!("{fields}X-Forwarded-For: {address}\r\n");
        self.send(&format!("GET {path} HTTP/1.1"), &from);
    }

    fn send(&mut self, request_line: &str, fields: &str) {
        self.client.send(format!("{request_line}\r\nHost: Example.com:8080\r\n{fields}\r\n"));
        if self.client.read_response().field("connection") == "close" {
            self.client = self.gateway.connect();
        }
        self.sent += 1;
        self.wait_for_records();
        self.gateway.clock.advance(Duration::from_millis(137));
    }

    /// Sends a request and closes the connection after `reached`.
    fn leave(&mut self, path: &str, reached: impl FnOnce()) {
        let mut client = self.gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n"));
        reached();
        if path.ends_with("within") {
            client.head();
            client.take(3).expect("response has begun");
        }
        client.reset();
        self.sent += 1;
        self.wait_for_records();
    }

    fn wait_for_records(&self) {
        wait_until("all requests to be recorded", || {
            let samples = self.gateway.metrics();
            let requests = samples.iter().filter(|(name, _)| name.starts_with("tidegate_requests_total"));
            requests.map(|(_, count)| count).sum::<f64>() == self.sent as f64
        });
    }
}

fn browser(fields: &str) -> String {
    format!("{PERSON}{fields}")
}

/// Replaces what differs between runs: random ids and hashes, ports, directories, and the revision.
fn normalized(text: &str) -> String {
    [
        (r#""(id|latest_decision)":"[0-9a-f]{16}""#, r#""$1":"ID""#),
        ("hash:[0-9a-f]{15}", "hash:HASH"),
        // The counter of a bucket depends on the hash of another.
        (r#""bucket_seq":\d+"#, r#""bucket_seq":SEQUENCE"#),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        // Measured four times a second.
        (r"(?m)^(tidegate_client_connection_memory_bytes) \d+$", "$1 BYTES"),
        (r#""revision":"[^"]*""#, r#""revision":"REVISION""#),
        (r#"revision="[^"]*""#, r#"revision="REVISION""#),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (pattern, word)| {
        Regex::new(pattern).expect("valid pattern").replace_all(&text, word).into_owned()
    })
}

/// Sorts the metrics and their samples, whose order has no meaning.
fn sorted_families(metrics: &str) -> String {
    let sorted_samples = |family: &str| {
        let mut lines: Vec<&str> = family.trim_end().lines().collect();
        lines[1..].sort_unstable();
        format!("# HELP {}\n", lines.join("\n"))
    };
    let mut families: Vec<String> = metrics.split("# HELP ").skip(1).map(sorted_samples).collect();
    families.sort_unstable();
    families.concat()
}

/// Asserts that a file of `tests/data/golden` is `actual`, or writes it if `UPDATE_GOLDEN` is set.
#[track_caller]
fn assert_golden(name: &str, actual: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, actual).expect("file is writable");
        return;
    }
    let expected = std::fs::read_to_string(&file).expect("golden file exists");
    if let Some((number, (expected, actual))) =
        (1..).zip(expected.lines().zip(actual.lines())).find(|(_, (a, b))| a != b)
    {
        // Lines have thousands of bytes: what surrounds the difference tells enough.
        let same = expected.bytes().zip(actual.bytes()).take_while(|(a, b)| a == b).count();
        let near = |line: &str| {
            String::from_utf8_lossy(&line.as_bytes()[same.saturating_sub(80)..line.len().min(same + 160)]).into_owned()
        };
        panic!("{name}:{number}:{}\nexpected …{}…\nactual   …{}…", same + 1, near(expected), near(actual));
    }
    let (lines, actual_lines) = (expected.lines().count(), actual.lines().count());
    assert_eq!(lines, actual_lines, "{name}: number of lines; line {} differs", 1 + lines.min(actual_lines));
    assert!(expected == actual, "{name}: line ends differ");
}

const PERSON: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
                      Chrome/138.0.0.0 Safari/537.36\r\n";
const CURL: &str = "User-Agent: curl/8.0\r\n";
const GOOGLEBOT: &str = "User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)\r\n";

const RULES: &str = r#"
workers: 1
origin: { url: ORIGIN, aborts_on_disconnect: true }
headers: { retry_after_spread: 0% }
crawl_policy: on
robots: { honeypot: /never }
address_lists: { hosting: { file: "HOSTING" } }
user_agent_rules: [ { match: OurMonitor, kind: human } ]
operators: { googlebot: { exhaustive: ranges } }
scopes:
  search: { concurrency: 1, queue: { max_wait: 60s, max_length: 1 } }
  fragile: { backoff: { min_delay: 40s, jitter: 0%, min_clients: 1 } }
  tenant: { partition_by: { query: tenant }, concurrency: 4 }
quotas:
  api:
    limit: 1000
    window: { fixed: 24h }
    cost_header: X-API-Cost
    tiers:
      google: [ { above: 0%, shed: 100% } ]
      bot: [ { above: 0%, shed: 100% } ]
      suspect: [ { above: 0%, shed: 100% } ]
  paced: { limit: 100, window: { calendar: day, zone: UTC }, pacing: even, tiers: { bot: [ { above: 95%, shed: 100% } ] } }
  small: { limit: 2, window: { first_use: 1h }, pacing: off }
  tried: { limit: 1, window: { fixed: 24h }, enforce: false, pacing: off }
classes:
  - { name: banned, when: { user_agent: BadBot }, block: true }
  - { name: hosting, when: { address_list: hosting }, block: true }
  - name: partner
    when: { api_key: { header: X-Api-Key, value: sesame } }
    bucket: { capacity: 1, fill: 1, interval: 1h, key: { header: X-Api-Key } }
  - { name: google, when: { operator: googlebot }, crawl_delay: 10s, crawler_guard: { admit_interval: 10m, max_refused_for: 1h } }
  - { name: impostor, when: { kind: impostor } }
  - { name: bot, when: { kind: [verified_bot, declared_bot] } }
  - { name: suspect, when: { kind: suspected_bot } }
  - { name: person, bucket: { capacity: 100, fill: 10, interval: 1s } }
routes:
  - { match: "/item/**", cost: { api: 1 } }
  - { match: /paced, cost: { paced: 1 } }
  - { match: "/small/**", cost: { small: 1, api: 2 } }
  - { match: /shadow, cost: { tried: 1 } }
  - { match: /search, scopes: search, cost: { api: 0.25 } }
  - { match: /fragile, scopes: fragile, cost: { api: 1 } }
  - { match: "/t/**", scopes: [ default, tenant ] }
"#;
