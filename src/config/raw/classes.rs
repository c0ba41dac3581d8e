//! `classes:` and `agents:` as written.

use crate::config::scalars::{Delay, Field, Percent, Range, Rate, Span};
use crate::config::serde_forms::{NamedMap, OneOrMany, SecretTexts, string_or_map};
use crate::policy;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// A class of clients.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Class {
    /// Its name in tiers, metrics, headers and logs: small letters, digits, `_`, `.`, `-`.
    pub name: Option<String>,
    /// Who belongs to it. Default everybody.
    pub when: When,
    /// Who goes first where there is a line, 0 to 255; higher goes first. Of a paced quota it also keeps its share the
    /// longest. Default 0.
    pub priority: Option<u8>,
    /// What each of its clients may ask, whatever it costs. Default no bound.
    pub bucket: Option<Bucket>,
    /// true: refused everything but robots.txt. Default false.
    pub block: bool,
    /// false: what would be refused by block, bucket or tier is counted and logged, not refused. Default true.
    pub enforce: Option<bool>,
    /// What verified crawlers of the class are let through although a tier refuses them, so that a search engine does
    /// not drop pages it can never have: on, off, or { trickle, max_refused_for, up_to }. Default on for a class that
    /// names operators, else off.
    pub guard: Option<Guard>,
    /// The delay between two requests that robots.txt asks of the class's bots: a duration (whole seconds from 1s to 30s;
    /// others are rounded up or cut), auto (what makes its budget last), or either by operator: { bingbot: 30s }.
    /// Bots that nobody knows are told what the class of declared bots is. Default none.
    pub crawl_delay: CrawlDelay,
}

/// The delay of all the bots of a class, or of some by operator.
#[derive(Clone, Default)]
pub(in crate::config) enum CrawlDelay {
    #[default]
    None,
    All(Delay),
    ByOperator(NamedMap<Delay>),
}

impl From<NamedMap<Delay>> for CrawlDelay {
    fn from(delays: NamedMap<Delay>) -> Self {
        Self::ByOperator(delays)
    }
}

impl<'de> Deserialize<'de> for CrawlDelay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a delay; write auto, a duration such as 10s, or { bingbot: 30s }";
        string_or_map::<D, Self, NamedMap<Delay>>(deserializer, needs, |word| Delay::read(word).map(Self::All))
    }
}

impl JsonSchema for CrawlDelay {
    fn schema_name() -> Cow<'static, str> {
        "CrawlDelay".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (one, by_operator) = (generator.subschema_for::<Delay>(), generator.subschema_for::<NamedMap<Delay>>());
        json_schema!({ "anyOf": [one, by_operator] })
    }
}

/// Conditions that must all hold; within each, one match is enough.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct When {
    /// The kind of client: one, or a list.
    pub kind: OneOrMany<Kind>,
    /// The operator of the crawler, with proof only: one, or a list.
    pub operator: OneOrMany<String>,
    /// The user agent contains this, in any case: one, or a list.
    pub user_agent: OneOrMany<String>,
    /// The address lies in this range: one, or a list.
    pub address: OneOrMany<Range>,
    /// The address stands on this list of `lists`: one, or a list.
    pub list: OneOrMany<String>,
    /// It sends one of these keys. Default: whatever it sends.
    pub key: Option<KnownKeys>,
}

/// Keys that are known beforehand: in a header (its whole value) or in a cookie.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct KnownKeys {
    /// The header that they are sent in. This or cookie must be given.
    pub header: Option<Field>,
    /// The cookie that they are sent in.
    pub cookie: Option<String>,
    /// One key, or a list; no message and no log shows them. Best read from the environment: ${PARTNER_KEY}. Must be given.
    pub value: SecretTexts,
}

/// The bucket of each client: `capacity`, `fill` and `interval` for batches, or `rate` and `burst` for a steady flow.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Bucket {
    /// The most requests at once.
    pub capacity: Option<u32>,
    /// So many come back ...
    pub fill: Option<u32>,
    /// ... every so often.
    pub interval: Option<Span>,
    /// So many a second (s), minute (m), hour (h) or day (d), one by one.
    pub rate: Option<Rate>,
    /// The most that can be saved up at that rate. Default one interval's worth.
    pub burst: Option<u32>,
    /// Who shares one bucket: address (an IPv6 prefix is one), { header: NAME } or { cookie: NAME } (by its value, which is
    /// only ever kept as a hash; who sends none goes by address), operator (all of a proven operator's crawlers; everybody
    /// else by address) or class (all of them together). Default address. A client that may invent values of the header or
    /// cookie gets a new bucket for each: use it where something before the gate has checked them.
    pub key: Key,
    /// Which requests take a token: all, or only those of costed routes, so that a page's pictures take none. Default all.
    pub counts: Counts,
}

/// Which requests a bucket counts.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Counts {
    #[default]
    All,
    Costed,
}

/// The crawler guard: a word, or its keys.
#[derive(Clone)]
pub(in crate::config) enum Guard {
    Off,
    On(GuardOptions),
}

/// The long form.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct GuardOptions {
    /// As long as they ask, one request of each operator's crawlers is let through at least this often. Default 5m.
    pub trickle: Option<Span>,
    /// No page is refused to them for longer, once they ask for it again. Default 24h.
    pub max_refused_for: Option<Span>,
    /// At most this share of each quota's limit goes to the guard in the length of a window. Default 2%.
    pub up_to: Option<Percent>,
}

impl From<GuardOptions> for Guard {
    fn from(keys: GuardOptions) -> Self {
        Self::On(keys)
    }
}

impl<'de> Deserialize<'de> for Guard {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a guard; use on, off or { trickle: 5m, max_refused_for: 24h, up_to: 2% }";
        string_or_map::<D, Self, GuardOptions>(deserializer, needs, |word| match word {
            "on" => Some(Self::On(GuardOptions::default())),
            "off" => Some(Self::Off),
            _ => None,
        })
    }
}

impl JsonSchema for Guard {
    fn schema_name() -> Cow<'static, str> {
        "Guard".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<GuardOptions>();
        json_schema!({ "anyOf": [{ "enum": ["on", "off"] }, keys] })
    }
}

/// Who shares one bucket.
#[derive(Clone, Default)]
pub(in crate::config) enum Key {
    #[default]
    Address,
    Operator,
    Class,
    Sent {
        header: Option<Field>,
        cookie: Option<String>,
    },
}

/// The long form.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CredentialKeys {
    header: Option<Field>,
    cookie: Option<String>,
}

impl From<CredentialKeys> for Key {
    fn from(CredentialKeys { header, cookie }: CredentialKeys) -> Self {
        Self::Sent { header, cookie }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "who shares a bucket; use address, operator, class, { header: NAME } or { cookie: NAME }";
        string_or_map::<D, Self, CredentialKeys>(deserializer, needs, |word| match word {
            "address" => Some(Self::Address),
            "operator" => Some(Self::Operator),
            "class" => Some(Self::Class),
            _ => None,
        })
    }
}

impl JsonSchema for Key {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "enum": ["address", "operator", "class"] },
            { "type": "object", "properties": { "header": { "type": "string" } }, "required": ["header"], "additionalProperties": false },
            { "type": "object", "properties": { "cookie": { "type": "string" } }, "required": ["cookie"], "additionalProperties": false },
        ] })
    }
}

/// The operator's own word on a user agent.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Agent {
    /// Fits user agents that contain this, in any case.
    #[serde(rename = "match")]
    pub contains: Option<String>,
    /// What such a client is.
    pub kind: Option<Kind>,
}

/// A kind of client.
#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Kind {
    /// Nothing says it is a bot.
    Human,
    /// A bot whose operator is proven.
    VerifiedBot,
    /// A bot that names itself, unproven.
    DeclaredBot,
    /// A bot that hides.
    SuspectedBot,
    /// Claims an operator that it is not.
    Impostor,
}

impl From<Kind> for policy::ClientKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Human => Self::Human,
            Kind::VerifiedBot => Self::VerifiedBot,
            Kind::DeclaredBot => Self::DeclaredBot,
            Kind::SuspectedBot => Self::SuspectedBot,
            Kind::Impostor => Self::Impostor,
        }
    }
}
