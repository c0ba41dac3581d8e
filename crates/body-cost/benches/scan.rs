//! Throughput of scanners: one document of chat text, small events, numbers and nested objects.
//!
//! `cargo bench -p tidegate-body-cost`. Bodies arrive in chunks of 16 KiB, as a connection reads them.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tidegate_body_cost::{BodyForm, CostPaths, CostScanner, FoundCost, WeightedPath};

const CHUNK: usize = 16 * 1024;
const MEBIBYTE: usize = 1 << 20;
const USAGE: &str = r#""usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}"#;

/// Prose of a model, with the escapes of line ends and quotes.
const PROSE: &str =
    r#"The proxy relays each part of the body as it arrives, and a copy passes through the scanner.\n\n"#;
const QUOTED_PROSE: &str =
    r#"The function `scan` takes \"bytes\" and returns a \"count\", see the line below.\n    let n = 1;\n"#;

fn paths() -> CostPaths {
    let path = "usage.total_tokens".parse().expect("path");
    CostPaths::new(vec![WeightedPath { path, weight_milli: 1000 }]).expect("one path")
}

fn chat(text: &str) -> String {
    let text = text.repeat(MEBIBYTE / text.len());
    format!(r#"{{"id":"x","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}}}}],{USAGE}}}"#)
}

fn root_text() -> String {
    format!(r#"{{"response":"{}",{USAGE}}}"#, PROSE.repeat(MEBIBYTE / PROSE.len()))
}

fn embeddings() -> String {
    let numbers = "-0.0069292834,".repeat(MEBIBYTE / 14);
    format!(r#"{{"object":"list","data":[{{"embedding":[{numbers}0.1]}}],{USAGE}}}"#)
}

fn nested_objects() -> String {
    let object = r#"{"id":17,"name":"x","tags":["a","b"],"at":{"x":1,"y":2}},"#;
    format!(r#"{{"items":[{}0],{USAGE}}}"#, object.repeat(MEBIBYTE / object.len()))
}

/// Events of 64 bytes.
fn small_events() -> String {
    let event = "data: {\"id\":\"chat-1\",\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n";
    assert_eq!(event.len(), 64);
    format!("{}data: {{{USAGE}}}\n\ndata: [DONE]\n\n", event.repeat(MEBIBYTE / event.len()))
}

fn scan(paths: &CostPaths, form: BodyForm, coding: &[u8], body: &[u8]) -> FoundCost {
    let mut scanner = CostScanner::new(paths.clone(), form, coding).expect("known coding");
    body.chunks(CHUNK).for_each(|chunk| scanner.push(chunk));
    scanner.finish()
}

fn bench_scan(criterion: &mut Criterion) {
    let paths = paths();
    let mut group = criterion.benchmark_group("scan");
    for (name, form, body) in [
        ("chat", BodyForm::Json, chat(PROSE)),
        ("chat_with_quotes", BodyForm::Json, chat(QUOTED_PROSE)),
        ("root_text", BodyForm::Json, root_text()),
        ("embeddings", BodyForm::Json, embeddings()),
        ("nested_objects", BodyForm::Json, nested_objects()),
        ("small_events", BodyForm::EventStream, small_events()),
    ] {
        let expected = FoundCost::Amount { milli: 29_000 };
        assert_eq!(scan(&paths, form, b"", body.as_bytes()), expected, "{name}");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| scan(black_box(&paths), form, b"", black_box(body.as_bytes())));
        });
    }
    let small = format!(r#"{{"id":"x","choices":[{{"message":{{"content":"Hi"}}}}],{USAGE}}}"#);
    group.throughput(Throughput::Bytes(small.len() as u64));
    group.bench_function("small_document", |bencher| {
        bencher.iter(|| scan(black_box(&paths), BodyForm::Json, b"", black_box(small.as_bytes())));
    });
    group.finish();
}

criterion_group!(benches, bench_scan);
criterion_main!(benches);
