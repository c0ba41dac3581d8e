use super::super::record::Outcome;
use super::super::sample::person;
use super::*;
use crate::policy::{BotId, OperatorId};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_line_holds_all_that_the_contract_promises() {
    let line = written(&person());
    let expected = json!({
        "time": "2026-11-21T09:14:03.123456Z", "settled": "2026-11-21T09:14:03.165356Z", "id": "0000000000c0ffee",
        "client": "203.0.113.7", "key": "203.0.113.7", "method": "GET", "host": "example.com", "path": "/item/42",
        "query": "ref=home&page=2", "version": "1.1", "status": 200, "bytes": 5120,
        "user_agent": String::from_utf8_lossy(person().user_agent), "referer": "https://example.com/",
        "headers_seen": ["accept", "accept-language", "sec-fetch-mode"], "kind": "human", "class": "person",
        "operator": null, "evidence": ["names_no_bot"], "route": "/item/*", "cost": {"places_api": 1},
        "charged": {"places_api": 0}, "verdict": "admitted", "reason": null, "shadow": null, "retry_after_s": null,
        "tier": null, "used": {"places_api": 6012.25}, "turn": {"places_api": 6044}, "scope_wait_ms": 0, "origin_ms": 41.2, "total_ms": 41.9,
        "cache": null,
    });
    assert_eq!(line, expected);
}

#[test]
fn a_refusal_says_why_and_when_to_come_back() {
    let record = Record {
        outcome: Outcome::Refused(Reason::Tier),
        status: 429,
        retry_after_s: Some(120),
        tier: Some(2),
        origin: None,
        evidence: &[Some(Evidence::NamesBot(BotId(0))), Some(Evidence::AddressPublished(OperatorId(0)))],
        operator: Some("googlebot"),
        ..person()
    };
    let line = written(&record);
    assert_eq!(line["reason"], "tier");
    assert_eq!((&line["retry_after_s"], &line["tier"]), (&json!(120), &json!(2)));
    assert_eq!(line["origin_ms"], Value::Null);
    assert_eq!(line["evidence"], json!(["names_bot:bot", "address_published:googlebot"]));
}

#[test]
fn an_ipv6_client_is_written_with_the_network_that_pays() {
    let client = "2001:db8:1:2:3::4".parse().expect("an address");
    let trust = crate::policy::identity::Trust { ipv6_prefix: 64, ..Default::default() };
    let line = written(&Record { client, key: trust.key(client), ..person() });
    assert_eq!((&line["client"], &line["key"]), (&json!("2001:db8:1:2:3::4"), &json!("2001:db8:1:2::")));
}

proptest! {
    #[test]
    fn whatever_a_client_sends_is_one_valid_line(
        user_agent in any::<Vec<u8>>(), referer in any::<Option<Vec<u8>>>(), path in any::<String>(),
        query in any::<Option<String>>(), host in any::<String>(), class in any::<String>(), status in any::<u16>(),
        times in any::<(u64, u64)>(),
    ) {
        let record = Record {
            admitted: crate::policy::Timestamp(times.0),
            settled: crate::policy::Timestamp(times.1),
            user_agent: &user_agent,
            referer: referer.as_deref(),
            path: &path,
            query: query.as_deref(),
            host: &host,
            class_name: &class,
            status,
            ..person()
        };
        let line = written(&record);
        prop_assert_eq!(line["path"].as_str(), Some(path.as_str()));
        prop_assert_eq!(line["class"].as_str(), Some(class.as_str()));
    }
}

fn written(record: &Record<'_>) -> Value {
    let mut out = Vec::new();
    LineWriter::default().write_json(&mut out, record);
    assert_eq!(out.iter().position(|&byte| byte == b'\n'), Some(out.len() - 1), "exactly one line");
    serde_json::from_slice(&out).expect("valid JSON")
}
