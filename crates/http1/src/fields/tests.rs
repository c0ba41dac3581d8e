use super::super::head::HeadReader;
use super::super::{HeadLimits, Malformed, RequestHead};
use super::*;
use bytes::BytesMut;
use proptest::prelude::*;

fn read_head(text: &str) -> RequestHead {
    let mut buffer = BytesMut::from(format!("GET / HTTP/1.1\r\n{text}\r\n").as_str());
    let mut reader = HeadReader::new(HeadLimits { size: 64 * 1024, fields: 100 });
    reader.request(&mut buffer).expect("valid head").expect("complete head").0
}

fn serialized(fields: &Fields) -> String {
    let mut out = Vec::new();
    fields.write(&mut out, |_| true);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn unmodified_fields_are_written_verbatim() {
    let text = "Host: a\r\nX-Odd-Spelling: 1\r\nAccept: */*\r\n";
    assert_eq!(serialized(&read_head(text).fields), text);
}

#[test]
fn unusual_field_lines_are_normalized() {
    let fields = read_head("a:b\r\nc: \t d \r\ne:\r\n").fields;
    assert_eq!(serialized(&fields), "a: b\r\nc: d\r\ne: \r\n");
    let mut response = BytesMut::from("HTTP/1.1 200 OK\na: b\nc:d\n\n");
    let mut reader = HeadReader::new(HeadLimits { size: 64 * 1024, fields: 100 });
    let head = reader.response(&mut response).expect("LF only is valid from an origin").expect("complete head");
    assert_eq!(serialized(&head.fields), "a: b\r\nc: d\r\n");
}

#[test]
fn removed_and_replaced_fields_are_not_written() {
    let mut fields = read_head("Host: a\r\nAccept: 1\r\nx-a: 2\r\naccept: 3\r\nx-b: 4\r\n").fields;
    fields.insert(Name::Accept, b"5");
    fields.retain(|field| field.text != b"x-b");
    fields.append(Name::Via, b"6");
    assert_eq!(serialized(&fields), "Host: a\r\nx-a: 2\r\naccept: 5\r\nvia: 6\r\n");
    assert_eq!((fields.len(), fields.get(Name::Accept)), (4, Some(&b"5"[..])));
}

#[test]
fn fields_are_found_in_any_case() {
    let fields = read_head("X-Api-Cost: 1\r\nUSER-AGENT: b\r\nx-api-cost: 2\r\n").fields;
    assert_eq!(fields.get_all_by_text("x-api-cost").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(fields.get_all_by_text("user-agent").collect::<Vec<_>>(), [b"b"]);
    assert!(fields.contains(Name::UserAgent) && fields.get_all_by_text("x-api").next().is_none());
}

#[test]
fn values_that_break_a_line_are_rejected() {
    let mut fields = Fields::new();
    fields.append(Name::Class, b"a\r\nhost: b");
    fields.append(Name::Other, b"nameless");
    fields.append_with(Name::Via, |_| Err(fmt::Error));
    assert_eq!((fields.len(), serialized(&fields).as_str()), (0, ""));
}

fn field_lines() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof!["[A-Za-z-]{1,12}", Just("Host".to_owned()), Just("accept".to_owned())];
    prop::collection::vec((name, "([!-~]([ -~]{0,12}[!-~])?)?"), 0..20)
}

proptest! {
    /// A client head is rejected if any one of its lines ends with LF only. Empty lines before it are permitted.
    #[test]
    fn single_bare_lf_rejects_the_head(
        blank in "(\r\n){0,2}",
        lines in field_lines(),
        at in any::<prop::sample::Index>(),
    ) {
        let fields: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("{blank}GET / HTTP/1.1\r\n{fields}\r\n");
        let ends: Vec<usize> = text.match_indices('\r').map(|(position, _)| position).collect();
        let mut buffer = BytesMut::from(text.as_bytes());
        let _ = buffer.split_off(ends[at.index(ends.len())]);
        buffer.extend_from_slice(&text.as_bytes()[ends[at.index(ends.len())] + 1..]);
        let result = HeadReader::new(HeadLimits { size: 64 * 1024, fields: 100 }).request(&mut buffer);
        prop_assert!(matches!(result, Err(Malformed::BareLf)), "{:?}", result.map(|head| head.is_some()));
    }

    /// Conversion to a map and back preserves the fields.
    #[test]
    fn fields_and_header_maps_are_equivalent(lines in field_lines()) {
        let text: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        prop_assume!(!lines.iter().any(|(name, _)| name.eq_ignore_ascii_case("te")));
        let fields = read_head(&text).fields;
        let map = fields.to_map();
        prop_assert_eq!(map.len(), lines.len());
        prop_assert_eq!(&Fields::from(&map).to_map(), &map);
        for (name, _) in &lines {
            let field_values: Vec<&[u8]> = fields.get_all_by_text(name).collect();
            let map_values: Vec<&[u8]> = map.get_all(name.as_str()).iter().map(HeaderValue::as_bytes).collect();
            prop_assert_eq!(field_values, map_values);
        }
    }

    /// Writing yields the retained lines, whichever were removed.
    #[test]
    fn written_lines_are_the_retained_ones(lines in field_lines(), mask in any::<u32>()) {
        let text: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut fields = read_head(&text).fields;
        let mut index = 0;
        fields.retain(|_| {
            index += 1;
            mask >> (index - 1) & 1 == 1
        });
        let retained = lines.iter().enumerate().filter(|(index, _)| mask >> index & 1 == 1);
        let expected: String = retained.map(|(_, (name, value))| format!("{name}: {value}\r\n")).collect();
        prop_assert_eq!(serialized(&fields), expected);
    }
}

#[test]
fn lines_are_read_as_written() {
    let fields: Fields =
        [("Content-Type", "text/html"), ("x-empty", ""), ("Age", "5"), ("Vary", "a, b")].into_iter().collect();
    let lines = fields.to_lines(|field| field.name != Name::Age);
    assert_eq!(lines, b"Content-Type: text/html\r\nx-empty: \r\nVary: a, b\r\n");
    let read = Fields::from_lines(lines.into()).expect("valid lines");
    assert_eq!(read, [("content-type", "text/html"), ("X-Empty", ""), ("vary", "a, b")].into_iter().collect());
    for invalid in ["a", "a: b", "a: b\n", "a:b\r\n", ": b\r\n", "a: b\r\nc", "a\r\n: b\r\n", "a: \u{1}\r\n"] {
        assert!(Fields::from_lines(invalid.as_bytes().to_vec().into()).is_none(), "{invalid:?}");
    }
}

proptest! {
    /// A block yields the fields that it was made from, however long they are.
    #[test]
    fn block_has_the_fields_of_its_lines(lines in field_lines(), padding in prop_oneof![Just(0), 60_000..70_000_usize]) {
        let mut fields: Fields = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fields.append_text("x-padding", &vec![b'a'; padding]);
        let text = fields.to_lines(|_| true);
        let block = FieldBlock::parse(text.clone().into()).expect("valid lines");
        prop_assert_eq!(block.text(), &text);
        prop_assert_eq!(&block.to_fields(), &fields);
        prop_assert_eq!(serialized(&block.to_fields()), String::from_utf8(text).expect("ASCII"));
        let (names, expected): (Vec<_>, Vec<_>) = (block.to_fields().names().collect(), fields.names().collect());
        prop_assert_eq!(names, expected);
    }
}
