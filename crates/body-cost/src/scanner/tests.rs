//! Bodies of model APIs and hostile ones, in all codings.

use super::*;
use crate::path_set::WeightedPath;
use std::io::Write;

mod hostile;
mod model_apis;
mod properties;
mod reference;

const CODINGS: [&str; 5] = ["identity", "gzip", "deflate", "br", "zstd"];

/// Returns paths with weights of whole units.
fn paths(weighted: &[(&str, u64)]) -> CostPaths {
    let path = |&(path, weight): &(&str, u64)| WeightedPath {
        path: path.parse().unwrap_or_else(|error| panic!("{path}: {error}")),
        weight_milli: weight * 1000,
    };
    CostPaths::new(weighted.iter().map(path).collect()).expect("some paths")
}

fn scanner(paths: &CostPaths, form: BodyForm, coding: &str) -> CostScanner {
    CostScanner::new(paths.clone(), form, coding.as_bytes()).expect("known coding")
}

/// Returns the cost in a body that arrives in parts of `part` bytes.
fn cost_in_parts(paths: &CostPaths, form: BodyForm, coding: &str, body: &[u8], part: usize) -> FoundCost {
    let mut scanner = scanner(paths, form, coding);
    body.chunks(part).for_each(|chunk| scanner.push(chunk));
    scanner.finish()
}

fn cost(paths: &CostPaths, form: BodyForm, body: &[u8]) -> FoundCost {
    cost_in_parts(paths, form, "", body, usize::MAX)
}

/// Cost of `units` whole units.
fn units(units: u64) -> FoundCost {
    FoundCost::Amount { milli: units * 1000 }
}

fn encode(coding: &str, text: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::fast();
    match coding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).and_then(|()| encoder.finish()).expect("in memory")
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).and_then(|()| encoder.finish()).expect("in memory")
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 18);
            encoder.write_all(text).expect("in memory");
            encoder.into_inner()
        }
        "zstd" => zstd::stream::encode_all(text, 1).expect("in memory"),
        _ => text.to_vec(),
    }
}

/// Asserts the cost of a body in all codings, in parts of several lengths.
fn assert_cost(paths: &CostPaths, form: BodyForm, body: &str, expected: FoundCost) {
    for coding in CODINGS {
        let encoded = encode(coding, body.as_bytes());
        for part in [1, 2, 3, 7, 64, usize::MAX] {
            let found = cost_in_parts(paths, form, coding, &encoded, part);
            assert_eq!(found, expected, "{coding} in parts of {part}: {body}");
        }
    }
}

#[test]
fn unknown_codings_are_not_scanned() {
    let paths = paths(&[("a", 1)]);
    let is_scanned = |coding: &str| CostScanner::new(paths.clone(), BodyForm::Json, coding.as_bytes()).is_some();
    for coding in ["", "identity", " GZIP ", "x-gzip", "deflate", "BR", "zstd"] {
        assert!(is_scanned(coding), "{coding}");
    }
    for coding in ["gzip, br", "compress", "dcb", "gzip;q=1"] {
        assert!(!is_scanned(coding), "{coding}");
    }
}

#[test]
fn values_are_numbers_or_texts_of_digits() {
    let paths = paths(&[("a", 1)]);
    for (value, expected) in [
        ("12", units(12)),
        ("1.5", FoundCost::Amount { milli: 1500 }),
        ("0.0001", FoundCost::Amount { milli: 1 }),
        ("0", units(0)),
        ("-0", units(0)),
        ("1e3", units(1000)),
        (r#""123""#, units(123)),
        (r#""\u0031\u0032""#, units(12)),
        ("18446744073709551.615", FoundCost::Amount { milli: u64::MAX }),
        ("18446744073709551.616", FoundCost::Invalid),
        ("1e400", FoundCost::Invalid),
        ("-1", FoundCost::Invalid),
        (r#""-1""#, FoundCost::Invalid),
        (r#""NaN""#, FoundCost::Invalid),
        (r#""""#, FoundCost::Invalid),
        (r#"" 1""#, FoundCost::Invalid),
        ("true", FoundCost::Invalid),
        ("[]", FoundCost::Invalid),
        (r#"{"b":1}"#, FoundCost::Invalid),
        ("null", FoundCost::Missing),
        ("NaN", FoundCost::Malformed),
        ("01", FoundCost::Malformed),
        ("1.", FoundCost::Malformed),
        ("nul", FoundCost::Malformed),
        ("nullx", FoundCost::Malformed),
    ] {
        assert_cost(&paths, BodyForm::Json, &format!(r#"{{"x":["a"],"a":{value},"b":2}}"#), expected);
    }
}

#[test]
fn weighted_numbers_add_up_and_round_up() {
    let path = |path: &str, weight_milli| WeightedPath { path: path.parse().expect("path"), weight_milli };
    let paths = CostPaths::new(vec![path("in", 250), path("out", 1), path("more", 3000)]).expect("paths");
    let milli = |body: &str| cost(&paths, BodyForm::Json, body.as_bytes()).milli();
    assert_eq!(milli(r#"{"in":3,"out":7}"#), Some(757));
    assert_eq!(milli(r#"{"out":0.5}"#), Some(1));
    assert_eq!(milli(r#"{"in":null,"more":2}"#), Some(6000));
    assert_eq!(milli(r#"{"in":0.30000000000000004,"out":0}"#), Some(75));
}

#[test]
fn of_repeated_keys_the_last_value_counts() {
    let paths = paths(&[("a.b", 1), ("a.c", 10)]);
    for (body, expected) in [
        (r#"{"a":{"b":1,"b":2}}"#, units(2)),
        (r#"{"a":{"b":1,"c":1},"a":{"b":3}}"#, units(3)),
        (r#"{"a":{"b":1},"a":{}}"#, FoundCost::Missing),
        (r#"{"a":{"b":1},"a":null}"#, FoundCost::Missing),
        (r#"{"a":{"b":1},"\u0061":[]}"#, FoundCost::Missing),
        (r#"{"a":{"b":1,"b":null}}"#, FoundCost::Missing),
        (r#"{"a":{"b":-1,"b":4}}"#, units(4)),
        (r#"{"a":{"b":4,"b":{}}}"#, FoundCost::Invalid),
    ] {
        assert_cost(&paths, BodyForm::Json, body, expected);
    }
}

#[test]
fn arrays_are_entered_by_index_only() {
    let by_key = paths(&[("a.b", 1)]);
    assert_cost(&by_key, BodyForm::Json, r#"{"a":[{"b":1}]}"#, FoundCost::Missing);
    assert_cost(&by_key, BodyForm::Json, r#"[{"a":{"b":1}}]"#, FoundCost::Missing);
    let by_index = paths(&[("a.1.b", 1), ("a.12", 100)]);
    assert_cost(&by_index, BodyForm::Json, r#"{"a":[{"b":1},{"b":2},{"b":3}]}"#, units(2));
    assert_cost(&by_index, BodyForm::Json, r#"{"a":{"1":{"b":4}}}"#, units(4));
    assert_cost(&by_index, BodyForm::Json, r#"{"a":[[],{"x":[1,2]},2,3,4,5,6,7,8,9,10,11,12,[]]}"#, units(1200));
    assert_cost(&paths(&[("1", 1)]), BodyForm::Json, r#"[ 5 , 6 , {} ]"#, units(6));
    assert_cost(&paths(&[("0", 1)]), BodyForm::Json, "[]", FoundCost::Missing);
}

#[test]
fn text_and_other_levels_are_not_mistaken_for_the_number() {
    let paths = paths(&[("usage.total_tokens", 1)]);
    let text = r#""\"usage\":{\"total_tokens\":0}","\\","\\\"usage\":{","}]{[""#;
    let body = format!(
        r#"{{"a":[{text}],"b":{text_b},"usage":{{"x":{{"total_tokens":1}},"total_tokens":7}},"c":[{text}]}}"#,
        text_b = r#"{"usage":{"total_tokens":3}}"#
    );
    assert_cost(&paths, BodyForm::Json, &body, units(7));
    assert_cost(&paths, BodyForm::Json, r#"{"\u0075sage":{"total\u005Ftokens":8}}"#, units(8));
    assert_cost(&paths, BodyForm::Json, r#"{"total_tokens":8,"usage":5}"#, FoundCost::Missing);
}

#[test]
fn bodies_of_a_known_form_may_be_empty() {
    let paths = paths(&[("a", 1)]);
    for form in [BodyForm::Json, BodyForm::EventStream, BodyForm::Lines] {
        for body in ["", " \r\n\n", "\u{feff}"] {
            assert_cost(&paths, form, body, FoundCost::Missing);
        }
    }
}

#[test]
fn a_byte_order_mark_may_come_first() {
    let paths = paths(&[("a", 1)]);
    assert_cost(&paths, BodyForm::Json, "\u{feff}{\"a\":1}", units(1));
    assert_cost(&paths, BodyForm::Lines, "\u{feff}{\"a\":1}\n", units(1));
    assert_cost(&paths, BodyForm::EventStream, "\u{feff}data: {\"a\":1}\n\n", units(1));
    assert_cost(&paths, BodyForm::EventStream, "\u{feff}\u{feff}data: {\"a\":1}\n\n", FoundCost::Missing);
    assert_eq!(cost(&paths, BodyForm::Json, b"\xef\xbb{\"a\":1}"), FoundCost::Malformed);
}

#[test]
fn abandoned_bodies_have_what_was_found_so_far() {
    let paths = paths(&[("a", 1)]);
    let found = |form, body: &str| {
        let mut scanner = scanner(&paths, form, "");
        scanner.push(body.as_bytes());
        scanner.found()
    };
    assert_eq!(found(BodyForm::Json, r#"{"a":1"#), FoundCost::Missing);
    assert_eq!(found(BodyForm::Json, r#"{"a":1,"#), units(1));
    assert_eq!(found(BodyForm::Json, r#"{"a":1,"b":x"#), FoundCost::Malformed);
    assert_eq!(found(BodyForm::EventStream, "data: {\"a\":1}\n\ndata: {\"a\":2}\n"), units(1));
    assert_eq!(found(BodyForm::Lines, "{\"a\":1}\n{\"a\":2}"), units(1));
    for coding in CODINGS {
        let mut scanner = scanner_of_flushed(&paths, coding);
        assert_eq!(scanner.found(), units(3), "{coding}");
        scanner.push(b"");
        assert_eq!(scanner.finish(), units(3), "{coding}");
    }
}

#[test]
fn bytes_behind_the_end_of_a_coded_body_change_nothing() {
    let paths = paths(&[("n", 1)]);
    for coding in ["gzip", "deflate", "br"] {
        for behind in [&b"\0\0\0\0"[..], b"<!-- 12 ms -->", b"\x1f\x8b garbage", b"\x1f"] {
            let body = [&encode(coding, br#"{"n": 7}"#)[..], behind].concat();
            for part in [1, 3, usize::MAX] {
                let found = cost_in_parts(&paths, BodyForm::Json, coding, &body, part);
                assert_eq!(found, units(7), "{coding} {behind:?} in parts of {part}");
            }
        }
    }
    let mut broken = encode("gzip", br#"{"n": 7}"#);
    broken.truncate(12);
    broken.extend(b"\xff\xff\xff\xff\xff\xff\xff\xff");
    assert_eq!(cost_in_parts(&paths, BodyForm::Json, "gzip", &broken, 64), FoundCost::Malformed);
}

/// Returns a scanner of a coded stream that goes on behind a flushed event.
fn scanner_of_flushed(paths: &CostPaths, coding: &str) -> CostScanner {
    let event = b"data: {\"a\":3}\n\n";
    let mut scanner = scanner(paths, BodyForm::EventStream, coding);
    let mut coded = Vec::new();
    let flush = |encoder: &mut dyn Write| encoder.write_all(event).and_then(|()| encoder.flush()).expect("in memory");
    match coding {
        "gzip" => flush(&mut flate2::write::GzEncoder::new(&mut coded, flate2::Compression::fast())),
        "deflate" => flush(&mut flate2::write::ZlibEncoder::new(&mut coded, flate2::Compression::fast())),
        "br" => flush(&mut brotli::CompressorWriter::new(&mut coded, 4096, 4, 18)),
        "zstd" => flush(&mut zstd::stream::write::Encoder::new(&mut coded, 1).expect("level")),
        _ => flush(&mut coded),
    }
    scanner.push(&coded);
    scanner
}

#[test]
fn events_follow_the_format_of_event_streams() {
    let paths = paths(&[("a", 1), ("b", 10)]);
    for (stream, expected) in [
        ("data: {\"a\":1}\n\n", units(1)),
        ("data:{\"a\":1}\r\rdata:{\"b\":1}\r\r", units(11)),
        ("data: {\"a\":1}\r\n\r\ndata: {\"a\":2}\r\n\r\ndata: [DONE]\r\n\r\n", units(2)),
        ("data: {\"a\":1,\ndata: \"b\":2}\n\n", units(21)),
        ("data: {\"a\":1\ndata: 2}\n\n", FoundCost::Missing),
        ("data: {\"a\ndata: \":2}\n\n", FoundCost::Missing),
        ("data: {\"x\":{\"y\ndata: \":2},\"a\":1}\n\n", FoundCost::Missing),
        ("data\ndata:\ndata: {\"a\":1}\ndata\n\n", units(1)),
        (": data\nevent: x\nid: 1\ndata: {\"a\":1}\nretry: 1\n\n", units(1)),
        (":data: {\"a\":1}\n\n", FoundCost::Missing),
        ("dat: {\"a\":1}\n\ndatas: {\"a\":1}\n\nDATA: {\"a\":1}\n\n data: {\"a\":1}\n\n", FoundCost::Missing),
        ("data: {\"a\":1}\n\ndata: {\"a\":2}\n", units(1)),
        ("data: {\"a\":1}\n\ndata: {\"a\":2}", units(1)),
        ("data: {\"a\":1}\n\ndata: {\"a\":2\n\n", units(1)),
        ("data: {\"a\":1}\n\ndata: {\"a\":2} x\n\n", units(1)),
        ("data: {\"a\":1}\n\ndata: {\"a\":null,\"b\":2}\n\n", units(21)),
        ("data: {\"a\":1}\n\ndata: {\"a\":-1}\n\n", FoundCost::Invalid),
        ("data: {\"a\":-1}\n\ndata: {\"a\":1}\n\n", units(1)),
        ("data: 12\n\ndata: \"a\"\n\ndata: null\n\n", FoundCost::Missing),
    ] {
        assert_cost(&paths, BodyForm::EventStream, stream, expected);
    }
}

#[test]
fn lines_count_if_they_are_complete() {
    let paths = paths(&[("a", 1), ("b", 10)]);
    for (body, expected) in [
        ("{\"a\":1}\n{\"b\":1}\n", units(11)),
        ("{\"a\":1}\r\n\r\n{\"a\":2}", units(2)),
        ("{\"a\":1}\nno JSON\n{\"a\":2\n", units(1)),
        ("{\"a\":1}\n{\"a\":2", units(1)),
        ("no JSON\n", FoundCost::Missing),
    ] {
        assert_cost(&paths, BodyForm::Lines, body, expected);
    }
}
