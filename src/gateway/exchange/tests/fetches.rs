//! Fetches for the cache: who makes one, who waits for it, whom the cache of the origin answers, and those of the gateway itself.

use super::site::{Answer, BOT, Site, field};
use crate::gateway::cache::{CacheEntry, FetchEnd, FillOutcome, FillRequest};
use crate::gateway::exchange::answer::copy::respond_overdue;
use crate::gateway::exchange::answer::origin_cache::origin_cache_request;
use crate::gateway::exchange::answer::revalidation::revalidate;
use crate::gateway::exchange::cache_trip::CopyReason;
use crate::gateway::exchange::client_connection::{ClientConnection, Fill};
use crate::gateway::exchange::evaluate::evaluate;
use crate::gateway::exchange::fill::run_fills;
use crate::gateway::exchange::handle;
use crate::gateway::exchange::lookup::{CacheRole, cache_role};
use crate::gateway::exchange::origin_head::prepare_head;
use crate::gateway::exchange::throttle::acquire_free_slots;
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use serde_json::Value;
use std::collections::HashSet;
use std::rc::Rc;
use tidegate_http_cache::storage::Unstorable;
use tidegate_http_cache::{CacheStatus, ForwardReason};
use tidegate_http1::{Fields, Request, Response};
use tidegate_policy::cache::CacheFill;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

const CACHED: &str = "
origin: { url: 'http://origin.invalid', only_if_cached: true, response_timeout: 10s, max_connections: 8 }
cache: { disk: off, refresh: off, stale_if_error: 10m }
quotas: { api: { limit: 10, window: { fixed: 60s }, tiers: { bot: [{ above: 0%, shed: 100% }] } } }
classes: [{ name: bot, when: { kind: declared_bot } }, { name: person }]
routes: [{ match: '/item/*', cost: { api: 1 } }, { match: '/**' }]
";

const MINUTE: (&str, &str) = ("cache-control", "max-age=60");

/// Takes the part of the cache in a request of `site` while `meanwhile` runs.
fn role_while(site: &Site, line: &str, meanwhile: impl FnOnce()) -> CacheRole {
    let known = site.known(line, &[]);
    let mut now = site.clock.now();
    site.run(async {
        let waiting = cache_role(&known, &mut now);
        let other = async {
            tokio::task::yield_now().await;
            meanwhile();
        };
        tokio::join!(waiting, other).0
    })
}

/// Lets deadlines expire that are `seconds` away.
fn sweep_after(site: &Site, seconds: u64) {
    site.advance(seconds);
    site.sweep();
}

/// Queues a request that warms the cache. Returns where its outcome arrives once [`run_fills`] runs.
fn warm(site: &Site, url: &str, class: &str) -> oneshot::Receiver<Result<FillOutcome, String>> {
    let (reply, outcome) = oneshot::channel();
    let (url, fields, class) = (url.parse().expect("a URL"), Fields::new(), class.into());
    let request = FillRequest { url, fields, class, fill: CacheFill::Warm, reply };
    assert!(site.worker.shared().cache.fills.send(request), "no place");
    outcome
}

/// Passes a request of the gateway itself, made for `class`.
fn fill(site: &Site, reason: CacheFill, class: &str, line: &str) -> Answer {
    let state = ConnectionState::new(site.worker.monotonic_tick(), site.clock.clone(), u32::MAX);
    let (fill, _) = Fill::new(reason, class.into());
    let connection = ClientConnection::for_fill(Rc::clone(&site.worker), state, fill);
    let request = Request { head: super::site::head(line, &[]), body: ClientBody::Empty };
    let known: HashSet<_> = site.telemetry.recent_decisions().into_iter().collect();
    let Response { status, fields, .. } = site.run(handle(connection, request));
    let new = site.telemetry.recent_decisions().into_iter().find(|line| !known.contains(line));
    let line = new.map(|line| serde_json::from_slice(&line).expect("a line is JSON"));
    Answer { status: status.as_u16(), fields, body: String::new(), line }
}

#[test]
fn one_request_fetches_and_another_takes_its_response() {
    let site = Site::new(CACHED);
    let mut first = site.fetch("GET /item/1", &[]);
    let fetch = first.cache.fetch.take().expect("a fetch");
    assert!(fetch.guard.is_some());
    let role = role_while(&site, "GET /item/1", || site.store_response(&first, *fetch, &[MINUTE], "page"));
    let CacheRole::Copy(copy, CopyReason::Collapsed(ForwardReason::UriMiss)) = role else { panic!("no copy") };
    assert_eq!(copy.body.len(), 4);
}

#[test]
fn request_takes_over_a_fetch_that_was_left() {
    let site = Site::new(CACHED);
    let first = site.fetch("GET /item/1", &[]);
    let role = role_while(&site, "GET /item/1", || drop(first));
    let CacheRole::Fetch(fetch) = role else { panic!("no fetch") };
    assert!(fetch.guard.is_some(), "the next ones wait for this request");
}

#[test]
fn response_that_is_not_for_others_lets_all_fetch_at_once() {
    let site = Site::new(CACHED);
    let mut first = site.fetch("GET /item/1", &[]);
    let fetch = first.cache.fetch.as_mut().expect("a fetch");
    let (key, guard) = (fetch.url.key, fetch.guard.take().expect("a guard"));
    let pass = CacheEntry::pass(&fetch.url.url, site.clock.now());
    let role = role_while(&site, "GET /item/1", || {
        site.worker.shared().cache.store.insert(key, pass);
        guard.end(FetchEnd::Unshared);
    });
    let CacheRole::Fetch(fetch) = role else { panic!("no fetch") };
    assert!(fetch.guard.is_none());
    let next = site.cache_role("GET /item/1", &[]);
    assert!(matches!(next, CacheRole::Fetch(fetch) if fetch.guard.is_none()), "nobody waits");
}

#[test]
fn requests_with_credentials_do_not_wait_for_each_other() {
    let site = Site::new(CACHED);
    let fields = [("authorization", "Basic eA==")];
    let _first = site.fetch("GET /item/1", &fields);
    let CacheRole::Fetch(fetch) = site.cache_role("GET /item/1", &fields) else { panic!("no fetch") };
    assert!(fetch.guard.is_none() && fetch.is_personal);
}

#[test]
fn request_takes_over_a_fetch_that_takes_too_long() {
    let site = Site::new(CACHED);
    let _first = site.fetch("GET /item/1", &[]);
    let role = role_while(&site, "GET /item/1", || sweep_after(&site, 11));
    let CacheRole::Fetch(fetch) = role else { panic!("no fetch") };
    assert!(fetch.guard.is_some());
}

#[test]
fn refused_request_may_ask_the_cache_of_the_origin_once_it_is_trusted() {
    let site = Site::new(CACHED);
    let fetch = |line: &str| {
        let known = site.known(line, &[BOT]);
        let mut now = site.clock.now();
        let role = site.run(cache_role(&known, &mut now));
        let journal = site.run(evaluate(known, &role, now));
        let fetch = role.fetch_for_origin_cache(&journal);
        (journal, fetch)
    };
    let (journal, asked) = fetch("GET /item/1");
    let asked = asked.expect("trusted");
    assert!(asked.guard.is_none(), "others do not wait for it");
    let request = origin_cache_request(&journal, asked).expect("few are in flight");
    let (second, asked) = fetch("GET /item/2");
    assert!(origin_cache_request(&second, asked.expect("trusted")).is_none(), "an eighth of the connections");
    drop(request);
    let config = site.worker.config();
    config.distrust_origin_cache(journal.known.classified.route, site.clock.now());
    assert!(fetch("GET /item/3").1.is_none());
    site.advance(3600);
    assert!(fetch("GET /item/3").1.is_some(), "an hour later");
}

#[test]
fn refusal_stays_one_if_the_cache_of_the_origin_fails() {
    let site = Site::new(CACHED);
    let answer = site.send("GET /item/1", &[BOT]);
    assert_eq!((answer.status, answer.logged("reason"), answer.logged("origin_ms")), (429, "tier".into(), Value::Null));
    assert_eq!(site.used(), 0.0);
}

#[test]
fn request_of_the_gateway_itself_has_the_class_it_is_made_for() {
    let site = Site::new(CACHED);
    let answer = fill(&site, CacheFill::Warm, "bot", "GET /item/1");
    assert_eq!((answer.status, answer.logged("class"), answer.logged("fill")), (429, "bot".into(), "warm".into()));
    let answer = fill(&site, CacheFill::Warm, "person", "GET /free");
    assert_eq!((answer.status, answer.logged("client")), (502, "0.0.0.0".into()));
}

#[test]
fn request_of_the_gateway_itself_saves_nothing() {
    let site = Site::new(CACHED);
    site.store("GET /item/1", &[], &[MINUTE], "page");
    let answer = fill(&site, CacheFill::Warm, "person", "GET /item/1");
    assert_eq!((answer.status, answer.logged("cache")), (200, "hit".into()));
    assert!(site.telemetry.saved_units().is_empty());
    let CacheRole::Copy(copy, _) = site.cache_role("GET /item/1", &[]) else { panic!("no copy") };
    assert_eq!(copy.usage.get().0, 0, "no client has asked");
}

#[test]
fn outcome_of_a_request_of_the_gateway_itself_says_what_the_gateway_did() {
    let site = Site::new(CACHED);
    let of_origin = ("cache-status", "origin; hit; stored; detail=refused");
    site.store("GET /item/1", &[], &[MINUTE, of_origin], "page");
    let outcome = |path: &str, class| {
        let outcome = warm(&site, &format!("http://shop.example{path}"), class);
        site.run(async {
            tokio::select! {
                () = run_fills(Rc::clone(&site.worker)) => panic!("ended"),
                outcome = outcome => outcome.expect("a worker").expect("a response"),
            }
        })
    };
    let fresh = outcome("/item/1", "bot");
    assert_eq!((fresh.status, fresh.is_refused, fresh.is_stored), (200, false, false));
    assert_eq!(fresh.cache_status, "tidegate; hit; ttl=60");
    let refused = outcome("/item/2", "bot");
    assert_eq!((refused.status, refused.is_refused, refused.is_stored), (429, true, false));
    assert!(refused.retry_after_s.is_some() && refused.cache_status.is_empty(), "{refused:?}");
    let failed = outcome("/item/2", "person");
    assert_eq!((failed.status, failed.is_refused, failed.is_stored), (502, false, false));
    site.advance(61);
    let replaced = outcome("/item/1", "bot");
    assert_eq!((replaced.status, replaced.is_refused, replaced.retry_after_s), (200, true, None));
    assert_eq!(replaced.cache_status, "tidegate; hit; ttl=-1; detail=refused");
}

#[test]
fn page_counts_as_stored_once_it_is() {
    let site = Site::new(CACHED);
    let mut journal = site.fetch("GET /item/1", &[]);
    let status = |stored| CacheStatus::Forward { reason: ForwardReason::UriMiss, status: None, stored };
    journal.cache.status = Some(status(Some(Ok(()))));
    assert_eq!(journal.cache.final_status(), Some(status(None)), "its body broke off");
    journal.cache.is_stored = true;
    assert_eq!(journal.cache.final_status(), Some(status(Some(Ok(())))));
    journal.cache.give_up_storage();
    assert_eq!(journal.cache.final_status(), Some(status(Some(Err(Unstorable::TooLarge)))));
}

#[test]
fn request_of_the_gateway_itself_may_take_twice_the_timeout_of_its_route() {
    let site = Site::new(&CACHED.replace("routes: [", "routes: [{ match: '/slow/*', response_timeout: 60s }, "));
    let _first = site.fetch("GET /slow/1", &[]);
    let mut outcome = warm(&site, "http://shop.example/slow/1", "person");
    site.run(async {
        let sweeps = async {
            tokio::task::yield_now().await;
            sweep_after(&site, 25);
            tokio::task::yield_now().await;
        };
        tokio::select! { biased; () = run_fills(Rc::clone(&site.worker)) => {} () = sweeps => {} }
    });
    let outcome = outcome.try_recv();
    assert!(matches!(outcome, Err(TryRecvError::Empty)), "not twice that of the origin: {outcome:?}");
}

#[test]
fn retry_after_a_fetch_of_others_is_the_timeout_of_the_route() {
    let site = Site::new(&CACHED.replace("routes: [", "routes: [{ match: '/slow/*', response_timeout: 60s }, "));
    for (line, seconds) in [("GET /slow/1", 60), ("GET /free", 10)] {
        let response = respond_overdue(site.journal(line, &[]));
        let retry_after: u64 = field(&response.fields, "retry-after").parse().expect("seconds");
        assert!((seconds..=seconds * 2).contains(&retry_after), "{line}: {retry_after}");
        assert_eq!(response.status.as_u16(), 503);
    }
}

#[test]
fn validation_that_waits_for_slots_is_recorded_with_its_wait() {
    let site = Site::new(&format!("scopes: {{ default: {{ concurrency: 1, queue: {{ max_wait: 30s }} }} }}{CACHED}"));
    site.store("GET /item/1", &[], &[("cache-control", "max-age=60, stale-while-revalidate=60")], "page");
    site.advance(61);
    let other = site.journal("GET /free", &[]);
    let slot = acquire_free_slots(&other).expect("a free slot");
    let known = site.known("GET /item/1", &[]);
    let mut now = site.clock.now();
    let role = site.run(cache_role(&known, &mut now));
    let mut journal = site.run(evaluate(known, &role, now));
    let CacheRole::CopyAndFetch(_, fetch) = role else { panic!("no stale copy") };
    journal.cache.begin_fetch(fetch);
    let id = journal.known.id;
    site.run(async {
        let release = async {
            tokio::task::yield_now().await;
            site.advance(3);
            drop(slot);
        };
        tokio::join!(revalidate(journal), release)
    });
    let line: Value = serde_json::from_slice(&site.telemetry.decision(id).expect("a line")).expect("a line is JSON");
    assert_eq!((line["scope_wait_ms"].as_f64(), line["origin_ms"].as_f64()), (Some(3000.0), Some(0.0)));
}

#[test]
fn request_of_the_gateway_itself_says_how_the_page_was_asked_for() {
    let site = Site::new(CACHED);
    let state = ConnectionState::new(site.worker.monotonic_tick(), site.clock.clone(), u32::MAX);
    let (fill, _) = Fill::new(CacheFill::Refresh, "person".into());
    let connection = ClientConnection::for_fill(Rc::clone(&site.worker), state, fill);
    let mut known = site.known("GET /item/1", &[("x-forwarded-proto", "https")]);
    assert!(!known.is_https(), "a client is not believed");
    known.connection = connection;
    assert!(known.is_https());
    prepare_head(&mut known);
    assert_eq!(field(&known.request.head.fields, "x-forwarded-proto"), "https");
}
