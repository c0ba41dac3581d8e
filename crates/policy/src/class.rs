//! Classifies clients: kind, evidence and the administrator's class.
//!
//! [`classify()`] sets an operator only with proof.

mod classify;
mod evidence;
mod kind;

pub use classify::classify;
pub use evidence::{Evidence, EvidenceList};
pub use kind::ClientKind;

use super::address_lists::ListSet;
use super::bot_detection::Signal;
use super::bucket::Bucket;
use super::crawler_guard::CrawlerGuard;
use super::facts::{Facts, RequestFacts};
use super::identity::{CredentialSource, KeySource};
use super::ids::{ClassId, OperatorId};
use super::name_pattern::NamePattern;
use super::network::IpPrefix;
use super::network_origin::{Country, NetworkOrigin};
use super::purpose::Purpose;
use super::reason::Reason;
use super::request_fields::FieldCondition;
use super::route::{self, Pattern};
use super::secret::Secret;
use super::session::Session;
use super::words::Words;
use http::{Method, StatusCode};
use std::iter;

/// Classification of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Kind of the client.
    pub kind: ClientKind,
    /// Operator of the crawler; set only with proof.
    pub operator: Option<OperatorId>,
    /// Class of the client.
    pub class: ClassId,
    /// Evidence for kind and class.
    pub evidence: EvidenceList,
}

/// A class of clients, as the administrator configured it.
#[derive(Clone, Debug)]
pub struct Class {
    /// Name in YAML, metrics, headers and logs.
    pub name: String,
    /// Match conditions.
    pub matcher: ClassMatcher,
    /// True if all requests except robots.txt are refused.
    pub blocked: bool,
    /// Status of the refusals by `blocked`: 401, 403 or 429.
    pub refuse_with: StatusCode,
    /// Token bucket of each client.
    pub bucket: Option<Bucket>,
    /// Key source that partitions the buckets.
    pub key: KeySource,
    /// False for shadow mode: refusals by bucket, tier or block are counted and logged, not enforced.
    pub enforce: bool,
    /// Queue priority; higher first.
    pub priority: u8,
    /// Crawler guard: admits verified crawlers that a tier refuses.
    pub guard: Option<CrawlerGuard>,
    /// True if the client limits of quotas hold for its clients.
    pub has_client_limits: bool,
}

/// Match conditions of a class. All must hold; each holds if it is empty or one of its values matches.
#[derive(Clone, Debug, Default)]
pub struct ClassMatcher {
    /// Accepted kinds.
    pub kinds: Vec<ClientKind>,
    /// Accepted proven operators.
    pub operators: Vec<OperatorId>,
    /// Substrings of the user agent, case-insensitive.
    pub user_agents: Words,
    /// Accepted address ranges.
    pub addresses: Vec<IpPrefix>,
    /// Accepted address lists.
    pub lists: ListSet,
    /// Accepted API keys.
    pub keys: Option<KeyCondition>,
    /// Patterns of the names in the client's certificate.
    pub certificates: Vec<NamePattern>,
    /// Header fields and cookies. All of them must match.
    pub fields: Vec<FieldCondition>,
    /// Accepted sessions.
    pub sessions: Vec<Session>,
    /// Accepted purposes of the operator that the client belongs to, or claims to.
    pub purposes: Vec<Purpose>,
    /// Accepted autonomous systems.
    pub asns: Vec<u32>,
    /// Accepted countries.
    pub countries: Vec<Country>,
    /// Accepted paths, each with its text.
    pub paths: Vec<(String, Pattern)>,
    /// Accepted hosts, as those of a route.
    pub hosts: Vec<String>,
    /// Accepted methods.
    pub methods: Vec<Method>,
}

/// A condition of [`ClassMatcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionKind {
    /// Kind of the client.
    Kind,
    /// Proven operator.
    Operator,
    /// Substring of the user agent.
    UserAgent,
    /// Address range.
    Address,
    /// Address list.
    List,
    /// API key.
    Key,
    /// Client certificate.
    Certificate,
    /// Header field or cookie.
    Field,
    /// Session.
    Session,
    /// Purpose of the operator.
    Purpose,
    /// Autonomous system.
    Asn,
    /// Country.
    Country,
    /// Path of the request.
    Path,
    /// Host of the request.
    Host,
    /// Method of the request.
    Method,
}

/// API keys that a class accepts.
#[derive(Clone, Debug)]
pub enum KeyCondition {
    /// Keys of the condition.
    Given(ApiKeys),
    /// Listed keys that name the class.
    Listed,
}

/// API keys of a class, all sent in the same header or cookie.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// Header or cookie of the key.
    pub source: CredentialSource,
    /// Accepted keys.
    pub values: Vec<Secret>,
}

/// An administrator's rule for a user agent; takes precedence over the built-in list.
#[derive(Clone, Debug)]
pub struct UserAgentRule {
    /// Substring of the user agents that match, case-insensitive.
    pub contains: String,
    /// Kind of the matching clients.
    pub kind: ClientKind,
}

/// Rules for user agents; the first that matches applies.
#[derive(Clone, Debug, Default)]
pub struct UserAgentRules {
    kinds: Vec<ClientKind>,
    words: Words,
}

impl UserAgentRules {
    /// Creates the rules. Returns `None` if their words are too large for one automaton.
    pub fn new(rules: Vec<UserAgentRule>) -> Option<Self> {
        let kinds = rules.iter().map(|rule| rule.kind).collect();
        let words = Words::new(rules.into_iter().map(|rule| rule.contains).collect())?;
        Some(Self { kinds, words })
    }

    /// Returns the substring of the rule at `index`.
    pub fn word(&self, index: usize) -> Option<&str> {
        self.words.get(index).map(String::as_str)
    }

    /// Returns the substrings of the rules.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns the first rule that matches `user_agent`, and its index.
    pub fn find(&self, user_agent: &[u8]) -> Option<(usize, ClientKind)> {
        let index = self.words.first_in(user_agent)?;
        Some((index, self.kinds[index]))
    }
}

impl Class {
    /// Returns true if a client without a session that the class refuses for `reason` may come back with one: it is then in
    /// another class. Other reasons hold in every class, so their refusals name their own time to retry.
    pub fn asks_back(&self, reason: Reason, evidence: &EvidenceList) -> bool {
        // With a session, a client with many landings is a person again.
        let is_of_landings = || evidence.contains(&Some(Evidence::Behavior(Signal::Landings)));
        matches!(reason, Reason::Tier | Reason::Pacing | Reason::Bucket)
            && (self.matcher.sessions == [Session::None] || is_of_landings())
    }
}

impl ClassMatcher {
    /// Returns the API keys of the condition itself, if it has any.
    pub fn own_keys(&self) -> Option<&ApiKeys> {
        match self.keys.as_ref()? {
            KeyCondition::Given(keys) => Some(keys),
            KeyCondition::Listed => None,
        }
    }

    /// Returns true if every client matches.
    pub fn matches_all(&self) -> bool {
        self.kinds.is_empty() && self.matches_all_of_kinds() && self.purposes.is_empty()
    }

    /// Returns true if every client of the kinds and purposes matches.
    fn matches_all_of_kinds(&self) -> bool {
        self.operators.is_empty()
            && self.user_agents.is_empty()
            && self.sessions.is_empty()
            && self.depends_on_crawler_only()
    }

    /// Returns true if nothing decides but what a crawler is: kind, operator, purpose and user agent. A crawler has no
    /// session, so that a condition which accepts this does not count.
    pub fn depends_on_crawler_only(&self) -> bool {
        // Each condition is named, so that a new one has to be decided on here.
        let Self {
            kinds: _,
            operators: _,
            purposes: _,
            user_agents: _,
            sessions,
            addresses,
            lists,
            keys,
            certificates,
            fields,
            asns,
            countries,
            paths,
            hosts,
            methods,
        } = self;
        (sessions.is_empty() || sessions.contains(&Session::None))
            && addresses.is_empty()
            && lists.is_empty()
            && keys.is_none()
            && certificates.is_empty()
            && fields.is_empty()
            && asns.is_empty()
            && countries.is_empty()
            && paths.is_empty()
            && hosts.is_empty()
            && methods.is_empty()
    }

    /// Returns true if the class is for the crawlers of `purpose`, without another condition than their kind.
    pub fn is_for(&self, purpose: Purpose) -> bool {
        self.purposes.contains(&purpose) && self.matches_all_of_kinds()
    }

    /// Returns true if requests of one client may be in different classes.
    pub fn depends_on_request(&self) -> bool {
        !(self.paths.is_empty() && self.hosts.is_empty() && self.methods.is_empty())
    }

    /// Returns the first condition that the client does not meet; `None` if it belongs to `class`, the class of this
    /// matcher.
    pub fn first_unmet(
        &self,
        class: ClassId,
        kind: ClientKind,
        operator: Option<OperatorId>,
        facts: &Facts<'_>,
    ) -> Option<ConditionKind> {
        if !self.kinds.is_empty() && !self.kinds.contains(&kind) {
            return Some(ConditionKind::Kind);
        }
        if !self.operators.is_empty() && !operator.is_some_and(|operator| self.operators.contains(&operator)) {
            return Some(ConditionKind::Operator);
        }
        if !self.user_agents.is_empty() && !self.user_agents.occur_in(facts.request.user_agent) {
            return Some(ConditionKind::UserAgent);
        }
        if !self.addresses.is_empty() && !self.addresses.iter().any(|range| range.contains(facts.client.address)) {
            return Some(ConditionKind::Address);
        }
        if !self.lists.is_empty() && self.lists.first_common(facts.client.address_lists).is_none() {
            return Some(ConditionKind::List);
        }
        if self.keys.is_some() && !facts.client.api_key_classes.contains(&class) {
            return Some(ConditionKind::Key);
        }
        if !self.certificates.is_empty() && !facts.client.certificate_classes.contains(&class) {
            return Some(ConditionKind::Certificate);
        }
        if !self.fields.is_empty() && !facts.client.field_classes.contains(&class) {
            return Some(ConditionKind::Field);
        }
        if !self.sessions.is_empty() && !self.sessions.contains(&facts.client.session) {
            return Some(ConditionKind::Session);
        }
        if !self.purposes.is_empty() && !facts.client.purpose.is_some_and(|purpose| self.purposes.contains(&purpose)) {
            return Some(ConditionKind::Purpose);
        }
        let NetworkOrigin { asn, country } = facts.client.network_origin;
        if !self.asns.is_empty() && !asn.is_some_and(|asn| self.asns.contains(&asn)) {
            return Some(ConditionKind::Asn);
        }
        if !self.countries.is_empty() && !country.is_some_and(|country| self.countries.contains(&country)) {
            return Some(ConditionKind::Country);
        }
        self.first_unmet_by_request(&facts.request)
    }

    /// Returns the first condition that the request does not meet. A path has to meet it in each reading, so that no spelling
    /// gains the class of another page.
    fn first_unmet_by_request(&self, request: &RequestFacts<'_>) -> Option<ConditionKind> {
        let is_accepted = |path: &str| self.paths.iter().any(|(_, pattern)| pattern.matches(path));
        let mut readings = iter::once(request.path).chain(request.other_paths.iter().map(|path| &**path));
        if !self.paths.is_empty() && !readings.all(is_accepted) {
            return Some(ConditionKind::Path);
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|host| route::host_matches(host, request.host)) {
            return Some(ConditionKind::Host);
        }
        let is_method = |method: &Method| route::is_same_method(method, request.method);
        (!self.methods.is_empty() && !self.methods.iter().any(is_method)).then_some(ConditionKind::Method)
    }
}

impl ApiKeys {
    /// Returns true if `key` is an accepted key. Takes the same time for every guess of the same length.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.values.iter().fold(false, |matched, accepted| matched | accepted.matches(key))
    }
}

#[cfg(test)]
mod tests;
