//! The checked settings of all rules.

use super::api_keys::ApiKeyList;
use super::bot_detection::{BotDetection, BotScore};
use super::budget::CustomerSource;
use super::cache::CacheRules;
use super::class::{self, Class, Classification, UserAgentRules};
use super::compression::CompressionRules;
use super::cost::Cost;
use super::exempt::{self, Exemption, OwnDocuments};
use super::facts::{ClientFacts, Facts, RequestFacts};
use super::identity::{ClientKey, CredentialSource, KeySource, ProxyTrust};
use super::ids::{ClassId, QuotaId, RouteId, ScopeId};
use super::path::PathPolicy;
use super::quota::Quota;
use super::request_body::JsonMatch;
use super::request_fields::{FieldCondition, FieldMatch, eq_as_cgi};
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
    pub user_agent_rules: UserAgentRules,
    /// Listed API keys.
    pub api_keys: ApiKeyList,
    /// Credential that names the customer of a request, for quotas that count by customer; `None` if there is none.
    pub customer: Option<CustomerSource>,
    /// Classes; the first match applies. The last matches every client.
    pub classes: Vec<Class>,
    /// Quotas, by [`QuotaId`].
    pub quotas: Vec<Quota>,
    /// Routes; the first match applies. The last matches every request.
    pub routes: Vec<Route>,
    /// Conditions of all routes on header fields and cookies, each once; most sites have none.
    pub route_fields: Vec<FieldCondition>,
    /// Handling of paths that origins read in different ways.
    pub path_policy: PathPolicy,
    /// Scopes of the origin, by [`ScopeId`].
    pub scopes: Vec<Scope>,
    /// Documents that the gateway serves itself.
    pub own_documents: OwnDocuments,
    /// Rules of the cache for all routes; `None` if nothing is stored.
    pub cache: Option<CacheRules>,
    /// Rules of compression; `None` if nothing is compressed.
    pub compression: Option<CompressionRules>,
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
            self.classes.iter().enumerate().filter(|(_, class)| class.matcher.own_keys().is_some_and(has_key));
        matching.map(|(index, _)| ClassId::from_index(index)).collect()
    }

    /// Returns the classes that a certificate with `names` belongs to.
    pub fn certificate_classes(&self, names: &[String]) -> Vec<ClassId> {
        let has_name = |class: &class::Class| {
            class.matcher.certificates.iter().any(|pattern| names.iter().any(|name| pattern.matches(name)))
        };
        let matching = self.classes.iter().enumerate().filter(|(_, class)| has_name(class));
        matching.map(|(index, _)| ClassId::from_index(index)).collect()
    }

    /// Returns the classes whose header fields and cookies a request has. `has` returns whether the request meets a condition.
    pub fn field_classes(&self, has: impl Fn(&FieldCondition) -> bool) -> Vec<ClassId> {
        let has_fields = |class: &Class| !class.matcher.fields.is_empty() && class.matcher.fields.iter().all(&has);
        let matching = self.classes.iter().enumerate().filter(|(_, class)| has_fields(class));
        matching.map(|(index, _)| ClassId::from_index(index)).collect()
    }

    /// Returns which conditions of routes a request with `fields`, as pairs of name and value, meets; `None` if no route has any.
    #[inline]
    pub fn field_match<'a, F>(&self, fields: impl Fn() -> F) -> Option<FieldMatch>
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])>,
    {
        (!self.route_fields.is_empty()).then(|| FieldMatch::read(&self.route_fields, fields))
    }

    /// Returns true if some origin reads `name` as a header field that these rules read: by which routes, classes, the keys of
    /// buckets or customers are chosen.
    pub fn read_header(&self, name: &[u8]) -> bool {
        let of_classes = self.classes.iter().flat_map(|class| {
            let keys = class.matcher.own_keys().map(|keys| &keys.source);
            let bucket = match &class.key {
                KeySource::Credential(source) => Some(source),
                _ => None,
            };
            let conditions = class.matcher.fields.iter().map(|condition| condition.source.header());
            conditions.chain(keys.into_iter().chain(bucket).map(CredentialSource::header))
        });
        let customer = match &self.customer {
            Some(CustomerSource::Credential(source)) => Some(source.header()),
            _ => None,
        };
        let of_routes = self.route_fields.iter().map(|condition| condition.source.header());
        of_routes.chain(of_classes).chain(customer).any(|header| eq_as_cgi(name, header.as_bytes()))
    }

    /// Returns the names of the header fields by which a request gets its route and not another one, which `Vary` names for the
    /// caches of others.
    pub fn selecting_headers(&self, request: &RequestFacts<'_>) -> Vec<&str> {
        let mut names = Vec::new();
        for route in self.routes.iter().filter(|route| paths(request).any(|path| route.matches_line(request, path))) {
            for name in route.fields.iter().map(|condition| condition.source.header()) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            if paths(request).all(|path| route.matches(request, path)) {
                break;
            }
        }
        names
    }

    /// Returns the headers, besides the common ones, that determine the class and bucket key of a client of `class`.
    /// Includes the signature headers if the request is `signed`.
    pub fn key_headers(&self, class: ClassId, signed: bool) -> Vec<&str> {
        let keys = self.classes.iter().filter_map(|class| Some(&class.matcher.own_keys()?.source));
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
            KeySource::Class => ClientKey::of_class(&self[classification.class].name),
            KeySource::Operator => classification.operator.map_or_else(address_key, ClientKey::from_operator),
            KeySource::Credential(source) => {
                credential_hash(source).map_or_else(address_key, ClientKey::from_credential)
            }
        }
    }

    /// Returns the key of the customer of a request, if quotas count by customer: that of its listed API key, of its credential, or
    /// of the address of a client that sends none. `credential_hash` as in [`Self::key`].
    pub fn customer_key(
        &self,
        client: &ClientFacts,
        credential_hash: impl FnOnce(&CredentialSource) -> Option<u64>,
    ) -> Option<ClientKey> {
        let key = match self.customer.as_ref()? {
            CustomerSource::ApiKey => client.api_key.map(|key| key.customer),
            CustomerSource::Credential(source) => credential_hash(source).map(ClientKey::from_credential),
        };
        Some(key.unwrap_or_else(|| self.trust.key(client.address)))
    }

    /// Returns true if the bot score reaches the threshold.
    pub fn is_suspected(&self, score: &BotScore) -> bool {
        self.bot_detection.as_ref().is_some_and(|detection| score.points >= detection.threshold)
    }

    /// Returns the document at `path`, by the exemption of its reads, if the gateway serves it. `path` is normalized.
    pub fn own_document(&self, path: &str) -> Option<Exemption> {
        if self.own_documents == OwnDocuments::NONE { None } else { self.own_documents.at(path) }
    }

    /// Returns why a request is not use; `None` for an ordinary request.
    pub fn exemption(&self, request: &RequestFacts<'_>) -> Option<Exemption> {
        if request.is_preflight {
            return Some(Exemption::Preflight);
        }
        // Another reading of the path, or a query, may lead to what has a cost.
        let is_single = request.other_paths.is_empty() && request.query.is_none();
        if is_single && exempt::is_acme_challenge(request.method, request.path) {
            return Some(Exemption::AcmeChallenge);
        }
        self.read_exemption(request.method, request.path)
    }

    /// Returns the exemption of a request that reads a document of the gateway at this normalized path. Such a request is
    /// never refused.
    pub fn read_exemption(&self, method: &Method, path: &str) -> Option<Exemption> {
        if exempt::is_robots_txt_read(method, path) {
            return Some(Exemption::RobotsTxt);
        }
        self.own_document(path).filter(|_| exempt::is_read_method(method))
    }

    /// Returns the quota with this name.
    pub fn quota_id(&self, name: &str) -> Option<QuotaId> {
        self.quotas.iter().position(|quota| quota.name == name).map(QuotaId::from_index)
    }

    /// Returns the class with a name.
    pub fn class_id(&self, name: &str) -> Option<ClassId> {
        self.classes.iter().position(|class| class.name == name).map(ClassId::from_index)
    }

    /// Returns the request's route: the first match. If path, body or fields have several readings, the one whose route uses
    /// most, because the origin may read them in that way.
    pub fn route(&self, request: &RequestFacts<'_>) -> RouteId {
        let others = request.other_paths.iter().map(|path| self.route_of_path(request, path));
        others.fold(self.route_of_path(request, request.path), |heaviest, other| self.heavier(heaviest, other))
    }

    /// Returns true if path, body or fields have several readings, and the costs of [`Self::route`] do not cover those of each
    /// reading: they are in another quota.
    pub fn has_ambiguous_costs(&self, request: &RequestFacts<'_>) -> bool {
        if request.other_paths.is_empty() && !request.is_ambiguous() {
            return false;
        }
        let charged = &self[self.route(request)].costs;
        let is_covered = |(quota, cost): &(QuotaId, Cost)| {
            charged.iter().any(|(other, charged)| {
                other == quota
                    && match (charged, cost) {
                        (Cost::Fixed(charged), Cost::Fixed(cost)) => charged >= cost,
                        _ => true,
                    }
            })
        };
        self.routes_of_readings(request).any(|id| !self[id].costs.iter().all(is_covered))
    }

    /// Returns true if the decision on a request depends on what its body says: its route does, or its cost.
    pub fn depends_on_body(&self, request: &RequestFacts<'_>) -> bool {
        self.possible_routes(request).any(|id| !self[id].json.is_empty() || !self[id].requested_costs.is_empty())
    }

    /// Iterates over the routes of a request whose body may say anything, if it is not read yet: of each reading of the path, those
    /// that may match, and the first one that certainly does.
    pub fn possible_routes<'a>(&'a self, request: &RequestFacts<'a>) -> impl Iterator<Item = RouteId> + use<'a> {
        let request = RequestFacts { json: Some(request.json.unwrap_or(&JsonMatch::Unreadable)), ..*request };
        self.routes_of_readings(&request)
    }

    /// Iterates over the routes of all readings of path, body and fields.
    fn routes_of_readings<'a>(&'a self, request: &RequestFacts<'a>) -> impl Iterator<Item = RouteId> + use<'a> {
        let request = *request;
        paths(&request).flat_map(move |path| self.routes_of_path(request, path))
    }

    fn routes_of_path<'a>(&'a self, request: RequestFacts<'a>, path: &'a str) -> impl Iterator<Item = RouteId> + 'a {
        let last = self.routes.len().saturating_sub(1);
        let matching = self
            .routes
            .iter()
            .enumerate()
            .filter(move |(index, route)| *index == last || route.may_match(&request, path));
        let mut is_decided = false;
        matching
            .take_while(move |(_, route)| {
                let is_possible = !is_decided;
                is_decided |= route.matches(&request, path);
                is_possible
            })
            .map(|(index, _)| RouteId::from_index(index))
    }

    /// Returns true if path, body or fields have several readings, and these are for different origins.
    pub fn has_ambiguous_origin(&self, request: &RequestFacts<'_>) -> bool {
        let mut origins = self.routes_to_origins(request).map(|id| self[id].origin);
        let first = origins.next();
        origins.any(|origin| Some(origin) != first)
    }

    /// Iterates over the routes of all readings of path, body and fields that lead to an origin.
    pub fn routes_to_origins<'a>(&'a self, request: &RequestFacts<'a>) -> impl Iterator<Item = RouteId> + use<'a> {
        // A route without scopes is answered by the gateway.
        self.routes_of_readings(request).filter(|id| !self[*id].scopes.is_empty())
    }

    fn route_of_path(&self, request: &RequestFacts<'_>, path: &str) -> RouteId {
        let index = self.routes.iter().position(|route| route.matches(request, path));
        let route = RouteId::from_index(index.unwrap_or(self.routes.len().saturating_sub(1)));
        match request.is_ambiguous() {
            true => self.routes_of_path(*request, path).fold(route, |heaviest, other| self.heavier(heaviest, other)),
            false => route,
        }
    }

    /// Returns the route that uses more, or `one` if both use as much.
    fn heavier(&self, one: RouteId, other: RouteId) -> RouteId {
        if self[other].weight() > self[one].weight() { other } else { one }
    }
}

/// Iterates over the readings of the path of a request.
fn paths<'a>(request: &RequestFacts<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    request.other_paths.iter().map(String::as_str).chain([request.path])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{ApiKeys, ClassMatcher, ClientKind, EvidenceList, KeyCondition};
    use crate::facts::Claim;
    use crate::fixtures;
    use crate::identity::KeyOwner;
    use crate::ids::{OperatorId, OriginId};
    use crate::request_body::JsonCondition;
    use crate::route::Pattern;
    use crate::secret::Secret;
    use std::time::Duration;

    fn header(name: &'static str) -> CredentialSource {
        CredentialSource::Header(http::HeaderName::from_static(name))
    }

    fn class(key: KeySource, api_key: Option<(CredentialSource, &str)>) -> Class {
        let keys =
            api_key.map(|(source, key)| KeyCondition::Given(ApiKeys { source, values: vec![Secret::new(key.into())] }));
        Class { matcher: ClassMatcher { keys, ..ClassMatcher::default() }, key, ..fixtures::class("class") }
    }

    #[test]
    fn reads_of_robots_txt_and_of_served_documents_are_exempt() {
        for (crawl_policy, usage) in [(true, false), (false, true), (true, true), (false, false)] {
            let rules = Rules { own_documents: OwnDocuments { crawl_policy, usage }, ..fixtures::rules() };
            let exemption = |method, path| rules.read_exemption(&method, path);
            assert_eq!(exemption(Method::GET, exempt::ROBOTS_TXT_PATH), Some(Exemption::RobotsTxt));
            assert_eq!(exemption(Method::POST, exempt::ROBOTS_TXT_PATH), None);
            assert_eq!(exemption(Method::GET, "/"), None);
            let documents = [
                (exempt::CRAWL_POLICY_PATH, crawl_policy.then_some(Exemption::CrawlPolicy)),
                (exempt::USAGE_PATH, usage.then_some(Exemption::Usage)),
            ];
            for (path, served) in documents {
                assert_eq!(exemption(Method::HEAD, path), served);
                assert_eq!(exemption(Method::POST, path), None);
                assert_eq!(rules.own_document(path), served);
            }
            assert_eq!(rules.own_document("/"), None);
        }
    }

    #[test]
    fn exemption_follows_from_method_path_query_and_preflight_alone() {
        let others = ["/search".to_owned()];
        let acme = "/.well-known/acme-challenge/abc-DEF_1";
        for (method, path, other_paths, is_preflight, exemption) in [
            (Method::GET, acme, &[][..], false, Some(Exemption::AcmeChallenge)),
            (Method::HEAD, acme, &[], false, None),
            (Method::POST, acme, &[], false, None),
            (Method::GET, acme, &others, false, None),
            (Method::GET, "/.well-known/acme-challenge/a/b", &[], false, None),
            (Method::GET, "/search", &[], false, None),
            (Method::OPTIONS, "/search", &[], false, None),
            (Method::OPTIONS, "/search", &[], true, Some(Exemption::Preflight)),
            (Method::OPTIONS, "/search;a", &others, true, Some(Exemption::Preflight)),
            (Method::OPTIONS, acme, &[], true, Some(Exemption::Preflight)),
            (Method::OPTIONS, exempt::ROBOTS_TXT_PATH, &[], true, Some(Exemption::Preflight)),
            (Method::GET, exempt::ROBOTS_TXT_PATH, &[], false, Some(Exemption::RobotsTxt)),
        ] {
            let facts = RequestFacts { other_paths, method: &method, is_preflight, ..fixtures::request_facts(path) };
            assert_eq!(fixtures::rules().exemption(&facts), exemption, "{method} {path} {is_preflight}");
        }
        let with_query = RequestFacts { query: Some("q=1"), ..fixtures::request_facts(acme) };
        assert_eq!(fixtures::rules().exemption(&with_query), None);
    }

    #[test]
    fn request_has_the_classes_of_its_api_keys() {
        let (key, other) = (|| header("x-key"), || header("x-other"));
        let classes = vec![
            class(KeySource::Address, Some((key(), "sesame"))),
            class(KeySource::Address, Some((other(), "sesame"))),
            class(KeySource::Address, Some((key(), "barley"))),
            class(KeySource::Address, Some((key(), "sesame"))),
            class(KeySource::Address, None),
        ];
        let rules = Rules { classes, ..fixtures::rules() };
        let sent = |source: &CredentialSource| (*source == key()).then_some(&b"sesame"[..]);
        assert_eq!(rules.api_key_classes(sent), [ClassId(0), ClassId(3)]);
        assert_eq!(rules.api_key_classes(|_| None), []);
    }

    #[test]
    fn key_headers_are_listed_once_and_with_the_signature_if_signed() {
        let classes = vec![
            class(KeySource::Credential(header("authorization")), Some((header("x-key"), "sesame"))),
            class(KeySource::Address, Some((CredentialSource::Cookie("session".into()), "barley"))),
            class(KeySource::Credential(header("x-key")), None),
        ];
        let rules = Rules { classes, ..fixtures::rules() };
        assert_eq!(rules.key_headers(ClassId(0), false), ["x-key", "cookie", "authorization"]);
        assert_eq!(rules.key_headers(ClassId(1), false), ["x-key", "cookie"]);
        let signed = ["signature-agent", "signature-input", "signature", "x-key", "cookie"];
        assert_eq!(rules.key_headers(ClassId(2), true), signed);
    }

    #[test]
    fn key_falls_back_to_the_address() {
        let credential = KeySource::Credential(header("authorization"));
        let keys = [KeySource::Address, KeySource::Class, KeySource::Operator, credential];
        let classes = keys.map(|key| class(key, None)).to_vec();
        let rules = Rules { classes, ..fixtures::rules() };
        let address = std::net::Ipv4Addr::new(192, 0, 2, 1);
        let owners = |operator, hash| {
            [0, 1, 2, 3].map(|class| {
                let (kind, class, evidence) = (ClientKind::Human, ClassId(class), EvidenceList::default());
                let classification = Classification { kind, operator, class, evidence };
                rules.key(&classification, address.into(), |_| hash).owner()
            })
        };
        let by_address = KeyOwner::V4(address);
        assert_eq!(owners(None, None), [by_address, KeyOwner::Class, by_address, by_address]);
        let (operator, hash) = (KeyOwner::Operator(OperatorId(2)), KeyOwner::Credential(7));
        assert_eq!(owners(Some(OperatorId(2)), Some(7)), [by_address, KeyOwner::Class, operator, hash]);
    }

    #[test]
    fn client_is_suspected_from_the_threshold_on() {
        let half_life = Duration::from_secs(600);
        let detection = BotDetection { threshold: 100, half_life, max_clients: 1, honeypot: None };
        let rules = Rules { bot_detection: Some(detection), ..fixtures::rules() };
        let score = |points| BotScore { points, ..BotScore::default() };
        assert_eq!([99, 100, 101].map(|points| rules.is_suspected(&score(points))), [false, true, true]);
        assert!(!fixtures::rules().is_suspected(&score(u16::MAX)), "bot detection is disabled");
    }

    #[test]
    fn first_matching_route_applies_else_the_last() {
        let route = |path| Route { path: Pattern::parse(path).expect("valid pattern"), ..fixtures::route(&[]) };
        let rules = Rules { routes: ["/a", "/*", "/c/*"].map(route).to_vec(), ..fixtures::rules() };
        for (path, expected) in [("/a", 0), ("/b", 1), ("/c/d", 2), ("/d/e", 2)] {
            assert_eq!(rules.route(&fixtures::request_facts(path)), RouteId(expected), "{path}");
        }
        let quotas = ["first", "second"].map(|name| fixtures::quota(name, 1)).to_vec();
        let rules = Rules { quotas, ..fixtures::rules() };
        let ids = ["first", "second", "third"].map(|name| rules.quota_id(name));
        assert_eq!(ids, [Some(QuotaId(0)), Some(QuotaId(1)), None]);
    }

    #[test]
    fn readings_with_costs_in_different_quotas_are_ambiguous() {
        let route =
            |path, costs: &[_]| Route { path: Pattern::parse(path).expect("valid pattern"), ..fixtures::route(costs) };
        let routes = vec![
            route("/scarce/**", &[(0, 4)]),
            route("/cheap", &[(1, 5)]),
            route("/both", &[(0, 4), (1, 9)]),
            route("/more/**", &[(0, 5)]),
            route("/**", &[]),
        ];
        let rules = Rules { routes, ..fixtures::rules() };
        let is_ambiguous = |readings: &[&str]| {
            let [path, others @ ..] = readings else { return false };
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            rules.has_ambiguous_costs(&RequestFacts { other_paths: &others, ..fixtures::request_facts(path) })
        };
        assert!(is_ambiguous(&["/scarce/..;/cheap", "/cheap"]) && is_ambiguous(&["/cheap", "/scarce/a"]));
        assert!(is_ambiguous(&["/free", "/cheap", "/scarce/a"]));
        for readings in
            [&["/cheap"][..], &["/cheap", "/free"], &["/both", "/cheap", "/scarce/a"], &["/more/a", "/scarce/a"]]
        {
            assert!(!is_ambiguous(readings), "{readings:?}");
        }
    }

    /// Rules with a free tool, an expensive one, others, and pages.
    fn tools() -> Rules {
        let condition =
            |path: &str, value: &str| JsonCondition::new(path.into(), vec![value.parse().expect("a pattern")]);
        let route = |path, json: Vec<JsonCondition>, cost: &[_]| Route {
            path: Pattern::parse(path).expect("valid pattern"),
            json,
            ..fixtures::route(cost)
        };
        let routes = vec![
            route("/mcp", vec![condition("method", "ping")], &[]),
            route("/mcp", vec![condition("method", "tools/call"), condition("params.name", "search")], &[(0, 5)]),
            route("/mcp", vec![], &[(0, 1)]),
            route("/mcp", vec![condition("method", "never")], &[(0, 99)]),
            route("/other", vec![condition("method", "tools/call")], &[(1, 2)]),
            route("/other", vec![], &[(0, 1)]),
            route("/**", vec![], &[]),
        ];
        Rules { routes, ..fixtures::rules() }
    }

    fn met(texts: &[&str]) -> JsonMatch {
        JsonMatch::from_words(texts.iter().copied())
    }

    #[test]
    fn route_of_a_body_is_the_first_whose_conditions_it_meets() {
        let rules = tools();
        let route =
            |path, json: &JsonMatch| rules.route(&RequestFacts { json: Some(json), ..fixtures::request_facts(path) }).0;
        for (json, expected) in [
            (met(&[]), 2),
            (met(&["method=ping"]), 0),
            (met(&["method=tools/call"]), 2),
            (met(&["params.name=search"]), 2),
            (met(&["params.name=search", "method=tools/call"]), 1),
            (met(&["method=never"]), 2),
        ] {
            assert_eq!((route("/mcp", &json), route("/page", &json)), (expected, 6), "{json:?}");
        }
        assert_eq!(rules.route(&fixtures::request_facts("/mcp")), RouteId(2), "without a body");
    }

    #[test]
    fn unreadable_body_is_on_the_route_that_uses_most() {
        let rules = tools();
        let with = |path| RequestFacts { json: Some(&JsonMatch::Unreadable), ..fixtures::request_facts(path) };
        assert_eq!([rules.route(&with("/mcp")), rules.route(&with("/page"))], [RouteId(1), RouteId(6)]);
        let possible: Vec<u32> = rules.possible_routes(&with("/mcp")).map(|id| id.0).collect();
        assert_eq!(possible, [0, 1, 2], "those behind the first without a condition are unreachable");
        assert!(!rules.has_ambiguous_costs(&with("/mcp")) && rules.has_ambiguous_costs(&with("/other")));
        assert!(rules.depends_on_body(&with("/mcp")) && !rules.depends_on_body(&with("/page")));
        let others = ["/page".to_owned()];
        let request = RequestFacts { other_paths: &others, ..with("/mcp") };
        assert_eq!(rules.route(&request), RouteId(1));
        let request = RequestFacts { other_paths: &others, json: None, ..request };
        assert!(rules.depends_on_body(&request));
    }

    proptest::proptest! {
        /// An unreadable body is never on a route that uses less than that of any body.
        #[test]
        fn no_body_is_cheaper_by_being_unreadable(bits in 0u8..16, path in proptest::sample::select(vec!["/mcp", "/other", "/x"])) {
            let rules = tools();
            let all = ["method=ping", "method=tools/call", "params.name=search", "method=never"];
            let some: Vec<&str> = (0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| all[bit]).collect();
            let weight = |json: &JsonMatch| {
                rules[rules.route(&RequestFacts { json: Some(json), ..fixtures::request_facts(path) })].weight()
            };
            proptest::prop_assert!(weight(&JsonMatch::Unreadable) >= weight(&met(&some)));
        }
    }

    /// Returns the condition that the header field `name` has a value.
    fn field(name: &'static str, value: &str) -> FieldCondition {
        FieldCondition::new(header(name), vec![value.parse().expect("a pattern")])
    }

    /// Rules with routes for the versions of an API: one that costs more, one that is free, and the others.
    fn versions() -> Rules {
        let route = |path, fields: Vec<FieldCondition>, cost: &[_]| Route {
            path: Pattern::parse(path).expect("valid pattern"),
            fields,
            scopes: [ScopeId(0)].into_iter().collect(),
            ..fixtures::route(cost)
        };
        let routes = vec![
            route("/api/**", vec![field("x-version", "2")], &[(0, 5)]),
            route("/api/**", vec![field("x-version", "3"), field("x-beta", "1")], &[]),
            route("/api/**", vec![], &[(0, 1)]),
            route("/split", vec![field("x-version", "2")], &[(1, 1)]),
            route("/**", vec![], &[(0, 2)]),
        ];
        let route_fields = vec![field("x-version", "2"), field("x-version", "3"), field("x-beta", "1")];
        Rules { routes, route_fields, ..fixtures::rules() }
    }

    fn field_match(rules: &Rules, fields: &[(&str, &str)]) -> FieldMatch {
        let pairs = || fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        rules.field_match(pairs).expect("rules with conditions")
    }

    #[test]
    fn route_of_fields_is_the_first_whose_conditions_they_meet() {
        let rules = versions();
        for (fields, expected, vary) in [
            (&[][..], 2, &["x-version", "x-beta"][..]),
            (&[("x-version", "2")], 0, &["x-version"]),
            (&[("X-Version", "2"), ("x-beta", "1")], 0, &["x-version"]),
            (&[("x-version", "3")], 2, &["x-version", "x-beta"]),
            (&[("x-version", "3"), ("x-beta", "1")], 1, &["x-version", "x-beta"]),
            // The most expensive one that it may be.
            (&[("x-version", "3"), ("x-version", "2")], 0, &["x-version", "x-beta"]),
            (&[("x_version", "2")], 0, &["x-version", "x-beta"]),
            (&[("x_version", "3"), ("x-beta", "1")], 2, &["x-version", "x-beta"]),
            (&[("x-version", "1"), ("x-version", "4")], 2, &["x-version", "x-beta"]),
        ] {
            let matched = field_match(&rules, fields);
            let request = RequestFacts { fields: Some(&matched), ..fixtures::request_facts("/api/a") };
            assert_eq!(
                (rules.route(&request), &*rules.selecting_headers(&request)),
                (RouteId(expected), vary),
                "{fields:?}"
            );
            let page = RequestFacts { path: "/page", ..request };
            assert_eq!((rules.route(&page), rules.selecting_headers(&page).len()), (RouteId(4), 0), "{fields:?}");
        }
        assert_eq!(rules.route(&fixtures::request_facts("/api/a")), RouteId(2), "without fields");
    }

    #[test]
    fn fields_with_several_readings_have_one_charge_and_one_origin() {
        let mut rules = versions();
        let is_ambiguous = |rules: &Rules, path, fields: &[(&str, &str)]| {
            let matched = field_match(rules, fields);
            let request = RequestFacts { fields: Some(&matched), ..fixtures::request_facts(path) };
            (rules.has_ambiguous_costs(&request), rules.has_ambiguous_origin(&request))
        };
        let repeated = [("x-version", "2"), ("x-version", "1")];
        assert_eq!(is_ambiguous(&rules, "/split", &repeated), (true, false));
        assert_eq!(is_ambiguous(&rules, "/split", &repeated[..1]), (false, false));
        assert_eq!(is_ambiguous(&rules, "/api/a", &repeated), (false, false));
        assert_eq!(is_ambiguous(&rules, "/page", &repeated), (false, false));
        rules.routes[0].origin = OriginId(1);
        assert_eq!(is_ambiguous(&rules, "/api/a", &repeated), (false, true));
        assert_eq!(is_ambiguous(&rules, "/api/a", &repeated[1..]), (false, false));
    }

    proptest::proptest! {
        /// A request whose fields origins read differently is charged for each reading: as it would be with one line of each name.
        #[test]
        fn no_field_is_cheaper_by_being_written_differently(
            fields in proptest::collection::vec(
                (proptest::sample::select(vec!["x-version", "x_version", "x-beta", "X.Beta"]), "[123]"), 0..5
            ),
            path in proptest::sample::select(vec!["/api/a", "/split", "/x"]),
        ) {
            let rules = versions();
            let weight = |fields: &[(&str, &str)]| {
                let matched = field_match(&rules, fields);
                rules[rules.route(&RequestFacts { fields: Some(&matched), ..fixtures::request_facts(path) })].weight()
            };
            let sent: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let charged = weight(&sent);
            // Each reading has one of the values of each name.
            let values = |name: &'static str| {
                let is_same = move |sent: &&(&str, &str)| eq_as_cgi(sent.0.as_bytes(), name.as_bytes());
                sent.iter().filter(is_same).map(move |(_, value)| (name, *value)).collect::<Vec<_>>()
            };
            for version in values("x-version") {
                proptest::prop_assert!(charged >= values("x-beta").iter().map(|beta| weight(&[version, *beta])).max().unwrap_or_default());
                let is_only = values("x-beta").is_empty();
                proptest::prop_assert!(!is_only || charged >= weight(&[version]));
            }
        }
    }

    #[test]
    fn readings_of_different_origins_are_ambiguous() {
        let route = |path, origin, scopes: &[u16]| Route {
            path: Pattern::parse(path).expect("valid pattern"),
            origin: OriginId(origin),
            scopes: scopes.iter().copied().map(ScopeId).collect(),
            ..fixtures::route(&[])
        };
        let routes =
            vec![route("/v1/**", 1, &[0]), route("/moved", 0, &[]), route("/v2/**", 1, &[0]), route("/**", 0, &[0])];
        let rules = Rules { routes, ..fixtures::rules() };
        let is_ambiguous = |path, others: &[&str]| {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            rules.has_ambiguous_origin(&RequestFacts { other_paths: &others, ..fixtures::request_facts(path) })
        };
        assert!(is_ambiguous("/v1/..;/a", &["/a"]) && is_ambiguous("/x/..;/v1/a", &["/a/b", "/v1/a"]));
        assert!(!is_ambiguous("/v1/a", &[]) && !is_ambiguous("/v1/a", &["/v2/b"]) && !is_ambiguous("/a", &["/b"]));
        assert!(!is_ambiguous("/v1/a", &["/moved"]), "the gateway redirects it");
    }

    #[test]
    fn unreadable_body_that_is_for_different_origins_is_ambiguous() {
        let mut rules = tools();
        for route in &mut rules.routes {
            route.scopes = [ScopeId(0)].into_iter().collect();
        }
        let unreadable = |rules: &Rules, path| {
            let request = RequestFacts { json: Some(&JsonMatch::Unreadable), ..fixtures::request_facts(path) };
            rules.has_ambiguous_origin(&request)
        };
        assert!(!unreadable(&rules, "/mcp") && !unreadable(&rules, "/page"));
        rules.routes[1].origin = OriginId(1);
        assert!(unreadable(&rules, "/mcp") && !unreadable(&rules, "/other") && !unreadable(&rules, "/page"));
        for body in [met(&[]), met(&["method=tools/call", "params.name=search"])] {
            let request = RequestFacts { json: Some(&body), ..fixtures::request_facts("/mcp") };
            assert!(!rules.has_ambiguous_origin(&request), "{body:?}");
        }
        rules.routes[3].origin = OriginId(1);
        rules.routes[1].origin = OriginId(0);
        assert!(!unreadable(&rules, "/mcp"), "the route with another origin is unreachable");
    }

    #[test]
    fn classes_are_tried_in_order() {
        let of_kind = |kind| {
            let matcher = ClassMatcher { kinds: vec![kind], ..ClassMatcher::default() };
            Class { matcher, ..fixtures::class("class") }
        };
        let classes = vec![of_kind(ClientKind::VerifiedBot), of_kind(ClientKind::Human), fixtures::class("rest")];
        let rules = Rules { classes, ..fixtures::rules() };
        let client = fixtures::client_facts(Claim::Browser);
        let classification = rules.classify(&Facts { request: fixtures::request_facts("/"), client: &client });
        assert_eq!((classification.kind, classification.class), (ClientKind::Human, ClassId(1)));
    }
}
