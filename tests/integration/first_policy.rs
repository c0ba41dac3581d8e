//! A file of two lines, an origin and a limit: what it does for people, and against clients that want everything.

use crate::support::client::Response;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;

/// The comment keeps the support of tests from writing `classes: []`.
const TWO_LINES: &str = "
# classes: left out
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
quotas: { api: { limit: 1000, cost_header: X-API-Cost } }
";

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const SCRAPER: &str = "Scrapy/2.11 (+https://scrapy.org)";
const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

#[test]
fn people_are_served_whatever_bots_want() {
    let origin = metered_origin();
    let gateway = TestGateway::with_rules(origin.address(), TWO_LINES);
    // From a network each, so that no share of a client or network limits them.
    let of_bots: Vec<Response> =
        (0..400).map(|number| get(&gateway, &format!("10.{}.{}.1", number / 200, number % 200), SCRAPER)).collect();
    let admitted = of_bots.iter().filter(|response| response.status == 200).count();
    assert!((1..150).contains(&admitted), "a small part of half a day: {admitted}");
    let refused = of_bots.last().expect("a response");
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (429, Some("pacing")));
    // A claim of a search engine that the address disproves is no better.
    assert_eq!(get(&gateway, "192.0.2.77", GOOGLEBOT).status, 429);
    // A verified search engine comes before them, and people before all.
    assert_eq!(get(&gateway, "66.249.66.1", GOOGLEBOT).status, 200);
    for number in 0..400 {
        let page = get(&gateway, &format!("10.7.{}.{}", number / 50, number % 50), BROWSER);
        assert_eq!(page.status, 200, "person {number}: {}", page.text());
    }
}

#[test]
fn one_client_uses_a_twentieth_of_the_day() {
    let origin = metered_origin();
    let gateway = TestGateway::with_rules(origin.address(), TWO_LINES);
    let admitted = (0..80).filter(|_| get(&gateway, "198.51.100.1", BROWSER).status == 200).count();
    assert_eq!(admitted, 50);
    assert_eq!(get(&gateway, "198.51.100.1", BROWSER).json()["reason"], "client_share");
    assert_eq!(get(&gateway, "203.0.113.1", BROWSER).status, 200);
    // One address of a search engine sends the requests of many.
    let of_search: Vec<Response> = (0..80).map(|_| get(&gateway, "66.249.66.1", GOOGLEBOT)).collect();
    let refused = of_search.iter().filter(|response| response.status != 200);
    assert!(refused.clone().count() < 80 && refused.clone().all(|response| response.json()["reason"] == "pacing"));
    assert!(!of_search[0].field("ratelimit-policy").contains("api/client"), "{:?}", of_search[0]);
}

#[test]
fn log_names_the_builtin_classes() {
    let origin = metered_origin();
    let gateway = TestGateway::with_rules(origin.address(), TWO_LINES);
    let agents = [
        (BROWSER, "person"),
        (SCRAPER, "bot"),
        (GOOGLEBOT, "bot"),
        ("Feedly/1.0 (+http://www.feedly.com/fetcher.html; 12 subscribers)", "feed"),
        ("Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)", "monitor"),
    ];
    for (agent, _) in agents {
        get(&gateway, "192.0.2.1", agent);
    }
    let lines = gateway.read_log();
    let mut classes: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| (line["user_agent"].as_str().expect("text"), line["class"].as_str().expect("text")))
        .collect();
    // Each worker has lines of its own.
    let mut expected = agents.to_vec();
    classes.sort_unstable();
    expected.sort_unstable();
    assert_eq!(classes, expected);
}

fn metered_origin() -> Origin {
    Origin::with_script(|_, connection| connection.reply("200 OK", "X-API-Cost: 1\r\n", b"page"))
}

fn get(gateway: &TestGateway, client: &str, agent: &str) -> Response {
    gateway.connect().get("/item/1", &format!("X-Forwarded-For: {client}\r\nUser-Agent: {agent}\r\n"))
}
