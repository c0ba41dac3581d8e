//! Request bodies, which are received whole before the request takes slots.

use super::site::{CLIENT, OTHER_CLIENT, Site, received_body};
use crate::gateway::exchange::handle;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use tidegate_http1::{Request, Response};

const LIMITED: &str = "
limits: { max_body_size: 1KiB, buffer_body: 1KiB, request_body_timeout: 5s, min_rate: 0B }
quotas: { api: { limit: 10, window: { fixed: 60s } } }
classes: [{ name: all }]
routes: [{ match: '/**', cost: { api: 1 } }]
";

/// A whole body of chunks.
fn chunked(data: &str) -> String {
    format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{data}\r\n0\r\n\r\n", data.len())
}

#[test]
fn body_is_received_before_the_origin_is_asked() {
    let site = Site::new(LIMITED);
    let answer = site.send_body("POST /", &[], &chunked(&"a".repeat(1024)));
    assert_eq!((answer.status, answer.logged("charged")), (502, json!({"api": 0})));
    assert_ne!(answer.logged("origin_ms"), Value::Null);
}

#[test]
fn body_beyond_the_limit_is_rejected_and_costs_nothing() {
    let site = Site::new(LIMITED);
    let answer = site.send_body("POST /", &[], &chunked(&"a".repeat(1025)));
    assert_eq!((answer.status, answer.logged("verdict")), (413, "admitted".into()));
    assert_eq!((answer.logged("charged"), answer.logged("origin_ms")), (json!({"api": 0}), Value::Null));
    let announced = site.send_body("POST /", &[], &format!("Content-Length: 1025\r\n\r\n{}", "a".repeat(1025)));
    assert_eq!(announced.status, 413);
}

#[test]
fn body_that_breaks_off_is_not_sent_to_the_origin() {
    let site = Site::new(LIMITED);
    let answer = site.send_broken_body("POST /", &[], "Content-Length: 9\r\n\r\nbody");
    assert_eq!((answer.status, answer.logged("origin_ms"), site.used()), (400, Value::Null, 0.0));
}

#[test]
fn body_that_the_decision_reads_is_not_sent_if_it_breaks_off() {
    for streams in [true, false] {
        let cost = format!("stream: {streams}, cost: {{ api: {{ json: a, default: 3 }} }}");
        let site = Site::new(&LIMITED.replace("cost: { api: 1 }", &cost));
        let answer = site.send_broken_body("POST /", &[], "Content-Length: 9\r\n\r\n{\"a\":");
        assert_eq!((answer.status, answer.logged("origin_ms"), site.used()), (400, Value::Null, 0.0));
        assert_eq!((answer.logged("cost"), answer.logged("charged")), (json!({"api": 3}), json!({"api": 0})));
        let whole = site.send_body("POST /", &[], "Content-Length: 7\r\n\r\n{\"a\":2}");
        assert_eq!((whole.status, whole.logged("cost")), (502, json!({"api": 2})));
        let long = format!("Content-Length: 1025\r\n\r\n{}", "a".repeat(1025));
        assert_eq!(site.send_body("POST /", &[], &long).status, 413);
        assert_eq!(site.send_body("POST /", &[], &chunked(&"a".repeat(1025))).status, 413, "stream: {streams}");
    }
}

#[test]
fn body_that_pauses_for_too_long_is_given_up() {
    let site = Site::new(LIMITED);
    let (connection, head) = (site.connection(), super::site::head("POST /", &[]));
    let Response { status, .. } = site.run(async {
        let body = received_body("Content-Length: 9\r\n\r\nbody", true).await;
        let answer = handle(connection, Request { head, body });
        let sweep = async {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            site.advance(6);
            site.sweep();
        };
        tokio::join!(answer, sweep).0
    });
    assert_eq!((status.as_u16(), site.used()), (408, 0.0));
}

#[test]
fn bodies_of_one_address_are_bounded() {
    let mut site = Site::new(LIMITED);
    let key = site.known("POST /", &[]).address_key();
    let max = NonZeroUsize::new(64).expect("not zero");
    let counts = &site.worker.shared().body_counts;
    let received: Vec<_> = (0..64).map(|_| counts.try_add(key, max).expect("within the bound")).collect();
    let answer = site.send_body("POST /", &[], &chunked("a"));
    assert_eq!(
        (answer.status, answer.logged("reason"), answer.logged("origin_ms")),
        (503, "throttle".into(), Value::Null)
    );
    site.peer = OTHER_CLIENT.into();
    assert_eq!(site.send_body("POST /", &[], &chunked("a")).status, 502, "another address");
    site.peer = CLIENT.into();
    drop(received);
    assert_eq!(site.send_body("POST /", &[], &chunked("a")).status, 502);
}

#[test]
fn refused_request_is_answered_before_its_body() {
    let site = Site::new(&LIMITED.replace("name: all", "name: all, block: true"));
    let answer = site.send_body("POST /", &[], "Content-Length: 9\r\n\r\nbody");
    assert_eq!((answer.status, answer.logged("reason")), (429, "blocked".into()));
}

#[test]
fn broken_bodies_are_no_missing_pages_for_bot_detection() {
    let site = Site::new(super::QUOTA);
    let answers: Vec<_> = (0..60)
        .map(|page| site.send_broken_body(&format!("GET /item/{page}"), &[], "content-length: 9\r\n\r\nhalf"))
        .collect();
    let scores: Vec<_> = answers.iter().map(|answer| answer.logged("bot_score").as_u64()).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).take(2).collect();
    // The points of the header fields of the first one.
    assert!(scores.iter().all(|score| *score == scores[0]), "{statuses:?} {scores:?}");
}
