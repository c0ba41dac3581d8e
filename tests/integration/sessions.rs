//! Sessions: who gets a cookie, what it is bound to, and the way back of a refused browser.

use crate::support::browser::{Browser, Screen};
use crate::support::client::Response;
use crate::support::firefox::Firefox;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::program::run;
use crate::support::redis::RedisServer;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::time::Duration;
use tidegate_engine::clock::Clock;

const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
                       Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Language: en\r\n\
                       Accept-Encoding: gzip\r\nUpgrade-Insecure-Requests: 1\r\n";

/// Strangers are always refused, all others never.
const REFUSED_STRANGERS: &str = "
workers: 1
sessions: on
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas: { api: { limit: 100, window: { fixed: 24h }, tiers: { stranger: [{ above: 0%, shed: 100% }] } } }
classes:
  - { name: bot, when: { kind: [verified_bot, declared_bot, impostor] } }
  - { name: stranger, when: { session: none } }
  - { name: person }
routes: [{ match: '/**', cost: { api: 1 } }]
";

fn html_origin() -> Origin {
    Origin::with_script(|request, connection| {
        let fields = match request.target.as_str() {
            "/public" => "Content-Type: text/html\r\nCache-Control: public, max-age=60\r\n",
            "/data" => "Content-Type: application/json\r\n",
            _ => "Content-Type: text/html; charset=utf-8\r\n",
        };
        connection.reply("200 OK", fields, b"page");
    })
}

/// Sends a request of a browser at `client`.
fn browse(gateway: &TestGateway, client: &str, path: &str, fields: &str) -> Response {
    gateway.connect().get(path, &format!("X-Forwarded-For: {client}\r\n{BROWSER}{fields}"))
}

/// Returns the `Cookie` field for what a response has set.
fn cookie_of(response: &Response) -> String {
    let set = response.field("set-cookie");
    assert!(set.contains("; Path=/; ") && set.contains("; HttpOnly; SameSite=Lax"), "{set:?}");
    format!("Cookie: a=1; {}\r\n", set.split(';').next().unwrap_or_default())
}

#[test]
fn a_refused_browser_comes_back_by_itself_once() {
    let origin = html_origin();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_STRANGERS);
    let refused = browse(&gateway, "192.0.2.1", "/a", "");
    let wait = (refused.field("retry-after"), refused.field("refresh"), refused.field("cache-control"));
    assert_eq!((refused.status, wait), (429, ("2", "2", "no-store")), "{}", refused.text());
    assert!(refused.text().contains("loads by itself in 2 seconds"), "{}", refused.text());
    let cookie = cookie_of(&refused);
    let returned = browse(&gateway, "192.0.2.1", "/a", &cookie);
    assert_eq!((returned.status, returned.field("set-cookie")), (200, ""));
    assert_eq!(origin.last_request().field("cookie"), "a=1", "the origin sees its own cookies only");
    // Without cookies, the browser is told the truth, and does not reload for ever.
    for _ in 0..3 {
        let again = browse(&gateway, "192.0.2.1", "/a", "");
        assert_eq!((again.status, again.field("refresh")), (429, ""));
        assert!(again.field("retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 2), "{again:?}");
        assert!(again.field("set-cookie").contains("tidegate="), "the next reload may have it");
    }
    for (client, path, fields, refresh) in [
        ("192.0.2.2", "/a", "", "2"),
        // Another tab, or another person behind the address.
        ("192.0.2.1", "/b", "", "2"),
        // The network of the browser changes with each request.
        ("192.0.3.1", "/c", cookie.as_str(), ""),
        ("192.0.2.1", "/d", "Sec-Purpose: prefetch\r\n", ""),
        ("192.0.2.1", "/d", "", "2"),
    ] {
        let response = browse(&gateway, client, path, fields);
        assert_eq!((response.status, response.field("refresh")), (429, refresh), "{client} {path}");
    }
    gateway.advance_and_sweep(Duration::from_secs(61));
    assert_eq!(browse(&gateway, "192.0.2.1", "/a", "").field("refresh"), "2");
    let log = gateway.read_log();
    let logged = |index: usize| {
        json!([log[index]["session"], log[index]["class"], log[index]["reason"], log[index]["retry_after_s"]])
    };
    assert_eq!(logged(0), json!(["none", "stranger", "tier", 2]), "the reason stays the true one");
    assert_eq!(logged(1), json!(["new", "person", null, null]));
}

#[test]
fn replay_asks_the_same_browsers_back() {
    let origin = html_origin();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_STRANGERS);
    let asked = ["/a", "/b", "/a"].map(|path| browse(&gateway, "192.0.2.1", path, "").field("refresh") == "2");
    assert_eq!(asked, [true, true, false]);
    let dir = tempfile::tempdir().expect("temporary directory");
    let write = |name: &str, text: String| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("file is writable");
        file.display().to_string()
    };
    let (yaml, log) = (write("tidegate.yaml", gateway.yaml()), write("access.log", gateway.read_log_text()));
    let verdicts = run(&["replay", "--config", &yaml, "--verdicts", "-", &log], b"").output;
    let verdicts = verdicts.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let challenged: Vec<bool> = verdicts.map(|verdict| verdict["verdict"] == "challenged").collect();
    assert_eq!(challenged, asked);
}

#[test]
fn only_navigations_of_browsers_are_asked_back() {
    let origin = html_origin();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_STRANGERS);
    for (index, (method, fields, session)) in [
        ("GET", "Accept: text/html\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\n", true),
        ("GET", "Accept: text/html\r\nSec-Fetch-Dest: iframe\r\nSec-Fetch-Mode: navigate\r\n", false),
        ("GET", "Accept: text/html\r\nSec-Fetch-Dest: image\r\nSec-Fetch-Mode: no-cors\r\n", false),
        ("GET", "Accept: image/avif,*/*\r\n", false),
        ("GET", "Accept: application/json\r\n", false),
        ("GET", "Accept: */*\r\n", false),
        ("POST", "Accept: text/html\r\nContent-Length: 0\r\n", false),
        ("HEAD", "Accept: text/html\r\n", false),
        (
            "GET",
            "Accept: text/html\r\nSignature-Agent: \"https://agent.example\"\r\nSignature-Input: x\r\nSignature: y\r\n",
            false,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let request = format!(
            "{method} /a HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: 192.0.2.{index}\r\nUser-Agent: Mozilla/5.0 Firefox/128.0\r\n{fields}\r\n"
        );
        let response = gateway.connect().send(request).response_to(method);
        let given = (response.field("refresh") == "2", response.field("set-cookie").contains("tidegate="));
        assert_eq!(given, (session, session), "{method} {fields}: {response:?}");
    }
}

#[test]
fn pages_get_a_cookie_unless_a_cache_may_keep_them() {
    let origin = html_origin();
    let rules = "
sessions: { cookie: __Host-visit, lifetime: 2h }
cache: {}
quotas: { api: { limit: 100, window: { fixed: 24h } } }
classes: []
routes: [{ match: '/stored', cache: { ttl: 60s } }]
";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let page = browse(&gateway, "192.0.2.1", "/page", "");
    let set = page.field("set-cookie");
    // Browsers refuse the prefix over http.
    assert!(set.starts_with("visit=") && set.contains("; Max-Age=7200;") && !set.contains("Secure"), "{set}");
    let cookie = cookie_of(&page);
    for (path, fields) in [
        ("/public", ""),
        ("/data", ""),
        ("/stored", ""),
        ("/stored", ""),
        ("/page", cookie.as_str()),
        ("/page", "Accept: application/json\r\n"),
    ] {
        let fields = fields.replace("Accept: application", "X: 1\r\nSec-Fetch-Dest: empty\r\nAccept: application");
        let response = browse(&gateway, "192.0.2.1", path, &fields);
        assert_eq!((response.status, response.field("set-cookie")), (200, ""), "{path} {fields}");
    }
    let crawler = gateway.connect().get("/page", "User-Agent: Googlebot/2.1\r\nAccept: text/html\r\n");
    assert_eq!((crawler.status, crawler.field("set-cookie")), (200, ""), "a bot that says so");
    // The cookie is no part of what the cache compares.
    let stored = browse(&gateway, "192.0.2.1", "/stored", &cookie.replace("a=1; ", ""));
    assert!(stored.field("cache-status").contains("hit"), "{stored:?}");
}

#[test]
fn a_cookie_holds_for_its_network_and_browser_and_over_https_for_its_host() {
    let origin = html_origin();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_STRANGERS);
    let of_https = browse(&gateway, "192.0.2.1", "/a", "X-Forwarded-Proto: https\r\n");
    let set = of_https.field("set-cookie");
    assert!(set.starts_with("__Host-tidegate=") && set.ends_with("; Secure"), "{set}");
    let cookie = cookie_of(&of_https);
    for (client, fields, expected) in [
        ("192.0.2.1", cookie.clone(), 200),
        ("192.0.2.77", cookie.clone(), 200),
        ("192.0.3.1", cookie.clone(), 429),
        ("2001:db8::1", cookie.clone(), 429),
        ("192.0.2.1", cookie.replace("__Host-", ""), 200),
        // A cookie of the domain, or of another network, beside the valid one.
        ("192.0.2.1", cookie.replace("a=1", "tidegate=x; tidegate="), 200),
        ("192.0.2.1", cookie.replace("tidegate=", "tidegate=x"), 429),
        ("192.0.2.1", "Cookie: __Host-tidegate=\r\n".to_owned(), 429),
        ("192.0.2.1", format!("Cookie: __Host-tidegate={}\r\n", "A".repeat(39)), 429),
    ] {
        assert_eq!(browse(&gateway, client, "/a", &fields).status, expected, "{client} {fields:?}");
    }
    let other = format!("X-Forwarded-For: 192.0.2.1\r\n{}{cookie}", BROWSER.replace("128", "129"));
    assert_eq!(gateway.connect().get("/a", &other).status, 429, "another browser");
    gateway.advance_and_sweep(Duration::from_secs(24 * 3600 - 10));
    let renewed = browse(&gateway, "192.0.2.1", "/a", &cookie);
    assert_eq!(renewed.status, 200);
    gateway.advance_and_sweep(Duration::from_secs(20));
    assert_eq!(browse(&gateway, "192.0.2.1", "/a", &cookie_of(&renewed)).status, 200, "the same session, renewed");
    assert_eq!(browse(&gateway, "192.0.2.1", "/a", &cookie).status, 429, "after a day");
}

#[test]
fn a_session_becomes_known_by_a_visit_and_survives_a_restart() {
    let origin = html_origin();
    let mut gateway = TestGateway::with_rules(origin.address(), REFUSED_STRANGERS);
    let cookie = cookie_of(&browse(&gateway, "192.0.2.1", "/a", ""));
    let first = browse(&gateway, "192.0.2.1", "/a", &cookie);
    assert_eq!((first.status, first.field("set-cookie")), (200, ""));
    for asset in ["/style.css", "/app.js", "/logo.png"] {
        browse(
            &gateway,
            "192.0.2.1",
            asset,
            &format!("Referer: http://example.com/a\r\nSec-Fetch-Dest: style\r\n{cookie}"),
        );
    }
    let page = browse(&gateway, "192.0.2.1", "/b", &format!("Referer: http://example.com/a\r\n{cookie}"));
    let known = cookie_of(&page);
    assert_ne!(known, cookie);
    gateway.restart();
    assert_eq!(browse(&gateway, "192.0.2.1", "/c", &known).status, 200);
    let log = gateway.read_log();
    let sessions: Vec<&str> = log.iter().filter_map(|line| line["session"].as_str()).collect();
    assert_eq!(sessions.last(), Some(&"known"), "{sessions:?}");
    assert!(sessions.contains(&"new") && log.iter().all(|line| !line.to_string().contains("tidegate=")));
}

#[test]
fn shadow_mode_begins_sessions_and_asks_nobody_back() {
    let origin = html_origin();
    let rules = REFUSED_STRANGERS.replace("sessions: on", "sessions: { enforce: false }");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let page = browse(&gateway, "192.0.2.1", "/a", "");
    assert_eq!((page.status, page.field("refresh")), (200, ""));
    cookie_of(&page);
    let log = gateway.read_log();
    assert_eq!(log[0]["shadow_reason"], "tier", "{}", log[0]);
}

#[test]
fn only_browsers_that_are_asked_back_do_not_count_as_refused() {
    let origin = html_origin();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_STRANGERS);
    browse(&gateway, "192.0.2.1", "/a", "");
    browse(&gateway, "192.0.2.1", "/a", "");
    assert_eq!(gateway.metric("tidegate_requests_by_kind_total{kind=\"human\",verdict=\"refused\"}"), 1.0);
}

#[test]
fn sessions_that_a_reload_turns_on_survive_a_restart() {
    let origin = html_origin();
    let mut gateway = TestGateway::with_rules(
        origin.address(),
        &REFUSED_STRANGERS.replace("sessions: on", "").replace("when: { session: none }", "when: { kind: human }"),
    );
    gateway.reload(origin.address(), REFUSED_STRANGERS).expect("valid rules");
    let cookie = cookie_of(&browse(&gateway, "192.0.2.1", "/a", ""));
    gateway.restart();
    assert_eq!(browse(&gateway, "192.0.2.1", "/a", &cookie).status, 200);
}

#[test]
fn gateways_with_one_ledger_accept_the_sessions_of_each_other() {
    let redis = RedisServer::start(&[]);
    let origin = html_origin();
    let rules = format!("{REFUSED_STRANGERS}ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}\n", redis.port);
    let start = |rules: &String| TestGateway::with_clock(origin.address(), rules, Clock::system());
    let gateways = [&rules, &rules].map(start);
    wait_until("both gateways to sign with one secret", || {
        let cookie = cookie_of(&browse(&gateways[0], "192.0.2.1", "/a", ""));
        browse(&gateways[1], "192.0.2.1", "/a", &cookie).status == 200
    });
}

#[test]
fn strangers_share_one_budget_and_people_with_a_session_are_served() {
    let origin = html_origin();
    let rules = "
# classes: built in
workers: 1
sessions: on
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas: { api: { limit: 1000 } }
routes: [{ match: '/**', cost: { api: 1 } }]
";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let person = cookie_of(&browse(&gateway, "192.0.2.1", "/", ""));
    // A fleet: each address sends one request, with all fields of a browser.
    let of_fleet: Vec<Response> =
        (0..400).map(|number| browse(&gateway, &format!("10.{}.{}.1", number / 200, number % 200), "/a", "")).collect();
    let served = of_fleet.iter().filter(|response| response.status == 200).count();
    assert!((1..150).contains(&served), "a small part of half a day: {served} of 400");
    let reasons = |response: &Response| response.status == 200 || response.field("refresh") == "2";
    assert!(of_fleet.iter().all(reasons), "each of them could come back");
    for number in 0..40 {
        let page = browse(&gateway, "192.0.2.1", &format!("/page/{number}"), &person);
        assert_eq!(page.status, 200, "{number}: {}", page.text());
    }
    let crawler = "X-Forwarded-For: 66.249.66.1\r\nUser-Agent: Googlebot/2.1\r\n";
    assert_eq!(gateway.connect().get("/a", crawler).status, 200, "search engines come before strangers");
}

/// Suspected bots are always refused, all others never.
const REFUSED_SUSPECTS: &str = "
workers: 1
sessions: on
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas: { api: { limit: 100000, window: { fixed: 24h }, tiers: { bot: [{ above: 0%, shed: 100% }] } } }
classes:
  - { name: bot, when: { kind: [suspected_bot, declared_bot, impostor] } }
  - { name: stranger, when: { session: none } }
  - { name: person }
routes: [{ match: '/item/**', cost: { api: 1 } }]
";

#[test]
fn a_suspect_by_landings_alone_is_asked_to_come_back_and_is_then_a_person() {
    let origin = html_origin();
    let gateway = TestGateway::with_rules(origin.address(), REFUSED_SUSPECTS);
    for reader in 0..220 {
        let address = format!("10.{}.{}.1", reader / 100, reader % 100);
        let cookie = cookie_of(&browse(&gateway, &address, "/item/1", ""));
        let on_page = format!("Referer: http://example.com/item/1\r\n{cookie}");
        for path in ["/a.css", "/b.js", "/item/2"] {
            assert_eq!(browse(&gateway, &address, path, &on_page).status, 200);
        }
    }
    // Two assets a page, and neither a link nor a cookie.
    let land = |number: u32| {
        let page = browse(&gateway, "192.0.2.7", &format!("/item/{number}"), "");
        for asset in ["/a.css", "/b.js"] {
            browse(&gateway, "192.0.2.7", asset, "Referer: http://example.com/item/1\r\n");
        }
        page
    };
    let refused = (1..60).map(land).find(|page| page.status == 429).expect("suspected");
    assert_eq!((refused.field("retry-after"), refused.field("refresh")), ("2", "2"), "{}", refused.text());
    let returned = browse(&gateway, "192.0.2.7", "/item/1", &cookie_of(&refused));
    assert_eq!(returned.status, 200, "{}", returned.text());
    let log = gateway.read_log();
    let suspect = log.iter().find(|line| line["kind"] == "suspected_bot").expect("a suspect");
    assert!(suspect["evidence"].to_string().contains("behavior:landings"), "{suspect}");
}

/// Browsers of people, each with a new profile.
enum Reader {
    Chromium(Browser),
    Firefox(Firefox),
}

impl Reader {
    /// Opens the first page, which is refused, and waits until the browser has come back by itself.
    fn open_first_page(&mut self, gateway: &TestGateway) {
        let url = format!("http://{}/page/0", gateway.address());
        match self {
            Reader::Chromium(browser) => drop(browser.open_url(&url, SCREEN)),
            Reader::Firefox(browser) => browser.open_url(&url),
        }
        wait_until("the browser to come back", || pages_read(gateway).len() >= 2);
    }

    /// Opens the next page: by its address in Chromium, by the link in Firefox.
    fn open_page(&mut self, gateway: &TestGateway, number: usize) {
        match self {
            Reader::Chromium(browser) => {
                drop(browser.open_url(&format!("http://{}/page/{number}", gateway.address()), SCREEN));
            }
            Reader::Firefox(browser) => browser.follow_link(),
        }
    }
}

const SCREEN: Screen = Screen { width: 1280, scheme: "light" };

/// Returns path and status of the logged pages, and whether the request had a session.
fn pages_read(gateway: &TestGateway) -> Vec<Value> {
    let log = std::fs::read_to_string(gateway.state_dir().join("access.log")).unwrap_or_default();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let pages = lines.filter(|line| line["path"].as_str().is_some_and(|path| path.starts_with("/page/")));
    pages.map(|line| json!([line["path"], line["status"], line["session"] != "none"])).collect()
}

#[test]
fn browsers_come_back_by_themselves_and_read_on_all_day() {
    const CHROME: &str = "--user-agent=Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";
    const PAGES: usize = 24;
    let origin = Origin::with_script(|request, connection| {
        let number = request.target.strip_prefix("/page/").and_then(|number| number.parse::<usize>().ok());
        let page = format!("<!doctype html><title>page</title><a href='/page/{}'>next</a>", number.unwrap_or(0) + 1);
        connection.reply("200 OK", "Content-Type: text/html; charset=utf-8\r\n", page.as_bytes());
    });
    let chromium = |options: &[&str]| Reader::Chromium(Browser::start_with(options));
    let firefox = |settings: &[(&str, &str)]| Reader::Firefox(Firefox::start_with(settings));
    let readers: [(&str, &dyn Fn() -> Reader); 6] = [
        ("Chromium", &|| chromium(&[CHROME])),
        ("Chromium, without scripts", &|| chromium(&[CHROME, "--blink-settings=scriptEnabled=false"])),
        ("Chromium, private window", &|| chromium(&[CHROME, "--incognito"])),
        ("Firefox", &|| firefox(&[])),
        ("Firefox, without scripts", &|| firefox(&[("javascript.enabled", "false")])),
        ("Firefox, private window", &|| firefox(&[("browser.privatebrowsing.autostart", "true")])),
    ];
    for (name, start) in readers {
        let gateway = TestGateway::with_rules(origin.address(), REFUSED_STRANGERS);
        let mut reader = start();
        reader.open_first_page(&gateway);
        for number in 1..=PAGES {
            gateway.advance_and_sweep(Duration::from_hours(1));
            reader.open_page(&gateway, number);
        }
        wait_until("all pages to be logged", || pages_read(&gateway).len() >= PAGES + 2);
        let mut expected = vec![json!(["/page/0", 429, false])];
        expected.extend((0..=PAGES).map(|number| json!([format!("/page/{number}"), 200, true])));
        assert_eq!(pages_read(&gateway), expected, "{name}");
    }
}
