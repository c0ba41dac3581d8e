//! Bodies of the administrator in place of the gateway's own: which responses have them, with which values.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::http2_responses;
use crate::support::origin::Origin;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

const BUSY: &str = "<!doctype html>\n<style>p { color: red }</style>\n<h1>{{status}} {{title}}</h1>\n\
                    <p>{{detail}} Back in {{wait}}.</p>\n<meta http-equiv=refresh content={{ retry_after }}>\n\
                    <small>{{decision}}</small>\n";

/// Refuses clients with a user agent of the name of a reason; `/page` costs the whole quota.
const RULES: &str = "
quotas: { api: { limit: 1, window: { fixed: 1h } } }
headers: { retry_after_spread: 0% }
classes: [ { name: blocked, when: { user_agent: blocked }, block: true } ]
routes: [ { match: /page, cost: { api: 1 } } ]
";

/// Returns a directory with files, given by name and content.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    files.iter().for_each(|(name, content)| fs::write(dir.path().join(name), content).expect("a file"));
    dir
}

/// Returns rules with error pages in `dir`, each a status and the name of a file.
fn rules(dir: &Path, pages: &[(&str, &str)]) -> String {
    let page = |(status, file): &(&str, &str)| format!("{status}: {}", dir.join(file).display());
    format!("{RULES}error_pages: {{ {} }}\n", pages.iter().map(page).collect::<Vec<_>>().join(", "))
}

/// Returns the expected page of a refusal by the quota.
fn busy_page(decision: &str) -> String {
    format!(
        "<!doctype html>\n<style>p {{ color: red }}</style>\n<h1>429 Too Many Requests</h1>\n\
         <p>The quota of this period is used up. Back in 60 minutes.</p>\n<meta http-equiv=refresh content=3600>\n\
         <small>{decision}</small>\n"
    )
}

#[test]
fn refused_browser_gets_the_page_with_all_fields() {
    let (origin, dir) = (Origin::plain(), directory(&[("busy.html", BUSY)]));
    let gateway = TestGateway::with_rules(origin.address(), &rules(dir.path(), &[("429", "busy.html")]));
    let mut client = gateway.connect();
    assert_eq!(client.get("/page", BROWSER).status, 200);
    let refused = client.get("/page", BROWSER);
    assert_eq!((refused.status, refused.field("content-type")), (429, "text/html; charset=utf-8"));
    assert_eq!((refused.field("retry-after"), refused.field("cache-control")), ("3600", "no-store"));
    assert_eq!((refused.field("ratelimit"), refused.field("content-security-policy")), ("\"api\";r=0;t=3600", ""));
    assert_eq!(refused.text(), busy_page(refused.field("x-tidegate-decision")));
    assert_eq!(refused.field("content-length"), refused.body.len().to_string());

    let program = client.get("/page", "Accept: application/json\r\n");
    assert_eq!(program.field("content-type"), "application/problem+json");
    assert_eq!(program.json()["reason"], "quota");

    // The next response on the connection shows that no byte of a body precedes it.
    client.send(format!("HEAD /page HTTP/1.1\r\nHost: example.com\r\n{BROWSER}\r\n"));
    let head = client.response_to("HEAD");
    assert_eq!((head.status, head.field("content-length")), (429, refused.field("content-length")));
    assert_eq!(client.get("/free", BROWSER).text(), "hello");
    drop(client);
    let log = gateway.read_log();
    assert_eq!((&log[1]["status"], &log[1]["bytes"]), (&429.into(), &refused.body.len().into()));
    assert_eq!(log[3]["bytes"], 0);
}

#[test]
fn page_is_the_same_over_http2() {
    let (origin, dir) = (Origin::plain(), directory(&[("busy.html", BUSY)]));
    let gateway = TestGateway::with_rules(origin.address(), &rules(dir.path(), &[("4xx", "busy.html")]));
    assert_eq!(gateway.connect().get("/page", BROWSER).status, 200);
    let responses = http2_responses(gateway.address(), |_| {
        let request = |method| http::Request::builder().method(method).uri("http://example.com/page");
        ["GET", "HEAD"].map(|method| request(method).header("accept", "text/html").body(()).expect("valid")).into()
    });
    let [get, head] = &responses[..] else { panic!("two responses") };
    let decision = get.headers()["x-tidegate-decision"].to_str().expect("text");
    assert_eq!((get.status().as_u16(), get.body().as_ref()), (429, busy_page(decision).as_bytes()));
    assert_eq!(get.headers()["content-length"], get.body().len().to_string());
    assert_eq!(
        (head.headers()["content-length"].clone(), head.body().len()),
        (get.headers()["content-length"].clone(), 0)
    );
}

#[test]
fn status_has_its_own_page_before_that_of_its_class() {
    let dir = directory(&[
        ("429", "own {{status}}"),
        ("4xx", "class {{status}} {{retry_after}}."),
        ("5xx", "down {{status}}"),
    ]);
    let pages = [("429", "429"), ("4xx", "4xx"), ("5xx", "5xx")];
    let gateway = TestGateway::with_rules(Origin::unreachable(), &rules(dir.path(), &pages));
    let mut client = gateway.connect();
    let mut page = |path: &str, fields: &str| {
        let response = client.get(path, &format!("{BROWSER}{fields}"));
        (response.status, response.text())
    };
    assert_eq!(page("/", "User-Agent: blocked\r\n"), (429, "own 429".into()));
    assert_eq!(page("/a%2Fb", ""), (400, "class 400 .".into()), "no time to retry is known");
    assert_eq!(page("/", ""), (502, "down 502".into()));
}

#[test]
fn error_responses_of_the_origin_are_not_replaced() {
    let origin = Origin::with_script(|_, connection| connection.reply("503 Service Unavailable", "", b"of the origin"));
    let dir = directory(&[("down.html", "replaced")]);
    let gateway = TestGateway::with_rules(origin.address(), &rules(dir.path(), &[("5xx", "down.html")]));
    let response = gateway.connect().get("/", BROWSER);
    assert_eq!((response.status, response.text().as_str()), (503, "of the origin"));
}

#[test]
fn largest_page_is_sent_whole() {
    let page = format!("{}{}", "{{status}}".repeat(64), "x".repeat((64 << 10) - 640));
    let dir = directory(&[("large.html", &page)]);
    let gateway = TestGateway::with_rules(Origin::unreachable(), &rules(dir.path(), &[("502", "large.html")]));
    let response = gateway.connect().get("/", BROWSER);
    assert_eq!(response.text(), page.replace("{{status}}", "502"));
    let responses = http2_responses(gateway.address(), |request| {
        vec![request.uri("http://example.com/").header("accept", "text/html").body(()).expect("valid")]
    });
    assert_eq!(responses[0].body(), &response.body);
}

#[test]
fn reload_reads_the_pages_again_and_keeps_them_if_one_is_invalid() {
    let (origin, dir) = (Origin::plain(), directory(&[("busy.html", "first")]));
    let rules = rules(dir.path(), &[("429", "busy.html")]);
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let page = || gateway.connect().get("/", &format!("{BROWSER}User-Agent: blocked\r\n")).text();
    let write = |text: &str| fs::write(dir.path().join("busy.html"), text).expect("a file");
    write("second");
    assert_eq!(page(), "first");
    let summary = gateway.reload(origin.address(), &rules).expect("valid settings");
    assert!(summary.contains("error pages, of the gateway's own responses: 429 in "), "{summary}");
    assert_eq!(page(), "second");
    write("third\n<p>{{reason}}");
    let errors = gateway.reload(origin.address(), &rules).expect_err("unknown placeholder");
    let expected = format!("{}:2:4: found the unknown placeholder \"reason\"", dir.path().join("busy.html").display());
    assert!(errors.contains("error_pages.429: ") && errors.contains(&expected), "{errors}");
    assert_eq!(page(), "second");
}

#[test]
fn refusal_for_another_proxy_has_the_page() {
    let (origin, dir) = (Origin::plain(), directory(&[("busy.html", "busy {{status}}")]));
    let rules = format!("forward_auth: {{ listen: \"127.0.0.1:0\" }}\n{}", rules(dir.path(), &[("429", "busy.html")]));
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let ask = |fields: &str| -> Response {
        let fields =
            format!("X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\nX-Forwarded-Host: example.com\r\n{fields}");
        let mut client = crate::support::client::Client::connect(gateway.forward_auth_address());
        client.get("/", &fields)
    };
    let refused = ask(&format!("{BROWSER}User-Agent: blocked\r\nX-Forwarded-For: 192.0.2.1\r\n"));
    assert_eq!((refused.status, refused.text().as_str()), (429, "busy 429"), "{refused:?}");
}

#[test]
fn programs_get_the_json_and_browsers_the_page() {
    let document =
        r#"{"error": {"code": {{status}}, "text": "{{detail}}", "id": "{{decision}}", "wait": {{retry_after}}}}"#;
    let (origin, dir) = (Origin::plain(), directory(&[("busy.json", document), ("busy.html", "page {{status}}")]));
    let pages = format!(
        "{RULES}error_pages: {{ 429: {{ html: {0}/busy.html, json: {0}/busy.json }}, 4xx: {{ json: anthropic }} }}\n",
        dir.path().display()
    );
    let gateway = TestGateway::with_rules(origin.address(), &pages);
    let mut client = gateway.connect();
    let refused = client.get("/", "User-Agent: blocked\r\n");
    assert_eq!((refused.status, refused.field("content-type")), (429, "application/json"));
    assert_eq!(refused.field("content-length"), refused.body.len().to_string());
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["text"]), (&429.into(), &"This client is blocked.".into()));
    assert_eq!((&error["id"], &error["wait"]), (&refused.field("x-tidegate-decision").into(), &3600.into()));
    assert_eq!((refused.field("x-should-retry"), refused.field("request-id")), ("", ""), "a file is of no API");
    assert_eq!(client.get("/", &format!("{BROWSER}User-Agent: blocked\r\n")).text(), "page 429");

    let rejected = client.get("/a%2Fb", "");
    assert_eq!((rejected.status, rejected.field("content-type")), (400, "application/json"));
    assert_eq!(rejected.json()["error"]["type"], "invalid_request_error");
    assert_eq!(rejected.json()["request_id"], rejected.field("x-tidegate-decision"));
    assert_eq!(rejected.field("request-id"), rejected.field("x-tidegate-decision"));
    let browser = client.get("/a%2Fb", BROWSER);
    assert_eq!((browser.field("content-type"), browser.field("request-id")), ("text/html; charset=utf-8", ""));
}

#[test]
fn json_of_a_status_precedes_that_of_its_class() {
    let rules = format!("{RULES}error_pages: {{ 429: {{ json: problem }}, 4xx: {{ json: openai }} }}\n");
    let gateway = TestGateway::with_rules(Origin::unreachable(), &rules);
    let mut client = gateway.connect();
    let mut content_type = |path: &str, fields: &str| client.get(path, fields).field("content-type").to_owned();
    assert_eq!(content_type("/", "User-Agent: blocked\r\n"), "application/problem+json");
    assert_eq!(content_type("/a%2Fb", ""), "application/json");
    assert_eq!(content_type("/", ""), "application/problem+json", "502 has none");
}
