//! What one client can take of the origin: its slots, and pauses after its overload responses.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::{Origin, signal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const RULES: &str = "
clients: { address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }
scopes: { default: { concurrency: 64, backoff: { jitter: 0% }, queue: { max_wait: 0s } } }
routes: [{ match: /login }, { match: \"/**\" }]
";
const VISITORS: usize = 20;

/// Starts an origin that answers the logins of one account with 429, and all requests with 503 while it is overloaded.
fn origin(is_overloaded: &Arc<AtomicBool>) -> Origin {
    let is_overloaded = Arc::clone(is_overloaded);
    Origin::with_script(move |request, connection| match request.target.as_str() {
        _ if is_overloaded.load(Ordering::SeqCst) => connection.reply("503 Service Unavailable", "", b"later"),
        "/login" => connection.reply("429 Too Many Requests", "Retry-After: 1\r\n", b"too many logins"),
        _ => connection.reply("200 OK", "", b"page"),
    })
}

fn get(connection: &mut Client, path: &str, client: &str) -> u16 {
    connection.get(path, &format!("X-Forwarded-For: {client}\r\n")).status
}

fn visit(connection: &mut Client, visitor: usize) -> u16 {
    get(connection, "/page", &format!("198.18.{visitor}.1"))
}

#[test]
fn client_that_draws_429_leaves_the_others_served() {
    for (logins_per_second, rotates) in [(1, false), (10, false), (100, false), (100, true)] {
        let origin = origin(&Arc::default());
        let gateway = TestGateway::with_rules(origin.address(), RULES);
        let mut connection = gateway.connect();
        for second in 0..20 {
            for login in 0..logins_per_second {
                let address =
                    if rotates { format!("2001:db8:0:{second:x}{login:02x}::1") } else { "203.0.113.1".into() };
                let status = get(&mut connection, "/login", &address);
                assert_eq!(status, 503, "an overload 429 is not forwarded");
            }
            for visitor in 0..VISITORS {
                assert_eq!(
                    visit(&mut connection, visitor),
                    200,
                    "{logins_per_second} logins a second, in second {second}"
                );
            }
            gateway.clock.advance(Duration::from_secs(1));
        }
        let logins = origin.received_requests().iter().filter(|request| request.target == "/login").count();
        assert!((1..=20).contains(&logins), "{logins} of {} logins were sent", 20 * logins_per_second);
        assert_eq!(gateway.metric("tidegate_origin_backoff_seconds{scope=\"default\"}"), 0.0);
        assert!(gateway.metric("tidegate_origin_backoff_parts{scope=\"default\"}") >= 1.0);
        assert!(gateway.state()["scopes"][0]["backoff_parts"].as_u64() >= Some(1));
    }
}

#[test]
fn overload_of_the_site_pauses_it_after_three_responses() {
    let is_overloaded = Arc::new(AtomicBool::new(false));
    let origin = origin(&is_overloaded);
    let gateway = TestGateway::with_rules(origin.address(), RULES);
    let mut connection = gateway.connect();
    (0..VISITORS).for_each(|visitor| assert_eq!(visit(&mut connection, visitor), 200));
    is_overloaded.store(true, Ordering::SeqCst);
    (0..VISITORS).for_each(|visitor| assert_eq!(visit(&mut connection, visitor), 503));
    assert_eq!(origin.received_requests().len(), VISITORS + 3, "three clients show the overload");
    assert_eq!(gateway.metric("tidegate_origin_backoff_seconds{scope=\"default\"}"), 1.0);

    gateway.clock.advance(Duration::from_secs(1));
    (3..VISITORS).for_each(|visitor| assert_eq!(visit(&mut connection, visitor), 503));
    assert_eq!(origin.received_requests().len(), VISITORS + 4, "one probe by another client");
    assert_eq!(gateway.metric("tidegate_origin_backoff_seconds{scope=\"default\"}"), 2.0);

    is_overloaded.store(false, Ordering::SeqCst);
    gateway.clock.advance(Duration::from_secs(2));
    let served = (0..VISITORS).filter(|visitor| visit(&mut connection, *visitor) == 200).count();
    assert!(served >= VISITORS - 4, "all but the clients of the overload are served: {served}");
}

#[test]
fn slow_requests_of_one_client_leave_slots_to_others() {
    const SLOW_REQUESTS: usize = 20;
    let (release_sender, release) = signal();
    let release = Arc::new(parking_lot::Mutex::new(release));
    let origin = Origin::with_script(move |request, connection| {
        if request.target == "/slow" {
            release.lock().wait();
        }
        connection.reply("200 OK", "", b"page");
    });
    let rules = RULES.replace(
        "concurrency: 64, backoff: { jitter: 0% }, queue: { max_wait: 0s }",
        "concurrency: 8, queue: { max_wait: 1h }",
    );
    let gateway = TestGateway::with_rules(origin.address(), &rules);
    let mut slow: Vec<Client> = (0..SLOW_REQUESTS).map(|_| gateway.connect()).collect();
    for client in &mut slow {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.1\r\n\r\n");
    }
    gateway.wait_for_metric("tidegate_queue_length{scope=\"default\"}", SLOW_REQUESTS as f64 - 2.0);
    assert_eq!(gateway.metric("tidegate_origin_inflight{scope=\"default\"}"), 2.0, "a quarter of the slots");
    let mut connection = gateway.connect();
    (0..VISITORS).for_each(|visitor| assert_eq!(visit(&mut connection, visitor), 200));
    (0..SLOW_REQUESTS).for_each(|_| release_sender.notify());
    slow.iter_mut().for_each(|client| assert_eq!(client.read_response().status, 200));
}
