//! Keys of the cache: what one client sends does not change what another gets.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;

const RULES: &str = "\
clients: { address_from: peer }
cache: {}
user_agent_rules: [{ match: Person, kind: human }]
routes:
  - { match: \"/account/**\", cache: off }
  - { match: \"/by-key/**\", cache: { key: { headers: [x-tenant], cookies: [lang], query: [page] } } }
  - { match: \"/no-cookies/**\", cache: { key: { cookies: [] } } }
  - { match: \"/**\" }
";

/// Starts an origin that reflects all that it is sent, as a careless one does.
fn reflecting_origin() -> Origin {
    Origin::with_script(|request, connection| {
        let head = request.head.to_ascii_lowercase();
        let mut fields = "Cache-Control: max-age=3600\r\n".to_owned();
        if request.target.starts_with("/public") {
            fields = "Cache-Control: public, max-age=3600\r\n".to_owned();
        }
        if let Some(vary) = request.target.strip_prefix("/vary/") {
            fields.push_str(&format!("Vary: {vary}\r\n"));
        }
        if request.target.starts_with("/coded") && head.contains("gzip") {
            fields.push_str("Content-Encoding: gzip\r\n");
        }
        connection.reply("200 OK", &fields, head.as_bytes());
    })
}

fn get(gateway: &TestGateway, path: &str, fields: &str) -> Response {
    gateway.connect().get(path, fields)
}

fn is_hit(response: &Response) -> bool {
    response.field("cache-status").starts_with("tidegate; hit")
}

#[test]
fn nothing_outside_the_key_reaches_other_clients() {
    let origin = reflecting_origin();
    check_that_nothing_reaches_others(&TestGateway::with_rules(origin.address(), RULES));
}

#[test]
fn nothing_that_a_trusted_proxy_passes_on_reaches_other_clients() {
    let origin = reflecting_origin();
    for source in ["x-forwarded-for", "forwarded", "{ header: X-Client-IP }"] {
        let clients = format!("address_from: {source}, trusted_proxies: [127.0.0.0/8]");
        let rules = RULES.replace("address_from: peer", &clients);
        check_that_nothing_reaches_others(&TestGateway::with_rules(origin.address(), &rules));
    }
}

fn check_that_nothing_reaches_others(gateway: &TestGateway) {
    for (index, evil) in [
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Host: evil.example, example.com",
        "X-Forwarded-Proto: evil, http",
        "X-Forwarded-Port: evil",
        "X-Forwarded-For: 666.evil, 192.0.2.1",
        "X-Forwarded-For: 192.0.2.66",
        "X-Client-IP: 192.0.2.66",
        "X-Real-IP: 192.0.2.66",
        "Forwarded: host=evil.example;for=192.0.2.1, for=192.0.2.2;host=example.com",
        "X-Forwarded-Scheme: evil",
        "X-Host: evil.example",
        "X-Original-URL: /evil",
        "X-Rewrite-URL: /evil",
        "X-HTTP-Method-Override: EVIL",
        "X-Http-Method: EVIL",
        "Origin: https://evil.example",
        "Accept: application/evil",
        "Accept-Language: evil",
        "User-Agent: evil",
        "Referer: https://evil.example/",
        "X-Anything: evil",
        "X_Anything: evil",
        "Cookie: id=evil",
        "Authorization: Basic evil",
        "Forwarded: host=evil",
        "If-None-Match: \"evil\"",
        "Sec-CH-UA: evil",
        "Via: 1.1 evil",
        "Traceparent: 00-evil",
        "Tracestate: vendor=evil",
        "B3: evil",
        "Sentry-Trace: evil",
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/page/{index}");
        get(gateway, &path, &format!("{evil}\r\n"));
        let innocent = get(gateway, &path, "User-Agent: Person\r\n");
        assert_eq!(innocent.status, 200, "{evil}");
        let text = innocent.text();
        let is_of_client = |line: &str| line.contains("evil") || line.contains("192.0.2.");
        let reflected = text.lines().filter(|line| !line.starts_with("via:")).any(is_of_client);
        assert!(!reflected, "{evil}:\n{text}");
        assert!(is_hit(&get(gateway, &path, "User-Agent: Person\r\n")), "{evil}: the page is cacheable");
    }
}

#[test]
fn vary_by_what_the_gateway_writes_selects_nothing() {
    let origin = reflecting_origin();
    let rules = RULES.replace("address_from: peer", "address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8]");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let proxied = |address: &str| {
        format!("X-Forwarded-For: {address}\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: example.com\r\n")
    };
    for name in ["X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-For", "Host", "Via", "TE"] {
        let path = format!("/vary/{name}");
        assert!(!is_hit(&get(&gateway, &path, &proxied("192.0.2.1"))), "{name}");
        assert!(is_hit(&get(&gateway, &path, &proxied("192.0.2.2"))), "{name}");
    }
    assert!(!is_hit(&get(&gateway, "/page", &proxied("192.0.2.1"))));
    assert!(is_hit(&get(&gateway, "/page", &proxied("192.0.2.2"))), "other pages are as before");
}

#[test]
fn field_of_a_proxy_is_sent_if_the_route_keys_it() {
    let origin = reflecting_origin();
    let rules = RULES
        .replace("address_from: peer", "address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8]")
        .replace("x-tenant", "x-forwarded-host");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let page = |host: &str| get(&gateway, "/by-key/a", &format!("X-Forwarded-Host: {host}\r\n"));
    assert!(page("one.example").text().contains("x-forwarded-host: one.example"));
    assert!(page("two.example").text().contains("x-forwarded-host: two.example"));
    assert!(is_hit(&page("one.example")) && page("one.example").text().contains("x-forwarded-host: one.example"));
}

#[test]
fn client_that_the_origin_refuses_removes_no_copy() {
    let origin = Origin::with_script(|request, connection| match request.head.contains("id=banned") {
        true => connection.reply("403 Forbidden", "", b"no"),
        false => connection.reply("200 OK", "Cache-Control: public, max-age=60\r\n", b"page"),
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/page", "User-Agent: Person\r\n");
    let person = "User-Agent: Person\r\nCache-Control: no-cache\r\nCookie: id=banned\r\n";
    let refused = get(&gateway, "/page", person);
    assert_eq!(refused.status, 403, "{}", refused.field("cache-status"));
    assert!(is_hit(&get(&gateway, "/page", "User-Agent: Person\r\n")));
}

#[test]
fn host_with_an_impossible_port_is_rejected() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let status = |host: &str| {
        let mut client = gateway.connect();
        client.send(format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.read_response().status
    };
    for host in ["example.com:8x", "example.com:99999", "example.com:-1", "[::1]:65536"] {
        assert_eq!(status(host), 400, "{host}");
    }
    for host in ["example.com:65535", "example.com:", "[::1]:80"] {
        assert_eq!(status(host), 200, "{host}");
    }
}

#[test]
fn other_fields_are_part_of_the_key_by_their_values() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let is_stored = |fields: &str| is_hit(&get(&gateway, "/page", fields));
    assert!(!is_stored("HX-Request: true\r\nAccept: application/json\r\n"));
    assert!(is_stored("Accept: application/json\r\nhx-request: true\r\n"));
    assert!(!is_stored("HX-Request: true\r\n"));
    assert!(!is_stored("HX-Request: false\r\nAccept: application/json\r\n"));
    assert!(!is_stored(""));
    assert!(is_stored("User-Agent: Person\r\n"));
    gateway.clock.advance(std::time::Duration::from_secs(1));
    let mut client = gateway.connect();
    client.send("POST /page HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n");
    client.read_response();
    assert!(!is_stored("HX-Request: true\r\n"), "the write invalidates all");
    assert!(is_stored("HX-Request: true\r\n"));
    assert!(!is_stored(""));
}

#[test]
fn failure_of_one_variant_leaves_the_others() {
    let origin = Origin::with_script(|request, connection| match request.fields.get("x-tenant").map(String::as_str) {
        Some("broken") => connection.reply("500 Internal Server Error", "", b"error"),
        Some("secret") => connection.reply("200 OK", "Cache-Control: no-store\r\n", b"page"),
        _ => connection.reply("200 OK", "Cache-Control: max-age=3600\r\n", b"page"),
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let page = |tenant: &str| get(&gateway, "/by-key/1", &format!("X-Tenant: {tenant}\r\n"));
    page("a");
    assert_eq!(page("broken").status, 500);
    assert_eq!(page("secret").field("cache-status"), "tidegate; fwd=vary-miss; detail=no-store");
    assert!(is_hit(&page("a")));
}

#[test]
fn request_with_a_body_neither_takes_nor_leaves_a_copy() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send("GET /page HTTP/1.1\r\nHost: site\r\nContent-Length: 4\r\n\r\nevil");
    assert_eq!(client.read_response().field("cache-status"), "tidegate; fwd=bypass");
    assert_eq!(get(&gateway, "/page", "").field("cache-status"), "tidegate; fwd=uri-miss; stored");
}

#[test]
fn parameter_that_is_no_part_of_the_key_is_not_sent() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let sent = |path: &str| {
        get(&gateway, path, "");
        origin.last_request().target
    };
    assert_eq!(sent("/page?a=1&utm_source=evil"), "/page?a=1");
    assert!(is_hit(&get(&gateway, "/page?utm_medium=x&a=1&gclid=2", "")));
    assert!(is_hit(&get(&gateway, "/page?a=1&utm_content=x;callback=evil", "")), "a cloaked parameter is not sent");
    assert_eq!(sent("/page?a=2;utm_source=x"), "/page?a=2;utm_source=x");
    assert_eq!(sent("/page?utm_source=x"), "/page");
    assert_eq!(sent("/by-key/1?page=2&callback=evil"), "/by-key/1?page=2");
    assert_eq!(sent("/%70age"), "/%70age", "another spelling is another page to some origins");
}

#[test]
fn page_of_an_account_is_not_stored_under_the_name_of_a_file() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for path in ["/account/x.css", "/x/../account/x.css", "/account/%2e%2e/account/x.css", "//account/x.css"] {
        for _ in 0..2 {
            assert_eq!(get(&gateway, path, "").field("cache-status"), "", "{path}");
        }
    }
    for _ in 0..2 {
        let with_cookie = get(&gateway, "/profile/x.css", "Cookie: id=1\r\n");
        assert_eq!(with_cookie.field("cache-status"), "tidegate; fwd=uri-miss; detail=cookies");
    }
    assert!(!get(&gateway, "/profile/x.css", "").text().contains("id=1"));
}

#[test]
fn cookies_and_credentials_share_only_what_is_public() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for fields in ["Cookie: a=1\r\n", "Authorization: Basic a\r\n"] {
        get(&gateway, "/page", "");
        let own = get(&gateway, "/page", &format!("{fields}Accept-Language: de\r\nUser-Agent: Person\r\n"));
        assert!(own.field("cache-status").starts_with("tidegate; fwd=bypass; detail="), "{fields}");
        assert!(own.text().contains("accept-language: de") && own.text().contains("user-agent: person"), "{fields}");
    }
    get(&gateway, "/public/1", "Cookie: a=1\r\n");
    assert!(is_hit(&get(&gateway, "/public/1", "Cookie: b=1\r\n")));
    assert!(is_hit(&get(&gateway, "/public/1", "Authorization: Basic a\r\n")));
    get(&gateway, "/no-cookies/1", "Cookie: a=secret\r\n");
    assert!(!origin.last_request().head.contains("secret"));
    assert!(is_hit(&get(&gateway, "/no-cookies/1", "Cookie: b=2\r\n")));
}

#[test]
fn fields_and_cookies_of_the_key_select_the_copy() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let is_stored = |fields: &str| is_hit(&get(&gateway, "/by-key/1", fields));
    assert!(!is_stored("X-Tenant: a\r\nCookie: lang=de; id=secret\r\n"));
    let sent = origin.last_request();
    assert_eq!(sent.fields.get("cookie").map(String::as_str), Some("lang=de"), "{}", sent.head);
    assert!(is_stored("X-Tenant: a\r\nCookie: other=1; lang=de\r\n"));
    assert!(!is_stored("X-Tenant: b\r\nCookie: lang=de\r\n"));
    assert!(!is_stored("X-Tenant: a\r\nCookie: lang=en\r\n"));
    assert!(!is_stored("X-Tenant: a\r\n"));
    assert!(is_stored("X-Tenant: b\r\nCookie: lang=de\r\n"));
}

#[test]
fn vary_selects_the_copy_from_the_next_request_on() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let page = |language: &str| get(&gateway, "/vary/accept-language", &format!("Accept-Language: {language}\r\n"));
    let of = |response: &Response| response.text().lines().any(|line| line == "accept-language: de");
    assert!(!of(&page("de")), "sent once Vary has named it");
    assert!(of(&page("de")));
    assert!(page("en").text().contains("accept-language: en"));
    assert!(is_hit(&page("DE")));
    let other = get(&gateway, "/vary/accept-language?2", "Accept-Language: fr\r\n");
    assert!(!other.text().contains("fr"), "of the URL");
    let foo = |value: &str| get(&gateway, "/vary/x-foo", &format!("X-Foo: {value}\r\n"));
    assert!(foo("1").text().contains("x-foo: 1"));
    assert!(is_hit(&foo("1")));
    assert!(foo("2").text().contains("x-foo: 2"));
}

#[test]
fn fields_that_one_page_varies_by_split_no_other_page() {
    let origin = Origin::with_script(|request, connection| match request.target.as_str() {
        "/old" => connection.reply("404 Not Found", "Cache-Control: max-age=3600\r\nVary: User-Agent\r\n", b"gone"),
        "/app" => connection.reply("200 OK", "Cache-Control: max-age=3600\r\nVary: Accept-Language\r\n", b"app"),
        _ => connection.reply("200 OK", "Cache-Control: max-age=60\r\n", b"page"),
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let visit = |path: &str, number: usize| {
        get(&gateway, path, &format!("User-Agent: Person {number}\r\nAccept-Language: l{number}\r\n"))
    };
    for round in 0..3 {
        visit("/old", round);
        visit("/app", round);
        let hits = (0..10).filter(|number| is_hit(&visit("/page", *number))).count();
        assert_eq!(hits, 9, "round {round}");
        gateway.clock.advance(std::time::Duration::from_secs(61));
    }
}

#[test]
fn page_keeps_its_variants_when_a_response_names_other_fields() {
    let origin = Origin::with_script(|request, connection| {
        let language = request.fields.get("accept-language").map_or("", String::as_str);
        let vary = match language {
            "odd" => "Vary: Accept-Language, User-Agent\r\n",
            "none" => "",
            _ => "Vary: Accept-Language\r\n",
        };
        connection.reply("200 OK", &format!("Cache-Control: max-age=3600\r\n{vary}"), language.as_bytes());
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let visit =
        |language: &str| get(&gateway, "/page", &format!("Accept-Language: {language}\r\nUser-Agent: Person\r\n"));
    let languages = ["de", "en", "fr"];
    visit("de");
    languages.iter().for_each(|language| drop(visit(language)));
    for odd in ["odd", "none", "odd", "it"] {
        visit(odd);
        for language in languages {
            let copy = visit(language);
            assert!(is_hit(&copy) && copy.text() == language, "{language} after {odd}: {}", copy.text());
        }
    }
}

#[test]
fn fields_without_an_effect_keep_no_request_from_the_cache() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for (index, fields) in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n",
        "Upgrade: websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
        "Connection: Upgrade\r\nUpgrade: a, b\r\n",
        "Cookie: \r\n",
        "Cookie: ; ;\r\n",
        "Range: none\r\n",
        "Range: bytes=a-b\r\n",
        "Expect: 100-continue\r\n",
        "TE: trailers\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/page/{index}");
        let first = get(&gateway, &path, fields);
        assert_eq!(first.field("cache-status"), "tidegate; fwd=uri-miss; stored", "{fields}");
        assert!(is_hit(&get(&gateway, &path, fields)) && is_hit(&get(&gateway, &path, "")), "{fields}");
    }
    let upgrade = get(&gateway, "/page/0", "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    assert_eq!(upgrade.field("cache-status"), "tidegate; fwd=bypass");
    let range = get(&gateway, "/other", "Range: bytes=0-1\r\n");
    assert_eq!(range.field("cache-status"), "tidegate; fwd=uri-miss");
}

#[test]
fn coded_copy_is_for_clients_that_can_decode_it() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let page = |path: &str, codings: &str| get(&gateway, path, &format!("Accept-Encoding: {codings}\r\n"));
    assert_eq!(page("/coded", "gzip, deflate, br, zstd").field("content-encoding"), "gzip");
    assert!(is_hit(&page("/coded", "br;q=1.0, gzip;q=0.5")));
    assert_eq!(page("/coded", "identity").field("content-encoding"), "");
    assert!(is_hit(&page("/coded", "")));
    page("/plain", "gzip, br");
    assert!(is_hit(&page("/plain", "identity")), "the origin could have coded it and did not");
}

#[test]
fn host_and_scheme_are_part_of_the_key() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), &RULES.replace("clients: { address_from: peer }\n", ""));
    let page = |host: &str, fields: &str| {
        let mut client = gateway.connect();
        client.send(format!("GET /page HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        client.read_response()
    };
    assert!(!is_hit(&page("a.example", "")));
    assert!(!is_hit(&page("b.example", "")));
    assert!(!is_hit(&page("a.example", "X-Forwarded-Proto: https\r\n")));
    assert!(is_hit(&page("A.example.", "")));
    assert!(is_hit(&page("a.example:80", "")));
}

#[test]
fn session_of_the_live_page_lifts_no_filter() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let evil = "User-Agent: evil\r\nX-Forwarded-Ssl: evil\r\nReferer: evil\r\nAccept: application/evil, */*\r\n";
    for (index, cookie) in ["tidegate_session=1", "tidegate_session_9090=1; tidegate_session=2"].into_iter().enumerate()
    {
        let path = format!("/session/{index}");
        get(&gateway, &path, &format!("Cookie: {cookie}\r\n{evil}"));
        let innocent = get(&gateway, &path, "User-Agent: Person\r\n");
        assert!(is_hit(&innocent) && !innocent.text().contains("evil"), "{}", innocent.text());
    }
}

#[test]
fn public_response_to_a_request_with_cookies_is_stored_only_if_nothing_else_was_sent() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let stored = get(&gateway, "/public/1", "Cookie: a=1\r\n");
    assert_eq!(stored.field("cache-status"), "tidegate; fwd=uri-miss; stored");
    let other = get(&gateway, "/public/2", "Cookie: a=1\r\nUser-Agent: evil\r\nCF-Visitor: evil\r\n");
    assert!(other.text().contains("user-agent: evil"), "the page may be for the client alone");
    assert_eq!(other.field("cache-status"), "tidegate; fwd=uri-miss; detail=cookies");
    assert!(!get(&gateway, "/public/2", "").text().contains("evil"));
}

#[test]
fn origin_is_sent_the_cookies_of_the_key_alone() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for (index, cookies) in ["lang=en; lang=evil; id=evil", "evil; lang=en", "lang=en; lang"].into_iter().enumerate() {
        let path = format!("/by-key/{index}");
        let text = get(&gateway, &path, &format!("Cookie: {cookies}\r\n")).text();
        assert!(text.contains("cookie: lang=en\r\n") && !text.contains("evil"), "{cookies}: {text}");
    }
    assert!(!get(&gateway, "/by-key/none", "Cookie: lang\r\n").text().contains("cookie"), "it has no value in the key");
}

#[test]
fn field_that_other_responses_of_the_url_named_is_part_of_the_key() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let origin = Origin::with_script(move |request, connection| {
        let is_first = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let vary = if is_first { "Vary: Accept-Language\r\n" } else { "" };
        connection.reply("200 OK", &format!("Cache-Control: max-age=3600\r\n{vary}"), request.head.as_bytes());
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let visit = |path: &str, field: &str| get(&gateway, path, field);
    visit("/page", "Accept-Language: de\r\n");
    let field = "Accept-Language: evil\r\n";
    assert!(visit("/page", field).text().contains("evil"), "sent since another response named it");
    assert!(is_hit(&visit("/page", field)));
    assert!(!visit("/page", "").text().contains("evil"));
    assert!(!visit("/other", field).text().contains("evil"), "no other URL is concerned");
}

#[test]
fn origin_is_sent_host_and_connection_fields_in_one_form() {
    let origin = reflecting_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    client.send(
        "GET /form HTTP/1.1\r\nHost: EXAMPLE.com.:80\r\nVia: 1.1 evil\r\nMax-Forwards: 0\r\nTE: trailers\r\nTrailer: X-T\r\n\
         HTTP2-Settings: AAA\r\nContent-Length: 0\r\n\r\n",
    );
    client.read_response();
    let head = &origin.last_request().head;
    assert!(head.contains("Host: example.com\r\n") || head.contains("host: example.com\r\n"), "{head}");
    let lower = head.to_ascii_lowercase();
    assert!(lower.contains("x-forwarded-host: example.com\r\n"), "{head}");
    for absent in ["evil", "max-forwards", "trailer", "http2-settings", "content-length", "example.com."] {
        assert!(!lower.contains(absent), "{absent} in {head}");
    }
}

#[test]
fn confirmation_that_changes_vary_removes_the_copy() {
    let origin = Origin::with_script(|request, connection| {
        let language = request.fields.get("accept-language").cloned().unwrap_or_default();
        match request.fields.contains_key("if-none-match") {
            true => connection.reply("304 Not Modified", "ETag: \"1\"\r\nVary: Accept-Language\r\n", b""),
            false => connection.reply("200 OK", "ETag: \"1\"\r\nCache-Control: max-age=1\r\n", language.as_bytes()),
        }
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    get(&gateway, "/page", "Accept-Language: en\r\n");
    gateway.clock.advance(std::time::Duration::from_secs(2));
    get(&gateway, "/page", "Accept-Language: en\r\n");
    let other = get(&gateway, "/page", "Accept-Language: fr\r\n");
    assert_eq!((is_hit(&other), other.text().as_str()), (false, "fr"));
}
