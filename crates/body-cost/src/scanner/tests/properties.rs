//! Any body, in any coding, in any parts, has the cost that `serde_json` finds in the whole body.

use super::reference::{KeyPath, reference_cost};
use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Keys of objects and segments of paths, so few that paths often match.
const KEYS: [&str; 8] = ["a", "b", "0", "1", "a.b", "é😀", "\"\\\n", "usage"];

/// Text of a JSON value, in which keys may be repeated and escaped.
fn json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (0_u64..1000).prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        (0_u64..1_000_000).prop_map(|number| format!("{}.{:03}", number / 1000, number % 1000)),
        (0_u64..100, -3_i32..20).prop_map(|(number, exponent)| format!("{number}E{exponent:+}")),
        (1_i64..100).prop_map(|number| format!("-{number}")),
    ];
    let scalar = prop_oneof![
        6 => number.clone(),
        1 => number.prop_map(|number| format!("\"{number}\"")),
        1 => select(vec!["null", "true", "false", "\"\"", "-0", "\"NaN\""]).prop_map(str::to_owned),
        2 => ("[ -~é\n]{0,12}", any::<bool>()).prop_map(|(text, is_escaped)| quoted(&text, is_escaped)),
        1 => Just(quoted(r#"","usage":{"a":1}]}\"#, false)),
    ];
    let space = || select(vec!["", "", "", " ", "\n", "\r\n\t"]);
    scalar.prop_recursive(5, 40, 5, move |inner| {
        let element = (space(), inner, space()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let key = (space(), select(&KEYS[..]), any::<bool>(), space())
            .prop_map(|(before, key, is_escaped, after)| format!("{before}{}{after}", quoted(key, is_escaped)));
        let member = (key, element.clone()).prop_map(|(key, value)| format!("{key}:{value}"));
        prop_oneof![
            1 => prop::collection::vec(element, 0..4).prop_map(|elements| format!("[{}]", elements.join(","))),
            3 => prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// Returns a JSON string, with all characters escaped as UTF-16 or with few.
fn quoted(text: &str, is_escaped: bool) -> String {
    if !is_escaped {
        return serde_json::to_string(text).expect("string");
    }
    let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{escaped}\"")
}

fn key_paths() -> impl Strategy<Value = Vec<KeyPath>> {
    let keys = prop::collection::vec(select(&KEYS[..]).prop_map(str::to_owned), 1..4);
    prop::collection::vec((keys, select(vec![0, 1, 250, 1000, 7000])), 1..5)
}

fn cost_paths(paths: &[KeyPath]) -> CostPaths {
    let segment = |key: &String| key.replace('\\', r"\\").replace('.', r"\.");
    let path = |(keys, weight_milli): &KeyPath| WeightedPath {
        path: keys.iter().map(segment).collect::<Vec<_>>().join(".").parse().expect("path"),
        weight_milli: *weight_milli,
    };
    CostPaths::new(paths.iter().map(path).collect()).expect("paths")
}

/// Text of an event stream, with comments, other fields and data that is not JSON.
fn event_stream() -> impl Strategy<Value = String> {
    let data = prop_oneof![
        8 => json(),
        1 => (json(), any::<Index>()).prop_map(|(text, at)| {
            let length = at.index(text.chars().count() + 1);
            text.chars().take(length).collect()
        }),
        1 => select(vec!["[DONE]", "", "nothing", "{\"a\":1}}", "\u{feff}1"]).prop_map(str::to_owned),
    ];
    let other = select(vec!["", ": x\n", "event: x\n", "id\n", "data\n", "\n", "datax: 1\n", "data :1\n"]);
    let event = (other.clone(), data, any::<bool>(), other, select(vec!["\n", "\n", "\n", "", "\n\n"]));
    let event = event.prop_map(|(before, data, has_space, after, end)| {
        let space = if has_space { " " } else { "" };
        let lines: String = data.split(['\n', '\r']).map(|line| format!("data:{space}{line}\n")).collect();
        format!("{before}{lines}{after}{end}")
    });
    let bom = select(vec!["", "", "\u{feff}"]);
    (bom, prop::collection::vec(event, 0..9), select(vec!["\n", "\r\n", "\r"]))
        .prop_map(|(bom, events, line_end)| format!("{bom}{}", events.concat().replace('\n', line_end)))
}

fn lines() -> impl Strategy<Value = String> {
    let line = prop_oneof![6 => json(), 1 => select(vec!["", "no JSON", "{\"a\":1"]).prop_map(str::to_owned)];
    (prop::collection::vec(line, 0..9), select(vec!["\n", "\r\n"]), any::<bool>()).prop_map(
        |(lines, line_end, ends)| {
            let lines: Vec<_> = lines.iter().map(|line| line.replace(['\n', '\r'], " ")).collect();
            format!("{}{}", lines.join(line_end), if ends { line_end } else { "" })
        },
    )
}

fn body() -> impl Strategy<Value = (BodyForm, String)> {
    prop_oneof![
        json().prop_map(|body| (BodyForm::Json, body)),
        event_stream().prop_map(|body| (BodyForm::EventStream, body)),
        lines().prop_map(|body| (BodyForm::Lines, body)),
    ]
}

/// Returns the cost in a body that arrives in parts between the `cuts`.
fn cost_with_cuts(paths: &CostPaths, form: BodyForm, coding: &str, body: &[u8], cuts: &[Index]) -> FoundCost {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    ends.push(body.len());
    ends.sort_unstable();
    let (mut scanner, mut start) = (scanner(paths, form, coding), 0);
    for end in ends {
        scanner.push(&body[start..end]);
        start = end;
    }
    scanner.finish()
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}

proptest! {
    #[test]
    fn the_cost_is_that_of_the_reference(
        (form, body) in body(),
        paths in key_paths(),
        coding in select(&CODINGS[..]),
        cuts in cuts(),
    ) {
        let expected = reference_cost(&paths, form, body.as_bytes());
        let encoded = encode(coding, body.as_bytes());
        prop_assert_eq!(cost_with_cuts(&cost_paths(&paths), form, coding, &encoded, &cuts), expected);
    }

    #[test]
    fn the_cost_so_far_is_that_of_the_complete_events(
        stream in event_stream(),
        paths in key_paths(),
        length in any::<Index>(),
    ) {
        let bytes = &stream.as_bytes()[..length.index(stream.len() + 1)];
        let mut scanner = scanner(&cost_paths(&paths), BodyForm::EventStream, "");
        scanner.push(bytes);
        prop_assert_eq!(scanner.found(), reference_cost(&paths, BodyForm::EventStream, bytes));
    }

    #[test]
    fn the_parts_of_any_bytes_do_not_matter(
        form in select(vec![BodyForm::Json, BodyForm::EventStream, BodyForm::Lines]),
        pieces in prop::collection::vec(select(vec![
            "{", "}", "[", "]", "\"", ":", ",", "\\", "\\u", "d83d", "\"a\"", "\"a\":", "1", "-", ".5", "e9", "null", "true",
            "\n", "\r", "data:", " ", "é", "\u{feff}",
        ]), 0..40),
        paths in key_paths(),
        cuts in cuts(),
    ) {
        let (body, paths) = (pieces.concat(), cost_paths(&paths));
        prop_assert_eq!(cost_with_cuts(&paths, form, "", body.as_bytes(), &cuts), cost(&paths, form, body.as_bytes()));
    }

    #[test]
    fn damaged_coded_bodies_do_not_panic(
        (form, body) in body(),
        coding in select(&CODINGS[..]),
        damages in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cuts in cuts(),
    ) {
        let mut encoded = encode(coding, body.as_bytes());
        for (at, byte) in damages.into_iter().filter(|_| !body.is_empty()) {
            let at = at.index(encoded.len());
            encoded[at] ^= byte;
        }
        cost_with_cuts(&paths(&[("a.b", 1), ("0", 1)]), form, coding, &encoded, &cuts);
    }

    #[test]
    fn any_bytes_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        coding in select(&CODINGS[..]),
        form in select(vec![BodyForm::Json, BodyForm::EventStream, BodyForm::Lines]),
        cuts in cuts(),
    ) {
        cost_with_cuts(&paths(&[("a.b", 1), ("0", 1)]), form, coding, &bytes, &cuts);
    }
}
