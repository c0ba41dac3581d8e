//! The head of a request for the origin, and who is named to it.

use super::site::{BOT, Site, field};
use crate::gateway::exchange::forward::forward;
use crate::gateway::exchange::known::Known;
use crate::gateway::exchange::origin_head::{changed_head, prepare_head};
use crate::gateway::exchange::send::{proxied_client, send_interim};
use http::StatusCode;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use tidegate_http1::server::InterimResponses;
use tidegate_http1::{Fields, Name};

const PLAIN: &str = "classes: [{ name: all }]\nroutes: [{ match: '/**' }]\n";
const BEHIND_PROXY: &str = "clients: { address_from: x-forwarded-for, trusted_proxies: [192.0.2.0/24] }\nclasses: [{ name: all }]\nroutes: [{ match: '/**' }]\n";

/// Returns the interim responses that wait for the client, which only a connection writes: by their debug output, a list of bytes.
fn interim(waiting: &InterimResponses) -> String {
    let text = format!("{waiting:?}");
    let bytes = text.split(|other: char| !other.is_ascii_digit()).filter_map(|number| number.parse::<u8>().ok());
    String::from_utf8(bytes.collect()).expect("text")
}

/// Returns the fields that the origin is sent.
fn sent(site: &Site, line: &str, fields: &[(&str, &str)]) -> Fields {
    let mut known = site.known(line, fields);
    prepare_head(&mut known);
    let Known { request, .. } = *known;
    request.head.fields
}

#[test]
fn fields_of_the_connection_are_not_forwarded() {
    let fields = [
        ("connection", "keep-alive, x-private, cookie"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers, gzip"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic eA=="),
        ("x-private", "1"),
        ("cookie", "a=b"),
        ("expect", "100-continue"),
    ];
    let sent = sent(&Site::new(PLAIN), "GET /", &fields);
    for name in ["connection", "keep-alive", "upgrade", "proxy-authorization", "x-private", "expect"] {
        assert_eq!(field(&sent, name), "", "{name}");
    }
    assert_eq!((field(&sent, "te"), field(&sent, "cookie")), ("trailers", "a=b"), "a client cannot remove its cookies");
}

#[test]
fn origin_is_told_client_host_scheme_and_class() {
    let sent = sent(&Site::new(PLAIN), "GET /", &[]);
    for (name, value) in [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-proto", "http"),
        ("x-tidegate-class", "all"),
        ("x-tidegate-operator", ""),
        ("host", "shop.example"),
    ] {
        assert_eq!(field(&sent, name), value, "{name}");
    }
}

#[test]
fn client_cannot_forge_what_the_gateway_tells_the_origin() {
    let forged = [
        ("x-forwarded-for", "198.51.100.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "for=198.51.100.1"),
        ("x-real-ip", "198.51.100.1"),
        ("x-tidegate-class", "admin"),
        ("x-tidegate-operator", "admin"),
        ("x-tidegate-decision", "admin"),
        ("X_Tidegate_Class", "admin"),
        ("X_Forwarded_For", "198.51.100.1"),
    ];
    let sent = sent(&Site::new(PLAIN), "GET /", &forged);
    let text = String::from_utf8(sent.to_lines(|_| true)).expect("text");
    for part in ["198.51.100.1", "https", "evil", "admin"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    assert_eq!(field(&sent, "x-tidegate-class"), "all");
}

#[test]
fn chain_of_trusted_proxies_is_passed_on() {
    let site = Site::new(BEHIND_PROXY);
    let chain = ("x-forwarded-for", "6.6.6.6, 198.51.100.1, 192.0.2.9");
    let fields = [chain, ("x-forwarded-proto", "https"), ("x-forwarded-host", "www.example")];
    assert_eq!(site.known("GET /", &fields).client_address(), IpAddr::from([198, 51, 100, 1]));
    let sent = sent(&site, "GET /", &fields);
    assert_eq!(field(&sent, "x-forwarded-for"), "198.51.100.1, 192.0.2.9, 192.0.2.1");
    assert_eq!((field(&sent, "x-forwarded-proto"), field(&sent, "x-forwarded-host")), ("https", "www.example"));
}

#[test]
fn scheme_is_believed_from_a_trusted_proxy_only() {
    let https = [("x-forwarded-proto", "https")];
    assert!(Site::new(BEHIND_PROXY).known("GET /", &https).is_https());
    assert!(!Site::new(PLAIN).known("GET /", &https).is_https());
}

#[test]
fn gateway_names_itself_with_the_version_of_the_client() {
    let site = Site::new(PLAIN);
    let via = |line| sent(&site, line, &[]).get(Name::Via).map(<[u8]>::to_vec).expect("a field");
    let pseudonym = site.worker.shared().via.pseudonym.clone();
    assert_eq!(via("GET /"), format!("1.1 {pseudonym}").as_bytes());
    assert_eq!(via("GET / HTTP/2"), format!("2.0 {pseudonym}").as_bytes());
    let chain = sent(&site, "GET /", &[("via", "1.0 another")]);
    assert_eq!(chain.all(Name::Via).count(), 2);
}

#[test]
fn cookies_in_several_fields_are_joined() {
    let cookies = [("cookie", "a=1"), ("cookie", "b=2")];
    let site = Site::new(PLAIN);
    for line in ["GET /", "GET / HTTP/2"] {
        let sent = sent(&site, line, &cookies);
        assert_eq!((field(&sent, "cookie"), sent.all(Name::Cookie).count()), ("a=1; b=2", 1), "{line}");
    }
}

#[test]
fn host_of_an_absolute_target_replaces_the_field() {
    let site = Site::new(PLAIN);
    let absolute = sent(&site, "GET http://a.example/", &[("host", "b.example")]);
    assert_eq!((field(&absolute, "host"), field(&absolute, "x-forwarded-host")), ("a.example", "a.example"));
    let http2 = sent(&site, "GET http://a.example/ HTTP/2", &[("host", "")]);
    assert_eq!(field(&http2, "host"), "a.example");
}

#[test]
fn session_of_the_live_page_is_for_the_gateway_alone() {
    let prefix = tidegate_policy::admin_session::COOKIE_PREFIX;
    let cookie = format!("a=1; {prefix}9090=secret; b=2");
    let sent = sent(&Site::new(PLAIN), "GET /", &[("cookie", &cookie)]);
    assert_eq!(field(&sent, "cookie"), "a=1; b=2");
}

#[test]
fn path_is_resolved_for_the_origin_and_recorded_as_sent() {
    let site = Site::new(PLAIN);
    let mut known = site.known("GET //a/./b/../c%7Ed?e=%2F", &[]);
    let sent = known.request.head.target.clone();
    known.request.resolve_target();
    assert_eq!(known.request.head.target.query(), Some("e=%2F"));
    assert!(!known.request.head.target.path().contains(".."), "{}", known.request.head.target);
    assert_eq!(known.request.sent_target(), &sent);
}

#[test]
fn changes_of_a_route_are_sent_and_not_recorded() {
    let rules = "classes: [{ name: all }]\nroutes: [{ match: '/a', request_headers: { set: { X-Key: secret }, remove: [Cookie] } }, { match: '/**' }]\n";
    let site = Site::new(rules);
    let known = site.known("GET /a", &[("cookie", "a=1"), ("x_key", "forged")]);
    let changed = changed_head(&known).expect("changes");
    assert_eq!((field(&changed.fields, "x-key"), field(&changed.fields, "cookie")), ("secret", ""));
    assert_eq!(field(&changed.fields, "x_key"), "", "an origin may read it as the same name");
    assert_eq!(field(&known.request.head.fields, "x-key"), "");
    assert!(changed_head(&site.known("GET /b", &[])).is_none());
}

#[test]
fn condition_on_a_compressed_form_gets_the_validator_of_the_origin() {
    let site = Site::new(&format!("compression: on\n{PLAIN}"));
    let sent = |site: &Site| {
        let mut known = site.known("PUT /", &[("if-match", "W/\"v1\", \"v2\"")]);
        prepare_head(&mut known);
        field(&known.request.head.fields, "if-match").to_owned()
    };
    assert_eq!(sent(&site), "\"v1\", \"v2\"");
    assert_eq!(sent(&Site::new(PLAIN)), "W/\"v1\", \"v2\"", "without compression");
}

#[test]
fn connection_names_the_client_only_if_its_response_is_for_it_alone() {
    let rules = format!(
        "origin: {{ url: 'http://origin.invalid', proxy_protocol: v1 }}\ncache: {{ disk: off, refresh: off }}\n{PLAIN}"
    );
    let mut site = Site::new(&rules);
    let destination = SocketAddr::from(([203, 0, 113, 1], 80));
    site.listener.address = Some(destination);
    let shared = proxied_client(&site.fetch("GET /", &[]));
    assert!(shared.is_none(), "the response may be for others");
    let personal = proxied_client(&site.fetch("GET /", &[("cookie", "session=1")])).expect("named");
    assert_eq!((personal.address, personal.destination), (site.peer, destination));
    assert!(proxied_client(&site.journal("POST /", &[])).is_some());
    let mut plain = Site::new(PLAIN);
    plain.listener.address = Some(destination);
    assert!(proxied_client(&plain.journal("POST /", &[])).is_none());
}

#[test]
fn interim_response_has_the_changes_of_its_route_and_no_fields_of_the_origins_connection() {
    let rules = "classes: [{ name: all }]\nroutes: [{ match: '/**', response_headers: { remove: [X-Debug] } }]\n";
    let site = Site::new(rules);
    let known = site.known("GET /", &[]);
    let fields =
        [("link", "</a.css>"), ("x-debug", "1"), ("connection", "x-hop"), ("x-hop", "1"), ("x-tidegate-class", "a")];
    send_interim(&known.connection, StatusCode::EARLY_HINTS, super::site::fields_of(&fields), known.header_rules());
    let waiting = interim(known.connection.connection_state.interim());
    assert!(waiting.starts_with("HTTP/1.1 103 "), "{waiting}");
    assert!(waiting.contains("link: </a.css>\r\n"), "{waiting}");
    for part in ["x-debug", "x-hop", "x-tidegate"] {
        assert!(!waiting.contains(part), "{part}: {waiting}");
    }
}

#[test]
fn upgrade_beyond_the_limit_is_refused_before_it_is_sent() {
    let site = Site::new(&format!("limits: {{ max_upgrades: 1 }}\n{PLAIN}"));
    let fields = [("connection", "upgrade"), ("upgrade", "websocket")];
    let journal = site.journal("GET /", &fields);
    let first = super::super::answer::tunnel::wanted_upgrade(&journal).expect("a place");
    assert!(first.is_some());
    let answer = site.send("GET /", &fields);
    assert_eq!((answer.status, answer.logged("reason")), (503, "throttle".into()));
    drop(first);
    assert_eq!(site.send("GET /", &fields).status, 502);
}

#[test]
fn failed_origin_is_recorded_as_one_call() {
    let site = Site::new(PLAIN);
    let journal = site.journal("GET /", &[BOT]);
    let response = site.run(forward(crate::gateway::upstream::RequestBody::Empty, journal, None));
    assert_eq!(response.status, StatusCode::BAD_GATEWAY);
    drop(response);
    let lines = site.telemetry.recent_decisions();
    let line: serde_json::Value = serde_json::from_slice(&lines[0]).expect("a line is JSON");
    assert_eq!((&line["status"], &line["origin_ms"], &line["verdict"]), (&502.into(), &0.into(), &"admitted".into()));
    assert!(site.has_outage());
    assert_eq!(Rc::strong_count(&site.worker), 1, "nothing continues");
}
