//! Reader of access log lines.

mod logged_evidence;
mod native_fields;

#[cfg(test)]
mod tests;

pub use logged_evidence::LoggedEvidence;
pub use native_fields::{NativeFields, QuotaFields, UnexpectedCostFields};

use super::fields::LogField;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use tidegate_policy::Units;
use tidegate_policy::bot_detection::{FetchMode, FetchSite, HeadersSeen, HintsBrand};

macro_rules! log_line {
    (
        $(#[$attribute:meta])*
        pub struct $line:ident<$text:lifetime> {
            $($(#[doc = $doc:literal])+ $(#[serde $serde:tt])* pub $name:ident: $type:ty => $json_type:literal,)*
        }
    ) => {
        $(#[$attribute])*
        pub struct $line<$text> {
            $($(#[doc = $doc])+ $(#[serde $serde])* pub $name: $type,)*
        }

        /// All fields of an access log line, in order.
        pub const LOG_FIELDS: &[LogField] = &[
            $(LogField {
                name: stringify!($name),
                json_type: $json_type,
                meaning: concat!($($doc),+).trim_ascii(),
            }),*
        ];
    };
}

log_line! {
    /// A line as written. A field that no reader uses is skipped.
    #[derive(Deserialize)]
    pub struct NativeLine<'a> {
        /// Time of the verdict.
        pub time: &'a str => "time",
        /// Time of settlement, when the response was sent. For a request of another proxy (`forward_auth`), when its
        /// cost was known.
        pub settled: &'a str => "time",
        /// Start of the process, in microseconds since 1970. Replay detects a restart by it, after which clients and
        /// shares start again.
        #[serde(default)]
        pub started_us: u64 => "integer",
        /// Id of the decision, 16 hexadecimal digits, as sent to the client in `X-Tidegate-Decision`.
        pub id: &'a str => "string",
        /// Address of the client.
        pub client: IpAddr => "string",
        /// Key of the client's bucket: an IPv4 address, the first address of an IPv6 prefix, an operator or the class.
        /// For a bucket by header or cookie it is `hash:...`, the same for the same value: until the restart, or longer where
        /// usage by credential or sessions are kept in `state_dir`.
        #[serde(borrow)]
        pub key: Text<'a> => "string",
        /// Request method.
        pub method: Text<'a> => "string",
        /// Requested host.
        pub host: Text<'a> => "string",
        /// Path as sent, not normalized.
        pub path: Text<'a> => "string",
        /// Query without the question mark. It is null if there was none.
        pub query: Option<Text<'a>> => "string or null",
        /// HTTP version of the client: `1.0`, `1.1` or `2`.
        pub version: &'a str => "string",
        /// Response status.
        pub status: u16 => "integer",
        /// Number of response body bytes sent.
        pub bytes: u64 => "integer",
        /// User agent as sent. It is empty if there was none.
        pub user_agent: Text<'a> => "string",
        /// `Referer` as sent.
        pub referer: Option<Text<'a>> => "string or null",
        /// Names of the headers that the policy read, including the header or cookie of a known key; never their
        /// values.
        pub headers_seen: Vec<Text<'a>> => "list of string",
        /// True if the client used TLS, possibly to a proxy in front of the gateway. It is null if the headers were not
        /// examined; a header that `headers_seen` does not list may then have been present.
        pub tls: Option<bool> => "boolean or null",
        /// True if the client itself used HTTP/1.0. It is null if the headers were not examined.
        pub http_10: Option<bool> => "boolean or null",
        /// Mode of the request by `Sec-Fetch-Mode`: `navigate`, or `subresource` for every other one. The field is absent if the
        /// client sent none.
        pub fetch_mode: Option<&'a str> => "string",
        /// `Sec-Fetch-Site` of the request: `none`, `same-origin`, `same-site` or `cross-site`. The field is absent if the client
        /// sent none.
        pub fetch_site: Option<&'a str> => "string",
        /// Brand in `Sec-CH-UA`: `Google Chrome`, `Microsoft Edge` or `HeadlessChrome`. The field is absent if the client sent none of
        /// them.
        pub hints_brand: Option<&'a str> => "string",
        /// False if the client used TLS and sent an `Accept-Encoding` without `zstd`. The field is absent otherwise.
        pub zstd: Option<bool> => "boolean",
        /// Version of Chromium in `Sec-CH-UA`. The field is absent if the client sent none.
        pub hints_major: Option<u16> => "integer",
        /// Session of the client: `none`, `new` or `known`. The field is absent without `sessions`.
        pub session: Option<&'a str> => "string",
        /// Part of the id in the client's session cookie, in hexadecimal: the same for all requests of a session. The field is
        /// absent without one.
        pub session_id: Option<&'a str> => "string",
        /// Purpose of the operator that the client belongs to, or claims to: `search`, `agent`, `training`, `monitor` or
        /// `preview`. The field is absent for all other clients.
        #[serde(skip)]
        pub purpose: () => "string",
        /// Country of the client, as two letters. The field is absent unless `clients.country_database` has it.
        pub country: Option<&'a str> => "string",
        /// Number of the client's autonomous system. The field is absent unless `clients.asn_database` has it.
        pub asn: Option<u32> => "integer",
        /// Names of the classes whose conditions `header` and `cookie` the request meets. The field is absent if there are
        /// none.
        pub field_classes: Option<Vec<Text<'a>>> => "list of string",
        /// Customer whose budgets the request is charged to: `hash:...`, the same for the same name of a listed key, or the
        /// same credential. The field is absent unless a quota counts by customer, and for a client without a credential.
        pub customer: Option<&'a str> => "string",
        /// Id of the trace that the request belongs to (W3C Trace Context), as 32 hexadecimal digits. The field is absent without
        /// `traces`.
        #[serde(skip)]
        pub trace_id: () => "string",
        /// [Kind](#kind) of the client.
        pub kind: &'a str => "string",
        /// Name of the client's class.
        pub class: Text<'a> => "string",
        /// Operator of the crawler. It is null unless verified.
        #[serde(skip)]
        pub operator: () => "string or null",
        /// Reasons of the classification, up to seven [entries](#evidence) in order; strongest last.
        pub evidence: Vec<Text<'a>> => "list of string",
        /// Conditions `json` of routes that the body of the request meets, such as `method=tools/call`; `unreadable` if it may
        /// meet any. Other values of the body are not logged. The field is absent if it meets none, or no route asks.
        pub json: Option<Vec<Text<'a>>> => "list of string",
        /// Conditions `header` and `cookie` of routes that the request meets, such as `x-api-version=2`, or `cookie:beta=1`; with `?`
        /// before it, one that it meets only as some origins read it. The field is absent if there are none.
        pub fields: Option<Vec<Text<'a>>> => "list of string",
        /// Route of the request: its `match` as written. Where several routes have one `match`, the names of their conditions follow,
        /// as in `/search (x-depth)`, and numbers if these are the same.
        #[serde(skip)]
        pub route: () => "string",
        /// Units reserved at admission, by quota. For a refused request they are what it would have cost.
        pub cost: QuotaMap<'a, f64> => "object of number",
        /// Units charged at settlement, by quota.
        pub charged: QuotaMap<'a, f64> => "object of number",
        /// Units charged for a cost that the origin reported in `cost_header` although the route has no cost in the
        /// quota, by quota. The field is absent if there are none.
        pub unexpected_cost: Option<QuotaMap<'a, f64>> => "object of number",
        /// [Verdict](#verdict) on the request.
        #[serde(skip)]
        pub verdict: () => "string",
        /// [Reason](#reason) of the refusal. It is null if the request was admitted.
        pub reason: Option<&'a str> => "string or null",
        /// [Reason](#reason) of the first rule in shadow mode (`enforce: false`) that would have refused an admitted
        /// request.
        pub shadow_reason: Option<&'a str> => "string or null",
        /// Switch of an administrator that applied to the client: `block`, `allow` or `maintenance`. The field is
        /// absent if none did.
        pub switch: Option<&'a str> => "string",
        /// Reason of a request that the gateway made itself to fill the cache: `warm` (`tidegate cache warm`) or
        /// `refresh` (`cache.refresh`). Its class is the one that it was made for. The field is absent for requests of
        /// clients.
        pub fill: Option<&'a str> => "string",
        /// `Retry-After` sent to the client, in seconds.
        pub retry_after_s: Option<u64> => "integer or null",
        /// Number of tiers that the class had entered, the highest of all quotas. It is null if no quota was evaluated.
        pub tier: Option<u8> => "integer or null",
        /// True if a tier or the pacing plan refused the request and the crawler guard admitted it.
        #[serde(skip)]
        pub guard_admitted: () => "boolean",
        /// Bot score of the client, also below the threshold. It is null if the client has no profile.
        #[serde(skip)]
        pub bot_score: () => "integer or null",
        /// Settled plus reserved units after the decision, by quota, including the request's own if admitted. Replay
        /// follows corrections, the origin's counter and other instances by it. The metric `tidegate_quota_used`
        /// excludes reserved units.
        pub used: QuotaMap<'a, f64> => "object of number",
        /// Sequence number of the decision, by quota; of an `unexpected_cost`, of its settlement. It sorts lines into
        /// the order of admission.
        pub seq: QuotaMap<'a, u64> => "object of integer",
        /// Sequence number of the settlement, by quota, counted with the decisions, also of an `unexpected_cost`. It
        /// shows which units were reserved at which time.
        pub settle_seq: Option<QuotaMap<'a, u64>> => "object of integer",
        /// Sequence number of the charge for a second attempt, by quota. The field is absent if there was no second
        /// attempt.
        pub retry_seq: Option<QuotaMap<'a, Option<u64>>> => "object of integer or null",
        /// Sequence number of the decision on the client's bucket. It is null if the class has no bucket.
        #[serde(skip)]
        pub bucket_seq: () => "integer or null",
        /// Scope that refused the request (`reason` is `throttle` or `backoff`).
        pub scope: Option<Text<'a>> => "string or null",
        /// Time of the request in the queue of its scopes, in milliseconds.
        pub scope_wait_ms: f64 => "number",
        /// Name of the origin of the route. The field is absent unless the configuration has several `origins`.
        #[serde(skip)]
        pub origin: () => "string",
        /// Time until the head of the origin's response was received or the request failed, in milliseconds. It is null
        /// if no request was sent to the origin.
        pub origin_ms: Option<f64> => "number or null",
        /// Time from the first byte of the request to the last byte of the response, in milliseconds. For a request of
        /// another proxy, to the answer.
        #[serde(skip)]
        pub total_ms: () => "number",
        /// Why the response ended before its end: `response_timeout` (the gateway ended it, because the origin sent no
        /// part of it for that time), `origin` (the origin ended it) or `too_many_unread` (the gateway ended it,
        /// because its client left 256 others unread). The field is absent for all other responses.
        #[serde(skip)]
        pub cut: () => "string",
        /// Result of the cache: `hit` (a fresh copy was sent), `stale` (a stale copy, also in place of a refusal),
        /// `revalidated` (the origin confirmed the copy), `miss` (the origin responded, and the response may be stored)
        /// or `bypass` (the request does not use the cache). It is null on a route that is not cached.
        pub cache: Option<&'a str> => "string or null",
    }
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
            .with_fetch(
                self.fetch_mode.and_then(|mode| FetchMode::from_value(mode.as_bytes())),
                self.fetch_site.and_then(|site| FetchSite::from_value(site.as_bytes())),
            )
            .with(HeadersSeen::NO_ZSTD, self.zstd == Some(false))
            .with_hints_major(self.hints_major.unwrap_or(0))
            .with_hints_brand(self.hints_brand.and_then(HintsBrand::from_name))
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

/// A line of a request that was rejected as invalid, as far as it is read. [`NativeLine`] describes the fields that both have.
#[derive(Deserialize)]
pub struct RejectedLine<'a> {
    /// Time of the response.
    pub time: &'a str,
    /// Address of the client.
    pub client: IpAddr,
    /// Response status.
    pub status: u16,
    /// Number of response body bytes sent.
    pub bytes: u64,
    /// Always `rejected`.
    pub verdict: &'a str,
    /// What is wrong with the request.
    #[serde(borrow)]
    pub problem: Text<'a>,
}

impl<'a> RejectedLine<'a> {
    /// Parses a line; `None` if it is none of a rejected request.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|line: &Self| line.verdict == "rejected")
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
