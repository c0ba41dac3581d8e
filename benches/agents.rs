//! What it costs to learn what a client claims, and what proves it.

use std::hint::black_box;
use std::net::IpAddr;

use criterion::{Criterion, criterion_group, criterion_main};
use foldhash::fast::RandomState;
use tidegate::agents::{Agents, ClaimCache};
use tidegate::verify::Operators;

const BOT: &[u8] = b"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
const BROWSER: &[u8] =
    b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";

fn agents(criterion: &mut Criterion) {
    let operators = Operators::builtin();
    let agents = Agents::builtin(operators.tokens());
    let mut cache = ClaimCache::new(RandomState::default());
    let google = operators.id("googlebot").expect("it is built in");
    let at = |address: &str| address.parse::<IpAddr>().expect("an address");
    let (inside, outside, v6) = (at("66.249.66.1"), at("203.0.113.64"), at("2001:4860:4801:10::1"));

    criterion.bench_function("claim/seen", |b| {
        b.iter(|| cache.claim(&agents, black_box(BROWSER)));
    });
    criterion.bench_function("claim/new bot", |b| b.iter(|| agents.claim(black_box(BOT))));
    criterion.bench_function("claim/new browser", |b| {
        b.iter(|| agents.claim(black_box(BROWSER)));
    });
    criterion.bench_function("proof/inside", |b| {
        b.iter(|| operators.proof(google, black_box(inside)));
    });
    criterion.bench_function("proof/outside", |b| {
        b.iter(|| operators.proof(google, black_box(outside)));
    });
    criterion.bench_function("proof/IPv6", |b| {
        b.iter(|| operators.proof(google, black_box(v6)));
    });
    criterion.bench_function("start/agents", |b| {
        b.iter(|| Agents::builtin(operators.tokens()));
    });
    criterion.bench_function("start/operators", |b| b.iter(Operators::builtin));
}

criterion_group!(benches, agents);
criterion_main!(benches);
