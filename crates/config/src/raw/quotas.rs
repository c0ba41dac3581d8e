//! Raw section `quotas`.

use super::pacing::Pacing;
use crate::scalars::{Amount, Field, Mark, Percent, Span, TimeOfDay};
use crate::serde_forms::NamedMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;

/// Units that requests may use per window.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Quota {
    /// Units per window, more than 0, to a thousandth. Required.
    pub limit: Option<Amount>,
    /// Window of the quota: exactly one of { calendar, zone, at }, { fixed }, { first_use } and { sliding }. Required.
    pub window: Option<Window>,
    /// Units of a window that one client may use: a share of the limit such as 2%, or an amount. Further requests with a
    /// cost get 429, reason client_share, until the window ends. Sliding windows have no such share. Default no limit.
    ///
    /// The client is that of the bucket of its class: an address or IPv6 prefix, or the `key` of the class. All addresses
    /// of one network (IPv4 /24, IPv6 /48) together may use eight times as much. A refused
    /// request changes no tier and no plan. Usage by client is kept in memory: a restart resets it, and each instance
    /// counts its own. Up to limits.max_tracked_clients clients are counted per quota; all others together have one
    /// share. The RateLimit policy is named QUOTA/client.
    pub per_client: Option<Mark>,
    /// Response header with the actual cost in units; several values add up. A cost reported on a route without one is
    /// charged, too. Default none: a request costs the expected cost of its route.
    pub cost_header: Option<Field>,
    /// true: a response from the origin's cache (`Cache-Status: ...; hit`, or `Age` above 0) costs nothing. Default
    /// false.
    pub free_when_cached: bool,
    /// Synchronization with the origin's own counter: { remaining_header, reset_header, exhausted }. The origin's
    /// counter can only tighten the quota, and only for the same window: if reset_header names a time that is not the
    /// end of the window, remaining_header is ignored. Differences that requests in flight explain do not count. A
    /// header that is present but unreadable is logged once per window. Default none.
    pub sync_from: Option<SyncFrom>,
    /// Pacing: distributes the remaining units over the remaining time: off, even, learned, or { mode, burst, weights,
    /// enforce }. Sliding windows cannot be paced. Default off.
    ///
    /// Classes without tiers are unpaced: their forecast demand is earmarked first. Classes with tiers or with a weight
    /// are paced. A class that is refused wholly from the first unit gets nothing. The other tiers apply only while
    /// more is used than planned, beyond burst and random variation, so a day that keeps to its plan uses the whole
    /// quota. Refused requests get 429, reason pacing, and a Retry-After of at most an hour plus
    /// headers.retry_after_spread. Learned demand is written to state_dir/demand.json once a minute if it changed;
    /// delete it while the gateway is stopped to restart learning. A damaged file is reported, and learning starts
    /// again.
    pub pacing: Pacing,
    /// Tiers by class: a list of { above, shed }, or { enforce, steps }. In one list `above` and `shed` must increase;
    /// at most 100 tiers. A class without tiers is refused only when no units remain. Default none.
    pub tiers: NamedMap<Tiers>,
    /// false: shadow mode. Refusals are counted and logged only, and usage may exceed the limit. The quota is announced
    /// to no client, `tidegate_quota_enforced` is 0, and `tidegate quota set` accepts more than the limit. Default
    /// true.
    pub enforce: Option<bool>,
}

/// Window of a quota: exactly one of `calendar`, `fixed`, `first_use` and `sliding`.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Window {
    /// Calendar unit of the window in a time zone: hour, day, week (from Monday) or month. Default none.
    pub calendar: Option<Unit>,
    /// IANA name of the time zone; with calendar only. Default UTC.
    pub zone: Option<String>,
    /// Time of day of the renewal, such as `"06:30"`; with calendar only. With calendar: hour, the minute at which the
    /// hour starts, such as `"00:15"`. Default 00:00.
    pub at: Option<TimeOfDay>,
    /// Length of equal windows, counted from 1970-01-01T00:00:00Z. At least 1s. Default none.
    pub fixed: Option<Span>,
    /// Length of a window that starts with the first charge; the first charge after its end starts the next one. At
    /// least 1s. Default none.
    pub first_use: Option<Span>,
    /// Length of a sliding window: at most the limit in any span of this length. A charge counts for this length and up
    /// to a 60th of it more. At least 1s. Default none.
    pub sliding: Option<Span>,
}

/// Synchronization with the origin's own counter. Requires `remaining_header` or `exhausted`.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SyncFrom {
    /// Response header with the remaining units, such as X-RateLimit-Remaining; `RateLimit` is read as in the IETF
    /// draft. Default none.
    pub remaining_header: Option<Field>,
    /// Response header with the renewal time: seconds from now, seconds or milliseconds since 1970, or a date. Default
    /// none.
    pub reset_header: Option<Field>,
    /// Responses that report an exhausted quota: { statuses, contains, header, json }. Such a response closes the quota until the
    /// time of reset_header, else its Retry-After, else the end of the window; log and status report it, and `tidegate
    /// quota set` or `quota reset` opens it. Default none.
    pub exhausted: Option<Exhausted>,
}

/// Responses that report an exhausted quota.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Exhausted {
    /// List of statuses, 100 to 599, of such a response. Statuses below 400 require contains. Required.
    pub statuses: Vec<u16>,
    /// Text in a header value or in the first 16 KiB of the body, 1 to 200 bytes. Only the first 16 KiB of uncompressed
    /// bodies are searched as they pass; also the body of a 429 that a scope's backoff replaces, for at most
    /// origin.response_timeout. A text in the head of the request does not count. Without header or json, a response may
    /// quote the text; so it counts once clients of two networks (IPv4 /24, IPv6 /48) were sent it, and never in the
    /// response to a request with a body. Default any.
    pub contains: Option<String>,
    /// Response header whose value contains the text of contains, such as X-Error. Default any part of the response.
    pub header: Option<Field>,
    /// JSON Pointer (RFC 6901) of the value in the body that equals the text of contains, such as /error/reason. Default
    /// any part of the response.
    pub json: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Hour,
    Day,
    Week,
    Month,
}

/// Tiers of one class.
#[derive(Clone, Default)]
pub(crate) struct Tiers {
    pub enforce: Option<bool>,
    pub steps: Vec<Tier>,
    /// True if written with keys, not as a list.
    pub long_form: bool,
}

/// Tiers with keys.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct TierOptions {
    /// false: shadow mode. Refusals by these tiers are counted and logged only. Default true.
    enforce: Option<bool>,
    /// List of { above, shed }; both must increase. Required.
    steps: Vec<Tier>,
}

/// A tier: from the usage `above`, the share `shed` of the requests is refused.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tier {
    /// Usage from which the tier applies: a share of the limit (60%), or units (6000), at most the limit. Required.
    pub above: Option<Mark>,
    /// Share of the class's requests that is refused, more than 0%. Required.
    pub shed: Option<Percent>,
}

impl<'de> Deserialize<'de> for Tiers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TiersVisitor;

        impl<'de> Visitor<'de> for TiersVisitor {
            type Value = Tiers;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of tiers; write [{ above: 80%, shed: 50% }]")
            }

            fn visit_unit<E>(self) -> Result<Tiers, E> {
                Ok(Tiers::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Tiers, A::Error> {
                let steps = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Tiers { steps, ..Tiers::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tiers, A::Error> {
                let TierOptions { enforce, steps } = TierOptions::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Tiers { enforce, steps, long_form: true })
            }
        }

        deserializer.deserialize_any(TiersVisitor)
    }
}

impl JsonSchema for Tiers {
    fn schema_name() -> Cow<'static, str> {
        "Tiers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (short, long_form) = (generator.subschema_for::<Vec<Tier>>(), generator.subschema_for::<TierOptions>());
        json_schema!({ "anyOf": [short, long_form] })
    }
}
