//! Fields that are lists, in all their spellings: empty members mean nothing (RFC 9110 section 5.6.1.2), and several lines
//! mean what one line with their members does (section 5.3). The gateway reads all spellings alike.

use super::answer::compress::restore_validators;
use super::answer::robots_fetch::is_storable;
use super::answer::tunnel::{is_switch_to, wanted_protocol};
use crate::gateway::cache::MessageFields;
use crate::gateway::message::cost::was_cache_hit;
use crate::gateway::message::headers::{strip_hop_by_hop, strip_untrusted};
use crate::gateway::message::problem::{ResponseFormat, cached_response};
use crate::gateway::message::site::is_forwarded_https;
use crate::gateway::message::target::Target;
use bytes::Bytes;
use http::{Method, StatusCode, Uri, Version};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_crawlers::robots::{self, CachedRobots, RobotsDocument};
use tidegate_http_cache::accepted_codings::AcceptedCodings;
use tidegate_http_cache::coding::Coding;
use tidegate_http_cache::validation::is_not_modified;
use tidegate_http_cache::vary::{SelectingFields, normalized_value};
use tidegate_http_cache::{RequestDirectives, ResponseDirectives};
use tidegate_http1::{Fields, Name, RequestHead};
use tidegate_policy::compression::{CompressionRules, MediaTypePattern};
use tidegate_policy::identity::{AddressSource, ProxyTrust};
use tidegate_policy::network::IpPrefix;

/// A list: name, members, other fields of the message, and what is read from it, as text.
type Case = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)], fn(&Fields) -> String);

const CASES: &[Case] = &[
    ("x-forwarded-for", &["203.0.113.7", "10.0.0.2"], &[], |fields| client(fields, AddressSource::XForwardedFor)),
    ("forwarded", &["for=203.0.113.7", "for=\"10.0.0.2:1\";proto=https"], &[], |fields| {
        client(fields, AddressSource::Forwarded)
    }),
    ("x-forwarded-proto", &["http", "https"], &[], |fields| text(is_forwarded_https(fields))),
    ("connection", &["close", "X-Hop", "x-other"], &[("x-hop", "1"), ("x-other", "2"), ("x-kept", "3")], |fields| {
        changed(fields, strip_hop_by_hop)
    }),
    ("te", &["gzip", "trailers;q=1", "trailers"], &[], |fields| changed(fields, strip_hop_by_hop)),
    ("trailer", &["x-sum", "X_Tidegate_Class", "x-other"], &[], |fields| {
        changed(fields, |fields| strip_untrusted(fields, &AddressSource::Peer, false))
    }),
    ("upgrade", &["websocket"], &[("connection", "upgrade")], |fields| text(wanted_protocol(&head(fields), false))),
    ("upgrade", &["websocket", "other"], &[("connection", "upgrade")], |fields| {
        text(wanted_protocol(&head(fields), false))
    }),
    ("connection", &["keep-alive", "Upgrade"], &[("upgrade", "websocket")], |fields| {
        text(wanted_protocol(&head(fields), false))
    }),
    ("upgrade", &["websocket"], &[], |fields| text(is_switch_to(b"websocket", fields))),
    ("via", &["1.1 other", "1.1 gateway", "1.0 other"], &[], target),
    ("expect", &["100-continue"], &[], target),
    ("expect", &["100-continue", "other"], &[], target),
    ("cache-control", &["no-cache", "max-age=5"], &[], |fields| text(RequestDirectives::read(&MessageFields(fields)))),
    ("pragma", &["other", "no-cache"], &[], |fields| text(RequestDirectives::read(&MessageFields(fields)))),
    ("cache-control", &["public", "max-age=5", "private"], &[], |fields| {
        text(ResponseDirectives::read(&MessageFields(fields)))
    }),
    ("cache-control", &["no-cache", "max-age=5"], &[], |fields| {
        text(robots::ttl_from_cache_control(fields.all(Name::CacheControl)))
    }),
    ("cache-control", &["public", "no-transform"], &[("content-type", "text/html")], |fields| {
        text(compression().includes(200, &MessageFields(fields), None))
    }),
    ("vary", &["Accept-Language", "x-tenant"], &[], |fields| text(SelectingFields::read(&MessageFields(fields), true))),
    ("vary", &["*"], &[], |fields| text(SelectingFields::read(&MessageFields(fields), true))),
    ("vary", &["accept-encoding"], &[("content-type", "text/plain")], |fields| {
        text(is_storable(StatusCode::OK, fields))
    }),
    ("vary", &["accept-encoding", "cookie"], &[("content-type", "text/plain")], |fields| {
        text(is_storable(StatusCode::OK, fields))
    }),
    ("content-encoding", &["identity"], &[("content-type", "text/plain")], |fields| {
        text(is_storable(StatusCode::OK, fields))
    }),
    ("content-encoding", &["identity", "gzip"], &[("vary", "accept-encoding")], |fields| {
        text(SelectingFields::read(&MessageFields(fields), true))
    }),
    ("accept-encoding", &["gzip", "br;q=0.5"], &[], |fields| {
        let fields = &MessageFields(fields);
        text((compression().choose(fields), AcceptedCodings::read(fields)))
    }),
    ("if-none-match", &["\"a\"", "W/\"b, c\""], &[], |fields| {
        text(["\"a\"", "\"b, c\"", "\"d\""].map(|etag| is_not_modified(&MessageFields(fields), &[("etag", etag)])))
    }),
    // The entity tag of an empty robots.txt.
    ("if-none-match", &["\"0\"", "\"0-cbf29ce484222325\""], &[], |fields| {
        let document = Arc::new(RobotsDocument::from_parts(200, Bytes::new(), Bytes::new()));
        let own = CachedRobots { document, age: Duration::ZERO, ttl: Duration::ZERO };
        let (response, _) = cached_response(&own, fields.all(Name::IfNoneMatch));
        assert_eq!(response.status, if fields.is_empty() { StatusCode::OK } else { StatusCode::NOT_MODIFIED });
        text(response.status)
    }),
    ("if-match", &["\"a\"", "W/\"b\""], &[], |fields| {
        changed(fields, |fields| restore_validators(&settings().rules, fields))
    }),
    ("accept", &["application/json;q=0.5", "text/html"], &[], |fields| {
        text((
            ResponseFormat::from_head(&head(fields)).prefers_html,
            normalized_value(&MessageFields(fields), "accept"),
        ))
    }),
    ("accept-language", &["de", "en;q=0.5"], &[], |fields| {
        text(normalized_value(&MessageFields(fields), "accept-language"))
    }),
    ("cache-status", &["a; fwd=miss", "b; hit"], &[], |fields| text(was_cache_hit(fields))),
];

#[test]
fn spellings_of_a_list_are_read_alike() {
    let mut read_names = Vec::new();
    for (name, members, others, read) in CASES {
        let spelled = |lines: &[String]| {
            let fields = lines.iter().map(|line| (*name, line.as_str())).chain(others.iter().copied());
            let mut sent = Fields::new();
            fields.for_each(|(name, value)| sent.append_text(name, value.as_bytes()));
            read(&sent)
        };
        let one_line = spelled(&[members.join(", ")]);
        let empty = || String::new();
        for lines in [
            vec![members.join(",")],
            vec![format!(",{},", members.join(",,"))],
            vec![format!(" , {} ,\t", members.join(" ,\t, "))],
            members.iter().map(ToString::to_string).collect(),
            [empty()]
                .into_iter()
                .chain(members.iter().map(|member| format!(" ,{member}, ")))
                .chain([empty()])
                .collect(),
        ] {
            assert_eq!(spelled(&lines), one_line, "{name}: {lines:?}");
        }
        if spelled(&[]) != one_line {
            read_names.push(*name);
        }
    }
    for (name, ..) in CASES {
        assert!(read_names.contains(name), "{name} is not read");
    }
}

fn client(fields: &Fields, source: AddressSource) -> String {
    let name = source.header().expect("a field").to_owned();
    let proxies = IpPrefix::parse("10.0.0.0/8").into_iter().collect();
    let trust = ProxyTrust { source, proxies, ..ProxyTrust::default() };
    let lines: Vec<&[u8]> = fields.get_all_by_text(&name).collect();
    text(trust.client([10, 0, 0, 1].into(), &lines))
}

/// Returns whether a request with the fields is valid.
fn target(fields: &Fields) -> String {
    let mut head = head(fields);
    head.fields.append(Name::Host, b"example.com");
    text(Target::parse(&head, "gateway", &settings()).map(|target| target.host().to_owned()))
}

fn changed(fields: &Fields, change: impl FnOnce(&mut Fields)) -> String {
    let mut fields = fields.clone();
    change(&mut fields);
    text(fields)
}

fn head(fields: &Fields) -> RequestHead {
    let target = Uri::from_static("/");
    RequestHead { method: Method::GET, target, version: Version::HTTP_11, fields: fields.clone() }
}

fn settings() -> Settings {
    let text = "origin: { url: 'http://127.0.0.1:3000' }\ncompression: on\nclasses: [{ name: all }]\nroutes: [{ match: '/**' }]\n";
    tidegate_config::load(Path::new("tidegate.yaml"), text, &[], &[], &[]).expect("valid settings")
}

fn compression() -> CompressionRules {
    let types = MediaTypePattern::parse("text/*").into_iter().collect();
    CompressionRules { codings: vec![Coding::Brotli, Coding::Gzip], min_size: 0, types }
}

fn text(value: impl Debug) -> String {
    format!("{value:?}")
}
