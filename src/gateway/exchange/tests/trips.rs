//! The life of a request from its decision to its end: its units, its client, its copies and its record.

use super::QUOTA;
use super::site::{Site, field, fields_of, head};
use crate::gateway::exchange::abandon::Abandonable;
use crate::gateway::exchange::client_side::ClientSide;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::origin_trip::{OriginStage, RequestUnits};
use crate::gateway::exchange::scope_feedback::{report_aborted_body, report_to_scopes};
use crate::gateway::exchange::throttle::acquire_free_slots;
use crate::gateway::exchange::within;
use crate::gateway::upstream::ForwardError;
use http::StatusCode;
use serde_json::{Value, json};
use std::cell::Cell;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tidegate_http_cache::{CacheResult, ForwardReason};
use tidegate_policy::{QuotaId, Reason, Units};

const API: QuotaId = QuotaId(0);

/// One slot in a scope that backs off.
const SCOPE: &str = "
classes: [{ name: all }]
scopes: { default: { concurrency: 1, queue: { max_wait: 0s }, backoff: { min_delay: 1s, jitter: 0%, min_clients: 1 } } }
routes: [{ match: '/**' }]
";

/// Marks a request as sent to the origin.
fn mark_sent(journal: &mut Journal) {
    let RequestUnits::Reserved(permit) = &mut journal.origin.units else { panic!("settled") };
    permit.mark_sent();
    journal.begin_at_origin(None);
}

/// Returns the line of the only request.
fn line(site: &Site) -> Value {
    let lines = site.telemetry.recent_decisions();
    assert_eq!(lines.len(), 1);
    serde_json::from_slice(&lines[0]).expect("a line is JSON")
}

#[test]
fn units_are_settled_once() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /search", &[]);
    assert!(journal.origin.units.charges().is_empty(), "nothing is charged before");
    journal.origin.settle(|_, _| Units::from_whole(2));
    journal.origin.settle(|_, _| Units::from_whole(9));
    journal.origin.settle_unknown();
    assert_eq!(journal.origin.charged(API).map(|charged| charged.settled), Some(Units::from_whole(2)));
    drop(journal);
    assert_eq!(site.used(), 2.0);
}

#[test]
fn unsent_request_releases_what_it_reserved() {
    let site = Site::new(QUOTA);
    let reserved = || site.worker.config().admission.quotas(site.clock.now())[0].reserved.as_f64();
    let journal = site.journal("GET /search", &[]);
    assert_eq!(reserved(), 4.0);
    drop(journal);
    assert_eq!((reserved(), site.used()), (0.0, 0.0));
    assert_eq!(line(&site)["charged"], json!({"api": 0}));
}

#[test]
fn sent_request_costs_what_was_expected_until_it_is_settled() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /search", &[]);
    mark_sent(&mut journal);
    drop(journal);
    assert_eq!((site.used(), line(&site)["charged"].clone()), (4.0, json!({"api": 4})));
}

#[test]
fn request_without_a_response_is_recorded_as_left_by_its_client() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /search", &[]);
    mark_sent(&mut journal);
    site.advance(3);
    drop(journal);
    let line = line(&site);
    assert_eq!((&line["status"], &line["bytes"]), (&json!(499), &json!(0)));
    assert_eq!((&line["origin_ms"], &line["total_ms"]), (&json!(3000), &json!(3000)));
}

#[test]
fn response_that_is_complete_is_recorded_with_its_bytes_and_times() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /item/1?token=x", &[("referer", "http://a/")]);
    site.advance(1);
    journal.origin.end_reception(site.clock.now());
    site.advance(2);
    journal.origin.end_queue_wait(site.clock.now());
    mark_sent(&mut journal);
    site.advance(4);
    journal.origin.answer(site.clock.now(), Some(StatusCode::NOT_FOUND));
    journal.begin_response(StatusCode::NOT_FOUND);
    journal.client.add_bytes(7);
    site.advance(8);
    journal.finish();
    let line = line(&site);
    assert_eq!((&line["status"], &line["bytes"], &line["referer"]), (&json!(404), &json!(7), &json!("http://a/")));
    assert_eq!(
        (&line["scope_wait_ms"], &line["origin_ms"], &line["total_ms"]),
        (&json!(2000), &json!(4000), &json!(15000))
    );
    assert_eq!((&line["path"], &line["query"]), (&json!("/item/1"), &json!("token=x")));
}

#[test]
fn secret_parameters_are_not_recorded() {
    let site = Site::new(&format!("log: {{ redact: [token] }}{QUOTA}"));
    drop(site.journal("GET /item/1?token=secret&a=b", &[("referer", "http://a/?token=secret")]));
    let line = line(&site);
    assert!(!line.to_string().contains("secret"), "{line}");
    assert!(line["query"].as_str().is_some_and(|query| query.ends_with("&a=b")), "{line}");
}

#[test]
fn client_that_left_receives_nothing_more() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /item/1", &[]);
    journal.client.add_bytes(5);
    journal.client.disconnect(true);
    assert!(journal.client.has_left());
    journal.client.add_bytes(5);
    journal.begin_response(StatusCode::OK);
    assert_eq!((journal.client.bytes, journal.client.status.as_u16()), (5, 499));
    drop(journal);
    assert_eq!(line(&site)["status"], 499);
}

#[test]
fn request_ends_once_for_its_connection_and_frees_its_memory() {
    let site = Site::new(QUOTA);
    let state = Rc::clone(&site.connection().connection_state);
    let fields = head("GET /", &[]).fields;
    let idle = state.memory().total();
    let mut client = ClientSide::new(&state, &fields, false);
    assert!(state.memory().total() >= idle + fields.memory() as u64);
    client.complete();
    client.end();
    assert!(client.has_left(), "nobody waits any more");
    client.end();
    drop(client);
    assert_eq!(state.memory().total(), idle);
}

#[test]
fn request_is_in_flight_until_its_record_counts_it() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /item/1", &[]);
    mark_sent(&mut journal);
    assert_eq!(site.telemetry.inflight("default"), 1);
    journal.end_at_origin();
    journal.end_at_origin();
    assert_eq!(site.telemetry.inflight("default"), 0, "ended once");
    drop(journal);
    assert_eq!(site.metric("tidegate_origin_inflight{scope=\"default\"}"), 0.0);
    assert_eq!(site.metric("tidegate_requests_total{class=\"person\",verdict=\"admitted\",reason=\"\"}"), 1.0);
}

#[test]
fn refusal_by_a_scope_names_the_scope_and_the_wait() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /item/1", &[]);
    journal.refuse_by_scope("backend".into(), Reason::Backoff, Some(7));
    journal.finish_local_response(StatusCode::SERVICE_UNAVAILABLE, 3);
    let line = line(&site);
    assert_eq!(
        (&line["verdict"], &line["reason"], &line["scope"]),
        (&json!("refused"), &json!("backoff"), &json!("backend"))
    );
    assert_eq!((&line["retry_after_s"], &line["status"]), (&json!(7), &json!(503)));
}

#[test]
fn request_for_which_the_gateway_has_no_capacity_counts_as_unsent() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /item/1", &[]);
    journal.begin_at_origin(None);
    journal.refuse_without_capacity(Some(5));
    assert!(matches!(journal.origin.stage, OriginStage::Unsent));
    drop(journal);
    let line = line(&site);
    assert_eq!((&line["reason"], &line["origin_ms"]), (&json!("throttle"), &Value::Null));
}

#[test]
fn preview_is_replaced_by_the_record() {
    let site = Site::new(QUOTA);
    let mut journal = site.journal("GET /item/1", &[]);
    mark_sent(&mut journal);
    journal.preview();
    assert_eq!(line(&site)["charged"], json!({"api": 0}));
    drop(journal);
    assert_eq!(line(&site)["charged"], json!({"api": 1}));
}

#[test]
fn bypass_of_the_cache_is_a_miss_only_if_a_copy_could_have_been_sent() {
    let site = Site::new(QUOTA);
    for (reason, result) in [
        (ForwardReason::Method, CacheResult::Bypass),
        (ForwardReason::Bypass, CacheResult::Bypass),
        (ForwardReason::UriMiss, CacheResult::Miss),
        (ForwardReason::Stale, CacheResult::Miss),
    ] {
        let mut journal = site.journal("GET /item/1", &[]);
        journal.cache.bypass(reason, None);
        assert_eq!((journal.cache.result, journal.cache.forward_reason), (Some(result), Some(reason)));
    }
}

#[test]
fn slots_of_an_answered_request_are_held_until_its_end() {
    let site = Site::new(SCOPE);
    let mut journal = site.journal("GET /", &[]);
    let slots = acquire_free_slots(&journal).expect("a free slot");
    journal.begin_at_origin(slots);
    assert!(journal.origin.answered_slots().is_none() && journal.origin.take_answered_slots().is_none());
    journal.origin.answer(site.clock.now(), Some(StatusCode::OK));
    assert!(journal.origin.answered_slots().is_some());
    assert!(acquire_free_slots(&journal).is_none());
    journal.end_at_origin();
    assert!(acquire_free_slots(&journal).is_some());
}

#[test]
fn scope_backs_off_after_a_failure_of_the_origin_but_not_of_the_client() {
    let site = Site::new(SCOPE);
    let failure = |error: ForwardError, is_for_origin_cache| {
        let mut journal = site.journal("GET /", &[]);
        let slots = acquire_free_slots(&journal)?;
        journal.begin_at_origin(slots);
        journal.origin.answer(site.clock.now(), None);
        report_to_scopes(&journal.known, &journal.origin, is_for_origin_cache, Err(&error))
    };
    let unreachable = || ForwardError::ConnectFailed { source: io::ErrorKind::ConnectionRefused.into() };
    let too_large = ForwardError::ClientBody(crate::gateway::upstream::ClientBodyError::TooLarge);
    assert!(failure(too_large, false).is_none());
    assert!(failure(ForwardError::PoolExhausted, false).is_none());
    assert!(failure(unreachable(), true).is_none(), "a request for the cache of the origin");
    let rejection = failure(unreachable(), false).expect("a backoff");
    assert_eq!((rejection.reason, &*rejection.scope), (Reason::Backoff, "default"));
    let answer = site.send("GET /", &[]);
    assert_eq!((answer.status, answer.logged("reason")), (503, "backoff".into()));
    assert_eq!(answer.logged("retry_after_s").to_string(), answer.field("retry-after"));
}

#[test]
fn aborted_body_releases_the_slots_before_the_end_of_the_request() {
    let site = Site::new(SCOPE);
    let mut journal = site.journal("GET /", &[]);
    let slots = acquire_free_slots(&journal).expect("a free slot");
    journal.begin_at_origin(slots);
    journal.origin.answer(site.clock.now(), Some(StatusCode::OK));
    let Journal { known, origin, .. } = &mut *journal;
    report_aborted_body(known, origin);
    assert!(journal.origin.answered_slots().is_none());
}

#[test]
fn forwarded_request_ends_with_its_client_unless_it_was_sent() {
    let site = Site::new(QUOTA);
    for (is_sent, aborts_on_disconnect, continues) in [(false, false, false), (true, false, true), (true, true, false)]
    {
        let is_done = Rc::new(Cell::new(false));
        let connection = site.connection();
        let client = ClientSide::new(&connection.connection_state, &fields_of(&[]), aborts_on_disconnect);
        let forwarding = Rc::clone(&client.forwarding);
        forwarding.set_sent(is_sent);
        let done = Rc::clone(&is_done);
        site.run(async {
            let work = Abandonable::new(
                || async move {
                    tokio::task::yield_now().await;
                    done.set(true);
                },
                Rc::clone(&forwarding),
                connection,
            );
            drop(work);
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
        let case = format!("sent: {is_sent}, aborts: {aborts_on_disconnect}");
        assert_eq!((is_done.get(), client.has_left()), (continues, continues), "{case}");
    }
}

#[test]
fn work_ends_at_its_deadline() {
    let site = Site::new(QUOTA);
    let upstream = site.worker.upstream();
    site.run(async {
        let deadline = upstream.new_deadline(Duration::from_secs(5));
        assert_eq!(within(&deadline, async { 7 }).await, Some(7));
        let work = within(&deadline, pending::<()>());
        let sweep = async {
            tokio::task::yield_now().await;
            site.advance(60);
            site.sweep();
        };
        let (ended, ()) = tokio::join!(work, sweep);
        assert_eq!(ended, None);
    });
}

#[test]
fn large_answer_of_the_gateway_itself_is_charged_to_the_memory_of_its_client() {
    let site = Site::new(&format!("crawl_policy: on{QUOTA}"));
    let connection = site.connection();
    let total = || connection.connection_state.memory().total();
    let idle = total();
    let request = tidegate_http1::Request {
        head: head("GET /.well-known/crawl-policy", &[]),
        body: crate::gateway::transport::client_body::ClientBody::Empty,
    };
    let response = site.run(super::super::handle(Rc::clone(&connection), request));
    assert_eq!(field(&response.fields, "vary"), "accept");
    let length = hyper::body::Body::size_hint(&response.body).exact().expect("a length");
    assert!(length > 4096, "{length}");
    assert_eq!(total(), idle + length);
    drop(response);
    assert_eq!(total(), idle);
}
