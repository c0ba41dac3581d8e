//! The gateway's own access log format, which contains all facts and results of a decision.

use super::line::{LogLine, LoggedClient, RequestLine, normalize_host};
use super::{LineError, MissingFields, timestamp};
use http::{Method, Version};
use serde_json::error::Category;
use std::time::Duration;
use tidegate_access_log::read::{NativeFields, NativeLine, RejectedLine, Text};
use tidegate_engine::BucketUsage;
use tidegate_http_cache::CacheResult;
use tidegate_policy::Timestamp;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::request_fields::FieldMatch;
use tidegate_policy::switches::SwitchEffect;

/// Parses a line.
pub(super) fn read(text: &[u8]) -> Result<LogLine<'_>, LineError> {
    let time = |text: &str| timestamp::rfc3339(text.as_bytes()).map(|(at, _)| at).ok_or(LineError::InvalidTime);
    let line = match NativeLine::parse(text) {
        Ok(line) => line,
        Err(error) if error.classify() == Category::Data => {
            let rejected = RejectedLine::parse(text).ok_or(LineError::UnknownJson)?;
            return Ok(rejected_line(&rejected, time(rejected.time)?));
        }
        Err(_) => return Err(LineError::Truncated),
    };
    let (at, settled_at) = (time(line.time)?, time(line.settled)?);
    let (headers_seen, quotas, unexpected_costs) = (line.known_headers(), line.quota_fields(), line.unexpected_costs());
    let request = Method::from_bytes(line.method.0.as_bytes()).ok().map(|method| RequestLine {
        method,
        path: line.path.0,
        query: line.query.map(|query| query.0),
        version: match line.version {
            "1.0" => Version::HTTP_10,
            "2" => Version::HTTP_2,
            "3" => Version::HTTP_3,
            _ => Version::HTTP_11,
        },
    });
    let cache = line.cache.and_then(CacheResult::from_name);
    let is_copy = matches!(cache, Some(CacheResult::Hit | CacheResult::Stale));
    // A copy sent after a fetch or in place of a refusal leaves the costs of the request in the log.
    let (has_copy, has_copy_of_refusal) = (is_copy && quotas.is_empty(), is_copy && line.reason.is_some());
    let native = NativeFields {
        started_us: line.started_us,
        id: u64::from_str_radix(line.id, 16).unwrap_or(0),
        settled_at,
        key: line.key.0,
        headers_seen,
        kind: line.kind,
        class: line.class.0,
        session: line.session,
        session_id: line.session_id,
        network_origin: NetworkOrigin { asn: line.asn, country: line.country.and_then(|code| code.parse().ok()) },
        customer: line.customer,
        field_classes: line.field_classes.into_iter().flatten().map(|name| name.0).collect(),
        json: line.json.map(|words| JsonMatch::from_words(words.iter().map(|word| &*word.0))),
        fields: line.fields.map(|words| FieldMatch::from_words(words.iter().map(|word| &*word.0))),
        evidence: line.evidence.into_iter().map(|entry| entry.0).collect(),
        quotas,
        unexpected_costs,
        reason: line.reason,
        shadow_reason: line.shadow_reason,
        switch: line.switch.and_then(SwitchEffect::from_name),
        fill: line.fill.and_then(CacheFill::from_name),
        retry_after_s: line.retry_after_s,
        tier: line.tier,
        scope: line.scope.map(|scope| scope.0),
        scope_wait: milliseconds(line.scope_wait_ms),
        origin_latency: line.origin_ms.map(milliseconds),
        cache,
        has_copy,
        has_copy_of_refusal,
    };
    Ok(LogLine {
        at,
        client: LoggedClient::Address(line.client),
        request,
        host: Some(normalize_host(line.host.0)),
        status: line.status,
        bytes: line.bytes,
        referer: line.referer.map(Text::into_bytes),
        user_agent: Some(line.user_agent.into_bytes()).filter(|agent| !agent.is_empty()),
        latency: None,
        headers_seen: None,
        missing: MissingFields::NONE,
        native: Some(Box::new(native)),
    })
}

/// Returns the line of a rejected request: one without a request that the rules could decide on.
fn rejected_line<'a>(rejected: &RejectedLine<'_>, at: Timestamp) -> LogLine<'a> {
    LogLine {
        at,
        client: LoggedClient::Address(rejected.client),
        request: None,
        host: None,
        status: rejected.status,
        bytes: rejected.bytes,
        referer: None,
        user_agent: None,
        latency: None,
        headers_seen: None,
        missing: MissingFields::NONE,
        native: None,
    }
}

/// Returns the time of a line.
pub(super) fn read_time(text: &[u8]) -> Option<Timestamp> {
    let time = text.strip_prefix(b"{\"time\":\"")?;
    timestamp::rfc3339(&time[..memchr::memchr(b'"', time)?]).map(|(at, _)| at)
}

/// Counter of decisions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LogSequenceDomain {
    /// A quota, by its name as written.
    Quota(Box<[u8]>),
    /// Buckets of a group of clients.
    Buckets(u64),
}

/// Position of a decision among all of a gateway: its process, and the sequence number in it.
pub(super) type Sequence = (u64, u64);

/// Returns the sequence numbers of a decision. A client cannot forge them because quotes in its data are escaped.
pub(super) fn decision_sequences(text: &[u8]) -> impl Iterator<Item = (LogSequenceDomain, Sequence)> {
    const STARTED_US_KEY: &[u8] = b",\"started_us\":";
    const QUOTAS: &[u8] = b",\"seq\":{";
    const BUCKET: &[u8] = b",\"bucket_seq\":";
    let after_key = |key: &[u8], from: &[u8]| memchr::memmem::rfind(from, key).map(|at| at + key.len());
    let started_us = after_key(STARTED_US_KEY, &text[..text.len().min(MAX_PREFIX_BYTES)])
        .and_then(|at| parse_u64_at(&text[at..]))
        .unwrap_or(0);
    let quotas = after_key(QUOTAS, text).map_or(&[][..], |at| &text[at..]);
    let bucket = after_key(BUCKET, quotas).and_then(|at| parse_u64_at(&quotas[at..]));
    let bucket = bucket.map(|sequence| (LogSequenceDomain::Buckets(sequence % BucketUsage::SEQUENCE_SHARDS), sequence));
    let end = memchr::memchr(b'}', quotas).unwrap_or(0);
    let quota_sequences = quotas[..end].split(|&byte| byte == b',').filter_map(|pair| {
        let colon = memchr::memrchr(b':', pair)?;
        Some((LogSequenceDomain::Quota(pair[..colon].into()), parse_u64_at(&pair[colon + 1..])?))
    });
    quota_sequences.chain(bucket).map(move |(domain, sequence)| (domain, (started_us, sequence)))
}

/// Maximum length of the start of a line before any data of the client.
const MAX_PREFIX_BYTES: usize = 120;

fn parse_u64_at(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

fn milliseconds(decimal: f64) -> Duration {
    Duration::from_micros((decimal * 1000.0).round() as u64)
}
