use super::super::test_io::{DynBody, MockBody, MockStream, now_or_never};
use super::super::{DateCache, Fields, HeadLimits, Name};
use super::*;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;

const LIMITS: HeadLimits = HeadLimits { size: 16 * 1024, fields: 20 };
const DATE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

type TestResponse = Response<DynBody>;

/// Outcome of a connection.
#[derive(Debug, PartialEq)]
enum ServeOutcome {
    Pending,
    Closed,
    Lingering,
}

/// A request as received by the service.
#[derive(Clone, Debug, PartialEq)]
struct ReceivedRequest {
    method: Method,
    target: String,
    version: Version,
    fields: Fields,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    whole: bool,
}

fn serve_with<S, F>(io: MockStream, finish: bool, service: S) -> ServeOutcome
where
    S: FnMut(Request<RequestBody<MockStream>>) -> F,
    F: Future<Output = TestResponse>,
{
    let dates = DateCache::new();
    let options = ServeOptions {
        limits: LIMITS,
        finish: || if finish { Finish::Now } else { Finish::Never },
        interim: &InterimResponses::default(),
        read_buffer: Rc::default(),
        date: || dates.text(784_111_777),
        on_malformed: refuse,
    };
    match now_or_never(serve(io, BytesMut::new(), options, service)) {
        None => ServeOutcome::Pending,
        Some(None) => ServeOutcome::Closed,
        Some(Some(_)) => ServeOutcome::Lingering,
    }
}

fn refuse(error: Malformed) -> TestResponse {
    let mut refusal = ok_response(Full::from(error.to_string()));
    refusal.status = match error {
        Malformed::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Malformed::TargetTooLong => StatusCode::URI_TOO_LONG,
        _ => StatusCode::BAD_REQUEST,
    };
    refusal
}

/// Serves a client with a service that reads the body and responds with its length.
fn serve_and_record(io: MockStream) -> (ServeOutcome, Vec<ReceivedRequest>) {
    let requests = Rc::new(RefCell::new(Vec::new()));
    let outcome = serve_with(io, false, |request| {
        let requests = Rc::clone(&requests);
        async move {
            let received = receive(request).await;
            let body = Full::from(format!("{}", received.body.len()));
            requests.borrow_mut().push(received);
            self::ok_response(body)
        }
    });
    (outcome, requests.take())
}

async fn receive(request: Request<RequestBody<MockStream>>) -> ReceivedRequest {
    let Request { head, mut body } = request;
    let (mut data, mut trailers, mut whole) = (Vec::new(), None, true);
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(more)) => data.extend_from_slice(&more),
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(_) => {
                whole = false;
                break;
            }
        }
    }
    ReceivedRequest {
        method: head.method,
        target: head.target.to_string(),
        version: head.version,
        fields: head.fields,
        body: data,
        trailers,
        whole,
    }
}

fn ok_response<B: Body<Data = Bytes, Error = Infallible> + Unpin + 'static>(body: B) -> TestResponse {
    Response { status: StatusCode::OK, fields: Fields::new(), body: DynBody::new(body) }
}

/// Returns the output for a client that sends `text` and gets the response of `respond`.
fn exchange(text: &str, respond: impl Fn() -> TestResponse) -> (String, ServeOutcome) {
    let io = MockStream::reads_from([text]);
    let outcome = serve_with(io.clone(), false, |_| std::future::ready(respond()));
    (io.written(), outcome)
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n")
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let io = MockStream::reads_from([get(""), "POST /b HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi".to_owned() + &get("")]);
    let (outcome, requests) = serve_and_record(io.clone());
    assert_eq!((outcome, requests.len()), (ServeOutcome::Pending, 3));
    assert_eq!(
        (requests[1].method.as_str(), requests[1].target.as_str(), &requests[1].body[..]),
        ("POST", "/b", &b"hi"[..])
    );
    let response = |length| format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n{DATE}\r\n{length}");
    assert_eq!(io.written(), [response(0), response(2), response(0)].concat());
    assert_eq!(io.writes(), 3, "head and body are written together");
}

#[test]
fn malformed_request_is_rejected_and_ends_the_connection() {
    let table: &[(String, &str)] = &[
        (get("a : b\r\n"), "400 Bad Request"),
        (get("a: b\r\n c\r\n"), "400 Bad Request"),
        (get("a: b\rc\r\n"), "400 Bad Request"),
        (get("a: \0\r\n"), "400 Bad Request"),
        (get("no colon\r\n"), "400 Bad Request"),
        (get("content-length: 1\r\ncontent-length: 2\r\n"), "400 Bad Request"),
        (get("content-length: 1, 1\r\n"), "400 Bad Request"),
        (get("content-length: +1\r\n"), "400 Bad Request"),
        (get("content-length: 1\r\ntransfer-encoding: chunked\r\n"), "400 Bad Request"),
        (get("transfer-encoding: gzip, chunked\r\n"), "400 Bad Request"),
        (get("transfer-encoding: \x0bchunked\r\n"), "400 Bad Request"),
        ("GET / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n".into(), "400 Bad Request"),
        ("GET / HTTP/2.0\r\n\r\n".into(), "400 Bad Request"),
        ("GET  / HTTP/1.1\r\n\r\n".into(), "400 Bad Request"),
        ("GET / HTTP/1.1\r\n \r\n\r\n".into(), "400 Bad Request"),
        ("\x16\x03\x01\x02".into(), "400 Bad Request"),
        (get(&"a: b\r\n".repeat(20)), "431 Request Header Fields Too Large"),
        (get(&format!("a: {}\r\n", "b".repeat(17_000))), "431 Request Header Fields Too Large"),
        (format!("GET /{}", "b".repeat(17_000)), "431 Request Header Fields Too Large"),
    ];
    for (text, status) in table {
        let io = MockStream::reads_from([text]);
        let (outcome, requests) = serve_and_record(io.clone());
        assert_eq!((outcome, requests.len()), (ServeOutcome::Lingering, 0), "{text:?}");
        let output = io.written();
        assert!(output.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{text:?}: {output}");
        assert!(output.contains("connection: close\r\n"), "{text:?}");
    }
}

#[test]
fn target_beyond_the_uri_limit_gets_414() {
    let io = MockStream::reads_from([format!("GET /{} HTTP/1.1\r\n\r\n", "b".repeat(66_000))]);
    let dates = DateCache::new();
    let limits = HeadLimits { size: 1 << 20, fields: 20 };
    let options = ServeOptions {
        limits,
        finish: || Finish::Never,
        interim: &InterimResponses::default(),
        read_buffer: Rc::default(),
        date: || dates.text(0),
        on_malformed: refuse,
    };
    let _ = now_or_never(serve(io.clone(), BytesMut::new(), options, |_| async { ok_response(Empty::new()) }));
    assert!(io.written().starts_with("HTTP/1.1 414 URI Too Long\r\n"));
}

#[test]
fn keep_alive_follows_request_and_response() {
    let plain = || ok_response(Full::from("x"));
    let closing = || {
        let mut response = plain();
        response.fields.append(Name::Connection, b"close");
        response
    };
    let http10 = |fields: &str| format!("GET / HTTP/1.0\r\n{fields}\r\n");
    type Case<'a> = (String, &'a dyn Fn() -> TestResponse, &'a str, &'a str, ServeOutcome);
    let table: &[Case<'_>] = &[
        (get(""), &plain, "HTTP/1.1 200 OK", "", ServeOutcome::Pending),
        (get("connection: close\r\n"), &plain, "HTTP/1.1 200 OK", "connection: close\r\n", ServeOutcome::Closed),
        (get(""), &closing, "HTTP/1.1 200 OK", "connection: close\r\n", ServeOutcome::Closed),
        (http10(""), &plain, "HTTP/1.0 200 OK", "connection: close\r\n", ServeOutcome::Closed),
        (
            http10("connection: keep-alive\r\n"),
            &plain,
            "HTTP/1.0 200 OK",
            "connection: keep-alive\r\n",
            ServeOutcome::Pending,
        ),
    ];
    for (text, respond, status, connection, expected) in table {
        let (output, outcome) = exchange(text, respond);
        assert_eq!(output, format!("{status}\r\ncontent-length: 1\r\n{connection}{DATE}\r\nx"), "{text:?}");
        assert_eq!(outcome, *expected, "{text:?}");
    }
}

#[test]
fn response_framing_follows_method_version_and_status() {
    let pieces = || MockBody::all(["ab", "c"].map(|piece| Frame::data(Bytes::from(piece))));
    let streamed = || ok_response(pieces());
    let with_length = |response: TestResponse| {
        let mut response = response;
        response.fields.append(Name::ContentLength, b"9");
        response
    };
    let status = |mut response: TestResponse, status| {
        response.status = status;
        response
    };
    let body_of = |text: &str, respond: &dyn Fn() -> TestResponse| {
        let output = exchange(text, respond).0;
        let (head, body) = output.split_once("\r\n\r\n").expect("response head");
        let length = head.lines().find(|line| line.starts_with("content-length") || line.starts_with("transfer"));
        (length.unwrap_or_default().to_owned(), body.to_owned())
    };
    let framed = |length: &str, body: &str| (length.to_owned(), body.to_owned());
    assert_eq!(body_of(&get(""), &streamed), framed("transfer-encoding: chunked", "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"));
    assert_eq!(body_of("GET / HTTP/1.0\r\n\r\n", &streamed), framed("", "abc"));
    let head = "HEAD / HTTP/1.1\r\n\r\n";
    assert_eq!(body_of(head, &|| ok_response(Full::from("abc"))), framed("content-length: 3", ""));
    assert_eq!(body_of(head, &|| with_length(ok_response(Empty::new()))), framed("content-length: 9", ""));
    assert_eq!(body_of(head, &|| ok_response(Empty::new())), framed("", ""));
    let unmodified = || with_length(status(ok_response(Empty::new()), StatusCode::NOT_MODIFIED));
    assert_eq!(body_of(&get(""), &unmodified), framed("content-length: 9", ""));
    let no_content = || with_length(status(ok_response(Full::from("abc")), StatusCode::NO_CONTENT));
    assert_eq!(body_of(&get(""), &no_content), framed("", ""));
    assert_eq!(body_of(&get(""), &|| ok_response(Empty::new())), framed("content-length: 0", ""));
}

#[test]
fn short_response_body_closes_the_connection() {
    let (output, outcome) = exchange(&get(""), || {
        let mut short = ok_response(MockBody::all([Frame::data(Bytes::from("abc"))]));
        short.fields.append(Name::ContentLength, b"9");
        short
    });
    assert!(output.ends_with("\r\n\r\nabc"), "exactly the available bytes: {output}");
    assert_eq!(outcome, ServeOutcome::Closed);
}

#[test]
fn trailers_are_sent_only_with_te_trailers() {
    let respond = || {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        trailers.insert("x-other", HeaderValue::from_static("2"));
        let mut response = ok_response(MockBody::all([Frame::data(Bytes::from("a")), Frame::trailers(trailers)]));
        response.fields.append(Name::Trailer, b"x-sum");
        response
    };
    assert!(exchange(&get("te: trailers\r\n"), respond).0.ends_with("a\r\n0\r\nx-sum: 1\r\n\r\n"));
    assert!(exchange(&get(""), respond).0.ends_with("a\r\n0\r\n\r\n"));
}

#[test]
fn large_chunk_is_written_with_its_head() {
    let io = MockStream::reads_from([get("")]);
    let large = Bytes::from(vec![b'x'; 100_000]);
    serve_with(io.clone(), false, |_| std::future::ready(ok_response(Full::new(large.clone()))));
    assert_eq!(io.writes(), 1);
    assert!(io.written().ends_with(&"x".repeat(100_000)));
}

#[test]
fn continue_is_sent_when_the_body_is_polled() {
    let request = "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    let io = MockStream::reads_from([request]);
    assert_eq!(serve_and_record(io.clone()).0, ServeOutcome::Pending);
    assert_eq!(io.written(), "HTTP/1.1 100 Continue\r\n\r\n");
    let io = MockStream::reads_from([request.to_owned() + "hi"]);
    assert_eq!(serve_and_record(io.clone()).0, ServeOutcome::Pending);
    assert!(io.written().starts_with("HTTP/1.1 200 OK\r\n"), "no 100 response if the client did not wait");
    let (output, outcome) = exchange(request, || ok_response(Full::from("no")));
    assert!(
        output.starts_with("HTTP/1.1 200 OK\r\n") && output.contains("connection: close\r\n"),
        "100 sent late: {output}"
    );
    assert_eq!(outcome, ServeOutcome::Lingering);
}

#[test]
fn short_unread_body_is_skipped() {
    let post = |length: usize, sent: usize| {
        format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(sent)) + &get("")
    };
    let serve_text = |text: String| {
        let (output, outcome) = exchange(&text, || ok_response(Empty::new()));
        (output.matches("HTTP/1.1 200 OK").count(), output.contains("connection: close"), outcome)
    };
    assert_eq!(serve_text(post(50_000, 50_000)), (2, false, ServeOutcome::Pending));
    assert_eq!(serve_text(post(50_000, 40_000)), (1, false, ServeOutcome::Pending), "the rest may still arrive");
    assert_eq!(serve_text(post(5_000_000, 40_000)), (1, true, ServeOutcome::Lingering));
    let chunked = |body: String| format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{body}");
    assert_eq!(serve_text(chunked("1\r\na\r\n0\r\n\r\n".to_owned() + &get(""))), (2, false, ServeOutcome::Pending));
    assert_eq!(serve_text(chunked("1\r\na\r\nnonsense".to_owned())), (1, true, ServeOutcome::Lingering));
    assert_eq!(serve_text(chunked("1\r\na\r\n".to_owned())), (1, true, ServeOutcome::Lingering), "its end is unknown");
    assert_eq!(
        serve_text(chunked(format!("{:x}\r\n{}", 400_000, "x".repeat(400_000)))),
        (1, true, ServeOutcome::Lingering)
    );
}

#[test]
fn the_last_response_announces_the_end_whatever_decides_it() {
    type Respond = fn() -> TestResponse;
    let responses: [(&str, Respond); 4] = [
        ("one piece", || ok_response(Full::from("x"))),
        ("streamed", || ok_response(MockBody::all([Frame::data(Bytes::from("x"))]))),
        ("empty", || ok_response(Empty::new())),
        ("no content", || Response { status: StatusCode::NO_CONTENT, ..ok_response(Empty::new()) }),
    ];
    let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhe".to_owned();
    let requests = [
        ("kept", get(""), Finish::Never),
        ("closed by the client", get("connection: close\r\n"), Finish::Never),
        ("HTTP/1.0", "GET / HTTP/1.0\r\n\r\n".to_owned(), Finish::Never),
        ("long body", "POST / HTTP/1.1\r\ncontent-length: 900000\r\n\r\n".to_owned(), Finish::Never),
        ("body of unknown length", chunked, Finish::Never),
        ("last request", get(""), Finish::Now),
        ("last request of HEAD", "HEAD / HTTP/1.1\r\n\r\n".to_owned(), Finish::Now),
        ("last request, HTTP/1.0", "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n".to_owned(), Finish::Now),
        ("hand-over", get(""), Finish::AfterResponse),
    ];
    for ((kind, respond), (way, text, decided)) in responses.iter().flat_map(|r| requests.iter().map(move |q| (r, q))) {
        let (dates, finish) = (DateCache::new(), Cell::new(Finish::Never));
        let options = ServeOptions {
            limits: LIMITS,
            finish: || finish.get(),
            interim: &InterimResponses::default(),
            read_buffer: Rc::default(),
            date: || dates.text(0),
            on_malformed: refuse,
        };
        let io = MockStream::reads_from([text]);
        // The request itself decides that it is the last one, without a wait before its response.
        let served = now_or_never(serve(io.clone(), BytesMut::new(), options, |_| {
            finish.set(*decided);
            std::future::ready(respond())
        }));
        let announced = io.written().contains("connection: close\r\n");
        assert_eq!(announced, *way != "kept", "{kind}, {way}: {}", io.written());
        assert_eq!(served.is_some(), announced, "{kind}, {way}: it ends as announced");
    }
}

#[test]
fn disconnect_drops_the_pending_service_future() {
    struct DropFlag(Rc<Cell<bool>>);
    impl Drop for DropFlag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let serve_io = |io: MockStream, responds: bool| {
        let dropped = Rc::new(Cell::new(false));
        let outcome = serve_with(io, false, |_| {
            let guard = DropFlag(Rc::clone(&dropped));
            async move {
                let _guard = guard;
                if !responds {
                    std::future::pending::<()>().await;
                }
                ok_response(MockBody::open())
            }
        });
        (outcome, dropped.get())
    };
    assert_eq!(serve_io(MockStream::reads_from([get("")]).then_eof(), false), (ServeOutcome::Closed, true));
    assert_eq!(
        serve_io(MockStream::reads_from([get("")]).then_eof(), true).0,
        ServeOutcome::Closed,
        "also within a response"
    );
    assert_eq!(serve_io(MockStream::reads_from([get(""), get("")]).then_eof(), false).0, ServeOutcome::Closed);
    let endless = MockStream::reads_from([get(""), "x".repeat(1000)]).then_repeat_last();
    assert_eq!(serve_io(endless.clone(), false).0, ServeOutcome::Pending);
    assert!(endless.reads() < 40, "reading ahead is bounded: {}", endless.reads());
}

#[test]
fn finishing_connection_serves_buffered_requests() {
    let io = MockStream::reads_from([get("")]);
    assert_eq!(serve_with(io.clone(), true, |_| async { ok_response(Empty::new()) }), ServeOutcome::Closed);
    assert_eq!(io.written(), "", "no output yet");
    let dates = DateCache::new();
    let options = ServeOptions {
        limits: LIMITS,
        finish: || Finish::Now,
        interim: &InterimResponses::default(),
        read_buffer: Rc::default(),
        date: || dates.text(0),
        on_malformed: refuse,
    };
    let first = BytesMut::from(get("").as_bytes());
    let io = MockStream::default();
    let _ = now_or_never(serve(io.clone(), first, options, |_| async { ok_response(Empty::new()) }));
    assert!(io.written().contains("connection: close\r\n"));
}

#[test]
fn connection_that_waits_for_a_request_has_no_read_buffer() {
    let allocated_after = |input: Vec<String>, first: BytesMut| {
        let dates = DateCache::new();
        let read_buffer = Rc::<ReadBufferState>::default();
        let options = ServeOptions {
            limits: LIMITS,
            finish: || Finish::Never,
            interim: &InterimResponses::default(),
            read_buffer: Rc::clone(&read_buffer),
            date: || dates.text(0),
            on_malformed: refuse,
        };
        let io = MockStream::reads_from(input);
        let served = now_or_never(serve(io.clone(), first, options, |_| async { ok_response(Empty::new()) }));
        assert!(served.is_none(), "the connection is kept");
        (io.written().matches("HTTP/1.1 200").count(), read_buffer.allocated())
    };
    assert_eq!(allocated_after(vec![], BytesMut::with_capacity(100)), (0, 0));
    assert_eq!(allocated_after(vec![get(""), get("")], BytesMut::new()), (2, 0));
    let (served, allocated) = allocated_after(vec![get(""), "GET / HT".to_owned()], BytesMut::new());
    assert!(served == 1 && allocated >= 8, "a part of a head is kept: {allocated}");
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "b".repeat(12_000));
    let parts = head.as_bytes().chunks(8192).map(|part| String::from_utf8_lossy(part).into_owned());
    assert_eq!(allocated_after(parts.collect(), BytesMut::new()), (1, 0), "a large one is freed, too");
}

#[test]
fn connection_that_ends_after_a_response_waits_for_its_request() {
    let ends_after_response = |io: MockStream| {
        let dates = DateCache::new();
        let options = ServeOptions {
            limits: LIMITS,
            finish: || Finish::AfterResponse,
            interim: &InterimResponses::default(),
            read_buffer: Rc::default(),
            date: || dates.text(0),
            on_malformed: refuse,
        };
        now_or_never(serve(io, BytesMut::new(), options, |_| async { ok_response(Empty::new()) })).is_some()
    };
    assert!(!ends_after_response(MockStream::default()), "idle");
    let io = MockStream::reads_from([get("")]);
    assert!(ends_after_response(io.clone()));
    assert!(io.written().contains("connection: close\r\n"));
}

#[test]
fn interim_responses_precede_the_response() {
    let (dates, interim) = (DateCache::new(), InterimResponses::default());
    let options = ServeOptions {
        limits: LIMITS,
        finish: || Finish::Never,
        interim: &interim,
        read_buffer: Rc::default(),
        date: || dates.text(784_111_777),
        on_malformed: refuse,
    };
    let io = MockStream::reads_from([get("")]);
    let serving = serve(io.clone(), BytesMut::new(), options, |_| async {
        interim.push(StatusCode::PROCESSING, &Fields::new());
        ok_response(Empty::new())
    });
    let _ = now_or_never(serving);
    let written = io.written();
    assert!(written.starts_with("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n"), "{written}");
}

#[test]
fn interim_responses_that_wait_for_a_client_are_bounded() {
    let interim = InterimResponses::default();
    let fields: Fields = [("link", "</a.css>"), ("connection", "close"), ("content-length", "9")].into_iter().collect();
    for _ in 0..10_000 {
        interim.push(StatusCode::EARLY_HINTS, &fields);
    }
    let io = MockStream::default();
    let written = interim.poll_write(&mut io.clone(), &mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(written.is_ready() && interim.is_empty());
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n";
    let count = io.written().matches(hints).count();
    assert_eq!(io.written(), hints.repeat(count));
    assert!(count > 100 && io.written().len() <= 32 * 1024, "{count}");
}

#[test]
fn truncated_body_is_incomplete() {
    let io = MockStream::reads_from(["POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhel"]).then_eof();
    let (outcome, requests) = serve_and_record(io);
    assert!(!requests[0].whole);
    assert_ne!(outcome, ServeOutcome::Pending);
}

const PIPELINED_REQUESTS: &str = "\r\nGET /a?b HTTP/1.1\r\nhost: a\r\nx-a: 1\r\nx-a: 2\r\n\r\n\
    POST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\nhello world\
    POST /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nx-sum: 1\r\n\r\n\
    GET /d HTTP/1.1\r\nhost: a\r\n\r\n";

proptest! {
    #[test]
    fn request_parsing_is_independent_of_read_sizes(cuts in proptest::collection::vec(1usize..40, 0..200)) {
        let (whole, cut) = (MockStream::reads_from([PIPELINED_REQUESTS]), MockStream::reads_in_segments(PIPELINED_REQUESTS.as_bytes(), &cuts));
        prop_assert_eq!(serve_and_record(whole.clone()), serve_and_record(cut.clone()));
        prop_assert_eq!(whole.written(), cut.written());
        prop_assert_eq!(whole.written().matches("200 OK").count(), 4);
    }

    #[test]
    fn arbitrary_bytes_never_panic(start in 0usize..4, bytes: Vec<u8>, cuts in proptest::collection::vec(1usize..9, 0..9)) {
        let start = ["", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", "POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n"][start];
        serve_and_record(MockStream::reads_in_segments(&[start.as_bytes(), &bytes].concat(), &cuts).then_eof());
    }
}
