//! Log formats of other servers: all formats in common use, and two complete logs of real sites.

use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_replay::log::{LogFiles, LogLine, LoggedClient, MergedLog, RequestLine};

#[test]
fn shared_log_variants_are_parsed_as_expected() {
    let Some(dir) = shared_log_dir() else { return };
    let variants = fs::read_to_string(dir.join("format-variants.jsonl")).expect("variants are UTF-8");
    let mismatches = mismatched_variants(&variants);
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
}

/// Returns a message for each variant that is parsed as something else, one line each.
fn mismatched_variants(variants: &str) -> Vec<String> {
    let mut mismatches = Vec::new();
    for variant in variants.lines() {
        let LogVariant { line, note, expect } = serde_json::from_str(variant).expect("valid variant");
        let read = LogLine::read(line.as_bytes()).ok().flatten().map(|line| ExpectedLine::from_line(&line));
        if read != expect {
            mismatches.push(format!("{note}: {read:?} instead of {expect:?}"));
        }
    }
    mismatches
}

/// Like the test above, with this repository's own variants.
#[test]
fn common_server_lines_are_parsed_as_expected() {
    let mismatches = mismatched_variants(include_str!("../data/log-variants.jsonl"));
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
}

/// Like the test of real logs, on a synthetic day with one truncated line.
#[test]
fn synthetic_log_is_read_completely() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let day: Vec<String> = tidegate::demo::log::lines(1, &tidegate::demo::day::generate(1, 0.1)).collect();
    let mut text = day.concat();
    text.push_str("198.51.100.7 - - [");
    fs::write(dir.path().join("day.log"), text).expect("file is writable");
    assert_read_completely(&dir.path().join("day.log"), day.len() as u64 + 1, 1);
}

#[test]
fn real_logs_are_read_completely() {
    let Some(dir) = shared_log_dir() else { return };
    for (name, lines, invalid) in
        [("semicomplete-2015.combined.log.gz", 10_000, 1), ("wordpress-2022.combined.log.gz", 691, 0)]
    {
        assert_read_completely(&dir.join(name), lines, invalid);
    }
}

fn assert_read_completely(log: &Path, lines: u64, invalid: u64) {
    let files = LogFiles::open(&[log.to_owned()]).expect("log can be opened");
    let merged = MergedLog::new(files.sources, Duration::from_secs(60));
    let mut valid = 0;
    let merged = merged.for_each(|_, _| valid += 1).expect("log is readable");
    let found_invalid: u64 = merged.counts.invalid_lines.values().map(|(count, _)| count).sum();
    assert_eq!((merged.counts.lines, found_invalid), (lines, invalid), "{}: {:?}", log.display(), merged.counts);
    assert_eq!(valid, lines - invalid);
}

#[derive(Deserialize)]
struct LogVariant {
    line: String,
    note: String,
    expect: Option<ExpectedLine>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct ExpectedLine {
    ip: String,
    epoch: u64,
    method: Option<String>,
    path: Option<String>,
    status: u16,
    bytes: u64,
    referer: Option<String>,
    ua: Option<String>,
}

impl ExpectedLine {
    fn from_line(line: &LogLine<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let target = |request_line: &RequestLine<'_>| match &request_line.query {
            Some(query) => format!("{}?{query}", request_line.path),
            None => request_line.path.clone().into_owned(),
        };
        Self {
            ip: match &line.client {
                LoggedClient::Address(address) => address.to_string(),
                LoggedClient::HostName(name) => (*name).to_owned(),
            },
            epoch: line.at.seconds(),
            method: line.request.as_ref().map(|request_line| request_line.method.to_string()),
            path: line.request.as_ref().map(target),
            status: line.status,
            bytes: line.bytes,
            referer: line.referer.as_deref().map(text),
            ua: line.user_agent.as_deref().map(text),
        }
    }
}

/// Returns the directory of the real logs, if available.
fn shared_log_dir() -> Option<PathBuf> {
    Some(crate::support::shared_data()?.join("data/logs"))
}
