use super::*;
use crate::terminal::ColorMode;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

fn view(width: usize) -> View {
    View { width, ink: ColorMode::Plain, zone: TimeZone::get("Europe/Berlin").expect("it is in the database") }
}

/// A gate in which everything is worth a line.
fn a_hard_day() -> Value {
    json!({
        "time": "2026-11-21T13:05:00Z", "started": "2026-11-19T09:00:00Z", "uptime_s": 187_500,
        "version": "1.2.3", "revision": "unknown",
        "listen": ["0.0.0.0:8080", "[::]:8080"], "admin": "127.0.0.1:9090",
        "origin": {"authority": "site.example", "known": true, "addresses": ["10.0.0.5:80", "10.0.0.6:80"]},
        "settings": {
            "loaded": "2026-11-19T09:00:00Z",
            "last_reload_failed": {
                "time": "2026-11-21T13:02:10Z",
                "mistakes": "tidegate.yaml:12:3: quotas.places_api.limt: unknown key \"limt\"; known: limit, window\n\
                             tidegate.yaml:20:5: routes[0].cost: found -1; needs an amount",
            },
        },
        "missing": ["The ledger is not open."],
        "untrusted_proxy": "10.0.0.7 sends X-Forwarded-For, which is not believed.",
        "notes": ["scopes.default.backoff: read and checked, not carried out in this version"],
        "quotas": [
            {
                "name": "places_api", "limit": 10_000, "enforce": true, "used": 6120.25, "reserved": 12,
                "remaining": 3867.75, "overrun": 3, "lost": 0.5, "drift": -4, "window_start": "2026-11-21T08:00:00Z",
                "window_end": "2026-11-22T08:00:00Z", "window_ends_in_s": 68_100,
                "classes": [
                    {"class": "search", "charged": 1200.5, "shed": 0.5, "tier": 1, "guarded": 12},
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
            {"name": "default", "inflight": 12, "waiting": 0, "limit": 64, "delay_s": 0.0, "rests_for_s": 0.0, "level": 0, "controller": "fixed"},
            {"name": "search", "inflight": 0, "waiting": 17, "limit": 4, "delay_s": 0.25, "rests_for_s": 7.2, "level": 3,
             "controller": "autothrottle"},
            {"name": "reports", "inflight": 1, "waiting": 1200, "limit": null, "delay_s": 1.5, "rests_for_s": 0.0,
             "level": 1},
            {"name": "assets", "inflight": 3, "waiting": null, "limit": null, "delay_s": null, "values": 1},
            {
                "name": "tenant", "inflight": 2, "waiting": 1, "limit": 2, "delay_s": 0.0, "rests_for_s": 5.0, "level": 1, "values": 1200,
                "busiest": [
                    {"value": "acme", "inflight": 2, "waiting": 1, "limit": 2},
                    {"value": "", "inflight": 0, "waiting": 0, "limit": 2, "rests_for_s": 5.0, "level": 1},
                    {"value": "idle", "inflight": 0, "waiting": 0},
                ],
            },
        ],
        "connections": 1234,
        "top_clients": [
            {"key": "203.0.113.7", "class": "bot", "refused": 91_200, "tokens": 0, "limited_by": "bucket",
             "lifts_in_s": 8},
            {"key": "2001:db8:1234:5678::/64", "class": "search", "refused": 4, "tokens": null, "limited_by": "blocked"},
            {"key": "192.0.2.1", "class": "person", "refused": 0, "tokens": 5},
        ],
        "log_lines_dropped": 1234,
        "corrections": [
            {"time": "2026-11-21T12:00:00Z", "quota": "places_api", "from": 12.25, "to": 6100, "peer": "127.0.0.1:4000",
             "token": true, "by": "ann"},
            {"time": "2026-11-20T12:00:00Z", "quota": "tokens", "from": 1, "to": 0, "peer": null, "token": false,
             "by": null},
        ],
    })
}

#[test]
fn everything_is_seen_at_a_glance() {
    let shown = text(&a_hard_day().to_string(), &view(80)).expect("it can be read");
    assert_eq!(shown, A_HARD_DAY, "\n{shown}");
}

#[test]
fn it_fits_where_it_is_shown() {
    for width in [80, 100, 132] {
        let shown = text(&a_hard_day().to_string(), &view(width)).expect("it can be read");
        assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}\n{shown}");
    }
}

#[test]
fn a_long_name_gives_way_to_what_is_said_of_it() {
    let mut state = a_hard_day();
    state["scopes"][4]["busiest"][0]["value"] = json!("a-tenant-".repeat(12));
    state["top_clients"][0]["key"] = json!("x".repeat(90));
    let shown = text(&state.to_string(), &view(80)).expect("it can be read");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("    a-tenant-a-tenant-…  "), "{shown}");
}

#[test]
fn colours_change_nothing_but_colours() {
    let coloured = View { ink: ColorMode::Color, ..view(80) };
    let mut shown = text(&a_hard_day().to_string(), &coloured).expect("it can be read");
    assert!(shown.contains('\x1b'));
    for code in ["0", "1", "2", "31", "32", "33"] {
        shown = shown.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(shown, A_HARD_DAY);
}

#[test]
fn a_quiet_gate_has_a_short_page_and_one_of_another_version_is_shown_as_far_as_it_goes() {
    let quiet = json!({
        "time": "2026-11-21T13:05:00Z", "uptime_s": 5, "version": "1.2.3", "revision": "abc1234",
        "listen": ["127.0.0.1:8080"], "origin": {"authority": "127.0.0.1:3000", "addresses": ["127.0.0.1:3000"]},
        "settings": {"loaded": "2026-11-21T13:04:55Z", "last_reload_failed": null}, "something": {"new": [1]},
    });
    let shown = text(&quiet.to_string(), &view(80)).expect("it can be read");
    let expected = "tidegate 1.2.3 (abc1234), up 5 s; times are CET\n\n  \
        listens on   127.0.0.1:8080\n  origin       127.0.0.1:3000\n  connections  0\n  settings     in force since 14:04\n";
    assert_eq!(shown, expected);
    assert!(text("{}", &view(80)).is_ok());
    assert!(matches!(text("[1", &view(80)), Err(CommandError::Failed(_))));
}

#[test]
fn a_window_that_ends_within_a_minute_ends_at_a_second() {
    let ends = |moment: &str| {
        let mut state = a_hard_day();
        state["quotas"][0]["window_end"] = json!(moment);
        let shown = text(&state.to_string(), &view(80)).expect("it can be read");
        shown.lines().find(|line| line.starts_with("places_api")).unwrap_or_default().to_owned()
    };
    assert!(ends("2026-11-21T13:05:30Z").contains("until 14:05:30 (in"));
    assert!(ends("2026-11-21T13:06:00Z").contains("until 14:06 (in"));
}

#[test]
fn an_origin_without_an_address_is_told() {
    let state = json!({"origin": {"authority": "site.example", "known": false, "addresses": []}});
    let shown = text(&state.to_string(), &view(80)).expect("it can be read");
    assert!(shown.contains("site.example, address not known yet"), "{shown}");
}

#[test]
fn a_quota_that_is_almost_spent_is_not_shown_as_spent() {
    let mut state = a_hard_day();
    let mut bar = |used: f64, remaining: f64| {
        state["quotas"][0]["used"] = json!(used);
        state["quotas"][0]["reserved"] = json!(0);
        state["quotas"][0]["remaining"] = json!(remaining);
        let shown = text(&state.to_string(), &view(80)).expect("it can be read");
        shown.lines().find(|line| line.contains(" left")).unwrap_or_default().to_owned()
    };
    assert!(bar(9999.999, 0.001).contains(" 99.9%  9,999.999 used, 0 reserved, 0.001 left"));
    assert!(bar(10_000.0, 0.0).contains(" 100.0%  10,000 used"));
    assert!(bar(2900.0, 7100.0).contains(" 29.0%  2,900 used"));
}

const A_HARD_DAY: &str = "\
tidegate 1.2.3, up 2 d 4 h; times are CET

  Not ready: The ledger is not open.
  Proxy: 10.0.0.7 sends X-Forwarded-For, which is not believed.
  The reload failed at 14:02; the settings before it stay in force:
    tidegate.yaml:12:3: quotas.places_api.limt: unknown key \"limt\"; known:
    limit, window
    tidegate.yaml:20:5: routes[0].cost: found -1; needs an amount
  Access log: 1,234 lines thrown away, because the disk could not keep up.

  listens on   0.0.0.0:8080, [::]:8080
  operators    127.0.0.1:9090
  origin       site.example, at 10.0.0.5:80 and 1 more
  connections  1,234
  settings     in force since 19 Nov 10:00

places_api  10,000 units until 22 Nov 09:00 (in 18 h 55 min)
  █████████████████···········  61.3%  6,120.25 used, 12 reserved, 3,867.75 left
  0.5 lost: counted as spent after a crash, though it may not have been
  3 overrun: spent beyond the limit, by the origin's own word
  -4 drift: the origin's own count less this one
  class   charged since start  shed now
  search              1,200.5  50%, tier 1; guarded 12
  bot                       0  all, tier 3
  person                4,919  -

tokens  1,000,000 units until 15:00 (in 55 min), counted but not enforced
  ██████████████████████████████████  100.0%  1,000,000 used, 0 reserved, 0 left

scopes of the origin
  scope                 in flight  in line   delay  now
  default                12 of 64        0       -  -
  search, autothrottle     0 of 4       17  250 ms  left alone for 8 s, level 3
  reports                       1    1,200   1.5 s  taken up again, level 1
  assets, 1 value               3        -       -  -
  tenant, 1,200 values     2 of 2        1       -  left alone for 5 s, level 1
    acme                   2 of 2        1       -  -
    (none)                 0 of 2        0       -  left alone for 5 s, level 1

most refused clients
  key                      class   refused  tokens left  now
  203.0.113.7              bot      91,200            0  limited for 8 s
  2001:db8:1234:5678::/64  search        4            -  blocked

corrected by hand
  at            quota         was     is  by, as claimed  from
  13:00         places_api  12.25  6,100  ann             127.0.0.1, token
  20 Nov 13:00  tokens          1      0  -               -

notes on the settings
  scopes.default.backoff: read and checked, not carried out in this version
";
