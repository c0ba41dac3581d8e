//! What is stored, for how long it is fresh, and when it is used.

use super::*;

fn lifetime(fields: &[(&str, &str)]) -> Option<u32> {
    terms_of(fields).ok().map(|terms| terms.lifetime_s)
}

#[test]
fn first_valid_lifetime_counts_in_the_order_of_the_rfc() {
    let later = "Tue, 24 Nov 2026 12:01:40 GMT";
    for (fields, expected) in [
        (&[("cache-control", "s-maxage=60, max-age=10")][..], 60),
        (&[("cache-control", "max-age=10"), ("expires", later)], 10),
        (&[("cache-control", "MAX-AGE=\"10\"")], 10),
        (&[("cache-control", "max-age=10, max-age=90")], 10),
        (&[("cache-control", "a=\"max-age=90, b\""), ("cache-control", "max-age=10")], 10),
        (&[("cache-control", "max-age=99999999999999999999")], 1 << 31),
        (&[("expires", later)], 100),
        (&[("expires", later), ("date", "Tue, 24 Nov 2026 12:00:40 GMT")], 60),
        (&[("cdn-cache-control", "max-age=7"), ("cache-control", "max-age=90"), ("expires", later)], 7),
        (&[("cdn-cache-control", "max-age=\"7\"!"), ("cache-control", "max-age=90")], 90),
        (&[("cdn-cache-control", ""), ("cache-control", "max-age=90")], 90),
    ] {
        assert_eq!(lifetime(fields), Some(expected), "{fields:?}");
    }
    let validated = |value| [("cache-control", value), ("expires", later), ("etag", "\"a\"")];
    for invalid in
        ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=1 0", "max-age=a", "max-age =10", "max-age= 10"]
    {
        assert_eq!(lifetime(&validated(invalid)), Some(0), "{invalid}");
    }
    assert_eq!(lifetime(&[("expires", "0"), ("etag", "\"a\"")]), Some(0));
}

#[test]
fn responses_for_one_client_are_not_stored() {
    let fresh = ("cache-control", "max-age=60");
    for (fields, reason) in [
        (&[("cache-control", "max-age=60, no-store")][..], Unstorable::NoStore),
        (&[("cache-control", "private, max-age=60")], Unstorable::Private),
        (&[("cache-control", "private=\"set-cookie\", max-age=60")], Unstorable::Private),
        (&[("cache-control", "private =\"set-cookie\", max-age=60")], Unstorable::Private),
        (&[("cache-control", "max-age=60, no-store\t= x")], Unstorable::NoStore),
        (&[("cdn-cache-control", "no-store"), fresh], Unstorable::NoStore),
        (&[fresh, ("set-cookie", "a=1")], Unstorable::SetCookie),
        (&[], Unstorable::NoLifetime),
    ] {
        assert_eq!(terms_of(fields), Err(reason), "{fields:?}");
    }
    assert_eq!(terms_with(&[fresh], |request| request.is_no_store = true), Err(Unstorable::RequestNoStore));
    for status in [100, 206, 304, 429, 999] {
        let stored = terms_with(&[fresh], |request| request.status = status);
        let expected = if status == 206 { Unstorable::Partial } else { Unstorable::Status };
        assert_eq!(stored, Err(expected), "{status}");
    }
    let understood = ("cache-control", "max-age=60, no-store, must-understand");
    assert!(terms_of(&[understood]).is_ok());
    assert_eq!(terms_with(&[understood], |request| request.status = 299), Err(Unstorable::NoStore));
}

#[test]
fn credentials_need_the_word_of_the_origin() {
    for (value, for_authorized, for_cookies) in [
        ("max-age=60", false, false),
        ("public, max-age=60", true, true),
        ("must-revalidate, max-age=60", true, false),
        ("s-maxage=60", true, false),
        ("proxy-revalidate, max-age=60", false, false),
    ] {
        let fields = [("cache-control", value)];
        let authorized = terms_with(&fields, |request| request.has_authorization = true);
        assert_eq!(authorized.is_ok(), for_authorized, "{value}");
        assert_eq!(terms_with(&fields, |request| request.has_cookies = true).is_ok(), for_cookies, "{value}");
        let terms = terms_of(&fields).expect("storable");
        assert_eq!((terms.is_for_authorized, terms.is_public), (for_authorized, for_cookies), "{value}");
    }
}

#[test]
fn route_gives_a_lifetime_only_to_responses_without_one() {
    let with_ttl = |fields: &[(&str, &str)], status| {
        let change = |request: &mut StorageRequest| {
            (request.status, request.default_lifetime) = (status, Some(seconds(600)));
        };
        terms_with(fields, change).map(|terms| terms.lifetime_s)
    };
    assert_eq!(with_ttl(&[], 200), Ok(600));
    assert_eq!(with_ttl(&[], 404), Ok(600));
    assert_eq!(with_ttl(&[("cache-control", "max-age=5")], 200), Ok(5));
    assert_eq!(with_ttl(&[("expires", "0"), ("etag", "\"a\"")], 200), Ok(0));
    for status in [302, 403, 500, 503] {
        assert_eq!(with_ttl(&[], status), Err(Unstorable::Status), "{status}");
    }
    assert_eq!(with_ttl(&[("cache-control", "max-age=5")], 302), Ok(5));
}

#[test]
fn age_counts_from_the_generation_of_the_response() {
    let age_of = |fields: &[(&str, &str)], travel| {
        let change = |request: &mut StorageRequest| request.requested_at = RECEIVED - seconds(travel);
        terms_with(fields, change).expect("storable").age(RECEIVED).as_secs()
    };
    let fresh = ("cache-control", "max-age=60");
    for (fields, travel, expected) in [
        (&[fresh][..], 0, 0),
        (&[fresh], 3, 3),
        (&[fresh, ("age", "20")], 3, 23),
        (&[fresh, ("date", "Tue, 24 Nov 2026 11:59:30 GMT"), ("age", "20")], 0, 30),
        (&[fresh, ("date", "Tue, 24 Nov 2026 13:00:00 GMT")], 0, 0),
        (&[fresh, ("date", "yesterday")], 0, 0),
    ] {
        assert_eq!(age_of(fields, travel), expected, "{fields:?}");
    }
}

#[test]
fn response_with_an_age_that_cannot_be_read_is_stale() {
    for age in ["-1", "abc", "7200.0", "20;a", "0, a", "0, 0", "2147483648"] {
        for lifetime in ["max-age=3600", "max-age=2147483648"] {
            let terms = terms_of(&[("cache-control", lifetime), ("age", age)]).expect("storable");
            assert!(!terms.is_fresh(RECEIVED), "{age}, {lifetime}");
        }
    }
}

#[test]
fn stale_copies_are_used_as_the_origin_and_the_administrator_allow() {
    let day = seconds(86_400);
    let at = |age| RECEIVED + seconds(age);
    for (value, refused, failed) in [
        ("max-age=60", true, true),
        ("s-maxage=60", true, false),
        ("s-maxage=60, stale-if-error=300", true, true),
        ("max-age=60, must-revalidate", false, false),
        ("max-age=60, proxy-revalidate", false, false),
        ("max-age=60, no-cache", false, false),
        ("max-age=60, stale-if-error=0", true, false),
    ] {
        let terms = terms_of(&[("cache-control", value), ("etag", "\"a\"")]).expect("storable");
        assert_eq!(terms.may_replace_refusal(day, at(120)), refused, "{value}");
        assert_eq!(terms.may_replace_error(day, at(120)), failed, "{value}");
        assert!(!terms.may_replace_refusal(seconds(60), at(120)), "{value}: a minute is over");
    }
    let terms = terms_of(&[("cache-control", "max-age=60, stale-while-revalidate=30")]).expect("storable");
    let reuse = |age| terms.reuse(&RequestDirectives::default(), at(age));
    assert_eq!(
        [reuse(59), reuse(60), reuse(89), reuse(90)],
        [Reuse::Fresh, Reuse::StaleWhileRevalidate, Reuse::StaleWhileRevalidate, Reuse::Validate]
    );
    assert_eq!((terms.ttl_seconds(at(10)), terms.ttl_seconds(at(90))), (50, -30));
}

#[test]
fn directives_of_a_request_ask_for_fresher_or_staler_copies() {
    let reuse = |response: &str, request: &str, age| {
        let terms = terms_of(&[("cache-control", response), ("etag", "\"a\"")]).expect("storable");
        terms.reuse(&RequestDirectives::read(&[("cache-control", request)]), RECEIVED + seconds(age))
    };
    for (response, request, age, expected) in [
        ("max-age=60", "no-cache", 1, Reuse::Validate),
        ("max-age=60", "max-age=0", 1, Reuse::Validate),
        ("max-age=60", "max-age=10", 10, Reuse::Fresh),
        ("max-age=60", "max-age=10", 11, Reuse::Validate),
        ("max-age=60", "min-fresh=30", 30, Reuse::Fresh),
        ("max-age=60", "min-fresh=30", 31, Reuse::Validate),
        ("max-age=60", "max-stale", 1000, Reuse::Fresh),
        ("max-age=60", "max-stale=10", 70, Reuse::Fresh),
        ("max-age=60", "max-stale=10", 71, Reuse::Validate),
        ("max-age=60", "max-stale=x, max-stale=10, max-stale", 71, Reuse::Validate),
        ("max-age=60", "max-age=10, max-age=20", 11, Reuse::Validate),
        ("max-age=60", "min-fresh=30, min-fresh=0", 31, Reuse::Validate),
        ("s-maxage=60", "max-stale", 70, Reuse::Validate),
        ("max-age=60, must-revalidate", "max-stale", 70, Reuse::Validate),
        ("max-age=60, immutable", "no-cache", 1, Reuse::Fresh),
        ("max-age=60, immutable", "no-cache", 61, Reuse::Validate),
        ("max-age=60, no-cache = x", "", 1, Reuse::Validate),
        ("max-age=60, no-cache", "", 1, Reuse::Validate),
    ] {
        assert_eq!(reuse(response, request, age), expected, "{response} / {request} at {age}");
    }
    let wanted = RequestDirectives::read(&[("cache-control", "no-cache, max-age=0, only-if-cached, max-stale=5")]);
    let kept = wanted.without_reload();
    assert!(kept.only_if_cached && !kept.no_cache && kept.max_age.is_none() && kept.max_stale == seconds(5));
    assert!(RequestDirectives::read(&[("pragma", "no-cache")]).no_cache);
    assert!(!RequestDirectives::read(&[("pragma", "no-cache"), ("cache-control", "a")]).no_cache);
}

proptest! {
    /// Whatever an origin and a client send, a response that says so is not stored, and what is used fresh is fresh.
    #[test]
    fn no_bytes_break_the_rules(
        control in "[a-z0-9=,\"\\- ]{0,60}",
        extra in prop::sample::select(vec!["no-store", "private", "no-store, must-understand", "public"]),
        request in "[a-z0-9=,\"\\- ]{0,40}",
        age in 0..10_000_u64,
    ) {
        let control = format!("{extra}, {control}");
        let fields = [("cache-control", control.as_str()), ("date", DATE), ("etag", "\"a\"")];
        if let Ok(terms) = terms_of(&fields) {
            prop_assert!(extra != "private" && extra != "no-store");
            let now = RECEIVED + seconds(age);
            let wanted = RequestDirectives::read(&[("cache-control", request.as_str())]);
            if terms.reuse(&wanted, now) == Reuse::Fresh {
                prop_assert!(terms.is_fresh(now) || !wanted.max_stale.is_zero());
                prop_assert!(!terms.always_validate);
            }
            if !terms.is_fresh(now) && terms.never_stale {
                prop_assert_eq!(terms.reuse(&wanted, now), Reuse::Validate);
                prop_assert!(!terms.may_replace_refusal(Duration::MAX, now));
            }
            prop_assert_eq!(terms.ttl_seconds(now) > 0, terms.is_fresh(now));
        }
    }

    /// A copy never gets younger, and never fresh again.
    #[test]
    fn freshness_ends_once(lifetime in 0..5000_u64, earlier in 0..5000_u64, pause in 0..5000_u64) {
        let fields = [("cache-control", format!("max-age={lifetime}"))];
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let terms = terms_with(&fields, |request| request.useful_stale = seconds(1)).expect("storable");
        let (first, second) = (RECEIVED + seconds(earlier), RECEIVED + seconds(earlier + pause));
        prop_assert!(terms.age(first) <= terms.age(second));
        prop_assert!(terms.is_fresh(first) || !terms.is_fresh(second));
        prop_assert_eq!(ResponseDirectives::read(&&fields[..]).max_age, Some(seconds(lifetime)));
    }
}
