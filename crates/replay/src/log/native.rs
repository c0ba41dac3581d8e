//! The gateway's own access log format, which contains all facts and results of a decision.

use super::line::{LogLine, LoggedClient, RequestLine, normalize_host};
use super::native_fields::{NativeFields, QuotaFields};
use super::{LineError, MissingFields, timestamp};
use http::{Method, Version};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::Duration;
use tidegate_engine::BucketUsage;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::{Timestamp, Units};

/// Parses a line.
pub(super) fn read(text: &[u8]) -> Result<LogLine<'_>, LineError> {
    let line: NativeLine<'_> = serde_json::from_slice(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => LineError::ForeignJson,
        _ => LineError::Truncated,
    })?;
    let time = |text: &str| timestamp::rfc3339(text.as_bytes()).map(|(at, _)| at).ok_or(LineError::InvalidTime);
    let (at, settled_at) = (time(line.time)?, time(line.settled)?);
    let (headers_seen, quotas) = (line.known_headers(), line.quota_fields());
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
    let native = NativeFields {
        started_us: line.started_us,
        id: u64::from_str_radix(line.id, 16).unwrap_or(0),
        settled_at,
        key: line.key.0,
        headers_seen,
        kind: line.kind,
        class: line.class.0,
        evidence: line.evidence.into_iter().map(|entry| entry.0).collect(),
        quotas,
        reason: line.reason,
        retry_after_s: line.retry_after_s,
        tier: line.tier,
        scope: line.scope.map(|scope| scope.0),
        scope_wait: milliseconds(line.scope_wait_ms),
        origin_latency: line.origin_ms.map(milliseconds),
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
        missing: MissingFields::NONE,
        native: Some(Box::new(native)),
    })
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

/// A line as written, without the fields that replay does not use.
#[derive(Deserialize)]
struct NativeLine<'a> {
    time: &'a str,
    settled: &'a str,
    #[serde(default)]
    started_us: u64,
    id: &'a str,
    client: IpAddr,
    #[serde(borrow)]
    key: Text<'a>,
    method: Text<'a>,
    host: Text<'a>,
    path: Text<'a>,
    query: Option<Text<'a>>,
    version: &'a str,
    status: u16,
    bytes: u64,
    user_agent: Text<'a>,
    referer: Option<Text<'a>>,
    headers_seen: Vec<Text<'a>>,
    tls: Option<bool>,
    http_10: Option<bool>,
    kind: &'a str,
    class: Text<'a>,
    evidence: Vec<Text<'a>>,
    cost: QuotaMap<'a, f64>,
    charged: QuotaMap<'a, f64>,
    used: QuotaMap<'a, f64>,
    seq: QuotaMap<'a, u64>,
    settle_seq: Option<QuotaMap<'a, u64>>,
    retry_seq: Option<QuotaMap<'a, Option<u64>>>,
    reason: Option<&'a str>,
    retry_after_s: Option<u64>,
    tier: Option<u8>,
    scope: Option<Text<'a>>,
    scope_wait_ms: f64,
    origin_ms: Option<f64>,
}

impl<'a> NativeLine<'a> {
    fn known_headers(&self) -> HeadersSeen {
        let named = self.headers_seen.iter().filter_map(|name| HeadersSeen::from_name(&name.0));
        named
            .fold(HeadersSeen::default(), |headers_seen, header| headers_seen.with(header, true))
            .with(HeadersSeen::INSPECTED, self.tls.is_some())
            .with(HeadersSeen::TLS, self.tls == Some(true))
            .with(HeadersSeen::HTTP_10, self.http_10 == Some(true))
    }

    fn quota_fields(&self) -> SmallVec<[QuotaFields<'a>; 2]> {
        let account = |(quota, cost): &(Text<'a>, f64)| QuotaFields {
            quota: quota.0.clone(),
            cost: units(*cost),
            charged: units(self.charged.get(quota).unwrap_or_default()),
            used: units(self.used.get(quota).unwrap_or_default()),
            sequence: self.seq.get(quota).unwrap_or_default(),
            settle_sequence: self.settle_seq.as_ref().and_then(|sequences| sequences.get(quota)),
            retry_sequence: self.retry_seq.as_ref().and_then(|sequences| sequences.get(quota)?),
        };
        self.cost.0.iter().map(account).collect()
    }
}

/// A text that is copied only if it contains escapes.
#[derive(Clone, Deserialize, PartialEq)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Text<'a> {
    fn into_bytes(self) -> Cow<'a, [u8]> {
        match self.0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

/// An object with a number for each quota.
struct QuotaMap<'a, T>(SmallVec<[(Text<'a>, T); 2]>);

impl<T: Copy> QuotaMap<'_, T> {
    fn get(&self, quota: &Text<'_>) -> Option<T> {
        self.0.iter().find(|(name, _)| name.0 == quota.0).map(|(_, number)| *number)
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for QuotaMap<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<'a, T>(PhantomData<(&'a str, T)>);
        impl<'de: 'a, 'a, T: Deserialize<'de>> Visitor<'de> for Reader<'a, T> {
            type Value = QuotaMap<'a, T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number for each quota")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = SmallVec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(QuotaMap(pairs))
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

fn units(decimal: f64) -> Units {
    Units::from_milli((decimal * 1000.0).round() as u64)
}

fn milliseconds(decimal: f64) -> Duration {
    Duration::from_micros((decimal * 1000.0).round() as u64)
}
