//! Bodies that are made to confuse or to exhaust the scanner.

use super::*;

#[test]
fn any_depth_takes_the_same_memory() {
    let paths = paths(&[("usage.total_tokens", 1), ("a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a", 1), ("0.0.0", 1)]);
    let depth = 1_000_000;
    for (opening, closing) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"x":"#, "}]")] {
        let deep = format!("{}1{}", opening.repeat(depth), closing.repeat(depth));
        let body = format!(r#"{{"x":{deep},"usage":{{"total_tokens":5}},"y":{deep}}}"#);
        assert_eq!(cost(&paths, BodyForm::Json, body.as_bytes()), units(5));
        assert_eq!(cost(&paths, BodyForm::Json, &body.as_bytes()[..body.len() - 1]), FoundCost::Malformed);
        assert_ne!(cost(&paths, BodyForm::Json, deep.as_bytes()), FoundCost::Malformed, "{opening}");
    }
    assert!(size_of::<CostScanner>() <= 8 * 1024, "{}", size_of::<CostScanner>());
}

#[test]
fn brackets_must_match_where_a_path_leads() {
    let paths = paths(&[("a.b", 1), ("1", 1)]);
    for body in
        ["}", "]", "{]", "[}", r#"{"a":{"b":1]}"#, r#"[1,2}"#, "[1,]", "{,}", r#"{"a":{"b":1,}}"#, "1 2", "{} {}"]
    {
        assert_cost(&paths, BodyForm::Json, body, FoundCost::Malformed);
    }
    for body in
        [r#"{"a" 1}"#, r#"{"a":}"#, r#"{a:1}"#, r#"{"a":1 "b":2}"#, r#"{"\q":1}"#, r#"{"a":'1'}"#, "tru", "<html>"]
    {
        assert_cost(&paths, BodyForm::Json, body, FoundCost::Malformed);
    }
}

#[test]
fn surrogates_without_their_other_half_are_no_key() {
    let paths = paths(&[("a", 1)]);
    for key in [r"\ud800", r"\udc00", r"\ud800\ud800", r"\ud800a", r"a\udfff"] {
        let body = format!(r#"{{"a":1,"{key}":2,"x":"{key}"}}"#);
        assert_cost(&paths, BodyForm::Json, &body, units(1));
        assert_cost(&paths, BodyForm::Json, &format!(r#"{{"a":"{key}"}}"#), FoundCost::Invalid);
    }
}

#[test]
fn huge_keys_and_texts_are_skipped() {
    let paths = paths(&[("a", 1)]);
    let huge = "a".repeat(1 << 20);
    let body = format!(r#"{{"{huge}":2,"a":1,"{huge}\u0061\"":"{huge}"}}"#);
    assert_eq!(cost(&paths, BodyForm::Json, body.as_bytes()), units(1));
    assert_eq!(cost(&paths, BodyForm::Json, format!(r#"{{"a":"{huge}"}}"#).as_bytes()), FoundCost::Invalid);
    let number = format!(r#"{{"a":1{zeros}e-{length}}}"#, zeros = "0".repeat(1 << 20), length = 1 << 20);
    assert_eq!(cost(&paths, BodyForm::Json, number.as_bytes()), units(1));
}

#[test]
fn truncated_documents_are_malformed() {
    let paths = paths(&[("usage.total_tokens", 1)]);
    let body = r#"{"a":["\"\u00e9",{"b":null}],"usage":{"total_tokens":12},"c":"\\"}"#.as_bytes();
    for length in 1..body.len() {
        assert_eq!(cost(&paths, BodyForm::Json, &body[..length]), FoundCost::Malformed, "{length}");
    }
    assert_eq!(cost(&paths, BodyForm::Json, body), units(12));
}

#[test]
fn truncated_events_and_lines_do_not_count() {
    let paths = paths(&[("n", 1)]);
    let events: Vec<_> = (1..9).map(|number| format!("id: 1\r\ndata: {{\"n\":{number}}}\r\n\r\n")).collect();
    let lines: Vec<_> = (1..9).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    // The CR of the empty line ends an event, the closing brace a line.
    for (parts, form, unneeded) in [(events, BodyForm::EventStream, 1), (lines, BodyForm::Lines, 1)] {
        let (body, part_length) = (parts.concat(), parts[0].len());
        for length in 0..body.len() {
            let expected = match (length + unneeded) / part_length {
                0 => FoundCost::Missing,
                complete => units(complete as u64),
            };
            assert_eq!(cost(&paths, form, &body.as_bytes()[..length]), expected, "{form:?} {length}");
        }
    }
}

#[test]
fn truncated_coded_bodies_do_not_panic() {
    let paths = paths(&[("a", 1)]);
    for coding in CODINGS {
        let body = encode(coding, br#"{"x":"some text, some text, some text","a":1}"#);
        for length in 0..body.len() {
            let found = cost_in_parts(&paths, BodyForm::Json, coding, &body[..length], 5);
            assert_ne!(found, FoundCost::Invalid, "{coding} {length}");
        }
        assert_eq!(cost_in_parts(&paths, BodyForm::Json, coding, &body, 5), units(1), "{coding}");
    }
}

#[test]
fn bodies_in_another_coding_are_malformed() {
    let paths = paths(&[("a", 1)]);
    let text = br#"{"a":1,"x":"some text, some text"}"#;
    for coding in CODINGS {
        for actual in CODINGS.into_iter().filter(|actual| *actual != coding) {
            let found = cost_in_parts(&paths, BodyForm::Json, coding, &encode(actual, text), usize::MAX);
            // Some bytes begin a valid Brotli stream that ends early.
            let is_refused = found == FoundCost::Malformed || (coding == "br" && found == FoundCost::Missing);
            assert!(is_refused, "{actual} as {coding}: {found:?}");
        }
    }
    // A preset dictionary, which HTTP does not have.
    assert_eq!(cost_in_parts(&paths, BodyForm::Json, "deflate", b"\x78\xbb\0\0\0\x01abc", 2), FoundCost::Malformed);
}

#[test]
fn members_and_frames_are_one_body_and_later_bytes_are_ignored() {
    let paths = paths(&[("a", 1)]);
    for coding in ["gzip", "zstd"] {
        let body = [encode(coding, br#"{"a":"#), encode(coding, b"7}")].concat();
        for part in [1, 3, usize::MAX] {
            assert_eq!(cost_in_parts(&paths, BodyForm::Json, coding, &body, part), units(7), "{coding}");
        }
    }
    for coding in ["deflate", "br"] {
        let body = [encode(coding, br#"{"a":7}"#), b"junk".to_vec()].concat();
        for part in [1, 3, usize::MAX] {
            assert_eq!(cost_in_parts(&paths, BodyForm::Json, coding, &body, part), units(7), "{coding}");
        }
    }
}

#[test]
fn windows_beyond_those_of_http_are_malformed() {
    let paths = paths(&[("a", 1)]);
    let encoded = |window_log| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("level");
        encoder.window_log(window_log).expect("window");
        encoder.write_all(br#"{"a":1}"#).and_then(|()| encoder.finish()).expect("in memory")
    };
    assert_eq!(cost_in_parts(&paths, BodyForm::Json, "zstd", &encoded(23), usize::MAX), units(1));
    assert_eq!(cost_in_parts(&paths, BodyForm::Json, "zstd", &encoded(24), usize::MAX), FoundCost::Malformed);
}

#[test]
fn coded_bodies_beyond_the_limit_are_malformed() {
    let paths = paths(&[("a", 1)]);
    let bomb = [br#"{"a":1}"#.to_vec(), vec![b' '; 1 << 20]].concat();
    for coding in CODINGS {
        let encoded = encode(coding, &bomb);
        let beyond = if coding == "identity" { units(1) } else { FoundCost::Malformed };
        for (limit_exceeded_by, expected) in [(0, units(1)), (1, beyond)] {
            let mut scanner = scanner(&paths, BodyForm::Json, coding);
            scanner.coded_length = MAX_DECODED;
            scanner.body.length = MAX_DECODED - bomb.len() as u64 + limit_exceeded_by;
            scanner.push(&encoded);
            assert_eq!(scanner.found(), expected, "{coding}");
            assert_eq!(scanner.finish(), expected, "{coding}");
        }
    }
}

#[test]
fn coded_repetition_is_given_up_and_its_window_freed() {
    let paths = paths(&[("usage.total_tokens", 1)]);
    let body = format!(r#"{{"x":"{}","usage":{{"total_tokens":5}}}}"#, " ".repeat(8 << 20));
    for coding in &CODINGS[1..] {
        let coded = encode(coding, body.as_bytes());
        assert!(coded.len() < 100 * 1024, "{coding}: {}", coded.len());
        let mut scanner = scanner(&paths, BodyForm::Json, coding);
        coded.chunks(coded.len() / 4).for_each(|chunk| scanner.push(chunk));
        assert_eq!((scanner.decoder_memory(), scanner.finish()), (0, FoundCost::Malformed), "{coding}");
    }
}

#[test]
fn memory_of_a_decoder_grows_with_its_window() {
    let paths = paths(&[("a", 1)]);
    for (coding, max_window) in [("gzip", 32 << 10), ("deflate", 32 << 10), ("br", 16 << 20), ("zstd", 8 << 20)] {
        let mut scanner = scanner(&paths, BodyForm::Lines, coding);
        let empty = scanner.decoder_memory();
        assert!((1..=256 * 1024).contains(&empty), "{coding}: {empty}");
        let lines: String = (0..200_000).map(|number| format!("{{\"a\":{}}}\n", number * 7919)).collect();
        let coded = encode(coding, lines.as_bytes());
        scanner.push(&coded[..coded.len() / 2]);
        let grown = scanner.decoder_memory() - empty;
        assert!((1..=max_window).contains(&grown), "{coding}: {grown}");
    }
}
