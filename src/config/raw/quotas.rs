//! `quotas:` as written.

use super::pacing::Pacing;
use crate::config::scalars::{Amount, Field, Mark, Percent, Span, TimeOfDay};
use crate::config::serde_forms::NamedMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;

/// Units that may be spent in a window.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Quota {
    /// Units in each window, to a thousandth. Must be given.
    pub limit: Option<Amount>,
    /// When it is renewed. Must be given.
    pub window: Option<Window>,
    /// The response header in which the origin says what an answer really cost. Default none: it cost what the route says.
    pub cost_header: Option<Field>,
    /// true: an answer that the origin had cached (`Cache-Status: ...; hit`, or `Age` above 0) costs nothing. Default false.
    pub free_when_cached: bool,
    /// The origin's own count, by which this one is tightened. Default none.
    pub sync_from: Option<SyncFrom>,
    /// How what remains is spread over the time that remains: off, even, learned, or keys that say more. Default off.
    pub pacing: Pacing,
    /// From this much used on, refuse this share, by class. A class without tiers is refused only when nothing is left.
    pub tiers: NamedMap<Tiers>,
    /// false: what would be refused is counted and logged, not refused, and the quota may be overspent. Default true.
    pub enforce: Option<bool>,
}

/// When a quota is renewed: exactly one of `calendar`, `fixed`, `first_use` and `sliding`.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Window {
    /// Every hour, day, week (from Monday) or month of a time zone.
    pub calendar: Option<Unit>,
    /// The time zone, by its IANA name. Default UTC.
    pub zone: Option<String>,
    /// The time of day at which it is renewed. Default 00:00.
    pub at: Option<TimeOfDay>,
    /// Every so often, counted from 1970-01-01T00:00:00Z. At least 1s, as the next two.
    pub fixed: Option<Span>,
    /// So long after the first charge; the first charge after that opens the next window.
    pub first_use: Option<Span>,
    /// Never more than the limit in any span of this length. What was taken weighs for that long and up to a 60th of it more.
    pub sliding: Option<Span>,
}

/// How the origin tells, with its answers, where its own count stands.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct SyncFrom {
    /// The response header with the units that are left, such as X-RateLimit-Remaining; `RateLimit` is read as the IETF
    /// draft has it. Default none.
    pub remaining_header: Option<Field>,
    /// The response header with the time of renewal: seconds from now, seconds or milliseconds since 1970, or a date.
    /// Default none.
    pub reset_header: Option<Field>,
    /// Which answers say that nothing is left; then the quota is closed until its renewal. Default none.
    pub exhausted: Option<Exhausted>,
}

/// An answer that says that nothing is left.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Exhausted {
    /// It has one of these statuses. Must be given.
    pub statuses: Vec<u16>,
    /// And this text in the value of a header or in the first 16 KiB of the body. Default anything.
    pub body_or_header: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Unit {
    Hour,
    Day,
    Week,
    Month,
}

/// The tiers of one class.
#[derive(Clone, Default)]
pub(in crate::config) struct Tiers {
    pub enforce: Option<bool>,
    pub ladder: Vec<Tier>,
    /// Written with keys, not as a bare list.
    pub long: bool,
}

/// The long form, which can be tried without refusing anybody.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct LongTiers {
    /// false: what these tiers would refuse is counted and logged, not refused. Default true.
    enforce: Option<bool>,
    /// The tiers, lowest first.
    ladder: Vec<Tier>,
}

/// One step: from `above` on, refuse the share `shed`.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Tier {
    /// From this much used on: a share of the limit, or units.
    pub above: Option<Mark>,
    /// Refuse this share of the class's requests.
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
                let ladder = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Tiers { ladder, ..Tiers::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tiers, A::Error> {
                let LongTiers { enforce, ladder } = LongTiers::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Tiers { enforce, ladder, long: true })
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
        let (short, long) = (generator.subschema_for::<Vec<Tier>>(), generator.subschema_for::<LongTiers>());
        json_schema!({ "anyOf": [short, long] })
    }
}
