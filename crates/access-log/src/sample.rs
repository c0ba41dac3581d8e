//! Sample record of a finished request for tests and benchmarks.

use super::record::{
    NameResolver, QuotaCharge, Record, RecordedClient, RecordedDecision, RecordedOutcome, RecordedRequest,
    RecordedResponse, RecordedUnits, UpstreamCall,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::class::Evidence;
use tidegate_policy::identity::ProxyTrust;
use tidegate_policy::{BotId, ClassId, ClientKind, ListId, OperatorId, RouteId, ScopeId, Timestamp, Units};

/// Returns a record of a human's request for an item that the origin served.
pub fn sample_record() -> Record<'static> {
    let client = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));
    Record {
        admitted_at: Timestamp(1_795_252_443_123_456_789),
        settled_at: Timestamp(1_795_252_443_165_356_789),
        id: 0x00c0_ffee,
        client: RecordedClient {
            address: client,
            key: ProxyTrust::default().key(client),
            headers_seen: HeadersSeen::INSPECTED
                .with(HeadersSeen::TLS, true)
                .with(HeadersSeen::ACCEPT, true)
                .with(HeadersSeen::LANGUAGE, true)
                .with(HeadersSeen::FETCH, true),
            kind: ClientKind::Human,
            class: ClassId(1),
            class_name: "person",
            operator: None,
            evidence: &[Some(Evidence::UserAgentNoMatch), None],
            more: None,
            signed: false,
            bot_score: None,
        },
        request: RecordedRequest {
            method: &http::Method::GET,
            host: b"example.com",
            path: "/item/42",
            query: Some("ref=home&page=2"),
            version: http::Version::HTTP_11,
            user_agent:
                b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
            referer: Some(b"https://example.com/"),
            fill: None,
            json: None,
            fields: None,
        },
        decision: RecordedDecision {
            route: RouteId(1),
            route_name: "/item/*",
            origin: None,
            bucket_sequence: None,
            outcome: RecordedOutcome::Admitted { shadow_reason: None },
            switch: None,
            retry_after_s: None,
            tier: None,
            scope: None,
            guard_admitted: false,
            scope_wait: Duration::ZERO,
        },
        units: RecordedUnits { charges: &CHARGES, unexpected_costs: &[], learned_charges: Units::ZERO, saved: &[] },
        response: RecordedResponse {
            status: 200,
            bytes: 5120,
            cut: None,
            cache: None,
            origin: Some(UpstreamCall { scopes: &[], status: Some(200), duration: Duration::from_micros(41_200) }),
            total: Duration::from_micros(41_900),
        },
        names: &TestNames(0),
    }
}

/// Returns the sample record after `change`.
pub fn sample_with<'a>(change: impl FnOnce(&mut Record<'a>)) -> Record<'a> {
    let mut record = sample_record();
    change(&mut record);
    record
}

const CHARGES: [QuotaCharge<'static>; 1] = [QuotaCharge {
    quota_name: "places_api",
    cost: Units::from_whole(1),
    charged: Units::ZERO,
    used: Units::from_milli(6_012_250),
    sequence: 6_044,
    settle_sequence: 6_051,
    retry_sequence: None,
}];

/// Resolver for tests: returns fixed names. The number identifies the config.
pub struct TestNames(pub u64);

impl NameResolver for TestNames {
    fn config_number(&self) -> u64 {
        self.0
    }
    fn bot(&self, _bot: BotId) -> &str {
        "bot"
    }
    fn operator(&self, _operator: OperatorId) -> &str {
        "googlebot"
    }
    fn user_agent_rule(&self, index: u16) -> &str {
        ["rule", "other rule"][usize::from(index) % 2]
    }
    fn key_headers(&self, _class: ClassId, _signed: bool) -> Vec<&str> {
        Vec::new()
    }
    fn list(&self, _list: ListId) -> &str {
        "hosting"
    }
    fn scope(&self, _scope: ScopeId) -> &str {
        "search_backend"
    }
}
