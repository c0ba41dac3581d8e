//! Rules and facts for tests, to be changed where they matter: `Quota { window, ..fixtures::quota("api", 10) }`.

use super::address_lists::ListSet;
use super::class::{Class, ClassMatcher};
use super::cost::Cost;
use super::exempt::OwnDocuments;
use super::facts::{Claim, ClientFacts, Proof, RequestFacts, Signature};
use super::identity::{KeySource, ProxyTrust};
use super::ids::{OriginId, QuotaId};
use super::network_origin::NetworkOrigin;
use super::pacing::{Pacing, PacingMode, PacingRole};
use super::path::PathPolicy;
use super::quota::{ClassTiers, Quota};
use super::route::{Pattern, Route};
use super::rules::Rules;
use super::session::Session;
use super::tier::{Share, Tier, TierSet};
use super::units::Units;
use super::window::Window;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Returns rules without classes, quotas, routes and scopes.
pub fn rules() -> Rules {
    Rules {
        trust: ProxyTrust::default(),
        api_keys: Default::default(),
        customer: None,
        bot_detection: None,
        address_list_names: Vec::new(),
        user_agent_rules: Default::default(),
        classes: Vec::new(),
        quotas: Vec::new(),
        routes: Vec::new(),
        route_fields: Vec::new(),
        scopes: Vec::new(),
        own_documents: OwnDocuments::NONE,
        cache: None,
        compression: None,
        path_policy: PathPolicy::Strict,
    }
}

/// Returns a GET request for `path` without a user agent.
pub fn request_facts(path: &str) -> RequestFacts<'_> {
    RequestFacts {
        method: &http::Method::GET,
        host: "example.com",
        path,
        other_paths: &[],
        query: None,
        user_agent: b"",
        is_preflight: false,
        json: None,
        fields: None,
    }
}

/// Returns a client that makes `claim` and proves nothing.
pub fn client_facts(claim: Claim) -> ClientFacts {
    ClientFacts {
        address: Ipv4Addr::LOCALHOST.into(),
        address_lists: ListSet::default(),
        claim,
        proof: Proof::Unknown,
        signature: Signature::Absent,
        purpose: None,
        api_key: None,
        api_key_classes: Vec::new(),
        certificate_classes: Vec::new(),
        field_classes: Vec::new(),
        session: Session::None,
        network_origin: NetworkOrigin::default(),
        bot_score: None,
    }
}

/// Returns an enforced class for all clients, without a bucket.
pub fn class(name: &str) -> Class {
    Class {
        name: name.into(),
        matcher: ClassMatcher::default(),
        blocked: false,
        refuse_with: http::StatusCode::TOO_MANY_REQUESTS,
        bucket: None,
        key: KeySource::Address,
        enforce: true,
        priority: 0,
        guard: None,
        has_client_limits: true,
    }
}

/// Returns an enforced quota of `limit` units per day, without tiers.
pub fn quota(name: &str, limit: u64) -> Quota {
    let window = Window::Fixed { length: Duration::from_secs(86_400) };
    Quota { free_when_cached: true, ..Quota::new(name, Units::from_whole(limit), window) }
}

/// Returns enforced tiers from their thresholds, in units, and shed shares, in percent.
pub fn class_tiers(limit: Units, tiers: &[(u64, u32)]) -> ClassTiers {
    let tier = |&(above, percent)| Tier {
        threshold: Units::from_whole(above),
        shed_share: Share::from_millionths(percent * 10_000),
    };
    ClassTiers { tiers: TierSet::new(tiers.iter().map(tier).collect(), limit), enforce: true }
}

/// Returns enforced pacing with a constant forecast and these roles, by class.
pub fn pacing(roles: &[PacingRole]) -> Pacing {
    Pacing {
        forecast: PacingMode::Even,
        burst_share: Share::from_millionths(20_000),
        roles: roles.to_vec(),
        priorities: vec![0; roles.len()],
        enforce: true,
    }
}

/// Returns a route for all paths, with its cost in units by index of the quota.
pub fn route(costs: &[(u16, u64)]) -> Route {
    Route {
        name: "/**".into(),
        path: Pattern::parse("/**").expect("a valid pattern"),
        hosts: Vec::new(),
        methods: Vec::new(),
        query: Vec::new(),
        json: Vec::new(),
        fields: Vec::new(),
        costs: costs.iter().map(|&(quota, cost)| (QuotaId(quota), Cost::Fixed(Units::from_whole(cost)))).collect(),
        requested_costs: Vec::new(),
        scopes: Vec::new(),
        origin: OriginId(0),
        is_latency_sampled: true,
        streams_body: false,
        cache: None,
        is_compressed: true,
    }
}
