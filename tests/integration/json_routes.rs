//! Routes with conditions on the JSON body: the cost of each tool.

use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use serde_json::{Value, json};

const RULES: &str = r#"
workers: 1
classes: []
quotas:
  calls: { limit: 10000, window: { fixed: 24h } }
  other: { limit: 10000, window: { fixed: 24h } }
routes:
  - { match: /mcp, json: { method: ping } }
  - { match: /mcp, json: { method: tools/call, "params.name": [search, "fetch*"] }, cost: { calls: 5 } }
  - { match: /mcp, cost: { calls: 1 } }
  - { match: /split, json: { method: a }, cost: { other: 1 } }
  - { match: /split, cost: { calls: 1 } }
  - { match: /up, stream: true, cost: { calls: 2 } }
"#;

const SEARCH: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"query":"name"}}}"#;

fn post(path: &str, fields: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn echo_origin() -> Origin {
    Origin::with_script(|request, connection| {
        let body = connection.read_body(request);
        connection.reply("200 OK", "", &body);
    })
}

/// Returns the line of the log of each body, posted to `path`.
fn logged(path: &str, bodies: &[(&str, String)]) -> Vec<Value> {
    let origin = echo_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    for (fields, body) in bodies {
        let response = client.send(post(path, fields, body)).read_response();
        assert_eq!((response.status, response.text() == *body), (200, true), "{body:.80}");
    }
    drop(client);
    let mut log = gateway.read_log();
    log.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
    assert_eq!(log.len(), bodies.len());
    log
}

#[test]
fn each_tool_has_its_cost() {
    const JSON: &str = "Content-Type: application/json\r\n";
    let call = json!(["method=tools/call", "params.name=search|fetch*"]);
    let cases = [
        (SEARCH.to_owned(), json!({"calls": 5}), call.clone()),
        (SEARCH.replace("search", "fetch_page"), json!({"calls": 5}), call.clone()),
        (SEARCH.replace("tools/call", "tools\\/c\\u0061ll"), json!({"calls": 5}), call),
        (SEARCH.replace("search", "list"), json!({"calls": 1}), json!(["method=tools/call"])),
        (r#"{"method":"tools/list"}"#.to_owned(), json!({"calls": 1}), Value::Null),
        (r#"{"method":"ping"}"#.to_owned(), json!({}), json!(["method=ping"])),
        ("{}".to_owned(), json!({"calls": 1}), Value::Null),
    ];
    let bodies: Vec<_> = cases.iter().map(|(body, ..)| (JSON, body.clone())).collect();
    for (line, (body, cost, met)) in logged("/mcp", &bodies).iter().zip(&cases) {
        let [logged, expected] = [&line["cost"], cost].map(|costs| costs["calls"].as_f64());
        assert_eq!((logged, &line["json"]), (expected, met), "{body}");
        assert!(!line.to_string().contains("jsonrpc"), "no other value of a body is logged");
    }
}

#[test]
fn no_body_hides_an_expensive_tool() {
    let long = format!("{{\"x\":\"{}\",{}", "x".repeat(70_000), &SEARCH[1..]);
    let bodies: Vec<(&str, String)> = vec![
        ("", SEARCH.to_owned()),
        ("Content-Type: text/plain\r\n", SEARCH.to_owned()),
        ("Content-Type: application/x-www-form-urlencoded\r\n", "method=tools/call&params[name]=search".to_owned()),
        ("Content-Encoding: gzip\r\n", "\u{1f}\u{8b}".to_owned()),
        ("", long),
        ("", format!("[{SEARCH}]")),
        ("", format!("[{{\"method\":\"ping\"}},{SEARCH}]")),
        ("", format!("{{\"method\":\"ping\"}}{SEARCH}")),
        ("", format!("\u{feff}{SEARCH}")),
        ("", SEARCH.replace("\"method\":", "\"method\":\"ping\",\"method\":")),
        ("", SEARCH.replace("}}}", "}},\"method\":\"ping\"}")),
        ("", SEARCH.replace("\"method\"", "\"METHOD\"")),
        ("", SEARCH.replace("\"params\"", "\"param\u{17f}\"")),
        ("", SEARCH.replace("\"id\":1", "\"id\":1,\"method\":\"ping\"")),
        ("", SEARCH.replace("{\"name\"", "{\"name\":\"list\",\"name\"")),
        ("", SEARCH.replace("\"id\":1", "\"id\":+1")),
        ("", format!("/**/{SEARCH}")),
        // Express and aiohttp read the text in the encoding that is named.
        ("Content-Type: application/json; charset=utf-7\r\n", SEARCH.replace("search", "+AHM-earch")),
        (
            "Content-Type: application/json\r\nContent-Type: text/plain;charset=\"UTF-7\"\r\n",
            SEARCH.replace("name", "n+AGE-me"),
        ),
        ("Content-Encoding: br\r\n", "{}".to_owned()),
    ];
    for (line, (_, body)) in logged("/mcp", &bodies).iter().zip(&bodies) {
        assert_eq!(line["cost"]["calls"], 5.0, "{body:.80}");
    }
}

#[test]
fn body_with_costs_in_different_quotas_gets_400() {
    let origin = echo_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    for (body, status) in
        [("{\"method\":\"a\"}", 200), ("{}", 200), ("[]", 400), ("{\"method\":\"a\"", 400), ("{}", 200)]
    {
        assert_eq!(client.send(post("/split", "", body)).read_response().status, status, "{body}");
    }
    assert_eq!(client.get("/split", "").status, 200);
    assert_eq!(origin.received_requests().len(), 4);
    let used = |index: usize| gateway.state()["quotas"][index]["used"].as_f64();
    assert_eq!((used(0), used(1)), (Some(3.0), Some(1.0)));
}

#[test]
fn bodies_on_other_routes_are_not_waited_for() {
    let (arrived, has_arrived) = signal();
    let origin = Origin::with_script(move |request, connection| {
        arrived.notify();
        let body = connection.read_body(request);
        connection.reply("200 OK", "", &body);
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut client = gateway.connect();
    let message = post("/up", "", "{\"method\":\"ping\"}");
    let (begin, end) = message.split_at(message.len() - 5);
    client.send(begin);
    has_arrived.wait();
    assert_eq!(client.send(end).read_response().status, 200);
    drop(client);
    let log = gateway.read_log();
    assert_eq!((&log[0]["cost"]["calls"], &log[0]["json"]), (&json!(2), &Value::Null));
}

#[test]
fn invalid_conditions_are_refused_with_their_place() {
    for (conditions, expected) in [
        ("{ a..b: x }", "routes[0].json.a..b: invalid path: segment 2 is empty"),
        ("{ method: [] }", "routes[0].json.method: found no value"),
        ("{ method: { a: b } }", "routes[0].json.method"),
        ("[method]", "routes[0].json"),
    ] {
        let text = format!("origin: http://127.0.0.1:1\nroutes: [{{ match: /a, json: {conditions} }}]\n");
        let loaded = tidegate_config::load(std::path::Path::new("gate.yaml"), &text, &[], &[], &[]);
        let errors = loaded.map(|_| ()).expect_err("an invalid condition").to_string();
        assert!(errors.contains(expected), "{conditions}: {errors}");
    }
    for (later, is_reached) in [("{ b: y, a: x }", false), ("{ a: y }", true), ("{ b: x }", true)] {
        let text = format!(
            "origin: http://127.0.0.1:1\nroutes: [{{ match: /a, json: {{ a: x }} }}, {{ match: /a, json: {later} }}, {{ match: /a }}]\n"
        );
        let loaded = tidegate_config::load(std::path::Path::new("gate.yaml"), &text, &[], &[], &[]);
        assert_eq!(loaded.is_ok(), is_reached, "{later}");
    }
}
