//! Facts in, verdict out. Pure: no I/O, no clock, no locks, no chance.
//!
//! The life of a request, file by file: [`identity`] finds the client behind the proxies, [`class`] says what kind it
//! is, by its claim, its proof and its [`bot_detection`], [`route`] what it asks for and what that [costs](cost), [`decide`] asks every rule in order, [`throttle`] says how
//! hard the origin may be pressed. The leaves ([`bucket`], [`tier`], [`window`], [`quota`]) take values and give values
//! back.

pub mod address_lists;
pub mod bot_detection;
pub mod bucket;
pub mod class;
pub mod cost;
pub mod crawl_delay;
pub mod crawler_guard;
pub mod decide;
pub mod dns_pattern;
pub mod facts;
pub mod identity;
pub mod lease;
pub mod pacing;
pub mod quota;
pub mod quota_sync;
pub mod quoted;
pub mod route;
pub mod secret;
pub mod throttle;
pub mod tier;
pub mod time;
pub mod units;
pub mod window;

pub use class::{ClassId, Classification, ClientKind};
pub use decide::{QuotaId, Reason, Refusal, Verdict};
pub use facts::{BotId, Claim, Facts, OperatorId, Proof, ProofMethod, Signature};
pub use route::ScopeId;
pub use time::Timestamp;
pub use units::Units;

use http::Method;
use identity::{ClientKey, CredentialSource, KeySource};
use std::net::IpAddr;

/// All that the settings say about who may have what. Built by `config`, never half right.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Whom to believe about addresses.
    pub trust: identity::ProxyTrust,
    /// How those that say they are browsers are told from people; `None` where nobody looks.
    pub behaviour: Option<bot_detection::BotDetection>,
    /// The names of the operator's address lists.
    pub lists: Vec<String>,
    /// The operator's own word on user agents, first match first.
    pub user_agent_rules: Vec<class::UserAgentRule>,
    /// The first that fits is a client's class; the last fits everybody.
    pub classes: Vec<class::Class>,
    /// What may be spent.
    pub quotas: Vec<quota::Quota>,
    /// The first that fits is a request's route; the last fits everything.
    pub routes: Vec<route::Route>,
    /// The parts of the origin, by [`ScopeId`].
    pub scopes: Vec<throttle::Scope>,
    /// The gate itself answers [`decide::CRAWL_POLICY_PATH`].
    pub serves_crawl_policy: bool,
}

impl Rules {
    /// Says what kind of client this is and which class it falls into.
    pub fn classify(&self, facts: &Facts<'_>) -> Classification {
        class::classify(&self.user_agent_rules, &self.classes, facts)
    }

    /// The classes of whose keys a request holds one. `sent` is asked for what it sends in a header or cookie.
    pub fn api_key_classes<'a>(&'a self, sent: impl Fn(&'a CredentialSource) -> Option<&'a [u8]>) -> Vec<ClassId> {
        let holds = |keys: &'a class::ApiKeys| sent(&keys.carrier).is_some_and(|sent| keys.contain(sent));
        let held = self.classes.iter().enumerate().filter(|(_, class)| class.when.keys.as_ref().is_some_and(holds));
        held.map(|(place, _)| ClassId(place as u16)).collect()
    }

    /// The headers, beside those that everybody sends, that are looked at to say who a client of `class` is, and whose
    /// bucket it goes by; more where a request is `signed`.
    pub fn key_headers(&self, class: ClassId, signed: bool) -> Vec<&str> {
        let keys = self.classes.iter().filter_map(|class| Some(&class.when.keys.as_ref()?.carrier));
        let bucket = match &self.classes[usize::from(class.0)].key {
            KeySource::Credential(carrier) => Some(carrier),
            _ => None,
        };
        let mut seen = if signed { vec!["signature-agent", "signature-input", "signature"] } else { Vec::new() };
        for header in keys.chain(bucket).map(CredentialSource::header) {
            if !seen.contains(&header) {
                seen.push(header);
            }
        }
        seen
    }

    /// Whose bucket and counters a request of `client` goes by. `secret` is asked for a hash of what is sent
    /// in the header or cookie that its class goes by, if anything is.
    pub fn key(
        &self,
        classified: &Classification,
        client: IpAddr,
        secret: impl FnOnce(&CredentialSource) -> Option<u64>,
    ) -> ClientKey {
        let of_address = || self.trust.key(client);
        match &self.classes[usize::from(classified.class.0)].key {
            KeySource::Address => of_address(),
            KeySource::Class => ClientKey::OF_CLASS,
            KeySource::Operator => classified.operator.map_or_else(of_address, ClientKey::from_operator),
            KeySource::Credential(carrier) => secret(carrier).map_or_else(of_address, ClientKey::from_credential),
        }
    }

    /// True where somebody with so many points is suspected.
    pub fn is_suspected(&self, weighed: &bot_detection::BotScore) -> bool {
        self.behaviour.as_ref().is_some_and(|behaviour| weighed.points >= behaviour.threshold)
    }

    /// True for a normalised path at which the gate tells its crawl policy.
    pub fn is_crawl_policy(&self, path: &str) -> bool {
        self.serves_crawl_policy && path == decide::CRAWL_POLICY_PATH
    }

    /// True for a request that is never refused, hence never charged: one that reads robots.txt or the gateway's crawl
    /// policy. Any other method on these paths is decided as usual. `path` is normalised.
    pub fn is_exempt(&self, method: &Method, path: &str) -> bool {
        decide::reads_robots_txt(method, path) || (decide::reads(method) && self.is_crawl_policy(path))
    }

    /// The place of the route that the request falls into.
    pub fn route(&self, facts: &Facts<'_>) -> usize {
        self.routes.iter().position(|route| route.matches(facts)).unwrap_or(self.routes.len().saturating_sub(1))
    }
}
