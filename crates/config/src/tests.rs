use super::settings::{
    AccessLog, AccessLogFormat, ErrorBody, ErrorStatus, ForwardAuth, HeaderField, Ledger, LedgerFailureMode,
    LegacyFamily, LogLevel,
};
use super::*;
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::time::Duration;
use tidegate_policy::address_lists::ListSet;
use tidegate_policy::cost::Cost;
use tidegate_policy::crawl_delay::{CrawlDelay, CrawlDelays};
use tidegate_policy::identity::{CredentialSource, KeySource};
use tidegate_policy::quota::TextPlace;
use tidegate_policy::throttle::Jitter;
use tidegate_policy::throttle::controller::Controller;
use tidegate_policy::throttle::gradient::Gradient;
use tidegate_policy::throttle::partition::{PartitionKey, Partitioning};
use tidegate_policy::throttle::rampup::{RampVariable, Rampup};
use tidegate_policy::{ClassId, ListId, OperatorId, RouteId, Units};

mod api_keys;
mod defaults;
mod left_out;
mod origins;
mod schema;
mod spelling;
mod summary;

const OPERATORS: [&str; 3] = ["googlebot", "bingbot", "applebot"];
const EXAMPLE: &str = include_str!("../../../config/tidegate.yaml");

fn load_with(
    text: &str,
    environment: &[(&str, &str)],
    overrides: &[(SettingPath, &str)],
) -> Result<Settings, ConfigErrors> {
    let environment: Vec<(String, String)> =
        environment.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let overrides: Vec<_> = overrides.iter().map(|(path, value)| (path.clone(), (*value).into())).collect();
    load(Path::new("gate.yaml"), text, &environment, &overrides, &OPERATORS)
}

fn settings(text: &str) -> Settings {
    load_with(text, &[], &[]).unwrap_or_else(|errors| panic!("{errors}"))
}

fn config_errors(text: &str) -> Vec<String> {
    config_errors_with(text, &[])
}

fn config_errors_with(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    match load_with(text, environment, &[]) {
        Ok(_) => Vec::new(),
        Err(errors) => {
            schema::assert_paths_exist(&errors);
            errors.to_string().lines().map(|line| line.trim_start_matches("gate.yaml:").to_owned()).collect()
        }
    }
}

/// Returns a file with the origin, which is required, as first line, and `text` from the second line.
fn with_origin(text: &str) -> String {
    format!("origin: {{ url: 'http://127.0.0.1:3000' }}\n{text}")
}

#[test]
fn source_map_locates_every_setting() {
    let text = with_origin(
        "quotas:\n  api:\n    limit: 10\n    window: { fixed: 60s }\n    tiers: { robot: [ { above: 50%, shed: 50% } ] }\n\
         classes: [ { name: robot, when: { kind: declared_bot } } ]\n",
    );
    let environment = [("TIDEGATE__QUOTAS__API__ENFORCE", "false")];
    let listen = SettingPath::ROOT.listen();
    let options = [(listen.clone(), "127.0.0.1:1")];
    let source_map = load_with(&text, &environment, &options).expect("valid settings").source_map;
    let api = source_map.quota_path("api");
    for (path, expected) in [
        (api.limit(), Some("gate.yaml:4:12")),
        (source_map.tiers_path("api", "robot").index(0), Some("gate.yaml:6:23")),
        (SettingPath::of_class(0), Some("gate.yaml:7:12")),
        (api.enforce(), Some("TIDEGATE__QUOTAS__API__ENFORCE")),
        (listen, Some("--listen")),
        (api.pacing(), None),
        (SettingPath::ROOT.routes(), None),
    ] {
        assert_eq!(source_map.location(&path).as_deref(), expected, "{path}");
    }
}

#[test]
fn bucket_key_source_is_parsed_in_every_form() {
    for (keys, expected) in [
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
        let settings = settings(&with_origin(&format!("classes: [{{ name: a, bucket: {{ {keys} }} }}]")));
        assert_eq!(settings.rules.classes[0].key, expected, "{keys}");
    }
}

#[test]
fn text_of_exhaustion_counts_at_one_place() {
    let with_keys = |keys: &str| {
        with_origin(&format!(
            "quotas: {{ api: {{ limit: 1, window: {{ fixed: 60s }}, sync_from: {{ exhausted: {{ statuses: [403], {keys} }} }} }} }}"
        ))
    };
    let place = |keys| {
        let settings = settings(&with_keys(keys));
        let exhausted = settings.rules.quotas[0].sync_from.as_ref().and_then(|sync| sync.exhausted.as_ref());
        exhausted.and_then(|exhausted| exhausted.text.as_ref()).map(|text| text.place.clone()).expect("a text")
    };
    assert_eq!(place("contains: daily"), TextPlace::Anywhere);
    assert_eq!(place("contains: daily, json: /error"), TextPlace::Json("/error".into()));
    let header = http::HeaderName::from_static("x-error");
    assert_eq!(place("contains: daily, header: X-Error"), TextPlace::Header(header));
    for (keys, expected) in [
        ("json: /error", "exhausted: header and json need contains; add contains"),
        ("contains: a, json: error", "exhausted.json: found \"error\"; write a JSON Pointer, such as /error/reason"),
        ("contains: a, json: /a, header: X-A", "exhausted.json: given beside header; write one of header and json"),
    ] {
        let errors = config_errors(&with_keys(keys));
        assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
    }
}

#[test]
fn terms_follow_from_classes_of_purposes() {
    let of = |robots: &str, classes: &str| with_origin(&format!("robots: {robots}\nclasses: [{classes}]"));
    let classes =
        "{ name: training, when: { purpose: training }, block: true }, { name: search, when: { purpose: search } }";
    let robots = settings(&of("{ terms: true, license: 'https://example.com/l.xml' }", classes)).robots;
    assert_eq!((robots.terms.search, robots.terms.agent, robots.terms.training), (Some(true), None, Some(false)));
    assert_eq!(robots.license.as_deref(), Some("https://example.com/l.xml"));
    assert!(settings(&of("{}", classes)).robots.terms.is_empty(), "by choice");
    for (robots, expected) in [
        ("{ terms: true }", "robots.terms: no class is for a purpose; write one, such as classes: [{ name: training, "),
        (
            "{ license: /l.xml }",
            "robots.license: found \"/l.xml\"; write a URL such as https://example.com/license.xml",
        ),
        ("{ license: 'https://a/b c' }", "robots.license: found \"https://a/b c\"; write a URL"),
    ] {
        let errors = config_errors(&of(robots, "{ name: bot }"));
        assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
    }
}

#[test]
fn duplicate_legacy_header_families_are_removed() {
    let settings = settings(&with_origin("headers: { legacy: [draft-03, github, atlassian, github] }"));
    assert_eq!(settings.headers.legacy, [LegacyFamily::Draft03, LegacyFamily::Github, LegacyFamily::Atlassian]);
}

/// Returns a scope with `keys`, and a route that refers to it.
fn scope_with_route(name: &str, keys: &str) -> String {
    format!("scopes: {{ {name}: {{ {keys}, delay: 1s }} }}\nroutes: [{{ match: /a, scopes: {name} }}]")
}

fn site_errors(text: &str) -> Vec<String> {
    config_errors(&with_origin(text))
}

#[test]
fn own_hosts_are_one_or_a_list() {
    let hosts = |text: &str| settings(&with_origin(text)).hosts.map(|hosts| hosts.to_string());
    assert_eq!(hosts(""), None);
    assert_eq!(hosts("hosts: Example.com").as_deref(), Some("example.com"));
    assert_eq!(
        hosts("hosts: [example.com., \"*.example.com\", 192.0.2.1, \"[2001:db8::1]\"]").as_deref(),
        Some("example.com, *.example.com, 192.0.2.1, [2001:db8::1]")
    );
    let many = (0..1001).map(|number| format!("host-{number}")).collect::<Vec<_>>().join(", ");
    assert_eq!(
        site_errors(&format!("hosts: [{many}]")),
        ["2:1: hosts: found 1001 hosts, maximum 1000; cover names with a wildcard such as \"*.example.com\""]
    );
}

#[test]
fn example_config_has_the_expected_settings() {
    let settings = settings(EXAMPLE);
    assert_eq!(settings.listen, [crate::settings::Listener::plain("127.0.0.1:8080".parse().expect("an address"))]);
    assert_eq!(settings.origin_urls(), "http://127.0.0.1:3000");
    assert_eq!(settings.origins[0].idle_timeout, Duration::from_secs(4));
    assert_eq!(settings.headers.legacy, [LegacyFamily::Atlassian]);
    assert_eq!(settings.headers.retry_after_spread.millionths(), 200_000);
    assert_eq!(
        settings.log.access,
        AccessLog::File { path: "./state/access.log".into(), rotation: None, format: AccessLogFormat::Json }
    );
    let rules = &settings.rules;
    let classes: Vec<&str> = rules.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(classes, ["search", "impostor", "bot", "person", "other"]);
    let scopes: Vec<&str> = rules.scopes.iter().map(|scope| scope.name.as_str()).collect();
    assert_eq!(scopes, ["default", "search_backend"]);
    let throttles: Vec<_> = rules.scopes.iter().filter_map(|scope| scope.throttle.as_ref()).collect();
    assert_eq!(throttles.iter().map(|rules| rules.concurrency.map(u32::from)).collect::<Vec<_>>(), [Some(64), Some(4)]);
    let backoff = throttles[0].backoff.as_ref().expect("the key is set");
    assert_eq!((backoff.statuses.len(), backoff.factor, backoff.jitter.high), (9, 2, 0.1));
    assert_eq!((backoff.min_delay, backoff.max_delay), (Duration::from_secs(1), Duration::from_secs(300)));
    assert_eq!(throttles[1].spacing.delay, Duration::from_millis(100));
    let Some(Controller::Autothrottle(auto)) = &throttles[1].controller else { panic!("the key is set") };
    assert_eq!((auto.target_concurrency, auto.max_delay), (2.0, Duration::from_secs(5)));
    assert!(
        throttles.iter().all(|rules| (rules.queue.max_wait, rules.queue.max_length) == (Duration::from_secs(2), 256))
    );
    let above: Vec<Units> = rules.quotas[0].class_tiers[0]
        .iter()
        .flat_map(|tiers| tiers.tiers.tiers())
        .map(|tier| tier.threshold)
        .collect();
    assert_eq!(above, [6000, 8000, 9500].map(Units::from_whole));
    let costs: Vec<_> = rules.routes.iter().map(|route| route.costs.first().map(|cost| cost.1)).collect();
    let known = |units| Some(Cost::Fixed(Units::from_whole(units)));
    assert_eq!(costs, [known(1), known(4), None]);
}

#[test]
fn example_config_gives_no_warnings() {
    assert!(settings(EXAMPLE).warnings.is_empty(), "{:?}", settings(EXAMPLE).warnings);
}

#[test]
fn crawl_delay_of_api_key_class_is_unpublished() {
    let partner = "{ name: partner, when: { api_key: { header: X-Api-Key, value: sesame } }, crawl_delay: 3s }";
    let settings = settings(&format!("origin: {{ url: http://o }}\nclasses: [{partner}]\n"));
    assert_eq!(settings.robots.delays, CrawlDelays::default());
}

#[test]
fn crawl_delay_of_a_class_that_robots_txt_cannot_name_is_a_warning() {
    let settings = |when: &str| {
        self::settings(&format!(
            "origin: {{ url: http://o }}\nclasses: [{{ name: slow, when: {{ {when} }}, crawl_delay: 9s }}]\n"
        ))
    };
    let is_warned = |settings: &Settings| {
        settings.warnings.iter().any(|warning| warning.starts_with("classes[0].crawl_delay: not in robots.txt"))
    };
    for when in ["purpose: training", "user_agent: slow", "header: x-slow", "path: /slow, kind: verified_bot"] {
        let settings = settings(when);
        assert_eq!((is_warned(&settings), settings.robots.delays), (true, CrawlDelays::default()), "{when}");
    }
    for when in ["kind: verified_bot", "operator: bingbot", "kind: [verified_bot, declared_bot]"] {
        let settings = settings(when);
        assert!(!is_warned(&settings) && settings.robots.delays != CrawlDelays::default(), "{when}");
    }
}

#[test]
fn crawl_policy_is_served_only_when_enabled() {
    let policy = |yaml: &str| {
        let settings = settings(&format!("origin: {{ url: http://o }}\n{yaml}"));
        assert_eq!(settings.rules.own_documents.crawl_policy, settings.crawl_policy.is_some());
        settings.crawl_policy.map(|policy| (policy.contact, policy.show_units))
    };
    for off in ["", "crawl_policy: off"] {
        assert_eq!(policy(off), None);
    }
    assert_eq!(policy("crawl_policy: on"), Some((None, false)));
    let contact = Some("mailto:bots@example.com".to_owned());
    assert_eq!(
        policy("crawl_policy: { contact: \"mailto:bots@example.com\", show_units: true }"),
        Some((contact, true))
    );
}

#[test]
fn crawl_delay_applies_to_operator_class_or_default() {
    let text = |robots: &str| {
        let classes = "classes:
  - { name: search, when: { operator: [googlebot, bingbot, applebot] }, crawl_delay: { bingbot: 2500ms, applebot: auto } }
  - { name: slow, when: { kind: verified_bot }, crawl_delay: 1h }
  - { name: bot, when: { kind: declared_bot }, crawl_delay: auto }\n";
        format!("origin: {{ url: http://o }}\n{classes}robots: {robots}\n")
    };
    let settings = settings(&text("{ honeypot: /keep-out, override_file: ./robots.txt }"));
    let (google, bing, apple) = (OperatorId(0), OperatorId(1), OperatorId(2));
    let delays = &settings.robots.delays;
    let delay_of = |operator| delays.per_operator.iter().find(|(known, _)| *known == operator).map(|(_, delay)| *delay);
    assert_eq!(delay_of(google), None, "its class has a delay for bingbot only");
    assert_eq!(delay_of(bing), Some(CrawlDelay::Seconds(3)));
    assert_eq!(delay_of(apple), Some(CrawlDelay::Auto(ClassId(0))));
    assert_eq!(delays.default, Some(CrawlDelay::Auto(ClassId(2))));
    assert_eq!(
        settings.warnings,
        [
            "classes[0].crawl_delay.bingbot: crawlers read whole seconds from 1 to 30, so robots.txt has 3s",
            "classes[1].crawl_delay: crawlers read whole seconds from 1 to 30, so robots.txt has 30s",
        ]
    );
    assert_eq!(settings.robots.honeypot.as_deref(), Some("/keep-out"));
    let without = self::settings(&text("{ merge_crawl_delay: false }"));
    assert_eq!(without.robots.delays, CrawlDelays::default());
    assert!(
        without.warnings.iter().any(|warning| warning.starts_with("robots.merge_crawl_delay: ")),
        "{:?}",
        without.warnings
    );
}

#[test]
fn class_can_match_an_address_list() {
    let text = "address_lists: { tor: { file: ./tor.txt }, hosting: { file: hosting.txt } }\n\
                classes: [{ name: rented, when: { address_list: [hosting] } }, { name: a }]";
    let settings = settings(&with_origin(text));
    assert_eq!(settings.rules.address_list_names, ["tor", "hosting"]);
    assert_eq!(settings.address_lists[1].file, Path::new("hosting.txt"));
    let rented = &settings.rules.classes[0].matcher;
    assert_eq!(rented.lists, ListSet::from_ids([ListId(1)]));
    assert!(!rented.matches_all() && settings.rules.classes[1].matcher.matches_all());
}

#[test]
fn bot_detection_is_on_by_default() {
    let detection = |text: &str| settings(&with_origin(text)).rules.bot_detection.clone();
    let by_default = detection("").expect("enabled by default");
    assert_eq!((by_default.threshold, by_default.half_life), (100, Duration::from_secs(86_400)));
    assert_eq!((by_default.max_clients, by_default.honeypot), (200_000, None));
    let configured =
        detection("bot_detection: { threshold: 150, half_life: 1h, max_clients: 5000 }\nrobots: { honeypot: /never/ }");
    let configured = configured.expect("enabled by default");
    assert_eq!((configured.threshold, configured.half_life), (150, Duration::from_secs(3600)));
    assert_eq!((configured.max_clients, configured.honeypot.as_deref()), (5000, Some("/never")));
    assert_eq!(detection("bot_detection: { enabled: false }"), None);
    let text =
        "bot_detection: { enabled: false }\nclasses: [{ name: odd, when: { kind: suspected_bot }, block: true }]";
    let warnings = settings(&with_origin(text)).warnings;
    assert_eq!(warnings, ["classes[0] (odd): matches no client, because bot_detection.enabled is false"]);
    let with_rule = format!("{text}\nuser_agent_rules: [{{ match: Odd, kind: suspected_bot }}]");
    assert!(settings(&with_origin(&with_rule)).warnings.is_empty());
    let warnings = settings(&with_origin("bot_detection: { enabled: false }\nrobots: { honeypot: /never }")).warnings;
    assert_eq!(warnings, ["robots.honeypot: has no effect, because bot_detection.enabled is false"]);
}

#[test]
fn scope_without_limits_is_not_throttled() {
    let throttle = |scope: &str| {
        let settings = settings(&format!("origin: {{ url: http://o }}\nscopes: {{ default: {scope} }}"));
        settings.rules.scopes[0].throttle.clone()
    };
    for scope in ["{}", "{ queue: { max_wait: 1s } }", "{ jitter: 10% }", "{ delay: 0s }"] {
        assert_eq!(throttle(scope), None, "{scope}");
    }
    for scope in ["{ concurrency: 1 }", "{ delay: 1ms }", "{ autothrottle: { max_delay: 1s } }"] {
        assert!(throttle(scope).is_some(), "{scope}");
    }
    let backoff = throttle("{ backoff: { min_delay: 400s } }").and_then(|rules| rules.backoff).expect("a backoff");
    assert_eq!((backoff.statuses.len(), backoff.max_delay), (9, Duration::from_secs(400)));
}

#[test]
fn empty_scope_section_means_its_defaults() {
    let throttle = |keys: &str| {
        let text = with_origin(&format!("scopes:\n  default:\n    concurrency: 4\n{keys}"));
        settings(&text).rules.scopes[0].throttle.clone()
    };
    for (bare, keys) in [
        ("backoff:", "backoff: {}"),
        ("autothrottle:", "autothrottle: {}"),
        ("adaptive_concurrency: # gradient", "adaptive_concurrency: gradient"),
        ("backoff:\n    rampup:", "backoff: {}\n    rampup: {}"),
        ("queue:\n    # max_wait: 1s", "queue: {}"),
        ("delay: # 1s", ""),
    ] {
        assert_eq!(throttle(&format!("    {bare}")), throttle(&format!("    {keys}")), "{bare}");
    }
    assert_ne!(throttle("    backoff:"), throttle(""));
    let warnings = settings(&with_origin("scopes:\n  default:\n    queue:")).warnings;
    assert_eq!(warnings.len(), 1, "the empty queue is a warning: {warnings:?}");
}

#[test]
fn ineffective_scope_options_give_a_warning() {
    for (text, warning) in [
        (
            "scopes: { default: { queue: { max_wait: 1s } } }",
            "scopes.default: queue and jitter alone have no effect, so the scope is not throttled",
        ),
        (
            "scopes: { default: { jitter: 10% } }",
            "scopes.default: queue and jitter alone have no effect, so the scope is not throttled",
        ),
        (
            "scopes: { default: { delay: 10s } }",
            "scopes.default.delay: longer than queue.max_wait (2s), so no request can wait for a full delay",
        ),
        ("scopes: { search: { concurrency: 1 } }", "scopes.search: unused scope: no route refers to it"),
        (
            "scopes: { search: { quota: { limit: 1, window: { fixed: 1h } } } }",
            "scopes.search: unused scope: no route refers to it",
        ),
        (
            "scopes: { default: { concurrency: 1 }, a: { concurrency: 2 } }\nroutes: [{ match: '/**', scopes: a }]",
            "scopes.default: unused scope: no route refers to it",
        ),
        (
            "scopes: { default: { quota: { limit: 1, window: { fixed: 1h } } }, a: { delay: 1s } }
routes: [{ match: '/**', scopes: a }]",
            "scopes.default: unused scope: no route refers to it",
        ),
    ] {
        assert_eq!(settings(&with_origin(text)).warnings, [warning], "{text}");
    }
    for text in [
        "scopes: { default: { delay: 10s, queue: { max_wait: 0s } } }",
        "scopes: { default: { delay: 10s, queue: { max_wait: 10s } } }",
        "scopes: { default: { delay: 10s, backoff: {}, rampup: {} } }",
        "scopes: { a: { quota: { limit: 1, window: { fixed: 1h } } } }\nroutes: [{ match: /a, cost: { a: 1 } }]",
        "scopes: { a: { delay: 1s } }\nroutes: [{ match: '/**', scopes: a }]",
    ] {
        assert_eq!(settings(&with_origin(text)).warnings, [""; 0], "{text}");
    }
}

#[test]
fn scope_can_be_partitioned() {
    for (value, key) in [
        ("host", PartitionKey::Host),
        ("route", PartitionKey::Route),
        ("{ query: tenant }", PartitionKey::Query("tenant".into())),
        ("{ header: X-Tenant }", PartitionKey::Header(http::HeaderName::from_static("x-tenant"))),
        ("{ path: 2 }", PartitionKey::Path(NonZeroUsize::new(2).expect("two"))),
    ] {
        let rules = settings(&with_origin(&scope_with_route("tenant", &format!("partition_by: {value}")))).rules;
        let max_partitions = NonZeroUsize::new(10_000).expect("many");
        assert_eq!(rules.scopes[1].partitioning, Some(Partitioning { key, max_partitions }), "{value}");
    }
}

#[test]
fn scope_can_define_its_own_quota() {
    let rules = settings(&with_origin(
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
        costs.map(|(quota, cost)| (names[quota.index()], *cost)).collect()
    };
    let known = |units| Cost::Fixed(Units::from_whole(units));
    assert_eq!(costs(0), [("api", known(2)), ("search", known(1)), ("default", known(1))]);
    assert_eq!(costs(1), [("search", known(3))]);
    assert_eq!(costs(2), []);
    assert_eq!((rules.routes[3].name.as_str(), costs(3)), ("/**", vec![("default", known(1))]));
}

#[test]
fn scope_controllers_are_parsed() {
    let throttled = |scope: &str| {
        let settings = settings(&with_origin(&format!("scopes: {{ default: {scope} }}")));
        settings.rules.scopes[0].throttle.clone().expect("a throttled scope")
    };
    let jitter_of = |jitter: &str| throttled(&format!("{{ delay: 1s, jitter: {jitter} }}")).spacing.jitter;
    assert_eq!((jitter_of("20%"), jitter_of("[-10%, 30%]")), (Jitter::at_most(0.2), Jitter { low: -0.1, high: 0.3 }));

    let gradient = |min, max| Some(Controller::Gradient(Gradient { min, max }));
    for (keys, expected) in [
        ("adaptive_concurrency: gradient", gradient(1, 256)),
        ("concurrency: 20, adaptive_concurrency: gradient", gradient(1, 20)),
        ("adaptive_concurrency: { min: 2, max: 500 }", gradient(2, 500)),
    ] {
        assert_eq!(throttled(&format!("{{ {keys}, delay_per_slot: 1s }}")).controller, expected, "{keys}");
    }

    let ms = Duration::from_millis;
    for (keys, target, variable) in [
        ("delay: 200ms, rampup: {}", 1..=1, RampVariable::Delay { start: ms(200), min: ms(20), max: ms(2000) }),
        (
            "delay: 200ms, concurrency: 9, rampup: { target_overloads: [1, 3], min_delay: 50ms, max_delay: 1s }",
            1..=3,
            RampVariable::Delay { start: ms(200), min: ms(50), max: ms(1000) },
        ),
        ("concurrency: 4, rampup: { target_overloads: 2 }", 2..=2, RampVariable::Concurrency { start: 4, max: 40 }),
        ("concurrency: 4, rampup: { max_concurrency: 9 }", 1..=1, RampVariable::Concurrency { start: 4, max: 9 }),
    ] {
        let expected = Rampup { target, window: Duration::from_secs(30), variable };
        let throttle = throttled(&format!("{{ backoff: {{ window: 30s }}, {keys} }}"));
        assert_eq!(throttle.controller, Some(Controller::Rampup(expected)), "{keys}");
    }

    let settings = settings(&with_origin("routes: [{ match: /a, sample_latency: false }]"));
    assert_eq!(settings.rules.routes.iter().map(|route| route.is_latency_sampled).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn signature_verification_is_on_by_default() {
    let signatures = |text: &str| settings(&with_origin(text)).verify.signatures;
    let default = signatures("").expect("enabled");
    assert_eq!((default.fetch_unlisted_keys, default.max_lifetime), (false, Duration::from_secs(24 * 3600)));
    assert!(!default.accept_signature);
    let custom =
        signatures("verify: { signatures: { fetch_unlisted_keys: true, max_lifetime: 1h, accept_signature: true } }")
            .expect("enabled");
    assert_eq!((custom.fetch_unlisted_keys, custom.max_lifetime), (true, Duration::from_secs(3600)));
    assert!(custom.accept_signature);
    assert!(signatures("verify: { signatures: { enabled: false } }").is_none());
    let custom = settings(&with_origin("operators: { acme: { signature_agents: https://a.example } }"));
    assert_eq!(custom.operators[0].signature_agents, Some(vec!["https://a.example".to_owned()]));
    assert_eq!(custom.warnings, Vec::<String>::new(), "a signature is both claim and proof");
}

#[test]
fn origin_url_is_the_only_required_setting() {
    let settings = load_with(
        "",
        &[],
        &[(SettingPath::ROOT.origin().url(), "http://[::1]:81"), (SettingPath::ROOT.listen(), "127.0.0.1:0")],
    )
    .expect("valid settings");
    assert_eq!(settings.authorities(), "[::1]:81");
    assert_eq!(settings.rules.routes[0].name, "/**");
    assert_eq!(settings.admin.map(|admin| admin.listen.to_string()).as_deref(), Some("127.0.0.1:9090"));
    assert_eq!(
        settings.log.access,
        AccessLog::File { path: "./state/access.log".into(), rotation: None, format: AccessLogFormat::Json }
    );
    assert_eq!(settings.log.level, LogLevel::Info);
    assert_eq!(settings.rules.trust.ipv6_prefix, 64);
}

#[test]
fn forward_auth_needs_an_address_of_its_own() {
    let forward_auth = |keys: &str| settings(&with_origin(&format!("forward_auth: {{ {keys} }}"))).forward_auth;
    assert_eq!(settings(&with_origin("")).forward_auth, None);
    let expected = ForwardAuth {
        listen: "127.0.0.1:9092".parse().expect("an address"),
        settle_after: Duration::from_secs(60),
        path_prefix: "/envoy".into(),
        memory: 64 << 20,
    };
    assert_eq!(forward_auth("listen: '127.0.0.1:9092'"), Some(expected));
    let changed =
        forward_auth("listen: '[::1]:1', settle_after: 0s, path_prefix: /a/b-c, memory: 1MiB").expect("present");
    assert_eq!((changed.settle_after, changed.path_prefix.as_str()), (Duration::ZERO, "/a/b-c"));
    let error = |keys: &str| site_errors(&format!("forward_auth: {{ {keys} }}")).join("\n");
    assert!(error("settle_after: 1s").contains("forward_auth.listen: is missing; write forward_auth: { listen: "));
    assert!(error("listen: '127.0.0.1:8080'").contains("127.0.0.1:8080 is an address for clients; write another port"));
    assert!(error("listen: '127.0.0.1:9090'").contains("127.0.0.1:9090 is the address of the admin listener"));
    assert!(error("listen: '127.0.0.1:1', memory: 1KiB").contains("forward_auth.memory: needs at least 1MiB"));
    for prefix in ["envoy", "/", "/envoy/", "/nginx", "/nginx/x", "/settle", "/a//b", "/a?b", "/..", "/%61", "''"] {
        let found = error(&format!("listen: '127.0.0.1:1', path_prefix: {prefix}"));
        assert!(found.contains("forward_auth.path_prefix: found"), "{prefix}: {found}");
    }
}

#[test]
fn off_disables_admin_listener_and_access_log() {
    let off = settings(&with_origin("admin: off\nlog: { access: off }"));
    assert!(off.admin.is_none());
    assert_eq!(off.log.access, AccessLog::Off);
    let elsewhere = settings(&with_origin("state_dir: /srv/state"));
    assert_eq!(
        elsewhere.log.access,
        AccessLog::File { path: "/srv/state/access.log".into(), rotation: None, format: AccessLogFormat::Json }
    );
    let environment = [("TIDEGATE__ADMIN", "off"), ("TIDEGATE__LOG__ACCESS", "off")];
    assert!(
        load_with(&with_origin("admin: { listen: 127.0.0.1:1 }"), &environment, &[])
            .expect("valid settings")
            .admin
            .is_none()
    );
    assert_eq!(
        site_errors("admin: none"),
        ["2:8: admin: found a text, needs an admin listener; use off or { listen: 127.0.0.1:9090 }"]
    );
    assert_eq!(
        site_errors("listen: 127.0.0.1:9090"),
        ["1:1: admin.listen: 127.0.0.1:9090 is an address for clients; write another port, such as admin: { listen: \
          127.0.0.1:9091 }, or admin: off"]
    );
}

#[test]
fn command_line_overrides_environment_overrides_file() {
    let environment = [
        ("TIDEGATE__LISTEN", "[127.0.0.1:1, 127.0.0.1:2]"),
        ("TIDEGATE__ORIGIN__URL", "http://two"),
        ("TIDEGATE__LIMITS__MAX_HEADERS", "50"),
    ];
    let settings = load_with(EXAMPLE, &environment, &[(SettingPath::ROOT.origin().url(), "http://Three")])
        .expect("valid settings");
    assert_eq!(settings.authorities(), "three");
    assert_eq!(settings.listen.len(), 2);
    assert_eq!(settings.limits.max_headers, 50);
    assert_eq!(settings.origins[0].max_connections, 256, "keys without override keep their value");
}

#[test]
fn error_in_a_list_of_a_variable_names_the_variable() {
    let file = with_origin("classes: [{ name: c, block: true }, { name: d }]");
    assert_eq!(
        config_errors_with(&file, &[("TIDEGATE__CLASSES", "[{ name: a }, { name: b }]")]),
        ["TIDEGATE__CLASSES: classes[1]: unreachable: classes[0] (a) matches every client; move it above that one"]
    );
}

#[test]
fn variables_can_hold_numbers_booleans_and_text() {
    let text = "origin: { url: 'http://${HOST:-localhost}:${PORT}', max_connections: '${MOST}' }\nrobots:\n  merge_crawl_delay: ${MERGE}\nclasses: [{ name: a, crawl_delay: 3s }]\n\
                admin: { token: '${TOKEN:-}a$${b}-of-16-letters' }";
    let settings = load_with(text, &[("PORT", "81"), ("MOST", "7"), ("MERGE", "false"), ("HOST", "")], &[])
        .expect("valid settings");
    assert_eq!((settings.authorities().as_str(), settings.origins[0].max_connections), ("localhost:81", 7));
    assert_eq!(settings.warnings.len(), 1);
    let admin = settings.admin.expect("the key is set");
    assert!(
        admin.token.as_ref().is_some_and(|token| token.matches(b"a${b}-of-16-letters") && !token.matches(b"a${b}c"))
    );
    assert_eq!(format!("{:?}", admin.token), "Some(Secret)");
}

fn with_api_keys(values: &str) -> String {
    let class = format!("{{ name: a, when: {{ api_key: {{ header: X-Api-Key, value: {values} }} }} }}");
    with_origin(&format!("classes: [{class}, {{ name: b }}]"))
}

#[test]
fn each_bad_api_key_is_reported() {
    let values = r#"["", " spaced-and-secret", long-enough-to-be-one, "with-a-tab-\t-in-it", short]"#;
    let errors = config_errors(&with_api_keys(values)).join("\n");
    let spaced = "leading or trailing space, or control character";
    for expected in ["value[0]: no API key", &format!("value[1]: {spaced}"), &format!("value[3]: {spaced}")] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    assert!(config_errors(&with_api_keys("[]"))[0].contains("value: no API key"));
}

#[test]
fn length_of_an_api_key_is_counted_in_characters() {
    let warning =
        |path: &str| format!("classes[0].when.api_key.{path}: a key of fewer than 16 characters can be guessed");
    assert_eq!(settings(&with_api_keys("ääääääääää")).warnings, [warning("value")]);
    let several = settings(&with_api_keys("[ääääääääääääääääää, short, long-enough-to-be-one, tiny]"));
    assert_eq!(several.warnings, [warning("value[1]"), warning("value[3]")]);
}

#[test]
fn rate_of_zero_is_refused_with_a_rate_that_is_valid() {
    let errors = config_errors(&with_origin("classes: [{ name: a, bucket: { rate: 0/s } }]"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].ends_with("classes[0].bucket.rate: found 0, needs at least 1; write a rate such as 10/s"),
        "{errors:?}"
    );
}

#[test]
fn contact_of_the_crawl_policy_is_an_address_or_a_page() {
    for (contact, is_valid) in [
        ("mailto:bots@example.com", true),
        ("https://example.com/bots", true),
        ("http://example.com/bots", true),
        ("javascript:alert(1)", false),
        ("https://", false),
    ] {
        let errors = config_errors(&with_origin(&format!("crawl_policy: {{ contact: \"{contact}\" }}")));
        assert_eq!(errors.is_empty(), is_valid, "{contact}: {errors:?}");
    }
}

#[test]
fn api_keys_from_the_environment_are_never_printed() {
    let rules = "classes: [{ name: a, when: { api_key: { header: X-Api-Key, value: '${PARTNER}' } } }, { name: b }]";
    let load_key = |key: &str| load_with(&with_origin(rules), &[("PARTNER", key)], &[]).expect("valid settings");
    let settings = load_key("918273645546372819");
    let keys = settings.rules.classes[0].matcher.own_keys().expect("the key is set");
    assert!(keys.contains(b"918273645546372819") && !keys.contains(b"918273645546372818") && !keys.contains(b""));
    assert!(!format!("{settings:?}").contains("918273645546372819"));
    assert_eq!(settings.warnings.len(), 0);
    assert_eq!(
        load_key("123").warnings,
        ["classes[0].when.api_key.value: a key of fewer than 16 characters can be guessed"]
    );
}

#[test]
fn first_yaml_of_the_manual_of_forward_auth_is_a_whole_file() {
    let manual = include_str!("../../../docs/FORWARD_AUTH.md");
    let (_, rest) = manual.split_once("```yaml\n").expect("a file");
    let (yaml, _) = rest.split_once("```").expect("its end");
    assert!(settings(yaml).forward_auth.is_some());
}

#[test]
fn redis_url_is_parsed_and_password_never_printed() {
    let settings = settings(&with_origin(
        "ledger: { redis: { url: 'redis://gate:sesame@[::1]:7000/2', failure_mode: fallback, certificate_secret: sesame-sesame-sesame } }",
    ));
    let Ledger::Redis(redis) = &settings.ledger else { panic!("{:?}", settings.ledger) };
    assert_eq!((redis.address.to_string().as_str(), redis.database), ("[::1]:7000", 2));
    assert_eq!((redis.prefix.as_str(), redis.failure_mode), ("tidegate", LedgerFailureMode::Fallback));
    assert!(redis.password.as_ref().is_some_and(|password| password.matches(b"sesame")));
    assert!(!format!("{settings:?}").contains("sesame"));
    let errors =
        config_errors_with(&with_origin("ledger: { redis: { url: '${URL}' } }"), &[("URL", "redis://:sesame@")]);
    assert!(errors.len() == 1 && !errors[0].contains("sesame"), "{errors:?}");
}

#[test]
fn tier_threshold_rounds_up_to_a_thousandth() {
    let rules = settings(&with_origin(
        "quotas: { q: { limit: 0.007, window: { fixed: 1s }, tiers: { other: [{ above: 50%, shed: 1% }] } } }",
    ))
    .rules;
    let tiers = rules.quotas[0].class_tiers[0].as_ref().expect("tiers of the class other");
    assert_eq!(tiers.tiers.tiers()[0].threshold, Units::from_milli(4));
}

#[test]
fn all_errors_are_reported_with_their_location() {
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
        config_errors(text),
        [
            "1:9: listen: found 8080, needs an address and port; write an address and a port, such as 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses",
            "3:8: origin.url: \"ftp://site\": unsupported scheme; use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000",
            "4:3: origin.conect_timeout: unknown key \"conect_timeout\" (did you mean \"connect_timeout\"?); known here: url, urls, ca, server_name, certificate, key, verify, http2, proxy_protocol, health, connect_timeout, response_timeout, idle_timeout, max_connections, aborts_on_disconnect, only_if_cached",
            "7:12: quotas.places_api.limit: found \"many\", needs an amount, to a thousandth; write it like 10000 or 0.25",
            "8:25: quotas.places_api.window.calendar: found \"fortnight\"; use one of hour, day, week, month",
            "12:31: quotas.places_api.tiers.search[1].shed: found 75, needs a share such as 75%; write a number from 0 to 100 with a percent sign",
            "13:7: quotas.places_api.tiers.serach: unknown class \"serach\" (did you mean \"search\"?); known: search, person",
            "17:23: classes[0].when.operator: unknown operator \"googlbot\" (did you mean \"googlebot\"?); known: googlebot, bingbot, applebot",
            "17:40: classes[0].when.kind[0]: found \"robot\"; use one of human, verified_bot, declared_bot, suspected_bot, impostor",
            "18:21: classes[1].prority: unknown key \"prority\" (did you mean \"priority\"?); known here: name, when, priority, bucket, per_client, block, refuse_with, enforce, crawler_guard, crawl_delay",
            "20:14: routes[0].match: \"item\": does not start with a slash; write it like /item/*",
            "20:39: routes[0].cost.place_api: unknown quota \"place_api\" (did you mean \"places_api\"?); known: places_api",
        ]
    );
}

#[test]
fn missing_keys_are_reported_at_their_section() {
    assert_eq!(
        config_errors(""),
        ["1:1: origin.url: missing; write the address of the site, such as http://127.0.0.1:3000"]
    );
    assert_eq!(
        site_errors(
            "quotas:\n  q:\nclasses:\n  - when:\n      kind: human\n    bucket: { rate: 1/s, fill: 3 }\nroutes:\n  - {}\nuser_agent_rules: [{}]\nlog: { access: {} }"
        ),
        [
            "3:3: quotas.q.limit: missing; write the units per window, such as 10000",
            "5:5: classes[0].name: missing; give the class a name",
            "7:5: classes[0].bucket: found both capacity, fill, interval and rate, burst; write { capacity: 60, fill: 10, interval: 10s } or { rate: 10/s, burst: 20 }",
            "9:5: routes[0].match: missing; write a path such as /item/* or /shop/**",
            "10:20: user_agent_rules[0].match: is empty; write a substring of the user agent, such as AcmeMonitor",
            "10:20: user_agent_rules[0].kind: missing; write a kind such as human",
            "11:8: log.access.path: missing; name a file such as ./state/access.log",
        ]
    );
}

#[test]
fn invalid_yaml_is_one_error_with_location() {
    let errors = config_errors("origin:\n  url: [http://a\nlisten: 1\n");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains("invalid YAML: ") && errors[0].ends_with("; check indentation, colons, quotes and brackets"),
        "{errors:?}"
    );
    assert!(errors[0].starts_with(|c: char| c.is_ascii_digit()), "{errors:?}");
    for (text, error) in [("origin:\n\turl: a\n", "2:1"), ("routes:\n  - match: a\n  \tcost: 1\n", "3:3")] {
        assert_eq!(config_errors(text), [format!("{error}: invalid YAML: a tab in the indentation; use spaces")]);
    }
    for (text, error) in [
        (
            "routes:\n  - match: *item\n",
            "2:12: invalid YAML: a value that begins with * is an alias; put it in quotes, such as '*item'",
        ),
        (
            "quotas:\n  api:\n    limit:10000\n    window: { fixed: 1d }\n",
            "3:10: invalid YAML: no space after a colon; write it like key: value",
        ),
        ("a: 1\n---\nb: 1\n", "3:1: invalid YAML: a second document; remove the line with --- or ... before it"),
        ("a: 1\n...\nb: 1\n", "3:1: invalid YAML: a second document; remove the line with --- or ... before it"),
        ("a: &x [*x]\n", "1:8: invalid YAML: an alias within its own value; write the value out"),
    ] {
        assert_eq!(config_errors(text), [error], "{text}");
    }
    let deep = format!("a: {}{}", "[".repeat(3000), "]".repeat(3000));
    assert!(config_errors(&deep)[0].ends_with(": invalid YAML: nested too deeply; remove brackets"));
    assert_eq!(config_errors("just words"), ["1:1: no top-level keys; start with a key such as `origin:`"]);
}

#[test]
fn values_of_another_type_are_answered_with_the_form_of_their_key() {
    for (text, error) in [
        ("origin: 3000", "1:9: origin: found 3000, needs keys with values; write origin: http://127.0.0.1:3000"),
        (
            "origin: { url: http://a }\nquotas: { q: { limit: 1, window: 24h } }",
            "2:34: quotas.q.window: found \"24h\", needs keys with values; write { fixed: 24h }, { first_use: 24h } or { sliding: 24h }",
        ),
        (
            "origin: { url: http://a }\nquotas: { q: { limit: 1, window: sliding } }",
            "2:34: quotas.q.window: found \"sliding\", needs keys with values; write it with its length, such as { sliding: 24h }",
        ),
        (
            "origin: { url: http://a }\nquotas: { q: { limit: 1, window: dayly } }",
            "2:34: quotas.q.window: found \"dayly\", needs keys with values; write day, { calendar: day, zone: America/Los_Angeles, at: \"00:00\" }, { fixed: 24h }, { first_use: 24h } or { sliding: 1m }",
        ),
        (
            "origin: { url: http://a }\nroutes: [ { match: /a, cost: 1 } ]",
            "2:30: routes[0].cost: found 1, needs names with values; write the units by quota, such as { api: 1 }",
        ),
        (
            "origin: { url: http://a }\nclasses: [ { name: s, when: { operator: google } } ]",
            "2:41: classes[0].when.operator: unknown operator \"google\" (did you mean \"googlebot\"?); known: googlebot, bingbot, applebot",
        ),
    ] {
        assert!(config_errors(text).iter().any(|found| found == error), "{text}: {:?}", config_errors(text));
    }
}

#[test]
fn file_that_is_not_utf8_is_an_error_with_its_position() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.yaml");
    std::fs::write(&file, b"# caf\xc3\xa9\norigin: \xff\n").expect("writable");
    let error = read_text(&file).expect_err("not UTF-8").to_string();
    assert_eq!(error.trim_end(), format!("{}:2:9: not UTF-8; save the file in UTF-8", file.display()));
}

#[test]
fn duplicate_key_is_reported_with_other_errors() {
    assert_eq!(
        site_errors("workers: 2\nlog: { level: loud }\nworkers: 3"),
        [
            "3:15: log.level: found \"loud\"; use one of error, warn, info, debug, trace",
            "4:1: workers: duplicate key, first in line 2; keep one of them",
        ]
    );
}

#[test]
fn variable_that_is_not_set_is_one_error() {
    for (yaml, names) in [
        ("admin: { listen: 0.0.0.0:9090, token: '${A}' }", &["A"][..]),
        ("listen: { address: 127.0.0.1:8080, tls: { certificate: '${A}', key: '${B}' } }", &["A", "B"]),
        ("classes: [{ name: p, when: { api_key: { header: x-k, value: '${A}' } } }]", &["A"]),
        ("traces: { endpoint: '${A}' }\nnotify: [{ webhook: '${B}' }]", &["A", "B"]),
    ] {
        let errors = config_errors_with(&with_origin(yaml), &[]);
        let is_unset =
            |(error, name): (&String, &&str)| error.contains(&format!("environment variable {name} is not set"));
        assert!(errors.len() == names.len() && errors.iter().zip(names).all(is_unset), "{errors:?}");
    }
}

#[test]
fn environment_error_names_the_variable() {
    let environment = [
        ("TIDEGATE__ORIGIN__ULR", "http://a"),
        ("TIDEGATE__WORKERS", "none"),
        ("TIDEGATE__LISTEN", "[127.0.0.1]"),
        ("TIDEGATE_LOG__LEVEL", "info"),
        ("TIDEGATE_ADMIN_TOKEN", "fine"),
    ];
    assert_eq!(
        config_errors_with(&with_origin("state_dir: '${STATE}'"), &environment),
        [
            "2:12: state_dir: environment variable STATE is not set; set STATE, or write ${STATE:-default}",
            "TIDEGATE_LOG__LEVEL: overrides no key; write it with two underscores: TIDEGATE__LOG__LEVEL",
            "TIDEGATE__LISTEN: listen[0]: found \"127.0.0.1\", needs an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"",
            "TIDEGATE__ORIGIN__ULR: origin.ulr: unknown key \"ulr\" (did you mean \"url\"?); known here: url, urls, ca, server_name, certificate, key, verify, http2, proxy_protocol, health, connect_timeout, response_timeout, idle_timeout, max_connections, aborts_on_disconnect, only_if_cached",
            "TIDEGATE__WORKERS: workers: found \"none\", needs a number of threads; write auto or a number from 1 to 1024",
        ]
    );
    let result = load_with(&with_origin(""), &[], &[(SettingPath::ROOT.listen(), "nowhere")])
        .map(|_| ())
        .map_err(|errors| errors.to_string());
    assert_eq!(result, Err("--listen: listen: found \"nowhere\", needs an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"".into()));
}

#[test]
fn section_without_a_value_has_its_defaults() {
    for section in ["cache", "compression"] {
        let rules = |text: &str| settings(&with_origin(text)).rules;
        let is_on = |rules: &tidegate_policy::Rules| {
            if section == "cache" { rules.cache.is_some() } else { rules.compression.is_some() }
        };
        assert!(is_on(&rules(&format!("{section}:"))), "{section}");
        assert!(!is_on(&rules("")), "{section}");
    }
}

/// Files with one error each, and its message.
#[test]
fn each_invalid_value_is_reported() {
    let quota = |inside: &str| format!("quotas: {{ q: {{ limit: 10, window: {{ fixed: 1m }}, {inside} }} }}");
    let tiers = |tiers: &str| quota(&format!("tiers: {{ other: {tiers} }}"));
    let table: Vec<(String, &str)> = vec![
        (
            "quotas: { q: { limit: 0, window: { fixed: 1m } } }".into(),
            "2:23: quotas.q.limit: found 0; write the purchased units, or block a class with block: true",
        ),
        (
            "classes: [ { name: a, crawler_guard: maybe } ]".into(),
            "2:38: classes[0].crawler_guard: found \"maybe\", needs a crawler guard; use on, off or { admit_interval: 5m, max_refused_for: 24h, budget: 2% }",
        ),
        (
            "classes: [ { name: a, crawler_guard: { admit_interval: 0s } } ]".into(),
            "2:56: classes[0].crawler_guard.admit_interval: found a zero duration; write a duration such as 10s",
        ),
        (
            "ledger: { redis: { url: 'redis+sentinel://h' } }".into(),
            "2:25: ledger.redis.url: missing name of the primary; write it like redis+sentinel://10.0.0.5,10.0.0.6,10.0.0.7/mymaster",
        ),
        (
            "ledger: { redis: { url: 'redis://h', certificate_secret: short } }".into(),
            "2:58: ledger.redis.certificate_secret: needs at least 16 characters; write letters, digits and symbols, such as the output of `openssl rand -hex 32`",
        ),
        (
            "ledger: { redis: { url: 'redis://h', ca: ca.pem } }".into(),
            "2:42: ledger.redis.ca: is not used without TLS; write ledger.redis.url with rediss://, or leave out ca",
        ),
        (
            "ledger: { redis: { prefix: a } }".into(),
            "2:11: ledger.redis.url: missing; write it like redis://:${REDIS_PASSWORD}@10.0.0.5:6379",
        ),
        (
            "ledger: { redis: { url: 'redis://h', prefix: '{a}' } }".into(),
            "2:46: ledger.redis.prefix: invalid name \"{a}\"; use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        (
            "ledger: { redis: { url: 'redis://h', failure_mode: panic } }".into(),
            "2:52: ledger.redis.failure_mode: found \"panic\"; use one of refuse, fallback",
        ),
        (
            "ledger: { redis: { url: 'redis://h' } }\nquotas: { q: { limit: 9007199254741, window: { fixed: 1m } } }"
                .into(),
            "3:23: quotas.q.limit: 9007199254741 exceeds the maximum of Redis; write at most 9007199254740.992, or leave out ledger.redis",
        ),
        (
            "quotas: { Q: { limit: 1, window: { fixed: 1m } } }".into(),
            "2:11: quotas.Q: invalid name \"Q\"; use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        (
            "quotas: { q: { limit: 1, window: { sliding: 0s } } }".into(),
            "2:45: quotas.q.window.sliding: found a zero duration; write a duration such as 10s",
        ),
        (
            "quotas: { q: { limit: 1, window: { first_use: 1m, at: '01:00' } } }".into(),
            "2:55: quotas.q.window.at: has no effect on a first_use window; leave it out, or use calendar",
        ),
        (
            "quotas: { q: { limit: 1, window: { first_use: 1m, sliding: 1m } } }".into(),
            "2:26: quotas.q.window: found first_use and sliding at once; keep one of them",
        ),
        (
            "quotas: { q: { limit: 1, window: { zone: UTC } } }".into(),
            "2:26: quotas.q.window: found none of calendar, fixed, first_use and sliding; write day, { calendar: day, zone: America/Los_Angeles, at: \"00:00\" }, { fixed: 24h }, { first_use: 24h } or { sliding: 1m }",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 0s } } }".into(),
            "2:43: quotas.q.window.fixed: found a zero duration; write a duration such as 10s",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1m, zone: UTC } } }".into(),
            "2:53: quotas.q.window.zone: has no effect on a fixed window; leave it out, or use calendar",
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
            "2:56: quotas.q.window.at: an hourly window needs a minute, not an hour; write it like \"00:15\"",
        ),
        (
            quota("pacing: evenly"),
            "2:58: quotas.q.pacing: found \"evenly\", needs a pacing mode; use off, even, learned or { mode: learned, burst: 5% }",
        ),
        (
            format!("{}\nclasses: []", quota("pacing: even")),
            "2:58: quotas.q.pacing: no class to pace; give a class tiers or a weight: { mode: learned, weights: { search: 1 } }",
        ),
        (
            "quotas: { q: { limit: 10, window: { sliding: 1h }, pacing: { mode: even, weights: { other: 1 } } } }".into(),
            "2:52: quotas.q.pacing: pacing requires a window with an end; sliding windows have none: use tiers, or a calendar or fixed window",
        ),
        (
            quota("pacing: { mode: even, weights: { other: 0 } }"),
            "2:90: quotas.q.pacing.weights.other: found 0; write a number from 1 to 1000",
        ),
        (
            quota("pacing: { mode: even, burst: 0%, weights: { other: 1 } }"),
            "2:79: quotas.q.pacing.burst: found 0%; write a share such as 5%",
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
            "2:76: quotas.q.tiers.other[0].above: unreachable: 11 exceeds the limit 10; write a share such as 80%, or less than the limit",
        ),
        (
            tiers("[{ above: 5, shed: 5% }, { above: 50%, shed: 6% }]"),
            "2:100: quotas.q.tiers.other[1].above: not above the previous tier; write the lowest tier first",
        ),
        (
            tiers("[{ above: 5, shed: 5% }, { above: 6, shed: 5% }]"),
            "2:109: quotas.q.tiers.other[1].shed: sheds no more than the previous tier; shed more with each tier, 100% at most",
        ),
        (
            tiers("{ enforce: false, steps: [{ above: 5, shed: 0% }] }"),
            "2:110: quotas.q.tiers.other.steps[0].shed: sheds nothing; shed more with each tier, 100% at most",
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
            "3:34: routes[0].cost.q: cost 11 exceeds the quota limit 10, so no request would be admitted; lower the cost or raise the limit",
        ),
        (
            format!("{}\nroutes: [{{ match: /a, cost: {{ q: 3 }} }}]", quota("per_client: 20%")),
            "3:34: routes[0].cost.q: cost 3 exceeds per_client of the quota, 2, so no request would be admitted; lower the cost or raise per_client",
        ),
        (
            quota("per_client: 0%"),
            "2:62: quotas.q.per_client: found 0 of 10 units; write a share such as 2%, or an amount up to the limit",
        ),
        (
            quota("per_client: 11"),
            "2:62: quotas.q.per_client: found 11 of 10 units; write a share such as 2%, or an amount up to the limit",
        ),
        (
            format!("{}\nclasses: [{{ name: q, bucket: {{ rate: 1/s }} }}]", quota("")),
            "2:11: quotas.q: the bucket of class \"q\" has the same name in RateLimit fields; rename one of them",
        ),
        (
            "classes: [{ name: a, when: { kind: human } }, { name: a }]".into(),
            "2:55: classes[1].name: duplicate name \"a\": classes[0] has it, too; give each class its own name",
        ),
        (
            "classes: [{ name: a }, { name: b }]".into(),
            "2:24: classes[1]: unreachable: classes[0] (a) matches every client; move it above that one",
        ),
        (
            "classes: [{ name: other, when: { kind: human } }]".into(),
            "2:19: classes[0].name: reserved name: \"other\" is the class of clients without a match; choose another name",
        ),
        (
            "classes: [{ name: a, bucket: { capacity: 0, fill: 1, interval: 1s } }]".into(),
            "2:42: classes[0].bucket.capacity: found 0, needs at least 1; write a number such as 60",
        ),
        (
            "classes: [{ name: a, bucket: { capacity: 1, fill: 1, interval: 0s } }]".into(),
            "2:64: classes[0].bucket.interval: found a zero duration; write a duration such as 10s",
        ),
        (
            "classes: [{ name: a, bucket: { capacity: 1, fill: 1 } }]".into(),
            "2:22: classes[0].bucket.interval: missing; set all of capacity, fill and interval",
        ),
        (
            "limits: { max_connections_per_address: off }".into(),
            "2:40: limits.max_connections_per_address: found \"off\", needs a whole number up to 4294967295; write it in digits, or 0 for no limit",
        ),
        (
            "ledger: { redis: { url: 'rediss://h', ca: '' } }".into(),
            "2:43: ledger.redis.ca: found \"\", needs a path; write one such as ./tls/site.pem, or leave the key out",
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
            "2:35: classes[0].crawl_delay: found \"soon\", needs a crawl delay; write auto, a duration such as 10s, or { bingbot: 30s }",
        ),
        (
            "classes: [{ name: a, when: { user_agent: x }, crawl_delay: { bingbot: 3s } }, { name: b, crawl_delay: { bingbot: 4s } }]".into(),
            "2:114: classes[1].crawl_delay.bingbot: duplicate crawl_delay for operator bingbot; keep one of them",
        ),
        (
            "crawl_policy: { contact: bots@example.com }".into(),
            "2:26: crawl_policy.contact: found \"bots@example.com\", needs a mailto:, https:// or http:// address; write it like mailto:bots@example.com or https://example.com/bots",
        ),
        (
            "crawl_policy: loud".into(),
            "2:15: crawl_policy: found \"loud\", needs on, off or keys; use on, off or { contact: \"mailto:bots@example.com\" }",
        ),
        (
            "robots: { honeypot: \"/a b\" }".into(),
            "2:21: robots.honeypot: invalid path; write one such as /private-area, of letters, digits, \"/\", \"-\", \"_\" and \".\"",
        ),
        (
            "classes: [{ name: a, when: { address: 10.0.0.0/33 } }]".into(),
            "2:39: classes[0].when.address: found \"10.0.0.0/33\", needs an address range; write it like 10.0.0.0/8 or \"2001:db8::/32\"",
        ),
        (
            "routes: [{ match: /** }, { match: /a }]".into(),
            "2:26: routes[1]: unreachable: routes[0] (/**) matches every request that this route matches; move it above that one",
        ),
        (
            "routes: [{ match: /a, scopes: [default] }, { match: /A/, scopes: [default] }]".into(),
            "2:44: routes[1]: unreachable: routes[0] (/a) matches every request that this route matches; move it above that one, or write case: exact or trailing_slash: exact there",
        ),
        (
            "routes: [{ match: /a, case: ignored }]".into(),
            "2:29: routes[0].case: found \"ignored\" (did you mean \"ignore\"?); use one of exact, ignore",
        ),
        (
            "routes: [{ match: /a/**/b/c }]".into(),
            "2:19: routes[0].match: \"/a/**/b/c\": ** must be a whole segment, the last or the one before it; write it like /shop/** or /**/*.css, or * within a segment",
        ),
        (
            "routes: [{ match: /a?b }]".into(),
            "2:19: routes[0].match: \"/a?b\": contains a space, \"?\" or \"#\"; use query for parameters",
        ),
        (
            "routes: [{ match: /a, method: get }]".into(),
            "2:31: routes[0].method: found \"get\", needs a method; write it in capitals such as GET",
        ),
        (
            "routes: [{ match: /a, host: Example.com }]".into(),
            "2:29: routes[0].host: invalid host \"Example.com\"; write it in lower case and without a port, such as shop.example.com or *.example.com",
        ),
        (
            "routes: [{ match: /a, scopes: [x] }]".into(),
            "2:32: routes[0].scopes[0]: unknown scope \"x\"; known: default",
        ),
        (
            "admin: { listen: '0.0.0.0:9090' }".into(),
            "2:18: admin.listen: 0.0.0.0:9090 is not a loopback address and requires a token; set admin.token: ${TIDEGATE_ADMIN_TOKEN}, or listen on 127.0.0.1",
        ),
        ("admin: { token: 12345 }".into(), "2:17: admin.token: found a number, needs text; put it in quotes"),
        (
            "admin: { token: fifteen-letters }".into(),
            "2:17: admin.token: needs at least 16 characters; write letters, digits and symbols, such as the output of `openssl rand -hex 32`",
        ),
        (
            "admin: { token: sixteen letters. }".into(),
            "2:17: admin.token: contains spaces or other characters than ASCII; write letters, digits and symbols, such as the output of `openssl rand -hex 32`",
        ),
        (
            "admin: { read_token: sixteen-letters. }".into(),
            "2:22: admin.read_token: read_token requires token; add token: ${TIDEGATE_ADMIN_TOKEN}",
        ),
        (
            "admin: { token: sixteen-letters., read_token: sixteen-letters. }".into(),
            "2:47: admin.read_token: is the same as token; write another one",
        ),
        (
            "admin: { listen: '127.0.0.1:8080' }".into(),
            "2:18: admin.listen: 127.0.0.1:8080 is an address for clients; write another port, such as admin: { listen: 127.0.0.1:9091 }, or admin: off",
        ),
        (
            "listen: ['127.0.0.1:1', '127.0.0.1:1']".into(),
            "2:25: listen[1]: duplicate address 127.0.0.1:1; keep one of them",
        ),
        (
            "listen: 127.0.0.1:3000".into(),
            "1:16: origin.url: 127.0.0.1:3000 points to the gateway itself; set the address of the site",
        ),
        (
            "clients: { address_from: proxy-protocol, trusted_proxies: [10.0.0.1] }".into(),
            "2:26: clients.address_from: no listener has proxy_protocol; write listen: { address: \"0.0.0.0:8080\", proxy_protocol: true }",
        ),
        (
            "listen: { address: '127.0.0.1:1', proxy_protocol: true }".into(),
            "2:51: listen.proxy_protocol: no proxy may send the header; name the proxies in front, such as clients: { trusted_proxies: [10.0.0.0/8] }",
        ),
        (
            "listen: [{ tls: { certificate: a, key: b } }]".into(),
            "2:10: listen[0].address: missing; write an address and port such as 0.0.0.0:443",
        ),
        (
            "listen: { address: '127.0.0.1:1', tls: {} }".into(),
            "2:35: listen.tls.certificates: no certificate; write tls: { certificate: tls/site.pem, key: tls/site.key }, or tls: { acme: { domains: [example.com] } }",
        ),
        (
            "listen: { address: '127.0.0.1:1', tls: { certificate: a } }".into(),
            "2:35: listen.tls.key: missing; name a file such as tls/site.key",
        ),
        (
            "listen: { address: '127.0.0.1:1', tls: { certificate: a, key: b, certificates: [{ certificate: a, key: b }] } }".into(),
            "2:55: listen.tls.certificate: found together with certificates; write all of them under certificates, the default one first",
        ),
        (
            "listen: { address: '127.0.0.1:1', tls: { certificate: a, key: b, client_certificates: optional } }".into(),
            "2:87: listen.tls.client_certificates: requires client_ca; name the file with the authorities, such as client_ca: tls/clients.pem",
        ),
        (
            "listen: { address: '127.0.0.1:1', tls: { certificate: a, key: b, hsts: 0s } }".into(),
            "2:72: listen.tls.hsts: found a zero duration; write a duration such as 10s",
        ),
        (
            "hosts: a.example\nlisten: { address: '127.0.0.1:1', tls: { certificate: a, key: b }, redirect: https }".into(),
            "3:78: listen.redirect: found together with tls, whose requests have https already; remove one of them",
        ),
        (
            "hosts: a.example\nlisten: { address: '127.0.0.1:1', redirect: https }".into(),
            "3:45: listen.redirect: no listener has tls; add one, or write the port of another server, such as https:443",
        ),
        (
            "listen: { address: '127.0.0.1:1', redirect: https:443 }".into(),
            "2:45: listen.redirect: requires hosts, so that it leads nowhere else; name them, such as hosts: [example.com]",
        ),
        (
            "classes: [{ name: partner, when: { certificate: partner } }]".into(),
            "2:49: classes[0].when.certificate: no listener verifies certificates; add tls: { client_ca: tls/clients.pem } to one",
        ),
        (
            "listen: { address: '127.0.0.1:1', redirect: http }".into(),
            "2:45: listen.redirect: found \"http\", needs https, or https with a port; write https or https:443",
        ),
        (
            "clients: { address_from: {}, trusted_proxies: [10.0.0.1] }".into(),
            "2:12: clients.address_from.header: missing; name the header, such as CF-Connecting-IP",
        ),
        (
            "clients: { ipv6_prefix: 65 }".into(),
            "2:25: clients.ipv6_prefix: found 65, needs 32 to 64; write 64, the usual prefix of a household",
        ),
        (
            "classes: [{ name: a, when: { api_key: { header: X-Api-Key } } }]".into(),
            "2:30: classes[0].when.api_key.value: no API key; write it, or ${NAME} to read it from the environment",
        ),
        (
            "classes: [{ name: a, when: { api_key: { value: a-key-that-is-long } } }]".into(),
            "2:30: classes[0].when.api_key: found neither header nor cookie; write { header: X-Api-Key } or { cookie: session }",
        ),
        (
            "classes: [{ name: a, when: { api_key: { cookie: k, value: 918273645546372819 } } }]".into(),
            "2:59: classes[0].when.api_key.value: found a number, needs text; put it in quotes",
        ),
        (
            "classes: [{ name: a, when: { api_key: { cookie: k, value: [long-enough-to-be-one, \" spaced-and-secret\"] } } }]".into(),
            "2:83: classes[0].when.api_key.value[1]: leading or trailing space, or control character; write the key as clients send it",
        ),
        (
            "quotas: { api: { limit: 0.0001, window: { fixed: 24h } } }".into(),
            "2:25: quotas.api.limit: found 0.0001, needs an amount, to a thousandth; write it like 10000 or 0.25",
        ),
        (
            "quotas: { api: { limit: 0, window: { fixed: 1h }, tiers: { a: [{ above: 5%, shed: 5% }, { above: 6%, shed: 6% }] } } }\nclasses: [{ name: a }]".into(),
            "2:25: quotas.api.limit: found 0; write the purchased units, or block a class with block: true",
        ),
        (
            "quotas: { api: { limit: 1, window: { sliding: 1ms } } }".into(),
            "2:47: quotas.api.window.sliding: found 1ms; write at least 1s",
        ),
        (
            "classes: [{ name: a, bucket: { rate: 1/s, key: ip } }]".into(),
            "2:48: classes[0].bucket.key: found \"ip\", needs a bucket key; use address, operator, class, { header: NAME } or { cookie: NAME }",
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
            "2:58: classes[0].bucket.key.cookie: invalid cookie name; write it like session",
        ),
        (
            "headers: { retry_after_spread: 101% }".into(),
            "2:32: headers.retry_after_spread: found \"101%\", needs a share such as 75%; write a number from 0 to 100 with a percent sign",
        ),
        (
            "log: { access: { path: a, format: text } }".into(),
            "2:35: log.access.format: found \"text\"; use one of json, combined",
        ),
        (
            "log: { access: file }".into(),
            "2:16: log.access: found \"file\", needs an access log; use off, stdout or { path: FILE }",
        ),
        (
            "limits: { header_timeout: 0s }".into(),
            "2:27: limits.header_timeout: found a zero duration; write a duration such as 10s",
        ),
        (
            "log: { access: { path: ./access.log, max_size: 1KiB } }".into(),
            "2:48: log.access.max_size: needs at least 1MiB; write a size such as 100MiB",
        ),
        (
            "log: { access: { path: ./access.log, keep: 2 } }".into(),
            "2:44: log.access.keep: keep requires max_size; add one such as max_size: 100MiB, or leave it out",
        ),
        (
            "limits: { memory: 1MiB }".into(),
            "2:19: limits.memory: needs at least 16MiB; write a size such as 256MiB",
        ),
        (
            "limits: { max_header_size: 1KiB }".into(),
            "2:28: limits.max_header_size: needs 8KiB to 1MiB; write a size such as 32KiB",
        ),
        (
            "limits: { max_connections: 0 }".into(),
            "2:28: limits.max_connections: found 0, needs at least 1; write a number such as 10000",
        ),
        (
            "scopes: { default: { backoff: { min_delay: 5s, max_delay: 1s } } }".into(),
            "2:59: scopes.default.backoff.max_delay: less than min_delay; raise it",
        ),
        (
            "scopes: { default: { backoff: { max_delay: 500ms } } }".into(),
            "2:44: scopes.default.backoff.max_delay: less than min_delay (1s by default); raise it",
        ),
        (
            "scopes: { default: { autothrottle: { start_delay: 30s } } }".into(),
            "2:51: scopes.default.autothrottle.start_delay: more than max_delay (5s by default); lower it, or set max_delay",
        ),
        (
            "classes: [{ name: a, when: { api_key: { header: X Api, value: a-key-that-is-long } } }]".into(),
            "2:49: classes[0].when.api_key.header: found \"X Api\", needs the name of a header; write it like X-API-Cost",
        ),
        (
            "scopes: { default: { delay: 6s, autothrottle: { target_concurrency: 1 } } }".into(),
            "2:33: scopes.default.autothrottle.max_delay: less than the scope's delay; raise it, or lower delay",
        ),
        ("address_lists: { hosting: {} }".into(), "2:18: address_lists.hosting.file: missing; name a file such as ./hosting.txt"),
        (
            "address_lists: { hosting: { file: a.txt } }\nclasses: [{ name: a, when: { address_list: hostng } }]".into(),
            "3:44: classes[0].when.address_list: unknown list \"hostng\" (did you mean \"hosting\"?); known: hosting",
        ),
        (
            "bot_detection: { threshold: 20 }".into(),
            "2:29: bot_detection.threshold: found 20, needs 50 to 1000; write 100, or `enabled: false` to disable it",
        ),
        (
            "bot_detection: { threshold: 100000 }".into(),
            "2:29: bot_detection.threshold: found 100000, needs 50 to 1000; write 100, or `enabled: false` to disable it",
        ),
        (
            "verify: { signatures: off }".into(),
            "2:23: verify.signatures: found \"off\", needs keys with values; write signatures: { enabled: false } to disable it",
        ),
        (
            "traces: on".into(),
            "2:9: traces: found \"on\", needs keys with values; write traces: { endpoint: \"http://127.0.0.1:4318\" }, or leave the section out for no traces",
        ),
        (
            "listen: [{ address: \"0.0.0.0:443\", tls: on }]".into(),
            "2:41: listen[0].tls: found \"on\", needs keys with values; write tls: { certificate: tls/site.pem, key: tls/site.key }, or { acme: { domains: [example.com] } }",
        ),
        (
            "forward_auth: 127.0.0.1:9092".into(),
            "2:15: forward_auth: found \"127.0.0.1:9092\", needs keys with values; write forward_auth: { listen: 127.0.0.1:9092 }, or leave the section out for no listener",
        ),
        (
            "bot_detection: off".into(),
            "2:16: bot_detection: found \"off\", needs keys with values; write bot_detection: { enabled: false } to disable it",
        ),
        (
            "address_lists: { hosting: ./hosting.txt }".into(),
            "2:27: address_lists.hosting: found \"./hosting.txt\", needs keys with values; write { file: ./hosting.txt }",
        ),
        (
            "robots: { crawl_delay: 5s }".into(),
            "2:11: robots.crawl_delay: unknown key \"crawl_delay\"; write it at a class, classes: [{ name: bot, crawl_delay: 10s }]; known here: merge_crawl_delay, override_file, honeypot, terms, license",
        ),
        (
            "operators: { googlebot: { dns_names: \"*.dnsy.example\" } }".into(),
            "2:38: operators.googlebot.dns_names: found \"*.dnsy.example\", needs a DNS name; write crawl.example.com, which includes all names below it, or bot-*.example.com",
        ),
        (
            "bot_detection: { half_life: 0s }".into(),
            "2:29: bot_detection.half_life: found a zero duration; write a duration such as 10s",
        ),
        (
            "robots: { honeypot: '/a/../b' }".into(),
            "2:21: robots.honeypot: invalid path; write one such as /private-area, of letters, digits, \"/\", \"-\", \"_\" and \".\"",
        ),
        (
            "robots: { honeypot: / }".into(),
            "2:21: robots.honeypot: invalid path; write one such as /private-area, of letters, digits, \"/\", \"-\", \"_\" and \".\"",
        ),
        (
            scope_with_route("tenant", "partition_by: tenant"),
            "2:35: scopes.tenant.partition_by: found \"tenant\", needs a partition key; use host, route, { query: NAME }, { header: NAME } or { path: 1 }",
        ),
        (
            scope_with_route("tenant", "partition_by: {}"),
            "2:21: scopes.tenant.partition_by: found none of query, header and path; write host, route, { query: tenant }, { header: X-Tenant } or { path: 1 }",
        ),
        (
            scope_with_route("tenant", "partition_by: { query: a, path: 1 }"),
            "2:21: scopes.tenant.partition_by: found query and path at once; keep one of them",
        ),
        (
            scope_with_route("tenant", "partition_by: { query: '' }"),
            "2:44: scopes.tenant.partition_by.query: is empty; write a parameter name such as tenant",
        ),
        (
            scope_with_route("tenant", "partition_by: { header: X Y }"),
            "2:45: scopes.tenant.partition_by.header: found \"X Y\", needs the name of a header; write it like X-API-Cost",
        ),
        (
            scope_with_route("tenant", "partition_by: { header: Authorization }"),
            "2:45: scopes.tenant.partition_by.header: \"authorization\" contains secrets, and status shows the values; use a header that identifies the tenant, such as X-Tenant",
        ),
        (
            scope_with_route("tenant", "partition_by: { path: 0 }"),
            "2:43: scopes.tenant.partition_by.path: found 0, needs at least 1; write a number such as 1",
        ),
        (
            scope_with_route("tenant", "partition_by: host, max_partitions: 0"),
            "2:57: scopes.tenant.max_partitions: found 0, needs at least 1; write a number such as 10000",
        ),
        (
            scope_with_route("tenant", "partition_by: host, max_partitions: 1000001"),
            "2:57: scopes.tenant.max_partitions: found 1000001, maximum 1000000; write a lower number",
        ),
        (
            scope_with_route("tenant", "max_partitions: 5"),
            "2:37: scopes.tenant.max_partitions: max_partitions requires partition_by; add partition_by, or leave it out",
        ),
        (
            scope_with_route("default", "partition_by: host"),
            "2:36: scopes.default.partition_by: the scope default applies to all routes that name no scope; use another name, and name it in the routes",
        ),
        (
            "scopes: { tenant: { partition_by: host } }\nroutes: [{ match: /a, scopes: tenant }]".into(),
            "2:35: scopes.tenant.partition_by: this scope has no limit; add concurrency, delay, autothrottle or backoff",
        ),
        (
            "scopes: { tenant: { partition_by: host, delay: 1s } }".into(),
            "2:35: scopes.tenant.partition_by: no route refers to this scope; write scopes: [default, tenant] at its routes",
        ),
        (
            scope_with_route("tenant", "partition_by: host, quota: { limit: 5, window: { fixed: 1h } }"),
            "2:41: scopes.tenant.quota: the usage of a quota is stored permanently, and partitions are not; limit each partition by concurrency and delay, or each client by a bucket",
        ),
        (
            format!("{}\nscopes: {{ q: {{ quota: {{ limit: 5, window: {{ fixed: 1h }} }} }} }}", quota("")),
            "3:16: scopes.q.quota: quotas.q has the same name; keep one of them, or rename the scope",
        ),
        (
            "scopes: { search: { quota: { window: day } } }".into(),
            "2:21: scopes.search.quota.limit: missing; write the units per window, such as 10000",
        ),
        (
            "scopes: { search: { quota: { limit: 0.5, window: { fixed: 1h } } } }\nroutes: [{ match: /a, scopes: search }]".into(),
            "3:31: routes[0].scopes: cost 1 exceeds the quota limit 0.5, so no request would be admitted; lower the cost or raise the limit",
        ),
        (
            "scopes: { default: { delay_per_slot: 1s } }".into(),
            "2:38: scopes.default.delay_per_slot: delay_per_slot requires concurrency; add one such as concurrency: 4, or use delay",
        ),
        (
            "scopes: { default: { delay: 1s, jitter: [30%, 10%] } }".into(),
            "2:33: scopes.default.jitter: the maximum is less than the minimum; write 10%, or [-10%, 30%] with the minimum first",
        ),
        (
            "scopes: { default: { delay: 1s, jitter: [10%] } }".into(),
            "2:41: scopes.default.jitter: invalid length 1, expected one value, or a minimum and a maximum; write [low, high] for both",
        ),
        (
            "scopes: { default: { delay: 1s, jitter: -10% } }".into(),
            "2:41: scopes.default.jitter: the maximum is less than the minimum; write 10%, or [-10%, 30%] with the minimum first",
        ),
        (
            "scopes: { default: { autothrottle: { target_concurrency: 0 } } }".into(),
            "2:58: scopes.default.autothrottle.target_concurrency: found 0, needs more than 0; write a number such as 2, or 0.5 for as much idle time as work",
        ),
        (
            "scopes: { default: { autothrottle: { success_statuses: [200, 2000] } } }".into(),
            "2:62: scopes.default.autothrottle.success_statuses[1]: found 2000, needs a status; write one from 100 to 599",
        ),
        (
            "scopes: { default: { autothrottle: {}, adaptive_concurrency: gradient } }".into(),
            "2:62: scopes.default.adaptive_concurrency: conflicts with autothrottle: a scope can have only one controller; keep one, or use two scopes and name both in the route",
        ),
        (
            "scopes: { default: { adaptive_concurrency: vegas } }".into(),
            "2:44: scopes.default.adaptive_concurrency: found \"vegas\", needs a concurrency controller; use gradient, or { min: 2, max: 64 }",
        ),
        (
            "scopes: { default: { adaptive_concurrency: { min: 0 } } }".into(),
            "2:51: scopes.default.adaptive_concurrency.min: found 0, needs at least 1; write a number such as 1",
        ),
        (
            "scopes: { default: { adaptive_concurrency: { min: 9, max: 8 } } }".into(),
            "2:59: scopes.default.adaptive_concurrency.max: 8 is less than min; raise it",
        ),
        (
            "scopes: { default: { concurrency: 8, adaptive_concurrency: { max: 9 } } }".into(),
            "2:67: scopes.default.adaptive_concurrency.max: more than the scope's concurrency; lower it, or leave one of them out",
        ),
        (
            "scopes: { default: { concurrency: 8, rampup: {} } }".into(),
            "2:38: scopes.default.rampup: rampup requires backoff; add backoff: {}",
        ),
        (
            "scopes: { default: { backoff: {}, rampup: {} } }".into(),
            "2:35: scopes.default.rampup: rampup needs an initial value; set delay or concurrency",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { target_overloads: [3, 1] } } }".into(),
            "2:56: scopes.default.rampup.target_overloads: invalid target: the range is empty; write a number such as 1, or [1, 3] with the minimum first",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { target_overloads: 0 } } }".into(),
            "2:74: scopes.default.rampup.target_overloads: invalid target: the range is empty; write a number such as 1, or [1, 3] with the minimum first",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { min_delay: 2s } } }".into(),
            "2:67: scopes.default.rampup.min_delay: the scope's delay is outside this bound; set delay between min_delay and max_delay",
        ),
        (
            "scopes: { default: { delay: 1s, backoff: {}, rampup: { max_concurrency: 9 } } }".into(),
            "2:73: scopes.default.rampup.max_concurrency: has no effect: rampup varies delay; leave it out",
        ),
        (
            "scopes: { default: { concurrency: 9, backoff: {}, rampup: { max_delay: 9s } } }".into(),
            "2:72: scopes.default.rampup.max_delay: has no effect: rampup varies concurrency; leave it out",
        ),
        (
            "scopes: { default: { concurrency: 9, backoff: {}, rampup: { max_concurrency: 8 } } }".into(),
            "2:78: scopes.default.rampup.max_concurrency: less than the scope's concurrency; raise it",
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
            "2:67: operators.googlebot.signature_agents[1]: invalid agent URL \"http://bot.example\"; write it like https://bot.example",
        ),
        (
            "hosts: []".into(),
            "2:1: hosts: no host; add one such as example.com, or leave hosts out to accept every host",
        ),
        (
            "hosts: [example.com, \"https://example.com\"]".into(),
            "2:22: hosts[1]: found \"https://example.com\", needs a host; write example.com, \"*.example.com\" for all names below it, or an address, without scheme and port",
        ),
        (
            "hosts: [\"*\"]".into(),
            "2:9: hosts[0]: found \"*\", needs a host; write example.com, \"*.example.com\" for all names below it, or an address, without scheme and port",
        ),
        (
            "hosts: example.com:443".into(),
            "2:8: hosts: found \"example.com:443\", needs a host; write example.com, \"*.example.com\" for all names below it, or an address, without scheme and port",
        ),
        (
            "verify: { signatures: { max_lifetime: 0s } }".into(),
            "2:39: verify.signatures.max_lifetime: found a zero duration; write a duration such as 10s",
        ),
        (
            "compression: off".into(),
            "2:14: compression: found \"off\", needs on or keys; use on or { codings: [br, gzip] }",
        ),
        (
            "compression: { codings: [deflate] }".into(),
            "2:26: compression.codings[0]: found \"deflate\"; use one of br, gzip, zstd",
        ),
        (
            "compression: { codings: [] }".into(),
            "2:16: compression.codings: empty; write [zstd, br, gzip], or leave the section out",
        ),
        (
            "compression: { codings: [br, br] }".into(),
            "2:16: compression.codings: br twice; write each coding once",
        ),
        (
            "compression: { types: html }".into(),
            "2:23: compression.types: \"html\" is no media type; write one such as text/html or text/*",
        ),
        ("cache: { memory: 1KiB }".into(), "2:18: cache.memory: needs at least 1MiB; write a size such as 128MiB"),
        (
            "cache: { max_object: 17MiB }".into(),
            "2:22: cache.max_object: needs at most an eighth of cache.memory, 16MiB; lower it, or raise cache.memory",
        ),
        (
            "cache: { ignore_query: [\"a*b\"] }".into(),
            "2:10: cache.ignore_query: invalid parameter \"a*b\"; write a name such as gclid, or utm_*",
        ),
        (
            "cache: { ignore_query: [\"*\"] }".into(),
            "2:10: cache.ignore_query: found \"*\", with which all searches and numbered pages of a path would be one copy; name parameters that change no page, such as utm_*, or write cache: { key: { query: [] } } at routes without a query",
        ),
        (
            "cache: { unkeyed_headers: [traceparent, Cookie] }".into(),
            "2:10: cache.unkeyed_headers: found \"cookie\", with which the page of one person would be sent to others; remove it; what a response depends on belongs in the key: cache: { key: { cookies: [lang] } } at a route",
        ),
        (
            "cache: { unkeyed_headers: authorization }".into(),
            "2:27: cache.unkeyed_headers: found \"authorization\", with which the page of one person would be sent to others; remove it; what a response depends on belongs in the key: cache: { key: { cookies: [lang] } } at a route",
        ),
        (
            "cache: { unkeyed_headers: host }".into(),
            "2:27: cache.unkeyed_headers: found \"host\", which is always part of the key; remove it",
        ),
        (
            "cache: on\nroutes: [{ match: /a, cache: { ttl: 1m } }]".into(),
            "2:8: cache: found \"on\", needs keys with values; write cache: {} to cache with the defaults, or leave the section out for no cache",
        ),
        (
            "cache: true".into(),
            "2:8: cache: found true, needs keys with values; write cache: {} to cache with the defaults, or leave the section out for no cache",
        ),
        (
            "cache: { ttl: 10m }".into(),
            "2:10: cache.ttl: unknown key \"ttl\"; write it at a route, routes: [{ match: \"/**\", cache: { ttl: 10m } }]; known here: memory, disk, refresh, max_object, ignore_query, stale_when_refused, stale_if_error, crowd_max_age, reload, unkeyed_headers",
        ),
        (
            "cache: { key: { cookies: [] } }".into(),
            "2:10: cache.key: unknown key \"key\"; write it at a route, routes: [{ match: \"/**\", cache: { ttl: 10m } }]; known here: memory, disk, refresh, max_object, ignore_query, stale_when_refused, stale_if_error, crowd_max_age, reload, unkeyed_headers",
        ),
        (
            "cache: {}\nroutes: [{ match: /a, cache: { stale_when_refused: 1h } }]".into(),
            "3:32: routes[0].cache.stale_when_refused: unknown key \"stale_when_refused\"; it is for all routes: write it in the section cache at the top level, such as cache: { stale_when_refused: 30d }; known here: ttl, revalidation_cost, key",
        ),
        (
            "cache: {}\nroutes: [{ match: /a, cache: { ttl: 0s } }]".into(),
            "3:37: routes[0].cache.ttl: found 0s, with which each request would fetch the page; write a duration such as 10m, or cache: off to store nothing, or leave it out to keep copies for refusals alone",
        ),
        (
            "cache: { crowd_max_age: 2h }".into(),
            "2:25: cache.crowd_max_age: found 2h; write at most 1h, such as 60s: for so long all readers of a page see an old one",
        ),
        (
            "cache: { memory: 10GB }".into(),
            "2:18: cache.memory: found \"10GB\", needs a size; write it like 64KiB, 10MiB or 2GiB, in the units B, KiB, MiB or GiB",
        ),
        (
            "cache: { reload: bots }".into(),
            "2:18: cache.reload: found \"bots\"; use one of people, all, none",
        ),
        (
            "routes: [{ match: /a, cache: { ttl: 1m } }]".into(),
            "2:23: routes[0].cache: needs the section cache; add cache: {} at the top level, or remove this key",
        ),
        (
            "routes: [{ match: /a, cache: on }]".into(),
            "2:30: routes[0].cache: found \"on\", needs off or keys; use off or { ttl: 10m }",
        ),
        (
            "cache: {}\nroutes: [{ match: /a, cache: { revalidation_cost: { aip: 1 } } }]".into(),
            "3:58: routes[0].cache.revalidation_cost.aip: unknown quota \"aip\"; define the quota first",
        ),
        (
            "cache: {}\nroutes: [{ match: /a, cache: { key: { cookies: [\"a=b\"] } } }]".into(),
            "3:39: routes[0].cache.key.cookies: invalid cookie name \"a=b\"; write the name alone, such as lang",
        ),
        (
            "classes: [{ name: a, refuse_with: 401 }]".into(),
            "2:35: classes[0].refuse_with: has no effect without block: true; write block: true, or leave the key out",
        ),
        (
            "classes: [{ name: a, block: true, refuse_with: 404 }]".into(),
            "2:48: classes[0].refuse_with: found 404; write 401, 403 or 429",
        ),
        (
            "error_pages: { 404: a.html }".into(),
            "2:21: error_pages.404: found \"404\", no error status of the gateway itself; write one of 400, 401, 403, 405, 408, 413, 414, 417, 421, 429, 431, 502, 503, 504, 508, 4xx and 5xx; error responses of the origin are not replaced",
        ),
        (
            "error_pages: { 5xx: '' }".into(),
            "2:21: error_pages.5xx: found \"\", needs a file or keys; use pages/busy.html or { html: pages/busy.html, json: openai }",
        ),
        (
            "error_pages: { 429: [a.html] }".into(),
            "2:21: error_pages.429: found a list, needs a file or keys; use pages/busy.html or { html: pages/busy.html, json: openai }",
        ),
        (
            "error_pages: { 429: {} }".into(),
            "2:16: error_pages.429: has neither html nor json; write { json: openai }, or leave the key out",
        ),
        (
            "error_pages: { 429: { jsno: openai } }".into(),
            "2:23: error_pages.429.jsno: unknown key \"jsno\" (did you mean \"json\"?); known here: html, json",
        ),
        (
            "error_pages: { 429: { json: '' } }".into(),
            "2:29: error_pages.429.json: found \"\", needs a path; write one such as ./tls/site.pem, or leave the key out",
        ),
        (
            "routes: [{ match: /a, request_headers: { set: { Content-Length: 1 } } }]".into(),
            "2:65: routes[0].request_headers.set.Content-Length: Content-Length cannot be changed: it belongs to the connection or the body; leave it out",
        ),
        (
            "routes: [{ match: /a, request_headers: { add: { X_Forwarded_For: 10.0.0.1 } } }]".into(),
            "2:66: routes[0].request_headers.add.X_Forwarded_For: X_Forwarded_For cannot be changed: the gateway writes it itself; leave it out",
        ),
        (
            "routes: [{ match: /a, request_headers: { remove: If-None-Match } }]".into(),
            "2:50: routes[0].request_headers.remove[0]: if-none-match cannot be changed: it selects the response, of which others get a copy; leave it out",
        ),
        (
            "routes: [{ match: /a, request_headers: { set: { CF-Connecting-IP: 10.0.0.1 } } }]".into(),
            "2:67: routes[0].request_headers.set.CF-Connecting-IP: CF-Connecting-IP cannot be changed: it has the address of the client, who differs by request; leave it out",
        ),
        (
            "routes: [{ match: /a, response_headers: { remove: [Server, Retry-After] } }]".into(),
            "2:60: routes[0].response_headers.remove[1]: retry-after cannot be changed: the gateway writes it itself; leave it out",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { Vary: Cookie } } }]".into(),
            "2:56: routes[0].response_headers.set.Vary: Vary cannot be changed: other caches would mix the responses of clients; append names with add",
        ),
        (
            "routes: [{ match: /a, response_headers: { add: { Set-Cookie: a=b } } }]".into(),
            "2:62: routes[0].response_headers.add.Set-Cookie: Set-Cookie cannot be changed: all clients would get the same cookie; let the origin set it; remove removes it",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { X-A: \"secret\\r\\nX-B: 1\" } } }]".into(),
            "2:55: routes[0].response_headers.set.X-A: found a line break or another control character in the value, at byte 7; write one line of ASCII characters",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { X-A: \"a\\0\" } } }]".into(),
            "2:55: routes[0].response_headers.set.X-A: found a line break or another control character in the value, at byte 2; write one line of ASCII characters",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { X-A: '' } } }]".into(),
            "2:55: routes[0].response_headers.set.X-A: found an empty value; write a value, or the name in remove",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { X-A: [a] } } }]".into(),
            "2:55: routes[0].response_headers.set.X-A: found a list, needs text; put it in quotes",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { X-A: caf\u{e9} } } }]".into(),
            "2:55: routes[0].response_headers.set.X-A: found a character beyond ASCII in the value, at byte 4; write one line of ASCII characters",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { X A: b } } }]".into(),
            "2:55: routes[0].response_headers.set.X A: found \"X A\", needs the name of a header; write it like X-Frame-Options",
        ),
        (
            "routes: [{ match: /a, response_headers: { set: { X-A: b }, remove: x-a } }]".into(),
            "2:68: routes[0].response_headers.remove[0]: found x-a twice; keep one; set replaces a field, add keeps it",
        ),
        (
            "routes: [{ match: /a, redirect: '//b.example' }]".into(),
            "2:33: routes[0].redirect: found \"//b.example\", which browsers read as a host; write a path such as /new, or a URL such as https://example.com/new",
        ),
        (
            "routes: [{ match: /a, redirect: { status: 302 } }]".into(),
            "2:23: routes[0].redirect: missing; write a path such as /new, or a URL such as https://example.com/new",
        ),
        (
            "routes: [{ match: /a, redirect: { to: 'javascript:alert(1)' } }]".into(),
            "2:39: routes[0].redirect.to: found \"javascript:alert(1)\", neither a path nor an http or https URL; write a path such as /new, or a URL such as https://example.com/new",
        ),
        (
            "routes: [{ match: /a, redirect: 'https://user@b.example/' }]".into(),
            "2:33: routes[0].redirect: found \"https://user@b.example/\", neither a path nor an http or https URL; write a path such as /new, or a URL such as https://example.com/new",
        ),
        (
            "routes: [{ match: /a, redirect: '/\\b' }]".into(),
            "2:33: routes[0].redirect: found \"/\\\\b\", which has a character that no URL has; encode it, such as a space as %20, without # and \\",
        ),
        (
            "routes: [{ match: /a, redirect: { to: /b, status: 200 } }]".into(),
            "2:51: routes[0].redirect.status: found 200; write 301, 302, 303, 307 or 308",
        ),
        (
            "routes: [{ match: /a/*, redirect: '/b/{rest}' }]".into(),
            "2:35: routes[0].redirect: found {rest}, but match does not end with **; end match with /**, or remove {rest}",
        ),
        (
            "routes: [{ match: /a/**, redirect: 'https://b.example{rest}' }]".into(),
            "2:36: routes[0].redirect: found \"https://b.example{rest}\", in which no slash of the path precedes {rest}; write it like https://example.com/new/{rest}",
        ),
        (
            "routes: [{ match: /a/**, redirect: '/b/{path}' }]".into(),
            "2:36: routes[0].redirect: found \"/b/{path}\", which has a placeholder; write {rest} at the end, or none",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h } } }\nroutes: [{ match: /a, redirect: /b, cost: { q: 1 } }]".into(),
            "3:33: routes[0].redirect: found together with cost, but a redirect costs nothing and does not reach the origin; remove redirect or cost",
        ),
        (
            "cache: {}\nroutes: [{ match: /a, redirect: /b, cache: off }]".into(),
            "3:33: routes[0].redirect: found together with cache, but a redirect costs nothing and does not reach the origin; remove redirect or cache",
        ),
        (
            "routes: [{ match: /a, redirect: /b, stream: true }]".into(),
            "2:33: routes[0].redirect: found together with stream, but a redirect costs nothing and does not reach the origin; remove redirect or stream",
        ),
        (
            "routes: [{ match: /a, redirect: /b, request_headers: { remove: X-A } }]".into(),
            "2:33: routes[0].redirect: found together with request_headers, but a redirect costs nothing and does not reach the origin; remove redirect or request_headers",
        ),
        (
            "routes: [{ match: /a/**, redirect: '/a/b/{rest}' }]".into(),
            "2:36: routes[0].redirect: leads back to this route: /a/x is redirected without end; write another target, or a route for it above this one",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, limits: { other: 2 } } }".into(),
            "2:49: quotas.q.limits: the quota has no budgets; write per: api_key, client, class or { header: NAME }",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, max_keys: 2 } }".into(),
            "2:59: quotas.q.max_keys: the quota has no budgets; write per: api_key, client, class or { header: NAME }",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, per: key } }".into(),
            "2:54: quotas.q.per: found \"key\", needs what has a budget of its own; use api_key, client, class, { header: NAME } or { cookie: NAME }",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, per: { header: A, cookie: b } } }".into(),
            "2:49: quotas.q.per: found both header and cookie; write { header: X-Api-Key } or { cookie: session }",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, per: client, max_keys: 0 } }".into(),
            "2:72: quotas.q.max_keys: found 0; write 1 to 10000000",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, per: client, limits: { othr: 2 } } }".into(),
            "2:78: quotas.q.limits.othr: unknown class \"othr\"; known: search, feed, monitor, bot, person",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, per: client, limits: { other: 0 } } }".into(),
            "2:79: quotas.q.limits.other: found 0; write the units of each, or block the class other",
        ),
        (
            "quotas: { q: { limit: 1, window: { sliding: 1h }, per: client, max_keys: 1000001 } }".into(),
            "2:74: quotas.q.max_keys: found 1000001 keys of a sliding window, of which each part counts as many; write 1 to 1000000, or a window with an end",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, per: client, pacing: { mode: even, weights: { other: 1 } } } }".into(),
            "2:62: quotas.q.pacing: a quota with budgets cannot have it; write it at a quota without `per`, to which a route can be charged as well",
        ),
        (
            "quotas: { q: { limit: 1, window: { fixed: 1h }, per: api_key } }".into(),
            "2:54: quotas.q.per: there are no API keys; write api_keys: { file: keys.yaml }, and create keys by: tidegate keys add NAME --class CLASS",
        ),
        (
            "classes: [{ name: pro, when: { api_key: own } }]".into(),
            "2:41: classes[0].when.api_key: there are no API keys; write api_keys: { file: keys.yaml }, and create keys by: tidegate keys add NAME --class CLASS",
        ),
        (
            "api_keys: [{ name: a, class: pro, sha256: secret }]\nclasses: [{ name: pro, when: { api_key: own } }]".into(),
            "2:43: api_keys[0].sha256: needs the 64 hexadecimal digits of a SHA-256; create the key by: tidegate keys add NAME --class CLASS",
        ),
        (
            "api_keys: [{ name: a, class: prö, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 }]\nclasses: [{ name: pro, when: { api_key: own } }]".into(),
            "2:30: api_keys[0].class: unknown class \"prö\" (did you mean \"pro\"?); known: pro, other",
        ),
        (
            "api_keys: [{ name: a, class: other, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 }]\nclasses: [{ name: pro, when: { api_key: own } }]".into(),
            "2:30: api_keys[0].class: no key makes a client one of class other; write { name: other, when: { api_key: own } }",
        ),
        (
            "api_keys: [{ name: a, class: pro, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 }, { name: b, class: pro, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 }]\nclasses: [{ name: pro, when: { api_key: own } }]".into(),
            "2:142: api_keys[1].sha256: \"a\" has the same key; create a key for each customer: tidegate keys add NAME --class CLASS",
        ),
        (
            "api_keys: [{ name: a, class: pro, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, expires: soon }]\nclasses: [{ name: pro, when: { api_key: own } }]".into(),
            "2:118: api_keys[0].expires: found \"soon\", needs a day; write it like 2027-01-01",
        ),
        (
            "api_keys: { file: no-such-file.yaml }\nclasses: [{ name: pro, when: { api_key: own } }]".into(),
            "2:11: api_keys: no-such-file.yaml cannot be read: No such file or directory (os error 2); create the first key by: tidegate keys add NAME --class CLASS",
        ),
        (
            "api_keys: { path: a }\nclasses: [{ name: pro, when: { api_key: own } }]".into(),
            "2:11: api_keys: needs a list of keys, or the name of a file; write api_keys: { file: keys.yaml }",
        ),
        (
            "listne: 127.0.0.1:1".into(),
            "2:1: listne: unknown key \"listne\" (did you mean \"listen\"?); known here: listen, workers, admin, forward_auth, state_dir, ledger, origin, origins, hosts, paths, clients, sessions, address_lists, user_agent_rules, operators, verify, bot_detection, api_keys, quotas, classes, scopes, routes, cache, compression, headers, error_pages, robots, crawl_policy, log, notify, traces, promise, limits",
        ),
    ];
    let mut failures = Vec::new();
    for (text, expected) in &table {
        let found = site_errors(text);
        if found != [*expected] {
            failures.push(format!("{text}\n  wanted {expected:?}\n  found  {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn section_cache_without_a_value_has_the_defaults() {
    let of = |text: &str| settings(&with_origin(text)).cache;
    assert!(of("cache: {}").is_some() && of("cache:") == of("cache: {}"));
    assert_eq!(of("workers: 1"), None);
}

#[test]
fn unkeyed_headers_that_change_responses_are_a_warning() {
    let warnings = |names: &str| settings(&with_origin(&format!("cache: {{ unkeyed_headers: {names} }}"))).warnings;
    assert_eq!(
        warnings("[traceparent, Accept-Language]"),
        [
            "cache.unkeyed_headers: many origins respond to accept-language, and then the response to one client is sent \
          to all; remove it, unless no response depends on it"
        ]
    );
    assert_eq!(warnings("[traceparent, x-request-id]"), [""; 0]);
}

#[test]
fn origin_url_names_a_server_without_a_path() {
    let example = "use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000";
    for (url, expected) in [
        ("unix:site.sock", &*format!("\"unix:site.sock\": needs the absolute path of a socket; {example}")),
        ("ftp://a", &*format!("\"ftp://a\": unsupported scheme; {example}")),
        (
            "http://me:secret@a",
            "contains a user name or password; leave it out: the gateway forwards the credentials of clients",
        ),
        (
            "http://a/b",
            "\"http://a/b\": contains a path: request paths are forwarded unchanged; use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000",
        ),
        (
            "http://a:0",
            "\"http://a:0\": invalid port, needs 1 to 65535 in digits, without leading zeros; use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000",
        ),
        (
            "http://127.0.0.1:+3000",
            "\"http://127.0.0.1:+3000\": invalid port, needs 1 to 65535 in digits, without leading zeros; use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000",
        ),
        (
            "http://256.1.1.1",
            "\"http://256.1.1.1\": missing or invalid host; use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000",
        ),
        (
            "http://",
            "\"http://\": missing or invalid host; use http://HOST:PORT, https://HOST:PORT or unix:/PATH, such as http://127.0.0.1:3000",
        ),
    ] {
        assert_eq!(config_errors(&format!("origin: {{ url: '{url}' }}")), [format!("1:16: origin.url: {expected}")]);
    }
}

#[test]
fn origin_has_servers_and_keys_of_tls_only_for_https() {
    let servers = |origin: &str| {
        let settings = settings(&format!("origin: {origin}"));
        settings.origins[0].servers.iter().map(|server| server.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(servers("{ url: 'https://site.internal' }"), ["https://site.internal"]);
    assert_eq!(
        servers("{ urls: ['http://[::1]:3000/', 'unix:/run/site.sock'] }"),
        ["http://[::1]:3000", "unix:/run/site.sock"]
    );
    for (origin, expected) in [
        (
            "url: http://a, urls: [http://b]",
            "origin.urls: beside origin.url; name all servers here, or one in url (or as --origin)",
        ),
        ("urls: []", "origin.url: missing; write the address of the site, such as http://127.0.0.1:3000"),
        (
            "url: http://a, http2: true, proxy_protocol: v1",
            "origin.proxy_protocol: beside http2: true, which sends requests of many clients on one connection; leave one \
             out; X-Forwarded-For names the client of each request",
        ),
        ("urls: [http://a, http://a]", "origin.urls[1]: http://a is there twice; leave one out"),
        ("url: http://a, ca: ca.pem", "origin.ca: no server has https://; leave it out, or write https:// in the URL"),
        (
            "url: https://a, certificate: a.pem",
            "origin.key: missing; name the PEM file of the key of origin.certificate",
        ),
        (
            "url: https://a, server_name: a/b",
            "origin.server_name: not a host name; write a name such as origin.internal",
        ),
        (
            "url: https://a, ca: ca.pem, verify: false",
            "origin.ca: beside verify: false; leave verify out: with ca, only its certificates are trusted",
        ),
        (
            "url: http://a, health: { max_failures: 0 }",
            "origin.health.max_failures: found 0, needs at least 1; write a number such as 3",
        ),
        (
            "url: http://a, health: { check: { timeout: 1s } }",
            "origin.health.check.path: missing; write a path such as /healthz",
        ),
        (
            "url: http://a, health: { check: { path: healthz } }",
            "origin.health.check.path: found \"healthz\"; write a path such as /healthz",
        ),
        (
            "url: http://a, health: { check: { path: /, interval: 10ms } }",
            "origin.health.check.interval: found 10ms; write at least 1s",
        ),
    ] {
        let errors = config_errors(&format!("origin: {{ {origin} }}"));
        assert!(errors.len() == 1 && errors[0].ends_with(expected), "{origin}: {errors:?}");
    }
}

#[test]
fn mistyped_required_key_is_also_missing() {
    assert_eq!(
        site_errors("clients: { address_from: { haeder: X }, trusted_proxies: [10.0.0.1] }"),
        [
            "2:12: clients.address_from.header: missing; name the header, such as CF-Connecting-IP",
            "2:28: clients.address_from.haeder: unknown key \"haeder\" (did you mean \"header\"?); known here: header",
        ]
    );
}

#[test]
fn unquoted_placeholder_error_suggests_quotes() {
    let errors = config_errors("origin: { url: ${URL} }");
    assert!(errors[0].ends_with("; quote \"${...}\" inside { } and [ ]"), "{errors:?}");
}

#[test]
fn error_is_one_line_for_any_key() {
    assert_eq!(
        site_errors("robots: { \"a\\nb\": 1 }"),
        [
            "2:11: robots.a\\nb: unknown key \"a\\nb\"; known here: merge_crawl_delay, override_file, honeypot, terms, license"
        ]
    );
    assert!(site_errors(&format!("robots: {{ {}: 1 }}", "x".repeat(900))).iter().all(|error| error.len() < 1200));
}

#[test]
fn text_in_place_of_a_section_with_secrets_is_not_shown() {
    for yaml in [
        "notify: https://hooks.example/SECRET",
        "notify: [https://hooks.example/SECRET]",
        "notify: [https://hooks.example/SECRET, { webhook: https://a.example }]",
        "admin: SECRET",
        "ledger: redis://user:SECRET@redis.example",
        "ledger: { redis: redis://user:SECRET@redis.example }",
        "classes: [{ name: a, when: { api_key: SECRET } }]",
        "classes: [{ name: a, when: { api_key: [SECRET] } }]",
    ] {
        let errors = site_errors(yaml);
        assert!(!errors.is_empty() && !errors.join(" ").contains("SECRET"), "{yaml}: {errors:?}");
    }
}

#[test]
fn conditions_on_the_request_are_those_of_routes() {
    let when = "{ path: [/feed/**, \"/*.rss\"], host: \"*.example.com\", method: GET }";
    let settings = settings(&with_origin(&format!("classes: [{{ name: feed, when: {when} }}, {{ name: other }}]")));
    let matcher = &settings.rules.classes[0].matcher;
    let paths: Vec<&str> = matcher.paths.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!((paths, &matcher.hosts), (vec!["/feed/**", "/*.rss"], &vec!["*.example.com".to_owned()]));
    assert_eq!(matcher.methods, [http::Method::GET, http::Method::HEAD]);
    assert!(matcher.depends_on_request() && !matcher.matches_all());
    for (when, expected) in [
        ("path: feed", "classes[0].when.path: \"feed\": does not start with a slash; write it like /item/*"),
        (
            "path: [/a, /b?c]",
            "classes[0].when.path[1]: \"/b?c\": contains a space, \"?\" or \"#\"; use query for parameters",
        ),
        ("host: Example.com", "classes[0].when.host: invalid host \"Example.com\"; write it in lower case"),
        ("method: get", "classes[0].when.method: found \"get\", needs a method"),
    ] {
        let errors = site_errors(&format!("classes: [{{ name: feed, when: {{ {when} }} }}, {{ name: other }}]"));
        assert!(errors.len() == 1 && errors[0].contains(expected), "{when}: {errors:?}");
    }
}

#[test]
fn conditions_name_what_is_wrong_and_what_they_need() {
    for (when, expected) in [
        ("header: \"X Partner\"", "classes[0].when.header: invalid header \"X Partner\"; write it like X-Partner"),
        (
            "header: { X-Partner: \"\" }",
            "classes[0].when.header.X-Partner: found \"\", needs a value of up to 256 characters",
        ),
        ("header: [X-Partner]", "classes[0].when.header: "),
        ("cookie: { \"a b\": x }", "classes[0].when.cookie: invalid cookie name; write it like session"),
        (
            "session: new",
            "classes[0].when.session: no client has a session; write sessions: on, or leave the condition out",
        ),
        ("session: old", "classes[0].when.session: found \"old\""),
        ("purpose: spam", "classes[0].when.purpose: found \"spam\""),
        (
            "asn: 64496",
            "classes[0].when.asn: no database of autonomous systems; write clients: { asn_database: ./asn.mmdb }",
        ),
        (
            "country: DEU",
            "classes[0].when.country: found \"DEU\", needs the two letters of a country; write it like DE",
        ),
        (
            "country: DE",
            "classes[0].when.country: no database of countries; write clients: { country_database: ./country.mmdb }",
        ),
    ] {
        let errors = site_errors(&format!("classes: [{{ name: a, when: {{ {when} }} }}, {{ name: other }}]"));
        assert!(errors.len() == 1 && errors[0].contains(expected), "{when}: {errors:?}");
    }
    for (sessions, expected) in [
        ("{ lifetime: 30s }", "sessions.lifetime: needs 1m to 24h"),
        ("{ lifetime: 48h }", "sessions.lifetime: needs 1m to 24h"),
        ("{ cookie: \"a b\" }", "sessions.cookie: invalid cookie name \"a b\"; write it like __Host-tidegate"),
        ("yes", "sessions: found \"yes\", needs on, off or keys"),
    ] {
        let errors = site_errors(&format!("sessions: {sessions}"));
        assert!(errors.len() == 1 && errors[0].contains(expected), "{sessions}: {errors:?}");
    }
}

#[test]
fn sessions_add_strangers_to_the_builtin_classes() {
    let classes = |sessions: &str| {
        let settings = settings(&with_origin(&format!("sessions: {sessions}\nquotas: {{ api: {{ limit: 1000 }} }}")));
        settings.rules.classes.iter().map(|class| (class.name.clone(), class.enforce)).collect::<Vec<_>>()
    };
    let stranger = |enforce| Some(("stranger".to_owned(), enforce));
    for (sessions, expected) in [
        ("off", None),
        ("on", stranger(true)),
        ("{ lifetime: 2h }", stranger(true)),
        ("{ enforce: false }", stranger(false)),
    ] {
        let found = classes(sessions).into_iter().find(|(name, _)| name == "stranger");
        assert_eq!(found, expected, "{sessions}");
    }
    let settings = settings(&with_origin("sessions: on\nquotas: { api: { limit: 1000 } }"));
    let pacing = settings.rules.quotas[0].pacing.as_ref().expect("paced by default");
    let is_paced = |name: &str| settings.rules.class_id(name).is_some_and(|class| pacing.is_paced(class));
    assert!(is_paced("stranger") && is_paced("bot") && !is_paced("person"));
}

#[test]
fn address_header_without_trusted_proxy_gives_a_warning() {
    let warnings = settings(&with_origin("clients: { address_from: forwarded }")).warnings;
    assert_eq!(warnings, ["clients.address_from: no trusted proxy, so the header is never used"]);
}

#[test]
fn trusting_every_address_gives_a_warning() {
    for (range, warns) in [("0.0.0.0/0", true), ("::/0", true), ("10.0.0.0/8", false), ("0.0.0.0/1", false)] {
        let clients = format!("clients: {{ address_from: forwarded, trusted_proxies: [127.0.0.1, '{range}'] }}");
        let warnings = settings(&with_origin(&clients)).warnings;
        let expected = "clients.trusted_proxies[1]: contains every address, so every client can choose its own: list \
                        the addresses of the proxies";
        assert_eq!(warnings, if warns { vec![expected] } else { vec![] }, "{range}");
    }
}

#[test]
fn yaml_aliases_work_and_absurd_numbers_are_errors() {
    let shared = "quotas:\n  a: &a { limit: 1, window: { fixed: 1s } }\n  b: { <<: *a, limit: 2 }\n";
    let limits: Vec<Units> = settings(&with_origin(shared)).rules.quotas.iter().map(|quota| quota.limit).collect();
    assert_eq!(limits, [1, 2].map(Units::from_whole));
    for limit in
        ["99999999999999999999999999", "-1", ".nan", ".inf", "1e300", "0x", "true", "[1]", "{ a: 1 }", "!!binary aGk="]
    {
        let errors = site_errors(&format!("quotas: {{ q: {{ limit: {limit}, window: {{ fixed: 1s }} }} }}"));
        assert_eq!(errors.len(), 1, "{limit}: {errors:?}");
        assert!(errors[0].starts_with("2:"), "{limit}: {errors:?}");
    }
    assert_eq!(
        settings(&with_origin("quotas: { q: { limit: 1e3, window: { fixed: 1s } } }")).rules.quotas[0].limit,
        Units::from_whole(1000)
    );
}

#[test]
fn no_number_of_any_type_has_a_plus_sign_or_leading_zeros() {
    let quota = |keys: &str| format!("quotas: {{ q: {{ limit: 9, window: {{ fixed: 1m }}, {keys} }} }}");
    // `N` stands for the number.
    for text in [
        "quotas: { q: { limit: N, window: { fixed: 1m } } }".to_owned(),
        "quotas: { q: { limit: N.5, window: { fixed: 1m } } }".into(),
        quota("per_client: N%"),
        quota("tiers: { other: [{ above: N, shed: 1% }] }"),
        quota("tiers: { other: [{ above: N%, shed: 1% }] }"),
        "quotas: { q: { limit: 9, window: { fixed: Nm } } }".into(),
        "quotas: { q: { limit: 9, window: { calendar: day, zone: UTC, at: '0N:00' } } }".into(),
        quota("enforce: true") + "\nroutes: [{ match: /a, cost: { q: N } }]",
        "classes: [{ name: a, bucket: { rate: N/s } }]".into(),
        "classes: [{ name: a, bucket: { rate: 1/s, burst: N } }]".into(),
        "classes: [{ name: a, priority: N }]".into(),
        "classes: [{ name: a, crawl_delay: Ns }]".into(),
        "cache: { memory: NGiB }".into(),
        "workers: N".into(),
        "limits: { max_connections: N }".into(),
        "limits: { max_connections_per_address: N }".into(),
        "limits: { max_headers: N0 }".into(),
        "scopes: { s: { concurrency: N } }\nroutes: [{ match: /a, scopes: s }]".into(),
        "log: { access: { path: a, max_size: 1GiB, keep: N } }".into(),
        "bot_detection: { threshold: N00 }".into(),
        "listen: 127.0.0.1:N".into(),
        "listen: '[::1]:N'".into(),
        "listen: [127.0.0.1:N]".into(),
        "admin: { listen: '127.0.0.1:N' }".into(),
        "hosts: a\nlisten: { address: '127.0.0.1:1', redirect: 'https:N' }".into(),
        "clients: { trusted_proxies: [10.0.0.0/N] }".into(),
        "verify: { dns: { nameservers: ['127.0.0.1:N'] } }".into(),
        "ledger: { redis: { url: 'redis://h:N' } }".into(),
        "ledger: { redis: { url: 'redis://h/N' } }".into(),
    ] {
        let errors = |number: &str| site_errors(&text.replace('N', number));
        assert_eq!(errors("8"), [""; 0], "{text}");
        for number in ["08", "+8"] {
            assert!(!errors(number).is_empty(), "{text}: {number}");
        }
    }
    for (value, problem) in [
        ("0100", "found 0100, a number with a leading zero; write 100, or put it in quotes if it is text"),
        ("+5", "found +5, a number with a plus sign; write 5, or put it in quotes if it is text"),
        (
            "'0100'",
            "found \"0100\", needs a whole number up to 4294967295; write it in digits, without quotes, plus sign and leading zeros",
        ),
        ("64.0", "found 64.0, needs a whole number up to 4294967295; write it in digits"),
    ] {
        let errors = site_errors(&format!("limits: {{ max_connections: {value} }}"));
        assert_eq!(errors, [format!("2:28: limits.max_connections: {problem}")]);
    }
    let with_variable = |value| config_errors_with(&with_origin(""), &[("TIDEGATE__LIMITS__MAX_CONNECTIONS", value)]);
    assert_eq!((with_variable("100").len(), with_variable("0100").len(), with_variable("+5").len()), (0, 1, 1));
    let in_list = config_errors_with(&with_origin(""), &[("TIDEGATE__LIMITS", "{ max_connections: 0100 }")]);
    let expected = "TIDEGATE__LIMITS: limits: found 0100, a number with a leading zero; write 100, or put it in quotes if it is text";
    assert_eq!(in_list, [expected]);
}

#[test]
fn spelling_of_a_number_is_checked_once_and_where_it_is_written() {
    let shared = "quotas:\n  a: &a { limit: &l 010, window: { fixed: 1s } }\n  b: { <<: *a, limit: *l }\n";
    let expected =
        "3:21: quotas.a.limit: found 010, a number with a leading zero; write 10, or put it in quotes if it is text";
    assert_eq!(site_errors(shared), [expected]);
    let header = "routes: [{ match: /a, response_headers: { set: { X-A: '007', X-B: 0 } } }]";
    assert_eq!(site_errors(header), [""; 0], "text in quotes is no number");
}

#[test]
fn empty_path_of_any_file_is_an_error_at_its_key() {
    let listen = |keys: &str| format!("listen: {{ address: '127.0.0.1:1', tls: {{ {keys} }} }}");
    for (text, path) in [
        ("state_dir: ''".to_owned(), "state_dir"),
        ("state_dir: ' '".into(), "state_dir"),
        ("state_dir: \"a\\0b\"".into(), "state_dir"),
        ("log: { access: { path: '' } }".into(), "log.access.path"),
        ("robots: { override_file: '' }".into(), "robots.override_file"),
        ("error_pages: { 5xx: '' }".into(), "error_pages.5xx"),
        ("address_lists: { a: { file: '' } }".into(), "address_lists.a.file"),
        ("ledger: { redis: { url: 'rediss://h', ca: '' } }".into(), "ledger.redis.ca"),
        (listen("certificate: '', key: b"), "listen.tls.certificate"),
        (listen("certificate: a, key: ''"), "listen.tls.key"),
        (listen("certificate: a, key: b, ocsp: ''"), "listen.tls.ocsp"),
        (listen("certificate: a, key: b, client_ca: ''"), "listen.tls.client_ca"),
        (listen("certificates: [{ certificate: '', key: b }]"), "listen.tls.certificates[0].certificate"),
        (listen("acme: { domains: [a.example], ca: '' }"), "listen.tls.acme.ca"),
        ("operators: { a: { product_tokens: Aa, ranges: '' } }".into(), "operators.a.ranges"),
    ] {
        let errors = site_errors(&text);
        assert!(errors.len() == 1 && errors[0].contains(&format!(": {path}: ")), "{text}: {errors:?}");
    }
    for (keys, path) in
        [("ca: ''", "ca"), ("certificate: '', key: b", "certificate"), ("certificate: a, key: ''", "key")]
    {
        let errors = config_errors(&format!("origin: {{ url: 'https://a', {keys} }}"));
        assert!(errors.len() == 1 && errors[0].contains(&format!(": origin.{path}: ")), "{keys}: {errors:?}");
    }
    assert_eq!(config_errors_with(&with_origin(""), &[("TIDEGATE__STATE_DIR", "")]).len(), 1);
}

#[test]
fn host_of_any_url_is_a_name_or_an_address() {
    for (host, is_valid) in [
        ("a.example", true),
        ("127.0.0.1", true),
        ("[::1]", true),
        ("256.1.1.1", false),
        ("1.2.3.4.5", false),
        ("a..b", false),
    ] {
        for text in [
            format!("operators: {{ a: {{ product_tokens: Aa, ranges: 'https://{host}/r.json' }} }}"),
            format!("operators: {{ a: {{ product_tokens: Aa, signature_agents: 'https://{host}' }} }}"),
            format!("ledger: {{ redis: {{ url: 'redis://{host}' }} }}"),
            format!("ledger: {{ redis: {{ url: 'redis+sentinel://{host}/m' }} }}"),
            format!(
                "listen: {{ address: '127.0.0.1:1', tls: {{ acme: {{ domains: [a.example], directory: 'https://{host}/d' }} }} }}"
            ),
        ] {
            assert_eq!(site_errors(&text).is_empty(), is_valid, "{text}");
        }
        for scheme in ["http", "https"] {
            let errors = config_errors(&format!("origin: {{ urls: ['{scheme}://{host}:3000'] }}"));
            assert_eq!(errors.is_empty(), is_valid, "{host}: {errors:?}");
        }
    }
}

#[test]
fn a_yaml_bomb_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let references = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{references}]\n"));
    }
    assert_eq!(config_errors(&text).len(), 1);
}

#[test]
fn route_with_too_many_quotas_is_rejected() {
    let quotas: String =
        (0..33).map(|count| format!("  q{count}: {{ limit: 1, window: {{ fixed: 1s }} }}\n")).collect();
    let costs: Vec<String> = (0..33).map(|count| format!("q{count}: 1")).collect();
    let text = format!("quotas:\n{quotas}routes: [{{ match: /a, cost: {{ {} }} }}]", costs.join(", "));
    assert_eq!(site_errors(&text), ["36:23: routes[0].cost: found 33 quotas; use at most 32 for a route"]);
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "[-a-z0-9:{}\\[\\]\"'#&*!|>%@,\\n $.]{0,120}") {
        let _ = load_with(&text, &[], &[]);
    }

    #[test]
    fn mutated_example_config_never_panics(start in any::<prop::sample::Index>(), length in 0usize..40, replacement in "[-a-z0-9:{}\\[\\]\"'#%,\\n $.]{0,12}") {
        let mut text: Vec<char> = EXAMPLE.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n").chars().collect();
        let start = start.index(text.len());
        let end = (start + length).min(text.len());
        text.splice(start..end, replacement.chars());
        let text: String = text.into_iter().collect();
        if let Err(errors) = load_with(&text, &[("A", "1")], &[]) {
            prop_assert!(!errors.errors.is_empty());
            prop_assert!(errors.to_string().lines().all(|line| line.starts_with("gate.yaml:") && line.contains("; ")), "{errors}");
        }
    }

    #[test]
    fn arbitrary_variable_never_panics(name in "[A-Z_]{0,20}", value in "[ -~]{0,40}") {
        let _ = load_with(EXAMPLE, &[(&format!("TIDEGATE__{name}"), &value)], &[]);
    }
}

#[test]
fn dns_uses_the_system_resolvers_by_default() {
    let dns = |text: &str| settings(&with_origin(text)).verify.dns.map(|dns| (dns.nameservers, dns.timeout));
    let (second, system) = (Duration::from_secs(1), Some((Vec::new(), Duration::from_secs(2))));
    assert_eq!(dns(""), system);
    assert_eq!(dns("verify: { dns: on }"), system);
    assert_eq!(dns("verify: { dns: off }"), None);
    let servers = vec!["127.0.0.1:53".parse().expect("an address"), "[::1]:5353".parse().expect("an address")];
    let text = "verify: { dns: { nameservers: [127.0.0.1:53, \"[::1]:5353\"], timeout: 1s } }";
    assert_eq!(dns(text), Some((servers, second)));
}

#[test]
fn range_lists_are_fetched_daily_by_default() {
    let refresh = |text: &str| settings(&with_origin(text)).verify.refresh_interval;
    assert_eq!(refresh(""), Some(Duration::from_secs(86_400)));
    assert_eq!(refresh("verify: { refresh_interval: 6h }"), Some(Duration::from_secs(6 * 3600)));
    assert_eq!(refresh("verify: { refresh_interval: off }"), None);
}

#[test]
fn an_operator_is_added_or_changed_by_name() {
    let text = "operators:\n  \
                  acme: { product_tokens: AcmeBot, ranges: [192.0.2.0/24, https://acme.example/bots.json, ./acme.txt], dns_names: bot-*.acme.example }\n  \
                  googlebot: { exhaustive: [] }\n\
                classes: [{ name: friend, when: { operator: [acme, bingbot] } }]";
    let settings = settings(&with_origin(text));
    assert_eq!(settings.operator_names, ["googlebot", "bingbot", "applebot", "acme"]);
    assert_eq!(
        settings.rules.classes[0].matcher.operators,
        [tidegate_policy::OperatorId(3), tidegate_policy::OperatorId(1)]
    );
    let [acme, google] = &settings.operators[..] else { panic!("{:?}", settings.operators) };
    assert_eq!(acme.ranges.as_ref().map(Vec::len), Some(3));
    assert_eq!(acme.dns_names.as_ref().map(|names| names[0].to_string()).as_deref(), Some("bot-*.acme.example"));
    assert_eq!((&google.product_tokens, &google.exhaustive), (&None, &Some(Vec::new())));
    assert_eq!(settings.warnings, Vec::<String>::new());
}

#[test]
fn unclaimable_or_unprovable_operator_gives_a_warning() {
    let warnings = settings(&with_origin("operators: { gogglebot: { exhaustive: dns_names } }")).warnings;
    assert_eq!(
        warnings,
        [
            "operators.gogglebot: unknown operator without product_tokens: no user agent can claim it",
            "operators.gogglebot: without ranges, dns_names or signature_agents no client can be verified",
        ]
    );
}

#[test]
fn malformed_network_is_not_read_as_file() {
    let ranges = |sources: &str| with_origin(&format!("operators: {{ googlebot: {{ ranges: [{sources}] }} }}"));
    let errors = config_errors(&ranges("192.0.2.0/33, 192.0.2.256, \"2001:db8::/129\", 192.0.2.0/24, \"::1\""));
    let expected = |column, index, source| {
        let hint = "write it like 192.0.2.0/24 or 2001:db8::/32";
        format!("2:{column}: operators.googlebot.ranges[{index}]: invalid network {source:?}; {hint}")
    };
    assert_eq!(
        errors,
        [expected(36, 0, "192.0.2.0/33"), expected(50, 1, "192.0.2.256"), expected(63, 2, "2001:db8::/129")]
    );
    let files = settings(&ranges("cafe.bad, ./10.0, /etc/1.2, 1.txt")).range_files;
    let files: Vec<&str> = files.iter().filter_map(|file| file.file.to_str()).collect();
    assert_eq!(files, ["cafe.bad", "./10.0", "/etc/1.2", "1.txt"]);
}

#[test]
fn unfetched_range_list_gives_a_warning() {
    let rules =
        "verify: { refresh_interval: off }\noperators: { googlebot: { ranges: \"https://a.example/x?key=secret\" } }";
    let warnings = settings(&with_origin(rules)).warnings;
    let expected = "gate.yaml:3:35: operators.googlebot.ranges: https://a.example/x is not fetched, because verify.refresh_interval is off";
    assert_eq!(warnings, [expected]);
    assert!(
        settings(&with_origin(&rules.replace("refresh_interval: off", "refresh_interval: 1h"))).warnings.is_empty()
    );
}

#[test]
fn duplicate_operator_values_are_reported_at_the_second() {
    assert_eq!(
        site_errors(
            "operators:\n  acme: { product_tokens: [AcmeBot, Other], ranges: 192.0.2.1, signature_agents: https://a.example }\n  \
             evil: { product_tokens: acmebot, ranges: 192.0.2.2, signature_agents: [https://b.example, https://a.example] }"
        ),
        [
            "4:27: operators.evil.product_tokens: duplicate \"acmebot\": operators.acme has it, too; keep one of them",
            "4:93: operators.evil.signature_agents[1]: duplicate \"https://a.example\": operators.acme has it, too; keep one of them",
        ]
    );
}

#[test]
fn crawl_delay_needs_a_class_with_crawlers() {
    assert_eq!(
        site_errors(
            "classes:\n  - { name: person, when: { kind: human }, crawl_delay: 5s }\n  \
             - { name: search, when: { operator: googlebot }, crawl_delay: { googlebot: 5s, bingbot: 5s } }\n  \
             - { name: liars, when: { kind: [impostor, suspected_bot] }, crawl_delay: auto }"
        ),
        [
            "3:57: classes[0].crawl_delay: this class matches no crawlers, so crawl_delay has no effect; write it at the class of verified_bot or declared_bot",
            "4:91: classes[1].crawl_delay.bingbot: bingbot is not in this class; write it at the class of its crawlers",
            "5:76: classes[2].crawl_delay: this class matches no crawlers, so crawl_delay has no effect; write it at the class of verified_bot or declared_bot",
        ]
    );
}

#[test]
fn invalid_verification_settings_are_errors() {
    assert_eq!(
        site_errors(
            "verify: { dns: { nameservers: [], timeout: 0s }, refresh_interval: 10s }\noperators:\n  acme:\n    product_tokens: [\"\", AcmeBot]\n    ranges:\n      \
             - http://acme.example/bots.json\n      - ftp://acme.example/\n      - https://user@acme.example/\n      - \"\"\n      - 0.0.0.0/0\n      - 2000::/3\n  \
             Other: { product_tokens: Other, ranges: 192.0.2.1 }"
        ),
        [
            "2:18: verify.dns.nameservers: is empty; write one such as 127.0.0.1:53, leave it out to use the system's, or write dns: off",
            "2:44: verify.dns.timeout: found a zero duration; write a duration such as 10s",
            "2:68: verify.refresh_interval: found less than a minute; write a duration such as 24h, or off",
            "5:22: operators.acme.product_tokens[0]: invalid product token \"\"; write it like ExampleBot, without a version",
            "7:9: operators.acme.ranges[0]: insecure URL; use https://, or http:// on this machine",
            "8:9: operators.acme.ranges[1]: unsupported URL \"ftp://acme.example/\"; write a network, an https:// URL or the path of a file",
            "9:9: operators.acme.ranges[2]: unsupported URL \"https://user@acme.example/\"; write a network, an https:// URL or the path of a file",
            "10:9: operators.acme.ranges[3]: is empty; write a network, an https:// URL or the path of a file",
            "11:9: operators.acme.ranges[4]: 0.0.0.0/0 is too wide for the network of a crawler; write at most an IPv4 /8 or an IPv6 /19",
            "12:9: operators.acme.ranges[5]: 2000::/3 is too wide for the network of a crawler; write at most an IPv4 /8 or an IPv6 /19",
            "13:3: operators.Other: invalid name \"Other\"; use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
        ]
    );
    for (text, expected) in [
        ("verify: { dns: maybe }", "on, off or keys"),
        ("verify: { dns: { nameservers: 127.0.0.1 } }", "an address and port"),
        ("operators: { a: { dns_names: com } }", "a DNS name"),
        ("operators: { a: { exhaustive: signatures } }", "dns_names"),
    ] {
        let errors = site_errors(text);
        assert!(errors.len() == 1 && errors[0].contains(expected), "{text}: {errors:?}");
    }
}

#[test]
fn listeners_have_their_keys_and_files_beside_the_yaml() {
    let text = with_origin(
        "hosts: [example.com]\n\
         listen:\n\
         - 127.0.0.1:1\n\
         - { address: '127.0.0.1:2', redirect: https }\n\
         - { address: '127.0.0.1:3', tls: { certificate: tls/a.pem, key: /b.key, hsts: 365d } }\n\
         - { address: '127.0.0.1:4', proxy_protocol: true, redirect: 'https:443' }\n\
         clients: { address_from: proxy-protocol, trusted_proxies: [127.0.0.0/8] }",
    );
    let settings = load(std::path::Path::new("/etc/tidegate/tidegate.yaml"), &text, &[], &[], &[]);
    let listen = settings.unwrap_or_else(|errors| panic!("{errors}")).listen;
    let redirects = listen.iter().map(|listener| listener.redirect.map(|redirect| redirect.port));
    assert_eq!(redirects.collect::<Vec<_>>(), [None, Some(None), None, Some(Some(443))]);
    assert_eq!(listen.iter().filter(|listener| listener.proxy_protocol).count(), 1);
    let tls = listen[2].tls.as_ref().expect("TLS");
    let settings::CertificateSource::Files(files) = &tls.certificates else { panic!("certificates in files") };
    let paths = [&files[0].certificate, &files[0].key].map(|path| path.display().to_string());
    assert_eq!(paths, ["/etc/tidegate/tls/a.pem", "/b.key"]);
    assert_eq!(files[0].path.to_string(), "listen[2].tls");
}

#[test]
fn consequences_of_an_error_are_not_errors_of_their_own() {
    let quota = |keys: &str| {
        let quota = format!("quotas: {{ q: {{ {keys}, window: {{ fixed: 1h }} }} }}");
        let class = "classes: [{ name: bot, when: { kind: declared_bot } }]";
        with_origin(&format!("{class}\n{quota}\nroutes: [{{ match: /a, cost: {{ q: 4 }} }}]"))
    };
    let rest = "per_client: 5%, tiers: { bot: [{ above: 500, shed: 50% }, { above: 900, shed: 100% }] }";
    for (limit, expected) in [
        ("limti: 1000", &["quotas.q.limit: missing", "unknown key \"limti\""][..]),
        ("limit: many", &["found \"many\""]),
        ("limit: 0", &["found 0"]),
        ("enforce: true", &["quotas.q.limit: missing"]),
    ] {
        let errors = config_errors(&quota(&format!("{limit}, {rest}")));
        assert_eq!(errors.len(), expected.len(), "{limit}: {errors:#?}");
        assert!(errors.iter().zip(expected).all(|(error, text)| error.contains(text)), "{limit}: {errors:#?}");
    }
    assert_eq!(
        config_errors(&quota(&format!("limit: 60, {rest}"))).len(),
        3,
        "tiers and the cost contradict the limit"
    );
}

#[test]
fn response_timeout_of_a_route_takes_the_place_of_that_of_the_origin() {
    let timeouts = |origin: &str| {
        let file = format!(
            "origin: {{ url: \"http://127.0.0.1:3000\"{origin} }}\nroutes: [{{ match: /a }}, {{ match: /b, response_timeout: 1h }}]"
        );
        let settings = settings(&file);
        [0, 1, 2].map(|route| {
            let route = RouteId(route);
            (settings.response_timeout(route).as_secs(), settings.event_stream_timeout(route).as_secs())
        })
    };
    assert_eq!(timeouts(""), [(30, 300), (3600, 3600), (30, 300)]);
    assert_eq!(timeouts(", response_timeout: 5s"), [(5, 5), (3600, 3600), (5, 5)]);
    let errors = config_errors(&with_origin(
        "routes: [{ match: /a, response_timeout: 0s }, { match: /b, redirect: /c, response_timeout: 1s }]",
    ));
    assert!(errors[0].contains("routes[0].response_timeout: found a zero duration"), "{errors:?}");
    assert!(errors[1].contains("found together with response_timeout"), "{errors:?}");
}

#[test]
fn header_rules_are_those_of_their_route_and_bounded() {
    let routes = |changes: &str| {
        with_origin(&format!("routes: [{{ match: /a }}, {{ match: /b, response_headers: {{ {changes} }} }}]"))
    };
    let settings =
        settings(&routes("set: { X-Count: 1, X-Token: secret }, add: { Link: </a> }, remove: [Server, X-B]"));
    let rules = [0, 1, 2].map(|route| settings.header_rules(RouteId(route)));
    let [None, Some(rules), None] = rules else { panic!("{rules:?}") };
    let field = |name: &str, value: &str| HeaderField { name: name.into(), value: value.into() };
    assert_eq!(rules.response.set, [field("X-Count", "1"), field("X-Token", "secret")]);
    assert_eq!((rules.response.add.len(), rules.request.is_empty()), (1, true));
    assert_eq!(rules.response.remove, ["server", "x-b"]);
    assert!(!format!("{settings:?}").contains("secret"), "values may be credentials");

    let fields = |count: usize, length: usize| {
        let value = "v".repeat(length);
        let fields: Vec<String> = (0..count).map(|index| format!("X-{index}: {value}")).collect();
        config_errors(&routes(&format!("set: {{ {} }}", fields.join(", "))))
    };
    assert_eq!((fields(32, 200), fields(1, 4096)), (vec![], vec![]));
    for (count, length, expected) in [
        (33, 1, "found 33 fields, maximum 32; "),
        (1, 4097, "found 4097 bytes, maximum 4096; shorten the value"),
        (3, 3000, "found 9009 bytes, maximum 8192; shorten the values"),
    ] {
        let errors = fields(count, length);
        assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
    }
}

#[test]
fn redirect_that_provably_leads_back_is_an_error() {
    let loops = |text: &str| {
        let errors = site_errors(text);
        assert!(errors.iter().all(|error| error.contains("leads back to this route")), "{errors:?}");
        errors.len()
    };
    for (routes, expected) in [
        ("{ match: /a, redirect: /a }", 1),
        ("{ match: /a, redirect: '/a?' }", 1),
        ("{ match: '/a*', redirect: /ab }", 1),
        ("{ match: /a, redirect: /b }, { match: /b, redirect: /c }, { match: /c, redirect: /%61 }", 3),
        ("{ match: /a, redirect: /b }, { match: /b, redirect: /b }", 1),
        ("{ match: /a, host: a.example, redirect: 'http://a.example:8080/a' }", 1),
        // Another route has the target, or may have it.
        ("{ match: /docs/v2/**, scopes: default }, { match: /docs/**, redirect: '/docs/v2/{rest}' }", 0),
        ("{ match: /a, query: b, scopes: default }, { match: /a, redirect: /a }", 0),
        ("{ match: /form, method: POST, redirect: { to: /form, status: 303 } }", 0),
        ("{ match: /a, redirect: /a/ }", 0),
        // Perhaps another server has it.
        ("{ match: /**, redirect: 'https://a.example/{rest}' }", 0),
        ("{ match: /**, host: www.a.example, redirect: 'http://a.example/{rest}' }", 0),
        ("{ match: /**, host: a.example, redirect: 'https://a.example/{rest}' }", 0),
    ] {
        assert_eq!(loops(&format!("routes: [ {routes} ]")), expected, "{routes}");
    }
    let hosts = "hosts: [a.example, www.a.example]\n";
    assert_eq!(loops(&format!("{hosts}routes: [ {{ match: /**, redirect: 'http://a.example/{{rest}}' }} ]")), 1);
    let to_main = "routes: [ { match: /**, host: www.a.example, redirect: 'http://a.example/{rest}' } ]";
    assert_eq!(loops(&format!("{hosts}{to_main}")), 0);
}

#[test]
fn redirect_is_free_and_in_no_scope() {
    let text = with_origin(
        "cache: {}\nscopes: { default: { concurrency: 1, quota: { limit: 1, window: { fixed: 1h } } } }\n\
         routes: [{ match: /a/b/**, redirect: '/c/{rest}' }, { match: /d, redirect: { to: /e, status: 302 } }]",
    );
    let settings = settings(&text);
    let route = &settings.rules[RouteId(0)];
    assert!(route.is_free() && route.scopes.is_empty() && route.cache.is_none(), "{route:?}");
    let [Some(first), Some(second), None] = [0, 1, 2].map(|route| settings.redirect(RouteId(route))) else { panic!() };
    assert_eq!((first.status, first.target.as_str(), first.rest_after), (None, "/c/", Some(2)));
    assert_eq!((second.status, second.to_string().as_str()), (Some(http::StatusCode::FOUND), "/e"));
}

#[test]
fn error_pages_are_files_beside_the_yaml() {
    let file = Path::new("/etc/tidegate/tidegate.yaml");
    let text = with_origin("error_pages: { 429: pages/busy.html, 5xx: /srv/down.html }");
    let settings = load(file, &text, &[], &[], &OPERATORS).expect("valid settings");
    let pages: Vec<_> = settings.error_pages.into_iter().map(|page| (page.status, page.body)).collect();
    let expected = [
        (ErrorStatus::Code(429), ErrorBody::Html("/etc/tidegate/pages/busy.html".into())),
        (ErrorStatus::ServerErrors, ErrorBody::Html("/srv/down.html".into())),
    ];
    assert_eq!(pages, expected);
}

#[test]
fn error_pages_have_a_body_for_programs() {
    let file = Path::new("/etc/tidegate/tidegate.yaml");
    let text = with_origin(
        "error_pages: { 429: { html: busy.html, json: openai }, 401: { json: anthropic }, 4xx: { json: problem }, 503: { json: ./openai } }",
    );
    let settings = load(file, &text, &[], &[], &OPERATORS).expect("valid settings");
    let pages: Vec<_> = settings.error_pages.iter().map(ToString::to_string).collect();
    let expected = [
        "429 in /etc/tidegate/busy.html",
        "429 as an error of OpenAI's API",
        "401 as an error of Anthropic's API",
        "4xx as problem+json",
        "503 in /etc/tidegate/./openai",
    ];
    assert_eq!(pages, expected);
    assert_eq!(settings.error_pages[1].path.to_string(), "error_pages.429.json");
}

#[test]
fn acme_has_defaults_and_refuses_what_cannot_be_ordered() {
    let acme_of = |text: &str| {
        let text = with_origin(&format!("listen: {{ address: '127.0.0.1:1', tls: {{ {text} }} }}"));
        load(std::path::Path::new("/etc/tidegate/tidegate.yaml"), &text, &[], &[], &[])
    };
    let settings = acme_of("acme: { domains: [Example.COM., www.example.com], ca: ca.pem }").expect("valid settings");
    let tls = settings.listen[0].tls.as_ref().expect("TLS");
    let settings::CertificateSource::Acme(acme) = &tls.certificates else { panic!("a certificate by ACME") };
    assert_eq!(acme.domains, ["example.com", "www.example.com"]);
    assert_eq!(acme.directory, "https://acme-v02.api.letsencrypt.org/directory");
    assert_eq!(acme.authority.as_deref(), Some(std::path::Path::new("/etc/tidegate/ca.pem")));
    for (text, expected) in [
        ("acme: {}", "tls.acme.domains: no domain; name those of the site"),
        (
            "acme: { domains: ['*.example.com'] }",
            "domains[0]: *.example.com is a wildcard, which is validated by a DNS record (DNS-01); write the command that",
        ),
        ("acme: { domains: [a.example], hook: [] }", "acme.hook: no program; write the program and its arguments"),
        ("acme: { domains: [a.example], hook: '' }", "acme.hook: found \"\", needs a program; write the program"),
        (
            "acme: { domains: [a.example], hook: [./set, \"a\\0b\"] }",
            "acme.hook: found \"a\\0b\", which no program can be sent; write",
        ),
        (
            "acme: { domains: [a.example, '*.example'], hook: set }",
            "domains[0]: a.example is one of *.example; remove one of them: ACME servers refuse both",
        ),
        ("acme: { domains: [192.0.2.1] }", "domains[0]: 192.0.2.1 is an address, for which no certificate is ordered"),
        ("acme: { domains: ['::1'] }", "::1 is an address"),
        ("acme: { domains: ['a/b'] }", "found \"a/b\", needs a domain"),
        ("acme: { domains: [a.example, A.example] }", "domains[1]: duplicate domain a.example"),
        (
            "acme: { domains: [a.example], contact: ops@example.com }",
            "contact: found \"ops@example.com\", needs a mailto: URL",
        ),
        (
            "acme: { domains: [a.example], directory: 'http://a.example' }",
            "needs an https:// URL; write it like https://",
        ),
        ("acme: { domains: [a.example] }, certificate: a.pem, key: a.key", "found together with certificate files"),
    ] {
        let errors = acme_of(text).expect_err("invalid settings").to_string();
        assert!(errors.lines().count() == 1 && errors.contains(expected), "{text}: {errors}");
    }
}

#[test]
fn acme_hook_is_a_program_beside_the_file_or_in_path_and_allows_wildcards() {
    let hook_of = |hook: &str| {
        let acme = format!("acme: {{ domains: ['*.Example.com', example.com, a.b.example.com], hook: {hook} }}");
        let text = with_origin(&format!("listen: {{ address: '127.0.0.1:1', tls: {{ {acme} }} }}"));
        let settings = load(std::path::Path::new("/etc/tidegate/tidegate.yaml"), &text, &[], &[], &[]);
        let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
        let tls = settings.listen[0].tls.clone().expect("TLS");
        let settings::CertificateSource::Acme(acme) = tls.certificates else { panic!("a certificate by ACME") };
        assert_eq!(acme.domains, ["*.example.com", "example.com", "a.b.example.com"]);
        let covered = ["x.example.com", "*.example.com", "example.com", "a.b.example.com", "b.b.example.com", "com"];
        assert_eq!(covered.map(|host| acme.covers(host)), [true, true, true, true, false, false]);
        acme.hook.expect("a hook")
    };
    for (written, program, arguments) in [
        ("dns-record", "dns-record", &[][..]),
        ("[./dns-record, a b]", "/etc/tidegate/./dns-record", &["a b"]),
        ("[/opt/dns-record, '$A', '']", "/opt/dns-record", &["$A", ""]),
    ] {
        let hook = hook_of(written);
        assert_eq!(
            (hook.program.to_str(), &hook.arguments[..]),
            (Some(program), &arguments.iter().map(ToString::to_string).collect::<Vec<_>>()[..])
        );
    }
}

#[test]
fn acme_warns_of_foreign_domains() {
    let acme = "listen: { address: '127.0.0.1:1', tls: { acme: { domains: [a.example, b.example] } } }";
    let text = with_origin(&format!("hosts: [a.example]\n{acme}"));
    let settings = load(std::path::Path::new("tidegate.yaml"), &text, &[], &[], &[]);
    let warnings = settings.unwrap_or_else(|errors| panic!("{errors}")).warnings.join("\n");
    assert!(warnings.contains("tls.acme.domains: b.example is not one of hosts: its requests get 421"), "{warnings}");
    assert!(!warnings.contains("a.example is not"), "{warnings}");

    let domains = "['*.a.example', '*.b.example', '*.c.example']";
    let acme = format!("listen: {{ address: '127.0.0.1:1', tls: {{ acme: {{ domains: {domains}, hook: set }} }} }}");
    let text = with_origin(&format!("hosts: ['*.a.example', x.b.example]\n{acme}"));
    let settings = load(std::path::Path::new("tidegate.yaml"), &text, &[], &[], &[]);
    let warnings = settings.unwrap_or_else(|errors| panic!("{errors}")).warnings.join("\n");
    assert!(warnings.contains("*.c.example is not one of hosts") && warnings.lines().count() == 1, "{warnings}");
}

#[test]
fn all_errors_of_limits_are_reported_at_once() {
    let errors = site_errors("limits:\n  max_headers: 0\n  memory: 1MiB\n  header_timout: 1s\n  upgrade_timeout: 0s\n");
    let unknown = "5:3: limits.header_timout: unknown key \"header_timout\" (did you mean \"header_timeout\"?); known here: \
                   max_connections, max_connections_per_address, memory, ";
    let [headers, memory, typo, upgrade] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(headers, "3:16: limits.max_headers: found 0, needs at least 1; write a number such as 100");
    assert_eq!(memory, "4:11: limits.memory: needs at least 16MiB; write a size such as 256MiB");
    assert!(typo.starts_with(unknown), "{typo}");
    assert_eq!(upgrade, "6:20: limits.upgrade_timeout: found a zero duration; write a duration such as 10s");
}

#[test]
fn a_key_of_limits_without_a_value_has_its_default() {
    let limits = |text: &str| format!("{:?}", settings(&with_origin(text)).limits);
    let default = limits("");
    assert_eq!(limits("limits:\n"), default);
    assert_eq!(limits("limits:\n  max_connections_per_address:\n  memory:\n  upgrade_holds_slots:\n"), default);
    let named = settings(&with_origin("limits: { max_connections_per_address: 512 }")).limits;
    assert!(named.limits_local_connections, "the default does not hold for the machine itself, the same number does");
    let unlimited = settings(&with_origin("limits: { max_connections_per_address: 0 }")).limits;
    assert_eq!(unlimited.max_connections_per_address, None);
}
