//! Invariants of HTTP/1.1 on the wire. Each takes arbitrary bytes and panics if it is violated. The first byte selects
//! the length of the segments in which the others arrive.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::rt;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tidegate_http1::client::{Connection, Stream};
use tidegate_http1::server::{Finish, InterimResponses, RequestBody, ServeOptions, serve};
use tidegate_http1::{Fields, HeadLimits, Name, NameSet, Request, RequestHead, Response, SendBody};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Accepted requests do not depend on the segments. Forwarded, each is read as the same request, and as no other.
pub(crate) fn request_head(bytes: &[u8]) {
    let (segment, input) = split_segment(bytes);
    let requests = received_requests(input, usize::MAX);
    assert_eq!(requests, received_requests(input, segment), "segments change the requests");
    for request in requests.iter().filter(|request| request.is_complete) {
        check_forwarded(request, Full::from(request.body.clone()));
    }
}

/// The decoded body does not depend on the segments, and agrees with a second decoder in its data and its end. Encoded
/// again, it has the same data.
pub(crate) fn chunked(bytes: &[u8]) {
    let (segment, body) = split_segment(bytes);
    let input = [b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n", body].concat();
    let requests = received_requests(&input, usize::MAX);
    assert_eq!(requests, received_requests(&input, segment), "segments change the body");
    let Some((request, next)) = requests.split_first().filter(|(request, _)| request.is_complete) else { return };
    let (data, rest) = decode_chunked(body).expect("the second decoder accepts the body");
    assert_eq!(request.body, data, "two decoders disagree");
    assert_eq!(next, received_requests(rest, usize::MAX), "two decoders disagree on the end");
    check_forwarded(request, Chunks(data.chunks(segment).map(Bytes::copy_from_slice).collect()));
}

/// Another server, hyper, reads no other request than the gateway from the same bytes, as far as both accept them: the same
/// method, target and body, so the same beginning of the next request.
pub(crate) fn framing(bytes: &[u8]) {
    let (segment, input) = split_segment(bytes);
    let requests = received_requests(input, segment);
    for (request, (method, target, body)) in requests.iter().zip(requests_read_by_hyper(input, segment)) {
        let Some(body) = body.filter(|_| request.is_complete) else { return };
        assert_eq!(request.head.method, method, "two servers disagree on the method");
        assert_eq!(request.head.target.path(), target.path(), "two servers disagree on the path");
        assert_eq!(request.head.target.query(), target.query(), "two servers disagree on the query");
        assert_eq!(request.body, body, "two servers disagree on the body");
        if method == Method::CONNECT {
            return;
        }
    }
}

/// The response does not depend on the segments. Sent to a client, it is read as the same response.
pub(crate) fn response_head(bytes: &[u8]) {
    let (segment, input) = split_segment(bytes);
    let response = received_response(input, usize::MAX);
    assert_eq!(response, received_response(input, segment), "segments change the response");
    let Some(received) = response.filter(|response| response.is_complete) else { return };
    let stream = Segments::new(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", usize::MAX);
    let output = Rc::clone(&stream.output);
    serve_with(stream, async |_| Response {
        status: received.status,
        fields: received.fields.clone(),
        body: Full::from(received.body.clone()),
    });
    let sent = received_response(&output.borrow(), usize::MAX);
    assert_eq!(sent, Some(received), "the round trip changes the response");
}

/// A request; the data of an incomplete body depends on the segments.
#[derive(Debug)]
struct ReceivedRequest {
    head: RequestHead,
    body: Vec<u8>,
    is_complete: bool,
}

impl PartialEq for ReceivedRequest {
    fn eq(&self, other: &Self) -> bool {
        let target =
            |head: &RequestHead| head.target.path_and_query().map_or("/".to_owned(), |target| target.to_string());
        self.head.method == other.head.method
            && target(&self.head) == target(&other.head)
            && end_to_end(&self.head.fields) == end_to_end(&other.head.fields)
            && self.is_complete == other.is_complete
            && (!self.is_complete || self.body == other.body)
    }
}

#[derive(Debug)]
struct ReceivedResponse {
    status: StatusCode,
    fields: Fields,
    body: Vec<u8>,
    is_complete: bool,
}

impl PartialEq for ReceivedResponse {
    fn eq(&self, other: &Self) -> bool {
        self.status == other.status
            && end_to_end(&self.fields) == end_to_end(&other.fields)
            && self.is_complete == other.is_complete
            && (!self.is_complete || self.body == other.body)
    }
}

/// Returns the fields that neither frame the message nor belong to the connection.
fn end_to_end(fields: &Fields) -> Vec<(&[u8], &[u8])> {
    const OWN: NameSet = NameSet::of(&[Name::ContentLength, Name::TransferEncoding, Name::Connection, Name::Date]);
    fields.iter().filter(|field| !OWN.contains(field.name)).map(|field| (field.text, field.value)).collect()
}

fn split_segment(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((1, bytes), |(length, rest)| (1 + usize::from(*length), rest))
}

/// Sends a request as the gateway does, and checks that it is received unchanged.
fn check_forwarded(request: &ReceivedRequest, body: impl SendBody) {
    let stream = Segments::new(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", usize::MAX);
    let output = Rc::clone(&stream.output);
    let sent = run(Connection::new(stream, LIMITS).send(&request.head, body));
    assert!(sent.is_ok(), "the request cannot be sent");
    let received = received_requests(&output.borrow(), usize::MAX);
    assert_eq!(received.iter().collect::<Vec<_>>(), [request], "the round trip changes the request");
}

fn received_requests(input: &[u8], segment: usize) -> Vec<ReceivedRequest> {
    let received = RefCell::new(Vec::new());
    serve_with(Segments::new(input, segment), async |Request { head, body }| {
        let (body, is_complete) = read_body(body).await;
        received.borrow_mut().push(ReceivedRequest { head, body, is_complete });
        Response { status: StatusCode::OK, fields: Fields::new(), body: Full::default() }
    });
    received.into_inner()
}

fn serve_with(stream: Segments, service: impl AsyncFn(Request<RequestBody<Segments>>) -> Response<Full<Bytes>>) {
    let options = ServeOptions {
        limits: LIMITS,
        finish: || Finish::Never,
        interim: &InterimResponses::default(),
        read_buffer: Rc::default(),
        date: || *b"Thu, 01 Jan 1970 00:00:00 GMT",
        on_malformed: |_| Response { status: StatusCode::BAD_REQUEST, fields: Fields::new(), body: Full::default() },
    };
    drop(run(serve(stream, BytesMut::new(), options, |request| service(request))));
}

fn received_response(input: &[u8], segment: usize) -> Option<ReceivedResponse> {
    let fields = Fields::from_iter([("host", "a.example")]);
    let head =
        RequestHead { method: Method::GET, target: "/".parse().expect("a URI"), version: Version::HTTP_11, fields };
    run(async {
        let connection = Connection::new(Segments::new(input, segment), LIMITS);
        let Response { status, fields, body } = connection.send(&head, Full::<Bytes>::default()).await.ok()?;
        let (body, is_complete) = read_body(body).await;
        Some(ReceivedResponse { status, fields, body, is_complete })
    })
}

/// Method, target and body; `None` for an incomplete body.
type HyperRequest = (Method, Uri, Option<Vec<u8>>);

fn requests_read_by_hyper(input: &[u8], segment: usize) -> Vec<HyperRequest> {
    let received = Rc::<RefCell<Vec<HyperRequest>>>::default();
    let service = service_fn(|request: http::Request<Incoming>| {
        let received = Rc::clone(&received);
        async move {
            let (head, body) = request.into_parts();
            let (body, is_complete) = read_body(body).await;
            received.borrow_mut().push((head.method, head.uri, is_complete.then_some(body)));
            Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
        }
    });
    let connection = http1::Builder::new().serve_connection(Segments::new(input, segment), service);
    let mut connection = pin!(connection);
    // Each poll makes progress, because the input never waits; a server may still yield.
    for _ in 0..=input.len() {
        if connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            break;
        }
    }
    received.take()
}

/// Returns the data of a body, and true if it is complete.
async fn read_body<B: Body<Data = Bytes> + Unpin>(mut body: B) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(bytes)) => data.extend_from_slice(&bytes),
            Ok(Err(_trailers)) => {}
            Err(_) => return (data, false),
        }
    }
    (data, true)
}

/// Decodes a chunked body independently of the gateway. Returns its data and the bytes after it.
fn decode_chunked(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let line_end = |bytes: &[u8]| bytes.windows(2).position(|pair| pair == b"\r\n");
    let mut data = Vec::new();
    loop {
        let (line, rest) = bytes.split_at(line_end(bytes)?);
        let size = line.split(|&byte| byte == b';').next()?.trim_ascii_end();
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        bytes = &rest[2..];
        if size == 0 {
            break;
        }
        data.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size..)?.strip_prefix(b"\r\n")?;
    }
    while line_end(bytes)? > 0 {
        bytes = &bytes[line_end(bytes)? + 2..];
    }
    Some((data, &bytes[2..]))
}

const LIMITS: HeadLimits = HeadLimits { size: 64 * 1024, fields: 2000 };

/// A stream that reads its input in segments of a length, then ends.
struct Segments {
    input: Bytes,
    length: usize,
    output: Rc<RefCell<Vec<u8>>>,
}

impl Segments {
    fn new(input: &[u8], length: usize) -> Self {
        Self { input: Bytes::copy_from_slice(input), length, output: Rc::default() }
    }
}

impl AsyncRead for Segments {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let length = self.length.min(self.input.len()).min(buffer.remaining());
        buffer.put_slice(&self.input.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Segments {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.output.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl rt::Read for Segments {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.length.min(self.input.len()).min(buffer.remaining());
        buffer.put_slice(&self.input.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Segments {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Stream for Segments {
    fn has_no_input(&self) -> bool {
        self.input.is_empty()
    }
}

/// A body of unknown length.
struct Chunks(VecDeque<Bytes>);

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
    }
}

/// Runs a future that never waits.
fn run<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a stream in memory never waits"),
    }
}
