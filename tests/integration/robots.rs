//! Responses to robots.txt requests.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, OriginConnection};
use crate::support::wait::wait_until;
use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const GOOGLE: &str = "X-Forwarded-For: 66.249.66.1\r\nUser-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)\r\n";
const BING: &str = "X-Forwarded-For: 157.55.39.7\r\nUser-Agent: Mozilla/5.0 (compatible; bingbot/2.0)\r\n";

const TEXT: &str = "# ours\nUser-agent: *\nDisallow: /cart\nSitemap: https://www.example.com/sitemap.xml\n";

const RULES: &str = "
classes:
  - { name: search, when: { operator: [googlebot, bingbot] }, crawl_delay: { bingbot: 30s } }
  - { name: bot, when: { kind: [verified_bot, declared_bot] }, crawl_delay: 10s }
  - { name: person }
quotas:
  api:
    limit: 10
    window: { fixed: 24h }
    tiers: { bot: [{ above: 0%, shed: 100% }] }
routes:
  - { match: /**, cost: { api: 1 } }
";

#[test]
fn crawl_delays_are_merged_into_origin_text() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    let response = get_robots(&gateway, "");
    assert_eq!(response.status, 200);
    let expected =
        "# ours\nUser-agent: *\nCrawl-delay: 10\nDisallow: /cart\nSitemap: https://www.example.com/sitemap.xml\n\n";
    assert!(response.text().starts_with(expected), "{}", response.text());
    assert!(response.text().contains("\nUser-agent: bingbot\nUser-agent: adidxbot\n"), "{}", response.text());
    assert!(response.text().ends_with("\nCrawl-delay: 30\nDisallow: /cart\n"), "{}", response.text());
    assert_eq!(response.field("content-type"), "text/plain");
    assert_eq!(response.field("content-length"), response.body.len().to_string());
    let request = server.origin.last_request();
    assert_eq!(request.fields["accept-encoding"], "identity");
    assert!(!request.fields.contains_key("x-tidegate-class"), "the request is the gateway's own");
}

#[test]
fn text_without_directives_is_unchanged() {
    let text = "User-agent:*\r\nDisallow: /a\0b\r\rnoise \u{e9}\n\n";
    let server = RobotsOrigin::with_text(text);
    let gateway = TestGateway::with_rules(server.address(), "");
    assert_eq!(get_robots(&gateway, "").body, text.as_bytes());
    let disabled = format!("{RULES}robots: {{ merge_crawl_delay: false }}\n");
    gateway.reload(server.address(), &disabled).expect("valid rules");
    assert_eq!(get_robots(&gateway, "").body, text.as_bytes());
}

#[test]
fn origin_is_fetched_hourly_or_by_cache_control() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    for _ in 0..3 {
        get_robots(&gateway, BING);
    }
    assert_eq!(server.fetch_count(), 1);
    gateway.clock.advance(Duration::from_secs(3599));
    assert_eq!(get_robots(&gateway, "").field("age"), "3599");
    assert_eq!(server.fetch_count(), 1);
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(get_robots(&gateway, "").field("age"), "0");
    assert_eq!(server.fetch_count(), 2);

    server.set_text(TEXT, "Cache-Control: max-age=60\r\n");
    gateway.clock.advance(Duration::from_secs(3600));
    assert_eq!(get_robots(&gateway, "").field("cache-control"), "max-age=60");
    gateway.clock.advance(Duration::from_secs(60));
    get_robots(&gateway, "");
    assert_eq!(server.fetch_count(), 4);

    server.set_text(TEXT, "Cache-Control: no-store\r\n");
    gateway.clock.advance(Duration::from_secs(60));
    get_robots(&gateway, "");
    get_robots(&gateway, "");
    assert_eq!(server.fetch_count(), 6, "uncacheable responses are not cached");
}

#[test]
fn stale_copy_is_served_on_origin_failure() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    let cached = get_robots(&gateway, "").body;
    for failure in ["503 Service Unavailable", "500 Internal Server Error", "429 Too Many Requests", "gone"] {
        server.set_failure(failure);
        gateway.clock.advance(Duration::from_secs(3600));
        let response = get_robots(&gateway, "");
        assert_eq!((response.status, &response.body), (200, &cached), "{failure}");
    }
    let fetches = server.fetch_count();
    get_robots(&gateway, "");
    assert_eq!(server.fetch_count(), fetches, "a failing origin is not fetched again immediately");
    gateway.clock.advance(Duration::from_secs(30 * 24 * 3600));
    assert_eq!(get_robots(&gateway, "").status, 502, "a copy expires after a month");
}

#[test]
fn stalled_origin_falls_back_to_cached_copy() {
    let (is_stalling, stall) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(())));
    let origin = {
        let (is_stalling, stall) = (Arc::clone(&is_stalling), Arc::clone(&stall));
        Origin::with_script(move |_, connection| match *is_stalling.lock() {
            false => connection.reply("200 OK", "Cache-Control: max-age=1\r\n", TEXT.as_bytes()),
            true => {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-");
                drop(stall.lock());
                connection.close();
            }
        })
    };
    let timeouts = "origin: { url: ORIGIN, response_timeout: 1s }\nlimits: { first_byte_timeout: 1s }\nworkers: 1\n";
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{timeouts}"));
    let cached = get_robots(&gateway, "").body;
    *is_stalling.lock() = true;
    let stall_guard = stall.lock();
    gateway.clock.advance(Duration::from_secs(2));
    let mut client = gateway.connect();
    client.send("GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n\r\n");
    wait_until("the second request to reach the origin", || origin.received_requests().len() == 2);
    assert_eq!(get_robots(&gateway, "").body, cached, "other clients are served meanwhile");
    gateway.advance_and_sweep(Duration::from_secs(2));
    assert_eq!(client.read_response().body, cached);
    drop(stall_guard);
}

#[test]
fn dripping_origin_falls_back_to_cached_copy() {
    let (byte_sender, byte_receiver) = mpsc::channel::<()>();
    let byte_receiver = Mutex::new(byte_receiver);
    let is_dripping = Arc::new(Mutex::new(false));
    let origin = {
        let is_dripping = Arc::clone(&is_dripping);
        Origin::with_script(move |_, connection| match *is_dripping.lock() {
            false => connection.reply("200 OK", "Cache-Control: max-age=1\r\n", TEXT.as_bytes()),
            true => {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\nUser-");
                byte_receiver.lock().iter().for_each(|()| _ = connection.send("x"));
                connection.close();
            }
        })
    };
    let timeouts = "origin: { url: ORIGIN, response_timeout: 4s }\nlimits: { first_byte_timeout: 1s }\nworkers: 1\n";
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{timeouts}"));
    let cached = get_robots(&gateway, "").body;
    *is_dripping.lock() = true;
    gateway.clock.advance(Duration::from_secs(2));
    let mut client = gateway.connect();
    client.send("GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n\r\n");
    wait_until("the second request to reach the origin", || origin.received_requests().len() == 2);
    for _ in 0..20 {
        byte_sender.send(()).expect("body is being sent");
        gateway.advance_and_sweep(Duration::from_millis(1500));
    }
    drop(byte_sender);
    assert_eq!(client.read_response().body, cached);
}

#[test]
fn host_flood_does_not_evict_crawled_hosts() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    let mut client = gateway.connect();
    let mut status_of = |host: &str, fields: &str| {
        client.send(format!("GET /robots.txt HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        client.read_response().status
    };
    status_of("shop.example", BING);
    for number in 0..200 {
        // The rate of fetches of unknown hosts permits one each 6 s, and fewer to one network.
        gateway.clock.advance(Duration::from_secs(6));
        let address = format!("X-Forwarded-For: 10.0.{number}.1\r\n");
        (0..3).for_each(|_| _ = status_of(&format!("made-up-{number}.example"), &address));
    }
    assert_eq!(server.fetch_count(), 201, "one fetch per host");
    assert_eq!(status_of("shop.example", ""), 200);
    assert_eq!(server.fetch_count(), 201);
    server.set_failure("gone");
    gateway.clock.advance(Duration::from_secs(3600));
    assert_eq!(status_of("shop.example", ""), 200, "the stale copy is served on failure");
}

#[test]
fn concurrent_requests_share_one_fetch() {
    let stall = Arc::new(Mutex::new(()));
    let origin = {
        let stall = Arc::clone(&stall);
        Origin::with_script(move |_, connection| {
            drop(stall.lock());
            connection.reply("200 OK", "", TEXT.as_bytes());
        })
    };
    let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}workers: 1\n"));
    let stall_guard = stall.lock();
    let mut clients: Vec<_> = (0..20).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send("GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n\r\n");
    }
    wait_until("the first request to reach the origin", || !origin.received_requests().is_empty());
    // Connections are served in order: after the response to this one, the other requests have been received.
    assert_eq!(gateway.connect().send("GET / HTTP/1.1\r\n\r\n").read_response().status, 400);
    drop(stall_guard);
    assert!(clients.iter_mut().all(|client| client.read_response().status == 200));
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn robots_txt_is_free_and_ignores_exhausted_quota() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    gateway.set_used("api", 10);
    let declared_bot = "User-Agent: SomeBot/1.0 (+https://bot.example)\r\n";
    assert_eq!(gateway.connect().get("/page", declared_bot).status, 429);
    for client in [declared_bot, BING, GOOGLE, "User-Agent: Mozilla/5.0\r\n"] {
        assert_eq!(get_robots(&gateway, client).status, 200, "{client}");
    }
    assert_eq!(gateway.counters(), (10.0, 0.0));
}

#[test]
fn matching_etag_returns_not_modified() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    let full = get_robots(&gateway, "");
    let tag = full.field("etag").to_owned();
    assert!(tag.starts_with('"') && tag.len() > 10, "{tag}");
    let not_modified = get_robots(&gateway, &format!("If-None-Match: W/{tag}\r\n"));
    assert_eq!((not_modified.status, not_modified.field("etag"), not_modified.body.len()), (304, &tag[..], 0));
    assert_eq!(get_robots(&gateway, "If-None-Match: \"else\"\r\n").status, 200);
    assert_eq!(get_robots(&gateway, "Range: bytes=0-3\r\n").body, full.body);

    let mut client = gateway.connect();
    client.send("HEAD /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.field("etag")), (200, &tag[..]));
    assert_eq!(head.field("content-length"), full.body.len().to_string());
    assert_eq!(client.get("/robots.txt", "").body, full.body, "no body follows the response to HEAD");
    let statuses = crate::support::http2_statuses(gateway.address(), |_| {
        let request =
            |method| http::Request::builder().method(method).uri("http://a/robots.txt").body(()).expect("a request");
        vec![request("HEAD"), request("GET")]
    });
    assert_eq!(statuses, [200, 200]);
}

#[test]
fn each_site_has_its_own_copy() {
    let origin = Origin::with_script(|request, connection| {
        let text = format!("# {}\nUser-agent: *\nDisallow: /x\n", request.fields["host"]);
        connection.reply("200 OK", "", text.as_bytes());
    });
    let gateway = TestGateway::with_rules(origin.address(), "");
    let text = |host: &str| {
        let mut client = gateway.connect();
        client.send(format!("GET /robots.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.read_response().text()
    };
    for host in ["one.example", "two.example", "one.example", "ONE.example", "one.example:81"] {
        assert!(text(host).to_ascii_lowercase().starts_with(&format!("# {}\n", host.to_ascii_lowercase())), "{host}");
    }
    assert_eq!(origin.received_requests().len(), 3);
    assert_eq!(gateway.connect().get("/robots.txt", "X-Forwarded-Proto: https\r\n").status, 200);
    assert_eq!(origin.received_requests().len(), 4, "each scheme is a site of its own");
}

#[test]
fn client_headers_are_not_sent_with_fetch() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), "");
    get_robots(
        &gateway,
        "Cookie: a=1\r\nAuthorization: Basic eA==\r\nIf-None-Match: \"x\"\r\nAccept-Encoding: gzip\r\nCache-Control: no-cache\r\n",
    );
    let request = server.origin.last_request();
    for field in ["cookie", "authorization", "if-none-match", "cache-control"] {
        assert!(!request.fields.contains_key(field), "{field}");
    }
    assert_eq!(request.fields["accept-encoding"], "identity");
}

#[test]
fn query_and_path_spelling_share_one_copy() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    let mut client = gateway.connect();
    let first = client.get("/robots.txt?refresh=1", "");
    assert_eq!(server.origin.last_request().target, "/robots.txt", "a shared copy is fetched without client fields");
    for target in ["/robots.txt", "/robots.txt?", "/robots.txt?a=b", "//robots.txt", "/%72obots.txt"] {
        assert_eq!(client.get(target, "").body, first.body, "{target}");
    }
    assert_eq!(server.origin.received_requests().len(), 1);
    drop(client);
    let line = &gateway.read_log()[0];
    assert_eq!(
        (&line["path"], &line["query"]),
        (&"/robots.txt".into(), &"refresh=1".into()),
        "the requested target is logged"
    );
}

#[test]
fn other_methods_are_decided_and_charged() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("robots.txt");
    std::fs::write(&file, TEXT).expect("file is writable");
    let gateway = TestGateway::with_rules(
        origin.address(),
        &format!("{RULES}robots: {{ override_file: \"{}\" }}\n", file.display()),
    );
    let bot = "User-Agent: SomeBot/1.0 (+https://bot.example)\r\n";
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let response = request_with_method(&gateway, method, "/robots.txt", bot);
        assert_eq!((response.status, response.json()["reason"].as_str()), (429, Some("tier")), "{method}");
    }
    assert_eq!(gateway.counters(), (0.0, 0.0));
    assert_eq!(request_with_method(&gateway, "POST", "/robots.txt", "").status, 200, "a human client is admitted");
    assert_eq!(origin.last_request().method, "POST");
    assert_eq!(gateway.counters(), (1.0, 0.0), "POST is charged the cost of the route");
    assert_eq!(get_robots(&gateway, bot).status, 200, "GET stays exempt");
}

#[test]
fn blocked_class_reads_only_robots_txt() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), BLOCKED);
    for target in ["/robots.txt", "/item/1/../../robots.txt", "/%72obots.txt", "//robots.txt?a=b"] {
        for method in ["POST", "DELETE"] {
            let response = request_with_method(&gateway, method, target, BAD_BOT);
            assert_eq!(
                (response.status, response.json()["reason"].as_str()),
                (429, Some("blocked")),
                "{method} {target}"
            );
        }
        assert_eq!(gateway.connect().get(target, BAD_BOT).status, 200, "{target}");
    }
    for target in ["/robots.txt/", "/ROBOTS.TXT", "/robots.txt/../item/1", "/robots.txt;a", "/robots.txt%3F"] {
        assert_eq!(gateway.connect().get(target, BAD_BOT).status, 429, "{target} is another resource");
    }
    assert_eq!(gateway.connect().get("/robots.txt%2F", BAD_BOT).status, 400, "an ambiguous path");
    let received: Vec<(String, String)> =
        origin.received_requests().into_iter().map(|request| (request.method, request.target)).collect();
    assert_eq!(received, [("GET".to_owned(), "/robots.txt".to_owned())], "one fetch, of the normalized path");
}

#[test]
fn methods_that_are_not_exempt_need_a_slot() {
    let (origin, arrival, release) = Origin::with_held_responses("/page");
    let scopes = "scopes: { default: { concurrency: 1, queue: { max_wait: 0s } } }\n";
    let gateway = TestGateway::with_rules(origin.address(), scopes);
    let mut client = gateway.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    let response = request_with_method(&gateway, "POST", "/robots.txt", "");
    assert_eq!(response.json()["reason"], "throttle");
    assert_eq!(get_robots(&gateway, "").status, 200);
    release.notify();
    assert_eq!(client.read_response().status, 200);
}

#[test]
fn missing_robots_txt_gets_delays_or_stays_404() {
    let server = RobotsOrigin::with_text("sorry");
    server.set_failure("404 Not Found");
    let gateway = TestGateway::with_rules(server.address(), "");
    let missing = get_robots(&gateway, "");
    assert_eq!((missing.status, missing.text()), (404, "404 Not Found".into()));
    gateway.reload(server.address(), RULES).expect("valid rules");
    let merged = get_robots(&gateway, "");
    assert_eq!(merged.status, 200);
    assert!(merged.text().starts_with("User-agent: *\nCrawl-delay: 10\nDisallow:\n"), "{}", merged.text());
    assert_eq!(merged.field("content-type"), "text/plain; charset=utf-8");
}

#[test]
fn other_origin_responses_are_forwarded_unchanged() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    for (status, code) in [("301 Moved Permanently", 301), ("403 Forbidden", 403), ("503 Service Unavailable", 503)] {
        server.set_failure(status);
        let response = get_robots(&gateway, "");
        assert_eq!((response.status, response.text()), (code, status.into()));
    }
    server.set_text("packed", "Content-Encoding: gzip\r\n");
    let compressed = get_robots(&gateway, "");
    assert_eq!(
        (compressed.field("content-encoding"), compressed.text()),
        ("gzip", "packed".into()),
        "an encoded body is served unchanged"
    );
}

#[test]
fn text_near_size_limit_is_not_modified() {
    let long_text = format!("User-agent: *\n{}", "Disallow: /something\n".repeat(24_370));
    let server = RobotsOrigin::with_text(&long_text);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    assert!(get_robots(&gateway, "").body == long_text.as_bytes());
    let state = gateway.state();
    let is_size_note = |note: &serde_json::Value| {
        note.as_str().is_some_and(|note| note.starts_with("robots.txt of 1 hosts exceeds 500 KiB"))
    };
    assert!(state["notes"].as_array().expect("a list").iter().any(is_size_note), "{}", state["notes"]);
}

#[test]
fn oversized_text_is_forwarded_and_not_cached() {
    let oversized = "Disallow: /something\n".repeat(40_000);
    for framing in ["length", "chunks"] {
        let text = oversized.clone();
        let origin = Origin::with_script(move |_, connection| match framing {
            "length" => connection.reply("200 OK", "", text.as_bytes()),
            _ => send_chunked(connection, text.as_bytes()),
        });
        let gateway = TestGateway::with_rules(origin.address(), RULES);
        for _ in 0..2 {
            assert!(get_robots(&gateway, "").body == oversized.as_bytes(), "{framing}");
        }
        assert_eq!(origin.received_requests().len(), 2);
        let mut client = gateway.connect();
        client.send("HEAD /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().status, 200);
    }
}

#[test]
fn override_file_replaces_origin_and_is_reread() {
    let server = RobotsOrigin::with_text(TEXT);
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("robots.txt");
    std::fs::write(&file, "User-agent: *\nDisallow: /first\n").expect("file is writable");
    let rules = format!("{RULES}robots: {{ override_file: \"{}\", honeypot: /keep-out }}\n", file.display());
    let gateway = TestGateway::with_rules(server.address(), &rules);
    assert!(
        get_robots(&gateway, "")
            .text()
            .starts_with("User-agent: *\nCrawl-delay: 10\nDisallow: /keep-out\nDisallow: /first\n")
    );
    std::fs::write(&file, "User-agent: *\nDisallow: /second\n").expect("file is writable");
    wait_until("the changed file to be served", || get_robots(&gateway, "").text().contains("/second"));
    std::fs::remove_file(&file).expect("file can be removed");
    gateway.reload(server.address(), &rules).expect("valid rules");
    assert!(get_robots(&gateway, "").text().contains("/second"), "the last version stays current");
    assert_eq!(server.fetch_count(), 0);
    gateway.reload(server.address(), "").expect("valid rules");
    assert_eq!(get_robots(&gateway, "").text(), TEXT);
}

#[test]
fn reload_rerenders_text_without_a_fetch() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    let before = get_robots(&gateway, "");
    gateway.reload(server.address(), &RULES.replace("10s", "5s")).expect("valid rules");
    let after = get_robots(&gateway, "");
    assert!(after.text().contains("Crawl-delay: 5\n"), "{}", after.text());
    assert_ne!(before.field("etag"), after.field("etag"));
    assert_eq!(server.fetch_count(), 1);
}

#[test]
fn auto_crawl_delay_follows_the_budget() {
    let server = RobotsOrigin::with_text(TEXT);
    let rules = RULES.replace("{ bingbot: 30s }", "auto").replace("limit: 10\n", "limit: 20000\n");
    let gateway = TestGateway::with_rules(server.address(), &rules);
    // 86,400 s for two crawlers and 20,000 units: 8.64 s.
    assert!(get_robots(&gateway, "").text().contains("\nCrawl-delay: 9\n"), "{}", get_robots(&gateway, "").text());
}

#[test]
fn compliance_is_counted_by_operator() {
    let server = RobotsOrigin::with_text(TEXT);
    let gateway = TestGateway::with_rules(server.address(), RULES);
    get_robots(&gateway, BING);
    for seconds in [30, 10, 45, 3600] {
        assert_eq!(gateway.connect().get("/page", BING).status, 200);
        gateway.clock.advance(Duration::from_secs(seconds));
    }
    gateway.connect().get("/page", BING);
    gateway.connect().get("/page", "User-Agent: Mozilla/5.0\r\n");
    // Requests of an impostor are not counted for the operator.
    gateway.connect().get("/page", "X-Forwarded-For: 192.0.2.1\r\nUser-Agent: bingbot/2.0\r\n");
    let metrics = gateway.metrics();
    let bingbot_metric = |name: &str| metrics[&format!("tidegate_{name}{{operator=\"bingbot\"}}")];
    assert_eq!(bingbot_metric("crawl_delay_advertised_seconds"), 30.0);
    assert_eq!((bingbot_metric("crawler_requests_total"), bingbot_metric("crawler_robots_requests_total")), (6.0, 1.0));
    assert_eq!((bingbot_metric("crawl_intervals_total"), bingbot_metric("crawl_interval_seconds_total")), (3.0, 85.0));
    assert_eq!(bingbot_metric("crawl_delay_violations_total"), 1.0);
    let state = gateway.state();
    let crawlers = state["crawlers"].as_array().expect("a list");
    let bingbot = crawlers.iter().find(|crawler| crawler["operator"] == "bingbot").expect("state lists bingbot");
    assert_eq!(
        (bingbot["crawl_delay_s"].as_u64(), bingbot["requests"].as_u64(), bingbot["violations"].as_u64()),
        (Some(30), Some(6), Some(1))
    );
    assert_eq!(bingbot["robots_share"].as_f64(), Some(1.0 / 6.0));
}

/// An origin with a robots.txt that can change.
struct RobotsOrigin {
    origin: Origin,
    response: Arc<Mutex<(String, String, Vec<u8>)>>,
}

impl RobotsOrigin {
    fn with_text(text: &str) -> Self {
        let response: Arc<Mutex<(String, String, Vec<u8>)>> = Arc::default();
        let script = Arc::clone(&response);
        let origin = Origin::with_script(move |_, connection| {
            let (status, fields, text) = script.lock().clone();
            match &status[..] {
                "gone" => connection.reset(),
                _ => connection.reply(&status, &fields, &text),
            }
        });
        let server = Self { origin, response };
        server.set_text(text, "Content-Type: text/plain\r\n");
        server
    }

    fn set_text(&self, text: &str, fields: &str) {
        *self.response.lock() = ("200 OK".into(), fields.into(), text.into());
    }

    fn set_failure(&self, status: &str) {
        *self.response.lock() = (status.into(), String::new(), status.into());
    }

    fn address(&self) -> std::net::SocketAddr {
        self.origin.address()
    }

    /// Returns the number of robots.txt requests that the origin received.
    fn fetch_count(&self) -> usize {
        self.origin.received_requests().iter().filter(|request| request.target == "/robots.txt").count()
    }
}

const BAD_BOT: &str = "User-Agent: BadBot/1.0\r\n";

const BLOCKED: &str = "
classes:
  - { name: bad, when: { user_agent: BadBot }, block: true }
  - { name: rest }
";

fn request_with_method(gateway: &TestGateway, method: &str, target: &str, fields: &str) -> Response {
    let mut client = gateway.connect();
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: example.com\r\n{fields}Content-Length: 0\r\n\r\n"));
    client.read_response()
}

fn get_robots(gateway: &TestGateway, fields: &str) -> Response {
    gateway.connect().get("/robots.txt", fields)
}

fn send_chunked(connection: &mut OriginConnection, text: &[u8]) {
    connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in text.chunks(10_000) {
        connection.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    connection.send("0\r\n\r\n");
}
