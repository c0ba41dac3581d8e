use super::cache::CacheUsage;
use super::corrections::CorrectionDocument;
use super::server::{ConnectionLimits, serve, serve_within};
use super::state::{
    OriginDocument, PathCostDocument, ReloadFailureDocument, ScopeDocument, SettingsDocument, SwitchDocument, views,
};
use super::*;
use crate::gateway::{CachePurge, CacheStats, CachedUrl, DiskStats, FillOutcome, OriginOutage, OriginServerView};
use crate::telemetry::{ClassTraffic, ResponseCounts};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate_access_log::rfc3339;
use tidegate_config::admin_address::AdminAddress;
use tidegate_engine::clock::Clock;
use tidegate_engine::spenders::{Spender, TopSpenders};
use tidegate_engine::switch_store::SwitchEntry;
use tidegate_engine::{
    ClassPlan, ClassView, ClientView, Demand, PathCostView, PlanView, QuotaView, ScopeState, UnknownQuota,
};
use tidegate_policy::pacing::PacingMode;
use tidegate_policy::path_costs::Generalization;
use tidegate_policy::secret::Secret;
use tidegate_policy::tier::{Share, Tier};
use tidegate_policy::{ClientKind, Reason, Timestamp, Units};
use tidegate_replay::explain::Explanation;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower::ServiceExt;

#[tokio::test]
async fn gateway_without_origin_address_is_alive_not_ready() {
    let gateway = FakeGateway {
        not_ready_reasons: vec!["The origin's name has not been resolved.".into()],
        ..FakeGateway::new()
    };
    let liveness = gateway.request_with_headers("GET /healthz").await;
    assert_eq!(liveness.status, 200);
    let readiness = gateway.request_with_headers("GET /readyz").await;
    assert_eq!(readiness.status, 503);
    assert_eq!(readiness.json()["detail"], "The origin's name has not been resolved.");
    assert_eq!(FakeGateway::new().request_with_headers("GET /readyz").await.status, 200);
}

#[tokio::test]
async fn metrics_use_the_prometheus_text_format() {
    let response = FakeGateway::new().request_with_headers("GET /metrics").await;
    assert_eq!(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(response.body, "tidegate_up 1\n");
}

#[tokio::test]
async fn state_shows_quotas_classes_scopes_and_top_clients() {
    let state = FakeGateway::new().request_with_headers("GET /api/v1/state").await.json();
    assert_eq!(state["uptime_s"], 60);
    assert_eq!(state["quotas"][0]["used"], json!(12.25));
    assert_eq!(state["quotas"][0]["remaining"], json!(84.75));
    assert_eq!(state["quotas"][0]["window_end"], "1970-01-02T00:00:00Z");
    assert_eq!(
        state["quotas"][0]["classes"][0],
        json!({"class": "bot", "charged": 12, "shed": 0.5, "tier": 1, "tiers": [{"above": 10, "shed": 0.5}], "guard_units": 1, "plan": {"admit_share": 0.25, "tokens": 3, "refill_per_hour": 2, "forecast_24h": [1.5, 2.0]}})
    );
    assert_eq!(
        state["quotas"][0]["pacing"],
        json!({"mode": "learned", "planned": 40, "earmarked": 9, "unpaced_demand_ratio": 1.5})
    );
    let limited = json!({"key": "203.0.113.7", "class": "bot", "refused": 9, "bucket_remaining": 0, "limited_by": "bucket", "limited_for_s": 8});
    assert_eq!(state["top_clients"][0], limited);
    assert_eq!(state["classes"], json!(["bot"]));
    let traffic = json!({"class": "bot", "admitted": 7, "refused": 4, "refused_by": {"tier": 3, "bucket": 1}, "shadow_refused": 2, "shadow_refused_by": {"quota": 2}, "responses": {"statuses": {"2xx": 7, "429": 4}, "bytes": 5120, "median_ms": null, "p95_ms": null}});
    assert_eq!(state["traffic"], json!([traffic]));
    assert_eq!(state["spenders"]["since"], "1970-01-01T01:00:00Z");
    let client = json!({"name": "203.0.113.7", "kind": "human", "requests": 4, "refused": 1, "units": 3, "units_asked": 4, "latest_decision": "000000000000beef", "evidence": ["behavior:fast_pages"], "evidence_text": ["behaves like a bot: loads pages faster than anyone reads them"]});
    assert_eq!(state["spenders"]["clients"], json!([client]));
    let path = json!({"name": "/item/42", "requests": 4, "refused": 1, "units": 3, "units_asked": 4, "latest_decision": "000000000000beef"});
    assert_eq!(state["spenders"]["paths"], json!([path]));
    let throttled = json!({"name": "default", "inflight": 2, "queue_length": 3, "limit": 4, "delay_s": 0.25, "backoff_s": 7.5, "backoff_level": 2, "backoff_parts": 3, "controller": "gradient"});
    assert_eq!(state["scopes"][0], throttled);
    assert_eq!(
        state["scopes"][1],
        json!({"name": "open", "inflight": 0}),
        "an unthrottled scope has no further fields"
    );
    let acme = json!({"partition": "acme", "inflight": 2, "queue_length": 3, "limit": 4, "delay_s": 0.25, "backoff_s": 7.5, "backoff_level": 2, "backoff_parts": 3, "controller": "gradient"});
    assert_eq!(
        (&state["scopes"][2]["partitions"], &state["scopes"][2]["busiest_partitions"]),
        (&json!(1200), &json!([acme]))
    );
}

#[tokio::test]
async fn state_shows_addresses_and_failed_reload() {
    let state = FakeGateway::new().request_with_headers("GET /api/v1/state").await.json();
    for (key, value) in [
        ("version", json!("1.2.3")),
        ("revision", json!("abc")),
        ("listen", json!(["127.0.0.1:8080"])),
        ("admin", json!("127.0.0.1:9090")),
        (
            "origin",
            json!({"authority": "site:3000", "resolved": false, "addresses": [], "servers": [{"url": "http://site:3000", "healthy": true, "in_flight": 2, "failures": 1, "last_error": "connection refused"}], "outage": {"since": "1970-01-01T00:01:40Z", "failed_requests": 3, "last_error": "connection refused"}}),
        ),
        ("connections", json!(4)),
        ("log_lines_dropped", json!(7)),
        ("corrections", json!([])),
    ] {
        assert_eq!(state[key], value, "{key}");
    }
    let failed = json!({"time": "1970-01-01T00:02:40Z", "errors": "routes: wrong"});
    assert_eq!(state["settings"], json!({"loaded_at": "1970-01-01T00:01:40Z", "last_reload_failed": failed}));
}

#[tokio::test]
async fn single_quota_is_returned_by_name() {
    let gateway = FakeGateway::new();
    let single = gateway.request_with_headers("GET /api/v1/quotas/places_api").await;
    assert_eq!(single.json(), gateway.request_with_headers("GET /api/v1/quotas").await.json()[0]);
    assert_eq!(single.json()["window_ends_in_s"], 86_400 - 160);
    let unknown = gateway.request_with_headers("GET /api/v1/quotas/places").await;
    assert_eq!(unknown.json()["detail"], "quota: unknown name \"places\"; known: places_api");
    assert_eq!(unknown.problem_status(), 404);
}

#[tokio::test]
async fn manual_correction_is_exact_to_a_thousandth() {
    let gateway = FakeGateway::new();
    let response = gateway.put("/api/v1/quotas/places_api/used", r#"{"used": 40.125}"#).await;
    assert_eq!(response.json(), json!({"name": "places_api", "from": 12.25, "to": 40.125}));
    let response = gateway.put("/api/v1/quotas/places_api/used", r#"{"used": "12.25", "by": "ann"}"#).await;
    assert_eq!(response.json(), json!({"name": "places_api", "from": 40.125, "to": 12.25}));
    assert_eq!(gateway.put("/api/v1/quotas/places_api/used", r#"{"used": 100}"#).await.status, 200, "the whole limit");
    for (body, from) in [("", 100), (r#"{"by": "ann"}"#, 0)] {
        let response = gateway.send("POST /api/v1/quotas/places_api/reset", Body::from(body)).await;
        assert_eq!(response.json(), json!({"name": "places_api", "from": from, "to": 0}));
    }
}

#[tokio::test]
async fn invalid_correction_reports_every_error_and_changes_nothing() {
    let gateway = FakeGateway::new();
    let name = "by: empty, too long, or with characters that change the display; give 1 to 64 printable ones";
    let range = "give a number from 0 to 100, such as 12 or 0.25";
    for (sent, errors) in [
        (r#"{"used": 100.001}"#, vec!["used: 100.001 exceeds the limit; give a number from 0 to 100".to_owned()]),
        (r#"{"used": -1}"#, vec![format!("used: found -1; {range}")]),
        (r#"{"used": "many"}"#, vec![format!("used: found \"many\"; {range}")]),
        (r#"{"used": true}"#, vec![format!("used: found true; {range}")]),
        (r#"{"used": [], "by": "a\nb"}"#, vec![format!("used: found []; {range}"), name.to_owned()]),
        (r#"{"used": 1, "by": "a\nb"}"#, vec![name.to_owned()]),
    ] {
        let response = gateway.put("/api/v1/quotas/places_api/used", sent).await;
        assert_eq!(response.json()["detail"], errors.join("\n"), "{sent}");
        assert_eq!(response.problem_status(), 422);
    }
    for invalid in ["", "{}", "[]", r#"{"used": 1, "limit": 2}"#, "{\"used\": 1e300}"] {
        assert_eq!(gateway.put("/api/v1/quotas/places_api/used", invalid).await.problem_status(), 422, "{invalid}");
    }
    assert_eq!(gateway.send("POST /api/v1/quotas/places_api/reset", Body::from("[]")).await.problem_status(), 422);
    let unknown = gateway.put("/api/v1/quotas/nobodys/used", r#"{"used": -1}"#).await;
    let errors = unknown.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(errors.contains("known: places_api\nused: found -1; give a number of at least 0"), "{errors}");
    assert_eq!(unknown.problem_status(), 404);
    assert_eq!(gateway.send("POST /api/v1/quotas/nobodys/reset", Body::empty()).await.problem_status(), 404);
    assert_eq!(*gateway.used.lock(), Units::from_milli(12_250));
}

#[tokio::test]
async fn recent_corrections_are_listed_with_their_actor() {
    let corrections = Corrections::new(true);
    for used in 1..=25 {
        corrections.record(CorrectionDocument {
            time: rfc3339(Timestamp::from_seconds(used)),
            quota: "api".into(),
            from: Units::from_whole(used - 1).into(),
            to: Units::from_whole(used).into(),
            peer: Some("127.0.0.1:4000".into()),
            by: (used == 25).then(|| "ann".to_owned()),
            ..CorrectionDocument::default()
        });
    }
    let list = serde_json::to_value(corrections.list()).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(20));
    let latest = json!({
        "time": "1970-01-01T00:00:25Z", "quota": "api", "from": 24, "to": 25, "peer": "127.0.0.1:4000", "token": true,
        "by": "ann",
    });
    assert_eq!((&list[0], &list[19]["to"], &list[19]["by"]), (&latest, &json!(6), &Value::Null));
}

#[tokio::test]
async fn decision_is_found_by_its_hexadecimal_id() {
    let gateway = FakeGateway::new();
    let found = gateway.request_with_headers("GET /api/v1/decisions/000000000000beef").await;
    assert_eq!((found.status, &found.json()["verdict"]), (200, &json!("refused")));
    assert_eq!(gateway.request_with_headers("GET /api/v1/decisions/000000000000dead").await.problem_status(), 404);
    for invalid in ["beef", "zzzzzzzzzzzzzzzz", "+00000000000beef"] {
        assert_eq!(
            gateway.request_with_headers(&format!("GET /api/v1/decisions/{invalid}")).await.problem_status(),
            400,
            "{invalid}"
        );
    }
}

#[tokio::test]
async fn failed_reload_returns_the_config_errors() {
    assert_eq!(FakeGateway::new().request_with_headers("POST /api/v1/reload").await.json()["reloaded"], true);
    let gateway = FakeGateway { config_errors: Some("routes[0].cost: found -1".into()), ..FakeGateway::new() };
    let response = gateway.request_with_headers("POST /api/v1/reload").await;
    assert!(response.json()["detail"].as_str().is_some_and(|detail| detail.contains("routes[0].cost")));
    assert_eq!(response.problem_status(), 422);
}

#[tokio::test]
async fn every_error_is_a_problem_document() {
    let gateway = FakeGateway::new();
    assert_eq!(gateway.request_with_headers("GET /nothing").await.problem_status(), 404);
    let unsupported = gateway.request_with_headers("DELETE /api/v1/state").await;
    assert_eq!(unsupported.problem_status(), 405);
    assert_eq!(unsupported.header("allow"), "GET,HEAD");
    let long = "1".repeat(MAX_BODY_BYTES + 1);
    assert_eq!(gateway.put("/api/v1/quotas/places_api/used", &long).await.problem_status(), 413);
    assert_eq!(gateway.request_with_headers("GET /api/v1/decisions/%ff").await.problem_status(), 400);
}

#[tokio::test]
async fn token_is_required_except_for_health_checks() {
    let gateway = FakeGateway { token: Some("secret".into()), ..FakeGateway::new() };
    for header in ["", "authorization: Bearer secre", "authorization: Bearer secretly", "authorization: Basic secret"] {
        for path in ["/metrics", "/api/v1/state", "/nothing"] {
            let response = gateway.request_with_headers(&format!("GET {path}\n{header}")).await;
            assert_eq!(response.problem_status(), 401, "{path} {header}");
            assert_eq!(response.header("www-authenticate"), "Bearer");
        }
    }
    assert_eq!(gateway.request_with_headers("GET /healthz").await.status, 200);
    let remote = "GET /metrics\nauthorization: bearer secret\nhost: gate.internal:9090";
    assert_eq!(gateway.request_with_headers(remote).await.status, 200, "a valid token is accepted with any Host");
}

#[tokio::test]
async fn read_token_permits_no_changes() {
    let gateway = FakeGateway { token: Some("secret".into()), ..FakeGateway::new() };
    let read = "authorization: Bearer readers";
    for path in ["/metrics", "/api/v1/state"] {
        assert_eq!(gateway.request_with_headers(&format!("GET {path}\n{read}")).await.status, 200, "{path}");
    }
    for request in ["POST /api/v1/reload", "PUT /api/v1/quotas/places_api/used", "POST /api/v1/quotas/places_api/reset"]
    {
        assert_eq!(
            gateway.request_with_headers(&format!("{request}\n{read}")).await.problem_status(),
            403,
            "{request}"
        );
    }
    assert_eq!(gateway.request_with_headers("GET /metrics\nauthorization: Bearer reader").await.problem_status(), 401);
}

#[tokio::test]
async fn non_loopback_host_is_rejected_without_a_token() {
    let gateway = FakeGateway::new();
    for loopback in ["127.0.0.1:9090", "localhost:9090", "[::1]:9090", "127.9.9.9"] {
        assert_eq!(
            gateway.request_with_headers(&format!("GET /api/v1/state\nhost: {loopback}")).await.status,
            200,
            "{loopback}"
        );
    }
    for foreign in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9090", "203.0.113.7", "a b"] {
        assert_eq!(
            gateway.request_with_headers(&format!("GET /api/v1/state\nhost: {foreign}")).await.problem_status(),
            421,
            "{foreign}"
        );
    }
    let two = "GET /api/v1/state\nhost: localhost\nhost: evil.example";
    assert_eq!(gateway.request_with_headers(two).await.problem_status(), 400);
}

#[tokio::test]
async fn cross_site_requests_are_rejected() {
    let gateway = FakeGateway::new();
    for header in
        ["sec-fetch-site: cross-site", "sec-fetch-site: same-site", "origin: http://evil.example", "origin: null"]
    {
        assert_eq!(
            gateway.request_with_headers(&format!("POST /api/v1/reload\n{header}")).await.problem_status(),
            403,
            "{header}"
        );
    }
    for header in ["sec-fetch-site: same-origin", "sec-fetch-site: none", "origin: http://127.0.0.1:9090"] {
        assert_eq!(
            gateway.request_with_headers(&format!("POST /api/v1/reload\n{header}")).await.status,
            200,
            "{header}"
        );
    }
}

#[tokio::test]
async fn responses_disable_caching_and_content_sniffing() {
    for path in ["/healthz", "/metrics", "/nothing"] {
        let response = FakeGateway::new().request_with_headers(&format!("GET {path}")).await;
        assert_eq!(response.header("cache-control"), "no-store");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
    }
}

#[tokio::test]
async fn recent_decisions_are_filtered_latest_first() {
    let gateway = FakeGateway::new();
    let list = async |query: &str| {
        let response = gateway.request_with_headers(&format!("GET /api/v1/decisions{query}")).await;
        let decisions = response.json()["decisions"].as_array().expect("a list").clone();
        decisions.iter().map(|line| line["client"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, ["203.0.113.77", "198.51.100.1", "203.0.113.7"]);
    assert_eq!(list("?class=bot").await, ["198.51.100.1", "203.0.113.7"]);
    assert_eq!(list("?class=bot&reason=quota&client=").await, ["198.51.100.1"]);
    assert_eq!(list("?client=203.0.113.").await, ["203.0.113.77", "203.0.113.7"]);
    assert_eq!(list("?limit=1").await, ["203.0.113.77"]);
    let response = gateway.request_with_headers("GET /api/v1/decisions?limit=1").await;
    let sentence = "203.0.113.77 is in the ranges that googlebot publishes";
    assert_eq!(response.json()["decisions"][0]["evidence_text"], json!([sentence]));
    for query in ["?limit=many", "?user=ann"] {
        let refused = gateway.request_with_headers(&format!("GET /api/v1/decisions{query}")).await;
        assert_eq!(refused.problem_status(), 422, "{query}");
    }
}

#[tokio::test]
async fn page_is_static_and_its_scripts_come_from_this_listener_only() {
    let gateway = FakeGateway { token: Some("open sesame".into()), ..FakeGateway::new() };
    let files = super::page::FILES.iter().map(|(name, ..)| format!("/page/{name}"));
    for file in files.chain(["/".to_owned()]) {
        let response = gateway.request_with_headers(&format!("GET {file}")).await;
        assert_eq!(response.status, 200, "{file}");
        let policy = response.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; ") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert!(!response.body.contains("203.0.113.7"), "{file} holds data");
    }
    let html = gateway.request_with_headers("GET /").await.body;
    for reason in Reason::ALL {
        assert!(html.contains(&format!("<option>{}</option>", reason.name())), "{reason:?} is missing in {html}");
    }
    assert!(!html.contains("<style") && !html.contains(" style=") && !html.contains(" on"), "inline style or script");
}

#[tokio::test]
async fn session_stands_for_the_token_that_opened_it() {
    let rules =
        AccessRules { token: Some(Secret::new("open sesame".into())), read_token: Some(Secret::new("readers".into())) };
    let access = AccessControl::new(rules, "127.0.0.1:9090".parse().expect("an address"), Clock::system());
    let router = router(Arc::new(FakeGateway::new()), access);
    let send = async |text: &str, body: &str| {
        let mut lines = text.lines();
        let (method, path) = lines.next().and_then(|line| line.split_once(' ')).expect("a method and a path");
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:9090");
        let request = lines
            .filter_map(|line| line.split_once(": "))
            .fold(request, |request, (name, value)| request.header(name, value));
        let response = router.clone().oneshot(request.body(Body::from(body.to_owned())).expect("a request")).await;
        let response = response.expect("never fails");
        let cookie = response.headers().get("set-cookie").map(|value| value.to_str().expect("a text").to_owned());
        (response.status().as_u16(), cookie)
    };
    for body in [r#"{"token": "open sesamf"}"#, r#"{"token": ""}"#] {
        assert_eq!(send("POST /api/v1/session", body).await, (401, None), "{body}");
    }
    assert_eq!(send("POST /api/v1/session", "token=open sesame").await, (422, None));
    let right = r#"{"token": "open sesame"}"#;
    assert_eq!(send("POST /api/v1/session\norigin: http://evil.example", right).await, (403, None));

    let open = async |token: &str| {
        let (status, cookie) = send("POST /api/v1/session", &json!({ "token": token }).to_string()).await;
        let cookie = cookie.expect("a cookie");
        assert!(
            status == 200 && cookie.ends_with("; Path=/api/v1; HttpOnly; SameSite=Strict; Max-Age=43200"),
            "{cookie}"
        );
        cookie.split(';').next().expect("a pair").to_owned()
    };
    let (reader, writer) = (open("readers").await, open("open sesame").await);
    assert_eq!(send(&format!("GET /api/v1/state\ncookie: theme=dark; {reader}"), "").await.0, 200);
    assert_eq!(send(&format!("POST /api/v1/reload\ncookie: {reader}"), "").await.0, 403);
    assert_eq!(send(&format!("POST /api/v1/reload\ncookie: {writer}"), "").await.0, 200);
    let foreign = format!("POST /api/v1/reload\ncookie: {writer}\nsec-fetch-site: same-site");
    assert_eq!(send(&foreign, "").await.0, 403, "another site of the same domain");
    let with_wrong_token = format!("GET /api/v1/state\ncookie: {writer}\nauthorization: Bearer wrong");
    assert_eq!(send(&with_wrong_token, "").await.0, 401);
    let planted = format!("GET /api/v1/state\ncookie: tidegate_session_9090=00; {writer}");
    assert_eq!(send(&planted, "").await.0, 200, "another server of the host set a cookie of the same name");
    for invalid in ["", "tidegate_session_9090=", "tidegate_session_9090=00", "other=open sesame"] {
        assert_eq!(send(&format!("GET /api/v1/state\ncookie: {invalid}"), "").await.0, 401, "{invalid}");
    }
    assert_eq!(send(&format!("DELETE /api/v1/session\ncookie: {writer}"), "").await.0, 200);
    assert_eq!(send(&format!("GET /api/v1/state\ncookie: {writer}"), "").await.0, 401, "the session has ended");
    let writer = open("open sesame").await;
    for _ in 0..32 {
        open("readers").await;
    }
    assert_eq!(send(&format!("GET /api/v1/state\ncookie: {reader}"), "").await.0, 401, "32 newer sessions");
    assert_eq!(send(&format!("GET /api/v1/state\ncookie: {writer}"), "").await.0, 200, "readers end no other session");
}

#[tokio::test(start_paused = true)]
async fn sessions_and_event_streams_end() {
    let clock = Clock::manual(Timestamp::from_seconds(1_800_000_000));
    let access = AccessControl::new(
        AccessRules { token: Some(Secret::new("open sesame".into())), read_token: Some(Secret::new("readers".into())) },
        "127.0.0.1:9090".parse().expect("an address"),
        clock.clone(),
    );
    let router = router(Arc::new(FakeGateway::new()), access);
    let send = async |request: axum::http::request::Builder, body: &'static str| {
        let request = request.header("host", "127.0.0.1:9090").body(Body::from(body)).expect("a request");
        router.clone().oneshot(request).await.expect("never fails")
    };
    let opened = send(Request::post("/api/v1/session"), r#"{"token": "open sesame"}"#).await;
    let cookie = opened.headers()["set-cookie"].to_str().expect("a text").split(';').next().expect("a pair").to_owned();
    let mut streams = Vec::new();
    for _ in 0..12 {
        let response = send(Request::get("/api/v1/events").header("cookie", &cookie), "").await;
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        streams.push(response.into_body());
    }
    let refused = send(Request::get("/api/v1/events").header("cookie", &cookie), "").await;
    assert_eq!(refused.status().as_u16(), 503, "streams leave connections for others");
    let reader = send(Request::get("/api/v1/events").header("authorization", "Bearer readers"), "").await;
    assert_eq!(reader.status().as_u16(), 200, "writers and readers have places of their own");
    let events = to_bytes(streams.pop().expect("a stream"), usize::MAX).await.expect("the stream ends");
    let events = String::from_utf8(events.to_vec()).expect("text");
    let states: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(states.len(), 50);
    let state: Value = serde_json::from_str(states[49]).expect("JSON");
    assert_eq!(state["quotas"][0]["name"], "places_api");
    let next = send(Request::get("/api/v1/events").header("cookie", &cookie), "").await;
    assert_eq!(next.status().as_u16(), 200, "a stream that ends makes room");

    let opened = send(Request::post("/api/v1/session"), r#"{"token": "open sesame"}"#).await;
    let ended = opened.headers()["set-cookie"].to_str().expect("a text").split(';').next().expect("a pair").to_owned();
    drop(streams);
    let stream = send(Request::get("/api/v1/events").header("cookie", &ended), "").await;
    assert_eq!(send(Request::delete("/api/v1/session").header("cookie", &ended), "").await.status().as_u16(), 200);
    let events = to_bytes(stream.into_body(), usize::MAX).await.expect("the stream ends");
    assert!(events.is_empty(), "a stream ends with its session");

    clock.advance(Duration::from_secs(12 * 3600));
    let expired = send(Request::get("/api/v1/state").header("cookie", &cookie), "").await;
    assert_eq!(expired.status().as_u16(), 401);
}

#[tokio::test]
async fn switch_is_set_listed_and_ended() {
    let gateway = FakeGateway::new();
    let body = r#"{"target": "192.0.2.0/24", "effect": "block", "for_s": 60, "why": "scrapes", "by": "ann"}"#;
    let set = gateway.send("POST /api/v1/switches", Body::from(body)).await;
    assert_eq!((set.status, &set.json()["effect"]), (200, &json!("block")), "{}", set.body);
    let listed = gateway.request_with_headers("GET /api/v1/switches").await.json();
    assert_eq!(listed["switches"], json!([set.json()]));
    assert_eq!(gateway.request_with_headers("GET /api/v1/state").await.json()["switches"], listed["switches"]);
    let ended = gateway.request_with_headers("DELETE /api/v1/switches/192%2E0%2E2%2E0%2F24").await;
    assert_eq!((ended.status, &ended.json()["target"]), (200, &json!("192.0.2.0/24")), "{}", ended.body);
    assert_eq!(ended.json()["effect"], "off");
}

#[tokio::test]
async fn invalid_switch_is_rejected_with_all_errors() {
    let long = "x".repeat(101);
    let many = vec!["192.0.2.1"; 65];
    for (body, errors) in [
        (json!({}), &["body: missing field"][..]),
        (
            json!({ "target": "a", "effect": "deny", "for_s": 0 }),
            &["effect: found \"deny\"", "for_s: found 0", "why: missing"],
        ),
        (
            json!({ "target": "a", "effect": "block", "why": long, "by": "a\nb" }),
            &["for_s: missing", "why: empty, too long", "by: "],
        ),
        (
            json!({ "target": "a", "effect": "allow", "for_s": 2_592_001, "why": "a", "except": ["::1"] }),
            &["for_s: found", "except: only"],
        ),
        (json!({ "target": "maintenance", "effect": "maintenance", "except": many }), &["except: found 65"]),
        (json!({ "target": "maintenance", "effect": "maintenance", "except": ["all"] }), &["except: found \"all\""]),
        (json!({ "target": "nobody", "effect": "maintenance" }), &["target: found \"nobody\"; maintenance has"]),
        (json!({ "target": "a", "effect": "block", "for_s": 1, "why": "a", "by": "\u{202e}a" }), &["by: empty, too"]),
        (json!({ "target": "a", "effect": "block", "for_s": 1, "why": "a", "until": 1 }), &["body: unknown field"]),
    ] {
        let response = FakeGateway::new().send("POST /api/v1/switches", Body::from(body.to_string())).await;
        let detail = response.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert_eq!((response.status, detail.lines().count()), (422, errors.len()), "{body}: {detail}");
        for (line, error) in detail.lines().zip(errors) {
            assert!(line.starts_with(error), "{body}: {line}");
        }
    }
}

#[tokio::test]
async fn server_runs_until_the_shutdown_signal() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let listen = listener.local_addr().expect("an address");
    let (shutdown_sender, shutdown) = tokio::sync::oneshot::channel::<()>();
    let router = router(
        Arc::new(FakeGateway::new()),
        AccessControl::new(AccessRules::default(), AdminAddress::Tcp(listen), Clock::system()),
    );
    let server = tokio::spawn(serve(listener.into(), router, |_| {}, async { drop(shutdown.await) }));
    let mut client = tokio::net::TcpStream::connect(listen).await.expect("a connection");
    let body = r#"{"used": 1}"#;
    let head = format!("PUT /api/v1/quotas/places_api/used HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\n");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    client.write_all(request.as_bytes()).await.expect("sent");
    let mut response = String::new();
    client.read_to_string(&mut response).await.expect("answered");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    drop(shutdown_sender);
    server.await.expect("no panic");
}

#[tokio::test]
async fn unix_socket_needs_no_token_and_corrections_name_the_user() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let listen = AdminAddress::Unix(dir.path().join("admin.sock"));
    let listener = BoundListener::bind(&listen).expect("bound").into_listener().expect("a runtime");
    let access = AccessControl::new(AccessRules::default(), listen.clone(), Clock::system());
    let server =
        tokio::spawn(serve(listener, router(Arc::new(FakeGateway::new()), access), |_| {}, std::future::pending()));
    let client = AdminClient::new(listen.to_string());
    let corrected = client.request(http::Method::PUT, "/api/v1/quotas/places_api/used", r#"{"used": 1}"#).await;
    assert_eq!(corrected.expect("answered").status, 200);
    let state = client.get("/api/v1/state").await.expect("answered");
    let state: Value = serde_json::from_str(&state.body).expect("JSON");
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(state["corrections"][0]["peer"], format!("user {user}"), "{state}");
    server.abort();
}

#[tokio::test]
async fn clients_without_the_token_do_not_keep_others_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let listen = listener.local_addr().expect("an address");
    let rules = AccessRules { token: Some(Secret::new("open sesame".into())), read_token: None };
    let access = AccessControl::new(rules, AdminAddress::Tcp(listen), Clock::system());
    let router = router(Arc::new(FakeGateway::new()), access);
    // Nothing ends in this test because of time.
    let long = Duration::from_secs(3600);
    let limits = ConnectionLimits { count: 4, header_timeout: long, lifetime: long, finish_timeout: long };
    let server = tokio::spawn(serve_within(limits, listener.into(), router, |_| {}, std::future::pending()));
    let send = async |request: &str| {
        let mut client = tokio::net::TcpStream::connect(listen).await.expect("a connection");
        client.write_all(request.as_bytes()).await.expect("sent");
        client
    };
    let status = async |client: &mut tokio::net::TcpStream| {
        let mut status = [0; 12];
        client.read_exact(&mut status).await.expect("answered");
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let state = format!("GET /api/v1/state HTTP/1.1\r\nHost: {listen}\r\n");
    let with_token = format!("{state}Authorization: Bearer open sesame\r\n\r\n");
    let mut operator = send(&with_token).await;
    assert_eq!(status(&mut operator).await, "200");
    for _ in 0..3 {
        let mut others = [
            send("").await,
            send("GET /metrics HTTP/1.1\r\nHost").await,
            send(&format!("GET /healthz HTTP/1.1\r\nHost: {listen}\r\n\r\n")).await,
            send(&format!("{state}\r\n")).await,
        ];
        assert_eq!(status(&mut others[3]).await, "401");
        let mut second = send(&with_token).await;
        assert_eq!(status(&mut second).await, "200", "the oldest connection without the token is closed");
        // The latest ones of the others are still served.
        others[3].write_all(format!("{state}\r\n").as_bytes()).await.expect("sent");
    }
    operator.write_all(with_token.as_bytes()).await.expect("still open");
    let mut responses = String::new();
    while responses.matches("HTTP/1.1 200 OK").count() < 1 {
        let mut part = [0; 4096];
        let length = operator.read(&mut part).await.expect("answered");
        assert!(length > 0, "the connection of an operator stays");
        responses.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    server.abort();
}

struct FakeGateway {
    not_ready_reasons: Vec<String>,
    config_errors: Option<String>,
    token: Option<String>,
    used: Arc<Mutex<Units>>,
    switches: Arc<Mutex<Vec<SwitchEntry>>>,
}

struct TestResponse {
    status: u16,
    headers: axum::http::HeaderMap,
    body: String,
}

impl FakeGateway {
    fn new() -> Self {
        Self {
            not_ready_reasons: Vec::new(),
            config_errors: None,
            token: None,
            used: Arc::new(Mutex::new(Units::from_milli(12_250))),
            switches: Arc::default(),
        }
    }

    /// Sends a request given as method and path, with headers on further lines.
    async fn request_with_headers(&self, request_text: &str) -> TestResponse {
        self.send(request_text, Body::empty()).await
    }

    async fn put(&self, path: &str, body: &str) -> TestResponse {
        self.send(&format!("PUT {path}"), Body::from(body.to_owned())).await
    }

    async fn send(&self, request_text: &str, body: Body) -> TestResponse {
        let mut lines = request_text.lines();
        let (method, path) = lines.next().and_then(|line| line.split_once(' ')).expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path);
        let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
        if headers.iter().all(|(name, _)| *name != "host") {
            request = request.header("host", "127.0.0.1:9090");
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let gateway = FakeGateway {
            not_ready_reasons: self.not_ready_reasons.clone(),
            config_errors: self.config_errors.clone(),
            token: None,
            used: Arc::clone(&self.used),
            switches: Arc::clone(&self.switches),
        };
        let rules =
            AccessRules { token: self.token.clone().map(Secret::new), read_token: Some(Secret::new("readers".into())) };
        let access = AccessControl::new(rules, "127.0.0.1:9090".parse().expect("an address"), Clock::system());
        let response = router(Arc::new(gateway), access).oneshot(request.body(body).expect("a request")).await;
        let (head, body) = response.expect("never fails").into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        let body = String::from_utf8(body.to_vec()).expect("text");
        TestResponse { status: head.status.as_u16(), headers: head.headers, body }
    }
}

impl TestResponse {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// Returns the status; checks that the body is a problem document.
    fn problem_status(&self) -> u16 {
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.json()["status"], self.status);
        self.status
    }
}

impl GatewayApi for FakeGateway {
    fn customer_usage(&self) -> Vec<UsageDocument> {
        Vec::new()
    }
    fn usage_history(&self, month: Option<&str>) -> Result<Vec<UsageRecord>, String> {
        Err(format!("month: found {month:?}"))
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(160)
    }
    fn state(&self) -> StateDocument {
        let started = Timestamp::from_seconds(100);
        let error = "connection refused".to_owned();
        let server = OriginServerView {
            url: "http://site:3000".into(),
            is_healthy: true,
            in_flight: 2,
            failures: 1,
            last_error: Some(error.clone()),
        };
        let failure = ReloadFailureDocument { time: rfc3339(self.now()), errors: "routes: wrong".into() };
        StateDocument {
            time: rfc3339(self.now()),
            started: rfc3339(started),
            uptime_s: 60,
            version: "1.2.3".into(),
            revision: "abc".into(),
            listen: vec!["127.0.0.1:8080".into()],
            admin: Some("127.0.0.1:9090".into()),
            origin: OriginDocument {
                authority: "site:3000".into(),
                servers: vec![views::origin_server(server)],
                outage: Some(views::outage(OriginOutage { since: started, failed_requests: 3, last_error: error })),
                ..OriginDocument::default()
            },
            settings: SettingsDocument { loaded_at: rfc3339(started), last_reload_failed: Some(failure) },
            not_ready_reasons: self.not_ready_reasons.clone(),
            untrusted_proxy: Some("127.0.0.1 sends X-Forwarded-For".into()),
            quotas: vec![views::quota(&self.quota(), self.now())],
            path_costs: vec![path_cost()],
            classes: vec!["bot".into()],
            traffic: vec![views::traffic(&ClassTraffic {
                class: "bot".into(),
                admitted: 7,
                refused: vec![(Reason::Tier, 3), (Reason::Bucket, 1)],
                shadow: vec![(Reason::Quota, 2)],
                responses: ResponseCounts {
                    statuses: vec![("2xx", 7), ("429", 4)],
                    bytes: 5120,
                    ..ResponseCounts::default()
                },
                ..ClassTraffic::default()
            })],
            spenders: views::spenders(Timestamp::from_seconds(3600), &top_spenders(), |id| self.decision(id)),
            scopes: scopes(),
            connections: 4,
            top_clients: vec![views::client(&refused_client())],
            log_lines_dropped: 7,
            switches: self.switches.lock().iter().map(views::switch).collect(),
            cache: Some(views::cache_usage(&cache_usage())),
            ..StateDocument::default()
        }
    }
    fn not_ready_reasons(&self) -> Vec<String> {
        self.not_ready_reasons.clone()
    }
    fn cache(&self) -> Option<CacheDocument> {
        let stats = CacheStats {
            entries: 3,
            memory_bytes: 4096,
            memory_limit: 1 << 20,
            evictions: 1,
            disk: Some(DiskStats { is_loaded: true, entries: 9, bytes: 9000, limit: 1 << 30, ..DiskStats::default() }),
        };
        let url = "http://example.com/item/1".into();
        let most_requested = CachedUrl { url, hits: 6, saved: Units::from_whole(6), bytes: 2048 };
        Some(cache::document(&stats, &cache_usage(), &[most_requested]))
    }
    fn metrics(&self) -> String {
        "tidegate_up 1\n".into()
    }
    fn decision(&self, id: u64) -> Option<Vec<u8>> {
        (id == 0xbeef).then(|| b"{\"verdict\":\"refused\",\"evidence\":[\"behavior:fast_pages\"]}\n".to_vec())
    }
    fn recent_decisions(&self) -> Vec<Vec<u8>> {
        let line = |second: u8, client: &str, class: &str, reason: &str| {
            let time = format!("2026-11-21T09:14:{second:02}Z");
            let evidence = ["address_verified:googlebot"];
            json!({ "time": time, "client": client, "class": class, "reason": reason, "evidence": evidence })
                .to_string()
                .into_bytes()
        };
        vec![
            line(1, "203.0.113.7", "bot", "tier"),
            line(3, "203.0.113.77", "person", "quota"),
            line(2, "198.51.100.1", "bot", "quota"),
        ]
    }
    fn explanation(&self, _: u64) -> Option<Explanation> {
        None
    }
    fn set_used(&self, quota: &str, used: Units) -> Result<(Units, Units), UnknownQuota> {
        match quota {
            "places_api" => Ok((std::mem::replace(&mut *self.used.lock(), used), used)),
            _ => Err(UnknownQuota),
        }
    }
    fn change_switch(&self, change: SwitchChange) -> Result<SwitchDocument, String> {
        let SwitchChange { target, effect, lasts, except, why, by, peer } = change;
        if target == "nobody" {
            return Err("target: found \"nobody\"".into());
        }
        let until_s = lasts.map(|lasts| (self.now() + lasts).seconds());
        let effect = effect.map(|effect| effect.name().to_owned());
        let entry = SwitchEntry { target, effect, changed_at_us: self.now().0 / 1000, until_s, except, why, by, peer };
        *self.switches.lock() = vec![entry.clone()];
        Ok(views::switch(&entry))
    }
    fn purge_cache(&self, purge: &CachePurge) -> Result<u64, String> {
        match purge {
            CachePurge::Url(url) if url == "http://example.com/item/1" => Ok(1),
            _ => Err("url: unknown".into()),
        }
    }
    fn warm_cache(&self, url: &str, class: &str, _: Option<&str>) -> Result<WarmReceiver, String> {
        if class != "bot" {
            return Err(format!("class: found {class:?}; known here: bot"));
        }
        let (reply, receiver) = tokio::sync::oneshot::channel();
        let cache_status = format!("tidegate; fwd=uri-miss; stored; url={url}");
        let _ = reply.send(Ok(FillOutcome {
            status: 429,
            is_refused: true,
            is_stored: false,
            cache_status,
            retry_after_s: Some(7),
        }));
        Ok(receiver)
    }
    fn reload(&self) -> Result<String, String> {
        self.config_errors.clone().map_or(Ok("4 classes".into()), Err)
    }
    fn record_accept_failure(&self, _: &std::io::Error) {}
}

impl FakeGateway {
    fn quota(&self) -> QuotaView {
        let bot = ClassView {
            class: "bot".into(),
            charged: Units::from_whole(12),
            shed_share: Share::from_millionths(500_000),
            tier: 1,
            tiers: vec![Tier { threshold: Units::from_whole(10), shed_share: Share::from_millionths(500_000) }],
            guard_admitted: Units::from_whole(1),
            plan: Some(ClassPlan {
                admit_share: Some(Share::from_millionths(250_000)),
                tokens: Some(Units::from_whole(3)),
                refill_per_hour: Some(Units::from_whole(2)),
                next_hours: vec![1.5, 2.0],
            }),
        };
        QuotaView {
            name: "places_api".into(),
            limit: Units::from_whole(100),
            enforce: true,
            used: *self.used.lock(),
            reserved: Units::from_whole(3),
            overrun: Units::ZERO,
            implausible_costs: 0,
            ignored_reports: [0, 0],
            lost: Units::ZERO,
            drift: -1500,
            closed_until: None,
            window_start: Timestamp::from_seconds(0),
            window_end: Timestamp::from_seconds(86_400),
            sliding: None,
            plan: Some(PlanView {
                forecast: PacingMode::Learned,
                planned: Units::from_whole(40),
                earmarked: Units::from_whole(9),
                unpaced_demand_ratio: Some(1.5),
            }),
            by_class: vec![bot],
        }
    }
}

fn path_cost() -> PathCostDocument {
    let generalization = Some(Generalization { shapes: 9, examples: vec!["/search/a".into()] });
    let units = Units::from_whole(4);
    views::path_cost(PathCostView { path: "/search/**".into(), quota: "places_api".into(), units, generalization })
}

fn scopes() -> Vec<ScopeDocument> {
    let throttled = |name: &str, partitions| ScopeState {
        name: name.into(),
        in_flight: 2,
        queue_length: 3,
        limit: Some(4),
        delay: Duration::from_millis(250),
        backoff_remaining: Duration::from_millis(7500),
        backoff_level: 2,
        backoff_parts: 3,
        controller: Some("gradient"),
        partitions,
    };
    let scope = |name: &str, state: Option<ScopeState>, busiest: &[ScopeState]| {
        views::scope(name.into(), if state.is_some() { 2 } else { 0 }, state.as_ref(), busiest)
    };
    vec![
        scope("default", Some(throttled("default", None)), &[]),
        scope("open", None, &[]),
        scope("tenant", Some(throttled("tenant", Some(1200))), &[throttled("acme", None)]),
    ]
}

fn top_spenders() -> TopSpenders {
    let demand = Demand {
        requests: 4,
        refused: 1,
        units: Units::from_whole(3),
        requested_units: Units::from_whole(4),
        latest_decision: 0xbeef,
    };
    let client = Spender { name: "203.0.113.7".into(), kind: Some(ClientKind::Human), demand };
    let path = Spender { name: "/item/42".into(), kind: None, demand };
    TopSpenders { clients: vec![client], paths: vec![path], ..TopSpenders::default() }
}

fn refused_client() -> ClientView {
    ClientView {
        key: "203.0.113.7".into(),
        class: "bot".into(),
        refusal_count: 9,
        tokens: Some(0),
        limited_by: Some(Reason::Bucket),
        limited_for: Some(Duration::from_millis(7500)),
    }
}

fn cache_usage() -> CacheUsage {
    CacheUsage {
        requests: [6, 1, 1, 2, 0],
        saved: vec![("api".into(), "bot".into(), Units::from_milli(6500))],
        refreshed: vec![("api".into(), "bot".into(), Units::from_whole(2))],
    }
}
