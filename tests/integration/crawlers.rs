//! Crawlers that prove who they are by their names in DNS and by lists that their operators publish, and those that
//! only say so: over the wire, with a name server and a publisher on loopback.

use crate::support::gate::Gate;
use crate::support::name_server::{NameServer, Reply};
use crate::support::origin::{Origin, Wire, signal};
use crate::support::wait::wait_until;
use hickory_resolver::proto::op::ResponseCode;
use serde_json::Value;
use std::net::Ipv4Addr;

const BINGBOT: &str = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)";
/// In a network of Microsoft's that its list of crawlers does not name: addresses leave it open.
const CRAWLER: &str = "20.0.0.77";

#[test]
fn a_bingbot_that_only_dns_proves_is_declared_first_and_verified_later() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    server.names(CRAWLER, &["msnbot-20-0-0-77.search.msn.com"]);
    server.addresses("msnbot-20-0-0-77.search.msn.com", &[CRAWLER]);
    let gate = Gate::before(origin.address(), &asking(&server, "60s"));
    ask(&gate, CRAWLER, BINGBOT);
    wait_for(&gate, "bingbot", "verified", 1.0);
    ask(&gate, CRAWLER, BINGBOT);
    assert_eq!(origin.last().fields["x-tidegate-operator"], "bingbot");
    let log = gate.into_log();
    assert_eq!((kind(&log[0]), &log[0]["operator"]), ("declared_bot", &Value::Null));
    assert_eq!((kind(&log[1]), &log[1]["operator"]), ("verified_bot", &Value::from("bingbot")));
    assert_eq!(log[1]["evidence"][1], "name_proven:bingbot");
    assert_eq!(server.questions(), 2, "one each way");
}

#[test]
fn whoever_has_none_of_the_names_is_an_impostor() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    server.names("20.0.0.2", &["search.msn.com.example.net"]);
    server.names("20.0.0.3", &["a.search.msn.com"]);
    server.addresses("a.search.msn.com", &["20.0.0.9"]);
    let gate = Gate::before(origin.address(), &asking(&server, "60s"));
    // Without any name, with another's, with one that leads elsewhere.
    let impostors = ["20.0.0.1", "20.0.0.2", "20.0.0.3"];
    impostors.iter().for_each(|address| ask(&gate, address, BINGBOT));
    wait_for(&gate, "bingbot", "impostor", 3.0);
    impostors.iter().for_each(|address| ask(&gate, address, BINGBOT));
    for line in &gate.into_log()[3..] {
        assert_eq!((kind(line), &line["evidence"][1]), ("impostor", &Value::from("name_foreign:bingbot")));
    }
}

#[test]
fn a_name_server_that_fails_makes_nobody_an_impostor() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    server.reverse("20.0.0.1", Reply::Silence);
    server.reverse("20.0.0.2", Reply::Failure(ResponseCode::ServFail));
    let gate = Gate::before(origin.address(), &asking(&server, "50ms"));
    let addresses = ["20.0.0.1", "20.0.0.2"];
    addresses.iter().for_each(|address| ask(&gate, address, BINGBOT));
    wait_for(&gate, "bingbot", "unknown", 2.0);
    addresses.iter().for_each(|address| ask(&gate, address, BINGBOT));
    assert!(server.asked_about("20.0.0.1") <= 2, "who does not answer is left alone for a while");
    assert!(gate.into_log().iter().all(|line| kind(line) == "declared_bot"));
}

#[test]
fn a_flood_of_made_up_crawlers_makes_nobody_wait() {
    const MADE_UP: u32 = 100_000;
    let (origin, silent) = (Origin::plain(), NameServer::start());
    for number in 0..MADE_UP {
        silent.reverse(&address(number), Reply::Silence);
    }
    let rules = format!(
        "{}\noperators: {{ googlebot: {{ complete: names }} }}\n\
         classes: [ {{ name: bots, when: {{ kind: [declared_bot, impostor] }}, block: true }} ]",
        asking(&silent, "1s")
    );
    let gate = Gate::before(origin.address(), &rules);
    for numbers in (0..MADE_UP).collect::<Vec<_>>().chunks(500) {
        let mut client = gate.connect();
        let requests: String = numbers.iter().map(|number| request(&address(*number), "Googlebot/2.1")).collect();
        client.send(requests);
        for _ in numbers {
            assert_eq!(client.answer().status, 429);
        }
    }
    assert!(gate.metric("tidegate_names_waiting") <= 1024.0);
    let person = gate
        .connect()
        .get("/", "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n");
    assert_eq!(person.status, 200);
    assert!(silent.questions() < 20_000, "{} questions of {MADE_UP} made-up crawlers", silent.questions());
}

#[test]
fn a_list_that_the_operator_of_the_site_names_is_fetched_while_requests_go_on() {
    let origin = Origin::plain();
    let (publish, published) = signal();
    let publisher = Origin::scripted(move |_, wire: &mut Wire| {
        published.wait();
        wire.reply("200 OK", "Connection: close\r\n", b"192.0.2.0/24\n");
    });
    let rules = format!(
        "workers: 1\nverify: {{ dns: off, refresh: 24h }}\n\
         operators: {{ acme: {{ tokens: AcmeBot, ranges: \"http://{}/bots.txt\", complete: addresses }} }}\n\
         classes: [ {{ name: friend, when: {{ operator: acme }} }} ]",
        publisher.address()
    );
    // The clock stands: the first turn of the built-in lists, which are published elsewhere, does not come.
    let gate = Gate::before(origin.address(), &rules);
    let kind_of = |address: &str| {
        ask(&gate, address, "AcmeBot/1.0");
        origin.last().fields["x-tidegate-class"].clone()
    };
    assert_eq!(kind_of("192.0.2.1"), "other", "until the list has come");
    publish.tell();
    wait_until("the list", || kind_of("192.0.2.1") == "friend");
    assert_eq!(publisher.seen().len(), 1);
    assert_eq!(kind_of("198.51.100.1"), "other");
    let log = gate.into_log();
    assert_eq!(kind(&log[0]), "declared_bot", "until it has come");
    assert_eq!(kind(&log[log.len() - 1]), "impostor");
}

#[test]
fn crawlers_behind_an_unnamed_proxy_are_no_impostors() {
    let (origin, server) = (Origin::plain(), NameServer::start());
    let rules = format!("{}\nclients: {{ address_from: peer }}", asking(&server, "2s"));
    let gate = Gate::before(origin.address(), &rules);
    let untrusted_proxy = || gate.state()["untrusted_proxy"].clone();
    assert_eq!(gate.connect().get("/", "User-Agent: Googlebot/2.1\r\n").status, 200);
    assert_eq!(untrusted_proxy(), Value::Null, "no proxy is seen yet");
    ask(&gate, "66.249.66.1", "Mozilla/5.0 (compatible; Googlebot/2.1)");
    ask(&gate, "66.249.66.1", BINGBOT);
    let warning = untrusted_proxy().to_string();
    for told in ["127.0.0.1 sends X-Forwarded-For", "address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, "] {
        assert!(warning.contains(told), "{warning}");
    }
    assert_eq!(gate.reload(origin.address(), &asking(&server, "2s")).map(|_| ()), Ok(()));
    assert_eq!(untrusted_proxy(), Value::Null, "the proxy is trusted now");
    ask(&gate, "66.249.66.1", "Mozilla/5.0 (compatible; Googlebot/2.1)");
    assert_eq!(server.questions(), 0, "no name of a private address is looked up");
    let log = gate.into_log();
    for (line, operator) in log[..3].iter().zip(["googlebot", "googlebot", "bingbot"]) {
        let evidence = format!("address_private:{operator}");
        assert_eq!((kind(line), &line["evidence"][1]), ("declared_bot", &Value::from(evidence)));
    }
    assert_eq!(kind(&log[3]), "verified_bot");
}

/// Rules under which `server` is asked, and no list is fetched; one worker logs in the order of the requests.
fn asking(server: &NameServer, timeout: &str) -> String {
    format!(
        "workers: 1\nverify: {{ dns: {{ nameservers: \"{}\", timeout: {timeout} }}, refresh: off }}",
        server.address()
    )
}

fn request(address: &str, user_agent: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: {user_agent}\r\nX-Forwarded-For: {address}\r\n\r\n")
}

fn ask(gate: &Gate, address: &str, user_agent: &str) {
    assert_eq!(gate.connect().send(request(address, user_agent)).answer().status, 200);
}

fn wait_for(gate: &Gate, operator: &str, result: &str, count: f64) {
    let labels = format!("operator=\"{operator}\",method=\"dns\",result=\"{result}\"");
    gate.wait_for_metric(&format!("tidegate_verifications_total{{{labels}}}"), count);
}

fn kind(line: &Value) -> &str {
    line["kind"].as_str().expect("text")
}

/// A made-up crawler's address, in no network of any crawler.
fn address(number: u32) -> String {
    Ipv4Addr::from(0x0b00_0000 + number).to_string()
}
