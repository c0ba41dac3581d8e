//! What requests cost: by the response of the origin, or by the report of another proxy.

use super::site::{Site, fields_of};
use crate::gateway::cache::Saving;
use crate::gateway::exchange::charges::{
    actual_cost, charge_unexpected_costs, saved_units, saving_of_copy, settle_reported,
};
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::reported_usage::{scan_body, sync_quotas};
use http::StatusCode;
use serde_json::{Value, json};
use tidegate_policy::{QuotaId, Units};

/// Two quotas whose costs the origin reports.
const COSTS: &str = "
quotas:
  api: { limit: 1000, window: { fixed: 60s }, cost_header: X-API-Cost, free_when_cached: true }
  search: { limit: 1000, window: { fixed: 60s }, cost_header: X-Search-Cost }
classes: [{ name: all }]
routes: [{ match: '/item/*', cost: { api: 2 } }, { match: '/**' }]
";

/// A quota that the origin counts, too.
const COUNTED: &str = "
quotas:
  api:
    limit: 100
    window: { fixed: 60s }
    sync_from: { remaining_header: X-Remaining, exhausted: { statuses: [403], contains: dailyLimitExceeded, json: /error/reason } }
classes: [{ name: all }]
routes: [{ match: '/**', cost: { api: 1 } }]
";

const API: QuotaId = QuotaId(0);
const SEARCH: QuotaId = QuotaId(1);
const PREFLIGHT: [(&str, &str); 2] = [("origin", "https://other.example"), ("access-control-request-method", "PUT")];

/// Settles a request as the response of the origin says.
fn settle(journal: &mut Journal, status: u16, response: &[(&str, &str)]) {
    let (fields, status) = (fields_of(response), StatusCode::from_u16(status).expect("a status"));
    let Journal { known, origin, .. } = journal;
    origin.settle(|quota, expected| actual_cost(known, quota, expected, &fields));
    charge_unexpected_costs(known, origin, status, &fields);
}

/// Returns the units charged in both quotas.
fn charged(journal: &Journal) -> [f64; 2] {
    [API, SEARCH].map(|quota| journal.origin.charged(quota).map_or(0.0, |charged| charged.settled.as_f64()))
}

/// Returns what a response with these fields costs.
fn cost(line: &str, response: &[(&str, &str)]) -> [f64; 2] {
    let site = Site::new(COSTS);
    let mut journal = site.journal(line, &[]);
    settle(&mut journal, 200, response);
    charged(&journal)
}

fn last_line(site: &Site, journal: Box<Journal>) -> Value {
    let id = journal.known.id;
    drop(journal);
    serde_json::from_slice(&site.telemetry.decision(id).expect("a line")).expect("a line is JSON")
}

#[test]
fn cost_is_the_reported_one_or_the_expected_one() {
    for (response, api) in [
        (&[][..], 2.0),
        (&[("x-api-cost", "0.5")], 0.5),
        (&[("x-api-cost", "1"), ("x-api-cost", "4")], 5.0),
        (&[("x-api-cost", "much")], 2.0),
        (&[("age", "5")], 0.0),
        (&[("age", "5"), ("x-api-cost", "3")], 3.0),
    ] {
        assert_eq!(cost("GET /item/1", response), [api, 0.0], "{response:?}");
    }
}

#[test]
fn implausible_cost_is_charged_up_to_the_highest_plausible_one() {
    let site = Site::new(COSTS);
    let mut journal = site.journal("GET /item/1", &[]);
    settle(&mut journal, 200, &[("x-api-cost", "201")]);
    assert_eq!(charged(&journal), [200.0, 0.0]);
    let implausible = || site.worker.config().admission.quotas(site.clock.now())[0].implausible_costs;
    assert_eq!(implausible(), 1);
    let mut journal = site.journal("GET /item/1", &[]);
    settle(&mut journal, 200, &[("x-api-cost", "200")]);
    assert_eq!((charged(&journal), implausible()), ([200.0, 0.0], 1));
}

#[test]
fn unexpected_cost_is_charged_and_recorded_apart() {
    let site = Site::new(COSTS);
    let mut journal = site.journal("GET /item/1", &[]);
    settle(&mut journal, 200, &[("x-search-cost", "3")]);
    assert_eq!(charged(&journal), [2.0, 3.0]);
    let line = last_line(&site, journal);
    assert_eq!((&line["cost"], &line["charged"]), (&json!({"api": 2}), &json!({"api": 2})));
    assert_eq!(line["unexpected_cost"], json!({"search": 3}));
    let quotas = site.worker.config().admission.quotas(site.clock.now());
    assert_eq!([quotas[0].used.as_f64(), quotas[1].used.as_f64()], [2.0, 3.0]);
}

#[test]
fn cost_of_a_path_without_one_is_reserved_once_it_was_reported() {
    let site = Site::new(COSTS);
    let mut journal = site.journal("GET /new/1", &[]);
    assert_eq!(journal.quota_usage.len(), 0);
    settle(&mut journal, 200, &[("x-search-cost", "3")]);
    drop(journal);
    let learned: Vec<_> = site.journal("GET /new/1", &[]).quota_usage.iter().map(|usage| usage.quota).collect();
    assert_eq!(learned, [SEARCH]);
}

#[test]
fn cost_that_was_learned_is_none_without_a_report() {
    let site = Site::new(COSTS);
    let mut journal = site.journal("GET /new/1", &[]);
    settle(&mut journal, 200, &[("x-search-cost", "3")]);
    drop(journal);
    let mut journal = site.journal("GET /new/1", &[]);
    settle(&mut journal, 200, &[]);
    assert_eq!(charged(&journal), [0.0, 0.0]);
}

#[test]
fn failed_and_unreadable_responses_teach_no_cost_of_a_path() {
    let site = Site::new(COSTS);
    for (status, response) in [(500, ("x-other", "1")), (200, ("x-search-cost", "much"))] {
        let mut journal = site.journal("GET /new/1", &[]);
        settle(&mut journal, status, &[response]);
        assert_eq!(charged(&journal), [0.0, 0.0], "{status}");
    }
    assert!(site.worker.config().admission.path_costs().is_empty());
}

#[test]
fn preflight_that_is_answered_as_one_is_free() {
    let site = Site::new(COSTS);
    let mut journal = site.journal("OPTIONS /item/1", &PREFLIGHT);
    let answer = [("access-control-allow-origin", "*"), ("access-control-allow-methods", "PUT")];
    settle(&mut journal, 200, &answer);
    assert_eq!(charged(&journal), [0.0, 0.0]);
    assert!(journal.origin.exempt.is_none(), "its place is free");
}

#[test]
fn preflight_that_is_answered_with_a_page_costs_one() {
    for (status, response, api) in [
        (200, &[("content-type", "text/html")][..], 2.0),
        (200, &[("access-control-allow-origin", "*")], 2.0),
        (200, &[("content-length", "0")], 0.0),
        (204, &[], 0.0),
        (404, &[("content-type", "text/html")], 0.0),
        (200, &[("x-api-cost", "7")], 7.0),
    ] {
        let site = Site::new(COSTS);
        let mut journal = site.journal("OPTIONS /item/1", &PREFLIGHT);
        assert!(journal.quota_usage.is_empty());
        settle(&mut journal, status, response);
        assert_eq!(charged(&journal), [api, 0.0], "{status} {response:?}");
    }
}

#[test]
fn preflights_are_ordinary_requests_after_one_was_answered_with_a_page() {
    let site = Site::new(COSTS);
    let mut journal = site.journal("OPTIONS /item/1", &PREFLIGHT);
    settle(&mut journal, 200, &[("content-type", "text/html")]);
    drop(journal);
    let usages = || site.journal("OPTIONS /item/1", &PREFLIGHT).quota_usage.len();
    assert_eq!(usages(), 1);
    site.advance(3601);
    assert_eq!(usages(), 0, "an hour later");
}

#[test]
fn reports_of_another_proxy_name_the_quotas_they_settle() {
    let site = Site::new(COSTS);
    for (costs, expected) in [
        (&[][..], [2.0, 0.0]),
        (&[("api", 5)], [5.0, 0.0]),
        (&[("api", 0), ("search", 4)], [0.0, 4.0]),
        (&[("search", 0)], [2.0, 0.0]),
        (&[("api", 900), ("search", 900)], [200.0, 100.0]),
    ] {
        let costs: Vec<_> = costs.iter().map(|(name, units)| ((*name).to_owned(), Units::from_whole(*units))).collect();
        let mut journal = site.journal("GET /item/1", &[]);
        let Journal { known, origin, .. } = &mut *journal;
        settle_reported(known, origin, &costs);
        assert_eq!(charged(&journal), expected, "{costs:?}");
        site.advance(60);
    }
}

#[test]
fn copy_saves_what_its_request_would_have_cost() {
    let site = Site::new(COSTS);
    let mut journal = site.journal("GET /item/1", &[]);
    let saved =
        |journal: &Journal| saved_units(&journal.known, &journal.origin).iter().map(|(_, units)| *units).sum::<Units>();
    assert_eq!(saved(&journal), Units::from_whole(2));
    journal.origin.settle(|_, _| Units::from_milli(500));
    assert_eq!(saved(&journal), Units::from_milli(1500), "less what the validation cost");
}

#[test]
fn stored_response_is_worth_what_it_cost_or_what_its_route_costs() {
    let site = Site::new(COSTS);
    let worth = |line: &str, cost: &str, from_cache: bool| {
        let mut journal = site.journal(line, &[]);
        settle(&mut journal, 200, &[("x-api-cost", cost)]);
        saving_of_copy(&journal.known, &journal.origin, from_cache)
    };
    let of = |units: u64| Saving::of(Units::from_whole(units), Units::from_whole(1000));
    assert_eq!(worth("GET /item/1", "9", false), of(9));
    assert_eq!(worth("GET /item/1", "0", false), Saving::NOTHING);
    assert_eq!(worth("GET /item/1", "0", true), of(2), "the cache of the origin says nothing about the page");
}

#[test]
fn count_of_the_origin_tightens_the_quota() {
    let site = Site::new(COUNTED);
    let report = |remaining| {
        let mut journal = site.journal("GET /", &[]);
        journal.origin.settle(|_, expected| expected);
        let Journal { known, origin, .. } = &mut *journal;
        sync_quotas(known, origin, StatusCode::OK, &fields_of(&[("x-remaining", remaining)]));
    };
    report("0");
    assert_eq!(site.used(), 1.0, "it may be the count of the window before");
    site.advance(30);
    report("40");
    assert_eq!(site.used(), 60.0);
    report("90");
    assert_eq!(site.used(), 61.0, "nothing is given back");
    report("0");
    assert_eq!(site.send("GET /", &[]).status, 429);
}

#[test]
fn text_in_the_body_closes_the_quota_and_ends_the_scan() {
    let site = Site::new(COUNTED);
    let mut journal = site.journal("GET /", &[]);
    journal.origin.settle(|_, expected| expected);
    let Journal { known, origin, .. } = &mut *journal;
    sync_quotas(known, origin, StatusCode::OK, &fields_of(&[]));
    assert!(origin.body_scans.is_empty(), "only the bodies of the statuses are scanned");
    sync_quotas(known, origin, StatusCode::FORBIDDEN, &fields_of(&[("content-type", "application/json")]));
    assert_eq!(origin.body_scans.len(), 1);
    scan_body(known, origin, b"{\"error\": {\"rea");
    assert_eq!(origin.body_scans.len(), 1);
    scan_body(known, origin, b"son\": \"dailyLimitExceeded\"}}");
    assert!(origin.body_scans.is_empty());
    drop(journal);
    assert_eq!(site.send("GET /", &[]).logged("reason"), "quota");
}
