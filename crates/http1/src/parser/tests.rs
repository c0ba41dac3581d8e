//! The parser and `httparse` agree: on what is a head, where it ends and what it has.

use super::*;
use httparse::{EMPTY_HEADER, Status};
use proptest::prelude::*;

const MAX_FIELDS: usize = 32;

/// A start line and the fields after it, as text.
#[derive(Debug, PartialEq)]
struct Head {
    length: usize,
    start: String,
    fields: Vec<(String, Vec<u8>)>,
}

/// `None` for an incomplete head.
type Outcome = std::result::Result<Option<Head>, ()>;

fn parsed(bytes: &[u8], start_line: impl FnOnce(&mut Parser<'_>) -> Result<String>) -> Outcome {
    let mut parser = Parser::new(bytes);
    let parse = |parser: &mut Parser<'_>| {
        let start = start_line(parser)?;
        let mut fields = Vec::new();
        while let Some(line) = parser.field_line()? {
            let field = line.field(bytes);
            assert_eq!(field.name, Name::from_bytes(field.text));
            fields.push((String::from_utf8_lossy(field.text).into_owned(), field.value.to_vec()));
        }
        Ok(Head { length: parser.position(), start, fields })
    };
    match parse(&mut parser) {
        Ok(head) => Ok(Some(head)),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed(_)) => Err(()),
    }
}

fn parsed_request(bytes: &[u8]) -> Outcome {
    parsed(bytes, |parser| {
        let RequestLine { method, target, version } = parser.request_line()?;
        Ok(format!("{method} {} {version:?}", String::from_utf8_lossy(&bytes[target])))
    })
}

fn parsed_response(bytes: &[u8]) -> Outcome {
    parsed(bytes, |parser| parser.status_line().map(|(version, status)| format!("{version:?} {}", status.as_u16())))
}

fn expected_request(bytes: &[u8]) -> Outcome {
    let mut slots = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut slots);
    let status = request.parse(bytes).map_err(|_| ())?;
    Ok(complete(status, request.headers, || {
        let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
        format!("{method} {target} HTTP/1.{}", request.version.unwrap_or_default())
    }))
}

/// A code below 100 is none of HTTP.
fn expected_response(bytes: &[u8]) -> Outcome {
    let mut slots = [EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut slots);
    let status = response.parse(bytes).map_err(|_| ())?;
    let code = response.code.unwrap_or_default();
    if status.is_complete() && code < 100 {
        return Err(());
    }
    Ok(complete(status, response.headers, || format!("HTTP/1.{} {code}", response.version.unwrap_or_default())))
}

fn complete(status: Status<usize>, fields: &[httparse::Header<'_>], start: impl FnOnce() -> String) -> Option<Head> {
    let Status::Complete(length) = status else { return None };
    let fields = fields.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect();
    Some(Head { length, start: start(), fields })
}

fn assert_agreement(bytes: &[u8]) {
    let text = || String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(parsed_request(bytes), expected_request(bytes), "{:?}", text());
    assert_eq!(parsed_response(bytes), expected_response(bytes), "{:?}", text());
}

const REQUEST: &str = "GET /a?b=1 HTTP/1.1\r\nHost: a.example\r\nX-Long: 0123456789 0123456789 0123456789 0123456789\t \
    0123456789\r\nx:\r\ny: \t b \t\r\nContent-Length: 12\r\n\r\nnext";
const RESPONSE: &str = "HTTP/1.1 204 No Content\r\nServer: a\r\nETag:\"0123456789abcdef0123456789abcdef\"\r\n\r\nnext";

#[test]
fn any_byte_at_any_place_has_the_effect_that_it_has_to_httparse() {
    for head in [REQUEST, RESPONSE] {
        for place in 0..head.len() {
            let mut bytes = head.as_bytes().to_vec();
            for byte in 0..=u8::MAX {
                bytes[place] = byte;
                assert_agreement(&bytes);
            }
            let mut bytes = head.as_bytes().to_vec();
            for byte in *b"\r\n\t :\0\x7f\xffa" {
                bytes.insert(place, byte);
                assert_agreement(&bytes);
                bytes.remove(place);
            }
            bytes.remove(place);
            assert_agreement(&bytes);
        }
    }
}

#[test]
fn every_beginning_is_incomplete() {
    for (head, parsed) in [(REQUEST, parsed_request as fn(&[u8]) -> Outcome), (RESPONSE, parsed_response)] {
        let end = head.len() - "next".len();
        for length in 0..end {
            assert_eq!(parsed(&head.as_bytes()[..length]), Ok(None), "{length}");
        }
        assert!(parsed(&head.as_bytes()[..end]).is_ok_and(|head| head.is_some_and(|head| head.length == end)));
    }
}

#[test]
fn line_endings_are_those_of_all_lines() {
    let ends = |text: &str| {
        let mut parser = Parser::new(text.as_bytes());
        parser.request_line().map_err(drop).expect("a start line");
        while parser.field_line().expect("a field").is_some() {}
        parser.line_ends()
    };
    assert_eq!(ends("GET / HTTP/1.1\r\na: b\r\n\r\n"), LineEnds::Crlf);
    assert_eq!(ends("GET / HTTP/1.1\na: b\n\n"), LineEnds::Lf);
    let mixed = [
        "\nGET / HTTP/1.1\r\na: b\r\n\r\n",
        "GET / HTTP/1.1\na: b\r\n\r\n",
        "GET / HTTP/1.1\r\na: b\n\r\n",
        "GET / HTTP/1.1\r\na: b\r\n\n",
        "\r\nGET / HTTP/1.1\na: b\n\n",
    ];
    for text in mixed {
        assert_eq!(ends(text), LineEnds::Mixed, "{text:?}");
    }
}

/// A line of a head, most often a valid one.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let blank = || prop_oneof![4 => Just(" "), 1 => Just(""), 1 => Just("\t"), 1 => Just("  ")];
    let value = prop_oneof![4 => "[ -~]{0,70}", 1 => "[ \t!-~\u{80}-\u{ff}]{0,70}"];
    let field = ("[A-Za-z!#$%&'*+.^_`|~-]{1,30}", blank(), value, blank())
        .prop_map(|(name, before, value, after)| format!("{name}:{before}{value}{after}").into_bytes());
    prop_oneof![8 => field, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn any_head_is_read_as_by_httparse(
        start in prop_oneof![
            Just("GET / HTTP/1.1"), Just("POST /a HTTP/1.0"), Just("HTTP/1.1 200 OK"), Just("HTTP/1.0 404")
        ],
        lines in proptest::collection::vec((line(), prop_oneof![9 => Just("\r\n"), 1 => Just("\n")]), 0..8),
        end in prop_oneof![4 => Just("\r\n"), 1 => Just("\n"), 1 => Just("")],
    ) {
        let mut bytes = format!("{start}\r\n").into_bytes();
        for (line, line_end) in lines {
            bytes.extend(line);
            bytes.extend(line_end.bytes());
        }
        bytes.extend(end.bytes());
        assert_agreement(&bytes);
    }

    #[test]
    fn any_target_is_read_as_by_httparse(target in "[!-~\u{80}-\u{2ff}\u{10000}]{0,100}", garbage in any::<[u8; 3]>()) {
        let mut bytes = format!("GET {target} HTTP/1.1\r\n\r\n").into_bytes();
        assert_agreement(&bytes);
        let place = 4 + usize::from(garbage[0]) % (bytes.len() - 4);
        bytes.splice(place..place, garbage[1..].iter().copied());
        assert_agreement(&bytes);
    }

    #[test]
    fn any_bytes_are_read_as_by_httparse(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        assert_agreement(&bytes);
    }
}
