//! Pacing over loopback: responses to clients, the admin API, and demand history after a crash.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::paced_site::RULES;
use crate::support::program::{Program, run};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const CURL: &str = "User-Agent: curl/8.0\r\n";

#[test]
fn pacing_refuses_bots_ahead_of_plan() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    let mut client = gateway.connect();
    let served = (0..50).take_while(|_| client.get("/page", CURL).status == 200).count();
    assert_eq!(served, 5, "the burst is 5 % of the limit");
    let refused = client.get("/page", CURL);
    assert_eq!((refused.status, refused.field("cache-control")), (429, "no-store"));
    assert_eq!(refused.field("content-type"), "application/problem+json");
    let problem = refused.json();
    assert_eq!((&problem["reason"], &problem["status"]), (&"pacing".into(), &429.into()));
    assert!(problem["type"].as_str().is_some_and(|kind| kind.ends_with("quota-exceeded")), "{problem}");
    let wait: u64 = refused.field("retry-after").parse().expect("whole seconds");
    assert!((400..500).contains(&wait), "{wait}: 95 units in twelve hours are one per 455 s");
    // The plan changes in the meantime: it includes the five admitted requests.
    gateway.clock.advance(Duration::from_secs(wait * 11 / 10));
    client = gateway.connect();
    assert_eq!(client.get("/page", CURL).status, 200);
    assert_eq!(client.get("/page", CURL).status, 429);
    assert_eq!(client.get("/page", "").status, 200);
}

#[test]
fn plan_is_shown_in_state_status_and_metrics() {
    let gateway = TestGateway::with_rules(Origin::plain().address(), RULES);
    let mut client = gateway.connect();
    (0..7).for_each(|_| drop(client.get("/page", CURL)));
    let state = gateway.state();
    let quota = &state["quotas"][0];
    assert_eq!(
        quota["pacing"],
        json!({ "mode": "even", "planned": 50, "earmarked": 0, "unpaced_demand_ratio": 0.0 }),
        "half of the day has passed at noon"
    );
    assert_eq!(class_plan(&state, "bot")["tokens"], 0);
    assert_eq!(class_plan(&state, "person")["admit_share"], Value::Null, "class person is not paced");
    assert_eq!(gateway.metric("tidegate_pacing_planned_units{quota=\"api\"}"), 50.0);
    assert_eq!(
        gateway.metric("tidegate_pacing_admit_ratio{quota=\"api\",class=\"bot\"}"),
        0.714_286,
        "five of seven requests were admitted"
    );
    let outcome = run(&["status", "--admin", &gateway.admin_address().to_string()], b"");
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    assert!(outcome.output.contains("paced (even): 50 units planned by now"), "{}", outcome.output);
    let log = gateway.read_log();
    assert_eq!(log.iter().filter(|line| line["reason"] == "pacing").count(), 2);
}

#[test]
fn learned_demand_survives_kill_and_reports_damage() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).expect("directory can be created");
    let hours: Vec<(u64, u32)> = (0..168).map(|_| (3000, 2)).collect();
    let entry = json!({ "quota": "api", "class": "person", "hours": hours });
    let demand = state.join("demand.json");
    std::fs::write(&demand, json!({ "version": 1, "demand": [entry] }).to_string()).expect("file is writable");

    for _ in 0..2 {
        let (gateway, admin) = start_gateway_process(dir.path());
        let plan = class_plan(&admin_state(&admin), "person");
        assert_eq!(plan["forecast_24h"][23], 3.0, "the forecast is the demand of each past hour");
        gateway.kill();
    }
    std::fs::write(&demand, "{\"version\":1,\"dem").expect("file is writable");
    let (mut gateway, admin) = start_gateway_process(dir.path());
    gateway.wait_for_error("Demand history unreadable, starting empty");
    assert_eq!(class_plan(&admin_state(&admin), "person"), Value::Null);
    gateway.kill();
}

/// Starts the program with its state in `dir`. Returns it with the address of its admin listener.
fn start_gateway_process(dir: &Path) -> (Program, String) {
    let file = dir.join("tidegate.yaml");
    let settings = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nstate_dir: {}\norigin: {{ url: http://127.0.0.1:1 }}\n\
         verify: {{ dns: off, refresh_interval: off }}\nlog: {{ level: warn }}\n{}",
        dir.join("state").display(),
        RULES.replace("pacing: even", "pacing: learned"),
    );
    std::fs::write(&file, settings).expect("file is writable");
    let mut program = Program::start(&["serve", "--config", &file.display().to_string()]);
    let ready = program.read_line();
    let admin = ready.split("http://").nth(3).and_then(|rest| rest.split([' ', ',']).next());
    let admin = admin.unwrap_or_else(|| panic!("no admin address in {ready:?}")).to_owned();
    (program, admin)
}

fn admin_state(admin: &str) -> Value {
    let mut client = Client::connect(admin.parse().expect("an address"));
    client.send(format!("GET /api/v1/state HTTP/1.1\r\nHost: {admin}\r\n\r\n")).read_response().json()
}

fn class_plan(state: &Value, class: &str) -> Value {
    let classes = state["quotas"][0]["classes"].as_array().expect("classes");
    let entry = classes.iter().find(|entry| entry["class"] == class).expect("state lists the class");
    entry["plan"].clone()
}
