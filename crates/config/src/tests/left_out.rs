//! Tests what a file means by the classes, and the keys of quotas, that it leaves out.

use super::load_with;
use crate::{Settings, write_out};
use tidegate_policy::class::Class;
use tidegate_policy::pacing::{Pacing, PacingMode, PacingRole};
use tidegate_policy::units::Units;

const TWO_LINES: &str = "origin: http://127.0.0.1:3000\nquotas: { api: { limit: 10000, cost_header: X-API-Cost } }\n";

#[test]
fn two_lines_are_a_whole_file() {
    let settings = load(TWO_LINES, &[("TZ", "Europe/Berlin")]);
    let names: Vec<&str> = settings.rules.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["search", "feed", "monitor", "bot", "person"]);
    let has_client_limits: Vec<bool> = settings.rules.classes.iter().map(|class| class.has_client_limits).collect();
    assert_eq!(has_client_limits, [false, true, true, true, true]);
    let quota = &settings.rules.quotas[0];
    assert_eq!(format!("{:?}", quota.window), format!("{:?}", window("{ calendar: day, zone: Europe/Berlin }")));
    assert_eq!(quota.client_limit, Some(Units::from_whole(500)));
    let Some(Pacing { forecast, roles, .. }) = &quota.pacing else { panic!("not paced: {quota:?}") };
    assert_eq!(*forecast, PacingMode::Learned);
    assert_eq!(weights(roles), [Some(8), Some(4), Some(2), Some(1), None], "search engines first, people unpaced");
    let has_tiers: Vec<bool> = quota.class_tiers.iter().map(Option::is_some).collect();
    assert_eq!(has_tiers, [false, false, false, true, false]);
    let shown: Vec<String> = settings.defaults.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 5, "{shown:#?}");
    assert_eq!(shown[1], "quotas.api.window: { calendar: day, zone: Europe/Berlin }");
}

#[test]
fn every_default_can_be_replaced() {
    for (key, value) in [
        ("window", "{ fixed: 12h }"),
        ("per_client", "7%"),
        ("pacing", "even"),
        ("pacing", "off"),
        ("tiers", "{ feed: [{ above: 10%, shed: 50% }] }"),
    ] {
        let text = TWO_LINES.replace("cost_header", &format!("{key}: {value}, cost_header"));
        let settings = load(&text, &[]);
        let is_default = settings.defaults.iter().any(|default| default.to_string().contains(&format!(".{key}:")));
        assert!(!is_default, "{key}: {value}: {:#?}", settings.defaults);
    }
    // With a mode alone, the weights hold.
    let even = load(&TWO_LINES.replace("cost_header", "pacing: even, cost_header"), &[]);
    let pacing = even.rules.quotas[0].pacing.as_ref().expect("pacing");
    assert_eq!(
        (pacing.forecast, weights(&pacing.roles)),
        (PacingMode::Even, vec![Some(8), Some(4), Some(2), Some(1), None])
    );
    // A plan or tiers of one's own come without those of the built-in ones.
    for own in ["pacing: off", "tiers: { bot: [{ above: 50%, shed: 50% }] }"] {
        let settings = load(&TWO_LINES.replace("cost_header", &format!("{own}, cost_header")), &[]);
        let quota = &settings.rules.quotas[0];
        assert!(quota.pacing.is_none() && quota.client_limit.is_none(), "{own}: {quota:?}");
    }
}

#[test]
fn classes_of_the_file_are_all_classes() {
    let text = format!("{TWO_LINES}classes: []\n");
    let settings = load(&text, &[]);
    assert_eq!(settings.rules.classes.len(), 1, "{:?}", settings.rules.classes);
    let quota = &settings.rules.quotas[0];
    assert!(quota.pacing.is_none() && quota.client_limit.is_none(), "{quota:?}");
    assert!(quota.class_tiers.iter().all(Option::is_none), "{quota:?}");
}

#[test]
fn file_that_names_the_class_other_has_no_builtin_classes() {
    for key in ["tiers: { other: [{ above: 50%, shed: 50% }] }", "pacing: { mode: even, weights: { other: 2 } }"] {
        let settings = load(&TWO_LINES.replace("cost_header", &format!("{key}, cost_header")), &[]);
        assert_eq!(settings.rules.classes.len(), 1, "{key}: {:?}", settings.rules.classes);
    }
}

#[test]
fn own_classes_of_bots_are_paced_by_priority() {
    let text = format!(
        "{TWO_LINES}classes:
  - {{ name: partner, when: {{ address: 192.0.2.1 }}, priority: 9 }}
  - {{ name: search, when: {{ operator: googlebot }}, priority: 200 }}
  - {{ name: ai, when: {{ operator: [bingbot] }}, priority: 7 }}
  - {{ name: blocked, when: {{ kind: impostor }}, block: true, priority: 5 }}
  - {{ name: lazy, when: {{ kind: [declared_bot, suspected_bot] }} }}
  - {{ name: mixed, when: {{ kind: [human, verified_bot] }}, priority: 3 }}
"
    );
    let settings = load(&text, &[]);
    let quota = &settings.rules.quotas[0];
    let weights = weights(&quota.pacing.as_ref().expect("pacing").roles);
    let of = |name: &str| {
        let index = settings.rules.classes.iter().position(|Class { name: known, .. }| known == name);
        weights[index.expect("class")]
    };
    assert_eq!(["search", "ai", "lazy"].map(of), [Some(4), Some(2), Some(1)]);
    assert_eq!(["partner", "blocked", "mixed", "other"].map(of), [None; 4]);
    assert!(quota.client_limit.is_none() && quota.class_tiers.iter().all(Option::is_none), "{quota:?}");
}

#[test]
fn names_of_classes_are_those_of_yaml() {
    let names = ["a.b", "1st", "true", "null", "x-y_z", "7", "-"];
    let classes = names.map(|name| format!("{{ name: \"{name}\", when: {{ kind: declared_bot }} }}")).join(", ");
    let settings = load(&format!("{TWO_LINES}classes: [{classes}]\n"), &[]);
    let weights = weights(&settings.rules.quotas[0].pacing.as_ref().expect("pacing").roles);
    assert_eq!(weights[..names.len()], [Some(1); 7]);
    // Invalid names are errors of their own, and of nothing else.
    for name in ["a b", "\\\"", "A", "", "a: 1", "{", "\\n"] {
        let class = format!("{{ name: \"{name}\", when: {{ kind: declared_bot }} }}");
        let text = format!("{TWO_LINES}classes: [{class}, {class}]\n");
        let errors = load_with(&text, &[], &[]).expect_err(name).errors;
        assert!(errors.iter().all(|error| error.path.to_string().starts_with("classes[")), "{name}: {errors:?}");
    }
}

#[test]
fn window_without_an_end_is_not_paced() {
    let quota = &load(&TWO_LINES.replace("cost_header", "window: { sliding: 1h }, cost_header"), &[]).rules.quotas[0];
    assert!(quota.pacing.is_none() && quota.client_limit.is_none(), "{quota:?}");
}

#[test]
fn client_share_lets_a_person_read_some_pages() {
    let share = |limit: &str| load(&TWO_LINES.replace("10000", limit), &[]).rules.quotas[0].client_limit;
    assert_eq!(share("1000"), Some(Units::from_whole(50)));
    assert_eq!(share("100"), Some(Units::from_whole(20)));
    let costly = TWO_LINES.to_owned() + "routes: [{ match: /a, cost: { api: 90 } }, { match: /b, cost: { api: 2 } }]";
    assert_eq!(load(&costly, &[]).rules.quotas[0].client_limit, Some(Units::from_whole(1800)), "20 of its pages");
    let stated = costly.replace("api: 90", "api: { json: a, default: 90 }");
    assert_eq!(load(&stated, &[]).rules.quotas[0].client_limit, Some(Units::from_whole(1800)));
    assert_eq!(share("20"), None);
    assert_eq!(share("0.5"), None);
}

#[test]
fn quota_of_a_scope_has_the_same_defaults() {
    let text = "origin: http://127.0.0.1:3000\nscopes: { a: { quota: { limit: 1000 } } }\nroutes: [{ match: /a, scopes: [a] }]\n";
    let settings = load(text, &[]);
    assert!(settings.rules.quotas[0].pacing.is_some());
    assert!(settings.defaults.iter().any(|default| default.to_string() == "scopes.a.quota.per_client: 5%"));
}

#[test]
fn unknown_zone_of_the_system_is_utc() {
    let utc = load(TWO_LINES, &[]);
    let unknown = load(TWO_LINES, &[("TZ", ":/etc/localtime")]);
    assert_eq!(format!("{:?}", unknown.rules.quotas), format!("{:?}", utc.rules.quotas));
}

#[test]
fn short_forms_stand_for_their_maps() {
    let long = "origin: { url: http://127.0.0.1:3000 }\nquotas: { api: { limit: 9, window: { calendar: week } } }\n";
    let short = "origin: http://127.0.0.1:3000\nquotas: { api: { limit: 9, window: week } }\n";
    assert_eq!(format!("{:?}", load(short, &[])), format!("{:?}", load(long, &[])));
    let with_sync = |sync: &str| {
        load(&short.replace("limit: 9", &format!("limit: 9, sync_from: {sync}")), &[]).rules.quotas[0].sync_from.clone()
    };
    let header = |name: &str| Some(name.parse().expect("a header name"));
    for (remaining, reset) in [
        ("X-RateLimit-Remaining", header("x-ratelimit-reset")),
        ("x-ratelimit-remaining-tokens", header("x-ratelimit-reset-tokens")),
        ("anthropic-ratelimit-tokens-remaining", header("anthropic-ratelimit-tokens-reset")),
        ("RateLimit", None),
    ] {
        let sync = with_sync(remaining).expect("synchronized");
        assert_eq!((sync.remaining_header, sync.reset_header), (header(remaining), reset), "{remaining}");
    }
    let sync = with_sync("{ remaining_header: X-Remaining, reset_header: X-Ends }").expect("synchronized");
    assert_eq!(sync.reset_header, header("x-ends"));
    // A variable adds to a short form.
    let variable = [("TIDEGATE__ORIGIN__MAX_CONNECTIONS", "7")];
    assert_eq!(format!("{:?}", load(short, &variable)), format!("{:?}", load(long, &variable)));
    assert_eq!(load(short, &variable).origins[0].max_connections, 7);
    for (text, error) in [
        ("origin: http://127.0.0.1:3000\nquotas: { api: { limit: 9, window: dya } }", "2:36: quotas.api.window:"),
        ("origin: localhost", "1:9: origin.url:"),
        ("origin: 3000", "1:9: origin:"),
    ] {
        let errors = load_with(text, &[], &[]).expect_err(text).to_string();
        assert!(errors.contains(error), "{text}: {errors}");
    }
}

#[test]
fn written_out_defaults_mean_the_same() {
    for text in [
        TWO_LINES,
        "# A file.\norigin: http://127.0.0.1:3000\nquotas:\n  api:\n    limit: 10000 # units\n    cost_header: X-Cost\n  b:\n    enforce: false\n    limit: 5\n",
        "origin: http://127.0.0.1:3000\r\nquotas:\r\n  api: {limit: 10000}\r\n",
        "origin: http://127.0.0.1:3000\nquotas: {a: {limit: 1000, per_client: 3%}, b: { window: day,\n  limit: 10 } }\nscopes:\n  s:\n    quota:\n        limit: 50\nroutes: [{ match: /a, scopes: [s] }]",
        "origin: http://127.0.0.1:3000\nclasses: [{ name: b, when: { kind: declared_bot } }]\nquotas: { a: { limit: 7 } }\n",
        "origin: http://127.0.0.1:3000\n",
        "origin: http://127.0.0.1:3000\nquotas: {\n  a: {\n    limit: 100 },\n  b: { limit: 50, pacing: learned } }\n",
        "origin: http://127.0.0.1:3000\nquotas:\n  a:\n    pacing: even\n    limit: 100\n",
        "origin: http://127.0.0.1:3000\nclasses: []\nquotas:\n  a:\n    # of a day, {\n    limit: 0.001\n    pacing: off",
        "origin: http://127.0.0.1:3000\nquotas: { # all,\n  a: { # one\n    limit: 0.001 } }\n",
    ] {
        let settings = load(text, &[]);
        let written = write_out(text, &settings).expect(text);
        let again = load(&written, &[]);
        assert!(again.defaults.is_empty(), "{written}\n{:?}", again.defaults);
        assert_eq!(format!("{:?}", again.rules), format!("{:?}", settings.rules), "{written}");
        let words = text.split([' ', '{', '\n']);
        assert!(words.clone().all(|word| written.contains(word)), "{written}");
    }
}

fn load(text: &str, environment: &[(&str, &str)]) -> Settings {
    load_with(text, environment, &[]).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Returns the window of a quota with this key.
fn window(window: &str) -> tidegate_policy::window::Window {
    load(&TWO_LINES.replace("cost_header", &format!("window: {window}, cost_header")), &[]).rules.quotas[0]
        .window
        .clone()
}

fn weights(roles: &[PacingRole]) -> Vec<Option<u32>> {
    let weight = |role: &PacingRole| match role {
        PacingRole::Paced(weight) => Some(weight.get()),
        PacingRole::Unpaced | PacingRole::Excluded => None,
    };
    roles.iter().map(weight).collect()
}
