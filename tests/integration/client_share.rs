//! Shares of a quota that one client may use.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use std::time::Duration;

const RULES: &str = "
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas: { api: { limit: 100, window: { fixed: 1h }, per_client: 10%, cost_header: X-API-Cost } }
routes: [{ match: \"/item/*\", cost: { api: 1 } }, { match: \"/free/*\" }]
";

fn get(gateway: &TestGateway, client: &str, path: &str) -> Response {
    gateway.connect().get(path, &format!("X-Forwarded-For: {client}\r\n"))
}

#[test]
fn one_client_uses_its_share_and_no_more() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let statuses: Vec<u16> =
        (0..40).map(|number| get(&gateway, "192.0.2.1", &format!("/item/{number}")).status).collect();
    assert_eq!((statuses[..10].to_vec(), statuses[10..].to_vec()), (vec![200; 10], vec![429; 30]));
    let refused = get(&gateway, "192.0.2.1", "/item/41");
    assert_eq!(refused.json()["reason"], "client_share");
    let wait: u64 = refused.field("retry-after").parse().expect("seconds");
    assert!((3600..=4320).contains(&wait), "to the end of the window, plus the spread: {wait}");
    assert_eq!(refused.field("ratelimit-policy"), "\"api\";q=100;w=3600, \"api/client\";q=10;w=3600");
    assert_eq!(refused.field("ratelimit"), "\"api\";r=90;t=3600, \"api/client\";r=0;t=3600");
    assert_eq!(get(&gateway, "192.0.2.1", "/free/1").status, 200);

    for other in 2..=10 {
        let client = format!("192.0.2.{other}");
        let response = get(&gateway, &client, "/item/1");
        assert_eq!((response.status, response.field("ratelimit").ends_with("\"api/client\";r=9;t=3600")), (200, true));
    }
    assert_eq!(gateway.counters(), (19.0, 0.0));

    gateway.clock.advance(Duration::from_secs(3600));
    assert_eq!(get(&gateway, "192.0.2.1", "/item/1").status, 200, "a new window");
}

#[test]
fn addresses_of_one_ipv6_network_have_one_share() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let admitted = (0..50).filter(|number| get(&gateway, &format!("2001:db8::{number:x}"), "/item/1").status == 200);
    assert_eq!(admitted.count(), 10);
    assert_eq!(get(&gateway, "2001:db8:0:1::1", "/item/1").status, 200, "another network");
}

#[test]
fn rotating_addresses_of_one_network_leave_units_to_others() {
    let origin = Origin::plain();
    for rotated in [|number: u32| format!("192.0.2.{number}"), |number: u32| format!("2001:db8:7:{number:x}::1")] {
        let gateway = TestGateway::with_rules(origin.address(), RULES);
        let admitted = (0..200).filter(|number| get(&gateway, &rotated(*number), "/item/1").status == 200);
        assert_eq!(admitted.count(), 80, "the shares of eight clients");
        assert_eq!(get(&gateway, &rotated(201), "/item/1").json()["reason"], "client_share");
        assert_eq!(get(&gateway, "198.51.100.1", "/item/1").status, 200);
    }
}

#[test]
fn actual_costs_count_in_the_share() {
    let origin = Origin::with_script(|request, connection| {
        let cost = if request.target.starts_with("/free") { 4 } else { 0 };
        connection.reply("200 OK", &format!("X-API-Cost: {cost}\r\n"), b"page");
    });
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    for number in 0..30 {
        assert_eq!(get(&gateway, "192.0.2.1", &format!("/item/{number}")).status, 200, "a page without cost");
    }
    for client in ["192.0.2.1", "192.0.2.3"] {
        for number in 0..2 {
            assert_eq!(get(&gateway, client, &format!("/free/{number}")).status, 200);
        }
        let third = get(&gateway, client, "/free/2");
        assert_eq!(third.json()["reason"], "client_share", "8 of 10 units were reported, and 4 are expected");
    }
    assert_eq!(get(&gateway, "192.0.2.2", "/item/1").status, 200);
}

#[test]
fn concurrent_requests_of_one_client_stay_within_the_share() {
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let admitted: usize = std::thread::scope(|scope| {
        let connect =
            |_| scope.spawn(|| (0..10).filter(|_| get(&gateway, "192.0.2.1", "/item/1").status == 200).count());
        let threads: Vec<_> = (0..8).map(connect).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!((admitted, gateway.counters()), (10, (10.0, 0.0)));
}

#[test]
fn share_in_shadow_mode_refuses_nobody() {
    let origin = Origin::plain();
    let rules = RULES.replace("per_client: 10%", "per_client: 10%, enforce: false");
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for number in 0..20 {
        assert_eq!(get(&gateway, "192.0.2.1", &format!("/item/{number}")).status, 200);
    }
    let log = gateway.read_log();
    let shadow = log.iter().filter(|line| line["shadow_reason"] == "client_share").count();
    assert_eq!(shadow, 10, "{log:?}");
}
