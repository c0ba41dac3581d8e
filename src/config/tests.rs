use super::settings::{AccessLog, CrawlPolicy, Ledger, LedgerFailureMode, LegacyFamily, LogLevel};
use super::*;
use crate::policy::address_lists::{ListId, ListSet};
use crate::policy::cost::Cost;
use crate::policy::crawl_delay::{CrawlDelay, CrawlDelays};
use crate::policy::identity::{CredentialSource, KeySource};
use crate::policy::throttle::Jitter;
use crate::policy::throttle::controller::Controller;
use crate::policy::throttle::gradient::Gradient;
use crate::policy::throttle::partition::{PartitionKey, Partitioning};
use crate::policy::throttle::rampup::{RampVariable, Rampup};
use crate::policy::{ClassId, OperatorId, Units};
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::time::Duration;

mod schema;
mod spelling;

const OPERATORS: [&str; 3] = ["googlebot", "bingbot", "applebot"];
const EXAMPLE: &str = include_str!("../../config/tidegate.yaml");

fn load_with(text: &str, environment: &[(&str, &str)], overrides: &[(&str, &str)]) -> Result<Settings, ConfigErrors> {
    let environment: Vec<(String, String)> =
        environment.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let overrides: Vec<(&str, String)> = overrides.iter().map(|&(path, value)| (path, value.into())).collect();
    load(Path::new("gate.yaml"), text, &environment, &overrides, &OPERATORS)
}

fn settings(text: &str) -> Settings {
    load_with(text, &[], &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn mistakes(text: &str) -> Vec<String> {
    mistakes_with(text, &[])
}

fn mistakes_with(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    match load_with(text, environment, &[]) {
        Ok(_) => Vec::new(),
        Err(mistakes) => {
            mistakes.to_string().lines().map(|line| line.trim_start_matches("gate.yaml:").to_owned()).collect()
        }
    }
}

/// The origin, which every file needs, as its first line, and `text` from the second on.
fn site(text: &str) -> String {
    format!("origin: {{ url: 'http://127.0.0.1:3000' }}\n{text}")
}

#[test]
fn every_setting_knows_where_it_was_written() {
    let text = site(
        "quotas:\n  api:\n    limit: 10\n    window: { fixed: 60s }\n    tiers: { robot: [ { above: 50%, shed: 50% } ] }\n\
         classes: [ { name: robot, when: { kind: declared_bot } } ]\n",
    );
    let environment = [("TIDEGATE__QUOTAS__API__ENFORCE", "false")];
    let written = load_with(&text, &environment, &[("listen", "127.0.0.1:1")]).expect("it is right").source_map;
    for (path, at) in [
        ("quotas.api.limit", Some("gate.yaml:4:12")),
        ("quotas.api.tiers.robot[0]", Some("gate.yaml:6:23")),
        ("classes[0]", Some("gate.yaml:7:12")),
        ("quotas.api.enforce", Some("TIDEGATE__QUOTAS__API__ENFORCE")),
        ("listen", Some("--listen")),
        ("quotas.api.pacing", None),
        ("routes", None),
    ] {
        assert_eq!(written.location(path).as_deref(), at, "{path}");
    }
}

#[test]
fn who_shares_a_bucket_is_a_word_or_a_name() {
    for (written, meant) in [
        ("rate: 1/s", KeySource::Address),
        ("rate: 1/s, key: address", KeySource::Address),
        ("rate: 1/s, key: operator", KeySource::Operator),
        ("capacity: 6, fill: 1, interval: 1s, key: class", KeySource::Class),
        (
            "rate: 1/s, key: { header: X-Api-Key }",
            KeySource::Credential(CredentialSource::Header(http::HeaderName::from_static("x-api-key"))),
        ),
        ("rate: 1/s, key: { cookie: Session }", KeySource::Credential(CredentialSource::Cookie("Session".into()))),
    ] {
        let settings = settings(&site(&format!("classes: [{{ name: a, bucket: {{ {written} }} }}]")));
        assert_eq!(settings.rules.classes[0].key, meant, "{written}");
    }
}

#[test]
fn a_family_named_twice_is_written_once() {
    let settings = settings(&site("headers: { legacy: [draft-03, github, atlassian, github] }"));
    assert_eq!(settings.headers.legacy, [LegacyFamily::Draft03, LegacyFamily::Github, LegacyFamily::Atlassian]);
}

/// A scope that a route names, with `keys`.
fn by_value(name: &str, keys: &str) -> String {
    format!("scopes: {{ {name}: {{ {keys}, delay: 1s }} }}\nroutes: [{{ match: /a, scopes: {name} }}]")
}

fn faults(text: &str) -> Vec<String> {
    mistakes(&site(text))
}

#[test]
fn our_own_example_means_what_it_says() {
    let settings = settings(EXAMPLE);
    assert_eq!(settings.listen, ["127.0.0.1:8080".parse().expect("an address")]);
    assert_eq!((settings.origin.host.as_str(), settings.origin.port), ("127.0.0.1", 3000));
    assert_eq!(settings.origin.idle_timeout, Duration::from_secs(4));
    assert_eq!(settings.headers.legacy, [LegacyFamily::Atlassian]);
    assert_eq!(settings.headers.retry_after_spread.millionths(), 200_000);
    assert_eq!(settings.log.access, AccessLog::File { path: "./state/access.log".into() });
    let rules = &settings.rules;
    let classes: Vec<&str> = rules.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(classes, ["search", "impostor", "bot", "person", "other"]);
    let scopes: Vec<&str> = rules.scopes.iter().map(|scope| scope.name.as_str()).collect();
    assert_eq!(scopes, ["default", "search_backend"]);
    let throttles: Vec<_> = rules.scopes.iter().filter_map(|scope| scope.throttle.as_ref()).collect();
    assert_eq!(throttles.iter().map(|rules| rules.concurrency.map(u32::from)).collect::<Vec<_>>(), [Some(64), Some(4)]);
    let backoff = throttles[0].backoff.as_ref().expect("it is written");
    assert_eq!((backoff.statuses.len(), backoff.factor, backoff.jitter.high), (9, 2, 0.1));
    assert_eq!((backoff.min_delay, backoff.max_delay), (Duration::from_secs(1), Duration::from_secs(300)));
    assert_eq!(throttles[1].spacing.delay, Duration::from_millis(100));
    let Some(Controller::Autothrottle(auto)) = &throttles[1].controller else { panic!("it is written") };
    assert_eq!((auto.target_concurrency, auto.max_delay), (2.0, Duration::from_secs(5)));
    assert!(
        throttles.iter().all(|rules| (rules.queue.max_wait, rules.queue.max_length) == (Duration::from_secs(2), 256))
    );
    let above: Vec<Units> =
        rules.quotas[0].class_tiers[0].iter().flat_map(|tiers| tiers.ladder.tiers()).map(|tier| tier.above).collect();
    assert_eq!(above, [6000, 8000, 9500].map(Units::from_whole));
    let costs: Vec<_> = rules.routes.iter().map(|route| route.costs.first().map(|cost| cost.1)).collect();
    let known = |units| Some(Cost::Known(Units::from_whole(units)));
    assert_eq!(costs, [known(1), known(4), None]);
}

#[test]
fn the_example_needs_no_notes() {
    assert!(settings(EXAMPLE).warnings.is_empty(), "{:?}", settings(EXAMPLE).warnings);
}

#[test]
fn a_delay_of_those_who_hold_a_key_is_for_nobody_else() {
    let partner = "{ name: partner, when: { key: { header: X-Api-Key, value: sesame } }, crawl_delay: 3s }";
    let settings = settings(&format!("origin: {{ url: http://o }}\nclasses: [{partner}]\n"));
    assert_eq!(settings.robots.delays, CrawlDelays::default());
}

#[test]
fn the_crawl_policy_is_told_where_that_is_wished() {
    let told = |yaml: &str| {
        let settings = settings(&format!("origin: {{ url: http://o }}\n{yaml}"));
        assert_eq!(settings.rules.serves_crawl_policy, settings.crawl_policy.is_some());
        settings.crawl_policy
    };
    for off in ["", "crawl_policy: off"] {
        assert_eq!(told(off), None);
    }
    assert_eq!(told("crawl_policy: on"), Some(CrawlPolicy::default()));
    let contact = Some("mailto:bots@example.com".to_owned());
    assert_eq!(
        told("crawl_policy: { contact: \"mailto:bots@example.com\", units: true }"),
        Some(CrawlPolicy { contact, units: true })
    );
}

#[test]
fn a_delay_is_for_an_operator_for_a_class_or_for_everybody_unknown() {
    let text = |robots: &str| {
        let classes = "classes:
  - { name: search, when: { operator: [googlebot, bingbot, applebot] }, crawl_delay: { bingbot: 2500ms, applebot: auto } }
  - { name: slow, when: { kind: verified_bot }, crawl_delay: 1h }
  - { name: bot, when: { kind: declared_bot }, crawl_delay: auto }\n";
        format!("origin: {{ url: http://o }}\n{classes}robots: {robots}\n")
    };
    let settings = settings(&text("{ trap: /keep-out, file: ./robots.txt }"));
    let (google, bing, apple) = (OperatorId(0), OperatorId(1), OperatorId(2));
    let delays = &settings.robots.delays;
    let asked = |operator| delays.per_operator.iter().find(|(known, _)| *known == operator).map(|(_, delay)| *delay);
    assert_eq!(asked(google), None, "its class asks only bingbot");
    assert_eq!(asked(bing), Some(CrawlDelay::Seconds(3)));
    assert_eq!(asked(apple), Some(CrawlDelay::Auto(ClassId(0))));
    assert_eq!(delays.default, Some(CrawlDelay::Auto(ClassId(2))));
    assert_eq!(
        settings.warnings,
        [
            "classes[0].crawl_delay.bingbot: crawlers read whole seconds from 1 to 30, so 3s is asked for",
            "classes[1].crawl_delay: crawlers read whole seconds from 1 to 30, so 30s is asked for",
        ]
    );
    assert_eq!(settings.robots.trap.as_deref(), Some("/keep-out"));
    let without = self::settings(&text("{ merge_crawl_delay: false }"));
    assert_eq!(without.robots.delays, CrawlDelays::default());
    assert!(
        without.warnings.iter().any(|note| note.starts_with("robots.merge_crawl_delay: ")),
        "{:?}",
        without.warnings
    );
}

#[test]
fn a_class_may_be_for_those_on_a_list() {
    let text = "lists: { tor: { file: ./tor.txt }, hosting: { file: hosting.txt } }\n\
                classes: [{ name: rented, when: { list: [hosting] } }, { name: a }]";
    let settings = settings(&site(text));
    assert_eq!(settings.rules.lists, ["tor", "hosting"]);
    assert_eq!(settings.lists[1].file, Path::new("hosting.txt"));
    let rented = &settings.rules.classes[0].when;
    assert_eq!(rented.lists, ListSet::from_ids([ListId(1)]));
    assert!(!rented.matches_all() && settings.rules.classes[1].when.matches_all());
}

#[test]
fn behaviour_is_watched_unless_it_is_switched_off() {
    let watched = |text: &str| settings(&site(text)).rules.behaviour.clone();
    let by_default = watched("").expect("it is on");
    assert_eq!((by_default.threshold, by_default.half_life), (100, Duration::from_secs(86_400)));
    assert_eq!((by_default.max_clients, by_default.honeypot), (200_000, None));
    let told = watched("behaviour: { threshold: 150, half_life: 1h, max_clients: 5000 }\nrobots: { trap: /never/ }");
    let told = told.expect("it is on");
    assert_eq!((told.threshold, told.half_life), (150, Duration::from_secs(3600)));
    assert_eq!((told.max_clients, told.honeypot.as_deref()), (5000, Some("/never")));
    assert_eq!(watched("behaviour: { enabled: false }"), None);
    let hidden = "behaviour: { enabled: false }\nclasses: [{ name: odd, when: { kind: suspected_bot }, block: true }]";
    let notes = settings(&site(hidden)).warnings;
    assert_eq!(notes, ["classes[0] (odd): nobody is suspected, as behaviour.enabled is false"]);
    let by_hand = format!("{hidden}\nagents: [{{ match: Odd, kind: suspected_bot }}]");
    assert!(settings(&site(&by_hand)).warnings.is_empty());
    let notes = settings(&site("behaviour: { enabled: false }\nrobots: { trap: /never }")).warnings;
    assert_eq!(notes, ["robots.trap: nobody looks who falls into it, as behaviour.enabled is false"]);
}

#[test]
fn a_scope_throttles_only_if_something_in_it_makes_anybody_wait() {
    let throttled = |scope: &str| {
        let settings = settings(&format!("origin: {{ url: http://o }}\nscopes: {{ default: {scope} }}"));
        settings.rules.scopes[0].throttle.clone()
    };
    for idle in ["{}", "{ queue: { max_wait: 1s } }", "{ jitter: 10% }", "{ delay: 0s }"] {
        assert_eq!(throttled(idle), None, "{idle}");
    }
    for busy in ["{ concurrency: 1 }", "{ delay: 1ms }", "{ autothrottle: { max_delay: 1s } }"] {
        assert!(throttled(busy).is_some(), "{busy}");
    }
    let resting = throttled("{ backoff: { min_delay: 400s } }").and_then(|rules| rules.backoff).expect("it backs off");
    assert_eq!((resting.statuses.len(), resting.max_delay), (9, Duration::from_secs(400)));
}

#[test]
fn a_section_of_a_scope_with_nothing_behind_it_means_its_defaults() {
    let throttle = |keys: &str| {
        let text = site(&format!("scopes:\n  default:\n    concurrency: 4\n{keys}"));
        settings(&text).rules.scopes[0].throttle.clone()
    };
    for (bare, keys) in [
        ("backoff:", "backoff: {}"),
        ("autothrottle:", "autothrottle: {}"),
        ("adaptive: # gradient", "adaptive: gradient"),
        ("backoff:\n    rampup:", "backoff: {}\n    rampup: {}"),
        ("queue:\n    # max_wait: 1s", "queue: {}"),
        ("delay: # 1s", ""),
    ] {
        assert_eq!(throttle(&format!("    {bare}")), throttle(&format!("    {keys}")), "{bare}");
    }
    assert_ne!(throttle("    backoff:"), throttle(""));
    let notes = settings(&site("scopes:\n  default:\n    queue:")).warnings;
    assert_eq!(notes.len(), 1, "it is there: {notes:?}");
}

#[test]
fn what_a_scope_says_in_vain_is_worth_a_note() {
    for (text, note) in [
        (
            "scopes: { default: { queue: { max_wait: 1s } } }",
            "scopes.default: queue and jitter alone make nobody wait, so nothing in it is throttled",
        ),
        (
            "scopes: { default: { jitter: 10% } }",
            "scopes.default: queue and jitter alone make nobody wait, so nothing in it is throttled",
        ),
        (
            "scopes: { default: { delay: 10s } }",
            "scopes.default.delay: longer than queue.max_wait (2s), so nobody can wait from one request to the next",
        ),
        ("scopes: { search: { concurrency: 1 } }", "scopes.search: no route names this scope, so it holds nobody back"),
        (
            "scopes: { search: { quota: { limit: 1, window: { fixed: 1h } } } }",
            "scopes.search: no route names this scope, so it holds nobody back",
        ),
        (
            "scopes: { default: { concurrency: 1 }, a: { concurrency: 2 } }\nroutes: [{ match: '/**', scopes: a }]",
            "scopes.default: no route names this scope, so it holds nobody back",
        ),
        (
            "scopes: { default: { quota: { limit: 1, window: { fixed: 1h } } }, a: { delay: 1s } }
routes: [{ match: '/**', scopes: a }]",
            "scopes.default: no route names this scope, so it holds nobody back",
        ),
    ] {
        assert_eq!(settings(&site(text)).warnings, [note], "{text}");
    }
    for text in [
        "scopes: { default: { delay: 10s, queue: { max_wait: 0s } } }",
        "scopes: { default: { delay: 10s, queue: { max_wait: 10s } } }",
        "scopes: { default: { delay: 10s, backoff: {}, rampup: {} } }",
        "scopes: { a: { quota: { limit: 1, window: { fixed: 1h } } } }\nroutes: [{ match: /a, cost: { a: 1 } }]",
        "scopes: { a: { delay: 1s } }\nroutes: [{ match: '/**', scopes: a }]",
    ] {
        assert_eq!(settings(&site(text)).warnings, [""; 0], "{text}");
    }
}

#[test]
fn a_scope_may_be_there_for_each_value() {
    for (written, meant) in [
        ("host", PartitionKey::Host),
        ("route", PartitionKey::Route),
        ("{ query: tenant }", PartitionKey::Query("tenant".into())),
        ("{ header: X-Tenant }", PartitionKey::Header(http::HeaderName::from_static("x-tenant"))),
        ("{ path: 2 }", PartitionKey::Path(NonZeroUsize::new(2).expect("two"))),
    ] {
        let rules = settings(&site(&by_value("tenant", &format!("scope_from: {written}")))).rules;
        let most = NonZeroUsize::new(10_000).expect("many");
        assert_eq!(rules.scopes[1].partitioning, Some(Partitioning { from: meant, max_partitions: most }), "{written}");
    }
}

#[test]
fn a_scope_may_bring_its_own_quota() {
    let rules = settings(&site(
        "quotas: { api: { limit: 9, window: { fixed: 1h } } }
scopes:
  search: { concurrency: 2, quota: { limit: 5, window: { fixed: 1h } } }
  default: { quota: { limit: 7, window: { fixed: 1h } } }
routes:
  - { match: /a, scopes: [default, search], cost: { api: 2 } }
  - { match: /b, scopes: search, cost: { search: 3 } }
  - { match: /c, scopes: search, cost: { search: 0 } }",
    ))
    .rules;
    let names: Vec<&str> = rules.quotas.iter().map(|quota| quota.name.as_str()).collect();
    assert_eq!(names, ["api", "search", "default"]);
    let costs = |route: usize| -> Vec<_> {
        let costs = rules.routes[route].costs.iter();
        costs.map(|(quota, cost)| (names[usize::from(quota.0)], *cost)).collect()
    };
    let known = |units| Cost::Known(Units::from_whole(units));
    assert_eq!(costs(0), [("api", known(2)), ("search", known(1)), ("default", known(1))]);
    assert_eq!(costs(1), [("search", known(3))]);
    assert_eq!(costs(2), []);
    assert_eq!((rules.routes[3].name.as_str(), costs(3)), ("/**", vec![("default", known(1))]));
}

#[test]
fn how_a_scope_finds_its_pace() {
    let throttled = |scope: &str| {
        let settings = settings(&site(&format!("scopes: {{ default: {scope} }}")));
        settings.rules.scopes[0].throttle.clone().expect("it is throttled")
    };
    let varied = |jitter: &str| throttled(&format!("{{ delay: 1s, jitter: {jitter} }}")).spacing.jitter;
    assert_eq!((varied("20%"), varied("[-10%, 30%]")), (Jitter::at_most(0.2), Jitter { low: -0.1, high: 0.3 }));

    let gradient = |floor, ceiling| Some(Controller::Gradient(Gradient { min: floor, max: ceiling }));
    for (written, meant) in [
        ("adaptive: gradient", gradient(1, 256)),
        ("concurrency: 20, adaptive: gradient", gradient(1, 20)),
        ("adaptive: { floor: 2, ceiling: 500 }", gradient(2, 500)),
    ] {
        assert_eq!(throttled(&format!("{{ {written}, delay_per_slot: 1s }}")).controller, meant, "{written}");
    }

    let ms = Duration::from_millis;
    for (written, target, lever) in [
        ("delay: 200ms, rampup: {}", 1..=1, RampVariable::Delay { start: ms(200), min: ms(20), max: ms(2000) }),
        (
            "delay: 200ms, concurrency: 9, rampup: { backoff_target: [1, 3], min_delay: 50ms, max_delay: 1s }",
            1..=3,
            RampVariable::Delay { start: ms(200), min: ms(50), max: ms(1000) },
        ),
        ("concurrency: 4, rampup: { backoff_target: 2 }", 2..=2, RampVariable::Concurrency { start: 4, max: 40 }),
        ("concurrency: 4, rampup: { max_concurrency: 9 }", 1..=1, RampVariable::Concurrency { start: 4, max: 9 }),
    ] {
        let meant = Rampup { target, window: Duration::from_secs(30), variable: lever };
        let throttle = throttled(&format!("{{ backoff: {{ window: 30s }}, {written} }}"));
        assert_eq!(throttle.controller, Some(Controller::Rampup(meant)), "{written}");
    }

    let settings = settings(&site("routes: [{ match: /a, measured: false }]"));
    assert_eq!(settings.rules.routes.iter().map(|route| route.measured).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn signatures_are_looked_at_unless_somebody_says_no() {
    let signatures = |text: &str| settings(&site(text)).verify.signatures;
    let usual = signatures("").expect("looked at");
    assert_eq!((usual.unlisted_agents, usual.max_lifetime), (false, Duration::from_secs(24 * 3600)));
    let own = signatures("verify: { signatures: { unlisted_agents: true, max_lifetime: 1h } }").expect("looked at");
    assert_eq!((own.unlisted_agents, own.max_lifetime), (true, Duration::from_secs(3600)));
    assert!(signatures("verify: { signatures: { enabled: false } }").is_none());
    let own = settings(&site("operators: { acme: { signature_agents: https://a.example } }"));
    assert_eq!(own.operators[0].signature_agents, Some(vec!["https://a.example".to_owned()]));
    assert_eq!(own.warnings, Vec::<String>::new(), "a signature claims and proves");
}

#[test]
fn an_origin_is_all_that_a_gate_needs() {
    let settings = load_with("", &[], &[("origin.url", "http://[::1]:81"), ("listen", "127.0.0.1:0")]).expect("enough");
    assert_eq!((settings.origin.host.as_str(), settings.origin.authority.as_str()), ("::1", "[::1]:81"));
    assert_eq!(settings.rules.classes.len(), 1);
    assert_eq!(settings.rules.routes[0].name, "/**");
    assert_eq!(settings.admin.map(|admin| admin.listen.to_string()).as_deref(), Some("127.0.0.1:9090"));
    assert_eq!(settings.log.access, AccessLog::File { path: "./state/access.log".into() });
    assert_eq!(settings.log.level, LogLevel::Info);
    assert_eq!(settings.rules.trust.ipv6_prefix, 64);
}

#[test]
fn off_turns_the_admin_listener_and_the_access_log_off() {
    let off = settings(&site("admin: off\nlog: { access: off }"));
    assert!(off.admin.is_none());
    assert_eq!(off.log.access, AccessLog::Off);
    let elsewhere = settings(&site("state_dir: /srv/state"));
    assert_eq!(elsewhere.log.access, AccessLog::File { path: "/srv/state/access.log".into() });
    let environment = [("TIDEGATE__ADMIN", "off"), ("TIDEGATE__LOG__ACCESS", "off")];
    assert!(
        load_with(&site("admin: { listen: 127.0.0.1:1 }"), &environment, &[]).expect("all is well").admin.is_none()
    );
    assert_eq!(
        faults("admin: none"),
        ["2:8: admin: found \"none\", needs an admin listener; use off or { listen: 127.0.0.1:9090 }"]
    );
    assert_eq!(
        faults("listen: 127.0.0.1:9090"),
        [
            "1:1: admin.listen: 127.0.0.1:9090 is where clients are served; write another port, such as admin: { listen: \
          127.0.0.1:9091 }, or admin: off"
        ]
    );
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let environment = [
        ("TIDEGATE__LISTEN", "[127.0.0.1:1, 127.0.0.1:2]"),
        ("TIDEGATE__ORIGIN__URL", "http://two"),
        ("TIDEGATE__LIMITS__MAX_HEADERS", "50"),
    ];
    let settings = load_with(EXAMPLE, &environment, &[("origin.url", "http://Three")]).expect("all is well");
    assert_eq!(settings.origin.authority, "three");
    assert_eq!(settings.listen.len(), 2);
    assert_eq!(settings.limits.max_headers, 50);
    assert_eq!(settings.origin.max_connections, 256, "what nobody replaces stays");
}

#[test]
fn variables_stand_for_numbers_switches_and_parts_of_text() {
    let text = "origin: { url: 'http://${HOST:-localhost}:${PORT}', max_connections: '${MOST}' }\nrobots:\n  merge_crawl_delay: ${MERGE}\nclasses: [{ name: a, crawl_delay: 3s }]\n\
                admin: { token: '${TOKEN:-}a$${b}' }";
    let settings =
        load_with(text, &[("PORT", "81"), ("MOST", "7"), ("MERGE", "false"), ("HOST", "")], &[]).expect("all is well");
    assert_eq!((settings.origin.authority.as_str(), settings.origin.max_connections), ("localhost:81", 7));
    assert_eq!(settings.warnings.len(), 1);
    let admin = settings.admin.expect("written down");
    assert!(admin.token.as_ref().is_some_and(|token| token.matches(b"a${b}") && !token.matches(b"a${b}c")));
    assert_eq!(format!("{:?}", admin.token), "Some(Secret)");
}

#[test]
fn known_keys_come_from_the_environment_and_are_never_shown() {
    let rules = "classes: [{ name: a, when: { key: { header: X-Api-Key, value: '${PARTNER}' } } }, { name: b }]";
    let of = |key: &str| load_with(&site(rules), &[("PARTNER", key)], &[]).expect("all is well");
    let settings = of("918273645546372819");
    let keys = settings.rules.classes[0].when.keys.as_ref().expect("written down");
    assert!(keys.contain(b"918273645546372819") && !keys.contain(b"918273645546372818") && !keys.contain(b""));
    assert!(!format!("{settings:?}").contains("918273645546372819"));
    assert_eq!(settings.warnings.len(), 0);
    assert_eq!(of("123").warnings, ["classes[0].when.key.value: a key of fewer than 16 characters can be guessed"]);
}

#[test]
fn several_gates_share_a_redis_and_nobody_sees_its_password() {
    let settings = settings(&site("ledger: { redis: { url: 'redis://gate:secret@[::1]:7000/2', when_lost: share } }"));
    let Ledger::Redis(redis) = &settings.ledger else { panic!("{:?}", settings.ledger) };
    assert_eq!((redis.host.as_str(), redis.port, redis.database), ("::1", 7000, 2));
    assert_eq!((redis.prefix.as_str(), redis.when_lost), ("tidegate", LedgerFailureMode::Fallback));
    assert!(redis.password.as_ref().is_some_and(|password| password.matches(b"secret")));
    assert!(!format!("{settings:?}").contains("secret"));
    let told = mistakes_with(&site("ledger: { redis: { url: '${URL}' } }"), &[("URL", "redis://:secret@")]);
    assert!(told.len() == 1 && !told[0].contains("secret"), "{told:?}");
}

#[test]
fn a_share_of_the_limit_is_rounded_up_to_a_thousandth() {
    let rules = settings(&site(
        "quotas: { q: { limit: 0.007, window: { fixed: 1s }, tiers: { other: [{ above: 50%, shed: 1% }] } } }",
    ))
    .rules;
    let tiers = rules.quotas[0].class_tiers[0].as_ref().expect("a ladder of the class for everybody");
    assert_eq!(tiers.ladder.tiers()[0].above, Units::from_milli(4));
}

#[test]
fn every_mistake_is_told_at_once_with_its_place() {
    let text = "\
listen: 8080
origin:
  url: ftp://site
  conect_timeout: 3s
quotas:
  places_api:
    limit: many
    window: { calendar: fortnight }
    tiers:
      search:
        - { above: 60%, shed: 50% }
        - { above: 80%, shed: 75 }
      serach:
        - { above: 80%, shed: 75% }
classes:
  - name: search
    when: { operator: googlbot, kind: [robot] }
  - { name: person, prority: 3 }
routes:
  - { match: item, cost: { place_api: 1 } }
";
    assert_eq!(
        mistakes(text),
        [
            "1:9: listen: found 8080, needs one word or a list of words; write [a, b] for a list",
            "3:8: origin.url: \"ftp://site\": does not begin with http://; write it like http://127.0.0.1:3000",
            "4:3: origin.conect_timeout: unknown key \"conect_timeout\" (did you mean \"connect_timeout\"?); known here: url, connect_timeout, response_timeout, idle_timeout, max_connections",
            "7:12: quotas.places_api.limit: found \"many\", needs an amount, to a thousandth; write it like 10000 or 0.25",
            "8:25: quotas.places_api.window.calendar: found \"fortnight\"; use one of hour, day, week, month",
            "12:31: quotas.places_api.tiers.search[1].shed: found 75, needs a share such as 75%; write a number from 0 to 100 with a percent sign",
            "13:7: quotas.places_api.tiers.serach: unknown class \"serach\" (did you mean \"search\"?); known: search, person",
            "17:23: classes[0].when.operator: unknown operator \"googlbot\" (did you mean \"googlebot\"?); known: googlebot, bingbot, applebot",
            "17:40: classes[0].when.kind[0]: found \"robot\"; use one of human, verified_bot, declared_bot, suspected_bot, impostor",
            "18:21: classes[1].prority: unknown key \"prority\" (did you mean \"priority\"?); known here: name, when, priority, bucket, block, enforce, guard, crawl_delay",
            "20:14: routes[0].match: \"item\": does not begin with a slash; write it like /item/*",
            "20:39: routes[0].cost.place_api: unknown quota \"place_api\" (did you mean \"places_api\"?); known: places_api",
        ]
    );
}

#[test]
fn what_is_missing_is_told_where_it_belongs() {
    assert_eq!(mistakes(""), ["1:1: origin.url: missing; say where the site is, such as http://127.0.0.1:3000"]);
    assert_eq!(
        faults(
            "quotas:\n  q:\nclasses:\n  - when:\n      kind: human\n    bucket: { rate: 1/s, fill: 3 }\nroutes:\n  - {}\nagents: [{}]\nlog: { access: {} }"
        ),
        [
            "3:3: quotas.q.limit: missing; say how many units each window has, such as 10000",
            "3:3: quotas.q.window: missing; write { calendar: day, zone: America/Los_Angeles, at: \"00:00\" } or { fixed: 24h }",
            "5:5: classes[0].name: missing; give the class a name",
            "7:5: classes[0].bucket: found both capacity, fill, interval and rate, burst; write { capacity: 60, fill: 10, interval: 10s } or { rate: 10/s, burst: 20 }",
            "9:5: routes[0].match: missing; say which paths, such as /item/* or /shop/**",
            "10:10: agents[0].match: nothing to look for; write a part of the user agent, such as AcmeMonitor",
            "10:10: agents[0].kind: missing; say what such a client is, such as human",
            "11:8: log.access.path: missing; name a file such as ./state/access.log",
        ]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_one_mistake_with_its_place() {
    let told = mistakes("origin:\n  url: [http://a\nlisten: 1\n");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("cannot be read as YAML: ")
            && told[0].ends_with("; check indentation, colons, quotes and brackets there"),
        "{told:?}"
    );
    assert!(told[0].starts_with(|sign: char| sign.is_ascii_digit()), "{told:?}");
    assert_eq!(mistakes("just words"), ["1:1: found no keys at the top; begin with a key such as `origin:`"]);
}

#[test]
fn a_key_given_twice_is_told_with_all_else() {
    assert_eq!(
        faults("workers: 2\nlog: { level: loud }\nworkers: 3"),
        [
            "3:15: log.level: found \"loud\"; use one of error, warn, info, debug, trace",
            "4:1: workers: key given twice, also in line 2; keep one of them",
        ]
    );
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let environment = [
        ("TIDEGATE__ORIGIN__ULR", "http://a"),
        ("TIDEGATE__WORKERS", "none"),
        ("TIDEGATE__LISTEN", "[127.0.0.1]"),
        ("TIDEGATE_LOG__LEVEL", "info"),
        ("TIDEGATE_ADMIN_TOKEN", "fine"),
    ];
    assert_eq!(
        mistakes_with(&site("state_dir: '${STATE}'"), &environment),
        [
            "2:12: state_dir: ${STATE} is not in the environment; set STATE, or write ${STATE:-default}",
            "TIDEGATE_LOG__LEVEL: replaces nothing; write it with two underscores: TIDEGATE__LOG__LEVEL",
            "TIDEGATE__LISTEN: listen[0]: found \"127.0.0.1\", needs an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"",
            "TIDEGATE__ORIGIN__ULR: origin.ulr: unknown key \"ulr\" (did you mean \"url\"?); known here: url, connect_timeout, response_timeout, idle_timeout, max_connections",
            "TIDEGATE__WORKERS: workers: found \"none\", needs a number of threads; write auto or a number from 1 to 1024",
        ]
    );
    let told = load_with(&site(""), &[], &[("listen", "nowhere")]).map(|_| ()).map_err(|mistakes| mistakes.to_string());
    assert_eq!(told, Err("--listen: listen: found \"nowhere\", needs an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"".into()));
}

/// Files with one mistake each, and what is said of it.
#[test]
fn each_contradiction_is_found() {
    let quota = |inside: &str| format!("quotas: {{ q: {{ limit: 10, window: {{ fixed: 1m }}, {inside} }} }}");
    let tiers = |tiers: &str| quota(&format!("tiers: {{ other: {tiers} }}"));
    let table: Vec<(String, &str)> = vec![
        (
            "quotas: { q: { limit: 0, window: { fixed: 1m } } }".into(),
            "2:23: quotas.q.limit: found 0; write what was bought; to refuse a class everything, use block: true",
        ),
        (
            "classes: [ { name: a, guard: maybe } ]".into(),
            "2:30: classes[0].guard: found \"maybe\", needs a guard; use on, off or { trickle: 5m, max_refused_for: 24h, up_to: 2% }",
        ),
        (
            "classes: [ { name: a, guard: { trickle: 0s } } ]".into(),
            "2:41: classes[0].guard.trickle: found no time at all; write a duration such as 10s",
        ),
        (
            "ledger: { redis: { url: 'rediss://h' } }".into(),
            "2:25: ledger.redis.url: TLS to Redis is not in this version; use redis:// over a network that you trust, or a tunnel such as stunnel on this host",
        ),
        (
            "ledger: { redis: { prefix: a } }".into(),
            "2:11: ledger.redis.url: missing; write it like redis://:${REDIS_PASSWORD}@10.0.0.5:6379",
        ),
        (
            "ledger: { redis: { url: 'redis://h', prefix: '{a}' } }".into(),
            "2:46: ledger.redis.prefix: the name \"{a}\" is not plain; use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        (
            "ledger: { redis: { url: 'redis://h', when_lost: panic } }".into(),
            "2:49: ledger.redis.when_lost: found \"panic\"; use one of refuse, share",
        ),
        (
            "ledger: { redis: { url: 'redis://h' } }\nquotas: { q: { limit: 9007199254741, window: { fixed: 1m } } }"
                .into(),
            "3:23: quotas.q.limit: 9007199254741 is more than Redis can count to a thousandth; write 9007199254740.992 at most, or leave out ledger.redis",
        ),
        (
            "quotas: { Q: { limit: 1, window: { fixed: 1m } } }".into(),
            "2:11: quotas.Q: the name \"Q\" is not plain; use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        (
            "quotas: { q: { limit: 1, window: { sliding: 0s } } }".into(),
            "2:45: quotas.q.window.sliding: found no time at all; write a duration such as 10s",
        ),
        (
            "quotas: { q: { limit: 1, window: { first_use: 1m, at: '01:00' } } }".into(),
            "2:55: quotas.q.window.at: says nothing about a first_use window; leave it out, or use calendar",
        ),
        (
            "quotas: { q: { limit: 1, window: { first_use: 1m, sliding: 1m } } }".into(),
            "2:26: quotas.q.window: found first_use and sliding at once; keep one of them",
        ),
        (
            "quotas: { q: { limit: 1, window: { zone: UTC } } }".into(),
            "2:26: quotas.q.window: found none of calendar, fixed, first_use and sliding; write { calendar: day, zone: America/Los_Angeles, at: \"00:00\" } or { fixed: 24h }",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 0s } } }".into(),
            "2:43: quotas.q.window.fixed: found no time at all; write a duration such as 10s",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1m, zone: UTC } } }".into(),
            "2:53: quotas.q.window.zone: says nothing about a fixed window; leave it out, or use calendar",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1m, calendar: day } } }".into(),
            "2:26: quotas.q.window: found calendar and fixed at once; keep one of them",
        ),
        (
            "quotas: { q: { limit: 1, window: { calendar: day, zone: Mars } } }".into(),
            "2:57: quotas.q.window.zone: unknown time zone \"Mars\"; use an IANA name such as America/Los_Angeles",
        ),
        (
            "quotas: { q: { limit: 1, window: { calendar: hour, at: '01:00' } } }".into(),
            "2:56: quotas.q.window.at: an hour begins at a minute, not at an hour; write it like \"00:15\"",
        ),
        (
            quota("pacing: evenly"),
            "2:58: quotas.q.pacing: found \"evenly\", needs how it is spread over its window; use off, even, learned or { mode: learned, burst: 5% }",
        ),
        (
            quota("pacing: even"),
            "2:58: quotas.q.pacing: there is nobody to pace: every class is served first, or not at all; give a class tiers, or a weight: { mode: learned, weights: { search: 1 } }",
        ),
        (
            "quotas: { q: { limit: 10, window: { sliding: 1h }, pacing: { mode: even, weights: { other: 1 } } } }".into(),
            "2:52: quotas.q.pacing: a sliding window never ends, so there is nothing to last until; use tiers, or a calendar or fixed window",
        ),
        (
            quota("pacing: { mode: even, weights: { other: 0 } }"),
            "2:90: quotas.q.pacing.weights.other: found 0; write a number from 1 to 1000",
        ),
        (
            quota("pacing: { mode: even, burst: 0%, weights: { other: 1 } }"),
            "2:79: quotas.q.pacing.burst: found 0%; write how far a class may run ahead, such as 5%",
        ),
        (
            quota("enforce: no"),
            "2:59: quotas.q.enforce: found \"no\", needs true or false; write one of the two, without quotes",
        ),
        (
            tiers("[]"),
            "2:59: quotas.q.tiers.other: no tiers; write [{ above: 80%, shed: 50% }], or leave the class out",
        ),
        (
            tiers("[{ above: 11, shed: 5% }]"),
            "2:76: quotas.q.tiers.other[0].above: 11 is never reached: the limit is 10; write a share such as 80%, or less than the limit",
        ),
        (
            tiers("[{ above: 5, shed: 5% }, { above: 50%, shed: 6% }]"),
            "2:100: quotas.q.tiers.other[1].above: not above the tier before it; write tiers from the lowest up",
        ),
        (
            tiers("[{ above: 5, shed: 5% }, { above: 6, shed: 5% }]"),
            "2:109: quotas.q.tiers.other[1].shed: sheds no more than the tier before it; shed more with each tier, 100% at most",
        ),
        (
            tiers("{ enforce: false, ladder: [{ above: 5, shed: 0% }] }"),
            "2:111: quotas.q.tiers.other.ladder[0].shed: sheds nothing; shed more with each tier, 100% at most",
        ),
        (
            tiers("[{ above: 5, shed: 101% }]"),
            "2:85: quotas.q.tiers.other[0].shed: found \"101%\", needs a share such as 75%; write a number from 0 to 100 with a percent sign",
        ),
        (
            tiers("nothing"),
            "2:66: quotas.q.tiers.other: found \"nothing\", needs a list of tiers; write [{ above: 80%, shed: 50% }]",
        ),
        (
            quota("cost_header: 'X Cost'"),
            "2:63: quotas.q.cost_header: found \"X Cost\", needs the name of a header; write it like X-API-Cost",
        ),
        (
            format!("{}\nroutes: [{{ match: /a, cost: {{ q: 11 }} }}]", quota("")),
            "3:34: routes[0].cost.q: 11 is more than the quota's limit of 10: never admitted; lower the cost or raise the limit",
        ),
        (
            format!("{}\nclasses: [{{ name: q, bucket: {{ rate: 1/s }} }}]", quota("")),
            "2:11: quotas.q: the bucket of class \"q\" has the same name in RateLimit fields; rename one of them",
        ),
        (
            "classes: [{ name: a, when: { kind: human } }, { name: a }]".into(),
            "2:55: classes[1].name: classes[0] is named \"a\", too; give each its own name",
        ),
        (
            "classes: [{ name: a }, { name: b }]".into(),
            "2:24: classes[1]: never reached: classes[0] (a) fits everybody; move it above that one",
        ),
        (
            "classes: [{ name: other, when: { kind: human } }]".into(),
            "2:19: classes[0].name: \"other\" is the class of everybody who fits none; choose another name",
        ),
        (
            "classes: [{ name: a, bucket: { capacity: 0, fill: 1, interval: 1s } }]".into(),
            "2:42: classes[0].bucket.capacity: found 0, needs at least 1; write a number such as 60",
        ),
        (
            "classes: [{ name: a, bucket: { capacity: 1, fill: 1, interval: 0s } }]".into(),
            "2:64: classes[0].bucket.interval: found no time at all; write a duration such as 10s",
        ),
        (
            "classes: [{ name: a, bucket: { capacity: 1, fill: 1 } }]".into(),
            "2:22: classes[0].bucket.interval: missing; give all of capacity, fill and interval",
        ),
        (
            "classes: [{ name: a, priority: 300 }]".into(),
            "2:32: classes[0].priority: found 300, needs a whole number up to 255; write it in digits",
        ),
        (
            "classes: [{ name: a, crawl_delay: { gogglebot: 3s } }]".into(),
            "2:48: classes[0].crawl_delay.gogglebot: unknown operator \"gogglebot\" (did you mean \"googlebot\"?); known: googlebot, bingbot, applebot",
        ),
        (
            "classes: [{ name: a, crawl_delay: soon }]".into(),
            "2:35: classes[0].crawl_delay: found \"soon\", needs a delay; write auto, a duration such as 10s, or { bingbot: 30s }",
        ),
        (
            "classes: [{ name: a, when: { user_agent: x }, crawl_delay: { bingbot: 3s } }, { name: b, crawl_delay: { bingbot: 4s } }]".into(),
            "2:114: classes[1].crawl_delay.bingbot: another class has a delay for it; keep one of them",
        ),
        (
            "crawl_policy: { contact: bots@example.com }".into(),
            "2:26: crawl_policy.contact: found \"bots@example.com\", needs whom to ask; write it like mailto:bots@example.com or https://example.com/bots",
        ),
        (
            "crawl_policy: loud".into(),
            "2:15: crawl_policy: found \"loud\", needs whether crawlers are told the policy; use on, off or { contact: \"mailto:bots@example.com\" }",
        ),
        (
            "robots: { trap: \"/a b\" }".into(),
            "2:17: robots.trap: is no plain path; write one such as /private-area, of letters, digits, \"/\", \"-\", \"_\" and \".\"",
        ),
        (
            "classes: [{ name: a, when: { address: 10.0.0.0/33 } }]".into(),
            "2:39: classes[0].when.address: found \"10.0.0.0/33\", needs an address range; write it like 10.0.0.0/8 or \"2001:db8::/32\"",
        ),
        (
            "routes: [{ match: /** }, { match: /a }]".into(),
            "2:26: routes[1]: never reached: routes[0] (/**) fits all that it fits; move it above that one",
        ),
        (
            "routes: [{ match: /a, scopes: [default] }, { match: /A/, scopes: [default] }]".into(),
            "2:44: routes[1]: never reached: routes[0] (/a) fits all that it fits; move it above that one, or write case: exact or trailing_slash: exact there",
        ),
        (
            "routes: [{ match: /a, case: ignored }]".into(),
            "2:29: routes[0].case: found \"ignored\" (did you mean \"ignore\"?); use one of exact, ignore",
        ),
        (
            "routes: [{ match: /a/**/b/c }]".into(),
            "2:19: routes[0].match: \"/a/**/b/c\": ** stands alone, at the end or before the last segment; write it like /shop/** or /**/*.css, or * within a segment",
        ),
        (
            "routes: [{ match: /a?b }]".into(),
            "2:19: routes[0].match: \"/a?b\": a path has no spaces, \"?\" or \"#\"; use query for parameters",
        ),
        (
            "routes: [{ match: /a, method: get }]".into(),
            "2:31: routes[0].method: found \"get\", needs a method; write it in capitals such as GET",
        ),
        (
            "routes: [{ match: /a, host: Example.com }]".into(),
            "2:29: routes[0].host: \"Example.com\" is no host; write it in small letters and without a port, such as shop.example.com or *.example.com",
        ),
        (
            "routes: [{ match: /a, scopes: [x] }]".into(),
            "2:32: routes[0].scopes[0]: unknown scope \"x\"; known: default",
        ),
        (
            "admin: { listen: '0.0.0.0:9090' }".into(),
            "2:18: admin.listen: 0.0.0.0:9090 is beyond loopback, and there is no token; set admin.token: ${TIDEGATE_ADMIN_TOKEN}, or listen on 127.0.0.1",
        ),
        ("admin: { token: 12345 }".into(), "2:17: admin.token: found a number, needs text; put it in quotes"),
        (
            "admin: { listen: '127.0.0.1:8080' }".into(),
            "2:18: admin.listen: 127.0.0.1:8080 is where clients are served; write another port, such as admin: { listen: 127.0.0.1:9091 }, or admin: off",
        ),
        (
            "listen: ['127.0.0.1:1', '127.0.0.1:1']".into(),
            "2:25: listen[1]: 127.0.0.1:1 is listed twice; keep one of them",
        ),
        (
            "listen: 127.0.0.1:3000".into(),
            "1:16: origin.url: 127.0.0.1:3000 is where the gate itself listens; write where the site is",
        ),
        (
            "clients: { address_from: proxy-protocol, trusted_proxies: [10.0.0.1] }".into(),
            "2:26: clients.address_from: proxy-protocol is not in this version; use x-forwarded-for, forwarded or { header: NAME }",
        ),
        (
            "clients: { address_from: {}, trusted_proxies: [10.0.0.1] }".into(),
            "2:12: clients.address_from.header: missing; name the header, such as CF-Connecting-IP",
        ),
        (
            "clients: { ipv6_prefix: 65 }".into(),
            "2:25: clients.ipv6_prefix: found 65, needs 32 to 64; write 64, which is one household",
        ),
        (
            "classes: [{ name: a, when: { key: { header: X-Api-Key } } }]".into(),
            "2:30: classes[0].when.key.value: no key to compare with; write it, or ${NAME} to read it from the environment",
        ),
        (
            "classes: [{ name: a, when: { key: { value: a-key-that-is-long } } }]".into(),
            "2:30: classes[0].when.key: found neither header nor cookie; write { header: X-Api-Key } or { cookie: session }",
        ),
        (
            "classes: [{ name: a, when: { key: { cookie: k, value: 918273645546372819 } } }]".into(),
            "2:55: classes[0].when.key.value: found a number, needs text; put it in quotes",
        ),
        (
            "classes: [{ name: a, when: { key: { cookie: k, value: [long-enough-to-be-one, \" spaced-and-secret\"] } } }]".into(),
            "2:48: classes[0].when.key.value: begins or ends with a space, or holds what no header may; write it as it is sent",
        ),
        (
            "quotas: { api: { limit: 0.0001, window: { fixed: 24h } } }".into(),
            "2:25: quotas.api.limit: found 0.0001, needs an amount, to a thousandth; write it like 10000 or 0.25",
        ),
        (
            "quotas: { api: { limit: 1, window: { sliding: 1ms } } }".into(),
            "2:47: quotas.api.window.sliding: found less than a second; write 1s or more",
        ),
        (
            "classes: [{ name: a, bucket: { rate: 1/s, key: ip } }]".into(),
            "2:48: classes[0].bucket.key: found \"ip\", needs who shares a bucket; use address, operator, class, { header: NAME } or { cookie: NAME }",
        ),
        (
            "classes: [{ name: a, bucket: { rate: 1/s, key: {} } }]".into(),
            "2:43: classes[0].bucket.key: found neither header nor cookie; write { header: X-Api-Key } or { cookie: session }",
        ),
        (
            "classes: [{ name: a, bucket: { rate: 1/s, key: { header: a, cookie: b } } }]".into(),
            "2:43: classes[0].bucket.key: found both header and cookie; write { header: X-Api-Key } or { cookie: session }",
        ),
        (
            "classes: [{ name: a, bucket: { rate: 1/s, key: { cookie: a b } } }]".into(),
            "2:58: classes[0].bucket.key.cookie: not the name of a cookie; write it like session",
        ),
        (
            "headers: { retry_after_spread: 101% }".into(),
            "2:32: headers.retry_after_spread: found \"101%\", needs a share such as 75%; write a number from 0 to 100 with a percent sign",
        ),
        (
            "log: { access: { path: a, format: combined } }".into(),
            "2:35: log.access.format: combined is not in this version; use json, which can be replayed",
        ),
        (
            "log: { access: file }".into(),
            "2:16: log.access: found \"file\", needs an access log; use off, stdout or { path: FILE }",
        ),
        (
            "limits: { head_timeout: 0s }".into(),
            "2:25: limits.head_timeout: found no time at all; write a duration such as 10s",
        ),
        (
            "limits: { max_head_size: 1KiB }".into(),
            "2:26: limits.max_head_size: needs 8KiB to 1MiB; write a size such as 32KiB",
        ),
        (
            "limits: { max_connections: 0 }".into(),
            "2:28: limits.max_connections: found 0, needs at least 1; write a number such as 10000",
        ),
        (
            "scopes: { default: { backoff: { min_delay: 5s, max_delay: 1s } } }".into(),
            "2:59: scopes.default.backoff.max_delay: less than min_delay; write at least as much",
        ),
        (
            "scopes: { default: { backoff: { max_delay: 500ms } } }".into(),
            "2:44: scopes.default.backoff.max_delay: less than min_delay, which is 1s by default; write at least as much",
        ),
        (
            "scopes: { default: { autothrottle: { start_delay: 30s } } }".into(),
            "2:51: scopes.default.autothrottle.start_delay: more than max_delay, which is 5s by default; write at most as much, or max_delay, too",
        ),
        (
            "classes: [{ name: a, when: { key: { header: X Api, value: a-key-that-is-long } } }]".into(),
            "2:45: classes[0].when.key.header: found \"X Api\", needs the name of a header; write it like X-API-Cost",
        ),
        (
            "scopes: { default: { delay: 6s, autothrottle: { target_concurrency: 1 } } }".into(),
            "2:33: scopes.default.autothrottle.max_delay: less than the scope's delay; write at least as much, or lower that",
        ),
        ("lists: { hosting: {} }".into(), "2:10: lists.hosting.file: missing; name a file such as ./hosting.txt"),
        (
            "lists: { hosting: { file: a.txt } }\nclasses: [{ name: a, when: { list: hostng } }]".into(),
            "3:36: classes[0].when.list: unknown list \"hostng\" (did you mean \"hosting\"?); known: hosting",
        ),
        (
            "behaviour: { threshold: 20 }".into(),
            "2:25: behaviour.threshold: found 20, needs 50 to 1000; write 100, or `enabled: false` to suspect nobody",
        ),
        (
            "behaviour: { threshold: 100000 }".into(),
            "2:25: behaviour.threshold: found 100000, needs 50 to 1000; write 100, or `enabled: false` to suspect nobody",
        ),
        (
            "behaviour: off".into(),
            "2:12: behaviour: found \"off\", needs keys with values; write behaviour: { enabled: false } to suspect nobody",
        ),
        (
            "lists: { hosting: ./hosting.txt }".into(),
            "2:19: lists.hosting: found \"./hosting.txt\", needs keys with values; write { file: ./hosting.txt }",
        ),
        (
            "robots: { crawl_delay: 5s }".into(),
            "2:11: robots.crawl_delay: unknown key \"crawl_delay\"; write it at a class, classes: [{ name: bot, crawl_delay: 10s }]; known here: merge_crawl_delay, file, trap",
        ),
        (
            "operators: { googlebot: { names: \"*.dnsy.example\" } }".into(),
            "2:34: operators.googlebot.names: found \"*.dnsy.example\", needs names in DNS; write crawl.example.com, which is all below it, too, or bot-*.example.com",
        ),
        (
            "behaviour: { half_life: 0s }".into(),
            "2:25: behaviour.half_life: found no time at all; write a duration such as 10s",
        ),
        (
            "robots: { trap: '/a/../b' }".into(),
            "2:17: robots.trap: is no plain path; write one such as /private-area, of letters, digits, \"/\", \"-\", \"_\" and \".\"",
        ),
        (
            "robots: { trap: / }".into(),
            "2:17: robots.trap: is no plain path; write one such as /private-area, of letters, digits, \"/\", \"-\", \"_\" and \".\"",
        ),
        (
            by_value("tenant", "scope_from: tenant"),
            "2:33: scopes.tenant.scope_from: found \"tenant\", needs what there is a scope for each value of; use host, route, { query: NAME }, { header: NAME } or { path: 1 }",
        ),
        (
            by_value("tenant", "scope_from: {}"),
            "2:21: scopes.tenant.scope_from: found none of query, header and path; write host, route, { query: tenant }, { header: X-Tenant } or { path: 1 }",
        ),
        (
            by_value("tenant", "scope_from: { query: a, path: 1 }"),
            "2:21: scopes.tenant.scope_from: found query and path at once; keep one of them",
        ),
        (
            by_value("tenant", "scope_from: { query: '' }"),
            "2:42: scopes.tenant.scope_from.query: names no parameter; write it like tenant",
        ),
        (
            by_value("tenant", "scope_from: { header: X Y }"),
            "2:43: scopes.tenant.scope_from.header: found \"X Y\", needs the name of a header; write it like X-API-Cost",
        ),
        (
            by_value("tenant", "scope_from: { header: Authorization }"),
            "2:43: scopes.tenant.scope_from.header: \"authorization\" holds secrets, and values are shown to operators; name a header that says whom it is for, such as X-Tenant",
        ),
        (
            by_value("tenant", "scope_from: { path: 0 }"),
            "2:41: scopes.tenant.scope_from.path: found 0, needs at least 1; write a number such as 1",
        ),
        (
            by_value("tenant", "scope_from: host, max_values: 0"),
            "2:51: scopes.tenant.max_values: found 0, needs at least 1; write a number such as 10000",
        ),
        (
            by_value("tenant", "scope_from: host, max_values: 1000001"),
            "2:51: scopes.tenant.max_values: found 1000001, at most 1000000 fit; write a lower number",
        ),
        (
            by_value("tenant", "max_values: 5"),
            "2:33: scopes.tenant.max_values: the scope is there once, not for each value; add scope_from, or leave it out",
        ),
        (
            by_value("default", "scope_from: host"),
            "2:34: scopes.default.scope_from: default is the scope of every route that names none; give it a name of its own, and name it in the routes it is for",
        ),
        (
            "scopes: { tenant: { scope_from: host } }\nroutes: [{ match: /a, scopes: tenant }]".into(),
            "2:33: scopes.tenant.scope_from: nothing in this scope makes anybody wait; write concurrency, delay, autothrottle or backoff beside it",
        ),
        (
            "scopes: { tenant: { scope_from: host, delay: 1s } }".into(),
            "2:33: scopes.tenant.scope_from: no route names this scope; write scopes: [default, tenant] at the routes it is for",
        ),
        (
            by_value("tenant", "scope_from: host, quota: { limit: 5, window: { fixed: 1h } }"),
            "2:39: scopes.tenant.quota: a quota is kept for good, and the values of scope_from are not; bound each value by concurrency and delay, or each client by a bucket",
        ),
        (
            format!("{}\nscopes: {{ q: {{ quota: {{ limit: 5, window: {{ fixed: 1h }} }} }} }}", quota("")),
            "3:16: scopes.q.quota: quotas.q has the same name; keep one of them, or rename the scope",
        ),
        (
            "scopes: { search: { quota: { limit: 5 } } }".into(),
            "2:21: scopes.search.quota.window: missing; write { calendar: day, zone: America/Los_Angeles, at: \"00:00\" } or { fixed: 24h }",
        ),
        (
            "scopes: { search: { quota: { limit: 0.5, window: { fixed: 1h } } } }\nroutes: [{ match: /a, scopes: search }]".into(),
            "3:31: routes[0].scopes: 1 is more than the quota's limit of 0.5: never admitted; lower the cost or raise the limit",
        ),
        (
            "scopes: { default: { delay_per_slot: 1s } }".into(),
            "2:38: scopes.default.delay_per_slot: without concurrency there are no slots; say how many, such as concurrency: 4, or write delay",
        ),
        (
            "scopes: { default: { delay: 1s, jitter: [30%, 10%] } }".into(),
            "2:33: scopes.default.jitter: the most is less than the least; write 10%, or [-10%, 30%] with the least first",
        ),
        (
            "scopes: { default: { delay: 1s, jitter: [10%] } }".into(),
            "2:41: scopes.default.jitter: invalid length 1, expected one value, or the least and the most; write [low, high] for both",
        ),
        (
            "scopes: { default: { delay: 1s, jitter: -10% } }".into(),
            "2:41: scopes.default.jitter: the most is less than the least; write 10%, or [-10%, 30%] with the least first",
        ),
        (
            "scopes: { default: { autothrottle: { target_concurrency: 0 } } }".into(),
            "2:58: scopes.default.autothrottle.target_concurrency: found 0, needs more; write a number such as 2, or 0.5 for as much pause as work",
        ),
        (
            "scopes: { default: { autothrottle: { good_statuses: [200, 2000] } } }".into(),
            "2:59: scopes.default.autothrottle.good_statuses[1]: found 2000, needs a status; write one from 100 to 599",
        ),
        (
            "scopes: { default: { autothrottle: {}, adaptive: gradient } }".into(),
            "2:50: scopes.default.adaptive: the scope has autothrottle, too: they would undo each other's work; keep one, or give them a scope each and the route both scopes",
        ),
        (
            "scopes: { default: { adaptive: vegas } }".into(),
            "2:32: scopes.default.adaptive: found \"vegas\", needs how the most at once is found; use gradient, or { floor: 2, ceiling: 64 }",
        ),
        (
            "scopes: { default: { adaptive: { floor: 0 } } }".into(),
            "2:41: scopes.default.adaptive.floor: found 0, needs at least 1; write a number such as 1",
        ),
        (
            "scopes: { default: { adaptive: { floor: 9, ceiling: 8 } } }".into(),
            "2:53: scopes.default.adaptive.ceiling: 8, which is less than floor; write at least as much",
        ),
        (
            "scopes: { default: { concurrency: 8, adaptive: { ceiling: 9 } } }".into(),
            "2:59: scopes.default.adaptive.ceiling: more than the scope's concurrency; write at most as much, or leave one of them out",
        ),
        (
            "scopes: { default: { concurrency: 8, rampup: {} } }".into(),
            "2:38: scopes.default.rampup: without backoff no complaints are counted; write backoff: {}, too",
        ),
        (
            "scopes: { default: { backoff: {}, rampup: {} } }".into(),
            "2:35: scopes.default.rampup: there is nothing to begin with; write delay or concurrency, too",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { backoff_target: [3, 1] } } }".into(),
            "2:56: scopes.default.rampup.backoff_target: no number of complaints is right; write a number such as 1, or [1, 3] with the least first",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { backoff_target: 0 } } }".into(),
            "2:72: scopes.default.rampup.backoff_target: no number of complaints is right; write a number such as 1, or [1, 3] with the least first",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { min_delay: 2s } } }".into(),
            "2:67: scopes.default.rampup.min_delay: the scope's delay is beyond it; begin between min_delay and max_delay",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { max_concurrency: 9 } } }".into(),
            "2:73: scopes.default.rampup.max_concurrency: the scope's delay is varied; leave it out",
        ),
        (
            "scopes: { default: { concurrency: 9, backoff: {}, rampup: { max_delay: 9s } } }".into(),
            "2:72: scopes.default.rampup.max_delay: the scope's concurrency is varied; leave it out",
        ),
        (
            "scopes: { default: { concurrency: 9, backoff: {}, rampup: { max_concurrency: 8 } } }".into(),
            "2:78: scopes.default.rampup.max_concurrency: less than the scope's concurrency; write at least as much",
        ),
        (
            "quotas: 5".into(),
            "2:9: quotas: found 5, needs names with values; write {name: value}, or one name a line, indented",
        ),
        (
            "classes: [5]".into(),
            "2:11: classes[0]: found 5, needs keys with values; write {key: value}, or one key a line, indented",
        ),
        (
            "operators: { googlebot: { signature_agents: [https://bot.example, http://bot.example] } }".into(),
            "2:67: operators.googlebot.signature_agents[1]: \"http://bot.example\" is no agent's address; write it like https://bot.example",
        ),
        (
            "verify: { signatures: { max_lifetime: 0s } }".into(),
            "2:39: verify.signatures.max_lifetime: found no time at all; write a duration such as 10s",
        ),
        (
            "listne: 127.0.0.1:1".into(),
            "2:1: listne: unknown key \"listne\" (did you mean \"listen\"?); known here: listen, workers, admin, state_dir, ledger, origin, clients, lists, agents, operators, verify, behaviour, quotas, classes, scopes, routes, headers, robots, crawl_policy, log, limits",
        ),
    ];
    let mut wrong = Vec::new();
    for (text, told) in &table {
        let found = faults(text);
        if found != [*told] {
            wrong.push(format!("{text}\n  wanted {told:?}\n  found  {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_origin_is_a_plain_address() {
    for (url, told) in [
        ("https://a", "TLS to the origin is not in this version; use http://, over a network that you trust"),
        ("http://me:secret@a", "holds a user name or password; leave it out: the gate passes on what clients send"),
        (
            "http://a/b",
            "\"http://a/b\": has a path: paths are passed on as they come; write it like http://127.0.0.1:3000",
        ),
        ("http://a:0", "\"http://a:0\": the port is not a number from 1 to 65535; write it like http://127.0.0.1:3000"),
        ("http://", "\"http://\": has no host that can be reached; write it like http://127.0.0.1:3000"),
    ] {
        assert_eq!(mistakes(&format!("origin: {{ url: '{url}' }}")), [format!("1:16: origin.url: {told}")]);
    }
}

#[test]
fn a_mistyped_key_that_must_be_given_is_missing_too() {
    assert_eq!(
        faults("clients: { address_from: { haeder: X }, trusted_proxies: [10.0.0.1] }"),
        [
            "2:12: clients.address_from.header: missing; name the header, such as CF-Connecting-IP",
            "2:28: clients.address_from.haeder: unknown key \"haeder\" (did you mean \"header\"?); known here: header",
        ]
    );
}

#[test]
fn a_bare_placeholder_inside_brackets_is_told_to_be_quoted() {
    let told = mistakes("origin: { url: ${URL} }");
    assert!(told[0].ends_with("; put \"${...}\" in quotes where it stands inside { } or [ ]"), "{told:?}");
}

#[test]
fn a_mistake_is_one_line_whatever_a_key_holds() {
    assert_eq!(
        faults("robots: { \"a\\nb\": 1 }"),
        ["2:11: robots.a\\nb: unknown key \"a\\nb\"; known here: merge_crawl_delay, file, trap"]
    );
    assert!(faults(&format!("robots: {{ {}: 1 }}", "x".repeat(900))).iter().all(|told| told.len() < 1200));
}

#[test]
fn a_header_that_nobody_may_send_is_worth_a_note() {
    let notes = settings(&site("clients: { address_from: forwarded }")).warnings;
    assert_eq!(notes, ["clients.address_from: no proxy is trusted, so the header is never believed"]);
}

#[test]
fn yaml_may_share_values_and_numbers_may_be_absurd() {
    let shared = "quotas:\n  a: &a { limit: 1, window: { fixed: 1s } }\n  b: { <<: *a, limit: 2 }\n";
    let limits: Vec<Units> = settings(&site(shared)).rules.quotas.iter().map(|quota| quota.limit).collect();
    assert_eq!(limits, [1, 2].map(Units::from_whole));
    for absurd in
        ["99999999999999999999999999", "-1", ".nan", ".inf", "1e300", "0x", "true", "[1]", "{ a: 1 }", "!!binary aGk="]
    {
        let told = faults(&format!("quotas: {{ q: {{ limit: {absurd}, window: {{ fixed: 1s }} }} }}"));
        assert_eq!(told.len(), 1, "{absurd}: {told:?}");
        assert!(told[0].starts_with("2:"), "{absurd}: {told:?}");
    }
    assert_eq!(
        settings(&site("quotas: { q: { limit: 1e3, window: { fixed: 1s } } }")).rules.quotas[0].limit,
        Units::from_whole(1000)
    );
}

#[test]
fn a_yaml_bomb_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert_eq!(mistakes(&text).len(), 1);
}

#[test]
fn more_than_eight_quotas_on_a_route_are_too_many() {
    let quotas: String = (0..9).map(|count| format!("  q{count}: {{ limit: 1, window: {{ fixed: 1s }} }}\n")).collect();
    let costs: Vec<String> = (0..9).map(|count| format!("q{count}: 1")).collect();
    let text = format!("quotas:\n{quotas}routes: [{{ match: /a, cost: {{ {} }} }}]", costs.join(", "));
    assert_eq!(faults(&text), ["12:23: routes[0].cost: found 9 quotas; a route pays from at most 8"]);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[-a-z0-9:{}\\[\\]\"'#&*!|>%@,\\n $.]{0,120}") {
        let _ = load_with(&text, &[], &[]);
    }

    #[test]
    fn no_change_of_the_example_makes_it_panic(start in any::<prop::sample::Index>(), length in 0usize..40, put in "[-a-z0-9:{}\\[\\]\"'#%,\\n $.]{0,12}") {
        let mut text: Vec<char> = EXAMPLE.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n").chars().collect();
        let start = start.index(text.len());
        let end = (start + length).min(text.len());
        text.splice(start..end, put.chars());
        let text: String = text.into_iter().collect();
        if let Err(mistakes) = load_with(&text, &[("A", "1")], &[]) {
            prop_assert!(!mistakes.list.is_empty());
            prop_assert!(mistakes.to_string().lines().all(|line| line.starts_with("gate.yaml:") && line.contains("; ")), "{mistakes}");
        }
    }

    #[test]
    fn no_variable_makes_it_panic(name in "[A-Z_]{0,20}", value in "[ -~]{0,40}") {
        let _ = load_with(EXAMPLE, &[(&format!("TIDEGATE__{name}"), &value)], &[]);
    }
}

#[test]
fn dns_is_asked_of_the_system_unless_the_file_says_otherwise() {
    let dns = |written: &str| settings(&site(written)).verify.dns.map(|dns| (dns.nameservers, dns.timeout));
    let (second, system) = (Duration::from_secs(1), Some((Vec::new(), Duration::from_secs(2))));
    assert_eq!(dns(""), system);
    assert_eq!(dns("verify: { dns: on }"), system);
    assert_eq!(dns("verify: { dns: off }"), None);
    let servers = vec!["127.0.0.1:53".parse().expect("an address"), "[::1]:5353".parse().expect("an address")];
    let written = "verify: { dns: { nameservers: [127.0.0.1:53, \"[::1]:5353\"], timeout: 1s } }";
    assert_eq!(dns(written), Some((servers, second)));
}

#[test]
fn lists_are_fetched_daily_unless_the_file_says_otherwise() {
    let refresh = |written: &str| settings(&site(written)).verify.refresh;
    assert_eq!(refresh(""), Some(Duration::from_secs(86_400)));
    assert_eq!(refresh("verify: { refresh: 6h }"), Some(Duration::from_secs(6 * 3600)));
    assert_eq!(refresh("verify: { refresh: off }"), None);
}

#[test]
fn an_operator_is_added_or_changed_by_name() {
    let text = "operators:\n  \
                  acme: { tokens: AcmeBot, ranges: [192.0.2.0/24, https://acme.example/bots.json, ./acme.txt], names: bot-*.acme.example }\n  \
                  googlebot: { complete: [] }\n\
                classes: [{ name: friend, when: { operator: [acme, bingbot] } }]";
    let settings = settings(&site(text));
    assert_eq!(settings.operator_names, ["googlebot", "bingbot", "applebot", "acme"]);
    assert_eq!(settings.rules.classes[0].when.operators, [crate::policy::OperatorId(3), crate::policy::OperatorId(1)]);
    let [acme, google] = &settings.operators[..] else { panic!("{:?}", settings.operators) };
    assert_eq!(acme.ranges.as_ref().map(Vec::len), Some(3));
    assert_eq!(acme.names.as_ref().map(|names| names[0].to_string()).as_deref(), Some("bot-*.acme.example"));
    assert_eq!((&google.tokens, &google.complete), (&None, &Some(Vec::new())));
    assert_eq!(settings.warnings, Vec::<String>::new());
}

#[test]
fn an_operator_that_nobody_claims_or_nothing_proves_is_noted() {
    let notes = settings(&site("operators: { gogglebot: { complete: names } }")).warnings;
    assert_eq!(
        notes,
        [
            "operators.gogglebot: none is built in by that name, and without tokens nobody claims it",
            "operators.gogglebot: without ranges, names or signature_agents nothing proves it",
        ]
    );
}

#[test]
fn what_was_meant_as_a_network_is_no_file() {
    let ranges = |sources: &str| site(&format!("operators: {{ googlebot: {{ ranges: [{sources}] }} }}"));
    let told = mistakes(&ranges("192.0.2.0/33, 192.0.2.256, \"2001:db8::/129\", 192.0.2.0/24, \"::1\""));
    let wrong = |column, place, source| {
        let remedy = "write it like 192.0.2.0/24 or 2001:db8::/32";
        format!("2:{column}: operators.googlebot.ranges[{place}]: {source:?} is no network; {remedy}")
    };
    assert_eq!(told, [wrong(36, 0, "192.0.2.0/33"), wrong(50, 1, "192.0.2.256"), wrong(63, 2, "2001:db8::/129")]);
    let files = settings(&ranges("cafe.bad, ./10.0, /etc/1.2, 1.txt")).range_files;
    let files: Vec<&str> = files.iter().filter_map(|named| named.file.to_str()).collect();
    assert_eq!(files, ["cafe.bad", "./10.0", "/etc/1.2", "1.txt"]);
}

#[test]
fn a_list_that_is_never_fetched_is_noted() {
    let rules = "verify: { refresh: off }\noperators: { googlebot: { ranges: \"https://a.example/x?key=secret\" } }";
    let notes = settings(&site(rules)).warnings;
    let told =
        "gate.yaml:3:35: operators.googlebot.ranges: https://a.example/x is not fetched, because verify.refresh is off";
    assert_eq!(notes, [told]);
    assert!(settings(&site(&rules.replace("refresh: off", "refresh: 1h"))).warnings.is_empty());
}

#[test]
fn what_two_operators_say_is_told_at_the_second() {
    assert_eq!(
        faults(
            "operators:\n  acme: { tokens: [AcmeBot, Other], ranges: 192.0.2.1, signature_agents: https://a.example }\n  \
             evil: { tokens: acmebot, ranges: 192.0.2.2, signature_agents: [https://b.example, https://a.example] }"
        ),
        [
            "4:19: operators.evil.tokens: \"acmebot\" stands under operators.acme, too; keep one of them",
            "4:85: operators.evil.signature_agents[1]: \"https://a.example\" stands under operators.acme, too; keep one of them",
        ]
    );
}

#[test]
fn a_crawl_delay_stands_at_a_class_of_those_who_are_asked() {
    assert_eq!(
        faults(
            "classes:\n  - { name: person, when: { kind: human }, crawl_delay: 5s }\n  \
             - { name: search, when: { operator: googlebot }, crawl_delay: { googlebot: 5s, bingbot: 5s } }\n  \
             - { name: liars, when: { kind: [impostor, suspected_bot] }, crawl_delay: auto }"
        ),
        [
            "3:57: classes[0].crawl_delay: no crawler that reads it is in this class; write it at the class of verified_bot or declared_bot",
            "4:91: classes[1].crawl_delay.bingbot: bingbot is not in this class; write it at the class of its crawlers",
            "5:76: classes[2].crawl_delay: no crawler that reads it is in this class; write it at the class of verified_bot or declared_bot",
        ]
    );
}

#[test]
fn what_cannot_prove_a_crawler_is_a_mistake() {
    assert_eq!(
        faults(
            "verify: { dns: { nameservers: [], timeout: 0s }, refresh: 10s }\noperators:\n  acme:\n    tokens: [\"\", AcmeBot]\n    ranges:\n      \
             - http://acme.example/bots.json\n      - ftp://acme.example/\n      - https://user@acme.example/\n      - \"\"\n      - 0.0.0.0/0\n      - 2000::/3\n  \
             Other: { tokens: Other, ranges: 192.0.2.1 }"
        ),
        [
            "2:18: verify.dns.nameservers: names no server; write one such as 127.0.0.1:53, leave it out to ask the system's, or write dns: off",
            "2:44: verify.dns.timeout: found no time at all; write a duration such as 10s",
            "2:59: verify.refresh: found less than a minute; write a duration such as 24h, or off",
            "5:14: operators.acme.tokens[0]: \"\" is no product token; write it like ExampleBot, without a version",
            "7:9: operators.acme.ranges[0]: anybody on the way could write that list; use https://; http:// is for this machine alone",
            "8:9: operators.acme.ranges[1]: \"ftp://acme.example/\" cannot be fetched; write a network, an https:// URL or the path of a file",
            "9:9: operators.acme.ranges[2]: \"https://user@acme.example/\" cannot be fetched; write a network, an https:// URL or the path of a file",
            "10:9: operators.acme.ranges[3]: names no source; write a network, an https:// URL or the path of a file",
            "11:9: operators.acme.ranges[4]: 0.0.0.0/0 is wider than any crawler's network; write what its crawlers have: at most an IPv4 /8 or an IPv6 /19",
            "12:9: operators.acme.ranges[5]: 2000::/3 is wider than any crawler's network; write what its crawlers have: at most an IPv4 /8 or an IPv6 /19",
            "13:3: operators.Other: the name \"Other\" is not plain; use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
        ]
    );
    for (written, told) in [
        ("verify: { dns: maybe }", "whether DNS is asked"),
        ("verify: { dns: { nameservers: 127.0.0.1 } }", "an address and port"),
        ("operators: { a: { names: com } }", "names in DNS"),
        ("operators: { a: { complete: signatures } }", "names"),
    ] {
        let faults = faults(written);
        assert!(faults.len() == 1 && faults[0].contains(told), "{written}: {faults:?}");
    }
}
