use super::name_server::{NameServer, Reply, ptr};
use super::*;
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType, rdata::CNAME, rdata::PTR};

const BING: OperatorId = OperatorId(0);
const GOOGLE: OperatorId = OperatorId(1);
const SHORT: Duration = Duration::from_millis(50);

fn patterns() -> Vec<(DnsPattern, OperatorId)> {
    [("search.msn.com", BING), ("googlebot.com", GOOGLE)]
        .map(|(pattern, operator)| (pattern.parse().expect("a pattern"), operator))
        .into()
}

async fn find_within(server: &NameServer, address: &str, timeout: Duration) -> (AddressOwners, CacheTtl) {
    let dns = Resolver::new(&[server.address()], timeout).expect("a resolver");
    dns.verify(address.parse().expect("an address"), &patterns()).await
}

async fn find(server: &NameServer, address: &str) -> (AddressOwners, CacheTtl) {
    find_within(server, address, Duration::from_secs(60)).await
}

fn owned_by(operators: &[OperatorId]) -> AddressOwners {
    AddressOwners { verified_operators: operators.into(), default_result: DnsResult::Mismatch }
}

const HOUR: CacheTtl = CacheTtl::Record(Duration::from_secs(3600));

#[tokio::test]
async fn forward_confirmed_name_proves_the_operator() {
    let server = NameServer::start();
    server.set_ptr("157.55.39.1", &["msnbot-157-55-39-1.search.msn.com"]);
    server.set_addresses("msnbot-157-55-39-1.search.msn.com", &["157.55.39.9", "157.55.39.1"]);
    assert_eq!(find(&server, "157.55.39.1").await, (owned_by(&[BING]), HOUR));
    server.set_ptr("2001:db8::1", &["CRAWL.GoogleBot.com"]);
    server.set_addresses("crawl.googlebot.com", &["192.0.2.1", "2001:db8::1"]);
    assert_eq!(find(&server, "2001:db8::1").await, (owned_by(&[GOOGLE]), HOUR));
}

#[tokio::test]
async fn unconfirmed_name_proves_nothing() {
    let server = NameServer::start();
    server.set_ptr("192.0.2.1", &["a.search.msn.com"]);
    server.set_addresses("a.search.msn.com", &["192.0.2.2"]);
    assert_eq!(find(&server, "192.0.2.1").await, (owned_by(&[]), HOUR));
    server.set_ptr("192.0.2.3", &["nothing.search.msn.com"]);
    assert_eq!(find(&server, "192.0.2.3").await.0, owned_by(&[]));
    server.set_ptr("192.0.2.4", &["b.search.msn.com"]);
    server.set_addresses("b.search.msn.com", &["2001:db8::4"]);
    assert_eq!(find(&server, "192.0.2.4").await.0, owned_by(&[]));
}

#[tokio::test]
async fn unrelated_names_are_not_resolved() {
    let server = NameServer::start();
    server.set_ptr("192.0.2.1", &["evilsearch.msn.com", "search.msn.com.example.net", "host.example.net"]);
    assert_eq!(find(&server, "192.0.2.1").await, (owned_by(&[]), HOUR));
    assert_eq!(server.query_count(), 1);
    assert_eq!(find(&server, "192.0.2.2").await, (owned_by(&[]), CacheTtl::Record(Duration::from_secs(1800))));
}

#[tokio::test]
async fn one_confirmed_name_of_several_is_enough() {
    let server = NameServer::start();
    server.set_ptr("192.0.2.1", &["x.example.net", "a.search.msn.com", "b.search.msn.com", "c.googlebot.com"]);
    server.set_addresses("b.search.msn.com", &["192.0.2.1"]);
    server.set_addresses("c.googlebot.com", &["192.0.2.1"]);
    assert_eq!(find(&server, "192.0.2.1").await.0, owned_by(&[BING, GOOGLE]));
}

#[tokio::test]
async fn too_many_names_leave_the_result_unknown() {
    let server = NameServer::start();
    let names: Vec<String> = (0..40).map(|number| format!("{number}.search.msn.com")).collect();
    server.set_ptr("192.0.2.1", &names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(find(&server, "192.0.2.1").await, (AddressOwners::unknown(), CacheTtl::Short));
    assert!(server.query_count() < 10, "{} questions", server.query_count());
}

#[tokio::test]
async fn server_failure_leaves_the_result_unknown() {
    let server = NameServer::start();
    for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp] {
        server.set_reverse_reply("192.0.2.1", Reply::Failure(code));
        assert_eq!(find(&server, "192.0.2.1").await, (AddressOwners::unknown(), CacheTtl::Short), "{code}");
    }
    server.set_ptr("192.0.2.2", &["a.search.msn.com"]);
    server.set_reply("a.search.msn.com.", RecordType::A, Reply::Failure(ResponseCode::ServFail));
    assert_eq!(find(&server, "192.0.2.2").await, (AddressOwners::unknown(), CacheTtl::Short));
}

#[tokio::test]
async fn alias_loops_and_mismatched_answers_are_unknown() {
    let server = NameServer::start();
    let alias = |name: &str| RData::CNAME(CNAME(Name::from_ascii(name).expect("a name")));
    server.set_ptr("192.0.2.1", &["a.search.msn.com"]);
    for (name, other) in [("a.search.msn.com.", "b.search.msn.com."), ("b.search.msn.com.", "a.search.msn.com.")] {
        server.set_reply(name, RecordType::A, Reply::Records(vec![alias(other)], 60));
    }
    assert_eq!(find(&server, "192.0.2.1").await, (AddressOwners::unknown(), CacheTtl::Short));
    server.set_reverse_reply("192.0.2.2", Reply::OfAnotherName(vec![ptr("a.search.msn.com")]));
    assert_eq!(find(&server, "192.0.2.2").await, (AddressOwners::unknown(), CacheTtl::Short));
}

#[tokio::test]
async fn server_timeout_leaves_the_result_unknown() {
    let server = NameServer::start();
    server.set_reverse_reply("192.0.2.1", Reply::Silence);
    assert_eq!(find_within(&server, "192.0.2.1", SHORT).await, (AddressOwners::unknown(), CacheTtl::Short));
}

#[tokio::test]
async fn truncated_answer_is_retried_over_tcp() {
    let server = NameServer::start();
    server.set_reverse_reply("192.0.2.1", Reply::OverTcpOnly(vec![ptr("a.search.msn.com")]));
    server.set_addresses("a.search.msn.com", &["192.0.2.1"]);
    assert_eq!(find(&server, "192.0.2.1").await.0, owned_by(&[BING]));
}

#[tokio::test]
async fn deceptive_names_prove_nothing() {
    let server = NameServer::start();
    let label = |bytes: &[u8]| Name::from_labels([bytes, b"example", b"net"]).expect("a name");
    let hostile = [
        label(b"a.search.msn.com"),
        label(b"a.search.msn.com\0"),
        label(b"\xff\xfe\n"),
        Name::from_labels([b"a\\".as_slice(), b"search", b"msn", b"com"]).expect("a name"),
        Name::root(),
    ];
    let records = hostile.into_iter().map(|name| RData::PTR(PTR(name))).collect();
    server.set_reverse_reply("192.0.2.1", Reply::Records(records, 3600));
    assert_eq!(find(&server, "192.0.2.1").await.0, owned_by(&[]));
    assert_eq!(server.query_count(), 1);
}

#[test]
fn address_is_queued_only_once() {
    let verifier = DnsVerifier::new(patterns());
    let address = "192.0.2.1".parse().expect("an address");
    for _ in 0..3 {
        assert_eq!(verifier.lookup(BING, address, Timestamp::default()), DnsResult::Unknown);
        assert_eq!(verifier.lookup(GOOGLE, address, Timestamp::default()), DnsResult::Unknown);
    }
    assert_eq!(verifier.pending_count(), 1);
}

#[test]
fn flood_keeps_queue_and_cache_bounded() {
    let verifier = DnsVerifier::new(patterns());
    let addresses = (0..100_000_u32).map(|number| IpAddr::from(number.to_be_bytes()));
    for address in addresses.clone() {
        verifier.lookup(GOOGLE, address, Timestamp::default());
    }
    assert_eq!(verifier.pending_count(), queue::MAX_PENDING);
    let crawler = "157.55.39.1".parse().expect("an address");
    let day = CacheTtl::Record(Duration::from_secs(86_400));
    verifier.cache.insert(crawler, owned_by(&[BING]), day, Timestamp::default());
    for address in addresses {
        verifier.cache.insert(address, owned_by(&[]), HOUR, Timestamp::default());
    }
    assert_eq!(verifier.cache.len(), cache::MAX_ENTRIES);
    assert_eq!(
        verifier.lookup(BING, crawler, Timestamp::from_seconds(3600)),
        DnsResult::Verified,
        "invented addresses are evicted first"
    );
}

#[test]
fn proven_address_is_refreshed_early_with_priority() {
    let verifier = DnsVerifier::new(patterns());
    let [crawler, other] = ["157.55.39.1", "192.0.2.1"].map(|address| address.parse().expect("an address"));
    let at = |hours: u64| Timestamp::from_seconds(hours * 3600);
    verifier.cache.insert(crawler, owned_by(&[BING]), CacheTtl::Record(Duration::from_secs(86_400)), at(0));
    assert_eq!(verifier.lookup(BING, crawler, at(17)), DnsResult::Verified);
    assert_eq!(verifier.pending_count(), 0);
    verifier.lookup(BING, other, at(18));
    assert_eq!(verifier.lookup(BING, crawler, at(18)), DnsResult::Verified);
    let next = verifier.queue.next();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert_eq!(runtime.block_on(next), (crawler, BING));
    // All lookups fail: a verified result stays until it expires.
    verifier.cache.insert(crawler, AddressOwners::unknown(), CacheTtl::Short, at(18));
    assert_eq!(verifier.lookup(BING, crawler, at(23)), DnsResult::Verified);
    assert_eq!(verifier.lookup(BING, crawler, at(24)), DnsResult::Unknown);
}

#[test]
fn cache_ttl_stays_within_bounds() {
    let verifier = DnsVerifier::new(patterns());
    let address: IpAddr = "192.0.2.1".parse().expect("an address");
    let lifetime_minutes = |owners: AddressOwners, ttl: CacheTtl| {
        verifier.cache.insert(address, owners, ttl, Timestamp::default());
        let is_cached =
            |minutes: u64| verifier.cache.get(address, BING, Timestamp::from_seconds(minutes * 60)).is_some();
        (0..).find(|minutes| !is_cached(*minutes)).expect("the entry expires")
    };
    let record_ttl = |seconds| CacheTtl::Record(Duration::from_secs(seconds));
    assert_eq!(lifetime_minutes(owned_by(&[BING]), record_ttl(0)), 60);
    // The later result applies, even if its lifetime is shorter.
    assert_eq!(lifetime_minutes(owned_by(&[]), record_ttl(0)), 10);
    assert_eq!(lifetime_minutes(owned_by(&[]), record_ttl(1_000_000)), 60);
    assert_eq!(lifetime_minutes(AddressOwners::unknown(), CacheTtl::Short), 1);
    assert_eq!(lifetime_minutes(owned_by(&[BING]), record_ttl(1_000_000)), 24 * 60);
}
