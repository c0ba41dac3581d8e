//! Tests that all spellings of a request that an origin may treat as the same page cost the same.

use super::{settings, with_origin};
use http::Method;
use proptest::prelude::*;
use tidegate_policy::path::normalize;
use tidegate_policy::{RequestFacts, Rules};

const RULES: &str = r#"
quotas: { api: { limit: 100, window: { fixed: 1h } } }
scopes: { slow: { concurrency: 1 } }
routes:
  - { match: /free }
  - { match: /public/, case: ignore }
  - { match: /Account, case: exact, trailing_slash: exact, cost: { api: 5 } }
  - { match: /search, method: GET, cost: { api: 4 } }
  - { match: "/item/*", cost: { api: 1 } }
  - { match: "/**/*.css", cost: { api: 2 } }
  - { match: /list, query: [page, "by=new est"], cost: { api: 3 } }
  - { match: /slow, scopes: [slow] }
  - { match: "/report/**", cost: { api: 6 } }
"#;

const COSTED: [(&str, &str); 7] = [
    ("/search", ""),
    ("/item/Ab-1", ""),
    ("/x/y/Style.css", ""),
    ("/list", "page=2&by=new%20est"),
    ("/slow", ""),
    ("/report", ""),
    ("/report/2026/q1", "page=1"),
];

/// Returns the name of the route of a request.
fn matched_route<'a>(rules: &'a Rules, method: &Method, path: &str, query: &str) -> &'a str {
    let path = normalize(path).expect("a path");
    let request = RequestFacts {
        method,
        host: "example.com",
        path: &path,
        other_paths: &[],
        query: Some(query),
        user_agent: b"",
        is_preflight: false,
        json: None,
        fields: None,
    };
    &rules[rules.route(&request)].name
}

/// Returns another spelling of `path`; each byte of `choices` selects the spelling of one character.
fn respell(path: &str, choices: &[u8]) -> String {
    let spell = |(letter, choice): (char, &u8)| match (letter, choice % 8) {
        ('/', 0) => "//".to_owned(),
        ('/', 1) => "/./".to_owned(),
        ('/', 2) => "/made/%2E./".to_owned(),
        ('/', 3) => "/up/../".to_owned(),
        ('/', _) => "/".to_owned(),
        (_, 0) => letter.to_ascii_uppercase().to_string(),
        (_, 1) => letter.to_ascii_lowercase().to_string(),
        (_, 2) => format!("%{:02x}", letter as u32),
        (_, 3) => format!("%{:02X}", letter.to_ascii_uppercase() as u32),
        _ => letter.to_string(),
    };
    path.chars().zip(choices).map(spell).collect()
}

/// Returns the query with some characters of its names and values encoded.
fn encode_query(query: &str, choices: &[u8]) -> String {
    let encode = |(letter, choice): (char, &u8)| match (letter, choice % 2) {
        ('a'..='z' | '0'..='9', 0) => format!("%{:02x}", letter as u32),
        _ => letter.to_string(),
    };
    // Encoded characters remain encoded.
    query
        .split("%20")
        .map(|part| part.chars().zip(choices).map(encode).collect::<String>())
        .collect::<Vec<_>>()
        .join("+")
}

proptest! {
    #[test]
    fn every_spelling_of_costed_request_matches_its_route(
        index in 0..COSTED.len(),
        choices in prop::collection::vec(any::<u8>(), 32),
        slash in any::<bool>(),
        head in any::<bool>(),
    ) {
        let rules = settings(&with_origin(RULES)).rules;
        let (path, query) = COSTED[index];
        let respelled = format!("{}{}", respell(path, &choices), if slash { "/" } else { "" });
        let method = if head { Method::HEAD } else { Method::GET };
        let found = matched_route(&rules, &method, &respelled, &encode_query(query, &choices));
        prop_assert_eq!(found, matched_route(&rules, &Method::GET, path, query), "{} {}", method, respelled);
        prop_assert_ne!(found, "/**");
    }
}

#[test]
fn free_routes_match_only_written_spelling_by_default() {
    let rules = settings(&with_origin(RULES)).rules;
    for (path, expected) in [
        ("/free", "/free"),
        ("/FREE", "/**"),
        ("/free/", "/**"),
        ("/PUBLIC/", "/public/"),
        ("/public", "/**"),
        ("/Account", "/Account"),
        ("/account", "/**"),
        ("/Account/", "/**"),
        ("/item/", "/**"),
    ] {
        assert_eq!(matched_route(&rules, &Method::GET, path, ""), expected, "{path}");
    }
    assert_eq!(matched_route(&rules, &Method::POST, "/search", ""), "/**");
}

#[test]
fn costed_route_with_free_spellings_gives_a_warning() {
    let warnings = |routes: &str| {
        let text = format!("quotas: {{ api: {{ limit: 100, window: {{ fixed: 1h }} }} }}\nroutes: [{routes}]\n");
        settings(&with_origin(&text)).warnings
    };
    assert_eq!(
        warnings(
            "{ match: /a, case: exact, cost: { api: 1 } }, { match: /b, trailing_slash: exact, cost: { api: 1 } }"
        ),
        [
            "routes[0].case: /a is free in other letter case, because /** matches it; if the origin serves it so, remove the key",
            "routes[1].trailing_slash: /b is free with or without a trailing slash, because /** matches it; if the origin \
             serves it so, remove the key"
        ]
    );
    for routes in [
        "{ match: /a, cost: { api: 1 } }",
        "{ match: /a, case: exact }",
        "{ match: /a, case: exact, cost: { api: 2 } }, { match: /A, cost: { api: 1 } }",
        "{ match: /a, case: exact, cost: { api: 1 } }, { match: /**, cost: { api: 1 } }",
    ] {
        assert_eq!(warnings(routes), [""; 0], "{routes}");
    }
}

#[test]
fn patterns_that_look_like_regular_expressions_and_headers_with_underscores_give_warnings() {
    let regex = |path: &str, text: &str, hint: &str| {
        format!(
            "{path}: {text:?} looks like a regular expression, but matches as it stands, except that * is any text; {hint}"
        )
    };
    let underscores = |path: &str, name: &str, hyphenated: &str| {
        format!("{path}: {name} is no spelling of {hyphenated}, which clients send; write {hyphenated}")
    };
    let route = |condition: &str| format!("routes: [{{ match: /api, {condition} }}]");
    let class = |condition: &str| format!("classes: [{{ name: a, when: {{ {condition} }} }}, {{ name: rest }}]");
    for (text, warning) in [
        (route("header: { X-Api-Version: '^2.*$' }"), regex("routes[0].header.X-Api-Version", "^2.*$", "write \"2*\"")),
        (route("cookie: { v: [a, '2|3'] }"), regex("routes[0].cookie.v", "2|3", "write [\"2\", \"3\"]")),
        (route("json: { method: '.*' }"), regex("routes[0].json.method", ".*", "leave it out to match any value")),
        (
            route("query: 'page=*'"),
            "routes[0].query: \"page=*\" compares * as it stands; write page alone for any value".into(),
        ),
        (class("cookie: { v: '^2' }"), regex("classes[0].when.cookie.v", "^2", "write \"2*\"")),
        (route("header: x_api_version"), underscores("routes[0].header", "x_api_version", "x-api-version")),
        (class("header: { X_App: a }"), underscores("classes[0].when.header", "X_App", "X-App")),
        (
            class("api_key: { header: x_api_key, value: long-enough-to-be-one }"),
            underscores("classes[0].when.api_key.header", "x_api_key", "x-api-key"),
        ),
    ] {
        assert_eq!(settings(&with_origin(&text)).warnings, [warning], "{text}");
    }
    for text in
        [route("header: { X-Api-Version: ['2', '2.*'] }"), route("cookie: { be_ta: '1' }"), route("query: page=1")]
    {
        assert_eq!(settings(&with_origin(&text)).warnings, [""; 0], "{text}");
    }
}
