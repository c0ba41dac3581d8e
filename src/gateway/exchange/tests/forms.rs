//! Compressed forms of stored responses, and the fields of responses.

use super::site::{Answer, Site, field, fields_of};
use crate::gateway::exchange::answer::compress::encode_response;
use crate::gateway::exchange::answer::head::{prepare_client_response, prepare_own_response};
use http::StatusCode;

const COMPRESSED: &str = "
compression: { codings: [br, gzip], min_size: 100B }
cache: { disk: off, refresh: off }
classes: [{ name: all }]
routes: [{ match: '/plain', compress: false }, { match: '/**' }]
";

const TEXT: [(&str, &str); 3] = [("content-type", "text/html"), ("cache-control", "max-age=60"), ("etag", "\"v1\"")];

/// A site that has stored a page of 2000 bytes.
fn with_page() -> Site {
    let site = Site::new(COMPRESSED);
    ["/page", "/plain"].iter().for_each(|path| {
        site.store(&format!("GET {path}"), &[], &TEXT, &"0123456789".repeat(200));
    });
    site
}

fn get(site: &Site, fields: &[(&str, &str)]) -> Answer {
    site.send("GET /page", fields)
}

#[test]
fn copy_is_sent_in_the_coding_that_the_client_prefers() {
    let site = with_page();
    for (accepted, coding) in [
        ("gzip, br", "br"),
        ("gzip, br;q=0.5", "gzip"),
        ("gzip", "gzip"),
        ("identity", ""),
        ("br;q=0, *;q=0.1", "gzip"),
        ("", ""),
    ] {
        let answer = get(&site, &[("accept-encoding", accepted)]);
        assert_eq!((answer.status, answer.field("content-encoding")), (200, coding), "{accepted}");
        assert_eq!(answer.field("vary"), "Accept-Encoding", "{accepted}");
        let bytes = answer.logged("bytes").as_u64().expect("bytes");
        assert_eq!((bytes < 200, bytes == 2000), (!coding.is_empty(), coding.is_empty()), "{accepted}");
    }
}

#[test]
fn form_has_a_weak_validator_of_its_own() {
    let site = with_page();
    let gzip = ("accept-encoding", "gzip");
    assert_eq!(get(&site, &[gzip]).field("etag"), "W/\"v1\"");
    let unchanged = get(&site, &[gzip, ("if-none-match", "W/\"v1\"")]);
    assert_eq!(
        (unchanged.status, unchanged.field("etag"), unchanged.field("vary")),
        (304, "W/\"v1\"", "Accept-Encoding")
    );
    let whole = get(&site, &[("if-none-match", "\"v1\"")]);
    assert_eq!((whole.status, whole.field("etag"), whole.field("vary")), (304, "\"v1\"", ""));
}

#[test]
fn head_has_the_length_of_the_form() {
    let site = with_page();
    let gzip = [("accept-encoding", "gzip")];
    let (get, head) = (get(&site, &gzip), site.send("HEAD /page", &gzip));
    assert_eq!((head.field("content-encoding"), head.body.as_str()), ("gzip", ""));
    assert_eq!(head.field("content-length"), get.logged("bytes").to_string());
}

#[test]
fn range_is_one_of_the_page_without_a_coding() {
    let answer = get(&with_page(), &[("accept-encoding", "gzip"), ("range", "bytes=5-9")]);
    assert_eq!((answer.status, answer.field("content-encoding"), answer.body.as_str()), (206, "", "56789"));
    assert_eq!((answer.field("content-range"), answer.field("vary")), ("bytes 5-9/2000", "Accept-Encoding"));
}

#[test]
fn some_routes_and_clients_get_no_form() {
    let site = with_page();
    let gzip = [("accept-encoding", "gzip")];
    assert_eq!(site.send("GET /plain", &gzip).field("content-encoding"), "");
    let http10 = site.send("GET /page HTTP/1.0", &gzip);
    assert_eq!((http10.field("content-encoding"), http10.body.len()), ("", 2000));
    site.store("GET /small", &[], &TEXT, "small");
    assert_eq!(site.send("GET /small", &gzip).field("content-encoding"), "");
    site.store("GET /image", &[], &[("content-type", "image/png"), TEXT[1]], &"0".repeat(200));
    assert_eq!(site.send("GET /image", &gzip).field("content-encoding"), "");
}

#[test]
fn response_that_passes_is_compressed_if_it_may_be() {
    let site = Site::new(COMPRESSED);
    for (status, response, coding) in [
        (200, &[("content-type", "text/html"), ("content-length", "2000")][..], "gzip"),
        (200, &[("content-type", "text/html")], "gzip"),
        (200, &[("content-type", "text/html"), ("content-length", "99")], ""),
        (200, &[("content-type", "text/html"), ("content-encoding", "br")], "br"),
        (200, &[("content-type", "text/html"), ("cache-control", "no-transform")], ""),
        (200, &[("content-type", "image/png")], ""),
        (304, &[("content-type", "text/html")], ""),
        (206, &[("content-type", "text/html"), ("content-range", "bytes 0-1/2")], ""),
    ] {
        let journal = site.journal("GET /page", &[("accept-encoding", "gzip")]);
        let mut fields = fields_of(response);
        let compressor = encode_response(&journal, StatusCode::from_u16(status).expect("a status"), &mut fields);
        assert_eq!(field(&fields, "content-encoding"), coding, "{status} {response:?}");
        assert_eq!(compressor.is_some(), coding == "gzip", "{status} {response:?}");
        if compressor.is_some() {
            assert_eq!(field(&fields, "content-length"), "", "its length is not known");
        }
    }
}

#[test]
fn compressed_response_loses_what_describes_its_bytes() {
    let site = Site::new(COMPRESSED);
    let journal = site.journal("GET /page", &[("accept-encoding", "gzip")]);
    let mut fields = fields_of(&[
        ("content-type", "text/html"),
        ("accept-ranges", "bytes"),
        ("trailer", "digest"),
        ("etag", "\"v1\""),
        ("vary", "Accept-Language, accept-encoding"),
    ]);
    assert!(encode_response(&journal, StatusCode::OK, &mut fields).is_some());
    for (name, value) in
        [("accept-ranges", ""), ("trailer", ""), ("etag", "W/\"v1\""), ("vary", "Accept-Language, accept-encoding")]
    {
        assert_eq!(field(&fields, name), value, "{name}");
    }
}

#[test]
fn route_changes_what_the_origin_sends_and_completes_what_the_gateway_sends() {
    let rules = "classes: [{ name: all }]\nroutes: [{ match: '/**', response_headers: { set: { Cache-Control: public, X-Frame-Options: DENY }, remove: [Server] } }]\n";
    let site = Site::new(rules);
    let journal = site.journal("GET /", &[]);
    let response =
        [("cache-control", "no-store"), ("server", "nginx"), ("connection", "close"), ("x-tidegate-class", "a")];
    let mut of_origin = fields_of(&response);
    prepare_client_response(&journal, StatusCode::OK, &mut of_origin);
    assert_eq!((field(&of_origin, "cache-control"), field(&of_origin, "x-frame-options")), ("public", "DENY"));
    for name in ["server", "connection", "x-tidegate-class"] {
        assert_eq!(field(&of_origin, name), "", "{name}");
    }
    let mut own = fields_of(&[("cache-control", "no-store")]);
    prepare_own_response(&journal, StatusCode::OK, &mut own);
    assert_eq!((field(&own, "cache-control"), field(&own, "x-frame-options")), ("no-store", "DENY"));
}

#[test]
fn limits_of_the_gateway_replace_those_of_the_origin() {
    let site = Site::new(super::QUOTA);
    let journal = site.journal("GET /search", &[]);
    let mut fields = fields_of(&[("ratelimit", "\"origin\";r=1"), ("ratelimit-policy", "\"origin\";q=1")]);
    prepare_client_response(&journal, StatusCode::OK, &mut fields);
    assert_eq!(field(&fields, "ratelimit"), "\"api\";r=6;t=60");
    assert!(field(&fields, "ratelimit-policy").starts_with("\"api\";q=10"));
}
