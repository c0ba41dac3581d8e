//! Comparison of the rules with the crate `http-cache-semantics`, which reads RFC 9111 independently. Each difference is
//! one of [`DIFFERENCES`], with its reason.

use super::exchange::{Exchange, Head, exchange};
use super::*;
use http::{Request, Response};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use std::time::UNIX_EPOCH;

/// What both readers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// May the response be stored?
    Stored,
    /// Seconds for which the stored response stays fresh at the later request.
    Freshness,
    /// Do the fields that `Vary` names select the response for the later request?
    Selected,
    /// May the later request be answered without the origin, if the response is selected?
    Used,
}

/// Side that allows more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freer {
    Rules,
    Oracle,
}

/// A deliberate difference.
struct Difference {
    question: Question,
    freer: Freer,
    /// Why the rules say otherwise.
    reason: &'static str,
    applies: fn(&Exchange) -> bool,
}

/// Creates a difference, so that each is two lines of the table.
const fn difference(
    question: Question,
    freer: Freer,
    reason: &'static str,
    applies: fn(&Exchange) -> bool,
) -> Difference {
    Difference { question, freer, reason, applies }
}

use Freer::{Oracle, Rules};
use Question::{Freshness, Selected, Stored, Used};

const DIFFERENCES: &[Difference] = &[
    difference(Stored, Rules, "a status with a lifetime need not be understood (RFC 9111 section 3)", |it| {
        let response = &it.response;
        let has_lifetime = ["max-age", "s-maxage", "public"].iter().any(|name| response.has_directive(name))
            || response.plain_value("expires").is_some();
        has_lifetime && !ORACLE_STATUSES.contains(&it.status) && !matches!(it.status, 206 | 304 | 429)
    }),
    difference(Stored, Rules, "must-understand overrides no-store (RFC 9111 section 5.2.2.3)", |it| {
        it.response.has_directive("must-understand") && it.response.has_directive("no-store")
    }),
    difference(Stored, Oracle, "choice: the gateway stores responses to GET alone", |it| it.method != "GET"),
    difference(Stored, Oracle, "choice: a cookie that is set is for one client", |it| it.response.has("set-cookie")),
    difference(Stored, Oracle, "choice: a response to a request with cookies must be public", |it| {
        it.request.has("cookie") && !it.response.has_directive("public")
    }),
    difference(Stored, Oracle, "`*` in Vary never matches (RFC 9111 section 4.1)", |it| vary(it).contains('*')),
    difference(Stored, Oracle, "choice: an invalid name in Vary may be a misspelled one", |it| {
        vary(it).contains("x other")
    }),
    difference(Stored, Oracle, "choice: a response that could never be used is not kept", |it| {
        let received = UNIX_EPOCH + seconds(RECEIVED.seconds());
        let is_useless = oracle(it, &it.response).time_to_live(received).is_zero();
        is_useless && terms_of(it) == Err(Unstorable::NoLifetime)
    }),
    difference(Selected, Rules, "choice: a response without a coding is for all, if the origin had the choice", |it| {
        let is_widest = AcceptedCodings::read(&&it.request.fields()[..]).is_widest();
        is_widest && !is_coded(&it.response) && is_selected_but_for_the_coding(it)
    }),
    difference(Selected, Oracle, "choice: a coding selects clients that accept it, without Vary, too", |it| {
        is_coded(&it.response) && it.request.plain_value("accept-encoding") != it.later.plain_value("accept-encoding")
    }),
    difference(Used, Rules, "choice: an immutable response needs no reload while it is fresh (RFC 8246)", |it| {
        it.response.has_directive("immutable") && terms_of(it).is_ok_and(|terms| terms.is_fresh(now(it)))
    }),
    difference(Used, Rules, "a stale response may be used while it is validated (RFC 5861 section 3)", |it| {
        terms_of(it).is_ok_and(|terms| reuse(it, &terms) == Reuse::StaleWhileRevalidate)
    }),
    difference(Used, Rules, "max-stale includes its last second (RFC 9111 section 5.2.1.2)", |it| {
        let is_last = |ttl| it.later.has_directive("max-stale") && matches!(ttl, -10 | -40);
        terms_of(it).is_ok_and(|terms| is_last(terms.ttl_seconds(now(it))))
    }),
    difference(Used, Oracle, "no-cache forbids stale use, too (RFC 9111 section 5.2.2.4)", |it| {
        it.response.has_directive("no-cache") && it.later.has_directive("max-stale")
    }),
    difference(Used, Oracle, "s-maxage forbids stale use (RFC 9111 section 5.2.2.10)", |it| {
        it.response.has_directive("s-maxage") && it.later.has_directive("max-stale")
    }),
    difference(Used, Oracle, "proxy-revalidate forbids stale use (RFC 9111 section 5.2.2.8)", |it| {
        it.response.mentions("proxy-revalidate") && it.later.has_directive("max-stale")
    }),
];

/// Exchanges that are compared.
const CASES: u32 = 20_000;

/// Statuses that the other crate stores.
const ORACLE_STATUSES: [u16; 14] = [200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501];

/// Answers of one reader; those after the first only if both store the response.
type Answers = Vec<(Question, i64)>;

/// Returns the differences of the two readers, and the reason for each; `None` for one that has none.
fn compare(it: &Exchange) -> Vec<(Question, i64, i64, Option<&'static str>)> {
    let (ours, theirs) = (answers_of_rules(it), answers_of_oracle(it));
    let pairs = ours.into_iter().zip(theirs).filter(|((_, ours), (_, theirs))| ours != theirs);
    let reason = |question, ours, theirs| {
        let freer = if ours > theirs { Rules } else { Oracle };
        let is_reason =
            |listed: &&Difference| listed.question == question && listed.freer == freer && (listed.applies)(it);
        DIFFERENCES.iter().find(is_reason).map(|listed| listed.reason)
    };
    pairs.map(|((question, ours), (_, theirs))| (question, ours, theirs, reason(question, ours, theirs))).collect()
}

fn now(it: &Exchange) -> Timestamp {
    RECEIVED + seconds(it.pause)
}

fn vary(it: &Exchange) -> &str {
    it.response.plain_value("vary").unwrap_or_default()
}

/// Returns true if the later request has the fields that `Vary` names, but for `Accept-Encoding`.
fn is_selected_but_for_the_coding(it: &Exchange) -> bool {
    let names = vary(it).to_ascii_lowercase();
    let is_equal = |name: &&str| it.request.plain_value(name) == it.later.plain_value(name);
    ["accept-language", "x-other"].iter().filter(|name| names.contains(**name)).all(is_equal)
}

fn reuse(it: &Exchange, terms: &ReuseTerms) -> Reuse {
    terms.reuse(&RequestDirectives::read(&&it.later.fields()[..]), now(it))
}

fn is_coded(response: &Head) -> bool {
    response.plain_value("content-encoding").is_some_and(|coding| coding != "identity")
}

fn terms_of(it: &Exchange) -> Result<ReuseTerms, Unstorable> {
    let request = StorageRequest {
        is_no_store: RequestDirectives::read(&&it.request.fields()[..]).no_store,
        has_authorization: it.request.has("authorization"),
        has_cookies: it.request.has("cookie"),
        requested_at: RECEIVED - seconds(it.delay),
        received_at: RECEIVED,
        status: it.status,
        default_lifetime: None,
        useful_stale: seconds(if it.is_stale_useful { 3600 } else { 0 }),
    };
    terms(&request, &&it.response.fields()[..])
}

fn answers_of_rules(it: &Exchange) -> Answers {
    let (request, response, later) = (it.request.fields(), it.response.fields(), it.later.fields());
    let (request, response, later) = (&request[..], &response[..], &later[..]);
    let is_for_all = AcceptedCodings::read(&request).is_widest();
    let selected_by = SelectingFields::read(&response, is_for_all).filter(|_| it.method == "GET");
    let (Ok(terms), Some(selected_by)) = (terms_of(it), selected_by) else { return vec![(Stored, 0)] };
    let values = |request: &[(&str, &str)]| {
        let mut values = Vec::new();
        selected_by.values(&request, |_, value| values.push(value.map(<[u8]>::to_vec)));
        values
    };
    let is_selected = values(request) == values(later);
    let ttl = if terms.always_validate { 0 } else { terms.ttl_seconds(now(it)).max(0) };
    let is_used = matches!(it.later_method, "GET" | "HEAD") && reuse(it, &terms) != Reuse::Validate;
    vec![(Stored, 1), (Freshness, ttl), (Selected, is_selected.into()), (Used, is_used.into())]
}

fn answers_of_oracle(it: &Exchange) -> Answers {
    let policy = oracle(it, &it.response);
    if !policy.is_storable() {
        return vec![(Stored, 0)];
    }
    let at = UNIX_EPOCH + seconds(now(it).seconds());
    let ttl = policy.time_to_live(at).as_secs();
    let ask = |method, head: &Head| policy.before_request(&oracle_request(method, head), at);
    let is_selected = match ask(it.method, &it.later) {
        BeforeRequest::Fresh(_) => true,
        BeforeRequest::Stale { matches, .. } => matches,
    };
    // HEAD is answered from a response to GET (RFC 9110 section 9.3.2). Without Vary, the answer is of the directives alone.
    let method = if it.later_method == "HEAD" { it.method } else { it.later_method };
    let mut unvaried = it.response.clone();
    unvaried.plain.retain(|(name, _)| *name != "vary");
    let unvaried = oracle(it, &unvaried).before_request(&oracle_request(method, &it.later), at);
    let is_used = unvaried.satisfies_without_revalidation();
    let ttl = i64::try_from(ttl).expect("at most 2^31");
    vec![(Stored, 1), (Freshness, ttl), (Selected, is_selected.into()), (Used, is_used.into())]
}

fn oracle(it: &Exchange, response: &Head) -> CachePolicy {
    let mut built = Response::builder().status(it.status);
    for (name, value) in &response.plain {
        built = built.header(*name, value);
    }
    let built = built.body(()).expect("valid fields");
    // No lifetime without one of the origin: rules of the site have those.
    let options =
        CacheOptions { cache_heuristic: 0.0, immutable_min_time_to_live: seconds(0), ..CacheOptions::default() };
    let received = UNIX_EPOCH + seconds(RECEIVED.seconds());
    CachePolicy::new_options(&oracle_request(it.method, &it.request), &built, received, options)
}

fn oracle_request(method: &str, head: &Head) -> Request<()> {
    let mut request = Request::builder().method(method).uri("https://example.com/a");
    for (name, value) in &head.plain {
        request = request.header(*name, value);
    }
    request.body(()).expect("valid fields")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Both readers give the same answers, except where the table of differences has a reason.
    #[test]
    fn rules_agree_with_another_reader_of_the_rfc(it in exchange()) {
        for (question, ours, theirs, reason) in compare(&it) {
            prop_assert!(reason.is_some(), "{question:?}: {ours} by the rules, {theirs} by the oracle");
        }
    }
}
