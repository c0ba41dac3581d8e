//! The YAML as written: every key it may have, unknown ones refused. What it means is `meaning`'s business.
//!
//! The comments here are what editors show: what a key changes for a client, its unit and its default.

pub(super) mod address_lists;
pub(super) mod bot_detection;
pub(super) mod classes;
pub(super) mod clients;
pub(super) mod crawl_policy;
pub(super) mod ledger;
pub(super) mod pacing;
pub(super) mod partition;
pub(super) mod quotas;
pub(super) mod routes;
pub(super) mod scopes;
pub(super) mod server;
pub(super) mod verify;

use super::scalars::{Socket, Threads};
use super::serde_forms::{NamedMap, OneOrMany};
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration of Tidegate.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    /// Where clients are served, HTTP/1.1 and cleartext HTTP/2: one address and port, or a list. Default
    /// 127.0.0.1:8080.
    pub listen: Option<OneOrMany<Socket>>,
    /// Threads that carry requests: auto (one per core) or a number. Default auto.
    pub workers: Option<Threads>,
    /// The listener for the administrator: metrics, health, state; off, or { listen, token }. Default 127.0.0.1:9090.
    pub admin: Option<server::AdminListener>,
    /// The directory of the ledger, which survives restarts. Paths that are relative, here and elsewhere, go by the directory in
    /// which the gate is started, not by that of this file. Default ./state.
    pub state_dir: Option<String>,
    /// Where the count of what is spent is kept: file (in state_dir), memory (a restart begins anew), or { redis: ... },
    /// which several gates share. Default file.
    pub ledger: ledger::Ledger,
    /// The server behind the gate.
    pub origin: server::Origin,
    /// Whose request it is.
    pub clients: clients::Clients,
    /// Files of addresses, by name: hosting companies, Tor exits, your own lists. Classes refer to them.
    pub lists: NamedMap<address_lists::List>,
    /// The operator's own word on user agents; the first that fits goes before the built-in list.
    pub agents: Vec<classes::Agent>,
    /// Operators of crawlers beyond the built-in ones, or what differs from those, by name.
    pub operators: NamedMap<verify::Operator>,
    /// How crawlers are held to what they say.
    pub verify: verify::Verify,
    /// How bots are found that say they are browsers.
    pub behaviour: bot_detection::Behaviour,
    /// What may be spent, by name.
    pub quotas: NamedMap<quotas::Quota>,
    /// What kinds of client there are; the first that fits counts. Who fits none is in class `other`.
    pub classes: Vec<classes::Class>,
    /// Parts of the origin that are throttled apart, by name; `default` is the rest.
    pub scopes: NamedMap<scopes::Scope>,
    /// What requests cost; the first that fits counts. What fits none is free.
    pub routes: Vec<routes::Route>,
    /// What clients are told in header fields.
    pub headers: server::Headers,
    /// What is done with robots.txt.
    pub robots: server::Robots,
    /// Whether /.well-known/crawl-policy tells crawlers who is verified how, what each class may do and how to ask for more:
    /// on, off, or { contact: ... }. Off, the path is the origin's. Default off.
    pub crawl_policy: crawl_policy::CrawlPolicy,
    /// What is written about requests.
    pub log: server::Log,
    /// How much one client, or all together, may hold on to.
    pub limits: server::Limits,
}

/// The keys at the top.
pub(super) const SECTIONS: &[&str] = &[
    "listen",
    "workers",
    "admin",
    "state_dir",
    "ledger",
    "origin",
    "clients",
    "lists",
    "agents",
    "operators",
    "verify",
    "behaviour",
    "quotas",
    "classes",
    "scopes",
    "routes",
    "headers",
    "robots",
    "crawl_policy",
    "log",
    "limits",
];
