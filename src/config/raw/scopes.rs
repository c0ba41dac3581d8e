//! `scopes:` as written.

use super::partition::PartitionBy;
use super::quotas::Quota;
use crate::config::scalars::{Amount, Change, Span};
use crate::config::serde_forms::{OneOrRange, present_or_default, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// How hard the gate may press on a part of the origin. A request waits for its turn in all of its route's scopes. At most
/// one of autothrottle, adaptive and rampup. A section with nothing behind its key means its defaults.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Scope {
    /// There is one such scope for each value: of the host, the route (its match), a query parameter, a header, or a segment
    /// of the path. Routes have to name the scope. Requests that say no value, or two, share one. Default: it is there
    /// once.
    pub scope_from: Option<PartitionBy>,
    /// With scope_from: so many values have scopes of their own at once; those beyond share one more. A value is
    /// forgotten once nothing of it is under way or waits and its pauses are over; what was learned of it (delay, level of
    /// backoff) after ten minutes without a request. About half a kilobyte each. Default 10000.
    pub max_values: Option<u32>,
    /// Units that may be spent in this scope, in the form of an entry of quotas. It is a quota like those, named like the
    /// scope; each request of a route in this scope costs 1 unit of it, unless the route's cost says otherwise. Not
    /// together with scope_from. Default none.
    pub quota: Option<Quota>,
    /// The most requests at once, until their answers have gone out. Without it: as many as come.
    pub concurrency: Option<u32>,
    /// The least time between any two requests. Default none.
    pub delay: Option<Span>,
    /// The least time between two requests in one slot, from the start of the one to that of the other. Needs slots:
    /// concurrency or adaptive. Default none.
    pub delay_per_slot: Option<Span>,
    /// By what the time between two requests is varied by chance: by up to so much longer (`10%`), or between two shares
    /// (`[-10%, 30%]`). Default 0%.
    pub jitter: Option<OneOrRange<Change>>,
    /// Lets the time between two requests follow the origin's latency. Without it: it is always delay.
    #[serde(deserialize_with = "present_or_default")]
    pub autothrottle: Option<Autothrottle>,
    /// Lets the most requests at once follow the origin's latency: `gradient`, or keys for its bounds. Without it: it is
    /// always concurrency.
    #[serde(deserialize_with = "present_or_default")]
    pub adaptive: Option<Adaptive>,
    /// Leaves the origin alone for a while when it complains. Where its statuses have 429 among them, as by default, an
    /// answer of 429 is then never passed on: clients are told to come back after that while. Without it: nothing is done.
    #[serde(deserialize_with = "present_or_default")]
    pub backoff: Option<Backoff>,
    /// Goes faster until the origin complains as often as is wished, then holds. Needs backoff, and delay or concurrency to
    /// begin with. Without it: nothing is done.
    #[serde(deserialize_with = "present_or_default")]
    pub rampup: Option<Rampup>,
    /// Who may wait for a turn. The class of the highest priority goes first, clients of one priority take turns, and
    /// every eighth is the one that has waited longest. Default: 256, for 2s each.
    #[serde(deserialize_with = "present_or_default")]
    pub queue: Option<Queue>,
}

/// The time between two requests follows the latency, from delay to max_delay: down half-way at each good answer, up at
/// once.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Autothrottle {
    /// How many requests it aims to have under way; may be less than one, such as 0.5. Default 2.
    pub target_concurrency: Option<Amount>,
    /// The time between two to begin with. Default 0s.
    pub start_delay: Option<Span>,
    /// The longest time between two. Default 5s.
    pub max_delay: Option<Span>,
    /// The statuses of answers that may shorten it. Others may only make it longer: errors are often answered sooner than
    /// anything else. Default 200 to 299 and 304.
    pub good_statuses: Vec<u16>,
    /// true: the log tells of every answer what it did to the time between two. Default false.
    pub debug: bool,
}

/// The most requests at once follows the latency: it rises while answers take as long as without a queue, and falls
/// where they take longer, and with timeouts and complaints.
#[derive(Clone, Default)]
pub(in crate::config) struct Adaptive {
    pub floor: Option<u32>,
    pub ceiling: Option<u32>,
}

/// The long form.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct AdaptiveKeys {
    /// The least it becomes. Default 1.
    floor: Option<u32>,
    /// The most it becomes. Default the scope's concurrency; 256 where there is none.
    ceiling: Option<u32>,
}

impl From<AdaptiveKeys> for Adaptive {
    fn from(AdaptiveKeys { floor, ceiling }: AdaptiveKeys) -> Self {
        Self { floor, ceiling }
    }
}

impl<'de> Deserialize<'de> for Adaptive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "how the most at once is found; use gradient, or { floor: 2, ceiling: 64 }";
        string_or_map::<D, Self, AdaptiveKeys>(deserializer, needs, |word| (word == "gradient").then(Self::default))
    }
}

impl JsonSchema for Adaptive {
    fn schema_name() -> Cow<'static, str> {
        "Adaptive".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<AdaptiveKeys>();
        json_schema!({ "anyOf": [{ "enum": ["gradient"] }, keys] })
    }
}

/// The scope rests after answers that say the origin has trouble, then tries with one request, then lets one more in
/// with each answer that is no complaint.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Backoff {
    /// Which statuses say so; timeouts, broken connections and answers that break off always do. Default 429, 502, 503, 504 and 520 to 524.
    pub statuses: Vec<u16>,
    /// By what each rest is longer than the one before. Default 2.
    pub factor: Option<u32>,
    /// The first rest. Default 1s.
    pub min_delay: Option<Span>,
    /// The longest rest, even where the origin asks for more: by Retry-After, or by RateLimit or X-RateLimit headers that
    /// say that nothing is left. Default 300s.
    pub max_delay: Option<Span>,
    /// By what rests are varied by chance: by up to so much longer (`10%`), or between two shares (`[-10%, 30%]`); never
    /// below what the origin's Retry-After asks for. Default 10%.
    pub jitter: Option<OneOrRange<Change>>,
    /// How long it must be quiet for the next rest to be a step shorter. Default 60s.
    pub window: Option<Span>,
}

/// Once a backoff window the complaints are counted: fewer than wished, one step faster, if at least half of what is allowed
/// was used; more, one step slower. It varies delay where the scope has one, else concurrency.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Rampup {
    /// How many complaints a window are wished: a number, or `[least, most]`. Default 1.
    pub backoff_target: Option<OneOrRange<u32>>,
    /// The most requests at once that it goes up to. Default ten times concurrency.
    pub max_concurrency: Option<u32>,
    /// The shortest time between two requests that it goes down to. Default a tenth of delay.
    pub min_delay: Option<Span>,
    /// The longest time between two requests that it goes up to. Default ten times delay.
    pub max_delay: Option<Span>,
}

/// The waiting line.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Queue {
    /// The longest wait; who would wait longer is refused at once. 0s: nobody waits. Default 2s.
    pub max_wait: Option<Span>,
    /// The most who wait. Default 256.
    pub max_length: Option<u32>,
}
