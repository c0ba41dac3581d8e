//! Reader of access log lines.

mod logged_evidence;
mod native_fields;

#[cfg(test)]
mod tests;

pub use logged_evidence::LoggedEvidence;
pub use native_fields::{NativeFields, QuotaFields, UnexpectedCostFields};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use tidegate_policy::Units;
use tidegate_policy::bot_detection::HeadersSeen;

/// A line as written, without the fields that no reader uses.
#[derive(Deserialize)]
#[expect(missing_docs, reason = "LOG_FIELDS documents the fields")]
pub struct NativeLine<'a> {
    pub time: &'a str,
    pub settled: &'a str,
    #[serde(default)]
    pub started_us: u64,
    pub id: &'a str,
    pub client: IpAddr,
    #[serde(borrow)]
    pub key: Text<'a>,
    pub method: Text<'a>,
    pub host: Text<'a>,
    pub path: Text<'a>,
    pub query: Option<Text<'a>>,
    pub version: &'a str,
    pub status: u16,
    pub bytes: u64,
    pub user_agent: Text<'a>,
    pub referer: Option<Text<'a>>,
    pub headers_seen: Vec<Text<'a>>,
    pub tls: Option<bool>,
    pub http_10: Option<bool>,
    pub kind: &'a str,
    pub class: Text<'a>,
    pub evidence: Vec<Text<'a>>,
    pub cost: QuotaMap<'a, f64>,
    pub charged: QuotaMap<'a, f64>,
    pub unexpected_cost: Option<QuotaMap<'a, f64>>,
    pub used: QuotaMap<'a, f64>,
    pub seq: QuotaMap<'a, u64>,
    pub settle_seq: Option<QuotaMap<'a, u64>>,
    pub retry_seq: Option<QuotaMap<'a, Option<u64>>>,
    pub reason: Option<&'a str>,
    pub shadow_reason: Option<&'a str>,
    pub switch: Option<&'a str>,
    pub fill: Option<&'a str>,
    pub retry_after_s: Option<u64>,
    pub tier: Option<u8>,
    pub scope: Option<Text<'a>>,
    pub scope_wait_ms: f64,
    pub origin_ms: Option<f64>,
    pub cache: Option<&'a str>,
}

impl<'a> NativeLine<'a> {
    /// Parses a line.
    pub fn parse(text: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text)
    }

    /// Returns the headers that the policy read.
    pub fn known_headers(&self) -> HeadersSeen {
        let named = self.headers_seen.iter().filter_map(|name| HeadersSeen::from_name(&name.0));
        named
            .fold(HeadersSeen::default(), |headers_seen, header| headers_seen.with(header, true))
            .with(HeadersSeen::INSPECTED, self.tls.is_some())
            .with(HeadersSeen::TLS, self.tls == Some(true))
            .with(HeadersSeen::HTTP_10, self.http_10 == Some(true))
    }

    /// Returns the charges for unexpected costs.
    pub fn unexpected_costs(&self) -> SmallVec<[UnexpectedCostFields<'a>; 2]> {
        let charge = |(quota, cost): &(Text<'a>, f64)| UnexpectedCostFields {
            quota: quota.0.clone(),
            charged: units(*cost),
            settle_sequence: self.settle_seq.as_ref().and_then(|sequences| sequences.get(quota)).unwrap_or_default(),
        };
        self.unexpected_cost.iter().flat_map(|costs| &costs.0).map(charge).collect()
    }

    /// Returns the quotas of the route.
    pub fn quota_fields(&self) -> SmallVec<[QuotaFields<'a>; 2]> {
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
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl<'a> Text<'a> {
    /// Converts the text to bytes.
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        match self.0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

/// An object with a number for each quota.
pub struct QuotaMap<'a, T>(SmallVec<[(Text<'a>, T); 2]>);

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
