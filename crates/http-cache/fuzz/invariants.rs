//! Invariants of the rules of the cache. Each takes arbitrary bytes and panics if it is violated.

use std::time::Duration;
use tidegate_http_cache::accepted_codings::AcceptedCodings;
use tidegate_http_cache::range::{RequestedRange, requested_range};
use tidegate_http_cache::storage::{StorageRequest, terms};
use tidegate_http_cache::validation::is_not_modified;
use tidegate_http_cache::{FieldLines, RequestDirectives, ResponseDirectives, Reuse, Timestamp};

/// A response is stored only if its fields allow it, whatever else they say; the terms of its reuse agree with each other
/// at all times, with all directives of requests. The input is field lines of the request, an empty line, and those of the
/// response.
pub(crate) fn cache(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (request, response) = text.split_once("\n\n").unwrap_or((text, ""));
    fn lines(text: &str) -> Vec<(&str, &str)> {
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim())).collect()
    }
    let (request, response) = (lines(request), lines(response));
    let (request, response) = (&request[..], &response[..]);
    let accepted = AcceptedCodings::read(&request);
    let normalized = [("accept-encoding", accepted.text())];
    assert_eq!(AcceptedCodings::read(&normalized), accepted, "normalization is not idempotent");
    if let Some(range) = request.iter().find(|(name, _)| name.eq_ignore_ascii_case("range"))
        && let RequestedRange::Part { first, last } = requested_range(range.1.as_bytes(), 1000)
    {
        assert!(first <= last && last < 1000, "{first}-{last} of 1000 bytes");
    }
    let is_not_modified = is_not_modified(&request, &response);
    let has_validator = response.has("etag") || response.has("last-modified") || response.has("date");
    assert!(!is_not_modified || has_validator || request.has("if-none-match"), "a 304 without a reason");
    let directives = ResponseDirectives::read(&response);
    let wanted = RequestDirectives::read(&request);
    let received = Timestamp::from_seconds(1_800_000_000);
    let storage = StorageRequest {
        is_no_store: wanted.no_store,
        has_authorization: request.has("authorization"),
        has_cookies: request.has("cookie"),
        requested_at: received,
        received_at: received,
        status: 200,
        default_lifetime: None,
        useful_stale: Duration::from_secs(3600),
    };
    let Ok(terms) = terms(&storage, &response) else { return };
    assert!(!directives.private && !response.has("set-cookie"), "the response is for one client");
    assert!(!directives.no_store || directives.must_understand, "the response must not be stored");
    assert!(!storage.is_no_store, "the request forbids it");
    let mut was_fresh = true;
    for seconds in [0, 1, 59, 3600, 86_400, 1 << 32] {
        let now = received + Duration::from_secs(seconds);
        let is_fresh = terms.is_fresh(now);
        assert!(was_fresh || !is_fresh, "the copy is fresh again");
        assert_eq!(terms.ttl_seconds(now) > 0, is_fresh, "lifetime and freshness differ");
        was_fresh = is_fresh;
        match terms.reuse(&wanted, now) {
            Reuse::Fresh => assert!((is_fresh || !wanted.max_stale.is_zero()) && !terms.always_validate),
            Reuse::StaleWhileRevalidate => assert!(!terms.never_stale),
            Reuse::Validate => {}
        }
        if !is_fresh && terms.never_stale {
            assert!(!terms.may_replace_refusal(Duration::MAX, now) && !terms.may_replace_error(Duration::MAX, now));
        }
    }
}
