//! Tests of the parts of the summary.

use super::cache::cache;
use super::classes::conditions;
use super::scopes::scope;
use crate as config;
use std::path::Path;
use std::time::Duration;
use tidegate_policy::RouteId;
use tidegate_policy::window::Window;

#[test]
fn summary_shows_sizes_as_the_file_writes_them() {
    let summary = |text: &str| {
        let yaml = format!("origin: {{ url: 'http://a' }}\n{text}");
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &[]).expect("valid settings");
        cache(settings.cache, settings.rules.cache.as_ref())
    };
    let stale = "stale in place of a refusal: 30d, of an error: 1d";
    assert_eq!(summary("cache: {}"), format!("128MiB of memory, 10GiB of disk, bodies up to 8MiB; {stale}"));
    assert_eq!(
        summary("cache: { memory: 1536KiB, disk: off, max_object: 1001B }"),
        format!("1536KiB of memory, no disk, bodies up to 1001B; {stale}")
    );
}

#[test]
fn summary_describes_scope_limits() {
    let describe = |keys: &str| {
        let yaml = format!("origin: {{ url: 'http://a' }}\nscopes: {{ default: {{ {keys} }} }}");
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &[]).expect("valid settings");
        scope(&settings.rules.scopes[0]).expect("a throttled scope")
    };
    for (keys, expected) in [
        ("concurrency: 2, queue: { max_wait: 0s }", "default: concurrency 2; no queue"),
        (
            "delay: 1s, backoff: {}, rampup: {}",
            "default: delay 100ms to 10s by overloads, initially 1s, backs off 1s to 5m on overload; queue of 256 for up to 2s",
        ),
        (
            "concurrency: 4, backoff: {}, rampup: {}",
            "default: concurrency 1 to 40 by overloads, initially 4, up to 10 per client, backs off 1s to 5m on overload; queue of 256 for up to 2s",
        ),
    ] {
        assert_eq!(describe(keys), expected);
    }
}

#[test]
fn route_shows_the_names_of_its_header_rules() {
    let yaml = "origin: { url: 'http://a' }\nroutes: [{ match: /a, request_headers: { set: { Authorization: secret }, \
                remove: Cookie }, response_headers: { add: { Link: </a> } } }, { match: /b }]";
    let settings = config::load(Path::new("a.yaml"), yaml, &[], &[], &[]).expect("valid settings");
    let route = |index| super::routes::route(RouteId(index), &settings);
    assert_eq!(
        route(0),
        "/a: free; in default; request headers: set Authorization, remove cookie; response headers: add Link"
    );
    assert_eq!(route(1), "/b: free; in default");
}

#[test]
fn route_shows_its_redirect() {
    let yaml = "origin: { url: 'http://a' }\nroutes: [{ match: /a/**, host: b.example, redirect: '/c/{rest}' }, \
                { match: /d, redirect: { to: https://e.example, status: 302 } }]";
    let settings = config::load(Path::new("a.yaml"), yaml, &[], &[], &[]).expect("valid settings");
    let routes = [0, 1].map(|index| super::routes::route(RouteId(index), &settings));
    assert_eq!(routes, ["/a/** [b.example]: redirects to /c/{rest}", "/d: redirects to https://e.example with 302"]);
}

#[test]
fn route_shows_what_bodies_state() {
    let yaml = "origin: { url: 'http://a' }\nquotas: { tokens: { limit: 90000, window: day } }\nroutes:\n  \
                - { match: /a, cost: { tokens: { json: [x, y.z], per_byte: 0.25, default: 1000 } } }\n  \
                - { match: /b, json: { method: call, name: [a, b] }, cost: { tokens: { per_byte: 2 } } }\n";
    let settings = config::load(Path::new("a.yaml"), yaml, &[], &[], &[]).expect("valid settings");
    let routes = [0, 1].map(|index| super::routes::route(RouteId(index), &settings));
    assert_eq!(
        routes,
        [
            "/a: of tokens what the body states (the largest of x and y.z, and 0.25 for each byte; else 1000), or learned costs if less; in default",
            "/b [body method=call body name=a|b]: of tokens what the body states (2 for each byte; else 1), or learned costs if less; in default"
        ]
    );
}

#[test]
fn api_keys_are_counted() {
    for (values, expected) in [
        ("a-key-that-is-long", "with the API key in the header x-api-key"),
        ("[a-key-that-is-long, another-that-is-long]", "with one of 2 API keys in the header x-api-key"),
    ] {
        let yaml = format!(
            "origin: {{ url: 'http://a' }}\nclasses: [{{ name: a, when: {{ api_key: {{ header: X-Api-Key, value: {values} }} }} }}]"
        );
        let settings = config::load(Path::new("a.yaml"), &yaml, &[], &[], &[]).expect("valid settings");
        assert_eq!(conditions(&settings.rules.classes[0].matcher, &[], &[]), expected);
    }
}

#[test]
fn every_window_kind_has_a_description() {
    let describe = |window: &Window| super::quotas::window(window);
    let day = Duration::from_secs(86_400);
    assert_eq!(describe(&Window::Fixed { length: day }), "every 1d");
    assert_eq!(describe(&Window::FirstUse { length: day }), "for 1d from the first use");
    assert_eq!(describe(&Window::Sliding { length: day, sub_windows: 60 }), "in any span of 1d");
}
