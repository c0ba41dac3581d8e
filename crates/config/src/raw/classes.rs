//! Raw sections `classes` and `user_agent_rules`.

use crate::raw::verify::PurposeName;
use crate::scalars::{CertificateName, CountryCode, Delay, Field, Percent, Range, Rate, Span, ValuePattern, Verb};
use crate::section::{any, positive, section, stored_as_written};
use crate::serde_forms::{NamedMap, OneOrMany, SecretTexts, string_or_map, word_or_keys};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use tidegate_policy as policy;
use tidegate_policy::tier::Share;

section! {
    /// A class of clients.
    pub(crate) struct Class {
        /// Name of the class in tiers, metrics, headers and logs: up to 64 of a-z, 0-9, `_`, `.` and `-`. Required.
        name: Option<String>;
        /// Match conditions; all must hold. Default: every client.
        when: ClassConditions;
        /// Queue priority, 0 to 255, higher first. Classes without a priority are behind all others in a queue. In
        /// pacing, the class with the lowest priority yields or gains first; of equal priorities, the one later in the
        /// file. `tidegate tune` gives no class a larger weight than a class of higher priority, unless the file has it
        /// so.
        priority: u8 = 0 => u8, any;
        /// Token bucket of each client. It limits every request of the class, or with `counts: costed` only those of
        /// costed routes, regardless of their cost. Each instance has its own buckets. `{ rate: 1/s, burst: 60, counts:
        /// costed }` allows at most 120 costed requests in the first minute and 60 in each further one. Without a
        /// bucket for people, one address with a browser's user agent can use up a day's quota in seconds. Allow more
        /// where many people share one address (office, campus, mobile network). `tidegate replay` shows which clients
        /// a size would have refused. Default: no bucket, no limit.
        bucket: Option<Bucket>;
        /// false: `per_client` of quotas does not limit the clients of the class, such as verified search engines, of which
        /// one address sends many requests.
        per_client: bool = true => bool, any;
        /// true: every request is refused, except robots.txt (GET and HEAD) and the crawl policy. The client receives
        /// Retry-After: one hour, plus headers.retry_after_spread, because the end of the block is unknown. RateLimit
        /// fields of such a response show the quotas, which are not the reason of the refusal.
        block: bool = false => bool, any;
        /// Status of the refusals by `block: true`, which it requires: 429, 401 or 403. 401 is for clients without a valid
        /// key: put the class below those that name the keys; the response has `WWW-Authenticate: Bearer realm="api"`.
        /// Neither 401 nor 403 has Retry-After. `tidegate block` refuses with 429 in all classes. Default 429.
        refuse_with: Option<u16>;
        /// false: shadow mode. Refusals by block, bucket or tiers are counted and logged only.
        enforce: bool = true => bool, any;
        /// Crawler guard: requests of verified crawlers that are admitted although a tier or the pacing plan refuses
        /// them, so that search engines do not drop pages: on, off, or { admit_interval, max_refused_for, budget }. It
        /// overrides tiers and pacing only: an exhausted quota and a bucket still refuse. Under pacing it changes which
        /// requests are admitted, not how many. Refused pages are stored in memory (100,000 pages, 36 bytes each); a
        /// restart clears them. Default on for a class that names operators, else off.
        crawler_guard: Option<Guard>;
        /// Interval between two requests that robots.txt states for the class's crawlers: a duration (whole seconds
        /// from 1s to 30s; others are rounded up or capped), auto (computed from the budget of the class), or either by
        /// operator: { bingbot: 30s }. Default none.
        ///
        /// A delay is for one operator of the class or for all verified crawlers of the class. Unknown bots read the
        /// group `*`, which gets the delay of the class of declared bots; a crawler without a delay and without a group
        /// of its own reads `*`, too. If the origin states a delay, the larger one is written, once per group, in place
        /// of the origin's. `tidegate check` reports where the value written differs from the file and which operator
        /// gets which delay.
        ///
        /// `auto` is delay = window seconds * cost of the cheapest page * operators named by the class / (shut-off
        /// level of the class's tiers - usage of other clients per window). The usage of other clients counts once a
        /// full day has been observed. The delay changes at most once a day and by at least 25 %, because crawlers
        /// cache robots.txt for a day; a reload recalculates it. `auto` is never above 30 s: if the budget needs more,
        /// it is used up early, and `tidegate check` reports when. A class by kind counts as one crawler: if there are
        /// several, name the operators or write a duration.
        ///
        /// robots.txt names crawlers only by their operator: the delay of a class with other conditions than kind and
        /// operator is not in it, unless it names them.
        crawl_delay: CrawlDelay;
    }
}

/// Crawl delay of all crawlers of a class, or of some by operator.
#[derive(Clone, Debug, Default)]
pub(crate) enum CrawlDelay {
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
        let needs = "a crawl delay; write auto, a duration such as 10s, or { bingbot: 30s }";
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

section! {
    /// Match conditions of a class. All must hold; of the values of one condition, one match is enough.
    pub(crate) struct ClassConditions {
        /// Kind of the client: one, or a list. Default any.
        kind: OneOrMany<Kind>;
        /// Operator of the crawler, verified requests only: one, or a list. Default any.
        operator: OneOrMany<String>;
        /// Substring of the first kilobyte of the user agent, in any case: one, or a list. Default any.
        user_agent: OneOrMany<String>;
        /// Address or network of the client: one, or a list. Default any.
        address: OneOrMany<Range>;
        /// Name under `address_lists` of a list that contains the client's address: one, or a list. The access log has
        /// `address_list:NAME` in the evidence of a client that is in a class because of a list. Default any.
        address_list: OneOrMany<String>;
        /// Known API keys: own, those of `api_keys` that name the class; or in a header or cookie, { header, value } or
        /// { cookie, value }. Default any.
        ///
        /// The whole value of the header or cookie must be equal, case-sensitive. For Authorization it includes the
        /// scheme: `"Bearer ${TOKEN}"`. No message, log or page shows a key; `api_key` in the evidence shows that one
        /// was sent, and `headers_seen` which headers were read. A client with a wrong key gets no hint; it falls into
        /// the next matching class. A new key takes effect with a reload, but `${...}` keeps the value of the start: if
        /// keys change often, write them into the file and make it readable for the gateway only.
        api_key: Option<ApiKeyForm>;
        /// Name in the client's certificate: its common name, a DNS name, an email address or a URI, in any case. `*`
        /// matches any text. One, or a list, such as `"*.partner.example"`. Requires a listener with tls.client_ca,
        /// which verifies the certificate; a client without one never matches. `certificate` in the evidence shows that
        /// one did. Default any.
        certificate: OneOrMany<CertificateName>;
        /// Path of the request, as the `match` of a route: one, or a list. A path that origins read in several ways has to
        /// match in each of them. Default any.
        path: OneOrMany<String>;
        /// Host name of the request in lower case, without port: one, or a list; `*.example.com` is every host below it.
        /// Default any.
        host: OneOrMany<String>;
        /// Method of the request: one, or a list; GET includes HEAD. Default any.
        method: OneOrMany<Verb>;
        /// Header fields that the request has: a name, or { NAME: "value*" } with a pattern of the value, one or a list; `*`
        /// matches any text, in any case. All fields must be there; of the patterns of one, one match is enough. A client
        /// can send any field: use it for what a server in front sets or what is no secret, and `api_key` for keys. The
        /// access log has the classes in `field_classes`, never a value. Default any.
        header: HeaderConditions;
        /// Cookies that the request has, like `header`. Default any.
        cookie: CookieConditions;
        /// Session of the client: none, new or known; one, or a list. Requires `sessions`. Default any.
        session: OneOrMany<SessionName>;
        /// Purpose of the operator that the client belongs to, or claims to: search, agent, training, monitor or preview;
        /// one, or a list. Add `kind: verified_bot` where a claim is not enough. Default any.
        purpose: OneOrMany<PurposeName>;
        /// Number of the client's autonomous system: one, or a list. Requires `clients.asn_database`. Default any.
        asn: OneOrMany<u32>;
        /// Country of the client as two letters (ISO 3166), such as DE: one, or a list. Requires
        /// `clients.country_database`. Default any.
        country: OneOrMany<CountryCode>;
    }
}

/// API keys that a class accepts: listed ones that name it, or keys of its own.
#[derive(Clone, Debug)]
pub(crate) enum ApiKeyForm {
    Own,
    Given(ApiKeyCondition),
}

word_or_keys! {
    ApiKeyForm, "own or keys; use own, or { header: X-Api-Key, value: \"${KEY}\" }":
    "own" => Self::Own,
    ApiKeyCondition => Self::Given
}

/// Header fields by name, with patterns of their values; none accepts every value.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderConditions(pub Vec<(String, OneOrMany<ValuePattern>)>);

/// Cookies by name, with patterns of their values; none accepts every value.
#[derive(Clone, Debug, Default)]
pub(crate) struct CookieConditions(pub Vec<(String, OneOrMany<ValuePattern>)>);

macro_rules! name_or_patterns {
    ($Type:ident, $needs:literal) => {
        impl From<NamedMap<OneOrMany<ValuePattern>>> for $Type {
            fn from(fields: NamedMap<OneOrMany<ValuePattern>>) -> Self {
                Self(fields.0)
            }
        }

        impl<'de> Deserialize<'de> for $Type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                string_or_map::<D, Self, NamedMap<OneOrMany<ValuePattern>>>(deserializer, $needs, |name| {
                    (!name.is_empty()).then(|| Self(vec![(name.to_owned(), OneOrMany::default())]))
                })
            }
        }

        impl JsonSchema for $Type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($Type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let patterns = generator.subschema_for::<OneOrMany<ValuePattern>>();
                json_schema!({ "anyOf": [
                    { "type": "string" },
                    { "type": "object", "additionalProperties": patterns },
                ] })
            }
        }
    };
}

name_or_patterns!(HeaderConditions, "a header; write X-Partner or { X-Partner: \"acme*\" }");
name_or_patterns!(CookieConditions, "a cookie; write sessionid or { sessionid: \"value*\" }");

/// Session of a client.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionName {
    /// No valid cookie came.
    None,
    /// A valid cookie came.
    New,
    /// A valid cookie came, and a visit of a person was seen with it.
    Known,
}

impl From<SessionName> for policy::session::Session {
    fn from(session: SessionName) -> Self {
        match session {
            SessionName::None => Self::None,
            SessionName::New => Self::New,
            SessionName::Known => Self::Known,
        }
    }
}

section! {
    /// Known API keys, in a header or in a cookie.
    pub(crate) struct ApiKeyCondition {
        /// Header that contains the key as its whole value. Either header or cookie is required.
        header: Option<Field>;
        /// Cookie that contains the key as its whole value. Either header or cookie is required.
        cookie: Option<String>;
        /// API key, or a list; no message and no log shows them. Read them from the environment: `${PARTNER_KEY}`. Keys
        /// of fewer than 16 characters are reported, because they can be guessed. Required.
        value: SecretTexts;
    }
}

section! {
    /// Token bucket of each client: `capacity`, `fill` and `interval` for refills in batches, or `rate` and `burst` for
    /// a steady refill.
    pub(crate) struct Bucket {
        /// Maximum number of tokens: requests at once. At least 1. Required with fill and interval.
        capacity: Option<u32>;
        /// Tokens added per interval. At least 1. Required with capacity and interval.
        fill: Option<u32>;
        /// Refill interval, a duration of more than 0. Required with capacity and fill.
        interval: Option<Span>;
        /// Tokens added per second (s), minute (m), hour (h) or day (d), evenly over time, such as 10/s. Required with
        /// burst.
        rate: Option<Rate>;
        /// Maximum number of saved tokens, at least 1. Default: the tokens of one interval of the rate.
        burst: Option<u32>;
        /// Clients that share one bucket: address (an IPv6 prefix counts as one), operator (all verified crawlers of an
        /// operator), class (all clients of the class), { header: NAME } or { cookie: NAME } (all requests with the
        /// same value). Default address.
        ///
        /// Requests without the header or cookie, and clients without a verified operator, count by address. Values of
        /// headers and cookies are stored only as a hash with a random number drawn at the start; log, status and admin
        /// API show `hash:...`, which is the same for the same value until the restart, or longer where usage by credential or
        /// sessions are kept in state_dir. A client that can invent values
        /// of the header or cookie gets a new bucket for each: use it only if a server in front of the gateway has
        /// checked them.
        key: Key;
        /// Requests that take a token: all, or only those of costed routes (costed). With costed, pictures, styles and
        /// scripts take no token, and a refusal affects no free request.
        counts: Counts = Counts::All => Counts, any;
    }
}

/// Requests that a bucket counts.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Counts {
    All,
    Costed,
}

stored_as_written!(Counts);

/// Crawler guard: a word, or its keys.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    Off,
    On(GuardOptions),
}

section! {
    /// Keys of the crawler guard.
    pub(crate) struct GuardOptions {
        /// Interval in which at least one request of each operator's crawlers is admitted, if they send any. More than
        /// 0.
        admit_interval: Duration = Duration::from_secs(300) => Span, positive;
        /// Maximum time for which one page is refused; the next request for it is admitted. Search engines drop a page
        /// that was refused for about two days. More than 0.
        max_refused_for: Duration = Duration::from_secs(24 * 60 * 60) => Span, positive;
        /// Maximum share of each quota's limit for the guard, per window length.
        // Little beside the demand of people, and enough for a request every few minutes.
        budget: Share = Share::from_millionths(20_000) => Percent, any;
    }
}

word_or_keys! {
    Guard, "a crawler guard; use on, off or { admit_interval: 5m, max_refused_for: 24h, budget: 2% }":
    "on" => Self::On(GuardOptions::default()),
    "off" => Self::Off,
    GuardOptions => Self::On
}

/// Clients that share one bucket.
#[derive(Clone, Debug, Default)]
pub(crate) enum Key {
    #[default]
    Address,
    Operator,
    Class,
    Credential {
        header: Option<Field>,
        cookie: Option<String>,
    },
}

/// The form `{ header: NAME }` or `{ cookie: NAME }`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CredentialKeys {
    header: Option<Field>,
    cookie: Option<String>,
}

impl From<CredentialKeys> for Key {
    fn from(CredentialKeys { header, cookie }: CredentialKeys) -> Self {
        Self::Credential { header, cookie }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "a bucket key; use address, operator, class, { header: NAME } or { cookie: NAME }";
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

section! {
    /// Rule that assigns a kind to user agents.
    pub(crate) struct Agent {
        /// Substring of the first kilobyte of the user agent, in any case. Required.
        contains("match"): Option<String>;
        /// Kind of a client whose user agent matches. Required.
        kind: Option<Kind>;
    }
}

/// Kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// No sign of a bot.
    Human,
    /// Bot of a verified operator.
    VerifiedBot,
    /// Bot that names itself in the user agent, without verification.
    DeclaredBot,
    /// Undeclared bot, detected by its behavior.
    SuspectedBot,
    /// Client that claims an operator and fails verification.
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
