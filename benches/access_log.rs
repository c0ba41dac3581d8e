//! Cost of recording one request: its log line, its counters, and both with the decision ring and the log queue.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::io;
use tidegate::telemetry::{AccessLog, Telemetry, WorkerCounters};
use tidegate_access_log::LineWriter;
use tidegate_access_log::sample::sample_record;
use tidegate_policy::Timestamp;

fn one_request(criterion: &mut Criterion) {
    let record = sample_record();

    let (mut writer, mut out) = (LineWriter::starting_at(Timestamp::default()), Vec::with_capacity(4096));
    criterion.bench_function("line", |bencher| {
        bencher.iter(|| {
            out.clear();
            writer.write_json(&mut out, black_box(&record));
            out.len()
        });
    });

    let mut cells = WorkerCounters::default();
    criterion.bench_function("cells", |bencher| bencher.iter(|| cells.record(black_box(&record))));

    let log = AccessLog::start_with("of the benchmark", || Ok(Box::new(io::sink()))).expect("a sink always opens");
    let worker = Telemetry::new(Some(log), ("bench", ""), Timestamp::default()).worker();
    criterion.bench_function("record", |bencher| bencher.iter(|| worker.record(black_box(&record))));
}

criterion_group!(benches, one_request);
criterion_main!(benches);
