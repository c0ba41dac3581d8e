//! The checked settings of all rules.

use super::bot_detection::{BotDetection, BotScore};
use super::class::{self, Class, Classification, UserAgentRule};
use super::exempt;
use super::facts::{Facts, RequestFacts};
use super::identity::{ClientKey, CredentialSource, KeySource, ProxyTrust};
use super::ids::{ClassId, QuotaId, RouteId, ScopeId};
use super::quota::Quota;
use super::route::Route;
use super::throttle::Scope;
use http::Method;
use std::net::IpAddr;
use std::ops::Index;

/// Checked settings of all rules. Built by `config`, always complete.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Trust in headers that report the client address.
    pub trust: ProxyTrust,
    /// Bot detection for clients that claim a browser; `None` if disabled.
    pub bot_detection: Option<BotDetection>,
    /// Names of the configured address lists.
    pub address_list_names: Vec<String>,
    /// Administrator's user-agent rules; the first match applies.
    pub user_agent_rules: Vec<UserAgentRule>,
    /// Classes; the first match applies. The last matches every client.
    pub classes: Vec<Class>,
    /// Quotas, by [`QuotaId`].
    pub quotas: Vec<Quota>,
    /// Routes; the first match applies. The last matches every request.
    pub routes: Vec<Route>,
    /// Scopes of the origin, by [`ScopeId`].
    pub scopes: Vec<Scope>,
    /// True if the gateway serves [`exempt::CRAWL_POLICY_PATH`].
    pub serves_crawl_policy: bool,
}

impl Rules {
    /// Classifies a client: kind and class.
    pub fn classify(&self, facts: &Facts<'_>) -> Classification {
        class::classify(&self.user_agent_rules, &self.classes, facts)
    }

    /// Returns the classes for which a request carries a valid API key. `credential` returns the value of a header or
    /// cookie.
    pub fn api_key_classes<'a>(
        &'a self,
        credential: impl Fn(&'a CredentialSource) -> Option<&'a [u8]>,
    ) -> Vec<ClassId> {
        let has_key = |keys: &'a class::ApiKeys| credential(&keys.source).is_some_and(|key| keys.contains(key));
        let matching =
            self.classes.iter().enumerate().filter(|(_, class)| class.matcher.keys.as_ref().is_some_and(has_key));
        matching.map(|(index, _)| ClassId::from_index(index)).collect()
    }

    /// Returns the headers, besides the common ones, that determine the class and bucket key of a client of `class`.
    /// Includes the signature headers if the request is `signed`.
    pub fn key_headers(&self, class: ClassId, signed: bool) -> Vec<&str> {
        let keys = self.classes.iter().filter_map(|class| Some(&class.matcher.keys.as_ref()?.source));
        let bucket = match &self[class].key {
            KeySource::Credential(source) => Some(source),
            _ => None,
        };
        let mut headers = if signed { vec!["signature-agent", "signature-input", "signature"] } else { Vec::new() };
        for header in keys.chain(bucket).map(CredentialSource::header) {
            if !headers.contains(&header) {
                headers.push(header);
            }
        }
        headers
    }

    /// Returns the key of the bucket and counters for a request of `client`. `credential_hash` returns the hash of the
    /// credential that the class uses, if sent.
    pub fn key(
        &self,
        classification: &Classification,
        client: IpAddr,
        credential_hash: impl FnOnce(&CredentialSource) -> Option<u64>,
    ) -> ClientKey {
        let address_key = || self.trust.key(client);
        match &self[classification.class].key {
            KeySource::Address => address_key(),
            KeySource::Class => ClientKey::SHARED_BY_CLASS,
            KeySource::Operator => classification.operator.map_or_else(address_key, ClientKey::from_operator),
            KeySource::Credential(source) => {
                credential_hash(source).map_or_else(address_key, ClientKey::from_credential)
            }
        }
    }

    /// Returns true if the bot score reaches the threshold.
    pub fn is_suspected(&self, score: &BotScore) -> bool {
        self.bot_detection.as_ref().is_some_and(|detection| score.points >= detection.threshold)
    }

    /// Returns true if `path` is the crawl policy's and the gateway serves it. `path` is normalized.
    pub fn is_crawl_policy(&self, path: &str) -> bool {
        self.serves_crawl_policy && path == exempt::CRAWL_POLICY_PATH
    }

    /// Returns true for an exempt request: never refused, hence never charged. It reads robots.txt or the crawl policy.
    /// Other methods on these paths are decided as usual. `path` is normalized.
    pub fn is_exempt(&self, method: &Method, path: &str) -> bool {
        exempt::is_robots_txt_read(method, path) || (exempt::is_read_method(method) && self.is_crawl_policy(path))
    }

    /// Returns the quota with this name.
    pub fn quota_id(&self, name: &str) -> Option<QuotaId> {
        self.quotas.iter().position(|quota| quota.name == name).map(QuotaId::from_index)
    }

    /// Returns the request's route.
    pub fn route(&self, request: &RequestFacts<'_>) -> RouteId {
        let index = self.routes.iter().position(|route| route.matches(request));
        RouteId::from_index(index.unwrap_or(self.routes.len().saturating_sub(1)))
    }
}

macro_rules! index_by_id {
    ($($id:ty => $items:ident: $item:ty;)*) => {$(
        impl Index<$id> for Rules {
            type Output = $item;

            #[inline]
            fn index(&self, id: $id) -> &$item {
                &self.$items[id.index()]
            }
        }
    )*};
}

index_by_id! {
    ClassId => classes: Class;
    QuotaId => quotas: Quota;
    RouteId => routes: Route;
    ScopeId => scopes: Scope;
}
