//! Administrative commands against a running gateway, with the real program on both sides.

use crate::support::client::Client;
use crate::support::origin::Origin;
use crate::support::program::{ExitOutcome, Program, run, run_with_env};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn quota_commands_show_set_reset_and_audit() {
    let fixture = AdminFixture::start_with_admin("");
    for _ in 0..2 {
        fixture.get_page("/page");
    }
    let output = fixture.command_output(&["quota", "show"]);
    assert!(
        output.starts_with("api  10 units until ") && output.contains("  25.0%  2.5 used, 0 reserved, 7.5 remaining"),
        "{output}"
    );
    assert!(output.contains("free  100 units until "), "{output}");
    assert_eq!(
        fixture.command_output(&["quota", "show", "api"]),
        output.split("\n\n").next().expect("first quota").to_owned() + "\n"
    );

    assert_eq!(fixture.command_output(&["quota", "set", "api", "9.125"]), "api: 9.125 used, 2.5 before\n");
    let refused = fixture.get_page("/page");
    assert_eq!((refused.status, &refused.json()["reason"]), (429, &json!("quota")));
    assert_eq!(fixture.command_output(&["quota", "reset", "api"]), "api: 0 used, 9.125 before\n");
    assert_eq!(fixture.get_page("/page").status, 200, "the quota is available again");

    let corrections = fixture.json_output(&["status", "--json"])["corrections"].clone();
    let correction = |index: usize| ["from", "to", "quota", "token", "by"].map(|key| corrections[index][key].clone());
    assert_eq!(correction(0), [json!(9.125), json!(0), json!("api"), json!(false), json!("ann")]);
    assert_eq!(correction(1), [json!(2.5), json!(9.125), json!("api"), json!(false), json!("ann")]);
    let status = fixture.command_output(&["status"]);
    let line = status.lines().find(|line| line.contains("9.125")).expect("status lists the correction");
    assert!(line.contains("  api ") && line.contains("  ann ") && line.ends_with("  127.0.0.1"), "{status}");

    let mut gateway = fixture.gateway;
    // Audit lines are written even at the least verbose log level.
    gateway.wait_for_error("INFO audit: Quota api corrected from 2.5 to 9.125 by ann (unverified), from 127.0.0.1:");
    gateway.wait_for_error("INFO audit: Quota api corrected from 9.125 to 0 by ann (unverified), from 127.0.0.1:");
}

#[test]
fn status_names_who_asks_for_most_and_what_shadow_mode_would_refuse() {
    let fixture = AdminFixture::start_with_admin("");
    for _ in 0..3 {
        fixture.get_page("/page?of=a-list");
    }
    for _ in 0..2 {
        Client::connect(fixture.address).get("/page", "User-Agent: GPTBot/1.0\r\n");
        Client::connect(fixture.address).get("/free", "User-Agent: GPTBot/1.0\r\n");
    }
    let state = fixture.json_output(&["status", "--json"]);
    let client = |index: usize| {
        ["kind", "requests", "refused", "units", "units_asked"]
            .map(|key| state["spenders"]["clients"][index][key].clone())
    };
    assert_eq!(client(0), [json!("human"), json!(3), json!(0), json!(3.75), json!(3.75)]);
    assert_eq!(
        client(1),
        [json!("declared_bot"), json!(2), json!(2), json!(0), json!(2.5)],
        "a free request spends nothing"
    );
    assert_eq!(state["spenders"]["clients"][1]["evidence"][0], "user_agent_match:GPTBot");
    assert_eq!(state["spenders"]["paths"][0]["name"], "/page");
    assert_eq!(state["spenders"]["networks"][0]["name"], "127.0.0.0/24");
    let decision = state["spenders"]["clients"][1]["latest_decision"].as_str().expect("an id");
    let explained = fixture.command_output(&["explain", decision]);
    assert!(explained.contains("GPTBot/1.0"), "{explained}");
    let robots = json!({"class": "robot", "admitted": 2, "refused": 2, "refused_by": {"tier": 2}, "shadow_refused": 0, "shadow_refused_by": {}});
    let traffic = |state: &Value, index: usize| {
        let mut class = state["traffic"][index].clone();
        // Bytes and latency differ from run to run.
        class.as_object_mut().expect("an object").remove("responses");
        class
    };
    assert_eq!(traffic(&state, 0), robots);
    assert_eq!(state["traffic"][0]["responses"]["statuses"], json!({ "2xx": 2, "429": 2 }));

    let top = fixture.command_output(&["status", "--top"]);
    let rows: Vec<Vec<&str>> = top.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        &["127.0.0.1", "human", "3", "0", "3.75", "3.75"][..],
        &["127.0.0.1", "declared", "bot", "2", "2", "0", "2.5"],
        &["GPTBot/1.0", "2", "2", "0", "2.5"],
    ] {
        assert!(rows.iter().any(|shown| shown == row), "{row:?} is missing in\n{top}");
    }

    // The quota `free` is not enforced: what it would refuse is counted by class.
    fixture.command_output(&["quota", "set", "free", "100"]);
    fixture.get_page("/metered");
    let state = fixture.json_output(&["status", "--json"]);
    let person = json!({"class": "person", "admitted": 4, "refused": 0, "refused_by": {}, "shadow_refused": 1, "shadow_refused_by": {"quota": 1}});
    assert_eq!(traffic(&state, 1), person);
    let status = fixture.command_output(&["status"]);
    assert!(status.contains("  in shadow  mostly by\n"), "{status}");
}

#[test]
fn json_of_a_hostile_client_changes_nothing_in_a_terminal() {
    let fixture = AdminFixture::start_with_admin("");
    let agent = "Evil\u{9b}2J\u{202e}gpj";
    Client::connect(fixture.address).get("/page", &format!("User-Agent: {agent}\r\n"));
    let spenders = |state: &Value| state["spenders"]["user_agents"].clone();
    let printed = fixture.command_output(&["status", "--json"]);
    assert!(printed.contains("Evil\\u009b2J\\u202egpj") && !printed.contains(['\u{9b}', '\u{202e}']), "{printed:?}");
    let state: Value = serde_json::from_str(&printed).expect("output is JSON");
    assert_eq!(spenders(&state)[0]["name"], agent);
    assert_eq!(spenders(&state), spenders(&fixture.admin_api_json("GET /api/v1/state")), "the same value");
}

#[test]
fn switch_commands_block_and_end_with_audit() {
    let fixture = AdminFixture::start_with_admin("");
    let set = fixture.command_output(&["block", "127.0.0.1", "--for", "1h", "--why", "a test"]);
    assert!(set.starts_with("127.0.0.1/32: block until 2"), "{set}");
    assert_eq!(fixture.get_page("/page").json()["reason"], "blocked");
    let status = fixture.command_output(&["status"]);
    assert!(status.contains("  Switch: block 127.0.0.1/32 until ") && status.contains(": a test (ann)\n"), "{status}");
    assert_eq!(fixture.command_output(&["block", "127.0.0.1", "--end"]), "127.0.0.1/32: switched off\n");
    assert_eq!(fixture.get_page("/page").status, 200);

    let except = ["--except", "127.0.0.0/8", "--except", "::1"];
    let on = fixture.command_output(&[&["maintenance", "on"], &except[..]].concat());
    assert_eq!(on, "maintenance: on, except 127.0.0.0/8, ::1\n");
    assert_eq!(fixture.get_page("/page").status, 200);
    fixture.command_output(&["maintenance", "on"]);
    assert_eq!(fixture.get_page("/page").json()["reason"], "maintenance");
    assert_eq!(fixture.command_output(&["maintenance", "off"]), "maintenance: switched off\n");

    for (arguments, error) in [
        (&["block", "nobody", "--for", "1h", "--why", "a test"][..], "target: found \"nobody\"; give an address"),
        (&["allow", "127.0.0.1", "--for", "31d", "--why", "a test"], "command line: invalid value '31d' for '--for"),
        (&["block", "127.0.0.1", "--end"], "target: no switch of 127.0.0.1/32 is in effect"),
        (
            &["block", "127.0.0.1", "--for", "1h"],
            "command line: the following required arguments were not provided: --why",
        ),
        (&["block", "127.0.0.1", "--for", "soon", "--why", "a test"], "command line: invalid value 'soon' for '--for"),
    ] {
        let outcome = fixture.run(arguments);
        assert!(outcome.code == 2 && outcome.errors.starts_with(error), "{arguments:?}: {}", outcome.errors);
    }
    let mut gateway = fixture.gateway;
    gateway.wait_for_error("INFO audit: Switch of 127.0.0.1/32: block until ");
    gateway.wait_for_error("INFO audit: Switch of 127.0.0.1/32: off, by ann (unverified)");
}

#[test]
fn audit_log_has_log_ins_and_wrong_tokens() {
    let fixture = AdminFixture::start_with_admin(", token: open-sesame-open-sesame");
    let send = |method: &str, path: &str, fields: &str, body: &str| {
        let mut client = Client::connect(fixture.admin);
        let length = body.len();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{fields}Content-Length: {length}\r\n\r\n{body}",
            fixture.admin
        ));
        client.read_response()
    };
    let log_in = |token: &str| send("POST", "/api/v1/session", "", &format!("{{\"token\": \"{token}\"}}"));
    for wrong in ["open-sesame-open-sesamf", "open-sesame"] {
        assert_eq!(log_in(wrong).status, 401);
        assert_eq!(send("GET", "/api/v1/state", &format!("Authorization: Bearer {wrong}\r\n"), "").status, 401);
    }
    let opened = log_in("open-sesame-open-sesame");
    let cookie = opened.field("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let cookie = format!("Cookie: {cookie}\r\n");
    assert_eq!(send("POST", "/api/v1/reload", &cookie, "").status, 200);
    assert_eq!(send("DELETE", "/api/v1/session", &cookie, "").status, 200);
    let mut gateway = fixture.gateway;
    for line in [
        "WARN audit: Wrong admin token from 127.0.0.1 ",
        "INFO audit: Log-in to the live page from 127.0.0.1:",
        "INFO audit: Configuration reload requested from 127.0.0.1:",
        "INFO audit: Log-out from the live page from 127.0.0.1:",
    ] {
        gateway.wait_for_error(line);
    }
    let wrong = gateway.error_lines().iter().filter(|line| line.contains("Wrong admin token"));
    assert_eq!(wrong.count(), 1, "once a minute: {:?}", gateway.error_lines());
}

#[test]
fn invalid_quota_commands_change_nothing() {
    let fixture = AdminFixture::start_with_admin("");
    let unknown = "quota: unknown name \"apy\"; known: api, free";
    for (arguments, expected) in [
        (&["quota", "show", "apy"][..], vec![unknown]),
        (&["quota", "reset", "apy"], vec![unknown]),
        (
            &["quota", "set", "apy", "many"],
            vec![unknown, "used: found \"many\"; give a number of at least 0, such as 12 or 0.25"],
        ),
        (
            &["quota", "set", "api", "many"],
            vec!["used: found \"many\"; give a number from 0 to 10, such as 12 or 0.25"],
        ),
        (&["quota", "set", "api", "-1"], vec!["used: found \"-1\"; give a number from 0 to 10, such as 12 or 0.25"]),
        (&["quota", "set", "api", "10.001"], vec!["used: 10.001 exceeds the limit; give a number from 0 to 10"]),
    ] {
        let outcome = fixture.run(arguments);
        assert_eq!((outcome.code, outcome.output.as_str()), (2, ""), "{arguments:?}");
        assert_eq!(outcome.errors.lines().collect::<Vec<_>>(), expected, "{arguments:?}");
    }
    assert_eq!(fixture.json_output(&["quota", "show", "api", "--json"])["used"], 0);
    assert_eq!(
        fixture.command_output(&["quota", "set", "free", "1000"]),
        "free: 1,000 used, 0 before\n",
        "a quota that is not enforced may exceed its limit"
    );
    for arguments in [&["quota"][..], &["quota", "set", "api"], &["quota", "reset"], &["status", "now"]] {
        assert_eq!(run(arguments, b"").code, 2, "{arguments:?}");
    }
}

#[test]
fn json_output_equals_admin_api_response() {
    let fixture = AdminFixture::start_with_admin("");
    fixture.get_page("/page");
    for (arguments, endpoint) in [
        (&["quota", "show", "--json"][..], "GET /api/v1/quotas"),
        (&["quota", "show", "api", "--json"], "GET /api/v1/quotas/api"),
        (&["status", "--json"], "GET /api/v1/state"),
    ] {
        let (mut printed, mut api_response) = (fixture.json_output(arguments), fixture.admin_api_json(endpoint));
        // Members that change between two requests.
        for changes in [&mut printed, &mut api_response] {
            remove_members(changes, &["time", "uptime_s", "window_ends_in_s", "connections"]);
        }
        assert_eq!(printed, api_response, "{endpoint}");
    }
    let set = fixture.json_output(&["quota", "set", "api", "3", "--json"]);
    assert_eq!(set, json!({"name": "api", "from": 1.25, "to": 3}));
    assert_eq!(fixture.json_output(&["quota", "reset", "api", "--json"]), json!({"name": "api", "from": 3, "to": 0}));
}

#[test]
fn status_shows_listeners_usage_and_failed_reload() {
    let mut fixture = AdminFixture::start_with_admin("");
    for _ in 0..3 {
        let robot = "User-Agent: curl/8.0\r\n";
        Client::connect(fixture.address).get("/page", robot);
    }
    let status = fixture.command_output(&["status"]);
    let origin = format!("  origin         {}\n", fixture.origin.address());
    for expected in [
        &format!("tidegate {}, up ", env!("CARGO_PKG_VERSION")),
        &format!("\n  listening on   {}\n", fixture.address),
        &format!("\n  admin          {}\n", fixture.admin),
        &origin,
        "\n  config loaded  ",
        "\napi  10 units until ",
        "\n  robot                     0  all, tier 1\n",
        "\nscopes of the origin\n  scope    in flight  queued  delay  state\n  default          0       -      -  -\n",
        "\nmost refused clients\n  key        class  refused  tokens left  state\n  127.0.0.1  robot        3            -  -\n",
    ] {
        assert!(status.contains(expected), "no {expected:?} in\n{status}");
    }
    assert!(status.lines().all(|line| line.chars().count() <= 80) && !status.contains('\x1b'), "{status}");

    write(&fixture.file, &fixture.yaml.replace("limit: 10,", "limit: -10,"));
    fixture.gateway.signal("HUP");
    fixture.gateway.wait_for_error("Configuration reload failed");
    // The invalid file still contains the address of the gateway.
    let status = fixture.command_output(&["status"]);
    assert!(status.contains("  Reload failed at ") && status.contains("quotas.api.limit: found -10"), "{status}");
    write(&fixture.file, &fixture.yaml);
    assert_eq!(fixture.admin_api_json("POST /api/v1/reload")["reloaded"], true);
    assert!(!fixture.command_output(&["status"]).contains("Reload failed"));
}

#[test]
fn admin_commands_require_the_token() {
    let fixture = AdminFixture::start_with_admin(", token: '${GATE_TOKEN}'");
    let admin = fixture.admin.to_string();
    let token_file = fixture.dir.path().join("token");
    std::fs::write(&token_file, "open-sesame-open-sesame\n").expect("file is writable");
    let token_file = token_file.display().to_string();
    let file = fixture.file.as_str();

    let right = [
        (vec!["status", "--config", file], vec![("GATE_TOKEN", "open-sesame-open-sesame")]),
        (vec!["status", "--admin", &admin, "--token-file", &token_file], vec![]),
        (vec!["status", "--admin", &admin], vec![("TIDEGATE_ADMIN_TOKEN", "open-sesame-open-sesame")]),
    ];
    for (arguments, environment) in right {
        let outcome = run_with_env(&arguments, b"", &environment);
        assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{arguments:?}");
    }
    let refused = format!("{admin}: the admin token is missing or wrong; ");
    let cases = [
        (vec!["status", "--config", file], vec![("GATE_TOKEN", "open-sesame-open-sesam")], refused.as_str()),
        (vec!["quota", "reset", "api", "--admin", &admin], vec![("TIDEGATE_ADMIN_TOKEN", "open")], &refused),
        (vec!["quota", "show", "--admin", &admin], vec![], &refused),
        (vec!["status", "--config", file], vec![], "environment variable GATE_TOKEN is not set; set GATE_TOKEN"),
        (
            vec!["status", "--admin", &admin, "--token-file", "/no/such"],
            vec![],
            "--token-file /no/such: cannot be read",
        ),
        (vec!["status", "--token-file", &token_file], vec![], "--admin <ADDR>"),
        (vec!["status", "--admin", &admin, "--config", file], vec![], "found --admin and --config; name one of them"),
    ];
    for (arguments, environment, error) in cases {
        let outcome = run_with_env(&arguments, b"", &environment);
        assert_eq!((outcome.code, outcome.output.as_str()), (2, ""), "{arguments:?}: {}", outcome.errors);
        assert!(outcome.errors.contains(error), "{arguments:?}: {}", outcome.errors);
    }
    let environment = [("GATE_TOKEN", "open-sesame-open-sesame")];
    let set = run_with_env(&["quota", "set", "api", "1", "--config", file], b"", &environment);
    assert_eq!(set.output, "api: 1 used, 0 before\n", "{}", set.errors);
    let mut gateway = fixture.gateway;
    gateway.wait_for_error(", with the token ");
}

#[test]
fn unreachable_gateway_fails_with_a_hint() {
    let unused_address = Origin::unreachable().to_string();
    let outcome = run(&["status", "--admin", &unused_address], b"");
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""));
    assert!(
        outcome.errors.starts_with(&format!("tidegate: no gateway reachable at {unused_address}: ")),
        "{}",
        outcome.errors
    );
    assert!(
        outcome.errors.contains("; start the gateway with `tidegate serve`, or set the address"),
        "{}",
        outcome.errors
    );

    let fixture = AdminFixture::start_with_admin("");
    let client_address = fixture.address.to_string();
    let outcome = run(&["quota", "show", "--admin", &client_address], b"");
    assert_eq!((outcome.code, outcome.output.as_str()), (1, ""), "the client port does not serve the admin API");
    assert!(outcome.errors.contains("check admin.listen"), "{}", outcome.errors);

    let config_without_admin = fixture.dir.path().join("plain.yaml");
    std::fs::write(&config_without_admin, "admin: off\norigin: { url: http://127.0.0.1:1 }\n")
        .expect("file is writable");
    let config_without_admin = config_without_admin.display().to_string();
    for (arguments, error) in [
        (
            &["status", "--config", &config_without_admin][..],
            "admin: found off; remove the line for the default 127.0.0.1:9090",
        ),
        (&["status", "--config", "no/such.yaml"], "no/such.yaml: cannot be read: "),
        (&["status", "--admin", "somewhere"], "--admin: found no port in \"somewhere\"; write it like 127.0.0.1:9090"),
    ] {
        let outcome = run(arguments, b"");
        assert_eq!((outcome.code, outcome.output.as_str()), (2, ""), "{arguments:?}");
        assert!(outcome.errors.contains(error), "{arguments:?}: {}", outcome.errors);
    }
    // Like `serve` without a file, when the environment is sufficient.
    let outcome = run_with_env(&["quota", "show"], b"", &[("TIDEGATE__ADMIN__LISTEN", &fixture.admin.to_string())]);
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
}

/// Errors in user input are printed as `LOCATION: error; hint` with exit code 2, for every command. Other failures are
/// printed as `tidegate: error` with exit code 1.
#[test]
fn all_commands_use_one_error_format() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (yaml, log, truncated, missing) = (at("gate.yaml"), at("access.log"), at("cut.log.gz"), at("no/such"));
    let tiers = "tiers: { bot: [ { above: 0%, shed: 50% } ] }";
    let settings =
        format!("quotas: {{ api: {{ limit: 10, window: {{ fixed: 1h }}, {tiers} }} }}\nclasses: [ {{ name: bot }} ]");
    write(&yaml, &format!("origin: {{ url: http://127.0.0.1:1 }}\n{settings}\n"));
    write(&log, "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 5\n");
    write(at("wrong.yaml"), "quotas: 1\norigin: { url: http://127.0.0.1:1 }\n");
    // A truncated gzip header.
    std::fs::write(&truncated, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 75]).expect("file is writable");
    let line = |file: &str| format!("{file}:1");
    let goal = ["--goal", "unused <= 1 %"];

    let mut cases: Vec<(Vec<&str>, String)> = Vec::new();
    let (missing_line, truncated_line, first_line, invalid_yaml) =
        (line(&missing), line(&truncated), line(&log), at("wrong.yaml"));
    for (path, error) in [(&missing, "cannot be read: No such file"), (&invalid_yaml, "quotas: found 1, needs names")] {
        for command in [
            &["serve", "--config", path][..],
            &["check", path],
            &["replay", "--config", path, &log],
            &["replay", "--config", &yaml, "--compare", path, &log],
            &["tune", goal[0], goal[1], "--config", path, &log],
            &["learn", "--config", path, &log],
            &["explain", "--config", path, "--ip", "192.0.2.1", "/a"],
            &["explain", "--config", path, "--log", &first_line],
            &["classify", "--config", path],
        ] {
            cases.push((command.to_vec(), format!("{path}{}: {error}", if *path == missing { "" } else { ":1:9" })));
        }
    }
    for (log, log_line, error) in
        [(&missing, &missing_line, "No such file"), (&truncated, &truncated_line, "incomplete deflate stream")]
    {
        for command in [
            &["replay", "--config", &yaml, log][..],
            &["tune", goal[0], goal[1], "--config", &yaml, log],
            &["learn", "--config", &yaml, log],
            &["init", log],
            &["explain", "--config", &yaml, "--log", log_line],
        ] {
            cases.push((command.to_vec(), format!("{log}: cannot be read: {error}")));
        }
    }
    for command in [&["status"][..], &["quota", "show"], &["explain", "0123456789abcdef"]] {
        cases.push(([command, &["--config", &missing]].concat(), format!("{missing}: cannot be read: No such file")));
    }
    let missing_output = at("no/such/file");
    for command in [&["demo", "--log"][..], &["replay", "--config", &yaml, &log, "--json"]] {
        cases.push((
            [command, &[&missing_output]].concat(),
            format!("{missing_output}: cannot be written: No such file"),
        ));
    }
    for (arguments, error) in cases {
        let outcome = run(&arguments, b"");
        assert_eq!((outcome.code, outcome.output.as_str()), (2, ""), "{arguments:?}: {}", outcome.errors);
        assert!(
            outcome.errors.starts_with(&error) && outcome.errors.contains("; "),
            "{arguments:?}: {}",
            outcome.errors
        );
    }

    let unused_address = Origin::unreachable().to_string();
    for command in [&["status"][..], &["quota", "show"], &["explain", "0123456789abcdef"]] {
        let outcome = run(&[command, &["--admin", &unused_address]].concat(), b"");
        assert_eq!((outcome.code, outcome.output.as_str()), (1, ""), "{command:?}");
        assert!(outcome.errors.starts_with("tidegate: no gateway reachable at "), "{}", outcome.errors);
    }
}

/// Without a file argument, each command reads `tidegate.yaml`, or else `config/tidegate.yaml`.
#[test]
fn all_commands_share_the_config_search_path() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let run_in_dir = |arguments: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let outcome = program.args(arguments).current_dir(dir.path()).output().expect("program was built");
        (outcome.status.code(), String::from_utf8_lossy(&outcome.stderr).into_owned())
    };
    write(dir.path().join("access.log"), "nothing\n");
    let rule_commands = [
        &["serve"][..],
        &["check"],
        &["replay", "access.log"],
        &["tune", "--goal", "unused <= 1 %", "access.log"],
        &["learn", "access.log"],
        &["explain", "--ip", "192.0.2.1", "/a"],
        &["explain", "--log", "access.log:1"],
    ];
    // These commands need only the admin listener, which has a default address.
    let admin_commands = [&["explain", "0123456789abcdef"][..], &["status"], &["quota", "show"]];
    let all_commands = [&rule_commands[..], &admin_commands].concat();
    let assert_errors = |commands: &[&[&str]], expected: &str| {
        for command in commands {
            let (code, errors) = run_in_dir(command);
            assert!(code == Some(2) && errors.starts_with(expected), "{command:?}: {errors}");
        }
    };
    assert_errors(
        &rule_commands,
        "no configuration file: found neither tidegate.yaml nor config/tidegate.yaml; set one",
    );
    std::fs::create_dir(dir.path().join("config")).expect("path is free");
    write(dir.path().join("config/tidegate.yaml"), "admin: 1\norigin: { url: http://127.0.0.1:1 }\n");
    assert_errors(&all_commands, "config/tidegate.yaml:1:8: admin: ");
    write(dir.path().join("tidegate.yaml"), "\nadmin: 1\norigin: { url: http://127.0.0.1:1 }\n");
    assert_errors(&all_commands, "tidegate.yaml:2:8: admin: ");
}

/// A gateway in its own process, with an origin and a configuration file.
struct AdminFixture {
    gateway: Program,
    origin: Origin,
    dir: tempfile::TempDir,
    file: String,
    yaml: String,
    address: std::net::SocketAddr,
    admin: std::net::SocketAddr,
}

impl AdminFixture {
    /// Starts the gateway with additional settings in the `admin` section.
    fn start_with_admin(admin: &str) -> Self {
        let origin = Origin::plain();
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("gate.yaml").display().to_string();
        let yaml = |port: u16| {
            format!(
                "listen: 127.0.0.1:0\nadmin: {{ listen: '127.0.0.1:{port}'{admin} }}\nstate_dir: {}\nlog: {{ level: error }}\n\
                 origin: {{ url: 'http://{}' }}\n{RULES}",
                dir.path().display(),
                origin.address(),
            )
        };
        write(&file, &yaml(0));
        let mut gateway =
            Program::start_with_env(&["serve", "--config", &file], &[("GATE_TOKEN", "open-sesame-open-sesame")]);
        let ready = gateway.read_line();
        let addresses: Vec<_> = ready.split("http://").skip(1).map(|rest| rest.split([' ', ',']).next()).collect();
        let address = |index: usize| addresses[index].and_then(|text| text.parse().ok()).expect("an address");
        let (address, admin): (_, std::net::SocketAddr) = (address(0), address(2));
        // The port is known now: write it to the file.
        let yaml = yaml(admin.port());
        write(&file, &yaml);
        Self { gateway, origin, dir, file, yaml, address, admin }
    }

    fn get_page(&self, path: &str) -> crate::support::client::Response {
        Client::connect(self.address).get(path, "")
    }

    /// Runs a command with the gateway's configuration file, as user `ann`.
    fn run(&self, arguments: &[&str]) -> ExitOutcome {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--config", &self.file]).collect();
        run_with_env(&arguments, b"", &[("SUDO_USER", "ann")])
    }

    /// Returns the output of a command that must succeed.
    fn command_output(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{arguments:?}");
        outcome.output
    }

    fn json_output(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.command_output(arguments)).expect("output is JSON")
    }

    /// Returns the response of the admin API.
    fn admin_api_json(&self, request_line: &str) -> Value {
        let request = format!("{request_line} HTTP/1.1\r\nHost: {}\r\n\r\n", self.admin);
        Client::connect(self.admin).send(request).read_response().json()
    }
}

/// Removes members at any depth.
fn remove_members(value: &mut Value, members: &[&str]) {
    match value {
        Value::Object(object) => {
            members.iter().for_each(|member| drop(object.remove(*member)));
            object.values_mut().for_each(|child| remove_members(child, members));
        }
        Value::Array(items) => items.iter_mut().for_each(|child| remove_members(child, members)),
        _ => {}
    }
}

fn write(file: impl AsRef<Path>, text: &str) {
    std::fs::write(file, text).expect("file is writable");
}

const RULES: &str = "
quotas:
  api: { limit: 10, window: { fixed: 7d }, tiers: { robot: [ { above: 0%, shed: 100% } ] } }
  free: { limit: 100, window: { fixed: 7d }, enforce: false }
classes: [ { name: robot, when: { kind: declared_bot } }, { name: person } ]
routes: [ { match: /page, cost: { api: 1.25 } }, { match: /metered, cost: { free: 1 } } ]
";
