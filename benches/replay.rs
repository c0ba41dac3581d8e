//! Replay rate in log lines per second on one core: synthetic days in nginx format, under the rules of the file in
//! config/.
//!
//! `cargo bench --bench replay`. Measures the CPU time of this thread, so that it can run on a busy machine. Prints the
//! peak memory for a log, and for one of four times its length; then the time with a simulated cache relative to that
//! without, in turns, and the peak memory for a log with more pages than the simulation remembers.

use std::fmt::Write;
use std::fs;
use std::io::BufWriter;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate::demo::day;
use tidegate_config as config;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::address_lists::AddressLists;
use tidegate_replay::log::{LogFiles, MergedLog};
use tidegate_replay::{Assumptions, Policy, Replay};

const ROUNDS: usize = 7;

fn main() {
    let path = std::env::temp_dir().join(format!("tidegate-replay-{}.log", std::process::id()));
    for days in [10, 40] {
        let lines = write_log(&path, days).expect("log is writable");
        let mut rates: Vec<u64> = (0..ROUNDS).map(|_| (lines as f64 / replay_cpu_seconds(&path, "")) as u64).collect();
        rates.sort_unstable();
        let (median, best) = (rates[ROUNDS / 2], rates[ROUNDS - 1]);
        println!("{lines} lines: median {median} lines/s, best {best} lines/s; {}", peak_memory());
    }
    let ratio = |_| replay_cpu_seconds(&path, CACHE) / replay_cpu_seconds(&path, "");
    let mut ratios: Vec<f64> = (0..ROUNDS).map(ratio).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|index| ratios[index]);
    println!("with a simulated cache: {median:.3} of the time without, {least:.3} to {most:.3}; {}", peak_memory());
    let lines = write_crawl(&path).expect("log is writable");
    for (name, cache) in [("without a cache", ""), ("with a simulated cache", CACHE)] {
        let rate = (lines as f64 / replay_cpu_seconds(&path, cache)) as u64;
        println!("{lines} lines, each of another page, {name}: {rate} lines/s; {}", peak_memory());
    }
    let _ = fs::remove_file(path);
}

/// Section of the cache, added to the configuration.
const CACHE: &str = "\ncache: {}\n";

/// Replays the log under the configuration with the section `cache`, or without. Returns the CPU time, in seconds.
fn replay_cpu_seconds(path: &Path, cache: &str) -> f64 {
    let (policy, start) = (policy(cache), thread_cpu_ns());
    let files = LogFiles::open(&[PathBuf::from(path)]).expect("log was written");
    let window = Duration::from_secs(60);
    let replay = Replay {
        files: vec!["day.log".into()],
        lines: MergedLog::new(files.sources, window),
        reorder_window: window,
        assumptions: Assumptions { max_age: Some(Duration::from_secs(600)), ..Assumptions::default() },
    };
    let report = replay.run(policy, None, None, &mut |_| ()).expect("log has requests");
    assert!(report.policies[0].refused > 0, "the policy refuses requests");
    (thread_cpu_ns() - start) as f64 / 1e9
}

fn policy(cache: &str) -> Policy {
    let operators = OperatorTable::builtin();
    let names: Vec<&str> = operators.names().collect();
    let yaml = include_str!("../config/tidegate.yaml").to_owned() + cache;
    let settings = config::load(Path::new("config/tidegate.yaml"), &yaml, &[], &[], &names);
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
    Policy::new("config/tidegate.yaml".into(), settings, operators, AddressLists::default())
}

/// Writes `days` days, each with its own humans and crawlers. Returns the number of lines.
fn write_log(path: &Path, days: u64) -> std::io::Result<u64> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    let mut lines = 0;
    let mut line = String::new();
    for number in 0..days {
        let (date, month) = (number % 28 + 1, MONTHS[(number / 28 % 12) as usize]);
        for request in day::generate(number, 1.0) {
            let second = request.at.as_secs();
            let (hour, minute, second) = (second / 3600 % 24, second / 60 % 60, second % 60);
            line.clear();
            let _ = writeln!(
                line,
                "{} - - [{date:02}/{month}/2024:{hour:02}:{minute:02}:{second:02} +0000] \"{} {} HTTP/1.1\" 200 5120 \"{}\" \"{}\"",
                request.client,
                request.method,
                request.path,
                request.referer.as_deref().unwrap_or("-"),
                request.user_agent,
            );
            file.write_all(line.as_bytes())?;
            lines += 1;
        }
    }
    file.flush()?;
    Ok(lines)
}

/// Writes two million requests of many clients, each for another free page, so that all but the first, of a bot for a page
/// with a cost, are admitted. Returns their number.
fn write_crawl(path: &Path) -> std::io::Result<u64> {
    const PAGES: u64 = 2_000_000;
    let mut file = BufWriter::new(fs::File::create(path)?);
    writeln!(file, "192.0.2.7 - - [07/Jun/2024:00:00:00 +0000] \"GET /item/1 HTTP/1.1\" 200 5120 \"-\" \"curl/8.0\"")?;
    for page in 1..PAGES {
        let (hour, minute, second) = (page / 90_000, page / 1500 % 60, page / 25 % 60);
        let (high, low) = (page / 256 % 128, page % 256);
        let time = format!("07/Jun/2024:{hour:02}:{minute:02}:{second:02} +0000");
        writeln!(
            file,
            "10.{high}.{low}.7 - - [{time}] \"GET /page/{page} HTTP/1.1\" 200 5120 \"-\" \"Mozilla/5.0 Firefox/140.0\""
        )?;
    }
    file.flush()?;
    Ok(PAGES)
}

/// Returns the CPU time of this thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("/proc has schedstat");
    text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok()).expect("a number")
}

/// Returns the peak resident memory of the process as a text.
fn peak_memory() -> String {
    let peak_mib = peak_memory_kib().map_or_else(|| "?".to_owned(), |kibibytes| (kibibytes / 1024).to_string());
    format!("peak memory {peak_mib} MiB")
}

/// Returns the peak resident memory of the process, in KiB.
fn peak_memory_kib() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
