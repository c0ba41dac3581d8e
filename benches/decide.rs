//! Cost of one decision with a million tracked clients: identity, class, route, bucket, tiers, reservation, permit.
//!
//! `cargo bench --bench decide`. Also prints the memory per tracked client.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use tidegate_config as config;
use tidegate_crawlers::user_agents::{ClaimCache, UserAgentMatcher};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::{Admission, Engine, LeaseMode};
use tidegate_policy::fixtures::{client_facts, request_facts};
use tidegate_policy::{Claim, ClientFacts, Facts, Proof, RequestFacts, Timestamp};

const CLIENTS: u32 = 1_000_000;
const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);
const BROWSER: &[u8] =
    b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/125.0.0.0 Safari/537.36";

const RULES: &str = "
origin: { url: 'http://127.0.0.1:1' }
quotas:
  api: { limit: 900000000000, window: { fixed: 24h }, tiers: { person: [ { above: 90%, shed: 50% } ] } }
classes:
  - { name: search, when: { operator: [googlebot, bingbot] } }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot, impostor] } }
  - { name: person, when: { kind: human }, bucket: { rate: 1000000/s, burst: 1000000 } }
routes:
  - { match: /search, cost: { api: 4 } }
  - { match: '/item/*', cost: { api: 1 } }
limits: { max_tracked_clients: 2000000 }";

struct DecisionFixture {
    admission: Admission,
    agents: UserAgentMatcher,
    operators: OperatorTable,
    claims: ClaimCache,
}

impl DecisionFixture {
    fn new() -> Self {
        let operators = OperatorTable::builtin();
        let names: Vec<&str> = operators.names().collect();
        let settings = config::load(Path::new("bench.yaml"), RULES, &[], &[], &names).expect("valid rules");
        let engine = Engine::new(LeaseMode::Local, settings.limits.max_tracked_clients);
        Self {
            admission: engine.admission(Arc::clone(&settings.rules), NOON),
            agents: UserAgentMatcher::builtin(operators.product_tokens()),
            claims: ClaimCache::new(foldhash::fast::RandomState::default()),
            operators,
        }
    }

    /// Decides one request of client `number`, from facts to permit, and settles it. Returns true if it was admitted.
    fn decide(&mut self, number: u32, path: &str) -> bool {
        let client = IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + number));
        let (claim, _) = self.claims.claim(&self.agents, BROWSER);
        let proof = match claim {
            Claim::Bot { operator: Some(operator), .. } => self.operators.verify(operator, client, NOON),
            _ => Proof::Unknown,
        };
        let request = RequestFacts { user_agent: BROWSER, ..request_facts(path) };
        let client = ClientFacts { address: client, proof, ..client_facts(claim) };
        let facts = Facts { request, client: &client };
        let rules = self.admission.rules();
        let (classified, route) = (rules.classify(&facts), rules.route(&request));
        let key = rules.trust.key(client.address);
        let decision = self.admission.admit(key, classified.class, route, path, NOON);
        decision.permit.is_some_and(|permit| permit.settle_unknown().is_empty())
    }
}

fn decisions(criterion: &mut Criterion) {
    let mut fixture = DecisionFixture::new();
    let before = resident_bytes();
    for number in 0..CLIENTS {
        fixture.decide(number, "/item/1");
    }
    let bytes_per_client = (resident_bytes() - before) as f64 / f64::from(CLIENTS);
    println!("{bytes_per_client:.1} bytes per tracked client; {CLIENTS} clients");

    let mut group = criterion.benchmark_group("decision");
    let mut number = 0u32;
    group.bench_function("a million clients, random", |bench| {
        bench.iter(|| {
            // Odd multiples modulo 2^32 visit the clients in an order without cache locality.
            number = number.wrapping_add(0x9e37_79b9);
            black_box(fixture.decide(number % CLIENTS, black_box("/item/1")))
        });
    });
    group.bench_function("a million clients, the same one", |bench| {
        bench.iter(|| black_box(fixture.decide(black_box(7), black_box("/item/1"))));
    });
    group.bench_function("a free route", |bench| {
        bench.iter(|| black_box(fixture.decide(black_box(7), black_box("/style.css"))));
    });
    group.finish();
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

criterion_group!(benches, decisions);
criterion_main!(benches);
