//! Operation of a gateway: reload, admin API, shutdown, counters. Some tests use the real program.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use crate::support::program::{Program, run, run_with_env};
use crate::support::wait::{pass_real_time, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn reload_changes_rules_and_keeps_usage() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FIRST_RULES);
    let mut client = gateway.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/page", "").status, 200);
    }
    assert_eq!(client.get("/free", "").status, 200);
    let other = Origin::plain();
    let response = gateway.reload(other.address(), &FIRST_RULES.replace("limit: 10", "limit: 4")).expect("valid rules");
    assert!(response.contains("api: 4 units"), "{response}");
    assert_eq!(gateway.counters(), (3.0, 0.0), "used units stay used");
    assert_eq!(client.get("/page", "").status, 200, "the connection stays open, and one token is left");
    assert_eq!(other.received_requests().len(), 1, "the new origin gets the request");
    assert_eq!(client.get("/free", "").json()["reason"], "bucket", "the bucket of five is empty");
    let neighbor = client.get("/page", "X-Forwarded-For: 192.0.2.1\r\n");
    assert_eq!(neighbor.json()["reason"], "quota", "four of four units are used");
}

#[test]
fn renamed_quota_starts_unused() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FIRST_RULES);
    gateway.connect().get("/page", "");
    gateway.reload(origin.address(), &FIRST_RULES.replace("api", "ipa")).expect("valid rules");
    assert_eq!(gateway.counters(), (0.0, 0.0));
    gateway.reload(origin.address(), FIRST_RULES).expect("valid rules");
    assert_eq!(gateway.counters(), (1.0, 0.0), "the counter of a removed quota is kept");
}

#[test]
fn requests_in_flight_keep_their_config_snapshot() {
    let (arrival_sender, arrival) = signal();
    let (release, release_receiver) = signal();
    let origin = Origin::with_script(move |_, connection| {
        arrival_sender.notify();
        release_receiver.wait();
        connection.reply("200 OK", "X-Cost: 3\r\n", b"");
    });
    let rules = FIRST_RULES.replace("limit: 10,", "limit: 10, cost_header: X-Cost,");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut client = gateway.connect();
    client.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    gateway.reload(origin.address(), FIRST_RULES).expect("valid rules");
    assert_eq!(gateway.counters(), (0.0, 1.0), "the reservation is kept");
    release.notify();
    assert_eq!(client.read_response().status, 200);
    assert_eq!(gateway.counters(), (3.0, 0.0));
}

#[test]
fn reload_under_load_loses_no_requests() {
    let origin = Origin::plain();
    let rules = |limit: usize| {
        let quota = format!("quotas: {{ api: {{ limit: {limit}, window: {{ fixed: 24h }} }} }}");
        format!("{quota}\nroutes: [ {{ match: /**, cost: {{ api: 1 }} }} ]")
    };
    let gateway = TestGateway::with_rules(origin.address(), &rules(1000));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = gateway.connect();
                (0..100).for_each(|_| assert_eq!(client.get("/", "").status, 200));
            });
        }
        for extra in 0..20 {
            gateway.reload(origin.address(), &rules(1000 + extra)).expect("valid rules");
        }
    });
    assert_eq!(gateway.counters(), (400.0, 0.0));
    assert_eq!(origin.received_requests().len(), 400);
    assert_eq!(gateway.read_log().len(), 400);
}

#[test]
fn invalid_config_is_rejected_and_changes_nothing() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), FIRST_RULES);
    let (status, response) = gateway.admin_request("POST", "/api/v1/reload", "");
    assert_eq!((status, parse_json(&response)["reloaded"].as_bool()), (200, Some(true)), "{response}");
    assert_eq!(gateway.metric("tidegate_config_last_reload_successful"), 1.0);
    let before = gateway.metric("tidegate_config_last_reload_success_timestamp_seconds");

    gateway.clock.advance(Duration::from_secs(60));
    gateway.write(origin.address(), "quotas: { api: { limit: -1 } }\nroutes: [ { math: /page } ]");
    let (status, response) = gateway.admin_request("POST", "/api/v1/reload", "");
    assert_eq!(status, 422);
    let detail = parse_json(&response)["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("quotas.api.limit") && detail.contains("math"), "all errors are reported: {detail}");
    assert_eq!(gateway.metric("tidegate_config_last_reload_successful"), 0.0);
    assert_eq!(gateway.metric("tidegate_config_last_reload_success_timestamp_seconds"), before);
    assert!(
        gateway.connect().get("/page", "").field("ratelimit").contains("\"api\";r=9"),
        "the old rules stay current"
    );
    assert_eq!(gateway.admin_get("/readyz").0, 200);

    gateway.reload(origin.address(), FIRST_RULES).expect("valid rules");
    assert_eq!(gateway.metric("tidegate_config_last_reload_successful"), 1.0);
    assert_eq!(gateway.metric("tidegate_config_last_reload_success_timestamp_seconds"), before + 60.0);
}

#[test]
fn reload_reports_settings_that_need_restart() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "workers: 1");
    let response =
        gateway.reload(origin.address(), "workers: 2\nlimits: { max_tracked_clients: 5 }").expect("valid rules");
    for key in ["workers", "limits.max_tracked_clients"] {
        assert!(response.contains(&format!("{key}: takes effect at the next start")), "{response}");
    }
    let is_pending = |gateway: &TestGateway| {
        gateway.state()["notes"].to_string().contains("workers: changed in the file, takes effect")
    };
    assert!(is_pending(&gateway));
    let response = gateway.reload(origin.address(), "workers: 2").expect("valid rules");
    assert!(
        response.contains("workers: takes effect at the next start") && is_pending(&gateway),
        "the change is still pending: {response}"
    );
    gateway.reload(origin.address(), "workers: 1").expect("valid rules");
    assert!(!is_pending(&gateway), "the setting is the same as at the start");
}

#[test]
fn class_with_pending_operator_matches_no_requests() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), "crawl_policy: on");
    let rules = "crawl_policy: on\noperators: { acme: { product_tokens: AcmeBot, ranges: 192.0.2.0/24 } }\n\
                 classes: [ { name: ours, when: { operator: [acme, googlebot] }, crawl_delay: 5s, block: true } ]";
    gateway.reload(origin.address(), rules).expect("valid rules");
    let acme = "User-Agent: AcmeBot/1.0\r\nX-Forwarded-For: 192.0.2.1\r\n";
    assert_eq!(gateway.connect().get("/", acme).status, 200);
    assert_eq!(gateway.connect().get("/.well-known/crawl-policy", "").status, 200);
    assert_eq!((gateway.connect().get("/robots.txt", "").status, gateway.admin_get("/metrics").0), (200, 200));
}

/// Every request adds one count and one log line, whatever its outcome. Every admitted request is sent to the origin.
#[test]
fn metrics_log_and_origin_counts_agree() {
    let (arrival_sender, arrival) = signal();
    let origin = Origin::with_script(move |request, connection| match request.target.as_str() {
        "/hang" => {
            arrival_sender.notify();
            connection.expect_eof();
        }
        "/page?broken" => {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
            connection.close();
        }
        "/page?nothing" => connection.close(),
        "/page?error" => connection.reply("500 Internal Server Error", "", b"oh"),
        _ => connection.reply("200 OK", "", b"fine"),
    });
    let rules = "
origin: { url: ORIGIN, aborts_on_disconnect: true }
quotas: { api: { limit: 12, window: { fixed: 24h }, tiers: { shed: [ { above: 0%, shed: 50% } ] } } }
classes:
  - { name: shed, when: { user_agent: shed } }
  - { name: blocked, when: { user_agent: blocked }, block: true }
  - { name: person }
routes: [ { match: /page, cost: { api: 1 } }, { match: /hang, cost: { api: 1 } } ]";
    let gateway = TestGateway::with_rules(origin.address(), rules);
    for round in 0..5 {
        for agent in ["shed", "blocked", "person"] {
            let mut client = gateway.connect();
            client.get("/page", &format!("User-Agent: {agent}\r\n"));
            client.get("/free", &format!("User-Agent: {agent}\r\n"));
        }
        for query in ["broken", "nothing", "error"] {
            gateway.connect().try_send(format!("GET /page?{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            let mut client = gateway.connect();
            client.send(format!("GET /page?{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            client.read_rest();
        }
        if round == 0 {
            let mut client = gateway.connect();
            client.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
            arrival.wait();
            client.reset();
        }
        assert_eq!(
            gateway.connect().send("GET / HTTP/1.1\r\n\r\n").read_response().status,
            400,
            "an invalid request counts as a response only"
        );
    }
    gateway.wait_for_metric("tidegate_client_connections", 0.0);
    gateway.wait_for_metric("tidegate_origin_inflight{scope=\"default\"}", 0.0);
    let metrics = gateway.metrics();
    let sum = |start: &str, label: &str| -> f64 {
        metrics.iter().filter(|(name, _)| name.starts_with(start) && name.contains(label)).map(|(_, value)| value).sum()
    };
    let requests = sum("tidegate_requests_total", "");
    let admitted = sum("tidegate_requests_total", "verdict=\"admitted\"");
    assert_eq!(sum("tidegate_requests_by_kind_total", ""), requests);
    assert_eq!(sum("tidegate_request_duration_seconds_count", ""), requests);
    assert_eq!(sum("tidegate_origin_requests_total", ""), admitted);
    assert_eq!(
        sum("tidegate_responses_total", ""),
        requests + 5.0,
        "five responses to invalid requests are counted, too"
    );
    let (counters, received) = (gateway.counters(), origin.received_requests());
    assert_eq!(counters, (12.0, 0.0), "the quota is used up and no units are reserved");
    assert_eq!(sum("tidegate_quota_charged_total", ""), 12.0);

    let log = gateway.read_whole_log();
    let lines = |key: &str, value: Value| log.iter().filter(|line| line[key] == value).count();
    assert_eq!((log.len() as f64, lines("verdict", json!("rejected"))), (requests + 5.0, 5));
    assert_eq!(lines("verdict", json!("admitted")) as f64, admitted);
    for reason in ["tier", "quota", "blocked"] {
        let refusals = sum("tidegate_requests_total", &format!("reason=\"{reason}\""));
        assert!(refusals > 0.0, "{reason}");
        assert_eq!(lines("reason", json!(reason)) as f64, refusals, "{reason}");
    }
    let charged: f64 = log.iter().filter_map(|line| line["charged"]["api"].as_f64()).sum();
    assert_eq!(charged, 12.0);
    // A request of a client that disconnects immediately may not have been forwarded. No other request may be missing.
    assert!(
        received.len() as f64 <= admitted && received.len() as f64 >= admitted - 15.0,
        "{} of {admitted}",
        received.len()
    );
    let ids: BTreeMap<_, _> = log.iter().map(|line| (line["id"].to_string(), ())).collect();
    assert_eq!(ids.len(), log.len(), "ids are unique");
}

#[test]
fn check_summarizes_valid_files_and_lists_all_errors() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("gate.yaml");
    let name = file.display().to_string();
    write(&file, "origin: { url: http://127.0.0.1:3000 }\n");
    let valid = run(&["check", &name], b"");
    assert_eq!((valid.code, valid.errors.as_str()), (0, ""));
    assert!(
        valid.output.starts_with("listening on 127.0.0.1:8080, forwarding to 127.0.0.1:3000\n"),
        "{}",
        valid.output
    );

    write(&file, "origin: { url: http://127.0.0.1:3000 }\nlimits:\n  max_header: 5\n  header_timeout: soon\n");
    let invalid = run(&["check", &name], b"");
    assert_eq!((invalid.code, invalid.output.as_str()), (2, ""));
    let locations: Vec<_> = invalid.errors.lines().filter_map(|line| line.strip_prefix(&name)).collect();
    assert_eq!(locations.len(), 2, "{}", invalid.errors);
    assert!(locations[0].starts_with(":3:3: limits.max_header: ") && locations[0].contains("; "), "{}", invalid.errors);
    assert!(
        locations[1].starts_with(":4:19: limits.header_timeout: ") && locations[1].contains("; "),
        "{}",
        invalid.errors
    );

    for text in ["", "\u{0}", "a: [", "- 1", "origin: &a { url: *a }", "\u{feff}origin: 5"] {
        write(&file, text);
        let invalid = run(&["check", &name], b"");
        assert_eq!(invalid.code, 2, "{text:?}");
        assert!(invalid.errors.starts_with(&format!("{name}:")), "{text:?}: {}", invalid.errors);
    }
    assert_eq!(run(&["check", "no/such/file.yaml"], b"").code, 2);
}

#[test]
fn classify_command_handles_any_input_line() {
    let long_line = "x".repeat(1 << 20);
    let lines: [&[u8]; 7] = [
        b"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        b"Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
        b"",
        b"\xff\xfe\x00 bytes that are no text",
        long_line.as_bytes(),
        b"curl/8.0\r",
        b"the last one has no line end",
    ];
    let outcome = run(&["classify"], &lines.join(&b'\n'));
    let output_lines: Vec<&str> = outcome.output.lines().collect();
    assert_eq!((outcome.code, output_lines.len()), (0, lines.len()), "{}", outcome.errors);
    assert!(output_lines[0].starts_with("declared_bot\tGooglebot"), "{}", output_lines[0]);
    assert_eq!((output_lines[1], output_lines[2]), ("human\t-", "human\t-"));
    assert!(output_lines[5].starts_with("declared_bot\t"), "{}", output_lines[5]);
    assert!(output_lines.iter().all(|line| line.split('\t').count() == 2), "{output_lines:?}");
    let outcome = run(&["classify", "--json"], &lines.join(&b'\n'));
    let objects: Vec<Value> = outcome.output.lines().map(parse_json).collect();
    assert_eq!((objects.len(), &objects[0]["kind"]), (lines.len(), &json!("declared_bot")));
    assert_eq!(run(&["classify"], b"").output, "", "empty input has empty output");
}

#[test]
fn closed_output_pipe_is_no_failure() {
    let mut program = Program::start(&["classify"]);
    program.close_output();
    program.write(&b"curl/8.0\n".repeat(20_000));
    let outcome = program.wait_for_exit();
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
}

#[test]
fn schema_command_covers_every_section() {
    let outcome = run(&["schema"], b"");
    let schema = parse_json(&outcome.output);
    assert_eq!(outcome.code, 0);
    for section in ["listen", "origin", "limits", "quotas", "classes", "routes", "headers", "log"] {
        assert!(schema["properties"][section].is_object(), "{section}");
    }
}

#[test]
fn usage_errors_exit_two_with_hint() {
    for arguments in
        [&["serve", "--no-such-option"][..], &["nonsense"], &["check", "a", "b"], &["serve", "--listen"], &["--origin"]]
    {
        let outcome = run(arguments, b"");
        assert_eq!((outcome.code, outcome.output.as_str()), (2, ""), "{arguments:?}");
        assert!(!outcome.errors.is_empty());
    }
    for arguments in [
        &["serve", "--config", "no/such.yaml"][..],
        &["serve", "--origin", "ftp://a.example"],
        &["serve", "--origin", "http://127.0.0.1:1", "--listen", "everywhere"],
    ] {
        let outcome = run(arguments, b"");
        assert_eq!((outcome.code, outcome.output.as_str()), (2, ""), "{arguments:?}: {}", outcome.errors);
        assert!(outcome.errors.contains("; "), "no hint in: {}", outcome.errors);
    }
    assert_eq!(run(&["--help"], b"").code, 0);
    assert!(run(&["--version"], b"").output.starts_with("tidegate "));
}

#[test]
fn gateway_without_config_file_prints_one_line() {
    let origin = Origin::plain();
    let url = format!("http://{}", origin.address());
    let mut gateway = Program::start_with_env(&["--listen", "127.0.0.1:0", "--origin", &url], &[ADMIN_ON_FREE_PORT]);
    let ready = gateway.read_line();
    let address = listen_address(&ready);
    assert!(
        ready.starts_with("tidegate ") && ready.contains(&format!("forwarding to http://{}", origin.address())),
        "{ready}"
    );
    assert!(ready.trim_end().ends_with(", state in ./state"), "{ready}");
    assert_eq!(request_root_status(address), 200);
    gateway.signal("TERM");
    let outcome = gateway.wait_for_exit();
    assert_eq!((outcome.code, outcome.output.as_str()), (0, ""), "more than one line of output: {}", outcome.errors);
}

#[test]
fn status_begins_with_the_outage_of_the_origin() {
    let is_failing = Arc::new(AtomicBool::new(true));
    let origin = Origin::with_script({
        let is_failing = Arc::clone(&is_failing);
        move |_, connection| match is_failing.load(Ordering::SeqCst) {
            true => connection.close(),
            false => connection.reply("200 OK", "", b""),
        }
    });
    let gateway = TestGateway::with_rules(origin.address(), "");
    let status = || run(&["status", "--admin", &gateway.admin_address().to_string()], b"").output;
    let mut client = gateway.connect();
    assert_eq!([(); 2].map(|()| client.get("/", "").status), [502; 2]);
    let shown = status();
    let below_headline = shown.lines().skip(1).find(|line| !line.is_empty()).expect("several lines");
    assert!(below_headline.starts_with("  Origin: no response of 127.0.0.1:"), "{shown}");
    assert_eq!(gateway.state()["origin"]["outage"]["failed_requests"], 2);
    is_failing.store(false, Ordering::SeqCst);
    assert_eq!(client.get("/", "").status, 200);
    assert!(!status().contains("no response"), "{}", status());
}

#[test]
fn sigterm_drains_requests_and_completes_the_log() {
    let (origin, arrival, release) = Origin::with_held_responses("/slow");
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut gateway = start_gateway_process(dir.path(), &origin, "");
    let address = listen_address(&gateway.read_line());
    for _ in 0..200 {
        assert_eq!(request_root_status(address), 200);
    }
    let mut client = Client::connect(address);
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    arrival.wait();
    gateway.signal("TERM");
    wait_until("all listeners to be closed", || std::net::TcpStream::connect(address).is_err());
    release.notify();
    assert_eq!(client.read_response().text(), "hello");
    assert_eq!(gateway.wait_for_exit().code, 0);
    assert_eq!(log_lines(&dir.path().join("access.log")).len(), 201);
}

#[test]
fn file_descriptors_that_are_used_up_are_logged_once() {
    const MESSAGE: &str = "Cannot accept connections";
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut gateway = start_gateway_process(dir.path(), &origin, "workers: 2");
    let address = listen_address(&gateway.read_line());
    let pid = gateway.process_id().to_string();
    limit_open_files(&pid, 64);
    let clients: Vec<_> = (0..150).filter_map(|_| std::net::TcpStream::connect(address).ok()).collect();
    gateway.wait_for_error(MESSAGE);
    // Each listener of each worker tries again every 50 ms.
    pass_real_time(Duration::from_millis(500));
    drop(clients);
    // Those that wait to be accepted, though they are closed, still take the descriptor of the connection to the origin.
    wait_until("descriptors to be free", || request_root_status(address) == 200);
    gateway.signal("TERM");
    let outcome = gateway.wait_for_exit();
    assert_eq!((outcome.code, outcome.errors.matches(MESSAGE).count()), (0, 0), "{}", outcome.errors);
}

#[test]
fn lack_of_descriptors_is_no_failure_of_the_origin() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let rules = "scopes: { default: {} }\nroutes: [ { match: /old, redirect: /new } ]";
    let mut gateway = start_gateway_process(dir.path(), &origin, rules);
    let address = listen_address(&gateway.read_line());
    let pid = gateway.process_id().to_string();
    let mut client = Client::connect(address);
    assert_eq!(client.get("/old", "").status, 301, "the connection is accepted");
    limit_open_files(&pid, 3);
    for _ in 0..20 {
        let refused = client.get("/", "");
        assert_eq!(refused.status, 503);
        assert!(refused.fields.contains_key("retry-after"));
    }
    limit_open_files(&pid, 1024);
    assert_eq!(client.get("/", "").status, 200, "the origin is in no backoff");
    gateway.signal("TERM");
    let errors = gateway.wait_for_exit().errors;
    assert!(errors.contains("no connection to the origin can be opened: Too many open files"), "{errors}");
}

#[test]
fn signals_reopen_a_rotated_access_log() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let log = dir.path().join("access.log");
    let mut gateway = start_gateway_process(dir.path(), &origin, "");
    let address = listen_address(&gateway.read_line());
    for signal in ["USR1", "HUP"] {
        assert_eq!(request_root_status(address), 200);
        std::fs::rename(&log, log.with_extension(signal)).expect("log exists");
        gateway.signal(signal);
        gateway.wait_for_error("Access log reopened");
        assert_eq!(request_root_status(address), 200);
    }
    gateway.signal("TERM");
    assert_eq!(gateway.wait_for_exit().code, 0);
    // A line may be written after the rename, to the new file. No line is lost or split.
    let lines = [log.with_extension("USR1"), log.with_extension("HUP"), log.clone()].map(|file| log_lines(&file).len());
    assert_eq!(lines.iter().sum::<usize>(), 4, "{lines:?}");
    assert!(lines[2] >= 1, "the last line is in the new file: {lines:?}");
}

#[test]
fn autothrottle_debug_logs_delay_adjustments() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let rules = "scopes: { default: { autothrottle: { start_delay: 50ms, log_adjustments: true } } }";
    let mut gateway = start_gateway_process(dir.path(), &origin, rules);
    let address = listen_address(&gateway.read_line());
    assert_eq!(request_root_status(address), 200);
    gateway.wait_for_error("INFO autothrottle: Delay of default: 50ms -> ");
}

#[test]
fn sighup_reloads_config_or_logs_errors() {
    let origin = Origin::plain();
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut gateway = start_gateway_process(dir.path(), &origin, "");
    let address = listen_address(&gateway.read_line());
    assert_eq!(request_root_status(address), 200);
    write_config(dir.path(), &origin, "classes: [ { name: all, block: true } ]");
    gateway.signal("HUP");
    gateway.wait_for_error("Configuration reloaded");
    assert_eq!(request_root_status(address), 429);
    let rules = "operators: { acme: { product_tokens: AcmeBot } }\nclasses: [ { name: all, block: true } ]";
    write_config(dir.path(), &origin, rules);
    gateway.signal("HUP");
    gateway.wait_for_error(
        "WARN tidegate::service::reload: Configuration reloaded, without changes of operators: they need a restart",
    );
    write_config(dir.path(), &origin, "classes: [ { name: all, blok: true } ]");
    gateway.signal("HUP");
    gateway.wait_for_error("blok");
    assert_eq!(request_root_status(address), 429, "the old rules stay current");
    gateway.signal("INT");
    assert_eq!(gateway.wait_for_exit().code, 0);
}

#[test]
fn occupied_port_is_named_in_the_error() {
    let origin = Origin::plain();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("socket is bound").to_string();
    let url = format!("http://{}", origin.address());
    let outcome = run_with_env(&["--listen", &address, "--origin", &url], b"", &[ADMIN_ON_FREE_PORT]);
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert!(outcome.errors.contains(&format!("cannot listen on {address}")), "{}", outcome.errors);

    // A second gateway on the same port would use the quota twice.
    let mut first = Program::start_with_env(&["--listen", "127.0.0.1:0", "--origin", &url], &[ADMIN_ON_FREE_PORT]);
    let address = listen_address(&first.read_line()).to_string();
    let outcome = run_with_env(&["--listen", &address, "--origin", &url], b"", &[ADMIN_ON_FREE_PORT]);
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert!(outcome.errors.contains(&format!("cannot listen on {address}")), "{}", outcome.errors);
    first.signal("TERM");
    assert_eq!(first.wait_for_exit().code, 0);
}

#[test]
fn occupied_admin_port_error_has_a_hint() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("socket is bound").to_string();
    let arguments = ["--listen", "127.0.0.1:0", "--origin", "http://127.0.0.1:1"];
    let outcome = run_with_env(&arguments, b"", &[("TIDEGATE__ADMIN__LISTEN", &address)]);
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    for expected in [&*format!("admin.listen: cannot listen on {address}: "), "write another port", "or admin: off"] {
        assert!(outcome.errors.contains(expected), "{expected}: {}", outcome.errors);
    }
}

#[test]
fn unopenable_access_log_error_has_a_hint() {
    let arguments = ["--listen", "127.0.0.1:0", "--origin", "http://127.0.0.1:1"];
    let outcome = run_with_env(&arguments, b"", &[ADMIN_ON_FREE_PORT, ("TIDEGATE__STATE_DIR", "/dev/null/state")]);
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    for expected in ["log.access: cannot open /dev/null/state/access.log: ", "or log: { access: off }"] {
        assert!(outcome.errors.contains(expected), "{expected}: {}", outcome.errors);
    }
}

/// The admin listener on a port that no other test uses.
const ADMIN_ON_FREE_PORT: (&str, &str) = ("TIDEGATE__ADMIN__LISTEN", "127.0.0.1:0");

/// Starts the program with the configuration file in `dir`.
fn start_gateway_process(dir: &Path, origin: &Origin, rules: &str) -> Program {
    let file = write_config(dir, origin, rules);
    Program::start_with_env(&["serve", "--config", &file], &[ADMIN_ON_FREE_PORT])
}

fn write_config(dir: &Path, origin: &Origin, rules: &str) -> String {
    let file = dir.join("gate.yaml");
    let log = dir.join("access.log");
    let yaml = format!(
        "listen: 127.0.0.1:0\nstate_dir: {}\norigin: {{ url: \"http://{}\" }}\nlog: {{ access: {{ path: {} }} }}\n{rules}\n",
        dir.display(),
        origin.address(),
        log.display(),
    );
    write(&file, &yaml);
    file.display().to_string()
}

/// Sets the soft limit of open files of a process. Those that are open remain so.
fn limit_open_files(process: &str, count: u64) {
    let limited =
        std::process::Command::new("prlimit").args(["--pid", process, &format!("--nofile={count}:")]).status();
    assert!(limited.is_ok_and(|status| status.success()), "prlimit of util-linux is installed");
}

fn request_root_status(address: std::net::SocketAddr) -> u16 {
    Client::connect(address).get("/", "").status
}

/// Returns the first address in the line that the gateway prints when it is ready.
fn listen_address(ready: &str) -> std::net::SocketAddr {
    let address = ready.split("http://").nth(1).and_then(|rest| rest.split([' ', ',']).next()?.parse().ok());
    address.unwrap_or_else(|| panic!("no address in {ready:?}"))
}

fn log_lines(file: &Path) -> Vec<Value> {
    std::fs::read_to_string(file).expect("access log exists").lines().map(parse_json).collect()
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("file is writable");
}

fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Pages cost one unit. Each client has a bucket of five tokens.
const FIRST_RULES: &str = "
quotas: { api: { limit: 10, window: { fixed: 24h } } }
classes: [ { name: all, bucket: { capacity: 5, fill: 1, interval: 1h } } ]
routes: [ { match: /page, cost: { api: 1 } } ]";
