//! Writer of access log lines: one JSON line per finished request.

use super::json;
use super::line_cache::{FragmentCache, LineFragment};
use super::number_text::{self, hexadecimal};
use super::record::{QuotaCharge, Record};
use super::timestamp::TimestampWriter;
use std::io::Write as _;
use std::net::IpAddr;
use tidegate_policy::Timestamp;
use tidegate_policy::identity::KeyOwner;

/// Writes access log lines. Reused, because it caches the date text and the fragments that thousands of lines share.
#[derive(Clone, Debug, Default)]
pub struct LineWriter {
    /// Start of the process, in microseconds since 1970 (`started_us`). Sequence numbers count from there. Replay
    /// detects a restart by it, after which clients and shares start again.
    started_us: u64,
    admitted_at: TimestampWriter,
    settled_at: TimestampWriter,
    fragments: FragmentCache,
}

impl LineWriter {
    /// Creates a writer for a process that was started at `started`.
    pub fn starting_at(started: Timestamp) -> Self {
        Self { started_us: started.0 / 1000, ..Self::default() }
    }

    /// Appends `record` to `out` as one line of JSON, with all fields that `tidegate replay` needs to repeat the
    /// decision.
    pub fn write_json(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        out.extend_from_slice(b"{\"time\":\"");
        self.admitted_at.write(out, record.admitted_at);
        out.extend_from_slice(b"\",\"settled\":\"");
        self.settled_at.write(out, record.settled_at);
        out.extend_from_slice(b"\",\"started_us\":");
        number_text::write_u64(out, self.started_us);
        out.extend_from_slice(b",\"id\":\"");
        out.extend_from_slice(&hexadecimal(record.id));
        client(out, record);
        request(out, record);
        let fragment = self.fragments.get_or_render(record);
        out.extend_from_slice(fragment.text());
        write_numbers(out, record, fragment);
    }
}

fn client(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b"\",\"client\":\"");
    match record.client {
        IpAddr::V4(v4) => number_text::ipv4(out, v4),
        IpAddr::V6(v6) => write_fmt_infallible(out, format_args!("{v6}")),
    }
    out.extend_from_slice(b"\",\"key\":\"");
    match record.key.owner() {
        KeyOwner::V4(v4) => number_text::ipv4(out, v4),
        _ => write_fmt_infallible(
            out,
            format_args!("{}", record.key.display(|operator| record.names.operator(operator))),
        ),
    }
}

fn request(out: &mut Vec<u8>, record: &Record<'_>) {
    match *record.method {
        http::Method::GET => out.extend_from_slice(b"\",\"method\":\"GET\",\"host\":\""),
        // A method is a token, so no byte needs escaping.
        ref other => write_fmt_infallible(out, format_args!("\",\"method\":\"{other}\",\"host\":\"")),
    }
    json::content(out, record.host);
    out.extend_from_slice(b"\",\"path\":\"");
    json::content(out, record.path.as_bytes());
    out.extend_from_slice(b"\",\"query\":");
    json::string_or_null(out, record.query.map(str::as_bytes));
    out.extend_from_slice(match record.version {
        http::Version::HTTP_11 => b",\"version\":\"1.1\",\"status\":",
        http::Version::HTTP_10 => b",\"version\":\"1.0\",\"status\":",
        http::Version::HTTP_2 => b",\"version\":\"2\",\"status\":",
        http::Version::HTTP_3 => b",\"version\":\"3\",\"status\":",
        _ => b",\"version\":\"0.9\",\"status\":",
    });
    number_text::write_u64(out, record.status.into());
    out.extend_from_slice(b",\"bytes\":");
    number_text::write_u64(out, record.bytes);
    out.extend_from_slice(b",\"user_agent\":\"");
    json::content(out, record.user_agent);
    out.extend_from_slice(b"\",\"referer\":");
    json::string_or_null(out, record.referer);
}

/// Writes the values that differ between requests with the same fragment.
fn write_numbers(out: &mut Vec<u8>, record: &Record<'_>, fragment: &LineFragment) {
    out.extend_from_slice(b",\"retry_after_s\":");
    json::number_or_null(out, record.retry_after_s);
    out.extend_from_slice(b",\"tier\":");
    json::number_or_null(out, record.tier.map(u64::from));
    out.extend_from_slice(if record.guard_admitted {
        b",\"guard_admitted\":true"
    } else {
        b",\"guard_admitted\":false"
    });
    out.extend_from_slice(b",\"bot_score\":");
    json::number_or_null(out, record.bot_score.map(u64::from));
    out.extend_from_slice(b",\"used\":{");
    write_per_quota(out, record, fragment, |out, charge| json::units(out, charge.used));
    out.extend_from_slice(b"},\"seq\":{");
    write_per_quota(out, record, fragment, |out, charge| number_text::write_u64(out, charge.sequence));
    out.extend_from_slice(b"},\"settle_seq\":{");
    write_per_quota(out, record, fragment, |out, charge| number_text::write_u64(out, charge.settle_sequence));
    if record.charges.iter().any(|charge| charge.retry_sequence.is_some()) {
        out.extend_from_slice(b"},\"retry_seq\":{");
        write_per_quota(out, record, fragment, |out, charge| json::number_or_null(out, charge.retry_sequence));
    }
    out.extend_from_slice(b"},\"bucket_seq\":");
    json::number_or_null(out, record.bucket_sequence);
    match record.scope {
        None => out.extend_from_slice(b",\"scope\":null,\"scope_wait_ms\":"),
        Some(scope) => {
            out.extend_from_slice(b",\"scope\":");
            json::string(out, scope.as_bytes());
            out.extend_from_slice(b",\"scope_wait_ms\":");
        }
    }
    json::milliseconds(out, record.scope_wait);
    out.extend_from_slice(b",\"origin_ms\":");
    match record.origin {
        Some(origin) => json::milliseconds(out, origin.duration),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"total_ms\":");
    json::milliseconds(out, record.total);
    match record.cache {
        None => out.extend_from_slice(b",\"cache\":null}\n"),
        Some(result) => {
            out.extend_from_slice(b",\"cache\":");
            json::string(out, result.as_bytes());
            out.extend_from_slice(b"}\n");
        }
    }
}

fn write_per_quota(
    out: &mut Vec<u8>,
    record: &Record<'_>,
    fragment: &LineFragment,
    number: impl Fn(&mut Vec<u8>, &QuotaCharge<'_>),
) {
    for (index, (key, charge)) in fragment.quotas().zip(record.charges).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(key);
        number(out, charge);
    }
}

fn write_fmt_infallible(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a vector cannot fail");
}

#[cfg(test)]
mod tests;
