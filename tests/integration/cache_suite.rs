//! The public tests for HTTP caches (cache-tests.fyi): what an independent suite expects of a shared cache.

use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use serde_json::Value;
use std::collections::BTreeMap;
use tidegate_engine::clock::Clock;

/// The suite names its requests by fields, which change no response.
const RULES: &str = "\
cache: { reload: all, unkeyed_headers: [test-id, test-name, req-num] }
routes: [{ match: \"/**\", cache: { key: { headers: [accept-language] } } }]
";

/// Required tests that the gateway fails, by reason.
const FAILURES: [(&str, &[&str]); 6] = [
    ("responses that set cookies are not stored", &["headers-store-Set-Cookie", "304-etag-update-response-Set-Cookie"]),
    ("a response with an unknown transfer coding is an error", &["headers-store-Transfer-Encoding"]),
    (
        "clients choose where redirects lead, so that Location counts for 201 alone (a MAY in RFC 9111 section 4.4)",
        &[
            "invalidate-DELETE-location",
            "invalidate-M-SEARCH-location",
            "invalidate-POST-location",
            "invalidate-PUT-location",
        ],
    ),
    ("several ages count as stale, as other tests of the suite expect", &["age-parse-prefix"]),
    (
        "the gateway answers for an origin that closed the connection, without the field by which the suite knows it",
        &[
            "stale-close-must-revalidate",
            "stale-close-no-cache",
            "stale-close-proxy-revalidate",
            "stale-close-s-maxage=2",
        ],
    ),
    (
        "tests for browsers, which the suite does not run",
        &[
            "cc-resp-immutable-stale",
            "freshness-max-age-s-maxage-private",
            "freshness-max-age-s-maxage-private-multiple",
        ],
    ),
];

/// Optional tests that the gateway passes, at least. All tests are of one route, whose responses are kept apart by what others
/// of it vary by, which costs some of them their hit.
const OPTIONAL_PASSES: usize = 60;

#[test]
fn cache_behaves_as_the_public_tests_require() {
    let origin = Origin::free_address();
    let gateway = TestGateway::with_clock(origin, RULES, Clock::system());
    let clients = InstalledClients::locate();
    let output = clients.cache_tests(origin, gateway.address()).output().expect("node runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let tests: BTreeMap<String, Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    let of_kind = |kind: &'static str| tests.iter().filter(move |(_, test)| test["kind"] == kind);
    let failed: Vec<_> = of_kind("required").filter(|(_, test)| test["result"] != true).collect();
    let expected = |id: &str| FAILURES.iter().any(|(_, ids)| ids.contains(&id));
    let unexpected: Vec<_> = failed.iter().filter(|(id, _)| !expected(id)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    let passed = of_kind("optimal").filter(|(_, test)| test["result"] == true).count();
    let optional = of_kind("optimal").count();
    assert_eq!((of_kind("required").count(), optional), (160, 88));
    assert!(passed >= OPTIONAL_PASSES, "{passed} of {optional} optional tests passed");
}
