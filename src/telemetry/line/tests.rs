use super::super::record::RecordedOutcome;
use super::super::sample::{TestNames, person};
use super::*;
use crate::policy::address_lists::ListId;
use crate::policy::bot_detection::{HeadersSeen, Signal};
use crate::policy::class::Evidence;
use crate::policy::{BotId, ClassId, OperatorId, QuotaId, Reason, Units};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_line_holds_all_that_the_contract_promises() {
    let line = written(&person());
    let expected = json!({
        "time": "2026-11-21T09:14:03.123456Z", "settled": "2026-11-21T09:14:03.165356Z",
        "run": 1795230843000000u64, "id": "0000000000c0ffee",
        "client": "203.0.113.7", "key": "203.0.113.7", "method": "GET", "host": "example.com", "path": "/item/42",
        "query": "ref=home&page=2", "version": "1.1", "status": 200, "bytes": 5120,
        "user_agent": String::from_utf8_lossy(person().user_agent), "referer": "https://example.com/",
        "headers_seen": ["accept", "accept-language", "sec-fetch-mode"],
        "secure": true, "old_http": false, "kind": "human", "class": "person",
        "operator": null, "evidence": ["names_no_bot"], "route": "/item/*", "cost": {"places_api": 1},
        "charged": {"places_api": 0}, "verdict": "admitted", "reason": null, "shadow": null, "retry_after_s": null,
        "tier": null, "guarded": false, "suspicion": null, "used": {"places_api": 6012.25}, "turn": {"places_api": 6044}, "settled_turn": {"places_api": 6051}, "bucket_turn": null, "scope": null, "scope_wait_ms": 0, "origin_ms": 41.2, "total_ms": 41.9,
        "cache": null,
    });
    assert_eq!(line, expected);
}

#[test]
fn points_short_of_the_threshold_and_what_the_guard_lets_through_are_told() {
    let mut out = Vec::new();
    LineWriter::default().write_json(&mut out, &Record { bot_score: Some(83), guarded: true, ..person() });
    let line: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!((&line["suspicion"], &line["guarded"], &line["kind"]), (&json!(83), &json!(true), &json!("human")));
}

#[test]
fn a_refusal_says_why_and_when_to_come_back() {
    let record = Record {
        outcome: RecordedOutcome::Refused(Reason::Tier),
        status: 429,
        retry_after_s: Some(120),
        tier: Some(2),
        origin: None,
        evidence: &[Some(Evidence::UserAgentMatch(BotId(0))), Some(Evidence::AddressVerified(OperatorId(0)))],
        operator: Some(OperatorId(0)),
        ..person()
    };
    let line = written(&record);
    assert_eq!(line["reason"], "tier");
    assert_eq!((&line["retry_after_s"], &line["tier"]), (&json!(120), &json!(2)));
    assert_eq!(line["origin_ms"], Value::Null);
    assert_eq!(line["evidence"], json!(["names_bot:bot", "address_published:googlebot"]));
}

#[test]
fn a_suspected_bot_is_told_with_its_signs_and_its_list() {
    let record = Record {
        headers_seen: HeadersSeen::USER_AGENT,
        evidence: &[
            Some(Evidence::UserAgentNoMatch),
            None,
            Some(Evidence::Behavior(Signal::NoLinks)),
            Some(Evidence::Behavior(Signal::NoAssets)),
            Some(Evidence::AddressList(ListId(0))),
        ],
        ..person()
    };
    let line = written(&record);
    assert_eq!(line["evidence"], json!(["names_no_bot", "behaves:no_links", "behaves:no_assets", "on_list:hosting"]));
    // Nobody has looked at the headers: what is not named may have been there.
    assert_eq!((&line["headers_seen"], &line["secure"]), (&json!(["user-agent"]), &Value::Null));
}

#[test]
fn an_ipv6_client_is_written_with_the_network_that_pays() {
    let client = "2001:db8:1:2:3::4".parse().expect("an address");
    let trust = crate::policy::identity::ProxyTrust { ipv6_prefix: 64, ..Default::default() };
    let line = written(&Record { client, key: trust.key(client), ..person() });
    assert_eq!((&line["client"], &line["key"]), (&json!("2001:db8:1:2:3::4"), &json!("2001:db8:1:2::")));
}

#[test]
fn the_form_of_a_line_is_kept_to_the_byte() {
    let mut out = Vec::new();
    let started = Timestamp::from_seconds(1_795_230_843);
    LineWriter::starting_at(started)
        .write_json(&mut out, &Record { query: None, origin: None, tier: Some(2), ..person() });
    let expected = concat!(
        r#"{"time":"2026-11-21T09:14:03.123456Z","settled":"2026-11-21T09:14:03.165356Z","run":1795230843000000,"id":"0000000000c0ffee","#,
        r#""client":"203.0.113.7","key":"203.0.113.7","method":"GET","host":"example.com","path":"/item/42","#,
        r#""query":null,"version":"1.1","status":200,"bytes":5120,"user_agent":"Mozilla/5.0 (X11; Linux x86_64) "#,
        r#"AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36","referer":"https://example.com/","#,
        r#""headers_seen":["accept","accept-language","sec-fetch-mode"],"secure":true,"old_http":false,"kind":"human","class":"person","#,
        r#""operator":null,"evidence":["names_no_bot"],"route":"/item/*","cost":{"places_api":1},"#,
        r#""charged":{"places_api":0},"verdict":"admitted","reason":null,"shadow":null,"retry_after_s":null,"tier":2,"guarded":false,"suspicion":null,"#,
        r#""used":{"places_api":6012.25},"turn":{"places_api":6044},"settled_turn":{"places_api":6051},"bucket_turn":null,"scope":null,"scope_wait_ms":0,"origin_ms":null,"#,
        r#""total_ms":41.9,"cache":null}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
}

/// What a request may be told apart by, drawn from so few values that passages are met again.
#[derive(Debug, Clone)]
struct Drawn {
    settings: u64,
    class: u16,
    route: usize,
    bot: u16,
    proven: bool,
    refused: bool,
    charges: Vec<(u16, u64, u64)>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let charges = proptest::collection::vec((0..2_u16, 0..2_u64, 0..2_u64), 0..3);
    (0..2_u64, 0..2_u16, 0..2_usize, 0..2_u16, any::<(bool, bool)>(), charges).prop_map(
        |(settings, class, route, bot, (proven, refused), charges)| Drawn {
            settings,
            class,
            route,
            bot,
            proven,
            refused,
            charges,
        },
    )
}

proptest! {
    #[test]
    fn what_is_remembered_is_what_would_be_written_anew(requests in proptest::collection::vec(drawn(), 1..60)) {
        let mut remembering = LineWriter::default();
        for drawn in requests {
            let name = |what: &str, number: u64| format!("{what} {number} of \"{}\"", drawn.settings);
            let names = TestNames(drawn.settings);
            let class_name = name("class", drawn.class.into());
            let route_name = name("route", drawn.route as u64);
            let quota_names = [name("quota", 0), name("quota", 1)];
            let charge = |&(quota, expected, settled): &(u16, u64, u64)| QuotaCharge {
                quota: QuotaId(quota),
                quota_name: &quota_names[usize::from(quota)],
                expected: Units::from_whole(expected),
                settled: Units::from_whole(settled),
                sequence: 1,
                settle_sequence: 2,
                retry_sequence: None,
                used: Units::ZERO,
            };
            let charges: Vec<_> = drawn.charges.iter().map(charge).collect();
            let record = Record {
                names: &names,
                class: ClassId(drawn.class),
                class_name: &class_name,
                route: drawn.route,
                route_name: &route_name,
                operator: drawn.proven.then_some(OperatorId(0)),
                evidence: &[Some(Evidence::AgentRule(drawn.bot)), None],
                charges: &charges,
                bucket_sequence: None,
                outcome: match drawn.refused {
                    true => RecordedOutcome::Refused(Reason::Quota),
                    false => RecordedOutcome::Admitted { shadow: None },
                },
                ..person()
            };
            let (mut remembered, mut fresh) = (Vec::new(), Vec::new());
            remembering.write_json(&mut remembered, &record);
            LineWriter::default().write_json(&mut fresh, &record);
            prop_assert_eq!(remembered, fresh);
        }
    }

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
            host: host.as_bytes(),
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
    LineWriter::starting_at(Timestamp::from_seconds(1_795_230_843)).write_json(&mut out, record);
    assert_eq!(out.iter().position(|&byte| byte == b'\n'), Some(out.len() - 1), "exactly one line");
    serde_json::from_slice(&out).expect("valid JSON")
}
