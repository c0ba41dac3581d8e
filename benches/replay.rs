//! How many lines of a log are decided in a second, on one core: a made-up day, over and over, as nginx would have logged
//! it, under the rules of the file in config/.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::fmt::Write;
use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;
use tidegate::config;
use tidegate::demo::day;
use tidegate::policy::lists::Lists;
use tidegate::replay::log::{Merged, Source};
use tidegate::replay::{Assumptions, Policy, Replay};
use tidegate::verify::Operators;

fn replay(c: &mut Criterion) {
    let log = log();
    let lines = log.iter().filter(|byte| **byte == b'\n').count() as u64;
    let mut group = c.benchmark_group("replay");
    group.throughput(Throughput::Elements(lines)).sample_size(10);
    group.bench_function("lines", |bencher| {
        bencher.iter_batched(
            || (log.clone(), policy()),
            |(log, policy)| black_box(run(log, policy)),
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn run(log: Vec<u8>, policy: Policy) -> u64 {
    let source = Source::new("day.log".into(), Box::new(Cursor::new(log)));
    let replay = Replay {
        files: vec!["day.log".into()],
        lines: Merged::new(vec![source], Duration::from_secs(60)),
        window: Duration::from_secs(60),
        assumptions: Assumptions::default(),
    };
    replay.run(policy, None, None, &mut |_| ()).expect("it is in memory").policies[0].admitted
}

fn policy() -> Policy {
    let operators = Operators::builtin();
    let names: Vec<&str> = operators.names().collect();
    let settings =
        config::load(Path::new("config/tidegate.yaml"), include_str!("../config/tidegate.yaml"), &[], &[], &names);
    let settings = settings.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    Policy { name: "config/tidegate.yaml".into(), settings, operators, lists: Lists::default() }
}

/// As many days as make half a million lines, each with people and crawlers of its own.
fn log() -> Vec<u8> {
    let mut log = String::new();
    let mut lines = 0;
    for number in 1.. {
        for visit in day::generate(number, 1.0) {
            let second = visit.at.as_secs();
            let (hour, minute, second) = (second / 3600 % 24, second / 60 % 60, second % 60);
            let (date, month) = ((number - 1) % 28 + 1, MONTHS[((number - 1) / 28 % 12) as usize]);
            let _ = writeln!(
                log,
                "{} - - [{date:02}/{month}/2024:{hour:02}:{minute:02}:{second:02} +0000] \"{} {} HTTP/1.1\" 200 5120 \"{}\" \"{}\"",
                visit.client,
                visit.method,
                visit.path,
                visit.referer.as_deref().unwrap_or("-"),
                visit.user_agent,
            );
            lines += 1;
        }
        if lines >= LINES {
            return log.into_bytes();
        }
    }
    unreachable!("days have lines")
}

const LINES: u64 = 500_000;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

criterion_group!(benches, replay);
criterion_main!(benches);
