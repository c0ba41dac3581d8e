//! `verify:` and `operators:` as written.

use crate::config::scalars::{Pattern, Socket, Span};
use crate::config::serde_forms::{OneOrMany, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// How crawlers are held to what they say.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Verify {
    /// Whether DNS is asked whose a crawler's address is, where published addresses do not say: on (of the system's name
    /// servers), off, or { nameservers: ..., timeout: ... }. No request waits for it. Default on.
    pub dns: Dns,
    /// How often published lists of addresses are fetched anew: a duration of at least a minute, or off, which leaves what
    /// is known of them. Files are read whenever they change; keys of agents that sign are fetched all the same. Default 24h.
    pub refresh: Refresh,
    /// By signatures on their requests (Web Bot Auth).
    pub signatures: Signatures,
}

/// Signed requests. The keys of an agent are fetched by HTTPS from where it publishes them, once a request names it.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Signatures {
    /// false: signatures are not looked at, and no keys are fetched. Default true.
    pub enabled: Option<bool>,
    /// true: the keys of agents that no known operator has are fetched too, of 256 at most. They stay declared bots; the log
    /// says that they sign. Strangers then decide which addresses the gate asks. Default false.
    pub unlisted_agents: bool,
    /// Signatures that hold for longer than this are not believed: who gets hold of one can use it for as long. Default 24h.
    pub max_lifetime: Option<Span>,
}

/// Whether DNS is asked, and whom.
#[derive(Clone, Default)]
pub(in crate::config) enum Dns {
    #[default]
    On,
    Off,
    Servers(Servers),
}

/// The name servers that are asked.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Servers {
    /// Addresses and ports of name servers that look up any name: one, or a list. Default those of the system.
    pub nameservers: Option<OneOrMany<Socket>>,
    /// How long each has to answer a question. Default 2s.
    pub timeout: Option<Span>,
}

impl From<Servers> for Dns {
    fn from(servers: Servers) -> Self {
        Self::Servers(servers)
    }
}

impl<'de> Deserialize<'de> for Dns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "whether DNS is asked; use on, off or { nameservers: 127.0.0.1:53 }";
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

/// How often lists are fetched.
#[derive(Clone, Default, PartialEq)]
pub(in crate::config) enum Refresh {
    #[default]
    Daily,
    Off,
    Every(Span),
}

impl<'de> Deserialize<'de> for Refresh {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "off" => Ok(Self::Off),
            _ => Span::deserialize(serde::de::value::StrDeserializer::new(&text)).map(Self::Every),
        }
    }
}

impl JsonSchema for Refresh {
    fn schema_name() -> Cow<'static, str> {
        "Refresh".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let span = generator.subschema_for::<Span>();
        json_schema!({ "anyOf": [{ "enum": ["off"] }, span] })
    }
}

/// An operator of crawlers: one of your own, or what differs from the built-in one of that name.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Operator {
    /// What its crawlers call themselves, such as ExampleBot in `ExampleBot/1.0`: one, or a list. Default as built in.
    pub tokens: Option<OneOrMany<String>>,
    /// Where they come from: networks, https:// URLs of lists, or files with lists (Google's JSON, or one network a line):
    /// one, or a list. Default as built in.
    pub ranges: Option<OneOrMany<String>>,
    /// What their addresses are called in DNS: crawl.example.com is that name and all below it, bot-*.example.com is one
    /// label that begins so: one, or a list. Default as built in.
    pub names: Option<OneOrMany<Pattern>>,
    /// By what all of them are known, so that whoever claims this operator and fails there is an impostor: addresses,
    /// names, both, or none as []. Default as built in, none for an operator of your own.
    pub complete: Option<OneOrMany<ProofMethodName>>,
    /// By which addresses its agents sign their requests (`Signature-Agent`): the https:// origin, or where their keys are:
    /// one, or a list. Default as built in.
    pub signature_agents: Option<OneOrMany<String>>,
}

/// By what crawlers are known.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ProofMethodName {
    /// By their addresses.
    Addresses,
    /// By the names of their addresses.
    Names,
}
