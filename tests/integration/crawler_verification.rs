//! Verification of crawlers by DNS and by published address lists, over the network, with a name server and a list
//! server on loopback. Unverified claims are not accepted.

use crate::support::gateway::TestGateway;
use crate::support::name_server::{NameServer, Reply};
use crate::support::origin::{Origin, OriginConnection, signal};
use crate::support::wait::wait_until;
use hickory_resolver::proto::op::ResponseCode;
use serde_json::Value;
use std::net::Ipv4Addr;

const BINGBOT: &str = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)";
/// Address in a network of Microsoft that its crawler list does not contain, so addresses do not decide.
const CRAWLER: &str = "20.0.0.77";

#[test]
fn bingbot_is_declared_until_dns_verifies_it() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    server.set_ptr(CRAWLER, &["msnbot-20-0-0-77.search.msn.com"]);
    server.set_addresses("msnbot-20-0-0-77.search.msn.com", &[CRAWLER]);
    let gateway = TestGateway::with_rules(origin.address(), &dns_rules(&server, "60s"));
    assert_admitted_as(&gateway, CRAWLER, BINGBOT);
    wait_for_verifications(&gateway, "bingbot", "verified", 1.0);
    assert_admitted_as(&gateway, CRAWLER, BINGBOT);
    assert_eq!(origin.last_request().fields["x-tidegate-operator"], "bingbot");
    let log = gateway.read_log();
    assert_eq!((kind(&log[0]), &log[0]["operator"]), ("declared_bot", &Value::Null));
    assert_eq!((kind(&log[1]), &log[1]["operator"]), ("verified_bot", &Value::from("bingbot")));
    assert_eq!(log[1]["evidence"][1], "dns_verified:bingbot");
    assert_eq!(server.query_count(), 2, "one PTR and one address query");
}

#[test]
fn dns_mismatch_makes_an_impostor() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    server.set_ptr("20.0.0.2", &["search.msn.com.example.net"]);
    server.set_ptr("20.0.0.3", &["a.search.msn.com"]);
    server.set_addresses("a.search.msn.com", &["20.0.0.9"]);
    let gateway = TestGateway::with_rules(origin.address(), &dns_rules(&server, "60s"));
    // No name, another operator's name, and a name that resolves to another address.
    let impostors = ["20.0.0.1", "20.0.0.2", "20.0.0.3"];
    impostors.iter().for_each(|address| assert_admitted_as(&gateway, address, BINGBOT));
    wait_for_verifications(&gateway, "bingbot", "impostor", 3.0);
    impostors.iter().for_each(|address| assert_admitted_as(&gateway, address, BINGBOT));
    for line in &gateway.read_log()[3..] {
        assert_eq!((kind(line), &line["evidence"][1]), ("impostor", &Value::from("dns_mismatch:bingbot")));
    }
}

#[test]
fn name_server_failure_makes_no_impostor() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    server.set_reverse_reply("20.0.0.1", Reply::Silence);
    server.set_reverse_reply("20.0.0.2", Reply::Failure(ResponseCode::ServFail));
    let gateway = TestGateway::with_rules(origin.address(), &dns_rules(&server, "50ms"));
    let addresses = ["20.0.0.1", "20.0.0.2"];
    addresses.iter().for_each(|address| assert_admitted_as(&gateway, address, BINGBOT));
    wait_for_verifications(&gateway, "bingbot", "unknown", 2.0);
    addresses.iter().for_each(|address| assert_admitted_as(&gateway, address, BINGBOT));
    assert!(server.ptr_query_count("20.0.0.1") <= 2, "a name server that times out is not queried again for a while");
    assert!(gateway.read_log().iter().all(|line| kind(line) == "declared_bot"));
}

#[test]
fn synthetic_crawler_flood_blocks_no_requests() {
    const CRAWLER_COUNT: u32 = 100_000;
    let (origin, server) = (Origin::plain(), NameServer::start());
    for number in 0..CRAWLER_COUNT {
        server.set_reverse_reply(&synthetic_address(number), Reply::Silence);
    }
    let rules = format!(
        "{}\noperators: {{ googlebot: {{ exhaustive: dns_names }} }}\n\
         classes: [ {{ name: bots, when: {{ kind: [declared_bot, impostor] }}, block: true }} ]",
        dns_rules(&server, "1s")
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    for numbers in (0..CRAWLER_COUNT).collect::<Vec<_>>().chunks(500) {
        let mut client = gateway.connect();
        let requests: String =
            numbers.iter().map(|number| raw_request(&synthetic_address(*number), "Googlebot/2.1")).collect();
        client.send(requests);
        for _ in numbers {
            assert_eq!(client.read_response().status, 429);
        }
    }
    assert!(gateway.metric("tidegate_dns_queue_length") <= 1024.0);
    let response = gateway
        .connect()
        .get("/", "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n");
    assert_eq!(response.status, 200);
    assert!(server.query_count() < 20_000, "{} queries for {CRAWLER_COUNT} synthetic crawlers", server.query_count());
}

#[test]
fn configured_range_list_is_fetched_in_background() {
    let origin = Origin::plain();
    let (release, release_receiver) = signal();
    let publisher = Origin::with_script(move |_, connection: &mut OriginConnection| {
        release_receiver.wait();
        connection.reply("200 OK", "Connection: close\r\n", b"192.0.2.0/24\n");
    });
    let rules = format!(
        "workers: 1\nverify: {{ dns: off, refresh_interval: 24h }}\n\
         operators: {{ acme: {{ product_tokens: AcmeBot, ranges: \"http://{}/bots.txt\", exhaustive: ranges }} }}\n\
         classes: [ {{ name: friend, when: {{ operator: acme }} }} ]",
        publisher.address()
    );
    // The clock does not advance: the first fetch of the built-in lists, which are published on the Internet, does not
    // start.
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let class_of = |address: &str| {
        assert_admitted_as(&gateway, address, "AcmeBot/1.0");
        origin.last_request().fields["x-tidegate-class"].clone()
    };
    assert_eq!(class_of("192.0.2.1"), "other", "before the list is fetched");
    release.notify();
    wait_until("the list to be fetched", || class_of("192.0.2.1") == "friend");
    assert_eq!(publisher.received_requests().len(), 1);
    assert_eq!(class_of("198.51.100.1"), "other");
    let log = gateway.read_log();
    assert_eq!(kind(&log[0]), "declared_bot", "before the list is fetched");
    assert_eq!(kind(&log[log.len() - 1]), "impostor");
}

#[test]
fn crawlers_behind_untrusted_proxy_are_no_impostors() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    let rules = format!("{}\nclients: {{ address_from: peer }}", dns_rules(&server, "2s"));
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let untrusted_proxy = || gateway.state()["untrusted_proxy"].clone();
    assert_eq!(gateway.connect().get("/", "User-Agent: Googlebot/2.1\r\n").status, 200);
    assert_eq!(untrusted_proxy(), Value::Null, "no proxy was detected yet");
    assert_admitted_as(&gateway, "66.249.66.1", "Mozilla/5.0 (compatible; Googlebot/2.1)");
    assert_admitted_as(&gateway, "66.249.66.1", BINGBOT);
    let warning = untrusted_proxy().to_string();
    for expected in
        ["127.0.0.1 sends X-Forwarded-For", "address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, "]
    {
        assert!(warning.contains(expected), "{warning}");
    }
    assert_eq!(gateway.reload(origin.address(), &dns_rules(&server, "2s")).map(|_| ()), Ok(()));
    assert_eq!(untrusted_proxy(), Value::Null, "the proxy is trusted now");
    assert_admitted_as(&gateway, "66.249.66.1", "Mozilla/5.0 (compatible; Googlebot/2.1)");
    assert_eq!(server.query_count(), 0, "private addresses cause no DNS queries");
    let log = gateway.read_log();
    for (line, operator) in log[..3].iter().zip(["googlebot", "googlebot", "bingbot"]) {
        let evidence = format!("address_private:{operator}");
        assert_eq!((kind(line), &line["evidence"][1]), ("declared_bot", &Value::from(evidence)));
    }
    assert_eq!(kind(&log[3]), "verified_bot");
}

/// Returns rules that query `server` and fetch no list. One worker logs in the order of the requests.
fn dns_rules(server: &NameServer, timeout: &str) -> String {
    format!(
        "workers: 1\nverify: {{ dns: {{ nameservers: \"{}\", timeout: {timeout} }}, refresh_interval: off }}",
        server.address()
    )
}

fn raw_request(address: &str, user_agent: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: {user_agent}\r\nX-Forwarded-For: {address}\r\n\r\n")
}

fn assert_admitted_as(gateway: &TestGateway, address: &str, user_agent: &str) {
    assert_eq!(gateway.connect().send(raw_request(address, user_agent)).read_response().status, 200);
}

fn wait_for_verifications(gateway: &TestGateway, operator: &str, result: &str, count: f64) {
    let labels = format!("operator=\"{operator}\",method=\"dns\",result=\"{result}\"");
    gateway.wait_for_metric(&format!("tidegate_verifications_total{{{labels}}}"), count);
}

fn kind(line: &Value) -> &str {
    line["kind"].as_str().expect("kind is a string")
}

/// Returns the address of a synthetic crawler, outside of all crawler networks.
fn synthetic_address(number: u32) -> String {
    Ipv4Addr::from(0x0b00_0000 + number).to_string()
}
