//! Administrative commands against a running gateway, with the real program on both sides.

use crate::support::client::Client;
use crate::support::origin::Origin;
use crate::support::program::{ExitOutcome, Program, run, run_with_env};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;

#[test]
fn quota_commands_show_set_reset_and_audit() {
    let site = AdminFixture::start_with_admin("");
    for _ in 0..2 {
        site.get_page("/page");
    }
    let shown = site.command_output(&["quota", "show"]);
    assert!(
        shown.starts_with("api  10 units until ") && shown.contains("  25.0%  2.5 used, 0 reserved, 7.5 remaining"),
        "{shown}"
    );
    assert!(shown.contains("free  100 units until "), "{shown}");
    assert_eq!(
        site.command_output(&["quota", "show", "api"]),
        shown.split("\n\n").next().expect("first quota").to_owned() + "\n"
    );

    assert_eq!(site.command_output(&["quota", "set", "api", "9.125"]), "api: 9.125 used, 2.5 before\n");
    let refused = site.get_page("/page");
    assert_eq!((refused.status, &refused.json()["reason"]), (429, &json!("quota")));
    assert_eq!(site.command_output(&["quota", "reset", "api"]), "api: 0 used, 9.125 before\n");
    assert_eq!(site.get_page("/page").status, 200, "the quota is available again");

    let corrections = site.json_output(&["status", "--json"])["corrections"].clone();
    let told = |place: usize| ["from", "to", "quota", "token", "by"].map(|key| corrections[place][key].clone());
    assert_eq!(told(0), [json!(9.125), json!(0), json!("api"), json!(false), json!("ann")]);
    assert_eq!(told(1), [json!(2.5), json!(9.125), json!("api"), json!(false), json!("ann")]);
    let status = site.command_output(&["status"]);
    let line = status.lines().find(|line| line.contains("9.125")).expect("status lists the correction");
    assert!(line.contains("  api ") && line.contains("  ann ") && line.ends_with("  127.0.0.1"), "{status}");

    let mut gate = site.gate;
    // Audit lines are written even at the least verbose log level.
    gate.wait_for_error("INFO audit: Quota api corrected from 2.5 to 9.125 by ann (unverified), from 127.0.0.1:");
    gate.wait_for_error("INFO audit: Quota api corrected from 9.125 to 0 by ann (unverified), from 127.0.0.1:");
}

#[test]
fn invalid_quota_commands_change_nothing() {
    let site = AdminFixture::start_with_admin("");
    let unknown = "quota: unknown name \"apy\"; known: api, free";
    for (arguments, told) in [
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
        let ended = site.run(arguments);
        assert_eq!((ended.code, ended.output.as_str()), (2, ""), "{arguments:?}");
        assert_eq!(ended.errors.lines().collect::<Vec<_>>(), told, "{arguments:?}");
    }
    assert_eq!(site.json_output(&["quota", "show", "api", "--json"])["used"], 0);
    assert_eq!(
        site.command_output(&["quota", "set", "free", "1000"]),
        "free: 1,000 used, 0 before\n",
        "a quota that is not enforced may exceed its limit"
    );
    for arguments in [&["quota"][..], &["quota", "set", "api"], &["quota", "reset"], &["status", "now"]] {
        assert_eq!(run(arguments, b"").code, 2, "{arguments:?}");
    }
}

#[test]
fn json_output_equals_admin_api_response() {
    let site = AdminFixture::start_with_admin("");
    site.get_page("/page");
    for (arguments, asked) in [
        (&["quota", "show", "--json"][..], "GET /api/v1/quotas"),
        (&["quota", "show", "api", "--json"], "GET /api/v1/quotas/api"),
        (&["status", "--json"], "GET /api/v1/state"),
    ] {
        let (mut told, mut said) = (site.json_output(arguments), site.admin_api_json(asked));
        // Members that change between two requests.
        for changes in [&mut told, &mut said] {
            remove_members(changes, &["time", "uptime_s", "window_ends_in_s", "connections"]);
        }
        assert_eq!(told, said, "{asked}");
    }
    let set = site.json_output(&["quota", "set", "api", "3", "--json"]);
    assert_eq!(set, json!({"name": "api", "from": 1.25, "to": 3}));
    assert_eq!(site.json_output(&["quota", "reset", "api", "--json"]), json!({"name": "api", "from": 3, "to": 0}));
}

#[test]
fn status_shows_listeners_usage_and_failed_reload() {
    let mut site = AdminFixture::start_with_admin("");
    for _ in 0..3 {
        let robot = "User-Agent: curl/8.0\r\n";
        Client::connect(site.address).get("/page", robot);
    }
    let status = site.command_output(&["status"]);
    let origin = format!("  origin         {}\n", site.origin.address());
    for part in [
        &format!("tidegate {}, up ", env!("CARGO_PKG_VERSION")),
        &format!("\n  listening on   {}\n", site.address),
        &format!("\n  admin          {}\n", site.admin),
        &origin,
        "\n  config loaded  ",
        "\napi  10 units until ",
        "\n  robot                     0  all, tier 1\n",
        "\nscopes of the origin\n  scope    in flight  queued  delay  state\n  default          0       -      -  -\n",
        "\nmost refused clients\n  key        class  refused  tokens left  state\n  127.0.0.1  robot        3            -  -\n",
    ] {
        assert!(status.contains(part), "no {part:?} in\n{status}");
    }
    assert!(status.lines().all(|line| line.chars().count() <= 80) && !status.contains('\x1b'), "{status}");

    write(&site.file, &site.yaml.replace("limit: 10,", "limit: -10,"));
    site.gate.signal("HUP");
    site.gate.wait_for_error("Configuration reload failed");
    // The invalid file still contains the address of the gateway.
    let status = site.command_output(&["status"]);
    assert!(status.contains("  Reload failed at ") && status.contains("quotas.api.limit: found -10"), "{status}");
    write(&site.file, &site.yaml);
    assert_eq!(site.admin_api_json("POST /api/v1/reload")["reloaded"], true);
    assert!(!site.command_output(&["status"]).contains("Reload failed"));
}

#[test]
fn admin_commands_require_the_token() {
    let site = AdminFixture::start_with_admin(", token: '${GATE_TOKEN}'");
    let admin = site.admin.to_string();
    let token_file = site.folder.path().join("token");
    std::fs::write(&token_file, "sesame\n").expect("file is writable");
    let token_file = token_file.display().to_string();
    let file = site.file.as_str();

    let right = [
        (vec!["status", "--config", file], vec![("GATE_TOKEN", "sesame")]),
        (vec!["status", "--admin", &admin, "--token-file", &token_file], vec![]),
        (vec!["status", "--admin", &admin], vec![("TIDEGATE_ADMIN_TOKEN", "sesame")]),
    ];
    for (arguments, environment) in right {
        let ended = run_with_env(&arguments, b"", &environment);
        assert_eq!((ended.code, ended.errors.as_str()), (0, ""), "{arguments:?}");
    }
    let refused = format!("{admin}: the admin token is missing or wrong; ");
    let wrong = [
        (vec!["status", "--config", file], vec![("GATE_TOKEN", "open")], refused.as_str()),
        (vec!["quota", "reset", "api", "--admin", &admin], vec![("TIDEGATE_ADMIN_TOKEN", "open")], &refused),
        (vec!["quota", "show", "--admin", &admin], vec![], &refused),
        (vec!["status", "--config", file], vec![], "environment variable GATE_TOKEN is not set; set GATE_TOKEN"),
        (
            vec!["status", "--admin", &admin, "--token-file", "/no/such"],
            vec![],
            "--token-file /no/such: cannot be read",
        ),
        (vec!["status", "--token-file", &token_file], vec![], "--admin <ADDR>"),
        (vec!["status", "--admin", &admin, "--config", file], vec![], "cannot be used with"),
    ];
    for (arguments, environment, told) in wrong {
        let ended = run_with_env(&arguments, b"", &environment);
        assert_eq!((ended.code, ended.output.as_str()), (2, ""), "{arguments:?}: {}", ended.errors);
        assert!(ended.errors.contains(told), "{arguments:?}: {}", ended.errors);
    }
    let environment = [("GATE_TOKEN", "sesame")];
    let set = run_with_env(&["quota", "set", "api", "1", "--config", file], b"", &environment);
    assert_eq!(set.output, "api: 1 used, 0 before\n", "{}", set.errors);
    let mut gate = site.gate;
    gate.wait_for_error(", with the token ");
}

#[test]
fn unreachable_gateway_fails_with_a_hint() {
    let nobody =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("socket is bound").to_string();
    let ended = run(&["status", "--admin", &nobody], b"");
    assert_eq!((ended.code, ended.output.as_str()), (1, ""));
    assert!(ended.errors.starts_with(&format!("tidegate: no gateway reachable at {nobody}: ")), "{}", ended.errors);
    assert!(ended.errors.contains("; start the gateway with `tidegate serve`, or set the address"), "{}", ended.errors);

    let site = AdminFixture::start_with_admin("");
    let clients = site.address.to_string();
    let ended = run(&["quota", "show", "--admin", &clients], b"");
    assert_eq!((ended.code, ended.output.as_str()), (1, ""), "the client port does not serve the admin API");
    assert!(ended.errors.contains("check admin.listen"), "{}", ended.errors);

    let no_listener = site.folder.path().join("plain.yaml");
    std::fs::write(&no_listener, "admin: off\norigin: { url: http://127.0.0.1:1 }\n").expect("file is writable");
    let no_listener = no_listener.display().to_string();
    for (arguments, told) in [
        (&["status", "--config", &no_listener][..], "admin: found off; remove the line for the default 127.0.0.1:9090"),
        (&["status", "--config", "no/such.yaml"], "no/such.yaml: cannot be read: "),
        (&["status", "--admin", "somewhere"], "--admin: found no port in \"somewhere\"; write it like 127.0.0.1:9090"),
    ] {
        let ended = run(arguments, b"");
        assert_eq!((ended.code, ended.output.as_str()), (2, ""), "{arguments:?}");
        assert!(ended.errors.contains(told), "{arguments:?}: {}", ended.errors);
    }
    // Like `serve` without a file, when the environment is sufficient.
    let ended = run_with_env(&["quota", "show"], b"", &[("TIDEGATE__ADMIN__LISTEN", &site.admin.to_string())]);
    assert_eq!((ended.code, ended.errors.as_str()), (0, ""));
}

/// Errors in user input are printed as `LOCATION: error; hint` with exit code 2, for every command. Other failures are
/// printed as `tidegate: error` with exit code 1.
#[test]
fn all_commands_use_one_error_format() {
    let folder = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (yaml, log, cut, nowhere) = (at("gate.yaml"), at("access.log"), at("cut.log.gz"), at("no/such"));
    let tiers = "tiers: { bot: [ { above: 0%, shed: 50% } ] }";
    let site =
        format!("quotas: {{ api: {{ limit: 10, window: {{ fixed: 1h }}, {tiers} }} }}\nclasses: [ {{ name: bot }} ]");
    write(&yaml, &format!("origin: {{ url: http://127.0.0.1:1 }}\n{site}\n"));
    write(&log, "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 5\n");
    write(at("wrong.yaml"), "quotas: 1\norigin: { url: http://127.0.0.1:1 }\n");
    // A truncated gzip header.
    std::fs::write(&cut, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 75]).expect("file is writable");
    let line = |file: &str| format!("{file}:1");
    let goal = ["--goal", "unused <= 1 %"];

    let mut wrong: Vec<(Vec<&str>, String)> = Vec::new();
    let (no_line, cut_line, one, wrong_yaml) = (line(&nowhere), line(&cut), line(&log), at("wrong.yaml"));
    for (place, told) in [(&nowhere, "cannot be read: No such file"), (&wrong_yaml, "quotas: found 1, needs names")] {
        for command in [
            &["serve", "--config", place][..],
            &["check", place],
            &["replay", "--config", place, &log],
            &["replay", "--config", &yaml, "--compare", place, &log],
            &["tune", goal[0], goal[1], "--config", place, &log],
            &["explain", "--config", place, "--ip", "192.0.2.1", "/a"],
            &["explain", "--config", place, "--log", &one],
            &["classify", "--config", place],
        ] {
            wrong.push((command.to_vec(), format!("{place}{}: {told}", if *place == nowhere { "" } else { ":1:9" })));
        }
    }
    for (log, place, told) in [(&nowhere, &no_line, "No such file"), (&cut, &cut_line, "incomplete deflate stream")] {
        for command in [
            &["replay", "--config", &yaml, log][..],
            &["tune", goal[0], goal[1], "--config", &yaml, log],
            &["init", log],
            &["explain", "--config", &yaml, "--log", place],
        ] {
            wrong.push((command.to_vec(), format!("{log}: cannot be read: {told}")));
        }
    }
    for command in [&["status"][..], &["quota", "show"], &["explain", "0123456789abcdef"]] {
        wrong.push(([command, &["--config", &nowhere]].concat(), format!("{nowhere}: cannot be read: No such file")));
    }
    let into_nowhere = at("no/such/file");
    for command in [&["demo", "--log"][..], &["replay", "--config", &yaml, &log, "--json"]] {
        wrong.push(([command, &[&into_nowhere]].concat(), format!("{into_nowhere}: cannot be written: No such file")));
    }
    for (arguments, told) in wrong {
        let ended = run(&arguments, b"");
        assert_eq!((ended.code, ended.output.as_str()), (2, ""), "{arguments:?}: {}", ended.errors);
        assert!(ended.errors.starts_with(&told) && ended.errors.contains("; "), "{arguments:?}: {}", ended.errors);
    }

    let nobody =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("socket is bound").to_string();
    for command in [&["status"][..], &["quota", "show"], &["explain", "0123456789abcdef"]] {
        let ended = run(&[command, &["--admin", &nobody]].concat(), b"");
        assert_eq!((ended.code, ended.output.as_str()), (1, ""), "{command:?}");
        assert!(ended.errors.starts_with("tidegate: no gateway reachable at "), "{}", ended.errors);
    }
}

/// Without a file argument, each command reads `tidegate.yaml`, or else `config/tidegate.yaml`.
#[test]
fn all_commands_share_the_config_search_path() {
    let folder = tempfile::tempdir().expect("temporary directory");
    let within = |arguments: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let ended = program.args(arguments).current_dir(folder.path()).output().expect("program was built");
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    write(folder.path().join("access.log"), "nothing\n");
    let of_rules = [
        &["serve"][..],
        &["check"],
        &["replay", "access.log"],
        &["tune", "--goal", "unused <= 1 %", "access.log"],
        &["explain", "--ip", "192.0.2.1", "/a"],
        &["explain", "--log", "access.log:1"],
    ];
    // These commands need only the admin listener, which has a default address.
    let of_admin = [&["explain", "0123456789abcdef"][..], &["status"], &["quota", "show"]];
    let all = [&of_rules[..], &of_admin].concat();
    let all_tell = |commands: &[&[&str]], told: &str| {
        for command in commands {
            let (code, errors) = within(command);
            assert!(code == Some(2) && errors.starts_with(told), "{command:?}: {errors}");
        }
    };
    all_tell(&of_rules, "no configuration file: found neither tidegate.yaml nor config/tidegate.yaml; set one");
    std::fs::create_dir(folder.path().join("config")).expect("path is free");
    write(folder.path().join("config/tidegate.yaml"), "admin: 1\norigin: { url: http://127.0.0.1:1 }\n");
    all_tell(&all, "config/tidegate.yaml:1:8: admin: ");
    write(folder.path().join("tidegate.yaml"), "\nadmin: 1\norigin: { url: http://127.0.0.1:1 }\n");
    all_tell(&all, "tidegate.yaml:2:8: admin: ");
}

/// A gateway in its own process, with an origin and a configuration file.
struct AdminFixture {
    gate: Program,
    origin: Origin,
    folder: tempfile::TempDir,
    file: String,
    yaml: String,
    address: std::net::SocketAddr,
    admin: std::net::SocketAddr,
}

impl AdminFixture {
    /// Starts the gateway with additional settings in the `admin` section.
    fn start_with_admin(admin: &str) -> Self {
        let origin = Origin::plain();
        let folder = tempfile::tempdir().expect("temporary directory");
        let file = folder.path().join("gate.yaml").display().to_string();
        let yaml = |port: u16| {
            format!(
                "listen: 127.0.0.1:0\nadmin: {{ listen: '127.0.0.1:{port}'{admin} }}\nstate_dir: {}\nlog: {{ level: error }}\n\
                 origin: {{ url: 'http://{}' }}\n{RULES}",
                folder.path().display(),
                origin.address(),
            )
        };
        write(&file, &yaml(0));
        let mut gate = Program::start_with_env(&["serve", "--config", &file], &[("GATE_TOKEN", "sesame")]);
        let ready = gate.read_line();
        let addresses: Vec<_> = ready.split("http://").skip(1).map(|rest| rest.split([' ', ',']).next()).collect();
        let address = |place: usize| addresses[place].and_then(|text| text.parse().ok()).expect("an address");
        let (address, admin): (_, std::net::SocketAddr) = (address(0), address(2));
        // The port is known now: write it to the file.
        let yaml = yaml(admin.port());
        write(&file, &yaml);
        Self { gate, origin, folder, file, yaml, address, admin }
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
        let ended = self.run(arguments);
        assert_eq!((ended.code, ended.errors.as_str()), (0, ""), "{arguments:?}");
        ended.output
    }

    fn json_output(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.command_output(arguments)).expect("output is JSON")
    }

    /// Returns the response of the admin API.
    fn admin_api_json(&self, asked: &str) -> Value {
        let request = format!("{asked} HTTP/1.1\r\nHost: {}\r\n\r\n", self.admin);
        Client::connect(self.admin).send(request).read_response().json()
    }
}

/// Removes members at any depth.
fn remove_members(value: &mut Value, members: &[&str]) {
    match value {
        Value::Object(object) => {
            members.iter().for_each(|member| drop(object.remove(*member)));
            object.values_mut().for_each(|below| remove_members(below, members));
        }
        Value::Array(items) => items.iter_mut().for_each(|below| remove_members(below, members)),
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
routes: [ { match: /page, cost: { api: 1.25 } } ]
";
