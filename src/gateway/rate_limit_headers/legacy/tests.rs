use super::*;
use crate::engine::{BucketUsage, QuotaUsage};
use crate::policy::bucket::Bucket;
use crate::policy::class::{Class, ClassMatcher};
use crate::policy::identity::KeySource;
use crate::policy::quota::Quota;
use crate::policy::window::Window;
use crate::policy::{ClassId, QuotaId, Reason, Refusal, Units};

const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn the_policy_with_fewest_requests_left_is_told_of() {
    let cases = [
        // tokens, units, cost of one request, what is told
        (Some(4), None, "bucket 60 4 +60"),
        (None, Some((9, 1)), "api 1000 9 +600"),
        (Some(4), Some((9, 1)), "bucket 60 4 +60"),
        (Some(10), Some((9, 1)), "api 1000 9 +600"),
        // Nine units are four requests of two units each, and a bit.
        (Some(5), Some((9, 2)), "api 1000 9 +600"),
        // As many left: what takes longer to come back binds more.
        (Some(9), Some((9, 1)), "api 1000 9 +600"),
        (Some(0), Some((0, 1)), "api 1000 0 +600"),
        // The next token, not all of them.
        (Some(0), Some((9, 1)), "bucket 60 0 +10"),
        (None, None, "nothing"),
    ];
    for (tokens, units, expected) in cases {
        assert_eq!(told(tokens, units, None), expected, "{tokens:?} {units:?}");
    }
}

#[test]
fn who_is_refused_has_nothing_left_until_it_may_come_back() {
    let cases = [
        (Reason::Bucket, Some(0), Some((9, 1)), 0, 10, "bucket 60 0 +10"),
        // The bucket said no, but when it has filled there is still nothing to be had.
        (Reason::Bucket, Some(0), Some((0, 1)), 0, 10, "api 1000 0 +600"),
        (Reason::Quota, Some(5), Some((0, 1)), 1, 600, "api 1000 0 +600"),
        // Shed while there is something left for others: for as long as the refusal says.
        (Reason::Tier, Some(5), Some((400, 1)), 1, 120, "api 1000 0 +120"),
        (Reason::Blocked, Some(5), Some((400, 1)), 0, 3600, "bucket 60 0 +3600"),
        (Reason::Blocked, None, Some((400, 1)), 0, 3600, "api 1000 0 +3600"),
    ];
    for (reason, tokens, units, quotas, wait, expected) in cases {
        let refusal = Refusal { reason, quotas, wait: Duration::from_secs(wait) };
        assert_eq!(told(tokens, units, Some(&refusal)), expected, "{reason:?}");
    }
}

#[test]
fn each_family_says_it_in_its_own_words() {
    let cases: [(&[LegacyFamily], &str); 4] = [
        (
            &[LegacyFamily::Atlassian],
            "x-ratelimit-limit: 60, x-ratelimit-remaining: 4, x-ratelimit-interval-seconds: 10, \
             x-ratelimit-fillrate: 10, retry-after: 0",
        ),
        (
            &[LegacyFamily::Github],
            "x-ratelimit-limit: 60, x-ratelimit-remaining: 4, x-ratelimit-used: 56, x-ratelimit-reset: 1800014460, \
             x-ratelimit-resource: bucket",
        ),
        (&[LegacyFamily::Draft03], "ratelimit-limit: 60, ratelimit-remaining: 4, ratelimit-reset: 60"),
        (&[], ""),
    ];
    for (families, expected) in cases {
        let fields = written(families, Some(4), None, None, StatusCode::OK);
        let lines: Vec<String> = fields.iter().map(line).collect();
        assert_eq!(lines.join(", "), expected, "{families:?}");
    }
}

#[test]
fn atlassians_retry_after_gives_way_to_whoever_asks_for_patience() {
    let retry_after = |tokens, status| {
        let fields = written(&[LegacyFamily::Atlassian], Some(tokens), None, None, status);
        fields.get(Name::RetryAfter).map(|seconds| String::from_utf8_lossy(seconds).into_owned())
    };
    assert_eq!(retry_after(4, StatusCode::OK).as_deref(), Some("0"));
    assert_eq!(retry_after(0, StatusCode::OK).as_deref(), Some("10"), "admitted, and it was the last token");
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        assert_eq!(retry_after(4, status), None, "{status}");
    }
}

/// Name, limit, what is left, and when it comes back.
fn told(tokens: Option<u32>, units: Option<(u64, u64)>, refusal: Option<&Refusal>) -> String {
    let fields = written(&[LegacyFamily::Github], tokens, units, refusal, StatusCode::OK);
    let text = |name| fields.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    let Some(name) = text(Name::XRateLimitResource) else { return "nothing".into() };
    let number = |name| text(name).and_then(|text| text.parse::<u64>().ok()).expect("a number");
    let reset = number(Name::XRateLimitReset) - NOON.seconds();
    format!("{name} {} {} +{reset}", number(Name::XRateLimitLimit), number(Name::XRateLimitRemaining))
}

/// A bucket of sixty that fills by ten every ten seconds, with `tokens` in it, and a quota of a thousand an hour that
/// ends in ten minutes, with `units` left of it for requests of some cost.
fn written(
    families: &[LegacyFamily],
    tokens: Option<u32>,
    units: Option<(u64, u64)>,
    refusal: Option<&Refusal>,
    status: StatusCode,
) -> Fields {
    let bucket =
        Bucket { capacity: 60, fill: 10, interval: Duration::from_secs(10), smooth: false, costed_only: false };
    let rules = Rules {
        trust: Default::default(),
        behaviour: None,
        lists: Vec::new(),
        serves_crawl_policy: false,
        user_agent_rules: Vec::new(),
        classes: vec![Class {
            name: "bucket".into(),
            when: ClassMatcher::default(),
            blocked: false,
            bucket: tokens.map(|_| bucket),
            key: KeySource::Address,
            enforce: true,
            priority: 0,
            guard: None,
        }],
        quotas: vec![Quota {
            name: "api".into(),
            limit: Units::from_whole(1000),
            window: Window::Fixed { length: HOUR },
            enforce: true,
            cost_header: None,
            free_when_cached: true,
            sync_from: None,
            pacing: None,
            class_tiers: Vec::new(),
        }],
        routes: Vec::new(),
        scopes: Vec::new(),
    };
    let standings: Vec<QuotaUsage> = units
        .into_iter()
        .map(|(left, cost)| QuotaUsage {
            quota: QuotaId(0),
            cost: Units::from_whole(cost),
            used: Units::from_whole(1000 - left),
            remaining: Units::from_whole(left),
            tier: 0,
            guard_admitted: false,
            resets_at: NOON + Duration::from_secs(600),
            window: 0,
            sequence: 1,
        })
        .collect();
    let bucket = tokens.map(|remaining| BucketUsage {
        remaining,
        next_after: Duration::from_secs(10),
        full_after: Duration::from_secs(60),
        sequence: 0,
    });
    let told = RateLimitSnapshot { class: ClassId(0), route: 0, standings: &standings, bucket, refusal };
    let mut fields = Fields::new();
    write(families, &rules, told, NOON, status, &mut fields);
    fields
}

fn line(field: crate::http1::Field<'_>) -> String {
    format!("{}: {}", String::from_utf8_lossy(field.text), String::from_utf8_lossy(field.value))
}
