use super::*;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tidegate_replay::terminal::ColorMode;

fn view(width: usize) -> View {
    View { width, color: ColorMode::Plain, zone: TimeZone::get("Europe/Berlin").expect("a known zone") }
}

/// A state in which every part of the page is shown.
fn sample_state() -> Value {
    let mut state = json!({
        "time": "2026-11-21T13:05:00Z", "started": "2026-11-19T09:00:00Z", "uptime_s": 187_500,
        "version": "1.2.3", "revision": "unknown",
        "listen": ["0.0.0.0:8080", "[::]:8080"], "admin": "127.0.0.1:9090",
        "origin": {"authority": "site.example", "resolved": true, "addresses": ["10.0.0.5:80", "10.0.0.6:80"]},
        "settings": {
            "loaded_at": "2026-11-19T09:00:00Z",
            "last_reload_failed": {
                "time": "2026-11-21T13:02:10Z",
                "errors": "tidegate.yaml:12:3: quotas.places_api.limt: unknown key \"limt\"; known: limit, window\n\
                             tidegate.yaml:20:5: routes[0].cost: found -1; needs an amount",
            },
        },
        "not_ready_reasons": ["The ledger is not open."],
        "untrusted_proxy": "10.0.0.7 sends X-Forwarded-For, which is not trusted.",
        "notes": ["scopes.default.backoff: waits for a restart"],
        "quotas": [
            {
                "name": "places_api", "limit": 10_000, "enforce": true, "used": 6120.25, "reserved": 12,
                "remaining": 3867.75, "overrun": 3, "lost": 0.5, "drift": -4, "window_start": "2026-11-21T08:00:00Z",
                "window_end": "2026-11-22T08:00:00Z", "window_ends_in_s": 68_100,
                "classes": [
                    {"class": "search", "charged": 1200.5, "shed": 0.5, "tier": 1, "guard_units": 12},
                    {"class": "bot", "charged": 0, "shed": 1, "tier": 3},
                    {"class": "person", "charged": 4919, "shed": 0, "tier": 0},
                ],
            },
            {
                "name": "tokens", "limit": 1_000_000, "enforce": false, "used": 1_000_000, "reserved": 0, "remaining": 0,
                "overrun": 0, "lost": 0, "window_start": "2026-11-21T13:00:00Z", "window_end": "2026-11-21T14:00:00Z",
                "window_ends_in_s": 3300, "classes": [],
            },
        ],
        "classes": ["search", "bot", "person"],
        "scopes": [
            {"name": "default", "inflight": 12, "queue_length": 0, "limit": 64, "delay_s": 0.0, "backoff_s": 0.0, "backoff_level": 0, "controller": "fixed"},
            {"name": "search", "inflight": 0, "queue_length": 17, "limit": 4, "delay_s": 0.25, "backoff_s": 7.2, "backoff_level": 3,
             "controller": "autothrottle"},
            {"name": "reports", "inflight": 1, "queue_length": 1200, "limit": null, "delay_s": 1.5, "backoff_s": 0.0,
             "backoff_level": 1, "controller": "fixed"},
            {"name": "assets", "inflight": 3, "partitions": 1, "busiest_partitions": []},
            {
                "name": "tenant", "inflight": 2, "queue_length": 1, "limit": 2, "delay_s": 0.0, "backoff_s": 5.0, "backoff_level": 1,
                "controller": "fixed", "partitions": 1200,
                "busiest_partitions": [
                    {"partition": "acme", "inflight": 2, "queue_length": 1, "limit": 2, "delay_s": 0.0, "backoff_s": 0.0,
                     "backoff_level": 0, "controller": "fixed"},
                    {"partition": "", "inflight": 0, "queue_length": 0, "limit": 2, "delay_s": 0.0, "backoff_s": 5.0,
                     "backoff_level": 1, "controller": "fixed"},
                    {"partition": "idle", "inflight": 0, "queue_length": 0, "limit": null, "delay_s": 0.0, "backoff_s": 0.0,
                     "backoff_level": 0, "controller": "fixed"},
                ],
            },
        ],
        "traffic": [
            {"class": "search", "admitted": 1200, "refused": 0, "shadow_refused": 310, "shadow_refused_by": {"tier": 310}},
            {"class": "bot", "admitted": 4, "refused": 91_200, "refused_by": {"tier": 91_000, "bucket": 200}},
            {"class": "person", "admitted": 0, "refused": 0},
        ],
        "spenders": {
            "since": "2026-11-21T12:00:00Z",
            "clients": [
                {"name": "203.0.113.7", "kind": "suspected_bot", "requests": 5522, "refused": 5100, "units": 422, "units_asked": 5522},
                {"name": "2001:db8:1234:5678:9abc:def0:1234:5678", "kind": "human", "requests": 3, "units": 0.5, "units_asked": 3},
            ],
            "networks": [{"name": "203.0.113.0/24", "requests": 5522, "refused": 5100, "units": 422, "units_asked": 5522}],
            "paths": [{"name": "/login\u{202e}gpj", "requests": 5522, "refused": 5100, "units": 422, "units_asked": 5522}],
            "user_agents": [
                {"name": "", "requests": 5522, "refused": 5100, "units": 422, "units_asked": 5522},
                {"name": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "requests": 3, "units": 0.5, "units_asked": 3},
            ],
        },
        "connections": 1234,
        "top_clients": [
            {"key": "203.0.113.7", "class": "bot", "refused": 91_200, "bucket_remaining": 0, "limited_by": "bucket",
             "limited_for_s": 8},
            {"key": "2001:db8:1234:5678::/64", "class": "search", "refused": 4, "bucket_remaining": null, "limited_by": "blocked"},
            {"key": "192.0.2.1", "class": "person", "refused": 0, "bucket_remaining": 5},
        ],
        "log_lines_dropped": 1234,
        "corrections": [
            {"time": "2026-11-21T12:00:00Z", "quota": "places_api", "from": 12.25, "to": 6100, "peer": "127.0.0.1:4000",
             "token": true, "by": "ann"},
            {"time": "2026-11-20T12:00:00Z", "quota": "tokens", "from": 1, "to": 0, "peer": null, "token": false,
             "by": null},
        ],
    });
    state["promise"] = json!({
        "people_refused": 0.001, "search_served": 0.88, "left_over": 0.01,
        "current": {"window_start": "2026-11-21T08:00:00Z", "people_refused": 0.0004, "search_served": null, "left_over": null},
        "last": {
            "window_start": "2026-11-20T08:00:00Z", "people_refused": 0.0, "search_served": 0.61, "left_over": 0.004,
            "missed": ["search_served"],
        },
        "missed": "The window from 2026-11-20T08:00:00Z missed the promise.",
    });
    state["path_costs"] = json!([
        {"path": "/search", "quota": "places_api", "units": 1204.5},
        {"path": "/tools/**", "quota": "places_api", "units": 36, "generalized_from": 9,
         "examples": ["/tools/a", "/tools/b", "/tools/c"]},
    ]);
    state
}

#[test]
fn full_state_is_rendered() {
    let shown = text(&sample_state().to_string(), Page::State, &view(80)).expect("a valid state");
    insta::assert_snapshot!(shown);
}

#[test]
fn spenders_are_rendered() {
    let shown = text(&sample_state().to_string(), Page::Top, &view(80)).expect("a valid state");
    insta::assert_snapshot!(shown);
    let mut idle = sample_state();
    idle["spenders"] = json!({"since": "2026-11-21T12:00:00Z"});
    let shown = text(&idle.to_string(), Page::Top, &view(80)).expect("a valid state");
    assert!(shown.ends_with("\nNo request has cost units since 13:00.\n"), "{shown}");
}

#[test]
fn what_is_watched_begins_with_what_changes_and_has_all() {
    let render = |page| text(&sample_state().to_string(), page, &view(80)).expect("a valid state");
    let (watched, whole) = (render(Page::Watch), render(Page::State));
    let place = |text: &str| watched.find(text).unwrap_or_else(|| panic!("{text} in\n{watched}"));
    let last_bar = watched.rfind(" remaining").expect("usage of a quota");
    for later in ["requests since the start", "charged since start", "listening on", "manual corrections"] {
        assert!(last_bar < place(later), "{later} after the usage of all quotas:\n{watched}");
    }
    assert!(place("requests since the start") < place("charged since start"));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(words(&watched), words(&whole), "nothing is left out");
}

#[test]
fn output_fits_the_terminal_width() {
    for (width, page) in
        [80, 100, 132].into_iter().flat_map(|width| [Page::State, Page::Watch, Page::Top].map(|page| (width, page)))
    {
        let shown = text(&sample_state().to_string(), page, &view(width)).expect("a valid state");
        assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}\n{shown}");
    }
}

#[test]
fn long_names_are_truncated() {
    let mut state = sample_state();
    state["scopes"][4]["busiest_partitions"][0]["partition"] = json!("a-tenant-".repeat(12));
    state["top_clients"][0]["key"] = json!("x".repeat(90));
    let shown = text(&state.to_string(), Page::State, &view(80)).expect("a valid state");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("    a-tenant-a-tenant…  "), "{shown}");
}

#[test]
fn color_mode_only_adds_escape_codes() {
    let [plain, mut shown] = [ColorMode::Plain, ColorMode::Color].map(|color| {
        text(&sample_state().to_string(), Page::State, &View { color, ..view(80) }).expect("a valid state")
    });
    assert!(shown.contains('\x1b'));
    for code in ["0", "1", "2", "31", "32", "33"] {
        shown = shown.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(shown, plain);
}

#[test]
fn minimal_and_incompatible_states_are_rendered() {
    let minimal = json!({
        "time": "2026-11-21T13:05:00Z", "uptime_s": 5, "version": "1.2.3", "revision": "abc1234",
        "listen": ["127.0.0.1:8080"], "origin": {"authority": "127.0.0.1:3000", "addresses": ["127.0.0.1:3000"]},
        "settings": {"loaded_at": "2026-11-21T13:04:55Z", "last_reload_failed": null}, "something": {"new": [1]},
    });
    let shown = text(&minimal.to_string(), Page::State, &view(80)).expect("a valid state");
    let expected = "tidegate 1.2.3 (abc1234), up 5 s; times in CET\n\n  \
        listening on   127.0.0.1:8080\n  origin         127.0.0.1:3000\n  connections    0\n  config loaded  14:04\n";
    assert_eq!(shown, expected);
    assert!(text("{}", Page::State, &view(80)).is_ok());
    assert!(matches!(text("[1", Page::State, &view(80)), Err(CommandError::Failed(_))));
}

#[test]
fn window_end_within_a_minute_shows_seconds() {
    let window_line = |timestamp: &str| {
        let mut state = sample_state();
        state["quotas"][0]["window_end"] = json!(timestamp);
        let shown = text(&state.to_string(), Page::State, &view(80)).expect("a valid state");
        shown.lines().find(|line| line.starts_with("places_api")).unwrap_or_default().to_owned()
    };
    assert!(window_line("2026-11-21T13:05:30Z").contains("until 14:05:30 (in"));
    assert!(window_line("2026-11-21T13:06:00Z").contains("until 14:06 (in"));
}

#[test]
fn unresolved_origin_is_shown() {
    let state = json!({"origin": {"authority": "site.example", "resolved": false, "addresses": []}});
    let shown = text(&state.to_string(), Page::State, &view(80)).expect("a valid state");
    assert!(shown.contains("site.example, not resolved yet"), "{shown}");
}

#[test]
fn nearly_exhausted_quota_is_not_shown_as_exhausted() {
    let mut state = sample_state();
    let mut bar = |used: f64, remaining: f64| {
        state["quotas"][0]["used"] = json!(used);
        state["quotas"][0]["reserved"] = json!(0);
        state["quotas"][0]["remaining"] = json!(remaining);
        let shown = text(&state.to_string(), Page::State, &view(80)).expect("a valid state");
        shown.lines().find(|line| line.contains(" remaining")).unwrap_or_default().to_owned()
    };
    assert!(bar(9999.999, 0.001).contains(" 99.9%  9,999.999 used, 0 reserved, 0.001 remaining"));
    assert!(bar(10_000.0, 0.0).contains(" 100.0%  10,000 used"));
    assert!(bar(2900.0, 7100.0).contains(" 29.0%  2,900 used"));
}
