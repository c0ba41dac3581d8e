use super::*;
use tidegate_engine::{BucketUsage, QuotaUsage};
use tidegate_policy::bucket::Bucket;
use tidegate_policy::class::Class;
use tidegate_policy::fixtures;
use tidegate_policy::quota::Quota;
use tidegate_policy::window::Window;
use tidegate_policy::{ClassId, QuotaId, Reason, Refusal, RefusedQuotas, RouteId, Units};

const NOON: Timestamp = Timestamp::from_seconds(1_800_014_400);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn most_restrictive_policy_is_reported() {
    let cases = [
        // tokens, units and cost of a request, expected fields
        (Some(4), None, "bucket 60 4 +60"),
        (None, Some((9, 1)), "api 1000 9 +600"),
        (Some(4), Some((9, 1)), "bucket 60 4 +60"),
        (Some(10), Some((9, 1)), "api 1000 9 +600"),
        // Nine units are enough for four requests of two units each.
        (Some(5), Some((9, 2)), "api 1000 9 +600"),
        // Both have the same number left: the longer time until reset is more restrictive.
        (Some(9), Some((9, 1)), "api 1000 9 +600"),
        (Some(0), Some((0, 1)), "api 1000 0 +600"),
        // The time until the next token, not until the bucket is full.
        (Some(0), Some((9, 1)), "bucket 60 0 +10"),
        (None, None, "nothing"),
    ];
    for (tokens, units, expected) in cases {
        assert_eq!(policy_summary(tokens, units, None), expected, "{tokens:?} {units:?}");
    }
}

#[test]
fn refused_client_has_zero_remaining_until_retry_after() {
    let first = RefusedQuotas::from_indexes([0]);
    let cases = [
        (Reason::Bucket, Some(0), Some((9, 1)), RefusedQuotas::NONE, 10, "bucket 60 0 +10"),
        // The bucket refused the request, but the quota is exhausted for longer.
        (Reason::Bucket, Some(0), Some((0, 1)), RefusedQuotas::NONE, 10, "api 1000 0 +600"),
        (Reason::Quota, Some(5), Some((0, 1)), first, 600, "api 1000 0 +600"),
        // Refused by a tier with units left: the wait of the refusal counts.
        (Reason::Tier, Some(5), Some((400, 1)), first, 120, "api 1000 0 +120"),
        (Reason::Blocked, Some(5), Some((400, 1)), RefusedQuotas::NONE, 3600, "bucket 60 0 +3600"),
        (Reason::Blocked, None, Some((400, 1)), RefusedQuotas::NONE, 3600, "api 1000 0 +3600"),
    ];
    for (reason, tokens, units, quotas, wait, expected) in cases {
        let refusal = Refusal { reason, quotas, wait: Duration::from_secs(wait) };
        assert_eq!(policy_summary(tokens, units, Some(&refusal)), expected, "{reason:?}");
    }
}

#[test]
fn each_header_family_writes_its_own_fields() {
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
        let fields = legacy_fields(families, Some(4), None, None, StatusCode::OK);
        let lines: Vec<String> = fields.iter().map(field_line).collect();
        assert_eq!(lines.join(", "), expected, "{families:?}");
    }
}

#[test]
fn atlassian_retry_after_is_omitted_on_429_503() {
    let retry_after = |tokens, status| {
        let fields = legacy_fields(&[LegacyFamily::Atlassian], Some(tokens), None, None, status);
        fields.get(Name::RetryAfter).map(|seconds| String::from_utf8_lossy(seconds).into_owned())
    };
    assert_eq!(retry_after(4, StatusCode::OK).as_deref(), Some("0"));
    assert_eq!(retry_after(0, StatusCode::OK).as_deref(), Some("10"), "admitted with the last token");
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        assert_eq!(retry_after(4, status), None, "{status}");
    }
}

/// Formats name, limit, remaining units and reset time.
fn policy_summary(tokens: Option<u32>, units: Option<(u64, u64)>, refusal: Option<&Refusal>) -> String {
    let fields = legacy_fields(&[LegacyFamily::Github], tokens, units, refusal, StatusCode::OK);
    let text = |name| fields.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    let Some(name) = text(Name::XRateLimitResource) else { return "nothing".into() };
    let number = |name| text(name).and_then(|text| text.parse::<u64>().ok()).expect("numeric field");
    let reset = number(Name::XRateLimitReset) - NOON.seconds();
    format!("{name} {} {} +{reset}", number(Name::XRateLimitLimit), number(Name::XRateLimitRemaining))
}

/// Writes the fields for a bucket of 60 that refills by ten every ten seconds and has `tokens`, and for a quota of
/// 1,000 per hour that ends in ten minutes, has `units` left, and is charged the given cost per request.
fn legacy_fields(
    families: &[LegacyFamily],
    tokens: Option<u32>,
    units: Option<(u64, u64)>,
    refusal: Option<&Refusal>,
    status: StatusCode,
) -> Fields {
    let bucket =
        Bucket { capacity: 60, fill: 10, interval: Duration::from_secs(10), smooth: false, costed_only: false };
    let rules = Rules {
        classes: vec![Class { bucket: tokens.map(|_| bucket), ..fixtures::class("bucket") }],
        quotas: vec![Quota { window: Window::Fixed { length: HOUR }, ..fixtures::quota("api", 1000) }],
        routes: vec![fixtures::route(&[(0, 1)])],
        ..fixtures::rules()
    };
    let usages: Vec<QuotaUsage> = units
        .into_iter()
        .map(|(left, cost)| QuotaUsage {
            client_remaining: None,
            quota: QuotaId(0),
            cost: Units::from_whole(cost),
            used: Units::from_whole(1000 - left),
            limit: Units::from_whole(1000),
            remaining: Units::from_whole(left),
            tier: 0,
            guard_admitted: false,
            resets_at: NOON + Duration::from_secs(600),
            client_resets_at: NOON + Duration::from_secs(600),
            window: 0,
            sequence: 1,
        })
        .collect();
    let bucket = tokens.map(|remaining| BucketUsage {
        remaining,
        next_token_after: Duration::from_secs(10),
        full_after: Duration::from_secs(60),
        sequence: 0,
    });
    let snapshot = RateLimitSnapshot { class: ClassId(0), route: RouteId(0), usages: &usages, bucket, refusal };
    let mut fields = Fields::new();
    write(families, &rules, snapshot, NOON, status, &mut fields);
    fields
}

fn field_line(field: tidegate_http1::Field<'_>) -> String {
    format!("{}: {}", String::from_utf8_lossy(field.text), String::from_utf8_lossy(field.value))
}
