//! Writer of access log lines: one JSON line per finished request.

use super::combined::CombinedTime;
use super::number_text::{self, hexadecimal};
use super::record::{QuotaCharge, Record, RecordedMore, RecordedRequest, RejectedRecord};
use super::timestamp::TimestampWriter;
use super::{combined, evidence, json};
use std::io::Write as _;
use std::net::IpAddr;
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::{FetchMode, FetchSite, HeadersSeen, HintsBrand};
use tidegate_policy::identity::KeyOwner;
use tidegate_policy::network_origin::{Country, NetworkOrigin};
use tidegate_policy::purpose::Purpose;
use tidegate_policy::session::Session;
use tidegate_policy::{Reason, Timestamp};

/// Writes access log lines. Reused, because it caches the text of the last second.
#[derive(Clone, Debug)]
pub struct LineWriter {
    /// Text of `started_us`: the start of the process, in microseconds since 1970. Sequence numbers count from there.
    /// Replay detects a restart by it, after which clients and shares start again.
    started_us: String,
    admitted_at: TimestampWriter,
    settled_at: TimestampWriter,
    combined_time: CombinedTime,
}

impl LineWriter {
    /// Creates a writer for a process that was started at `started`.
    pub fn starting_at(started: Timestamp) -> Self {
        Self {
            started_us: (started.0 / 1000).to_string(),
            admitted_at: TimestampWriter::default(),
            settled_at: TimestampWriter::default(),
            combined_time: CombinedTime::default(),
        }
    }

    /// Appends `record` to `out` as one line in the combined format of Apache and nginx, without what that lacks.
    pub fn write_combined(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        let Record { admitted_at, client, request, response, .. } = record;
        let time = self.combined_time.text(*admitted_at);
        combined::write(out, time, client.address, request, response.status, response.bytes);
    }

    /// Appends a rejected request like [`Self::write_combined`].
    pub fn write_rejected_combined(&mut self, out: &mut Vec<u8>, rejected: &RejectedRecord<'_>) {
        let RejectedRecord { at, address, request, status, bytes, .. } = rejected;
        combined::write(out, self.combined_time.text(*at), *address, request, *status, *bytes);
    }

    /// Appends `record` to `out` as one line of JSON, with all fields that `tidegate replay` needs to repeat the
    /// decision.
    pub fn write_json(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        out.extend_from_slice(b"{\"time\":\"");
        self.admitted_at.write(out, record.admitted_at);
        out.extend_from_slice(b"\",\"settled\":\"");
        self.settled_at.write(out, record.settled_at);
        self.start(out, record.id, record.client.address);
        bucket_key(out, record);
        request(out, &record.request, record.response.status, record.response.bytes);
        classification(out, record);
        verdict(out, record);
        numbers(out, record);
    }

    /// Appends a rejected request to `out` as one line of JSON.
    pub fn write_rejected_json(&mut self, out: &mut Vec<u8>, rejected: &RejectedRecord<'_>) {
        out.extend_from_slice(b"{\"time\":\"");
        self.admitted_at.write(out, rejected.at);
        self.start(out, rejected.id, rejected.address);
        request(out, &rejected.request, rejected.status, rejected.bytes);
        out.extend_from_slice(b",\"verdict\":\"rejected\",\"problem\":\"");
        json::content(out, rejected.problem.as_bytes());
        out.extend_from_slice(b"\"}\n");
    }

    /// Appends what follows the times of a line: the start of the process, the id and the client.
    fn start(&self, out: &mut Vec<u8>, id: u64, client: IpAddr) {
        out.extend_from_slice(b"\",\"started_us\":");
        out.extend_from_slice(self.started_us.as_bytes());
        out.extend_from_slice(b",\"id\":\"");
        out.extend_from_slice(&hexadecimal(id));
        out.extend_from_slice(b"\",\"client\":\"");
        match client {
            IpAddr::V4(v4) => number_text::ipv4(out, v4),
            IpAddr::V6(v6) => write_fmt_infallible(out, format_args!("{v6}")),
        }
    }
}

fn bucket_key(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b"\",\"key\":\"");
    match record.client.key.owner() {
        KeyOwner::V4(v4) => number_text::ipv4(out, v4),
        _ => write_fmt_infallible(
            out,
            format_args!("{}", record.client.key.display(|operator| record.names.operator(operator))),
        ),
    }
}

fn request(out: &mut Vec<u8>, request: &RecordedRequest<'_>, status: u16, bytes: u64) {
    match *request.method {
        http::Method::GET => out.extend_from_slice(b"\",\"method\":\"GET\",\"host\":\""),
        ref other => {
            out.extend_from_slice(b"\",\"method\":\"");
            json::content(out, other.as_str().as_bytes());
            out.extend_from_slice(b"\",\"host\":\"");
        }
    }
    json::content(out, request.host);
    out.extend_from_slice(b"\",\"path\":\"");
    json::content(out, request.path.as_bytes());
    out.extend_from_slice(b"\",\"query\":");
    json::string_or_null(out, request.query.map(str::as_bytes));
    out.extend_from_slice(match request.version {
        http::Version::HTTP_11 => b",\"version\":\"1.1\",\"status\":",
        http::Version::HTTP_10 => b",\"version\":\"1.0\",\"status\":",
        http::Version::HTTP_2 => b",\"version\":\"2\",\"status\":",
        http::Version::HTTP_3 => b",\"version\":\"3\",\"status\":",
        _ => b",\"version\":\"0.9\",\"status\":",
    });
    number_text::write_u64(out, status.into());
    out.extend_from_slice(b",\"bytes\":");
    number_text::write_u64(out, bytes);
    out.extend_from_slice(b",\"user_agent\":\"");
    json::content(out, request.user_agent);
    out.extend_from_slice(b"\",\"referer\":");
    json::string_or_null(out, request.referer);
}

/// Writes what the values of headers say, of those that the client sent.
fn header_values(out: &mut Vec<u8>, headers: HeadersSeen) {
    let words = [
        (&b",\"fetch_mode\":\""[..], headers.fetch_mode().map(FetchMode::name)),
        (b",\"fetch_site\":\"", headers.fetch_site().map(FetchSite::name)),
        (b",\"hints_brand\":\"", headers.hints_brand().map(HintsBrand::name)),
    ];
    for (name, word) in words {
        if let Some(word) = word {
            out.extend_from_slice(name);
            out.extend_from_slice(word.as_bytes());
            out.push(b'"');
        }
    }
    if headers.contains(HeadersSeen::NO_ZSTD) {
        out.extend_from_slice(b",\"zstd\":false");
    }
    if let Some(major) = headers.hints_major() {
        out.extend_from_slice(b",\"hints_major\":");
        number_text::write_u64(out, major.into());
    }
}

/// Writes what else is known of the client.
fn more_of_client(out: &mut Vec<u8>, client: &RecordedMore<'_>) {
    let NetworkOrigin { asn, country } = client.network_origin;
    let words = [
        (&b",\"session\":\""[..], client.session.map(Session::name)),
        (b",\"purpose\":\"", client.purpose.map(Purpose::name)),
        (b",\"country\":\"", country.as_ref().map(Country::as_str)),
    ];
    for (index, (name, word)) in words.into_iter().enumerate() {
        if let Some(word) = word {
            out.extend_from_slice(name);
            json::name(out, word);
            out.push(b'"');
        }
        if index == 0 && client.session_id != 0 {
            let _ = write!(out, ",\"session_id\":\"{:08x}\"", client.session_id);
        }
    }
    if let Some(asn) = asn {
        out.extend_from_slice(b",\"asn\":");
        number_text::write_u64(out, asn.into());
    }
    if !client.field_classes.is_empty() {
        out.extend_from_slice(b",\"field_classes\":[");
        for (index, name) in client.field_classes.iter().enumerate() {
            open_string(out, index);
            json::name(out, name);
            out.push(b'"');
        }
        out.push(b']');
    }
    if let Some(customer) = client.customer {
        let _ = write!(out, ",\"customer\":\"{}\"", customer.display(|_| ""));
    }
    if let Some(trace_id) = client.trace_id {
        write_fmt_infallible(out, format_args!(",\"trace_id\":\"{trace_id:032x}\""));
    }
}

/// Writes the conditions that the request meets by its body or its fields, if there are any. Each has what to write before it.
fn conditions<'a>(out: &mut Vec<u8>, name: &[u8], words: impl Iterator<Item = (&'static str, &'a str)>) {
    let mut is_empty = true;
    for (index, (mark, word)) in words.enumerate() {
        out.extend_from_slice(if index == 0 { name } else { b"" });
        open_string(out, index);
        out.extend_from_slice(mark.as_bytes());
        json::content(out, word.as_bytes());
        out.push(b'"');
        is_empty = false;
    }
    if !is_empty {
        out.push(b']');
    }
}

fn classification(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b",\"headers_seen\":[");
    let keys = record.names.key_headers(record.client.class, record.client.signed);
    let seen = record.client.headers_seen.names().map(|name| -> &str { name });
    for (index, name) in seen.chain(keys).enumerate() {
        open_string(out, index);
        json::name(out, name);
        out.push(b'"');
    }
    out.extend_from_slice(b"],\"tls\":");
    // Null if the headers were not examined; a header that is not listed may then have been present.
    let inspected = record.client.headers_seen.contains(HeadersSeen::INSPECTED);
    json::bool_or_null(out, inspected.then(|| record.client.headers_seen.contains(HeadersSeen::TLS)));
    out.extend_from_slice(b",\"http_10\":");
    json::bool_or_null(out, inspected.then(|| record.client.headers_seen.contains(HeadersSeen::HTTP_10)));
    header_values(out, record.client.headers_seen);
    if let Some(more) = record.client.more {
        more_of_client(out, more);
    }
    out.extend_from_slice(b",\"kind\":\"");
    json::name(out, record.client.kind.name());
    out.extend_from_slice(b"\",\"class\":\"");
    json::name(out, record.client.class_name);
    out.extend_from_slice(b"\",\"operator\":");
    json::name_or_null(out, record.client.operator.map(|operator| record.names.operator(operator)));
    out.extend_from_slice(b",\"evidence\":[");
    for (index, entry) in record.client.evidence.iter().flatten().enumerate() {
        open_string(out, index);
        evidence::write(out, *entry, record.names);
        out.push(b'"');
    }
    out.push(b']');
    if let Some(json) = record.request.json {
        conditions(out, b",\"json\":[", json.words().map(|word| ("", word)));
    }
    if let Some(fields) = record.request.fields {
        conditions(out, b",\"fields\":[", fields.words());
    }
    out.extend_from_slice(b",\"route\":\"");
    json::content(out, record.decision.route_name.as_bytes());
}

fn verdict(out: &mut Vec<u8>, record: &Record<'_>) {
    per_quota(out, b"\",\"cost\":{", record.units.charges, |out, charge| json::units(out, charge.cost));
    per_quota(out, b"},\"charged\":{", record.units.charges, |out, charge| json::units(out, charge.charged));
    if !record.units.unexpected_costs.is_empty() {
        out.extend_from_slice(b"},\"unexpected_cost\":{");
        for (index, cost) in record.units.unexpected_costs.iter().enumerate() {
            quota_key(out, index, cost.quota_name);
            json::units(out, cost.charged);
        }
    }
    out.extend_from_slice(b"},\"verdict\":\"");
    json::name(out, record.decision.outcome.verdict());
    out.extend_from_slice(b"\",\"reason\":");
    reason(out, record.decision.outcome.reason());
    out.extend_from_slice(b",\"shadow_reason\":");
    reason(out, record.decision.outcome.shadow_reason());
    if let Some(effect) = record.decision.switch {
        out.extend_from_slice(b",\"switch\":\"");
        json::name(out, effect.name());
        out.push(b'"');
    }
    if let Some(fill) = record.request.fill {
        out.extend_from_slice(b",\"fill\":\"");
        json::name(out, fill.name());
        out.push(b'"');
    }
}

fn numbers(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b",\"retry_after_s\":");
    json::number_or_null(out, record.decision.retry_after_s);
    out.extend_from_slice(b",\"tier\":");
    json::number_or_null(out, record.decision.tier.map(u64::from));
    out.extend_from_slice(if record.decision.guard_admitted {
        b",\"guard_admitted\":true"
    } else {
        b",\"guard_admitted\":false"
    });
    out.extend_from_slice(b",\"bot_score\":");
    json::number_or_null(out, record.client.bot_score.map(u64::from));
    per_quota(out, b",\"used\":{", record.units.charges, |out, charge| json::units(out, charge.used));
    per_quota(out, b"},\"seq\":{", record.units.charges, |out, charge| number_text::write_u64(out, charge.sequence));
    unexpected_sequences(out, record);
    per_quota(out, b"},\"settle_seq\":{", record.units.charges, |out, charge| {
        number_text::write_u64(out, charge.settle_sequence);
    });
    unexpected_sequences(out, record);
    if record.units.charges.iter().any(|charge| charge.retry_sequence.is_some()) {
        per_quota(out, b"},\"retry_seq\":{", record.units.charges, |out, charge| {
            json::number_or_null(out, charge.retry_sequence);
        });
    }
    out.extend_from_slice(b"},\"bucket_seq\":");
    json::number_or_null(out, record.decision.bucket_sequence);
    out.extend_from_slice(b",\"scope\":");
    json::string_or_null(out, record.decision.scope.map(str::as_bytes));
    out.extend_from_slice(b",\"scope_wait_ms\":");
    json::milliseconds(out, record.decision.scope_wait);
    if let Some(origin) = record.decision.origin {
        out.extend_from_slice(b",\"origin\":\"");
        json::name(out, origin);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"origin_ms\":");
    match record.response.origin {
        Some(origin) => json::milliseconds(out, origin.duration),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"total_ms\":");
    json::milliseconds(out, record.response.total);
    if let Some(cut) = record.response.cut {
        out.extend_from_slice(b",\"cut\":\"");
        json::name(out, cut.name());
        out.push(b'"');
    }
    out.extend_from_slice(match record.response.cache {
        None => b",\"cache\":null}\n".as_slice(),
        Some(CacheResult::Hit) => b",\"cache\":\"hit\"}\n",
        Some(CacheResult::Stale) => b",\"cache\":\"stale\"}\n",
        Some(CacheResult::Revalidated) => b",\"cache\":\"revalidated\"}\n",
        Some(CacheResult::Miss) => b",\"cache\":\"miss\"}\n",
        Some(CacheResult::Bypass) => b",\"cache\":\"bypass\"}\n",
    });
}

/// Writes `opening` and a number for each quota, without the closing brace.
fn per_quota(
    out: &mut Vec<u8>,
    opening: &[u8],
    charges: &[QuotaCharge<'_>],
    number: impl Fn(&mut Vec<u8>, &QuotaCharge<'_>),
) {
    out.extend_from_slice(opening);
    for (index, charge) in charges.iter().enumerate() {
        quota_key(out, index, charge.quota_name);
        number(out, charge);
    }
}

/// Writes the sequence numbers of unexpected costs, which sort the line and settle it.
fn unexpected_sequences(out: &mut Vec<u8>, record: &Record<'_>) {
    for (index, cost) in record.units.unexpected_costs.iter().enumerate() {
        quota_key(out, record.units.charges.len() + index, cost.quota_name);
        number_text::write_u64(out, cost.settle_sequence);
    }
}

fn quota_key(out: &mut Vec<u8>, index: usize, quota_name: &str) {
    open_string(out, index);
    json::name(out, quota_name);
    out.extend_from_slice(b"\":");
}

fn reason(out: &mut Vec<u8>, reason: Option<Reason>) {
    json::name_or_null(out, reason.map(Reason::name));
}

/// Appends the opening quote of item `index` of a list or an object.
fn open_string(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
    out.push(b'"');
}

fn write_fmt_infallible(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a vector cannot fail");
}

#[cfg(test)]
mod tests;
