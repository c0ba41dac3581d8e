use super::*;
use std::collections::HashMap;
use std::time::Duration;
use tidegate_engine::{BucketUsage, QuotaUsage};
use tidegate_policy::budget::{Budget, BudgetKey};
use tidegate_policy::identity::KeySource;
use tidegate_policy::quota::Quota;
use tidegate_policy::window::Window;
use tidegate_policy::{ClassId, QuotaId, Refusal, RefusedQuotas, RouteId, Units, fixtures};

const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);

/// Usage of 600 of 1,000 units, ten minutes before the end of the window.
fn usage(quota: u16, client_remaining: Option<u64>) -> QuotaUsage {
    QuotaUsage {
        client_remaining: client_remaining.map(Units::from_whole),
        quota: QuotaId(quota),
        cost: Units::from_whole(1),
        used: Units::from_whole(600),
        limit: Units::from_whole(1000),
        remaining: Units::from_whole(400),
        tier: 0,
        guard_admitted: false,
        resets_at: NOON + Duration::from_secs(600),
        client_resets_at: NOON + Duration::from_secs(600),
        window: 0,
        sequence: 1,
    }
}

/// Returns the rate-limit fields of a response: `RateLimit-Policy`, `RateLimit-Partition` and `RateLimit`. The client has a
/// bucket, a quota, and a share of it.
fn fields(draft: RateLimitDraft, key: KeySource, status: u16, refusal: Option<&Refusal>) -> [String; 3] {
    let bucket =
        Bucket { capacity: 60, fill: 10, interval: Duration::from_secs(10), smooth: false, costed_only: false };
    let window = Window::Fixed { length: Duration::from_secs(3600) };
    let quota = Quota { window, client_limit: Some(Units::from_whole(50)), ..fixtures::quota("api", 1000) };
    let rules = Rules {
        classes: vec![Class { bucket: Some(bucket), key, ..fixtures::class("app") }],
        quotas: vec![quota],
        routes: vec![fixtures::route(&[(0, 1)])],
        ..fixtures::rules()
    };
    let usages = [usage(0, Some(7))];
    let bucket = Some(BucketUsage {
        remaining: 4,
        next_token_after: Duration::from_secs(10),
        full_after: Duration::from_secs(60),
        sequence: 0,
    });
    let snapshot = RateLimitSnapshot { class: ClassId(0), route: RouteId(0), usages: &usages, bucket, refusal };
    let origin = ["ratelimit", "ratelimit-policy", "ratelimit-partition"].map(|name| (name, "\"origin\";r=1"));
    let mut fields: Fields = origin.into_iter().collect();
    let headers = Headers { ratelimit: draft, ..Headers::default() };
    let status = StatusCode::from_u16(status).expect("valid status");
    RateLimitHeaders::new(&headers, &rules).write(&rules, snapshot, NOON, status, &mut fields);
    [Name::RateLimitPolicy, Name::RateLimitPartition, Name::RateLimit].map(|name| {
        let values: Vec<_> = fields.all(name).map(String::from_utf8_lossy).collect();
        values.join(" + ")
    })
}

const POLICY: &str = r#""app";q=60;w=60, "api";q=1000;w=3600, "api/client";q=50;w=3600"#;
const OF_ORIGIN: &str = r#""origin";r=1"#;

#[test]
fn each_draft_has_its_own_parameters() {
    let of = |draft| fields(draft, KeySource::Address, 200, None);
    let [policy, partition, limits] = of(RateLimitDraft::Draft11);
    assert_eq!(policy, POLICY);
    assert_eq!(partition, OF_ORIGIN, "unknown to the draft");
    assert_eq!(limits, r#""app";r=4;t=60, "api";r=400;t=600, "api/client";r=7;t=600"#);
    let [policy, partition, limits] = of(RateLimitDraft::Draft12);
    assert_eq!(policy, POLICY);
    assert_eq!(partition, r#""app";client_id, "api/client";client_id"#);
    assert_eq!(limits, r#""app";a=4;w=60, "api";a=400;w=600, "api/client";a=7;w=600"#);
    assert_eq!(of(RateLimitDraft::Off), [OF_ORIGIN; 3]);
}

#[test]
fn clients_that_share_a_policy_are_no_partitions_of_it() {
    for (key, expected) in [
        (KeySource::Operator, r#""app";client_id, "api/client";client_id"#),
        // That of the origin would describe other policies.
        (KeySource::Class, ""),
    ] {
        assert_eq!(fields(RateLimitDraft::Draft12, key, 200, None)[1], expected);
    }
}

#[test]
fn redirect_has_no_limit_that_could_stop_a_client() {
    for status in [301, 302, 307, 308] {
        assert_eq!(fields(RateLimitDraft::Draft12, KeySource::Address, status, None)[2], "", "{status}");
    }
    for status in [200, 304, 404, 500] {
        assert_ne!(fields(RateLimitDraft::Draft12, KeySource::Address, status, None)[2], "", "{status}");
    }
    assert_ne!(fields(RateLimitDraft::Draft11, KeySource::Address, 301, None)[2], "");
}

#[test]
fn refused_client_has_nothing_available_until_it_may_return() {
    let quotas = RefusedQuotas::from_indexes([0]);
    let refusal = Refusal { reason: Reason::Tier, quotas, wait: Duration::from_secs(120) };
    let [_, _, limits] = fields(RateLimitDraft::Draft12, KeySource::Address, 429, Some(&refusal));
    assert_eq!(limits, r#""app";a=4;w=60, "api";a=0;w=120, "api/client";a=7;w=600"#);
}

#[test]
fn clients_with_budgets_see_nothing_of_what_remains_for_all() {
    let budget = |per| Budget {
        per,
        class_limits: HashMap::new(),
        key_limits: HashMap::new(),
        class_keys: Vec::new(),
        max_keys: 10,
        has_metrics_by_key: false,
    };
    let window = Window::Fixed { length: Duration::from_secs(3600) };
    for (per, enforce, policy, limits) in [
        (
            BudgetKey::Customer,
            true,
            r#""all/client";q=50;w=3600, "own";q=1000;w=3600"#,
            r#""all/client";r=7;t=600, "own";r=400;t=600"#,
        ),
        (
            BudgetKey::Class,
            true,
            r#""all";q=1000;w=3600, "all/client";q=50;w=3600, "own";q=1000;w=3600"#,
            r#""all";r=400;t=600, "all/client";r=7;t=600, "own";r=400;t=600"#,
        ),
        (
            BudgetKey::Customer,
            false,
            r#""all";q=1000;w=3600, "all/client";q=50;w=3600"#,
            r#""all";r=400;t=600, "all/client";r=7;t=600"#,
        ),
    ] {
        let all =
            Quota { window: window.clone(), client_limit: Some(Units::from_whole(50)), ..fixtures::quota("all", 1000) };
        let own = Quota { window: window.clone(), enforce, budget: Some(budget(per)), ..fixtures::quota("own", 1000) };
        let rules = Rules {
            classes: vec![fixtures::class("app")],
            quotas: vec![all, own],
            routes: vec![fixtures::route(&[(0, 1), (1, 1)])],
            ..fixtures::rules()
        };
        let usages = [usage(0, Some(7)), usage(1, None)];
        let snapshot =
            RateLimitSnapshot { class: ClassId(0), route: RouteId(0), usages: &usages, bucket: None, refusal: None };
        let headers = Headers { legacy: vec![LegacyFamily::Github], ..Headers::default() };
        let mut fields = Fields::default();
        RateLimitHeaders::new(&headers, &rules).write(&rules, snapshot, NOON, StatusCode::OK, &mut fields);
        let text = |name| fields.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(text(Name::RateLimitPolicy).as_deref(), Some(policy), "{per:?} {enforce}");
        assert_eq!(text(Name::RateLimit).as_deref(), Some(limits), "{per:?} {enforce}");
        let is_own = per == BudgetKey::Customer && enforce;
        assert_eq!(text(Name::XRateLimitResource).as_deref() == Some("own"), is_own, "{per:?} {enforce}");
        // Refused by the first quota: the older fields have nothing true to say of the second one.
        let quotas = RefusedQuotas::from_indexes([0]);
        let refusal = Refusal { reason: Reason::Quota, quotas, wait: Duration::from_secs(120) };
        let snapshot = RateLimitSnapshot { refusal: Some(&refusal), ..snapshot };
        let mut fields = Fields::default();
        let headers = RateLimitHeaders::new(&headers, &rules);
        headers.write(&rules, snapshot, NOON, StatusCode::TOO_MANY_REQUESTS, &mut fields);
        assert_eq!(fields.contains(Name::XRateLimitUsed), !is_own, "{per:?} {enforce}");
    }
}
