//! Raw sections `verify` and `operators`.

use crate::scalars::{Pattern, Socket, Span};
use crate::section::{FromWritten, any, positive, section};
use crate::serde_forms::{OneOrMany, word_or_keys};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate_policy::purpose::Purpose;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Minimum of `refresh_interval`, to protect the servers of the lists.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(60);

section! {
    /// Verification of crawlers. No request waits for it.
    pub(crate) struct Verify {
        /// Forward-confirmed reverse DNS, where published addresses do not verify a crawler: on (system name servers), off,
        /// or { nameservers, timeout }. A change takes effect at the next start. Default on.
        ///
        /// The first requests of a crawler that only DNS can verify are those of a declared bot. A positive answer is
        /// trusted for an hour to a day, a missing name for ten minutes to an hour, a failure is retried after a minute. At
        /// most 1,024 addresses wait for a query; further ones stay unverified and are queried when there is room.
        dns: Dns;
        /// Interval for fetching published range lists: a duration of at least 1m, or off. off uses the built-in lists
        /// (date in data/ranges.json) and stored copies; files are still read when they change, and keys of signing agents
        /// are still fetched. A change takes effect at the next start.
        refresh_interval: Option<Duration> = Some(DAY) => RefreshInterval, at_least_a_minute;
        /// Verification of signed requests (Web Bot Auth).
        signatures: Signatures;
    }
}

section! {
    /// Verification of signed requests. The keys of an agent are fetched by HTTPS from its key directory once a request
    /// names the agent, also with `refresh_interval: off`. Keys are refreshed as the Cache-Control of their server
    /// specifies, every five minutes to every day; the log shows which keys are loaded and from where. Signatures with
    /// another `tag` than web-bot-auth have no effect. The signature fields are forwarded unchanged. The log reports
    /// invalid signatures of operators' agents at most once a minute; if all are invalid, a proxy in front usually changes
    /// Host.
    pub(crate) struct Signatures {
        /// false: signatures are ignored and no keys are fetched.
        enabled: bool = true => bool, any;
        /// true: keys of agents without a known operator are fetched, too. Clients then determine which public hosts the
        /// gateway contacts: a small document at the usual port, one host after the other, 256 hosts at most. Such agents
        /// stay declared bots, with `signature_unlisted` in the evidence.
        fetch_unlisted_keys: bool = false => bool, any;
        /// Maximum lifetime of a signature, more than 0; signatures that are valid for longer are not trusted. A signature
        /// without a nonce can be used again until it expires, for the same host.
        max_lifetime: Duration = DAY => Span, positive;
        /// true: refusals of bots without proof of their operator have the field `Accept-Signature` (RFC 9421), which asks an agent
        /// that can sign for a signature with its next request.
        accept_signature: bool = false => bool, any;
    }
}

section! {
    /// Name servers for verification.
    pub(crate) struct Servers {
        /// Address and port of a recursive name server: one, or a list. Default those of the system.
        nameservers: Vec<SocketAddr> = Vec::new() => OneOrMany<Socket>, not_empty;
        /// Timeout of a query to one name server, more than 0.
        timeout: Duration = Duration::from_secs(2) => Span, positive;
    }
}

fn at_least_a_minute(interval: &RefreshInterval, _: Option<&RefreshInterval>) -> Option<String> {
    let is_short = matches!(interval, RefreshInterval::Interval(Span(span)) if *span < MIN_REFRESH_INTERVAL);
    is_short.then(|| "found less than a minute; write a duration such as 24h, or off".to_owned())
}

fn not_empty(OneOrMany(servers): &OneOrMany<Socket>, _: Option<&OneOrMany<Socket>>) -> Option<String> {
    let hint = "write one such as 127.0.0.1:53, leave it out to use the system's, or write dns: off";
    servers.is_empty().then(|| format!("is empty; {hint}"))
}

/// The addresses; an absent key is an empty list.
impl FromWritten<OneOrMany<Socket>> for Vec<SocketAddr> {
    fn from_written(OneOrMany(servers): OneOrMany<Socket>) -> Self {
        servers.into_iter().map(|Socket(address)| address).collect()
    }

    fn to_written(&self) -> Option<OneOrMany<Socket>> {
        (!self.is_empty()).then(|| OneOrMany(self.iter().copied().map(Socket).collect()))
    }
}

impl FromWritten<RefreshInterval> for Option<Duration> {
    fn from_written(interval: RefreshInterval) -> Self {
        match interval {
            RefreshInterval::Off => None,
            RefreshInterval::Interval(Span(span)) => Some(span),
        }
    }

    fn to_written(&self) -> Option<RefreshInterval> {
        Some(self.map_or(RefreshInterval::Off, |span| RefreshInterval::Interval(Span(span))))
    }
}

/// Use of DNS: a word, or the name servers.
#[derive(Clone, Debug, Default)]
pub(crate) enum Dns {
    #[default]
    On,
    Off,
    Servers(Servers),
}

word_or_keys! {
    Dns, "on, off or keys; use on, off or { nameservers: 127.0.0.1:53 }":
    "on" => Self::On,
    "off" => Self::Off,
    Servers => Self::Servers
}

/// Interval for fetching range lists.
#[derive(Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum RefreshInterval {
    #[serde(serialize_with = "serialize_off")]
    Off,
    Interval(Span),
}

fn serialize_off<S: Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("off")
}

impl<'de> Deserialize<'de> for RefreshInterval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "off" => Ok(Self::Off),
            _ => Span::deserialize(serde::de::value::StrDeserializer::new(&text)).map(Self::Interval),
        }
    }
}

impl JsonSchema for RefreshInterval {
    fn schema_name() -> Cow<'static, str> {
        "Refresh".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let span = generator.subschema_for::<Span>();
        json_schema!({ "anyOf": [{ "enum": ["off"] }, span] })
    }
}

/// An operator of crawlers: an additional one, or changes to the built-in one of this name.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Operator {
    /// Product tokens in the user agent of its crawlers, such as ExampleBot in `ExampleBot/1.0`: one, or a list; 2 to
    /// 64 characters. A token of a built-in operator moves to this operator; `tidegate check` reports the consequence.
    /// Default as built in.
    pub product_tokens: Option<OneOrMany<String>>,
    /// Published addresses of its crawlers: networks, `https://` URLs of range lists, or files: one, or a list. Default
    /// as built in.
    ///
    /// A range list is Google's JSON (`prefixes` with `ipv4Prefix` or `ipv6Prefix`) or text with one network per line;
    /// after a comma or space anything may follow (such as a geofeed), `#` starts a comment. URLs must be `https://`;
    /// `http://` only on this machine. A changed file is loaded within five seconds. A list by URL of your own is
    /// fetched at the start, a built-in one within ten minutes of the start, then once per refresh interval, each at
    /// its own time; the last valid copy is stored in state_dir/ranges.
    ///
    /// A list is rejected, and the previous version kept, if it cannot be fetched, is no list, is empty, has lost more
    /// than half of its networks, covers more than 16 times its previous addresses and more than a /16 (IPv6: /44), has
    /// one network wider than /8 (IPv6: /19) or twice that in all, has more than 100,000 networks, or is larger than 4
    /// MiB. The gateway retries a rejected list 24 times per refresh interval (hourly by default). If the operator
    /// really changed its list that much, save it as a file and name the file here. `tidegate check` reports a file
    /// that cannot be read or is no list, and a URL that is never fetched because verify.refresh_interval is off.
    pub ranges: Option<OneOrMany<String>>,
    /// DNS names of its crawlers' addresses: one, or a list. crawl.acme.example is this name and all names below it;
    /// `bot-*.acme.example` is one label that starts with `bot-`. Default as built in.
    pub dns_names: Option<OneOrMany<Pattern>>,
    /// Proof methods that cover all crawlers of the operator: ranges, dns_names, or a list. A client that claims the
    /// operator and fails these checks is an impostor. `[]` makes no client that claims the operator an impostor. A
    /// client with a loopback, private, link-local or shared address (100.64.0.0/10) is never an impostor: it is a
    /// proxy or a machine of your own. Default as built in, none for an additional operator.
    pub exhaustive: Option<OneOrMany<ProofMethodName>>,
    /// `Signature-Agent` of its signed requests, as an `https://` origin or the URL of the key directory: one, or a
    /// list. It names a new operator or adds to a built-in one. chatgpt-agent and google-agent are built in. Default as
    /// built in.
    pub signature_agents: Option<OneOrMany<String>>,
    /// What the operator fetches pages for: search, agent (at the request of a user), training (of models), monitor or
    /// preview. Default as built in, none for an additional operator.
    pub purpose: Option<PurposeName>,
}

/// Purpose of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PurposeName {
    /// An index of a search engine.
    Search,
    /// A request of a user.
    Agent,
    /// Training of models.
    Training,
    /// Checks of a site.
    Monitor,
    /// Previews of links.
    Preview,
}

impl From<PurposeName> for Purpose {
    fn from(purpose: PurposeName) -> Self {
        match purpose {
            PurposeName::Search => Self::Search,
            PurposeName::Agent => Self::Agent,
            PurposeName::Training => Self::Training,
            PurposeName::Monitor => Self::Monitor,
            PurposeName::Preview => Self::Preview,
        }
    }
}

/// Proof method of crawlers.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProofMethodName {
    /// Published address ranges.
    Ranges,
    /// Forward-confirmed reverse DNS.
    DnsNames,
}
