//! Routes with conditions on header fields and cookies: the origin, the cost and the copies of each version of an API.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::http2_responses;
use crate::support::origin::Origin;
use serde_json::{Value, json};
use std::time::Duration;

/// Starts an origin whose pages say its name and its path, and may be stored.
fn cacheable(name: &'static str) -> Origin {
    Origin::with_script(move |request, connection| {
        let body = format!("{name} {}", request.target);
        connection.reply("200 OK", "Cache-Control: public, max-age=60\r\n", body.as_bytes());
    })
}

/// Returns rules by which a header or a cookie chooses the second origin.
fn two_origins(old: &Origin, new: &Origin, routes: &str) -> String {
    format!(
        "workers: 1\norigins: {{ old: 'http://{}', new: 'http://{}' }}\nroutes:\n{routes}  - {{ match: '/**', origin: old }}\n",
        old.address(),
        new.address()
    )
}

const BY_VERSION: &str = "  - { match: '/**', header: { X-Api-Version: ['2', '2.*'] }, origin: new }\n  \
                          - { match: '/**', cookie: { beta: 'on' }, origin: new }\n";

#[test]
fn header_and_cookie_choose_the_origin_also_after_a_reload() {
    let (old, new) = (cacheable("old"), cacheable("new"));
    let gateway = TestGateway::with_rules(old.address(), &two_origins(&old, &new, BY_VERSION));
    let cases = [
        ("", "old", Value::Null),
        ("X-Api-Version: 1\r\n", "old", Value::Null),
        ("X-Api-Version: 2\r\n", "new", json!(["x-api-version=2|2.*"])),
        ("x-api-version:  2.hidden \r\n", "new", json!(["x-api-version=2|2.*"])),
        ("X-Api-Version: 2, 1\r\n", "old", Value::Null),
        ("X-Api-Version: 2\r\nConnection: x-api-version\r\n", "old", Value::Null),
        ("Cookie: a=b; beta=on\r\n", "new", json!(["cookie:beta=on"])),
        ("Cookie: a=b; beta=off\r\n", "old", Value::Null),
        ("X-Api-Version: 2\r\nCookie: beta=on\r\n", "new", json!(["x-api-version=2|2.*", "cookie:beta=on"])),
    ];
    let page = |fields: &str| gateway.connect().get("/page", fields).text();
    for (fields, origin, _) in &cases {
        assert_eq!(page(fields), format!("{origin} /page"), "{fields:?}");
    }
    let reversed = BY_VERSION.replace("['2', '2.*']", "'1'");
    gateway.reload(old.address(), &two_origins(&old, &new, &reversed)).expect("valid rules");
    assert_eq!((page("X-Api-Version: 2\r\n"), page("X-Api-Version: 1\r\n")), ("old /page".into(), "new /page".into()));
    let log = gateway.read_log();
    for ((fields, origin, met), line) in cases.iter().zip(&log) {
        assert_eq!((&line["origin"], &line["fields"]), (&json!(origin), met), "{fields:?}");
    }
    assert!(!format!("{log:?}").contains("hidden"), "no value of a field is logged");
}

#[test]
fn http2_chooses_as_http1_does() {
    let (old, new) = (cacheable("old"), cacheable("new"));
    let gateway = TestGateway::with_rules(old.address(), &two_origins(&old, &new, BY_VERSION));
    let cases = [
        (&[][..], 200, "old /page"),
        (&[("x-api-version", "2")], 200, "new /page"),
        (&[("cookie", "a=b"), ("cookie", "beta=on")], 200, "new /page"),
        (&[("x-api-version", "2"), ("x-api-version", "1")], 400, ""),
        (&[("x_api_version", "2")], 400, ""),
    ];
    let requests: Vec<_> = cases
        .iter()
        .map(|(fields, ..)| {
            let request = http::Request::get("http://a/page");
            let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            request.body(()).expect("a valid request")
        })
        .collect();
    let responses = http2_responses(gateway.address(), |_| requests);
    for ((fields, status, text), response) in cases.iter().zip(&responses) {
        assert_eq!(response.status(), *status, "{fields:?}");
        assert!(response.body() == text.as_bytes() || text.is_empty(), "{fields:?}: {:?}", response.body());
    }
}

#[test]
fn fields_that_lead_to_different_origins_get_400() {
    let (old, new) = (cacheable("old"), cacheable("new"));
    let gateway = TestGateway::with_rules(old.address(), &two_origins(&old, &new, BY_VERSION));
    let cases = [
        ("X-Api-Version: 2\r\nX-Api-Version: 1\r\n", 400),
        ("X-Api-Version: 1\r\nX-Api-Version: 2\r\n", 400),
        ("X-Api-Version: 2\r\nX-Api-Version: 2\r\n", 400),
        ("X_Api_Version: 2\r\n", 400),
        ("X-Api-Version: 1\r\nX_Api.Version: 2\r\n", 400),
        ("Cookie: beta=on; beta=off\r\n", 400),
        ("Cookie: beta=on\r\nCookie: beta=off\r\n", 400),
        // In each reading, they lead to the same origin.
        ("X-Api-Version: 1\r\nX-Api-Version: 3\r\n", 200),
        ("X-Api-Version: 2\r\nCookie: beta=on; beta=off\r\n", 200),
        ("X_Api_Version: 1\r\n", 200),
    ];
    for (fields, status) in cases {
        assert_eq!(gateway.connect().get("/page", fields).status, status, "{fields:?}");
    }
    assert_eq!((old.received_requests().len(), new.received_requests().len()), (2, 1));
    let log = gateway.read_whole_log();
    assert_eq!(log.len(), cases.len(), "each request has its line");
    for ((fields, status), line) in cases.iter().zip(&log) {
        let verdict = if *status == 400 { "rejected" } else { "admitted" };
        assert_eq!((&line["status"], &line["verdict"]), (&json!(status), &json!(verdict)), "{fields:?}");
        let request = ["client", "method", "host", "path"].map(|name| line[name].as_str().expect("a text"));
        assert_eq!(request, ["127.0.0.1", "GET", "example.com", "/page"]);
        let problem = line["problem"].as_str().unwrap_or_default();
        assert_eq!(problem.contains("which lead to different origins"), *status == 400, "{problem}");
        assert!(line["bytes"].as_u64() > Some(0));
    }
}

const COSTS: &str = "
workers: 1
classes: []
quotas: { units: { limit: 10000, window: { fixed: 24h } } }
routes:
  - { match: /search, header: { x-depth: full }, cost: { units: 5 } }
  - { match: /search, header: x-cached }
  - { match: /search, cost: { units: 1 } }
";

#[test]
fn no_spelling_of_a_field_hides_an_expensive_request() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), COSTS);
    let cases = [
        ("", 1.0),
        ("X-Depth: full\r\n", 5.0),
        ("X-Depth: FULL\r\n", 5.0),
        ("X-Depth: brief\r\n", 1.0),
        ("X-Cached: 1\r\n", 0.0),
        ("X-Cached: 1\r\nX-Depth: full\r\n", 5.0),
        ("X-Depth: brief\r\nX-Depth: full\r\n", 5.0),
        ("X-Depth: full\r\nX-Depth: brief\r\n", 5.0),
        ("X_Depth: full\r\n", 5.0),
        ("X-Cached: 1\r\nX_Depth: full\r\n", 5.0),
        ("X_Cached: 1\r\n", 1.0),
        ("X-Cached: 1\r\nConnection: x-cached\r\n", 1.0),
    ];
    for (fields, _) in &cases {
        assert_eq!(gateway.connect().get("/search", fields).status, 200, "{fields:?}");
    }
    let log = gateway.read_log();
    for ((fields, cost), line) in cases.iter().zip(&log) {
        assert_eq!(line["cost"]["units"].as_f64().unwrap_or(0.0), *cost, "{fields:?}");
    }
    assert_eq!(log[8]["fields"], json!(["?x-depth=full"]));
}

#[test]
fn no_trailer_is_a_field_by_which_routes_are_chosen() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        connection.reply("200 OK", "", b"");
    });
    let gateway = TestGateway::with_rules(origin.address(), COSTS);
    let head = "POST /search HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X_Depth, X-Sum\r\n\r\n";
    let body = "1\r\na\r\n0\r\nX_Depth: full\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(gateway.connect().send(format!("{head}{body}")).read_response().status, 200);
    assert_eq!(origin.last_request().field("trailer"), "X-Sum");
}

#[test]
fn no_trailer_is_a_field_by_which_customers_or_classes_are_known() {
    let origin = Origin::with_script(|request, connection| {
        connection.read_body(request);
        connection.reply("200 OK", "", b"");
    });
    let rules = "quotas: { own: { per: { header: X-Customer }, limit: 9, window: { fixed: 1h } } }\nclasses:\n  \
        - { name: app, when: { header: { X-App: 'shop-*' } } }\n  \
        - { name: rest, bucket: { rate: 10/s, burst: 20, key: { header: X-Bucket } } }\n\
        routes: [{ match: '/**', cost: { own: 1 } }]\n";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let names =
        ["X-Customer", "x_app", "X-Bucket", "X-Api-Key", "Authorization", "Cookie", "User-Agent", "Range", "X-Sum"];
    let fields: String = names.map(|name| format!("{name}: 1\r\n")).concat();
    let head =
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: {}\r\n\r\n", names.join(", "));
    let response = gateway.connect().send(format!("{head}1\r\na\r\n0\r\n{fields}\r\n")).read_response();
    assert_eq!(response.status, 200);
    assert_eq!(origin.last_request().field("trailer"), "X-Sum");
}

#[test]
fn copies_of_one_route_are_not_served_on_another() {
    let origin = cacheable("page");
    // The cache sends the origin neither the language nor the user agent, and the cookie is no part of the key.
    let rules = "workers: 1\nclients: { address_from: peer }\ncache: { unkeyed_headers: [x-unkeyed] }\nroutes:\n  \
        - { match: '/**', header: { Accept-Language: 'de*' }, rewrite: '/de/{rest}' }\n  \
        - { match: '/**', header: { User-Agent: '*Mobile*' }, rewrite: '/m/{rest}' }\n  \
        - { match: '/**', header: x-unkeyed, rewrite: '/unkeyed/{rest}' }\n  \
        - { match: '/**', header: { x-api-version: '2' }, rewrite: '/v2/{rest}' }\n  \
        - { match: '/**', cookie: beta, rewrite: '/beta/{rest}', cache: { key: { cookies: [] } } }\n  \
        - { match: '/**', cache: { key: { cookies: [] } } }\n";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let requests = [
        ("Accept-Language: de-AT\r\n", "page /de/a"),
        ("Accept-Language: en\r\n", "page /a"),
        ("User-Agent: A Mobile\r\n", "page /m/a"),
        ("X-Unkeyed: 1\r\n", "page /unkeyed/a"),
        ("X-Api-Version: 2\r\n", "page /v2/a"),
        ("Cookie: beta=1\r\n", "page /beta/a"),
        ("Cookie: gamma=1\r\n", "page /a"),
        ("", "page /a"),
    ];
    let get = |fields: &str| gateway.connect().get("/a", fields);
    for round in 0..2 {
        for (fields, expected) in requests {
            let response = get(fields);
            assert_eq!(response.text(), expected, "{fields:?}");
            let is_hit = response.field("cache-status").starts_with("tidegate; hit");
            assert!(is_hit || round == 0, "{fields:?}: {}", response.field("cache-status"));
        }
    }
    assert_eq!(origin.received_requests().len(), 6, "one fetch for each route");
    let vary = |fields: &str| get(fields).field("vary").to_owned();
    assert_eq!(vary("Accept-Language: de\r\n"), "accept-language", "no other field decided");
    assert_eq!(get("").fields["vary"], "accept-language, user-agent, x-unkeyed, x-api-version, cookie");
    // A write on one route changes the page of all.
    gateway.clock.advance(Duration::from_secs(1));
    let post = "POST /a HTTP/1.1\r\nHost: example.com\r\nX-Api-Version: 2\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(gateway.connect().send(post).read_response().status, 200);
    for (fields, expected) in requests {
        assert_eq!(get(fields).text(), expected, "{fields:?}");
    }
    assert_eq!(origin.received_requests().len(), 13, "each is fetched again");
}

#[test]
fn ambiguous_fields_leave_no_copy_for_others() {
    let origin = cacheable("page");
    let rules = "workers: 1\nclients: { address_from: peer }\ncache: {}\nquotas: { units: { limit: 1000 } }\nroutes:\n  \
        - { match: '/**', header: { Accept-Language: 'de*' }, cost: { units: 2 } }\n  \
        - { match: '/**', cookie: { beta: '1' }, cost: { units: 2 } }\n  - { match: '/**', cost: { units: 1 } }\n";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let get = |fields: &str| gateway.connect().get("/a", fields);
    let is_hit = |fields: &str| get(fields).field("cache-status").starts_with("tidegate; hit");
    assert!(!is_hit("Accept-Language: de\r\nAccept-Language: en\r\n"), "it is fetched as the more expensive page");
    assert!(!is_hit("Accept-Language: en\r\n"), "another route");
    assert!(!is_hit("Accept-Language: de\r\n"), "nothing was stored");
    assert!(is_hit("Accept-Language: de\r\n"));
    assert!(!is_hit("Accept_Language: de\r\n"), "the origin is sent it");
    for fields in ["Cookie: beta=1; beta=0\r\n", "Cookie: beta=1; beta =0\r\n", "Cookie: a=b beta=1\r\n"] {
        assert!(!is_hit(fields) && !is_hit("Cookie: beta=1\r\n"), "{fields:?}");
        gateway.clock.advance(Duration::from_secs(61));
    }
    get("Cookie: a=x\r\nCookie: beta=1\r\n");
    assert_eq!(origin.last_request().field("cookie"), "a=x; beta=1", "origins read one line");
}

#[test]
fn proxy_that_asks_is_answered_by_the_fields_that_it_sends() {
    let origin = Origin::plain();
    let rules = format!("{COSTS}forward_auth: {{ listen: 127.0.0.1:0 }}\n");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let ask = |fields: &str| {
        let named = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /search\r\nX-Forwarded-Host: a\r\n";
        Client::connect(gateway.forward_auth_address()).get("/", &format!("{named}{fields}")).status
    };
    for fields in ["", "X-Depth: full\r\n", "X_Depth: full\r\n", "X-Cached: 1\r\n"] {
        assert_eq!(ask(fields), 200, "{fields:?}");
    }
    let log = gateway.read_log();
    assert_eq!(log.len(), 4);
    for (met, cost) in [
        (Value::Null, Some(1.0)),
        (json!(["x-depth=full"]), Some(5.0)),
        (json!(["?x-depth=full"]), Some(5.0)),
        (json!(["x-cached"]), None),
    ] {
        let line = log.iter().find(|line| line["fields"] == met).expect("a line");
        assert_eq!(line["cost"]["units"].as_f64(), cost, "{met}");
    }
}

#[test]
fn invalid_conditions_are_refused_with_their_place() {
    for (conditions, expected) in [
        ("header: 'X Api'", "routes[0].header: invalid header \"X Api\"; write it like X-Partner"),
        ("header: { X-Api: '' }", "routes[0].header"),
        ("header: [x-api]", "routes[0].header"),
        (
            "header: { Cookie: a }",
            "routes[0].header: cookie is no header of one value; write cookie: { NAME: \"value*\" }",
        ),
        (
            "header: Connection",
            "routes[0].header: Connection chooses no route: it belongs to the connection or the body",
        ),
        ("header: upgrade", "routes[0].header: upgrade chooses no route: it belongs to the connection or the body"),
        (
            "header: X-Forwarded-Host",
            "routes[0].header: X-Forwarded-Host chooses no route: the gateway writes it itself",
        ),
        ("header: { Authorization: 'Bearer *' }", "routes[0].header: Authorization chooses no route: it is a secret"),
        (
            "header: { X-Api: a, x-api: b }",
            "routes[0].header: x-api differs from an earlier header in letter case alone; write its patterns as one list",
        ),
        ("header: { X-Api: 2 }", "and a number in quotes, like \"2\""),
        ("header: { x-tidegate-class: bot }", "routes[0].header: x-tidegate-class chooses no route"),
        ("header: Host", "routes[0].header: Host chooses no route: the gateway writes it itself"),
        ("cookie: 'a b'", "routes[0].cookie"),
    ] {
        let text = format!("origin: http://127.0.0.1:1\nroutes: [{{ match: /a, {conditions} }}]\n");
        let loaded = tidegate_config::load(std::path::Path::new("gate.yaml"), &text, &[], &[], &[]);
        let errors = loaded.map(|_| ()).expect_err("an invalid condition").to_string();
        assert!(errors.contains(expected), "{conditions}: {errors}");
    }
    for (later, is_reached) in [
        ("header: { x-b: y, x-a: x }", false),
        ("header: { x-a: x }, method: POST", false),
        ("header: { x-a: y }", true),
        ("header: x-a", true),
        ("cookie: { x-a: x }", true),
    ] {
        let text = format!(
            "origin: http://127.0.0.1:1\nroutes: [{{ match: /a, header: {{ X-A: x }} }}, {{ match: /a, {later} }}, {{ match: /a }}]\n"
        );
        let loaded = tidegate_config::load(std::path::Path::new("gate.yaml"), &text, &[], &[], &[]);
        assert_eq!(loaded.is_ok(), is_reached, "{later}");
    }
}
