//! Facts in, verdict out. Pure: no I/O, no clock, no locks, no chance.
//!
//! The life of a request, file by file: [`identity`] finds the client behind the proxies, [`class`] says what kind it
//! is, [`route`] what it asks for and what that [costs](cost), [`decide`] asks every rule in order, [`throttle`] says how
//! hard the origin may be pressed. The leaves ([`bucket`], [`tier`], [`window`], [`quota`]) take values and give values
//! back.

pub mod bucket;
pub mod calibration;
pub mod class;
pub mod cost;
pub mod decide;
pub mod facts;
pub mod guard;
pub mod identity;
pub mod lease;
pub mod quota;
pub mod quoted;
pub mod route;
pub mod throttle;
pub mod tier;
pub mod time;
pub mod units;
pub mod window;

pub use class::{ClassId, Classified, Kind};
pub use decide::{QuotaId, Reason, Refusal, Verdict};
pub use facts::{BotId, Claim, Facts, OperatorId, Proof, Signature};
pub use route::ScopeId;
pub use time::Timestamp;
pub use units::Units;

use identity::{ClientKey, KeyFrom};
use std::net::IpAddr;

/// All that the settings say about who may have what. Built by `config`, never half right.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Whom to believe about addresses.
    pub trust: identity::Trust,
    /// The operator's own word on user agents, first match first.
    pub agent_rules: Vec<class::AgentRule>,
    /// The first that fits is a client's class; the last fits everybody.
    pub classes: Vec<class::Class>,
    /// What may be spent.
    pub quotas: Vec<quota::Quota>,
    /// The first that fits is a request's route; the last fits everything.
    pub routes: Vec<route::Route>,
    /// The parts of the origin, by [`ScopeId`].
    pub scopes: Vec<throttle::Scope>,
}

impl Rules {
    /// Says what kind of client this is and which class it falls into.
    pub fn classify(&self, facts: &Facts<'_>) -> Classified {
        class::classify(&self.agent_rules, &self.classes, facts)
    }

    /// Whose bucket and counters a request of `client` goes by. `secret` is asked for a hash of what is sent
    /// in the header or cookie that its class goes by, if anything is.
    pub fn key(
        &self,
        classified: &Classified,
        client: IpAddr,
        secret: impl FnOnce(&KeyFrom) -> Option<u64>,
    ) -> ClientKey {
        let of_address = || self.trust.key(client);
        match &self.classes[usize::from(classified.class.0)].key {
            KeyFrom::Address => of_address(),
            KeyFrom::Class => ClientKey::OF_CLASS,
            KeyFrom::Operator => classified.operator.map_or_else(of_address, ClientKey::of_operator),
            sent @ (KeyFrom::Header(_) | KeyFrom::Cookie(_)) => {
                secret(sent).map_or_else(of_address, ClientKey::of_secret)
            }
        }
    }

    /// The place of the route that the request falls into.
    pub fn route(&self, facts: &Facts<'_>) -> usize {
        self.routes.iter().position(|route| route.fits(facts)).unwrap_or(self.routes.len().saturating_sub(1))
    }
}
