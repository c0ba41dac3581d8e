//! Several origins: routing, health, metrics, reloads, rewriting of paths, and what is kept apart.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use crate::support::program::run;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Starts an origin whose pages say its name.
fn named(name: &'static str) -> Origin {
    Origin::with_script(move |_, connection| connection.reply("200 OK", "", name.as_bytes()))
}

/// Starts an origin whose pages say its name, and may be stored.
fn cacheable(name: &'static str) -> Origin {
    Origin::with_script(move |_, connection| {
        connection.reply("200 OK", "Cache-Control: max-age=60\r\n", name.as_bytes());
    })
}

/// Returns the section of these origins.
fn origins(origins: &[(&str, SocketAddr)]) -> String {
    let each: Vec<_> = origins.iter().map(|(name, address)| format!("{name}: 'http://{address}'")).collect();
    format!("origins: {{ {} }}\n", each.join(", "))
}

fn start(servers: &[(&str, SocketAddr)], rules: &str) -> TestGateway {
    TestGateway::with_rules(servers[0].1, &format!("{}{rules}", origins(servers)))
}

fn page(client: &mut Client, method: &str, host: &str, path: &str) -> String {
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{length}\r\n"));
    client.response_to(method).text()
}

#[test]
fn route_chooses_the_origin_by_host_path_method_and_query() {
    let (shop, api, admin) = (named("shop"), named("api"), named("admin"));
    let gateway = start(
        &[("shop", shop.address()), ("api", api.address()), ("admin", admin.address())],
        "quotas: { units: { limit: 100 } }\nroutes:\n\
         - { match: '/v1/**', host: api.example.com, origin: api, cost: { units: 1 } }\n\
         - { match: '/form', method: POST, origin: admin }\n\
         - { match: '/find', query: engine=api, origin: api }\n\
         - { match: '/**', origin: shop }",
    );
    let mut client = gateway.connect();
    for (method, host, path, expected) in [
        ("GET", "api.example.com", "/v1/a", "api"),
        ("GET", "API.example.com.:80", "//v1/./a", "api"),
        ("GET", "example.com", "/v1/a", "shop"),
        ("GET", "api.example.com", "/v1/../a", "shop"),
        ("POST", "example.com", "/form", "admin"),
        ("GET", "example.com", "/form", "shop"),
        ("GET", "example.com", "/find?engine=api", "api"),
        ("GET", "example.com", "/find?engine=other", "shop"),
    ] {
        assert_eq!(page(&mut client, method, host, path), expected, "{method} {host} {path}");
    }
    assert_eq!(gateway.counters(), (2.0, 0.0), "one allowance");
    assert_eq!((shop.received_requests().len(), api.received_requests().len()), (4, 3));
}

#[test]
fn log_metrics_and_state_name_the_origin_only_where_there_are_several() {
    let (shop, api) = (named("shop"), named("api"));
    let routes =
        "routes: [{ match: '/v1/**', origin: api }, { match: /moved, redirect: / }, { match: '/**', origin: shop }]";
    let several = start(&[("shop", shop.address()), ("api", api.address())], routes);
    let mut client = several.connect();
    for path in ["/", "/v1/a", "/v1/b", "/moved"] {
        client.get(path, "");
    }
    let metrics = several.metrics();
    let requests = |labels: &str| metrics.get(&format!("tidegate_origin_requests_total{{{labels}}}")).copied();
    assert_eq!(requests("scope=\"default\",code=\"2xx\",origin=\"api\""), Some(2.0));
    assert_eq!(requests("scope=\"default\",code=\"2xx\",origin=\"shop\""), Some(1.0));
    assert_eq!(requests("scope=\"default\",code=\"2xx\""), None, "each request is counted once");
    let durations = "tidegate_origin_request_duration_seconds_count{scope=\"default\",origin=\"api\"}";
    assert_eq!(metrics.get(durations), Some(&2.0), "{metrics:#?}");
    let up = format!("tidegate_origin_server_up{{server=\"http://{}\",origin=\"api\"}}", api.address());
    assert_eq!(metrics.get(&up), Some(&1.0));
    let state = several.state();
    let names: Vec<_> = state["origins"].as_array().expect("a list").iter().map(|origin| &origin["name"]).collect();
    assert_eq!(names, ["shop", "api"]);
    let log = several.read_log();
    let logged: Vec<&Value> = log.iter().map(|line| &line["origin"]).collect();
    assert_eq!(logged, [&Value::from("shop"), &"api".into(), &"api".into(), &Value::Null]);

    let alone = format!("{}routes: [{{ match: '/**', origin: shop }}]", origins(&[("shop", shop.address())]));
    for rules in [alone, String::new()] {
        let one = TestGateway::with_rules(shop.address(), &rules);
        one.connect().get("/", "");
        assert_eq!(one.metric("tidegate_origin_requests_total{scope=\"default\",code=\"2xx\"}"), 1.0, "{rules}");
        let state = one.state();
        assert!(state.get("origins").is_none() && state["origin"].get("name").is_none(), "{state}");
        assert!(one.read_log().iter().all(|line| line.get("origin").is_none()));
    }
}

#[test]
fn outage_of_one_origin_is_not_one_of_the_other() {
    let shop = named("shop");
    let (api, gone) = (named("api"), Origin::unreachable());
    let rules = format!(
        "origins:\n  shop: 'http://{}'\n  api: {{ urls: ['http://{}', 'http://{gone}'], health: {{ max_failures: 1 }} }}\n  \
         down: 'http://{}'\nroutes: [{{ match: '/v1/**', origin: api }}, {{ match: '/down', origin: down }}, {{ match: '/**', \
         origin: shop }}]",
        shop.address(),
        api.address(),
        Origin::unreachable()
    );
    let gateway = TestGateway::with_rules(shop.address(), &rules);
    let mut client = gateway.connect();
    assert_eq!(client.get("/down", "").status, 502);
    for path in ["/v1/a", "/v1/b", "/v1/c", "/"] {
        assert_eq!(client.get(path, "").status, 200, "{path}");
    }
    let state = gateway.state();
    let failures = |index: usize| state["origins"][index]["outage"]["failed_requests"].clone();
    assert_eq!((failures(0), failures(1), failures(2)), (Value::Null, Value::Null, 1.into()), "{state}");
    let healthy = |index: usize| state["origins"][1]["servers"][index]["healthy"].clone();
    assert_eq!((healthy(0), healthy(1)), (true.into(), false.into()), "{state}");
}

#[test]
fn checks_and_timeouts_are_those_of_each_origin() {
    let (sender, checked) = signal();
    let shop = named("shop");
    let api = Origin::with_script(move |request, connection| {
        if request.target == "/healthz" {
            sender.notify();
        }
        connection.reply("200 OK", "", b"api");
    });
    let rules = format!(
        "origins:\n  shop: 'http://{0}'\n  api: {{ urls: ['http://{1}', 'http://{0}'], health: {{ check: {{ path: /healthz }} }} \
         }}\nroutes: [{{ match: '/v1/**', origin: api }}, {{ match: '/**', origin: shop }}]",
        shop.address(),
        api.address()
    );
    let gateway = TestGateway::with_rules(shop.address(), &rules);
    checked.wait();
    gateway.connect().get("/", "");
    assert!(gateway.read_log().iter().all(|line| line["path"] != "/healthz"));
}

#[test]
fn reload_adds_and_removes_origins_without_a_lost_request() {
    let (shop, release_origin) = (named("shop"), Origin::with_held_responses("/v1/held"));
    let (old, arrival, release) = release_origin;
    let routes = |origin: &str| {
        format!("routes: [{{ match: '/v1/**', origin: {origin} }}, {{ match: '/**', origin: shop }}]\nworkers: 1")
    };
    let gateway = start(&[("shop", shop.address()), ("old", old.address())], &routes("old"));
    let mut kept = gateway.connect();
    assert_eq!(kept.get("/a", "").text(), "shop");
    let mut held = gateway.connect();
    held.send("GET /v1/held HTTP/1.1\r\nHost: example.com\r\n\r\n");
    arrival.wait();
    let new = named("new");
    // Another order of the origins, too.
    let rules = format!("{}{}", origins(&[("new", new.address()), ("shop", shop.address())]), routes("new"));
    gateway.reload(shop.address(), &rules).expect("valid rules");
    assert_eq!(kept.get("/v1/a", "").text(), "new");
    assert_eq!(kept.get("/a", "").text(), "shop");
    assert_eq!(shop.connections(), 1, "an origin that stays keeps its connections");
    release.notify();
    assert_eq!(held.read_response().text(), "hello", "a request in flight is completed by the origin it was sent to");
    assert_eq!(page(&mut held, "GET", "example.com", "/v1/a"), "new");
    assert_eq!(old.received_requests().len(), 1);
    // From several to one, and back.
    gateway.reload(new.address(), "workers: 1").expect("valid rules");
    assert_eq!(kept.get("/v1/a", "").text(), "new");
    gateway.reload(shop.address(), &rules).expect("valid rules");
    assert_eq!(kept.get("/a", "").text(), "shop");
}

#[test]
fn invalid_reload_keeps_the_origins() {
    let (shop, api) = (named("shop"), named("api"));
    let servers = [("shop", shop.address()), ("api", api.address())];
    let gateway = start(&servers, "routes: [{ match: '/v1/**', origin: api }, { match: '/**', origin: shop }]");
    let rules = format!("{}routes: [{{ match: '/**', origin: shpo }}]", origins(&servers));
    let error = gateway.reload(shop.address(), &rules).expect_err("the origin is unknown");
    assert!(error.contains("routes[0].origin: unknown origin \"shpo\" (did you mean \"shop\"?)"), "{error}");
    assert_eq!(gateway.connect().get("/v1/a", "").text(), "api");
}

#[test]
fn responses_of_two_origins_for_one_url_are_stored_apart() {
    let (shop, api) = (cacheable("shop"), cacheable("api"));
    let servers = [("shop", shop.address()), ("api", api.address())];
    // The parameter is no part of the key, but chooses the origin.
    let routes = "cache: {}\nroutes:\n\
                  - { match: /page, query: from=api, origin: api, cache: { key: { query: [] } } }\n\
                  - { match: /page, origin: shop, cache: { key: { query: [] } } }\n\
                  - { match: '/**', origin: shop }";
    let gateway = start(&servers, routes);
    let mut client = gateway.connect();
    for _ in 0..2 {
        assert_eq!(client.get("/page", "").text(), "shop");
        assert_eq!(client.get("/page?from=api", "").text(), "api");
    }
    assert_eq!((shop.received_requests().len(), api.received_requests().len()), (1, 1));
    // A page that moves to another origin is fetched from it.
    let rules = format!("{}cache: {{}}\nroutes: [{{ match: '/**', origin: api }}]", origins(&servers));
    gateway.reload(shop.address(), &rules).expect("valid rules");
    assert_eq!(client.get("/page", "").text(), "api");
    // A purge and a write find both by the URL.
    gateway.reload(shop.address(), &format!("{}{routes}", origins(&servers))).expect("valid rules");
    let (status, purged) = gateway.admin_request("DELETE", "/api/v1/cache?url=http://example.com/page", "");
    assert_eq!(status, 200, "{purged}");
    let before = (shop.received_requests().len(), api.received_requests().len());
    let fetched = || (shop.received_requests().len() - before.0, api.received_requests().len() - before.1);
    for _ in 0..2 {
        assert_eq!(client.get("/page", "").text(), "shop");
        assert_eq!(client.get("/page?from=api", "").text(), "api");
    }
    assert_eq!(fetched(), (1, 1), "{purged}");
    gateway.clock.advance(Duration::from_secs(1));
    assert_eq!(page(&mut client, "POST", "example.com", "/page"), "shop");
    assert_eq!(client.get("/page", "").text(), "shop");
    assert_eq!(client.get("/page?from=api", "").text(), "api");
    assert_eq!(fetched(), (3, 2), "a write invalidates both");
}

#[test]
fn robots_txt_is_that_of_the_origin_of_its_route() {
    let robots = |name: &'static str| {
        Origin::with_script(move |_, connection| {
            connection.reply("200 OK", "Content-Type: text/plain\r\n", format!("# {name}\n").as_bytes());
        })
    };
    let (shop, api) = (robots("shop"), robots("api"));
    let gateway = start(
        &[("shop", shop.address()), ("api", api.address())],
        "routes:\n- { match: '/**', query: v=2, origin: api }\n- { match: '/**', host: api.example.com, origin: api }\n\
         - { match: '/**', origin: shop }",
    );
    let mut client = gateway.connect();
    // A client that chooses another route for the first request does not choose the file for all.
    assert_eq!(page(&mut client, "GET", "example.com", "/robots.txt?v=2"), "# shop\n");
    assert_eq!(page(&mut client, "GET", "example.com", "/robots.txt"), "# shop\n");
    assert_eq!(page(&mut client, "GET", "api.example.com", "/robots.txt"), "# api\n");
}

#[test]
fn origin_is_sent_the_rewritten_path_and_the_log_has_the_clients() {
    let shop = named("shop");
    let rules = "routes:\n- { match: '/old/**', rewrite: '/new/{rest}' }\n- { match: /one, rewrite: /two, request_headers: { \
                 set: { X-Set: a } } }\n- { match: '/api/*/v1/**', rewrite: '/{rest}' }";
    let gateway = TestGateway::with_rules(shop.address(), rules);
    let mut client = gateway.connect();
    let paths = [
        ("/old/a/b?c=/d&e", "/new/a/b?c=/d&e"),
        ("/old", "/new/"),
        ("/old/", "/new/"),
        ("/old/a%20b%2B/%7Ec", "/new/a%20b%2B/%7Ec"),
        ("//old//a//b", "/new/a//b"),
        ("/old/x/../y", "/new/y"),
        ("/old/%252e%252e/y", "/new/%252e%252e/y"),
        ("/old/\u{e9}", "/new/%C3%A9"),
        ("/one?q", "/two?q"),
        ("/api/shop/v1/items/7", "/items/7"),
        ("/api/shop/v1//evil.example/", "/evil.example/"),
        ("/older/a", "/older/a"),
        ("/OLD/a", "/OLD/a"),
    ];
    for (sent, received) in paths {
        assert_eq!(client.get(sent, "").status, 200, "{sent}");
        assert_eq!(shop.last_request().target, received, "{sent}");
    }
    client.send("GET http://example.com/old/a HTTP/1.1\r\nHost: example.com\r\n\r\n").read_response();
    assert_eq!((shop.last_request().target.as_str(), shop.last_request().field("host")), ("/new/a", "example.com"));
    let log = gateway.read_log();
    for (line, (sent, _)) in log.iter().zip(paths) {
        assert_eq!(line["path"], sent.split('?').next().unwrap_or_default());
    }
    // `explain` shows the path of the same code.
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("tidegate.yaml");
    for policy in ["strict", "lenient", "raw"] {
        let rules = format!("paths: {policy}\nroutes: [{{ match: '/old/**', rewrite: '/new/{{rest}}' }}]\n");
        std::fs::write(&file, format!("origin: http://127.0.0.1:1\n{rules}")).expect("file is writable");
        let gateway = TestGateway::with_rules(shop.address(), &rules);
        let mut client = gateway.connect();
        for (sent, received) in [
            ("/old/a%3Db%26c", "/new/a%3Db%26c"),
            ("/old/a%2Bb", "/new/a%2Bb"),
            ("/old/%61b", "/new/%61b"),
            ("/old/100%", "/new/100%"),
            ("/old/./a//b", "/new/a/b"),
            ("/old//a//b", "/new/a//b"),
        ] {
            assert_eq!(client.get(sent, "").status, 200, "{policy} {sent}");
            assert_eq!(shop.last_request().target, received, "{policy} {sent}");
            let url = format!("http://example.com{sent}");
            let config = file.display().to_string();
            let args = ["explain", "--config", &config, "--ip", "203.0.113.7", "--user-agent", "curl/8", &url];
            let explained = run(&args, b"").output;
            assert!(explained.contains(&format!("the path {received}\n")), "{policy} {sent}: {explained}");
        }
    }
    assert_eq!((&log[0]["route"], &log[0]["query"]), (&"/old/**".into(), &"c=/d&e".into()));
}

#[test]
fn no_path_leads_out_of_the_target() {
    let shop = named("shop");
    for policy in ["strict", "lenient", "raw"] {
        let rules = format!(
            "paths: {policy}\nquotas: {{ units: {{ limit: 1000 }} }}\nroutes: [{{ match: '/old/**', rewrite: '/new/{{rest}}', cost: \
             {{ units: 1 }} }}]"
        );
        let gateway = TestGateway::with_rules(shop.address(), &rules);
        for path in [
            "/old/../admin",
            "/old/%2e%2e/admin",
            "/old/.%2E/admin",
            "/old/..;/admin",
            "/old/..;a=b/..;c/admin",
            "/old/..%2fadmin",
            "/old/..%2F..%2Fadmin",
            "/old/a%2f..%2f..%2fadmin",
            "/old/..%5cadmin",
            "/old/..\\admin",
            "/old/%2e%2e%5cadmin",
            "/old//../../admin",
            "/old/;/../../admin",
            "/old;x/../admin",
            "/old;x/a",
            "/x/..;/old/a",
            "/old/..%00/admin",
            "/old/..%0d%0a/admin",
        ] {
            let seen = shop.received_requests().len();
            let mut client = gateway.connect();
            let status = client.get(path, "").status;
            let received = shop.received_requests();
            let [sent] = &received[seen..] else {
                assert_eq!((status, received.len() - seen), (400, 0), "{policy} {path}");
                continue;
            };
            let target = sent.target.as_str();
            // What is not rewritten is the path that the client can reach without the route.
            let decoded = target.to_ascii_lowercase();
            assert!(!target.starts_with("/new/") || !decoded.contains("..;"), "{policy} {path} {target}");
            let is_climbing =
                ["../", "..%2f", "..%5c", "..\\", "%2e%2e", ".%2e"].iter().any(|dots| decoded.contains(dots));
            assert!(!target.starts_with("/new/") || !is_climbing, "{policy} {path} {target}");
            assert!(!target.starts_with("/old/") && !target.starts_with("/old;"), "{policy} {path} {target}");
        }
    }
}

#[test]
fn rewritten_pages_are_stored_and_invalidated_by_the_clients_path() {
    let shop = cacheable("shop");
    let rules = "cache: {}\nroutes: [{ match: '/old/**', rewrite: '/new/{rest}' }]";
    let gateway = TestGateway::with_rules(shop.address(), rules);
    let mut client = gateway.connect();
    for path in ["/old/a", "/old/a", "/new/a", "/new/a"] {
        assert_eq!(client.get(path, "").text(), "shop");
    }
    assert_eq!(shop.received_requests().len(), 2, "a copy of each URL");
    assert_eq!(page(&mut client, "POST", "example.com", "/old/a"), "shop");
    client.get("/old/a", "");
    assert_eq!(shop.received_requests().len(), 4, "a write through the same path invalidates the copy");
}

#[test]
fn preflight_and_asterisk_have_an_origin_too() {
    let (shop, api) = (named("shop"), named("api"));
    let gateway = start(
        &[("shop", shop.address()), ("api", api.address())],
        "routes: [{ match: '/v1/**', origin: api, rewrite: '/{rest}' }, { match: '/**', origin: shop, rewrite: '/site/{rest}' }]",
    );
    let mut client = gateway.connect();
    client.send("OPTIONS /v1/a HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nAccess-Control-Request-Method: GET\r\n\r\n");
    assert_eq!(client.read_response().text(), "api");
    assert_eq!(api.last_request().target, "/a");
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().text(), "shop");
    assert_eq!(shop.last_request().target, "*");
}

#[test]
fn explain_says_which_origin_is_sent_which_path() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("tidegate.yaml");
    let text = "origins: { shop: 'http://127.0.0.1:3000', api: 'http://127.0.0.1:3001' }\nroutes: [{ match: '/v1/**', origin: api, \
                rewrite: '/{rest}' }, { match: '/**', origin: shop }]";
    std::fs::write(&file, text).expect("file is writable");
    let config = file.display().to_string();
    let text = text.replace("routes: [", "routes: [{ match: '/**', host: api.example.com, origin: api }, ");
    std::fs::write(&file, text).expect("file is writable");
    for (url, expected) in [
        ("example.com/v1/a", "the origin is api, and is sent the path /a"),
        ("example.com/b", "the origin is shop"),
        ("api.example.com/b", "the origin is api"),
        ("API.example.com./b", "the origin is api"),
        ("api.example.com.:80/b", "the origin is api"),
    ] {
        let url = format!("http://{url}");
        let args = ["explain", "--config", &config, "--ip", "203.0.113.7", "--user-agent", "curl/8", &url];
        let outcome = run(&args, b"");
        assert!(outcome.output.contains(expected), "{}\n{}", outcome.output, outcome.errors);
    }
}

#[test]
fn path_that_is_read_as_pages_of_two_origins_reaches_none() {
    let (shop, api) = (named("shop"), named("api"));
    let servers = [("shop", shop.address()), ("api", api.address())];
    for policy in ["strict", "lenient", "raw"] {
        let rules =
            format!("paths: {policy}\nroutes: [{{ match: '/v1/**', origin: api }}, {{ match: '/**', origin: shop }}]");
        let gateway = start(&servers, &rules);
        for path in
            ["/v1/..;/internal", "/v1/..;a/..;b/internal", "/x/..;/v1/a", "/v1;x/a", "/v1%2fa", "/v1/..%2finternal"]
        {
            let seen = (shop.received_requests().len(), api.received_requests().len());
            assert_eq!(gateway.connect().get(path, "").status, 400, "{policy} {path}");
            assert_eq!((shop.received_requests().len(), api.received_requests().len()), seen, "{policy} {path}");
        }
        for (path, expected) in
            [("/v1/a;x=1/b", "api"), ("/v1/a/..;/b", "api"), ("/a;x/b", "shop"), ("/v1/a%20b", "api")]
        {
            assert_eq!(gateway.connect().get(path, "").text(), expected, "{policy} {path}");
        }
    }
}

#[test]
fn requests_beside_reloads_are_all_answered() {
    let (shop, api) = (named("shop"), named("api"));
    let servers = [("shop", shop.address()), ("api", api.address())];
    let both = format!(
        "{}routes: [{{ match: '/v1/**', origin: api }}, {{ match: '/**', origin: shop }}]\nworkers: 2",
        origins(&servers)
    );
    let one = format!("{}routes: [{{ match: '/**', origin: shop }}]\nworkers: 2", origins(&servers[..1]));
    let gateway = TestGateway::with_rules(shop.address(), &both);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = gateway.connect();
                    let mut answers = BTreeMap::<String, usize>::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let page = client.get("/v1/a", "");
                        assert_eq!(page.status, 200, "{}", page.text());
                        *answers.entry(page.text()).or_default() += 1;
                        assert_eq!(client.get("/b", "").text(), "shop");
                    }
                    answers
                })
            })
            .collect();
        for rules in [&one, &both].into_iter().cycle().take(30) {
            gateway.reload(shop.address(), rules).expect("valid rules");
            let expected = if rules == &both { "api" } else { "shop" };
            assert_eq!(gateway.connect().get("/v1/a", "").text(), expected);
        }
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            let answers = client.join().expect("every request is answered");
            assert!(answers.keys().all(|page| page == "shop" || page == "api"), "{answers:?}");
        }
    });
}

#[test]
fn body_that_can_be_read_as_a_call_of_another_origin_reaches_none() {
    let reading = |name: &'static str| {
        Origin::with_script(move |request, connection| {
            connection.read_body(request);
            connection.reply("200 OK", "", name.as_bytes());
        })
    };
    let (public, admin) = (reading("public"), reading("admin"));
    let servers = [("public", public.address()), ("admin", admin.address())];
    let rules = "routes:\n- { match: /rpc, json: { method: admin }, origin: admin, rewrite: /secret }\n\
                 - { match: /same, json: { method: admin }, origin: public, rewrite: /secret }\n\
                 - { match: /alike, json: { method: admin }, origin: public, rewrite: /secret }\n\
                 - { match: /alike, origin: public, rewrite: /secret }\n- { match: '/**', origin: public }";
    let gateway = start(&servers, rules);
    let long = format!("{{\"method\":\"zzz\",\"x\":\"{}\"}}", "x".repeat(70_000));
    let unreadable = [
        "x",
        "[]",
        "[{\"method\":\"zzz\"}]",
        "{\"x\":\"1\",\"Method\":\"y\"}",
        "{\"method\":\"x\",\"method\":\"admin\"}",
        &long,
    ];
    let post = |path: &str, body: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        let response = gateway.connect().send(head + body).read_response();
        (response.status, response.text())
    };
    for body in unreadable {
        let seen = (public.received_requests().len(), admin.received_requests().len());
        for (path, reason) in [("/rpc", "calls of different origins"), ("/same", "another path at the origin")] {
            let (status, text) = post(path, body);
            assert!(status == 400 && text.contains(reason), "{path} {body:.40} {text}");
        }
        assert_eq!((public.received_requests().len(), admin.received_requests().len()), seen, "{body:.40}");
        assert_eq!(post("/alike", body), (200, "public".to_owned()), "{body:.40}");
        assert_eq!(public.last_request().target, "/secret");
        assert_eq!(post("/page", body), (200, "public".to_owned()), "{body:.40}");
    }
    assert_eq!(post("/rpc", "{\"method\":\"admin\"}"), (200, "admin".to_owned()));
    assert_eq!(admin.last_request().target, "/secret");
    assert_eq!(post("/rpc", "{\"method\":\"other\"}"), (200, "public".to_owned()));
    assert_eq!(public.last_request().target, "/rpc");
}
