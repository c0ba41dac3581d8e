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
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    let answer = get_robots(&gate, "");
    assert_eq!(answer.status, 200);
    let expected =
        "# ours\nUser-agent: *\nCrawl-delay: 10\nDisallow: /cart\nSitemap: https://www.example.com/sitemap.xml\n\n";
    assert!(answer.text().starts_with(expected), "{}", answer.text());
    assert!(answer.text().contains("\nUser-agent: bingbot\nUser-agent: adidxbot\n"), "{}", answer.text());
    assert!(answer.text().ends_with("\nCrawl-delay: 30\nDisallow: /cart\n"), "{}", answer.text());
    assert_eq!(answer.field("content-type"), "text/plain");
    assert_eq!(answer.field("content-length"), answer.body.len().to_string());
    let seen = site.origin.last_request();
    assert_eq!(seen.fields["accept-encoding"], "identity");
    assert_eq!(seen.fields["x-tidegate-class"], "person");
}

#[test]
fn text_without_directives_is_unchanged() {
    let text = "User-agent:*\r\nDisallow: /a\0b\r\rnoise \u{e9}\n\n";
    let site = RobotsOrigin::with_text(text);
    let gate = TestGateway::with_rules(site.address(), "");
    assert_eq!(get_robots(&gate, "").body, text.as_bytes());
    let off = format!("{RULES}robots: {{ merge_crawl_delay: false }}\n");
    gate.reload(site.address(), &off).expect("valid rules");
    assert_eq!(get_robots(&gate, "").body, text.as_bytes());
}

#[test]
fn origin_is_fetched_hourly_or_by_cache_control() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    for _ in 0..3 {
        get_robots(&gate, BING);
    }
    assert_eq!(site.fetch_count(), 1);
    gate.clock.advance(Duration::from_secs(3599));
    assert_eq!(get_robots(&gate, "").field("age"), "3599");
    assert_eq!(site.fetch_count(), 1);
    gate.clock.advance(Duration::from_secs(1));
    assert_eq!(get_robots(&gate, "").field("age"), "0");
    assert_eq!(site.fetch_count(), 2);

    site.set_text(TEXT, "Cache-Control: max-age=60\r\n");
    gate.clock.advance(Duration::from_secs(3600));
    assert_eq!(get_robots(&gate, "").field("cache-control"), "max-age=60");
    gate.clock.advance(Duration::from_secs(60));
    get_robots(&gate, "");
    assert_eq!(site.fetch_count(), 4);

    site.set_text(TEXT, "Cache-Control: no-store\r\n");
    gate.clock.advance(Duration::from_secs(60));
    get_robots(&gate, "");
    get_robots(&gate, "");
    assert_eq!(site.fetch_count(), 6, "uncacheable responses are not cached");
}

#[test]
fn stale_copy_is_served_on_origin_failure() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    let kept = get_robots(&gate, "").body;
    for trouble in ["503 Service Unavailable", "500 Internal Server Error", "429 Too Many Requests", "gone"] {
        site.set_failure(trouble);
        gate.clock.advance(Duration::from_secs(3600));
        let answer = get_robots(&gate, "");
        assert_eq!((answer.status, &answer.body), (200, &kept), "{trouble}");
    }
    let asked = site.fetch_count();
    get_robots(&gate, "");
    assert_eq!(site.fetch_count(), asked, "a failing origin is not fetched again immediately");
    gate.clock.advance(Duration::from_secs(30 * 24 * 3600));
    assert_eq!(get_robots(&gate, "").status, 502, "a copy expires after a month");
}

#[test]
fn stalled_origin_falls_back_to_cached_copy() {
    let (begin, silence) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(())));
    let origin = {
        let (begin, silence) = (Arc::clone(&begin), Arc::clone(&silence));
        Origin::with_script(move |_, wire| match *begin.lock() {
            false => wire.reply("200 OK", "Cache-Control: max-age=1\r\n", TEXT.as_bytes()),
            true => {
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-");
                drop(silence.lock());
                wire.close();
            }
        })
    };
    let quick = "origin: { url: ORIGIN, response_timeout: 1s }\nlimits: { first_byte_timeout: 1s }\nworkers: 1\n";
    let gate = TestGateway::with_rules(origin.address(), &format!("{RULES}{quick}"));
    let kept = get_robots(&gate, "").body;
    *begin.lock() = true;
    let held = silence.lock();
    gate.clock.advance(Duration::from_secs(2));
    let mut slow = gate.connect();
    slow.send("GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n\r\n");
    wait_until("the second request to reach the origin", || origin.received_requests().len() == 2);
    assert_eq!(get_robots(&gate, "").body, kept, "other clients are served meanwhile");
    gate.advance_and_sweep(Duration::from_secs(2));
    assert_eq!(slow.read_response().body, kept);
    drop(held);
}

#[test]
fn dripping_origin_falls_back_to_cached_copy() {
    let (drops, dripping) = mpsc::channel::<()>();
    let dripping = Mutex::new(dripping);
    let begun = Arc::new(Mutex::new(false));
    let origin = {
        let begun = Arc::clone(&begun);
        Origin::with_script(move |_, wire| match *begun.lock() {
            false => wire.reply("200 OK", "Cache-Control: max-age=1\r\n", TEXT.as_bytes()),
            true => {
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\nUser-");
                dripping.lock().iter().for_each(|()| _ = wire.send("x"));
                wire.close();
            }
        })
    };
    let quick = "origin: { url: ORIGIN, response_timeout: 4s }\nlimits: { first_byte_timeout: 1s }\nworkers: 1\n";
    let gate = TestGateway::with_rules(origin.address(), &format!("{RULES}{quick}"));
    let kept = get_robots(&gate, "").body;
    *begun.lock() = true;
    gate.clock.advance(Duration::from_secs(2));
    let mut slow = gate.connect();
    slow.send("GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n\r\n");
    wait_until("the second request to reach the origin", || origin.received_requests().len() == 2);
    for _ in 0..20 {
        drops.send(()).expect("body is being sent");
        gate.advance_and_sweep(Duration::from_millis(1500));
    }
    drop(drops);
    assert_eq!(slow.read_response().body, kept);
}

#[test]
fn host_flood_does_not_evict_crawled_hosts() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    let mut client = gate.connect();
    let mut ask = |host: &str, fields: &str| {
        client.send(format!("GET /robots.txt HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        client.read_response().status
    };
    ask("shop.example", BING);
    for number in 0..200 {
        (0..3).for_each(|_| _ = ask(&format!("made-up-{number}.example"), ""));
    }
    assert_eq!(site.fetch_count(), 201, "one fetch per host");
    assert_eq!(ask("shop.example", ""), 200);
    assert_eq!(site.fetch_count(), 201);
    site.set_failure("gone");
    gate.clock.advance(Duration::from_secs(3600));
    assert_eq!(ask("shop.example", ""), 200, "the stale copy is served on failure");
}

#[test]
fn concurrent_requests_share_one_fetch() {
    let silence = Arc::new(Mutex::new(()));
    let origin = {
        let silence = Arc::clone(&silence);
        Origin::with_script(move |_, wire| {
            drop(silence.lock());
            wire.reply("200 OK", "", TEXT.as_bytes());
        })
    };
    let gate = TestGateway::with_rules(origin.address(), &format!("{RULES}workers: 1\n"));
    let held = silence.lock();
    let mut crowd: Vec<_> = (0..20).map(|_| gate.connect()).collect();
    for client in &mut crowd {
        client.send("GET /robots.txt HTTP/1.1\r\nHost: example.com\r\n\r\n");
    }
    wait_until("the first request to reach the origin", || !origin.received_requests().is_empty());
    // Connections are served in order: after the response to this one, the other requests have been received.
    assert_eq!(gate.connect().send("GET / HTTP/1.1\r\n\r\n").read_response().status, 400);
    drop(held);
    assert!(crowd.iter_mut().all(|client| client.read_response().status == 200));
    assert_eq!(origin.received_requests().len(), 1);
}

#[test]
fn robots_txt_is_free_and_ignores_exhausted_quota() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    gate.set_used("api", 10);
    let declared = "User-Agent: SomeBot/1.0 (+https://bot.example)\r\n";
    assert_eq!(gate.connect().get("/page", declared).status, 429);
    for client in [declared, BING, GOOGLE, "User-Agent: Mozilla/5.0\r\n"] {
        assert_eq!(get_robots(&gate, client).status, 200, "{client}");
    }
    assert_eq!(gate.counters(), (10.0, 0.0));
}

#[test]
fn matching_etag_returns_not_modified() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    let whole = get_robots(&gate, "");
    let tag = whole.field("etag").to_owned();
    assert!(tag.starts_with('"') && tag.len() > 10, "{tag}");
    let known = get_robots(&gate, &format!("If-None-Match: W/{tag}\r\n"));
    assert_eq!((known.status, known.field("etag"), known.body.len()), (304, &tag[..], 0));
    assert_eq!(get_robots(&gate, "If-None-Match: \"else\"\r\n").status, 200);
    assert_eq!(get_robots(&gate, "Range: bytes=0-3\r\n").body, whole.body);

    let mut client = gate.connect();
    client.send("HEAD /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.field("etag")), (200, &tag[..]));
    assert_eq!(head.field("content-length"), whole.body.len().to_string());
    assert_eq!(client.get("/robots.txt", "").body, whole.body, "no body follows the response to HEAD");
    let statuses = crate::support::http2_statuses(gate.address(), |_| {
        let ask =
            |method| http::Request::builder().method(method).uri("http://a/robots.txt").body(()).expect("a request");
        vec![ask("HEAD"), ask("GET")]
    });
    assert_eq!(statuses, [200, 200]);
}

#[test]
fn each_site_has_its_own_copy() {
    let origin = Origin::with_script(|seen, wire| {
        let text = format!("# {}\nUser-agent: *\nDisallow: /x\n", seen.fields["host"]);
        wire.reply("200 OK", "", text.as_bytes());
    });
    let gate = TestGateway::with_rules(origin.address(), "");
    let text = |host: &str| {
        let mut client = gate.connect();
        client.send(format!("GET /robots.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.read_response().text()
    };
    for host in ["one.example", "two.example", "one.example", "ONE.example", "one.example:81"] {
        assert!(text(host).to_ascii_lowercase().starts_with(&format!("# {}\n", host.to_ascii_lowercase())), "{host}");
    }
    assert_eq!(origin.received_requests().len(), 3);
    assert_eq!(gate.connect().get("/robots.txt", "X-Forwarded-Proto: https\r\n").status, 200);
    assert_eq!(origin.received_requests().len(), 4, "each scheme is a site of its own");
}

#[test]
fn client_headers_are_not_sent_with_fetch() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), "");
    get_robots(
        &gate,
        "Cookie: a=1\r\nAuthorization: Basic eA==\r\nIf-None-Match: \"x\"\r\nAccept-Encoding: gzip\r\nCache-Control: no-cache\r\n",
    );
    let seen = site.origin.last_request();
    for field in ["cookie", "authorization", "if-none-match", "cache-control"] {
        assert!(!seen.fields.contains_key(field), "{field}");
    }
    assert_eq!(seen.fields["accept-encoding"], "identity");
}

#[test]
fn query_and_path_spelling_share_one_copy() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    let mut client = gate.connect();
    let first = client.get("/robots.txt?refresh=1", "");
    assert_eq!(site.origin.last_request().target, "/robots.txt", "a shared copy is fetched without client fields");
    for target in ["/robots.txt", "/robots.txt?", "/robots.txt?a=b", "//robots.txt", "/%72obots.txt"] {
        assert_eq!(client.get(target, "").body, first.body, "{target}");
    }
    assert_eq!(site.origin.received_requests().len(), 1);
    drop(client);
    let line = &gate.read_log()[0];
    assert_eq!(
        (&line["path"], &line["query"]),
        (&"/robots.txt".into(), &"refresh=1".into()),
        "the requested target is logged"
    );
}

#[test]
fn other_methods_are_decided_and_charged() {
    let origin = Origin::plain();
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = folder.path().join("robots.txt");
    std::fs::write(&file, TEXT).expect("file is writable");
    let gate = TestGateway::with_rules(
        origin.address(),
        &format!("{RULES}robots: {{ override_file: \"{}\" }}\n", file.display()),
    );
    let bot = "User-Agent: SomeBot/1.0 (+https://bot.example)\r\n";
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = request_with_method(&gate, method, "/robots.txt", bot);
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (429, Some("tier")), "{method}");
    }
    assert_eq!(gate.counters(), (0.0, 0.0));
    assert_eq!(request_with_method(&gate, "POST", "/robots.txt", "").status, 200, "a human client is admitted");
    assert_eq!(origin.last_request().method, "POST");
    assert_eq!(gate.counters(), (1.0, 0.0), "POST is charged the cost of the route");
    assert_eq!(get_robots(&gate, bot).status, 200, "GET stays exempt");
}

#[test]
fn blocked_class_reads_only_robots_txt() {
    let origin = Origin::plain();
    let gate = TestGateway::with_rules(origin.address(), BLOCKED);
    for target in ["/robots.txt", "/item/1/../../robots.txt", "/%72obots.txt", "//robots.txt?a=b"] {
        for method in ["POST", "DELETE"] {
            let answer = request_with_method(&gate, method, target, BAD);
            assert_eq!((answer.status, answer.json()["reason"].as_str()), (429, Some("blocked")), "{method} {target}");
        }
        assert_eq!(gate.connect().get(target, BAD).status, 200, "{target}");
    }
    for target in
        ["/robots.txt/", "/ROBOTS.TXT", "/robots.txt/../item/1", "/robots.txt%2F", "/robots.txt;a", "/robots.txt%3F"]
    {
        assert_eq!(gate.connect().get(target, BAD).status, 429, "{target} is another resource");
    }
    let seen: Vec<(String, String)> =
        origin.received_requests().into_iter().map(|seen| (seen.method, seen.target)).collect();
    assert_eq!(seen, [("GET".to_owned(), "/robots.txt".to_owned())], "one fetch, of the normalized path");
}

#[test]
fn methods_that_are_not_exempt_need_a_slot() {
    let (origin, asked, go_on) = Origin::with_held_responses("/page");
    let scopes = "scopes: { default: { concurrency: 1, queue: { max_wait: 0s } } }\n";
    let gate = TestGateway::with_rules(origin.address(), scopes);
    let mut busy = gate.connect();
    busy.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    asked.wait();
    let answer = request_with_method(&gate, "POST", "/robots.txt", "");
    assert_eq!(answer.json()["reason"], "throttle");
    assert_eq!(get_robots(&gate, "").status, 200);
    go_on.notify();
    assert_eq!(busy.read_response().status, 200);
}

#[test]
fn missing_robots_txt_gets_delays_or_stays_404() {
    let site = RobotsOrigin::with_text("sorry");
    site.set_failure("404 Not Found");
    let gate = TestGateway::with_rules(site.address(), "");
    let none = get_robots(&gate, "");
    assert_eq!((none.status, none.text()), (404, "404 Not Found".into()));
    gate.reload(site.address(), RULES).expect("valid rules");
    let told = get_robots(&gate, "");
    assert_eq!(told.status, 200);
    assert!(told.text().starts_with("User-agent: *\nCrawl-delay: 10\nDisallow:\n"), "{}", told.text());
    assert_eq!(told.field("content-type"), "text/plain; charset=utf-8");
}

#[test]
fn other_origin_responses_are_forwarded_unchanged() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    for (status, code) in [("301 Moved Permanently", 301), ("403 Forbidden", 403), ("503 Service Unavailable", 503)] {
        site.set_failure(status);
        let answer = get_robots(&gate, "");
        assert_eq!((answer.status, answer.text()), (code, status.into()));
    }
    site.set_text("packed", "Content-Encoding: gzip\r\n");
    let packed = get_robots(&gate, "");
    assert_eq!(
        (packed.field("content-encoding"), packed.text()),
        ("gzip", "packed".into()),
        "an encoded body is served unchanged"
    );
}

#[test]
fn text_near_size_limit_is_not_modified() {
    let long = format!("User-agent: *\n{}", "Disallow: /something\n".repeat(24_370));
    let site = RobotsOrigin::with_text(&long);
    let gate = TestGateway::with_rules(site.address(), RULES);
    assert!(get_robots(&gate, "").body == long.as_bytes());
    let state = gate.state();
    let is_told = |note: &serde_json::Value| {
        note.as_str().is_some_and(|note| note.starts_with("robots.txt of 1 hosts exceeds 500 KiB"))
    };
    assert!(state["notes"].as_array().expect("a list").iter().any(is_told), "{}", state["notes"]);
}

#[test]
fn oversized_text_is_forwarded_and_not_cached() {
    let huge = "Disallow: /something\n".repeat(40_000);
    for framing in ["length", "chunks"] {
        let text = huge.clone();
        let origin = Origin::with_script(move |_, wire| match framing {
            "length" => wire.reply("200 OK", "", text.as_bytes()),
            _ => send_chunked(wire, text.as_bytes()),
        });
        let gate = TestGateway::with_rules(origin.address(), RULES);
        for _ in 0..2 {
            assert!(get_robots(&gate, "").body == huge.as_bytes(), "{framing}");
        }
        assert_eq!(origin.received_requests().len(), 2);
        let mut client = gate.connect();
        client.send("HEAD /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().status, 200);
    }
}

#[test]
fn override_file_replaces_origin_and_is_reread() {
    let site = RobotsOrigin::with_text(TEXT);
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = folder.path().join("robots.txt");
    std::fs::write(&file, "User-agent: *\nDisallow: /first\n").expect("file is writable");
    let rules = format!("{RULES}robots: {{ override_file: \"{}\", honeypot: /keep-out }}\n", file.display());
    let gate = TestGateway::with_rules(site.address(), &rules);
    assert!(
        get_robots(&gate, "")
            .text()
            .starts_with("User-agent: *\nCrawl-delay: 10\nDisallow: /keep-out\nDisallow: /first\n")
    );
    std::fs::write(&file, "User-agent: *\nDisallow: /second\n").expect("file is writable");
    wait_until("the changed file to be served", || get_robots(&gate, "").text().contains("/second"));
    std::fs::remove_file(&file).expect("file can be removed");
    gate.reload(site.address(), &rules).expect("valid rules");
    assert!(get_robots(&gate, "").text().contains("/second"), "the last version stays current");
    assert_eq!(site.fetch_count(), 0);
    gate.reload(site.address(), "").expect("valid rules");
    assert_eq!(get_robots(&gate, "").text(), TEXT);
}

#[test]
fn reload_rerenders_text_without_a_fetch() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    let before = get_robots(&gate, "");
    gate.reload(site.address(), &RULES.replace("10s", "5s")).expect("valid rules");
    let after = get_robots(&gate, "");
    assert!(after.text().contains("Crawl-delay: 5\n"), "{}", after.text());
    assert_ne!(before.field("etag"), after.field("etag"));
    assert_eq!(site.fetch_count(), 1);
}

#[test]
fn auto_crawl_delay_follows_the_budget() {
    let site = RobotsOrigin::with_text(TEXT);
    let rules = RULES.replace("{ bingbot: 30s }", "auto").replace("limit: 10\n", "limit: 20000\n");
    let gate = TestGateway::with_rules(site.address(), &rules);
    // 86,400 s for two crawlers and 20,000 units: 8.64 s.
    assert!(get_robots(&gate, "").text().contains("\nCrawl-delay: 9\n"), "{}", get_robots(&gate, "").text());
}

#[test]
fn compliance_is_counted_by_operator() {
    let site = RobotsOrigin::with_text(TEXT);
    let gate = TestGateway::with_rules(site.address(), RULES);
    get_robots(&gate, BING);
    for seconds in [30, 10, 45, 3600] {
        assert_eq!(gate.connect().get("/page", BING).status, 200);
        gate.clock.advance(Duration::from_secs(seconds));
    }
    gate.connect().get("/page", BING);
    gate.connect().get("/page", "User-Agent: Mozilla/5.0\r\n");
    // Requests of an impostor are not counted for the operator.
    gate.connect().get("/page", "X-Forwarded-For: 192.0.2.1\r\nUser-Agent: bingbot/2.0\r\n");
    let metrics = gate.metrics();
    let of_bing = |name: &str| metrics[&format!("tidegate_{name}{{operator=\"bingbot\"}}")];
    assert_eq!(of_bing("crawl_delay_advertised_seconds"), 30.0);
    assert_eq!((of_bing("crawler_requests_total"), of_bing("crawler_robots_requests_total")), (6.0, 1.0));
    assert_eq!((of_bing("crawl_intervals_total"), of_bing("crawl_interval_seconds_total")), (3.0, 85.0));
    assert_eq!(of_bing("crawl_delay_violations_total"), 1.0);
    let state = gate.state();
    let crawlers = state["crawlers"].as_array().expect("a list");
    let bing = crawlers.iter().find(|crawler| crawler["operator"] == "bingbot").expect("state lists bingbot");
    assert_eq!(
        (bing["crawl_delay_s"].as_u64(), bing["requests"].as_u64(), bing["violations"].as_u64()),
        (Some(30), Some(6), Some(1))
    );
    assert_eq!(bing["robots_share"].as_f64(), Some(1.0 / 6.0));
}

/// An origin with a robots.txt that can change.
struct RobotsOrigin {
    origin: Origin,
    answer: Arc<Mutex<(String, String, Vec<u8>)>>,
}

impl RobotsOrigin {
    fn with_text(text: &str) -> Self {
        let answer: Arc<Mutex<(String, String, Vec<u8>)>> = Arc::default();
        let script = Arc::clone(&answer);
        let origin = Origin::with_script(move |_, wire| {
            let (status, fields, text) = script.lock().clone();
            match &status[..] {
                "gone" => wire.reset(),
                _ => wire.reply(&status, &fields, &text),
            }
        });
        let site = Self { origin, answer };
        site.set_text(text, "Content-Type: text/plain\r\n");
        site
    }

    fn set_text(&self, text: &str, fields: &str) {
        *self.answer.lock() = ("200 OK".into(), fields.into(), text.into());
    }

    fn set_failure(&self, status: &str) {
        *self.answer.lock() = (status.into(), String::new(), status.into());
    }

    fn address(&self) -> std::net::SocketAddr {
        self.origin.address()
    }

    /// Returns the number of robots.txt requests that the origin received.
    fn fetch_count(&self) -> usize {
        self.origin.received_requests().iter().filter(|seen| seen.target == "/robots.txt").count()
    }
}

const BAD: &str = "User-Agent: BadBot/1.0\r\n";

const BLOCKED: &str = "
classes:
  - { name: bad, when: { user_agent: BadBot }, block: true }
  - { name: rest }
";

fn request_with_method(gate: &TestGateway, method: &str, target: &str, fields: &str) -> Response {
    let mut client = gate.connect();
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: example.com\r\n{fields}Content-Length: 0\r\n\r\n"));
    client.read_response()
}

fn get_robots(gate: &TestGateway, fields: &str) -> Response {
    gate.connect().get("/robots.txt", fields)
}

fn send_chunked(wire: &mut OriginConnection, text: &[u8]) {
    wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in text.chunks(10_000) {
        wire.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    wire.send("0\r\n\r\n");
}
