//! Cost of bot detection by behavior, and of address list lookups.
//!
//! `cargo bench --bench bot_detection`. Also prints the memory per tracked client.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config as config;
use tidegate_engine::{Admission, Engine, LeaseMode, ProfileKey};
use tidegate_policy::Timestamp;
use tidegate_policy::address_lists::AddressLists;
use tidegate_policy::bot_detection::{
    BrowserTraits, HeadersSeen, Referer, RequestFeatures, ResourceKind, ResponseOutcome,
};
use tidegate_policy::identity::ProxyTrust;
use tidegate_policy::network::IpPrefix;
const CLIENTS: u32 = 100_000;
const NETWORKS: u32 = 100_000;
const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);
const BROWSER: &[u8] =
    b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0.0.0 Safari/537.36";

fn bot_detection(criterion: &mut Criterion) {
    let rules = "{ origin: { url: 'http://127.0.0.1:1' }, bot_detection: { max_clients: 200000 } }";
    let settings = config::load(Path::new("bench.yaml"), rules, &[], &[], &[]).expect("valid rules");
    let engine = Engine::new(LeaseMode::Local, 1000);
    let admission = engine.admission(Arc::clone(&settings.rules), NOON);
    let before = resident_bytes();
    for number in 0..CLIENTS {
        for resource in [ResourceKind::Page(1), ResourceKind::Asset, ResourceKind::Asset, ResourceKind::Page(2)] {
            admission.record_request(
                profile_key(&admission, number),
                &request_features(resource),
                ResponseOutcome::Served,
            );
        }
    }
    let bytes_per_client = (resident_bytes() - before) as f64 / f64::from(CLIENTS);
    println!("{bytes_per_client:.1} bytes per tracked client, including its network; {CLIENTS} clients");

    let arriving = RequestFeatures { at: NOON + Duration::from_secs(600), ..request_features(ResourceKind::Page(3)) };
    let mut number = 0_u32;
    let mut next = move || {
        // Odd multiples modulo 2^32 visit the clients in an order without cache locality.
        number = number.wrapping_add(0x9e37_79b9);
        number % CLIENTS
    };
    let mut group = criterion.benchmark_group("behaviour");
    group.bench_function("score: the same client", |bench| {
        bench.iter(|| admission.bot_score_if_suspected(profile_key(&admission, black_box(7)), &arriving));
    });
    group.bench_function("score: random clients", |bench| {
        bench.iter(|| admission.bot_score_if_suspected(profile_key(&admission, next()), &arriving));
    });
    group.bench_function("score: an unknown client", |bench| {
        bench.iter(|| admission.bot_score_if_suspected(profile_key(&admission, black_box(CLIENTS + 1)), &arriving));
    });
    let page = request_features(ResourceKind::Page(3));
    group.bench_function("record: the same client", |bench| {
        bench.iter(|| admission.record_request(profile_key(&admission, black_box(7)), &page, ResponseOutcome::Served));
    });
    group.bench_function("record: random clients", |bench| {
        bench.iter(|| admission.record_request(profile_key(&admission, next()), &page, ResponseOutcome::Served));
    });
    group.finish();
}

fn address_lists(criterion: &mut Criterion) {
    let network = |number: u32| {
        let bits = number.wrapping_mul(0x9e37_79b9);
        let v6 = Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(bits) << 64);
        [IpPrefix::new(Ipv4Addr::from(bits).into(), 24), IpPrefix::new(v6.into(), 64)]
    };
    let networks = (0..NETWORKS / 2).flat_map(network).flatten().collect();
    let lists = AddressLists::new(&[networks]);
    let mut group = criterion.benchmark_group("100,000 networks");
    let mut number = 0_u32;
    group.bench_function("random IPv4 addresses", |bench| {
        bench.iter(|| {
            number = number.wrapping_add(0x9e37_79b1);
            lists.lookup(IpAddr::V4(Ipv4Addr::from(black_box(number))))
        });
    });
    let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6));
    group.bench_function("an IPv6 address", |bench| bench.iter(|| lists.lookup(black_box(v6))));
    group.finish();
}

fn profile_key(admission: &Admission, number: u32) -> ProfileKey {
    let client = IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + number));
    admission.profile_key(ProxyTrust::default().key(client), BROWSER, 0)
}

fn request_features(resource: ResourceKind) -> RequestFeatures {
    let browser = BrowserTraits { is_graphical: true, ..BrowserTraits::default() };
    RequestFeatures {
        at: NOON,
        browser,
        resource_kind: resource,
        is_costly: true,
        referer: Referer::Internal,
        headers: HeadersSeen::INSPECTED,
        session: None,
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

criterion_group!(benches, bot_detection, address_lists);
criterion_main!(benches);
