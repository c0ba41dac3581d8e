//! Tests of several origins and of rewritten paths.

use super::{config_errors, config_errors_with, load_with, settings, with_origin};
use crate::describe::{BuiltinOperators, summary};
use tidegate_policy::request_fields::FieldCondition;
use tidegate_policy::{OriginId, RouteId};

const ORIGINS: &str = "origins: { shop: 'http://127.0.0.1:3000', api: { urls: ['http://a', 'http://b'], max_connections: 7, \
                       response_timeout: 9s } }\n";

fn several(routes: &str) -> String {
    format!("{ORIGINS}{routes}")
}

const ROUTES: &str = "routes: [{ match: '/v1/**', host: api.example.com, origin: api, cost: { units: 1 }, rewrite: '/{rest}' }, { \
                      match: '/moved', redirect: / }, { match: '/**', origin: shop }]\n\
                      quotas: { units: { limit: 10 } }\ncache: {}\n";

#[test]
fn routes_name_their_origins() {
    let settings = settings(&several(ROUTES));
    let names: Vec<_> = settings.origins.iter().map(|origin| (origin.name.as_str(), origin.urls())).collect();
    assert_eq!(names, [("shop", "http://127.0.0.1:3000".to_owned()), ("api", "http://a, http://b".to_owned())]);
    assert_eq!(settings.origin_name(OriginId(1)), Some("api"));
    let api = settings.origin(RouteId(0));
    assert_eq!((api.name.as_str(), api.max_connections, api.path.to_string()), ("api", 7, "origins.api".to_owned()));
    assert_eq!(settings.response_timeout(RouteId(0)).as_secs(), 9);
    assert_eq!(settings.origin(RouteId(2)).name, "shop");
    let key_origin =
        |index: usize| settings.rules.routes[index].cache.as_ref().and_then(|cache| cache.key_origin.clone());
    assert_eq!((key_origin(0).as_deref(), key_origin(2).as_deref()), (Some("api"), Some("shop")));
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    let builtin = BuiltinOperators { names: Vec::new(), product_tokens: Vec::new(), signature_agents: Vec::new() };
    let summary = summary(&settings, &[], &builtin);
    assert!(summary.contains("forwarding to shop (127.0.0.1:3000), api (a, b)\n"), "{summary}");
    assert!(summary.contains("1 of units; to api as /{rest}; in default\n"), "{summary}");
}

#[test]
fn routes_are_chosen_by_fields_in_the_form_of_classes() {
    let fields = "header: { X-Api-Version: ['2', '2.*'], x-client: App* }, cookie: beta";
    let text = format!(
        "{ORIGINS}cache: {{}}\nroutes: [{{ match: '/**', {fields}, origin: api }}, {{ match: '/a', header: x-client, origin: api }}, \
         {{ match: '/b', header: X-Client, origin: shop }}, {{ match: '/**', origin: shop }}]\n\
         classes: [{{ name: app, when: {{ {fields} }} }}]"
    );
    let settings = settings(&text);
    let rules = &settings.rules;
    let texts = |fields: &[FieldCondition]| fields.iter().map(|field| field.text.to_string()).collect::<Vec<_>>();
    let expected = ["x-api-version=2|2.*", "x-client=app*", "cookie:beta"];
    assert_eq!(texts(&rules.routes[0].fields), expected);
    assert_eq!(texts(&rules.classes[0].matcher.fields), expected);
    assert_eq!(texts(&rules.route_fields), ["x-api-version=2|2.*", "x-client=app*", "cookie:beta", "x-client"]);
    let key = |index: usize| rules.routes[index].cache.as_ref().expect("a cached route").key_conditions.len();
    assert_eq!([0, 1, 2, 3].map(key), [3, 1, 1, 0]);
    let builtin = BuiltinOperators { names: Vec::new(), product_tokens: Vec::new(), signature_agents: Vec::new() };
    let summary = summary(&settings, &[], &builtin);
    let line = "/** (x-api-version, x-client, cookie beta) [with x-api-version=2|2.* with x-client=app* with cookie:beta]: free; to api";
    assert!(summary.contains(line), "{summary}");
}

#[test]
fn routes_with_one_path_have_names_by_their_conditions_without_values() {
    let routes = "routes:
  - { match: /search, header: { x-depth: secret }, cookie: { key: secret } }
  - { match: /search, header: { x-depth: hidden }, cookie: { key: secret } }
  - { match: /search, method: POST, host: a.example }
  - { match: /search, method: GET, query: page=secret }
  - { match: /search }
  - { match: /mcp, json: { method: tools/call, params.name: secret } }
  - { match: /mcp, json: { method: tools/call } }
  - { match: /long, header: A_LONG_NAME }
  - { match: /long }
  - { match: /alone, method: POST, header: x-depth }
";
    let long = "x".repeat(100);
    let settings = settings(&with_origin(&routes.replace("A_LONG_NAME", &long)));
    let names: Vec<&str> = settings.rules.routes.iter().map(|route| route.name.as_str()).collect();
    let cut = format!("/long ({}...)", &long[..64]);
    let expected = [
        "/search (x-depth, cookie key)",
        "/search (x-depth, cookie key #2)",
        "/search (POST, a.example)",
        "/search (GET, ?page)",
        "/search",
        "/mcp (body method, body params.name)",
        "/mcp (body method)",
        &cut,
        "/long",
        "/alone",
        "/**",
    ];
    assert_eq!(names, expected);
}

#[test]
fn one_origin_has_no_name_in_logs_and_keys() {
    for text in [with_origin("cache: {}"), "origins: { shop: 'http://127.0.0.1:3000' }\ncache: {}".to_owned()] {
        let settings = settings(&text);
        assert_eq!((settings.origin_name(OriginId(0)), settings.origin_names().len()), (None, 0));
        assert_eq!(settings.rules.routes[0].cache.as_ref().and_then(|cache| cache.key_origin.clone()), None);
        assert_eq!(settings.authorities(), "127.0.0.1:3000");
    }
    let named = settings("origins: { shop: 'http://127.0.0.1:3000' }\nroutes: [{ match: '/**', origin: shop }]");
    assert_eq!(named.rules.routes[0].origin, OriginId(0));
}

#[test]
fn mistakes_of_origins_have_their_place() {
    for (text, expected) in [
        (
            "origin: http://a\norigins: { b: http://b }",
            "2:1: origins: beside origin; name all origins here, and leave out origin (or --origin)",
        ),
        (
            "origins: {}",
            "1:1: origins: found none; write origins: { shop: http://127.0.0.1:3000, api: http://127.0.0.1:3001 } in place of origin",
        ),
        (
            "origins: { Shop: http://a }",
            "1:12: origins.Shop: invalid name \"Shop\"; use up to 64 of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        (
            "origins: { a: { max_connections: 3 } }",
            "1:12: origins.a.url: missing; write the address of the site, such as http://127.0.0.1:3000",
        ),
        (
            "origins: { a: { url: http://a, ca: a.pem } }",
            "1:36: origins.a.ca: no server has https://; leave it out, or write https:// in the URL",
        ),
        (
            "origin: http://a\nroutes: [{ match: /a, origin: api }]",
            "2:31: routes[0].origin: no origin has a name; write origins: { shop: http://127.0.0.1:3000, api: \
             http://127.0.0.1:3001 } in place of origin",
        ),
    ] {
        assert_eq!(config_errors(text), [expected], "{text}");
    }
    let twice = config_errors("origins: { a: http://a, a: http://b }");
    assert!(twice.len() == 1 && twice[0].starts_with("1:25: "), "{twice:?}");
    for (routes, expected) in [
        (
            "routes: [{ match: /a, origin: shpo }, { match: '/**', origin: api }]",
            "2:31: routes[0].origin: unknown origin \"shpo\" (did you mean \"shop\"?); known: shop, api",
        ),
        (
            "routes: [{ match: /a }, { match: '/**', origin: api }]",
            "2:10: routes[0].origin: missing; write which of several answers: shop, api",
        ),
        (
            "routes: [{ match: /a, origin: api }]",
            "2:1: routes: requests that no route matches have no origin; end with a route for all, such as { match: \"/**\", \
             origin: shop }",
        ),
        (
            "routes: [{ match: /a, origin: api, redirect: /b }, { match: '/**', origin: api }]",
            "2:46: routes[0].redirect: found together with origin, but a redirect costs nothing and does not reach the \
             origin; remove redirect or origin",
        ),
        (
            "routes: [{ match: '/**', origin: api }, { match: /a, origin: shop }]",
            "2:41: routes[1]: unreachable: routes[0] (/**) matches every request that this route matches; move it above that one",
        ),
    ] {
        assert_eq!(config_errors(&several(routes)), [expected], "{routes}");
    }
    let variable = [("TIDEGATE__ORIGIN__URL", "http://c")];
    assert!(config_errors_with(&several(ROUTES), &variable)[0].contains("origins: beside origin"));
    let variable = [("TIDEGATE__ORIGINS__API__MAX_CONNECTIONS", "8")];
    let changed = load_with(&several(ROUTES), &variable, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(changed.origins[1].max_connections, 8);
}

#[test]
fn origin_without_a_route_and_a_shared_throttle_are_warnings() {
    let warnings = |routes: &str| settings(&several(routes)).warnings;
    assert_eq!(
        warnings("routes: [{ match: '/**', origin: api }]"),
        ["origins.shop: unused origin: no route refers to it"]
    );
    assert_eq!(
        warnings(
            "scopes: { default: { concurrency: 4 }, b: { concurrency: 4 } }\n\
             routes: [{ match: /a, origin: api }, { match: /b, scopes: b, origin: api }, { match: '/**', origin: shop }]"
        ),
        [
            "scopes.default: limits the origins shop, api together, so that the overload of one holds back the others; name a \
          scope for each in its routes"
        ]
    );
}

#[test]
fn rewritten_paths_are_checked() {
    for (route, expected) in [
        ("match: '/a/**', rewrite: new", "found \"new\", which is no path; write a path such as /new/{rest}, or /new"),
        (
            "match: '/a/*', rewrite: '/b/{rest}'",
            "found {rest}, but match does not end with /**; end match with /**, or remove {rest}",
        ),
        (
            "match: '/**/a', rewrite: '/b/{rest}'",
            "found {rest}, but match does not end with /**; end match with /**, or remove {rest}",
        ),
        (
            "match: '/a/**', rewrite: '/b{rest}'",
            "found \"/b{rest}\", in which no slash precedes {rest}; write a path such as /new/{rest}, or /new",
        ),
        (
            "match: '/a/**', rewrite: '/{rest}/b'",
            "found \"/{rest}/b\", which has a placeholder; write {rest} at the end, or none",
        ),
        (
            "match: '/a/**', rewrite: '/b?c={rest}'",
            "found \"/b?c={rest}\", which has a query; write the path alone: the query of the request stays",
        ),
        (
            "match: /a, rewrite: '/b c'",
            "found \"/b c\", which has a character that no path has; encode it, such as a space as %20",
        ),
        (
            "match: '/a/**', rewrite: '/b/**'",
            "found \"/b/**\", in which * stands for nothing; write a path such as /new/{rest}, or /new",
        ),
        (
            "match: '/a/**', rewrite: '/b;c/{rest}'",
            "found \"/b;c/{rest}\", which has a parameter (;), which origins read in different ways; write the path without ;",
        ),
    ] {
        let errors = config_errors(&with_origin(&format!("routes: [{{ {route} }}]")));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].ends_with(&format!(": routes[0].rewrite: {expected}")), "{errors:?}");
    }
    for target in ["//b", "/a/../b", "/./b", "/a//b", "/%2e%2e/b", "/a%2Fb", "/%61", "/%00", "/a/{rest}/../{rest}"] {
        let errors = config_errors(&with_origin(&format!("routes: [{{ match: '/a', rewrite: '{target}' }}]")));
        assert!(errors.len() == 1 && errors[0].contains("routes[0].rewrite: found"), "{target}: {errors:?}");
    }
    for target in ["/", "/b", "/b/", "/caf%C3%A9/%20b"] {
        let settings = settings(&with_origin(&format!("routes: [{{ match: '/a', rewrite: '{target}' }}]")));
        assert_eq!(settings.rewrite(RouteId(0)).map(ToString::to_string).as_deref(), Some(target));
    }
}
