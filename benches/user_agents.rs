//! Cost of user agent classification and of crawler verification.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, criterion_group, criterion_main};
use foldhash::fast::RandomState;
use ipnet::IpNet;
use tidegate_crawlers::user_agents::{ClaimCache, UserAgentMatcher};
use tidegate_crawlers::verify::{OperatorOverride, OperatorTable, RangeSource};
use tidegate_policy::{OperatorId, Timestamp};

const NOW: Timestamp = Timestamp::from_seconds(1_800_014_400);
const BOT: &[u8] = b"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const BROWSER: &[u8] =
    b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";

/// Returns the worst case of a user agent: as many partial matches as possible, all of which fail.
fn worst_case_user_agent() -> Vec<u8> {
    let mut agent = b"Mozilla/5.0 (Linux; Android 1 ".to_vec();
    while agent.len() < tidegate_crawlers::user_agents::MAX_USER_AGENT_BYTES {
        agent.extend_from_slice(b" bot http://");
    }
    agent
}

/// Returns an operator with 20,000 prefixes, more than all published lists have, and addresses inside and outside, in
/// random order.
fn operators_with_many_ranges() -> (OperatorTable, OperatorId, Vec<IpAddr>) {
    let scattered = (0..20_000_u32).map(|number| number.wrapping_mul(0x9e37_79b1));
    let prefix = |bits: u32| {
        IpNet::new(Ipv4Addr::from(bits).into(), 20 + (bits % 13) as u8).expect("prefix length is at most 32").trunc()
    };
    let ranges = scattered.clone().map(|bits| RangeSource::Network(prefix(bits))).collect();
    let operators = OperatorTable::with_overrides(vec![OperatorOverride {
        name: "acme".into(),
        ranges: Some(ranges),
        ..OperatorOverride::default()
    }]);
    let acme = operators.id("acme").expect("declared");
    (operators, acme, scattered.map(|bits| Ipv4Addr::from(bits ^ (bits >> 7 & 0x3ff)).into()).collect())
}

fn user_agents(criterion: &mut Criterion) {
    let operators = OperatorTable::builtin();
    let agents = UserAgentMatcher::builtin(operators.product_tokens());
    let mut cache = ClaimCache::new(RandomState::default());
    let google = operators.id("googlebot").expect("operator is built in");
    let at = |address: &str| address.parse::<IpAddr>().expect("an address");
    let (inside, outside, v6) = (at("66.249.66.1"), at("203.0.113.64"), at("2001:4860:4801:10::1"));

    criterion.bench_function("claim/cached", |b| {
        b.iter(|| cache.claim(&agents, black_box(BROWSER)));
    });
    criterion.bench_function("claim/new bot", |b| b.iter(|| agents.claim(black_box(BOT))));
    criterion.bench_function("claim/new browser", |b| {
        b.iter(|| agents.claim(black_box(BROWSER)));
    });
    let worst_case = worst_case_user_agent();
    criterion.bench_function("claim/worst case", |b| {
        b.iter(|| agents.claim(black_box(&worst_case)));
    });
    criterion.bench_function("proof/inside", |b| {
        b.iter(|| operators.verify(google, black_box(inside), NOW));
    });
    criterion.bench_function("proof/outside", |b| {
        b.iter(|| operators.verify(google, black_box(outside), NOW));
    });
    criterion.bench_function("proof/IPv6", |b| {
        b.iter(|| operators.verify(google, black_box(v6), NOW));
    });
    let (many_ranges, acme, addresses) = operators_with_many_ranges();
    let mut next = addresses.iter().cycle();
    criterion.bench_function("proof/20,000 prefixes", |b| {
        b.iter(|| many_ranges.verify(acme, *next.next().expect("iterator is a cycle"), NOW));
    });
    let with_dns = OperatorTable::builtin().with_dns();
    let (yandex, unverified) = (with_dns.id("yandexbot").expect("operator is built in"), at("203.0.113.64"));
    criterion.bench_function("proof/waits for DNS", |b| {
        b.iter(|| with_dns.verify(yandex, black_box(unverified), NOW));
    });
    criterion.bench_function("start/agents", |b| {
        b.iter(|| UserAgentMatcher::builtin(operators.product_tokens()));
    });
    criterion.bench_function("start/operators", |b| b.iter(OperatorTable::builtin));
}

criterion_group!(benches, user_agents);
criterion_main!(benches);
