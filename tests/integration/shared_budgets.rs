//! Budgets of keys that several gateways share through a real Redis. The origin counts the requests.

use crate::support::client::Client;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use crate::support::redis::RedisServer;
use crate::support::running_gateway::RunningGateway;
use crate::support::wait::{pass_real_time, wait_until};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_engine::clock::Clock;

const LIMIT: usize = 400;

/// Number of budgets that keys beyond `max_keys` share.
const SHARED_BUDGETS: usize = 1024;

/// SHA-256 of `key-of-acme` and of `key-of-trial`.
const KEYS: &str = "api_keys:
  - { name: acme, class: any, sha256: 689febd264f8b977e29c0fdb75f839eb248ba07d1561b14f2b95f42756943245 }
  - { name: trial, class: any, sha256: 3dfb31644d2f211cb9f95a142303b1b19c1ade944165d87fb9eb67b252496a44 }
classes: [{ name: any, when: { api_key: own } }]
";

/// Windows that none of the tests outlives, of each kind.
const WINDOWS: [&str; 3] = ["{ fixed: 87600h }", "{ sliding: 87600h }", "{ first_use: 87600h }"];

fn rules(redis: &RedisServer, per: &str, max_keys: usize) -> String {
    rules_with(WINDOWS[0], redis, per, max_keys)
}

fn rules_with(window: &str, redis: &RedisServer, per: &str, max_keys: usize) -> String {
    format!(
        "ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}\n\
         limits: {{ max_credentials_per_address: 5000 }}\n\
         quotas: {{ customer: {{ per: {per}, limit: {LIMIT}, window: {window}, max_keys: {max_keys} }} }}\n\
         routes: [{{ match: '/**', cost: {{ customer: 1 }} }}]",
        redis.port
    )
}

fn start(origin: SocketAddr, rules: &str) -> TestGateway {
    TestGateway::with_clock(origin, rules, Clock::system())
}

fn served(origin: &Origin, customer: &str) -> usize {
    let field = format!("x-api-key: key-of-{customer}\r\n");
    origin.received_requests().iter().filter(|request| request.head.to_ascii_lowercase().contains(&field)).count()
}

fn status(client: &mut Client, customer: &str) -> u16 {
    client.get("/page", &format!("X-Api-Key: key-of-{customer}\r\nX-Customer: {customer}\r\n")).status
}

/// Requests for a customer until `is_over`, with a short pause after each refusal. Counts refusals.
fn request_until(gateway: &TestGateway, customer: &str, is_over: &AtomicBool, refused: &AtomicUsize) {
    let mut client = Client::connect(gateway.address());
    while !is_over.load(Ordering::SeqCst) {
        if status(&mut client, customer) != 200 {
            refused.fetch_add(1, Ordering::SeqCst);
            pass_real_time(Duration::from_millis(5));
        }
    }
}

/// Sets its flag when it is dropped, also if an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn gateways_spend_the_budget_of_a_key_completely_and_no_more() {
    WINDOWS.iter().for_each(|window| spend_completely(window));
}

fn spend_completely(window: &str) {
    let redis = RedisServer::start(&[]);
    let origin = Origin::plain();
    let rules = KEYS.to_owned() + &rules_with(window, &redis, "api_key", 100);
    let gateways = [(); 2].map(|()| start(origin.address(), &rules));
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for gateway in &gateways {
            for customer in ["acme", "acme", "trial"] {
                scope.spawn(|| request_until(gateway, customer, &is_over, &refused));
            }
        }
        let _end = StopOnDrop(&is_over);
        wait_until("both budgets are spent", || served(&origin, "acme") >= LIMIT && served(&origin, "trial") >= LIMIT);
        let before = refused.load(Ordering::SeqCst);
        wait_until("more refusals", || refused.load(Ordering::SeqCst) >= before + 50);
    });
    assert_eq!(["acme", "trial"].map(|customer| served(&origin, customer)), [LIMIT; 2]);
    // Both gateways know what all have used.
    let refusal = gateways[1].connect().get("/page", "X-Api-Key: key-of-acme\r\n");
    assert_eq!((refusal.status, refusal.json()["reason"].as_str()), (429, Some("quota")));
    assert!(refusal.field("ratelimit").contains("\"customer\";r=0"), "{}", refusal.field("ratelimit"));
    let calls: usize = redis.cli(&["info", "commandstats"]).lines().find_map(calls_of_scripts).unwrap_or_default();
    assert!(calls > 0 && calls < 4 * LIMIT, "{calls} calls for {} requests", 2 * LIMIT);
    let ttl: i64 = redis.cli(&["pttl", &window_key(&redis)]).parse().expect("a number");
    assert!(ttl > 0, "the window expires");
}

fn calls_of_scripts(line: &str) -> Option<usize> {
    line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok()
}

fn window_key(redis: &RedisServer) -> String {
    let keys = redis.cli(&["keys", "{tidegate:customer}:budgets:*"]);
    assert_eq!(keys.lines().count(), 1, "{keys}");
    keys
}

#[test]
fn stopped_gateway_returns_units_and_a_killed_server_opens_no_budget() {
    let mut redis = RedisServer::start(&[]);
    let origin = Origin::plain();
    let rules = KEYS.to_owned() + &rules(&redis, "api_key", 100);
    let mut gateways = [(); 2].map(|()| start(origin.address(), &rules));
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let spend = |gateways: &[TestGateway], target: usize| {
        is_over.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for gateway in gateways {
                scope.spawn(|| request_until(gateway, "acme", &is_over, &refused));
            }
            let _end = StopOnDrop(&is_over);
            wait_until(&format!("{target} requests"), || served(&origin, "acme") >= target);
        });
    };
    spend(&gateways, LIMIT / 4);
    // Without its data, the server asks the gateways, which have been running all the time.
    redis.kill();
    let cut_off = served(&origin, "acme");
    wait_until("the leases are used up", || {
        gateways.iter().all(|gateway| status(&mut Client::connect(gateway.address()), "acme") == 503)
    });
    assert!(served(&origin, "acme") <= cut_off + 2 * LIMIT / 16, "only what was leased");
    redis.restart();
    spend(&gateways, LIMIT / 2);
    gateways[0].restart();
    spend(&gateways, LIMIT);
    let before = refused.load(Ordering::SeqCst);
    is_over.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| request_until(&gateways[0], "acme", &is_over, &refused));
        let _end = StopOnDrop(&is_over);
        wait_until("more refusals", || refused.load(Ordering::SeqCst) >= before + 50);
    });
    assert_eq!(served(&origin, "acme"), LIMIT);
}

#[test]
fn made_up_keys_fill_neither_the_server_nor_the_budget_of_others() {
    let redis = RedisServer::start(&[]);
    let origin = Origin::plain();
    let gateway = start(origin.address(), &rules(&redis, "{ header: X-Customer }", 20));
    let mut client = gateway.connect();
    wait_until("the server to open the budgets", || status(&mut client, "acme") == 200);
    assert_eq!((0..5).filter(|_| status(&mut client, "acme") == 200).count(), 5);
    for number in 0..1500 {
        status(&mut client, &format!("made-up-{number}"));
    }
    let keys: usize = redis.cli(&["hlen", &window_key(&redis)]).parse().expect("a number");
    assert!(keys <= 1 + 20 + SHARED_BUDGETS, "{keys}");
    assert!(gateway.metric("tidegate_budget_keys{quota=\"customer\"}") <= (20 + SHARED_BUDGETS) as f64);
    let counted = redis.cli(&["hkeys", &window_key(&redis)]);
    assert_eq!(counted.lines().filter(|key| key.starts_with('8')).count(), 20, "{counted}");
    assert_eq!((0..5).filter(|_| status(&mut client, "acme") == 200).count(), 5);
}

#[test]
fn first_budget_that_a_reload_adds_needs_no_restart() {
    let redis = RedisServer::start(&[]);
    let origin = Origin::plain();
    let ledger = format!("ledger: {{ redis: {{ url: 'redis://127.0.0.1:{}' }} }}\n", redis.port);
    let gateway = start(origin.address(), &ledger);
    gateway.reload(origin.address(), &rules(&redis, "{ header: X-Customer }", 100)).expect("valid rules");
    let mut client = gateway.connect();
    wait_until("the server to open the budgets", || status(&mut client, "first") == 200);
    // The first request of each key waits for its lease. On a busy machine, a lease may take longer than that.
    let served = (0..20).filter(|number| status(&mut client, &format!("customer-{number}")) == 200).count();
    assert!(served > 0, "{served} of 20");
}

/// Customers by a header have another hash at each gateway until all have one secret.
#[test]
fn customers_get_no_units_while_gateways_do_not_share_the_secret_of_their_hashes() {
    let redis = RedisServer::start(&[]);
    redis.cli(&["ACL", "SETUSER", "gate", "on", ">pass", "+@all", "~{tidegate:*}:budgets*", "~{tidegate}:switches"]);
    let origin = Origin::plain();
    let rules = rules(&redis, "{ header: X-Customer }", 100).replace("redis://", "redis://gate:pass@");
    let gateways = [(); 2].map(|()| start(origin.address(), &rules));
    for gateway in &gateways {
        wait_until("the error", || {
            gateway.state()["ledger_error"]
                .as_str()
                .is_some_and(|error| error.contains("the secret that hashes credentials"))
        });
        assert_eq!(status(&mut gateway.connect(), "acme"), 503);
    }
    redis.cli(&["SET", "{tidegate}:session_secret", "no secret"]);
    redis.cli(&["ACL", "SETUSER", "gate", "~*"]);
    wait_until("the error", || {
        gateways[0].state()["ledger_error"].as_str().is_some_and(|error| error.contains("an invalid secret"))
    });
    redis.cli(&["DEL", "{tidegate}:session_secret"]);
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for gateway in &gateways {
            scope.spawn(|| request_until(gateway, "acme", &is_over, &refused));
        }
        let _end = StopOnDrop(&is_over);
        wait_until("the budget to be spent", || served(&origin, "acme") >= LIMIT);
        let before = refused.load(Ordering::SeqCst);
        wait_until("more refusals", || refused.load(Ordering::SeqCst) >= before + 50);
    });
    assert_eq!(served(&origin, "acme"), LIMIT);
    assert!(gateways.iter().all(|gateway| gateway.state()["ledger_error"].is_null()));
}

/// Status of a request for a customer; `None` if the gateway was killed.
fn try_status(gateway: &RunningGateway, customer: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(gateway.address).ok()?;
    let request = format!("GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Api-Key: key-of-{customer}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    std::str::from_utf8(response.get(9..12)?).ok()?.parse().ok()
}

#[test]
fn kills_and_cuts_give_no_customer_more_than_its_budget_of_all_gateways() {
    kill_and_cut(WINDOWS[0]);
}

#[test]
fn kills_and_cuts_give_no_customer_more_than_its_budget_of_a_sliding_window() {
    kill_and_cut(WINDOWS[1]);
}

#[test]
fn kills_and_cuts_give_no_customer_more_than_its_budget_of_the_window_it_opens() {
    kill_and_cut(WINDOWS[2]);
}

/// Gateways that are killed, a server that is killed, and one that is cut off: no customer gets more than its budget, few units are
/// lost, and what is left is served.
fn kill_and_cut(window: &str) {
    const KILLS: usize = 2;
    let mut redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let origin = Origin::plain();
    let rules = KEYS.to_owned() + &rules_with(window, &redis, "api_key", 100);
    let state_dirs = [(); 2].map(|()| tempfile::tempdir().expect("temporary directory"));
    let start = |number: usize| RunningGateway::start(state_dirs[number].path(), origin.address(), &rules);
    let mut gateways = [0, 1].map(start);
    let spend_until = |gateways: &[RunningGateway; 2], target: usize| {
        wait_until(&format!("{target} requests"), || {
            gateways.iter().for_each(|gateway| _ = try_status(gateway, "acme"));
            served(&origin, "acme") >= target
        });
    };
    spend_until(&gateways, LIMIT / 4);
    gateways[0].program.signal("KILL");
    wait_until("the end of the gateway", || try_status(&gateways[0], "acme").is_none());
    gateways[0] = start(0);
    spend_until(&gateways, LIMIT / 2);
    redis.restart();
    spend_until(&gateways, LIMIT * 5 / 8);
    redis.set_frozen(true);
    wait_until("the leases to be used up", || gateways.iter().all(|it| try_status(it, "acme") == Some(503)));
    redis.set_frozen(false);
    spend_until(&gateways, LIMIT * 3 / 4);
    gateways[1].program.signal("KILL");
    redis.restart();
    wait_until("the end of the gateway", || try_status(&gateways[1], "acme").is_none());
    gateways[1] = start(1);
    wait_until("the budget to be spent for all", || gateways.iter().all(|it| try_status(it, "acme") == Some(429)));
    let count = served(&origin, "acme");
    assert!(count <= LIMIT, "{count} of {LIMIT}");
    assert!(count + KILLS * (LIMIT / 64 + 1) >= LIMIT, "{count} of {LIMIT}: a kill loses at most a lease");
    for gateway in &gateways {
        wait_until("another customer to be served", || try_status(gateway, "trial") == Some(200));
    }
}
