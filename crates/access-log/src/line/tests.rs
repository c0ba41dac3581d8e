use super::super::record::RecordedOutcome;
use super::super::sample::{sample_record, sample_with};
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_policy::bot_detection::{HeadersSeen, Signal};
use tidegate_policy::class::Evidence;
use tidegate_policy::{BotId, ListId, OperatorId, Reason};

#[test]
fn log_line_contains_every_contract_field() {
    let line = written_line(&sample_record());
    let expected = json!({
        "time": "2026-11-21T09:14:03.123456Z", "settled": "2026-11-21T09:14:03.165356Z",
        "started_us": 1795230843000000u64, "id": "0000000000c0ffee",
        "client": "203.0.113.7", "key": "203.0.113.7", "method": "GET", "host": "example.com", "path": "/item/42",
        "query": "ref=home&page=2", "version": "1.1", "status": 200, "bytes": 5120,
        "user_agent": String::from_utf8_lossy(sample_record().request.user_agent), "referer": "https://example.com/",
        "headers_seen": ["accept", "accept-language", "sec-fetch-mode"],
        "tls": true, "http_10": false, "kind": "human", "class": "person",
        "operator": null, "evidence": ["user_agent_no_match"], "route": "/item/*", "cost": {"places_api": 1},
        "charged": {"places_api": 0}, "verdict": "admitted", "reason": null, "shadow_reason": null, "retry_after_s": null,
        "tier": null, "guard_admitted": false, "bot_score": null, "used": {"places_api": 6012.25}, "seq": {"places_api": 6044}, "settle_seq": {"places_api": 6051}, "bucket_seq": null, "scope": null, "scope_wait_ms": 0, "origin_ms": 41.2, "total_ms": 41.9,
        "cache": null,
    });
    assert_eq!(line, expected);
}

#[test]
fn low_bot_score_and_guard_admission_are_logged() {
    let mut out = Vec::new();
    LineWriter::starting_at(Timestamp::default()).write_json(
        &mut out,
        &sample_with(|it| {
            it.client.bot_score = Some(83);
            it.decision.guard_admitted = true;
        }),
    );
    let line: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(
        (&line["bot_score"], &line["guard_admitted"], &line["kind"]),
        (&json!(83), &json!(true), &json!("human"))
    );
}

#[test]
fn refusal_line_has_reason_and_retry_after() {
    let record = sample_with(|it| {
        it.decision.outcome = RecordedOutcome::Refused(Reason::Tier);
        it.response.status = 429;
        it.decision.retry_after_s = Some(120);
        it.decision.tier = Some(2);
        it.response.origin = None;
        it.client.evidence =
            &[Some(Evidence::UserAgentMatch(BotId(0))), Some(Evidence::AddressVerified(OperatorId(0)))];
        it.client.operator = Some(OperatorId(0));
    });
    let line = written_line(&record);
    assert_eq!(line["reason"], "tier");
    assert_eq!((&line["retry_after_s"], &line["tier"]), (&json!(120), &json!(2)));
    assert_eq!(line["origin_ms"], Value::Null);
    assert_eq!(line["evidence"], json!(["user_agent_match:bot", "address_verified:googlebot"]));
}

#[test]
fn suspected_bot_line_has_signals_and_list() {
    let record = sample_with(|it| {
        it.client.headers_seen = HeadersSeen::USER_AGENT;
        it.client.evidence = &[
            Some(Evidence::UserAgentNoMatch),
            None,
            Some(Evidence::Behavior(Signal::NoLinks)),
            Some(Evidence::Behavior(Signal::NoAssets)),
            Some(Evidence::AddressList(ListId(0))),
        ];
    });
    let line = written_line(&record);
    assert_eq!(
        line["evidence"],
        json!(["user_agent_no_match", "behavior:no_links", "behavior:no_assets", "address_list:hosting"])
    );
    // The headers were not examined, so a header that is not listed may have been present.
    assert_eq!((&line["headers_seen"], &line["tls"]), (&json!(["user-agent"]), &Value::Null));
}

#[test]
fn ipv6_client_line_has_its_network_key() {
    let client = "2001:db8:1:2:3::4".parse().expect("an address");
    let trust = tidegate_policy::identity::ProxyTrust { ipv6_prefix: 64, ..Default::default() };
    let line = written_line(&sample_with(|it| {
        it.client.address = client;
        it.client.key = trust.key(client);
    }));
    assert_eq!((&line["client"], &line["key"]), (&json!("2001:db8:1:2:3::4"), &json!("2001:db8:1:2::")));
}

#[test]
fn line_format_is_stable_to_the_byte() {
    let mut out = Vec::new();
    let started = Timestamp::from_seconds(1_795_230_843);
    LineWriter::starting_at(started).write_json(
        &mut out,
        &sample_with(|it| {
            it.request.query = None;
            it.response.origin = None;
            it.decision.tier = Some(2);
        }),
    );
    let expected = concat!(
        r#"{"time":"2026-11-21T09:14:03.123456Z","settled":"2026-11-21T09:14:03.165356Z","started_us":1795230843000000,"id":"0000000000c0ffee","#,
        r#""client":"203.0.113.7","key":"203.0.113.7","method":"GET","host":"example.com","path":"/item/42","#,
        r#""query":null,"version":"1.1","status":200,"bytes":5120,"user_agent":"Mozilla/5.0 (X11; Linux x86_64) "#,
        r#"AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36","referer":"https://example.com/","#,
        r#""headers_seen":["accept","accept-language","sec-fetch-mode"],"tls":true,"http_10":false,"kind":"human","class":"person","#,
        r#""operator":null,"evidence":["user_agent_no_match"],"route":"/item/*","cost":{"places_api":1},"#,
        r#""charged":{"places_api":0},"verdict":"admitted","reason":null,"shadow_reason":null,"retry_after_s":null,"tier":2,"guard_admitted":false,"bot_score":null,"#,
        r#""used":{"places_api":6012.25},"seq":{"places_api":6044},"settle_seq":{"places_api":6051},"bucket_seq":null,"scope":null,"scope_wait_ms":0,"origin_ms":null,"#,
        r#""total_ms":41.9,"cache":null}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
}

proptest! {
    #[test]
    fn any_request_gives_one_valid_line(
        user_agent in any::<Vec<u8>>(), referer in any::<Option<Vec<u8>>>(), path in any::<String>(),
        query in any::<Option<String>>(), host in any::<String>(), route in any::<String>(), status in any::<u16>(),
        class in "[a-z0-9_.-]{1,64}", times in any::<(u64, u64)>(),
    ) {
        let record = sample_with(|it| {
            it.admitted_at = Timestamp(times.0);
            it.settled_at = Timestamp(times.1);
            it.request.user_agent = &user_agent;
            it.request.referer = referer.as_deref();
            it.request.path = &path;
            it.request.query = query.as_deref();
            it.request.host = host.as_bytes();
            it.client.class_name = &class;
            it.decision.route_name = &route;
            it.response.status = status;
        });
        let line = written_line(&record);
        prop_assert_eq!(line["path"].as_str(), Some(path.as_str()));
        prop_assert_eq!(line["class"].as_str(), Some(class.as_str()));
        prop_assert_eq!(line["route"].as_str(), Some(route.as_str()));
    }
}

fn written_line(record: &Record<'_>) -> Value {
    let mut out = Vec::new();
    LineWriter::starting_at(Timestamp::from_seconds(1_795_230_843)).write_json(&mut out, record);
    assert_eq!(out.iter().position(|&byte| byte == b'\n'), Some(out.len() - 1), "exactly one line");
    serde_json::from_slice(&out).expect("valid JSON")
}
