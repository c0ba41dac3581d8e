//! Raw sections `verify` and `operators`.

use crate::scalars::{Pattern, Socket, Span};
use crate::serde_forms::{OneOrMany, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Verification of crawlers. No request waits for it.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Verify {
    /// Forward-confirmed reverse DNS, where published addresses do not verify a crawler: on (system name servers), off,
    /// or { nameservers, timeout }. A change takes effect at the next start. Default on.
    ///
    /// The first requests of a crawler that only DNS can verify are those of a declared bot. A positive answer is
    /// trusted for an hour to a day, a missing name for ten minutes to an hour, a failure is retried after a minute. At
    /// most 1,024 addresses wait for a query; further ones stay unverified and are queried when there is room.
    pub dns: Dns,
    /// Interval for fetching published range lists: a duration of at least 1m, or off. off uses the built-in lists
    /// (date in data/ranges.json) and stored copies; files are still read when they change, and keys of signing agents
    /// are still fetched. A change takes effect at the next start. Default 24h.
    pub refresh_interval: RefreshInterval,
    /// Verification of signed requests (Web Bot Auth).
    pub signatures: Signatures,
}

/// Verification of signed requests. The keys of an agent are fetched by HTTPS from its key directory once a request
/// names the agent, also with `refresh_interval: off`. Keys are refreshed as the Cache-Control of their server
/// specifies, every five minutes to every day; the log shows which keys are loaded and from where. Signatures with
/// another `tag` than web-bot-auth have no effect. The signature fields are forwarded unchanged. The log reports
/// invalid signatures of operators' agents at most once a minute; if all are invalid, a proxy in front usually changes
/// Host.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Signatures {
    /// false: signatures are ignored and no keys are fetched. Default true.
    pub enabled: Option<bool>,
    /// true: keys of agents without a known operator are fetched, too. Clients then determine which public hosts the
    /// gateway contacts: a small document at the usual port, one host after the other, 256 hosts at most. Such agents
    /// stay declared bots, with `signature_unlisted` in the evidence. Default false.
    pub fetch_unlisted_keys: bool,
    /// Maximum lifetime of a signature, more than 0; signatures that are valid for longer are not trusted. A signature
    /// without a nonce can be used again until it expires, for the same host. Default 24h.
    pub max_lifetime: Option<Span>,
}

/// Use of DNS: a word, or the name servers.
#[derive(Clone, Default)]
pub(crate) enum Dns {
    #[default]
    On,
    Off,
    Servers(Servers),
}

/// Name servers for verification.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Servers {
    /// Address and port of a recursive name server: one, or a list. Default those of the system.
    pub nameservers: Option<OneOrMany<Socket>>,
    /// Timeout of a query to one name server, more than 0. Default 2s.
    pub timeout: Option<Span>,
}

impl From<Servers> for Dns {
    fn from(servers: Servers) -> Self {
        Self::Servers(servers)
    }
}

impl<'de> Deserialize<'de> for Dns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "on, off or keys; use on, off or { nameservers: 127.0.0.1:53 }";
        string_or_map::<D, Self, Servers>(deserializer, needs, |word| match word {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        })
    }
}

impl JsonSchema for Dns {
    fn schema_name() -> Cow<'static, str> {
        "Dns".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let servers = generator.subschema_for::<Servers>();
        json_schema!({ "anyOf": [{ "enum": ["on", "off"] }, servers] })
    }
}

/// Interval for fetching range lists.
#[derive(Clone, Default, PartialEq)]
pub(crate) enum RefreshInterval {
    #[default]
    Daily,
    Off,
    Interval(Span),
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
