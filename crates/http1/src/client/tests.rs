use super::super::test_io::{MockBody, MockStream, WrongLengthBody, now_or_never};
use super::super::{Fields, Request};
use super::*;
use http::{HeaderMap, HeaderValue, Uri, Version};
use http_body_util::{BodyExt, Empty, Full};
use proptest::prelude::*;
use std::cell::RefCell;

const LIMITS: HeadLimits = HeadLimits { size: 16 * 1024, fields: 100 };

type SendResult<B> = Result<Response<ResponseBody<MockStream, B>>, SendFailure<B>>;

fn send_over<B: SendBody>(io: MockStream, request: Request<B>) -> Option<SendResult<B>> {
    now_or_never(Connection::new(io, LIMITS).send(&request.head, request.body))
}

fn get() -> Request<Empty<Bytes>> {
    request(Method::GET, "/a?b=c", Empty::new())
}

fn post<B>(body: B) -> Request<B> {
    request(Method::POST, "/", body)
}

fn request<B>(method: Method, target: &'static str, body: B) -> Request<B> {
    let fields = Fields::from_iter([("host", "origin")]);
    Request { head: RequestHead { method, target: Uri::from_static(target), version: Version::HTTP_11, fields }, body }
}

/// Response as the client reads it, and whether the connection is reusable.
#[derive(Debug, PartialEq)]
struct ReceivedResponse {
    status: u16,
    fields: Fields,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    reusable: bool,
}

fn receive(io: MockStream, request: Request<Empty<Bytes>>) -> Result<ReceivedResponse, Error> {
    let response = send_over(io, request).expect("completes").map_err(|failure| failure.error)?;
    let Response { status, fields, mut body } = response;
    let (mut data, mut trailers) = (Vec::new(), None);
    while let Some(frame) = now_or_never(body.frame()).expect("completes") {
        match frame?.into_data() {
            Ok(more) => data.extend_from_slice(&more),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    assert!(body.is_end_stream());
    let reusable = body.take_connection().is_some();
    Ok(ReceivedResponse { status: status.as_u16(), fields, body: data, trailers, reusable })
}

fn response_to(text: &str) -> Result<(u16, String, bool), Error> {
    let received = receive(MockStream::reads_from([text]).then_eof(), get())?;
    Ok((received.status, String::from_utf8(received.body).expect("text"), received.reusable))
}

#[test]
fn request_is_written_unchanged() {
    let io = MockStream::default();
    assert!(send_over(io.clone(), get()).is_none(), "no response yet");
    assert_eq!(io.written(), "GET /a?b=c HTTP/1.1\r\nhost: origin\r\n\r\n");
    assert_eq!(io.writes(), 1);
}

#[test]
fn absolute_target_is_written_as_path_and_query() {
    for (target, written) in [("http://origin/a?b", "/a?b"), ("http://origin?b", "/?b"), ("http://origin", "/")] {
        let io = MockStream::default();
        assert!(send_over(io.clone(), request(Method::GET, target, Empty::<Bytes>::new())).is_none());
        assert_eq!(io.written().lines().next(), Some(&*format!("GET {written} HTTP/1.1")), "{target}");
    }
}

#[test]
fn request_body_is_framed() {
    fn written_request<B: SendBody>(request: Request<B>) -> String {
        let io = MockStream::default();
        let _ = send_over(io.clone(), request);
        assert_eq!(io.writes(), 1, "head and body are written together");
        let text = io.written();
        text.strip_prefix("POST / HTTP/1.1\r\nhost: origin\r\n").expect("unmodified head").to_owned()
    }
    let stream = || MockBody::all(["hello", "", " you"].map(|piece| Frame::data(Bytes::from(piece))));
    let chunks = "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n4\r\n you\r\n0\r\n\r\n";
    assert_eq!(written_request(post(Full::<Bytes>::from("hello"))), "content-length: 5\r\n\r\nhello");
    assert_eq!(written_request(post(Empty::<Bytes>::new())), "content-length: 0\r\n\r\n");
    assert_eq!(written_request(post(stream())), chunks);
    let mut contradictory = post(stream());
    contradictory.head.fields.append(Name::ContentLength, b"7");
    contradictory.head.fields.append(Name::TransferEncoding, b"gzip");
    assert_eq!(written_request(contradictory), chunks, "never both headers");
}

#[test]
fn announced_request_trailers_are_sent() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    let large = Bytes::from_static(&[b'x'; 9000]);
    let mut request = post(MockBody::all([Frame::data(large), Frame::trailers(trailers)]));
    request.head.fields.append(Name::Trailer, b"x-sum");
    let io = MockStream::default();
    let _ = send_over(io.clone(), request);
    assert!(io.written().ends_with("xxx\r\n0\r\nx-sum: 1\r\n\r\n"));
}

#[test]
fn response_bodies_are_framed_correctly() {
    let ok = |body: &str, reusable| Ok((200, body.to_owned(), reusable));
    type Case<'a> = (&'a str, Result<(u16, String, bool), ()>);
    let table: &[Case<'_>] = &[
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", ok("hello", true)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ok("", true)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello", ok("hello", false)),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", ok("hello", false)),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nhello", ok("hello", true)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello, and more", ok("hello", false)),
        ("HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", ok("hello", true)),
        ("HTTP/1.1 200 OK\r\na: b\ncontent-length: 5\r\n\r\nhello", ok("hello", false)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\nhello", ok("hello", false)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1 2\r\nh\r\n0\r\n\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", ok("until the end", false)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", ok("hello", true)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nx", ok("hello", false)),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            ok("", true),
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, String::new(), true))),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", Ok((304, String::new(), true))),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", Err(())),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", Err(())),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello", Err(())),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Err(())),
        ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Err(())),
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\na : b\r\n\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\na: b\rc\r\n\r\n", Err(())),
        ("HTTP/2.0 200 OK\r\n\r\n", Err(())),
        ("HTTP/1.1 99 Low\r\n\r\n", Err(())),
        ("SSH-2.0-OpenSSH\r\n", Err(())),
        ("HTTP/1.1 200 OK\r\na: b", Err(())),
    ];
    for (text, expected) in table {
        assert_eq!(response_to(text).map_err(|_| ()), *expected, "{text:?}");
    }
}

#[test]
fn response_to_head_has_no_body() {
    let head = request(Method::HEAD, "/", Empty::new());
    let received =
        receive(MockStream::reads_from(["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"]), head).expect("response");
    assert_eq!(
        (received.body.len(), received.reusable, received.fields.get(Name::ContentLength)),
        (0, true, Some(&b"5"[..]))
    );
}

#[test]
fn interim_responses_are_handed_on_and_bounded() {
    let seen = RefCell::new(Vec::new());
    let send = |text: String| {
        let head = RequestHead {
            method: Method::GET,
            target: Uri::from_static("/"),
            version: Version::HTTP_11,
            fields: Fields::new(),
        };
        let connection = Connection::new(MockStream::reads_from([text]), LIMITS);
        let on_interim = |status: StatusCode, fields: Fields| {
            seen.borrow_mut().push((status.as_u16(), fields.get_all_by_text("link").next().map(<[u8]>::to_vec)));
        };
        now_or_never(connection.send(&head, Empty::<Bytes>::new()).with_interim(Some(&on_interim)))
            .expect("the response has arrived")
            .map(|response| response.status.as_u16())
            .map_err(|failed| failed.error)
    };
    let last = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n";
    let response = send(format!("HTTP/1.1 100 Continue\r\n\r\n{hints}HTTP/1.1 102 Processing\r\n\r\n{last}"));
    assert!(matches!(response, Ok(200)), "{response:?}");
    assert_eq!(*seen.borrow(), [(103, Some(b"</a.css>".to_vec())), (102, None)]);
    assert!(matches!(send(hints.repeat(100) + last), Ok(200)));
    assert!(matches!(send(hints.repeat(101) + last), Err(Error::Malformed(Malformed::InterimResponses))));
    let many = format!("HTTP/1.1 103 Early Hints\r\n{}\r\n", "link: </a.css>\r\n".repeat(200));
    let large = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "b".repeat(20_000));
    for head in [many, large] {
        assert!(matches!(send(head + last), Err(Error::Malformed(Malformed::HeadTooLarge))));
    }
}

#[test]
fn response_head_is_bounded() {
    let with = |fields: String| response_to(&format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n"));
    assert!(with("a: b\r\n".repeat(99)).is_ok());
    assert!(matches!(with("a: b\r\n".repeat(100)), Err(Error::Malformed(Malformed::HeadTooLarge))));
    assert!(matches!(with(format!("a: {}\r\n", "b".repeat(20_000))), Err(Error::Malformed(Malformed::HeadTooLarge))));
    let endless = MockStream::reads_from(["HTTP/1.1 200 OK\r\n", "a: b\r\n"]).then_repeat_last();
    assert!(matches!(receive(endless, get()), Err(Error::Malformed(Malformed::HeadTooLarge))));
}

#[test]
fn close_without_response_differs_from_truncation() {
    assert!(matches!(response_to(""), Err(Error::NoResponse)));
    assert!(matches!(response_to("H"), Err(Error::UnexpectedEof)));
    assert!(matches!(receive(MockStream::default().then_error(), get()), Err(Error::NoResponse)));
}

#[test]
fn only_idle_connections_are_reused() {
    const EMPTY_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let used = |io: MockStream| {
        let mut body = send_over(io, get()).expect("completes").expect("response").body;
        body.take_connection().expect("reusable connection")
    };
    let mut idle = used(MockStream::reads_from([EMPTY_RESPONSE]));
    assert!(idle.is_idle() && idle.is_idle_now());
    assert_eq!(idle.requests_sent(), 1);
    assert!(now_or_never(idle.send(&get().head, Empty::new())).is_none(), "sent and waiting");
    let closed: [fn() -> MockStream; 3] = [
        || MockStream::reads_from([EMPTY_RESPONSE]).then_eof(),
        || MockStream::reads_from([EMPTY_RESPONSE]).then_error(),
        || MockStream::reads_from([EMPTY_RESPONSE, "HTTP/1.1 200 OK"]),
    ];
    for closed in closed {
        assert!(!used(closed()).is_idle() && !used(closed()).is_idle_now());
        let failure =
            now_or_never(used(closed()).send(&get().head, Empty::new())).expect("completes").expect_err("closed");
        assert!(matches!(failure.error, Error::Unsent));
        assert!(failure.unsent.is_some(), "the body is returned");
    }
}

#[test]
fn unsent_request_is_returned() {
    let io = MockStream::default().write_limit(0);
    let failure = send_over(io, get()).expect("completes").expect_err("write error");
    assert!(failure.unsent.is_some());
}

#[test]
fn early_response_does_not_stop_the_upload() {
    let upload = MockBody::open();
    let io = MockStream::reads_from(["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe"]);
    let response = send_over(io.clone(), post(upload.clone())).expect("completes").expect("response");
    let mut body = response.body;
    let first = now_or_never(body.frame()).flatten().expect("frame").expect("valid frame");
    assert_eq!(first.into_data().ok(), Some(Bytes::from("he")));
    upload.send("late");
    assert!(now_or_never(body.frame()).is_none());
    assert!(io.written().ends_with("4\r\nlate\r\n"), "the upload continues");
    io.push_read("llo");
    assert!(now_or_never(body.frame()).flatten().is_some());
    assert!(body.is_end_stream() && body.take_connection().is_none(), "the request is still being sent");
}

#[test]
fn response_is_read_when_the_upload_stalls() {
    let io = MockStream::reads_from(["HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n"]).write_limit(0);
    let response =
        send_over(io, post(Full::<Bytes>::from("hello"))).expect("completes").map_err(|failure| failure.error);
    let mut body = response.expect("response").body;
    assert!(body.take_connection().is_none());
}

#[test]
fn wrong_request_body_length_breaks_the_connection() {
    let short = WrongLengthBody { length: 9, body: MockBody::all([Frame::data(Bytes::from("short"))]) };
    let failure = send_over(MockStream::default(), post(short)).expect("completes").expect_err("too short");
    assert!(matches!(failure.error, Error::BodyLength));
    let long = WrongLengthBody { length: 3, body: MockBody::all([Frame::data(Bytes::from("too long"))]) };
    let failure = send_over(MockStream::default(), post(long)).expect("completes").expect_err("too long");
    assert!(matches!(failure.error, Error::BodyLength));
}

#[test]
fn large_body_is_read_in_few_reads() {
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", 1 << 20, "x".repeat(1 << 20));
    let io = MockStream::reads_from([text]);
    let received = receive(io.clone(), get()).expect("response");
    assert_eq!((received.body.len(), received.reusable), (1 << 20, true));
    assert!(io.reads() <= 7, "{} reads", io.reads());
}

proptest! {
    #[test]
    fn response_parsing_is_independent_of_read_sizes(cuts in proptest::collection::vec(1usize..40, 0..200), case in 0usize..3) {
        let text = [
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nx-a: 1\r\nx-a: 2\r\ncontent-length: 11\r\n\r\nhello world",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nx-sum: 1\r\nx-b: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx-a: 1\r\n\r\nhello world, and so on until the end",
        ][case];
        let whole = receive(MockStream::reads_from([text]).then_eof(), get()).expect("valid response");
        let cut = receive(MockStream::reads_in_segments(text.as_bytes(), &cuts).then_eof(), get()).expect("same response");
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn arbitrary_bytes_never_panic(start in 0usize..4, bytes: Vec<u8>) {
        let start = ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"][start];
        let _ = receive(MockStream::reads_in_segments(&[start.as_bytes(), &bytes].concat(), &[]).then_eof(), get());
    }
}
