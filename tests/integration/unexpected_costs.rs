//! Costs that the origin reports for routes without a cost.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;

const RULES: &str = "
quotas:
  api: { limit: 20, window: { fixed: 24h }, cost_header: X-API-Cost }
  other: { limit: 20, window: { fixed: 24h }, cost_header: X-Other-Cost }
routes:
  - { match: \"/item/*\", cost: { api: 1 } }
  - { match: \"/free/*\" }
";

fn costing_origin() -> Origin {
    Origin::with_script(|request, connection| {
        let fields = match request.target.as_str() {
            "/free/nothing" => "X-API-Cost: 0\r\n",
            "/free/invalid" => "X-API-Cost: four\r\n",
            "/free/none" => "",
            "/item/1" => "X-API-Cost: 2\r\nX-Other-Cost: 0.5\r\n",
            _ => "X-API-Cost: 4\r\n",
        };
        connection.reply("200 OK", fields, b"page");
    })
}

#[test]
fn reported_cost_of_a_free_route_is_charged_and_counted() {
    let origin = costing_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let used = |index: usize| gateway.state()["quotas"][index]["used"].as_f64().expect("used units");
    for (path, api, other) in [
        ("/free/none", 0.0, 0.0),
        ("/free/nothing", 0.0, 0.0),
        ("/free/invalid", 0.0, 0.0),
        ("/free/page", 4.0, 0.0),
        ("/elsewhere", 8.0, 0.0),
        ("/item/1", 10.0, 0.5),
    ] {
        assert_eq!(gateway.connect().get(path, "").status, 200, "{path}");
        assert_eq!((used(0), used(1)), (api, other), "{path}");
    }
    for (route, units) in [("/free/*", 4.0), ("/**", 4.0), ("/item/*", 0.5)] {
        let name = format!("tidegate_unexpected_cost_total{{route=\"{route}\"}}");
        assert_eq!(gateway.metric(&name), units, "{route}");
    }
    let log = gateway.read_log();
    let line = |path: &str| log.iter().find(|line| line["path"] == path).expect("a line").clone();
    assert_eq!(line("/free/page")["unexpected_cost"], serde_json::json!({"api": 4}));
    assert_eq!(line("/item/1")["unexpected_cost"], serde_json::json!({"other": 0.5}));
    assert_eq!(line("/item/1")["charged"], serde_json::json!({"api": 2}));
    assert!(line("/free/nothing").get("unexpected_cost").is_none());
}

#[test]
fn unexpected_costs_exhaust_the_quota_of_costed_routes() {
    let origin = costing_origin();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for number in 0..6 {
        assert_eq!(gateway.connect().get(&format!("/free/{number}"), "").status, 200);
    }
    assert_eq!(gateway.connect().get("/item/1", "").status, 429, "no units remain");
    let quota = &gateway.state()["quotas"][0];
    assert_eq!((quota["used"].as_f64(), quota["overrun"].as_f64()), (Some(20.0), Some(4.0)), "{quota}");
}
