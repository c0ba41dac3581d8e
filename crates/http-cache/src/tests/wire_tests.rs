//! Forms of the wire: `Vary`, codings, conditions, ranges, `Cache-Status`, and the fields of a fetch.

use super::*;

#[test]
fn accepted_codings_are_three_cases() {
    for (value, expected) in [
        ("gzip, deflate, br, zstd", AcceptedCodings::Brotli),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", AcceptedCodings::Brotli),
        ("*", AcceptedCodings::Brotli),
        ("gzip, deflate", AcceptedCodings::Gzip),
        ("GZIP;q=0.5", AcceptedCodings::Gzip),
        ("br;q=0, *", AcceptedCodings::Gzip),
        ("br", AcceptedCodings::Identity),
        ("gzip;q=0, br", AcceptedCodings::Identity),
        ("gzip; q=0.000", AcceptedCodings::Identity),
        ("identity", AcceptedCodings::Identity),
        ("", AcceptedCodings::Identity),
    ] {
        assert_eq!(AcceptedCodings::read(&[("accept-encoding", value)]), expected, "{value}");
    }
}

#[test]
fn vary_and_the_coding_select_a_copy() {
    let read = |fields: &[(&str, &str)], accepted: AcceptedCodings| {
        SelectingFields::read(&fields, accepted.is_widest()).map(|fields| fields.names().collect::<Vec<_>>().join(" "))
    };
    let widest = AcceptedCodings::Brotli;
    assert_eq!(read(&[], widest).as_deref(), Some(""));
    assert_eq!(read(&[("vary", "Foo, bar"), ("Vary", "foo")], widest).as_deref(), Some("bar foo"));
    assert_eq!(read(&[("vary", "Accept-Encoding")], widest).as_deref(), Some(""), "the origin had the choice");
    assert_eq!(read(&[("vary", "Accept-Encoding")], AcceptedCodings::Gzip).as_deref(), Some("accept-encoding"));
    assert_eq!(read(&[("content-encoding", "gzip")], widest).as_deref(), Some("accept-encoding"));
    assert_eq!(read(&[("content-encoding", "identity")], widest).as_deref(), Some(""));
    for invalid in ["*", "foo, *", "fo o", "f\u{f6}"] {
        assert_eq!(read(&[("vary", invalid)], widest), None, "{invalid}");
    }
    let many = (0..17).map(|number| format!("a{number}")).collect::<Vec<_>>().join(",");
    assert_eq!(read(&[("vary", &many)], widest), None);
}

#[test]
fn equal_values_in_other_spelling_select_the_same_copy() {
    let value = |fields: &[(&str, &str)], name| {
        normalized_value(&fields, name).map(|value| String::from_utf8(value).expect("text"))
    };
    assert_eq!(value(&[("Foo", " 1,2 "), ("foo", "3")], "foo").as_deref(), Some("1,2,3"));
    assert_eq!(value(&[("foo", "\"1, 2\" ,3")], "foo").as_deref(), Some("\"1, 2\",3"));
    assert_eq!(value(&[("accept-language", "de-DE, EN; q=0.5")], "accept-language").as_deref(), Some("de-de,en;q=0.5"));
    assert_eq!(value(&[], "foo"), None);
    assert_eq!(value(&[("foo", "")], "foo").as_deref(), Some(""), "empty is not absent");
}

#[test]
fn conditions_of_clients_are_answered_from_the_copy() {
    let stored = [("etag", "W/\"a\""), ("last-modified", DATE)];
    let is_not_modified = |request: &[(&str, &str)]| validation::is_not_modified(&request, &stored);
    for request in [
        &[("if-none-match", "\"a\"")][..],
        &[("if-none-match", "\"b\", W/\"a\"")],
        &[("if-none-match", "*")],
        &[("if-modified-since", DATE)],
        &[("if-modified-since", "Tuesday, 24-Nov-26 12:00:00 GMT")],
    ] {
        assert!(is_not_modified(request), "{request:?}");
    }
    for request in [
        &[][..],
        &[("if-none-match", "\"b\""), ("if-modified-since", DATE)],
        &[("if-none-match", "a")],
        &[("if-modified-since", "Tue, 24 Nov 2026 11:59:59 GMT")],
        &[("if-modified-since", "now")],
    ] {
        assert!(!is_not_modified(request), "{request:?}");
    }
    assert!(validation::has_origin_condition(&[("If-Match", "*")]));
}

#[test]
fn part_of_a_copy_needs_a_strong_condition() {
    let stored = [("etag", "\"a\""), ("last-modified", DATE)];
    let allows = |value: &str| validation::allows_range(&[("if-range", value)], &stored);
    assert!(validation::allows_range(&[("range", "bytes=0-1")], &stored));
    assert!(allows("\"a\"") && allows(DATE));
    for value in ["\"b\"", "W/\"a\"", "Tue, 24 Nov 2026 11:59:59 GMT", "a", "\"a\", \"b\""] {
        assert!(!allows(value), "{value}");
    }
}

#[test]
fn one_range_is_cut_from_a_body() {
    let part = |first, last| RequestedRange::Part { first, last };
    for (value, expected) in [
        ("bytes=0-0", part(0, 0)),
        ("Bytes = 2-", part(2, 9)),
        ("bytes=2-999", part(2, 9)),
        ("bytes=-3", part(7, 9)),
        ("bytes=-99", part(0, 9)),
        ("bytes=, 0-4 ,,", part(0, 4)),
        ("bytes=,", RequestedRange::Whole),
        ("bytes=10-", RequestedRange::Unsatisfiable),
        ("bytes=-0", RequestedRange::Unsatisfiable),
        ("bytes=0-1,3-4", RequestedRange::Whole),
        ("bytes=3-1", RequestedRange::Whole),
        ("bytes=-", RequestedRange::Whole),
        ("bytes=+1-2", RequestedRange::Whole),
        ("bytes=99999999999999999999-", RequestedRange::Whole),
        ("items=0-1", RequestedRange::Whole),
    ] {
        assert_eq!(requested_range(value.as_bytes(), 10), expected, "{value}");
    }
    assert_eq!(requested_range(b"bytes=0-", 0), RequestedRange::Unsatisfiable);
}

#[test]
fn fields_are_not_sent_or_part_of_the_key() {
    for name in ["x-forwarded-scheme", "x-original-url", "x-http-method-override", "x-host", "origin", "foo"] {
        assert_eq!(fetch_field(name, b"evil", false), FetchField::KeyedByValue, "{name}");
        assert_eq!(fetch_field(name, b"evil", true), FetchField::Sent, "{name}");
    }
    for name in ["user-agent", "accept-language", "sec-fetch-mode", "sec-ch-ua", "referer", "cf-ray", "if-none-match"] {
        assert_eq!(fetch_field(name, b"evil", false), FetchField::Dropped, "{name}");
    }
    assert_eq!(fetch_field("accept", b"text/html,image/avif,*/*;q=0.8", false), FetchField::Dropped);
    assert_eq!(fetch_field("accept", b"application/json, */* ;q=0.1", false), FetchField::Dropped);
    assert_eq!(fetch_field("accept", b"application/json", false), FetchField::KeyedByValue);
    for name in ["host", "x-forwarded-host", "x-forwarded-proto"] {
        assert_eq!(fetch_field(name, b"of the gateway", false), FetchField::Sent, "{name}");
    }
    for name in ["forwarded", "x-forwarded-for", "x-forwarded-port", "x-real-ip"] {
        assert_eq!(fetch_field(name, b"of one client", false), FetchField::Dropped, "{name}");
        assert_eq!(fetch_field(name, b"of one client", true), FetchField::Sent, "{name}");
    }
}

#[test]
fn cache_status_has_the_form_of_the_rfc() {
    for (status, expected) in [
        (CacheStatus::Hit { ttl: 376, detail: None }, "tidegate; hit; ttl=376"),
        (CacheStatus::Hit { ttl: -3600, detail: Some(HitDetail::Refused) }, "tidegate; hit; ttl=-3600; detail=refused"),
        (CacheStatus::Hit { ttl: -5, detail: Some(HitDetail::Error) }, "tidegate; hit; ttl=-5; detail=error"),
        (CacheStatus::Hit { ttl: -5, detail: Some(HitDetail::Crowd) }, "tidegate; hit; ttl=-5; detail=crowd"),
        (
            CacheStatus::Forward { reason: ForwardReason::UriMiss, status: None, stored: Some(Ok(())) },
            "tidegate; fwd=uri-miss; stored",
        ),
        (
            CacheStatus::Forward {
                reason: ForwardReason::UriMiss,
                status: None,
                stored: Some(Err(Unstorable::NoLifetime)),
            },
            "tidegate; fwd=uri-miss; detail=no-lifetime",
        ),
        (CacheStatus::Forward { reason: ForwardReason::Bypass, status: None, stored: None }, "tidegate; fwd=bypass"),
        (
            CacheStatus::Forward { reason: ForwardReason::Stale, status: Some(304), stored: Some(Ok(())) },
            "tidegate; fwd=stale; fwd-status=304; stored",
        ),
        (CacheStatus::Collapsed { reason: ForwardReason::UriMiss }, "tidegate; fwd=uri-miss; collapsed"),
    ] {
        assert_eq!(status.to_string(), expected);
        assert!(sfv::Parser::new(expected).parse::<sfv::List>().is_ok());
    }
}
