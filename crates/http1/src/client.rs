//! HTTP/1.1 client: one request at a time per connection.
//!
//! [`send`](Connection::send) consumes a [`Connection`], which becomes part of the [`ResponseBody`].
//! [`ResponseBody::take_connection`] returns it once request and response are complete. Dropped earlier, it is closed.

use super::body::{BodyCoding, BodyReader, BodyWriter, SendBody, WriteError};
use super::buffer::{ReadBuffer, WriteBuffer};
use super::chunked::{self, BodyChunk};
use super::fields::Fields;
use super::framing::{BodyLength, Malformed};
use super::head::{self, HeadLimits, HeadReader, ResponseHead};
use super::message::{RequestHead, Response};
use super::name::Name;
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use socket2::SockRef;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Maximum interim responses (RFC 9110 section 15.2) before a response.
const MAX_INTERIM_RESPONSES: u32 = 100;

/// An idle connection to the origin.
pub struct Connection<IO>(Box<ConnectionInner<IO>>);

struct ConnectionInner<IO> {
    io: IO,
    incoming: ReadBuffer,
    outgoing: WriteBuffer,
    limits: HeadLimits,
    requests_sent: u32,
}

/// Error of a request or of its response body.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection was closed before anything was written: the origin has not received the request.
    #[error("connection closed before the request was sent")]
    Unsent,
    /// The origin refused the request, as only HTTP/2 can say.
    #[error("request refused: {source}")]
    Refused {
        /// Error of the stream.
        source: io::Error,
        /// True if the origin has certainly not processed it.
        is_unprocessed: bool,
    },
    /// The origin closed the connection before the first byte of a response: it may have received the request.
    #[error("connection closed before the response")]
    NoResponse,
    /// The response is truncated.
    #[error("unexpected end of the response")]
    UnexpectedEof,
    /// The response is malformed or ambiguous HTTP/1.1.
    #[error("malformed response: {0}")]
    Malformed(#[from] Malformed),
    /// The request body returned an error.
    #[error("request body aborted")]
    Body(Box<dyn StdError + Send + Sync>),
    /// The length of the request body differs from the declared one.
    #[error("request body length differs from Content-Length")]
    BodyLength,
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(io::Error),
}

/// An error, with the request body if the request was certainly not sent.
#[derive(Debug)]
pub struct SendFailure<B> {
    /// Error of the request.
    pub error: Error,
    /// Unread request body.
    pub unsent: Option<B>,
}

/// Stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Returns true if neither data nor the end of the stream has arrived. Reads the socket, not the reactor's state.
    fn has_no_input(&self) -> bool;
}

impl Stream for TcpStream {
    fn has_no_input(&self) -> bool {
        let peeked = SockRef::from(self).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl<IO: Stream> Connection<IO> {
    /// Returns a connection over the connected stream `io`.
    pub fn new(io: IO, limits: HeadLimits) -> Self {
        let incoming = ReadBuffer::new(BytesMut::new(), Rc::default());
        Self(Box::new(ConnectionInner { io, incoming, outgoing: WriteBuffer::default(), limits, requests_sent: 0 }))
    }

    /// Returns true if, as far as the reactor has detected, the origin has neither closed the connection nor sent data.
    pub fn is_idle(&mut self) -> bool {
        self.0.poll_idle(&mut Context::from_waker(Waker::noop()))
    }

    /// Like [`Self::is_idle`], but also checks the socket for data that the reactor has not detected.
    pub fn is_idle_now(&self) -> bool {
        self.0.incoming.buffer.is_empty() && self.0.io.has_no_input()
    }

    /// Returns the number of requests sent on this connection.
    pub fn requests_sent(&self) -> u32 {
        self.0.requests_sent
    }

    /// Sends a request unmodified: its target in origin form, its fields, its body. Waits for the response head.
    pub fn send<B: SendBody>(self, head: &RequestHead, body: B) -> SendRequest<'_, IO, B> {
        let reader = HeadReader::new(self.0.limits);
        SendRequest {
            conn: Some(self.0),
            head,
            unsent: Some(body),
            upload: None,
            reader,
            response_started: false,
            on_interim: None,
            interim_responses: 0,
        }
    }
}

impl<IO> fmt::Debug for Connection<IO> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").field("carried", &self.0.requests_sent).finish_non_exhaustive()
    }
}

impl<IO: Stream> ConnectionInner<IO> {
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> bool {
        self.incoming.buffer.is_empty() && self.incoming.poll_read(&mut self.io, cx, 0).is_pending()
    }
}

/// Future of sending a request; resolves to the response head.
pub struct SendRequest<'a, IO, B> {
    conn: Option<Box<ConnectionInner<IO>>>,
    head: &'a RequestHead,
    unsent: Option<B>,
    upload: Option<Upload<B>>,
    reader: HeadReader,
    response_started: bool,
    on_interim: Option<OnInterim<'a>>,
    interim_responses: u32,
}

/// What handles interim responses but 100 Continue, which the request did not ask for.
pub type OnInterim<'a> = &'a dyn Fn(StatusCode, Fields);

impl<'a, IO, B> SendRequest<'a, IO, B> {
    /// Calls `on_interim` with each interim response.
    #[must_use]
    pub fn with_interim(mut self, on_interim: Option<OnInterim<'a>>) -> Self {
        self.on_interim = on_interim;
        self
    }
}

/// Upload state of a request body.
struct Upload<B> {
    body: BodyWriter<B>,
    /// True once written completely.
    done: bool,
    /// Write error. The origin may have responded nevertheless.
    write_error: Option<io::Error>,
}

impl<IO: Stream, B: SendBody> Future for SendRequest<'_, IO, B> {
    type Output = Result<Response<ResponseBody<IO, B>>, SendFailure<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut is_watched = false;
        if let Some(body) = this.unsent.take() {
            match this.start(body, cx) {
                Ok(watched) => is_watched = watched,
                Err(body) => return Poll::Ready(Err(SendFailure { error: Error::Unsent, unsent: Some(body) })),
            }
        }
        let polled = match this.poll_upload(cx) {
            Ok(()) if is_watched => Poll::Pending,
            Ok(()) => this.poll_response(cx),
            Err(error) => Poll::Ready(Err(error)),
        };
        polled.map_err(|error| SendFailure { error, unsent: None })
    }
}

impl<IO: Stream, B: SendBody> SendRequest<'_, IO, B> {
    /// Writes the head, and the whole request if there is no body. Returns true if the task is woken when the response
    /// arrives, and the body if the connection is closed.
    fn start(&mut self, body: B, cx: &mut Context<'_>) -> Result<bool, B> {
        let conn = self.conn.as_mut().expect("not polled after completion");
        let is_reused = conn.requests_sent > 0;
        if is_reused && !conn.poll_idle(cx) {
            return Err(body);
        }
        conn.requests_sent = conn.requests_sent.saturating_add(1);
        let coding = write_head(conn.outgoing.front_mut(), self.head, &body);
        if let BodyCoding::Exact(0) = coding
            && let Poll::Ready(Err(_)) = conn.outgoing.poll_flush(&mut conn.io, cx)
            && conn.outgoing.is_unwritten()
        {
            return Err(body);
        }
        self.upload = Some(Upload { body: BodyWriter::new(body, coding), done: false, write_error: None });
        Ok(is_reused)
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let conn = self.conn.as_mut().expect("not polled after completion");
        self.upload.as_mut().expect("set at the start").poll_upload(conn, cx)
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<ResponseBody<IO, B>>, Error>> {
        let conn = self.conn.as_mut().expect("not polled after completion");
        let upload = self.upload.as_mut().expect("set at the start");
        let head = loop {
            match self.reader.response(&mut conn.incoming.buffer)? {
                Some(head) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                    if !self.head.fields.contains(Name::Upgrade) || !upload.done {
                        return Poll::Ready(Err(Malformed::SwitchingProtocols.into()));
                    }
                    break head;
                }
                Some(head) if head.status.is_informational() => {
                    self.interim_responses += 1;
                    if self.interim_responses > MAX_INTERIM_RESPONSES {
                        return Poll::Ready(Err(Malformed::InterimResponses.into()));
                    }
                    if let Some(on_interim) = self.on_interim.filter(|_| head.status != StatusCode::CONTINUE) {
                        on_interim(head.status, head.fields);
                    }
                }
                Some(head) => break head,
                None => match ready!(conn.incoming.poll_read(&mut conn.io, cx, 0)) {
                    Ok(0) if self.response_started => return Poll::Ready(Err(Error::UnexpectedEof)),
                    Ok(0) => return Poll::Ready(Err(Error::NoResponse)),
                    Ok(_) => self.response_started = true,
                    Err(error) if self.response_started => return Poll::Ready(Err(Error::Io(error))),
                    Err(_) => return Poll::Ready(Err(Error::NoResponse)),
                },
            }
        };
        let ResponseHead { status, version, fields, framing } = head;
        let length = match status {
            StatusCode::SWITCHING_PROTOCOLS => BodyLength::Exact(0),
            _ => framing.response_length(&self.head.method, status, version)?,
        };
        let body = ResponseBody {
            conn: self.conn.take(),
            upload: self.upload.take().filter(|upload| !upload.done),
            body: BodyReader::new(length),
            reusable: framing.keeps_alive(version) && status != StatusCode::SWITCHING_PROTOCOLS,
        };
        Poll::Ready(Ok(Response { status, fields, body }))
    }
}

impl<B: SendBody> Upload<B> {
    /// Writes what the origin accepts. A write error is not returned yet, because the origin may have responded.
    fn poll_upload<IO: AsyncWrite + Unpin>(
        &mut self,
        conn: &mut ConnectionInner<IO>,
        cx: &mut Context<'_>,
    ) -> Result<(), Error> {
        if self.done || self.write_error.is_some() {
            return Ok(());
        }
        match self.body.poll_write(&mut conn.io, &mut conn.outgoing, cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.done = true,
            Poll::Ready(Err(WriteError::Io(error))) => self.write_error = Some(error),
            Poll::Ready(Err(WriteError::Body(error))) => return Err(Error::Body(error)),
            Poll::Ready(Err(WriteError::Length)) => return Err(Error::BodyLength),
        }
        Ok(())
    }
}

/// Writes the head of a request. Returns the coding of its body.
fn write_head<B: Body>(out: &mut Vec<u8>, head: &RequestHead, body: &B) -> BodyCoding {
    let RequestHead { method, target, fields, .. } = head;
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    let target = target.path_and_query().map_or("/", |target| target.as_str());
    // An absolute target may have a query without a path (RFC 9112 section 3.2.1).
    if target.starts_with('?') {
        out.push(b'/');
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let mut has_length = false;
    fields.write(out, |name| {
        has_length |= name == Name::ContentLength;
        !matches!(name, Name::TransferEncoding | Name::ContentLength)
    });
    let expects_body = has_length || matches!(*method, Method::POST | Method::PUT | Method::PATCH);
    let coding = match body.size_hint().exact() {
        Some(0) if !expects_body => BodyCoding::Exact(0),
        Some(length) => {
            head::write_content_length(out, length);
            BodyCoding::Exact(length)
        }
        None => {
            head::write_chunked(out);
            BodyCoding::Chunked(chunked::announced_trailers(fields))
        }
    };
    out.extend_from_slice(b"\r\n");
    coding
}

/// A response body with its connection.
pub struct ResponseBody<IO, B> {
    conn: Option<Box<ConnectionInner<IO>>>,
    /// Rest of the request body, if the origin responded before receiving it.
    upload: Option<Upload<B>>,
    body: BodyReader,
    reusable: bool,
}

impl<IO, B> ResponseBody<IO, B> {
    /// Returns the connection if the response was read and the request sent completely, and the origin keeps it open.
    pub fn take_connection(&mut self) -> Option<Connection<IO>> {
        let is_complete = self.body.is_done() && self.upload.is_none() && self.reusable;
        let mut conn = self.conn.take()?;
        conn.incoming.shrink();
        (is_complete && conn.incoming.buffer.is_empty()).then_some(Connection(conn))
    }
}

impl<IO, B> ResponseBody<IO, B> {
    /// Limits each of the next reads to about `bytes`.
    pub fn set_max_read(&mut self, bytes: usize) {
        if let Some(conn) = &mut self.conn {
            conn.incoming.set_max_read(bytes);
        }
    }

    /// Returns the capacity of the read buffer, of which the last chunk is a part; 0 without a connection.
    pub fn buffer_capacity(&self) -> usize {
        self.conn.as_ref().map_or(0, |conn| conn.incoming.allocated())
    }

    /// Returns the stream after a response that switched protocols, and what the origin has sent on it.
    pub fn into_upgraded(mut self) -> Option<(IO, BytesMut)> {
        let ConnectionInner { io, incoming, .. } = *self.conn.take()?;
        Some((io, incoming.buffer))
    }
}

impl<IO: Stream, B: SendBody> ResponseBody<IO, B> {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyChunk, Error>> {
        let Some(conn) = &mut self.conn else { return Poll::Ready(Ok(BodyChunk::End)) };
        if let Some(upload) = &mut self.upload {
            upload.poll_upload(conn, cx)?;
            if upload.done {
                self.upload = None;
            }
        }
        loop {
            match self.body.next(&mut conn.incoming.buffer)? {
                BodyChunk::Pending => {}
                chunk => return Poll::Ready(Ok(chunk)),
            }
            match ready!(conn.incoming.poll_read(&mut conn.io, cx, self.body.expected())) {
                Ok(0) if self.body.on_eof() => self.reusable = false,
                Ok(0) => return Poll::Ready(Err(Error::UnexpectedEof)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Error::Io(error))),
            }
        }
    }
}

impl<IO: Stream, B: SendBody> Body for ResponseBody<IO, B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let chunk = match ready!(self.poll_chunk(cx)) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.conn = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        Poll::Ready(match chunk {
            BodyChunk::Data(data) => Some(Ok(Frame::data(data))),
            BodyChunk::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            BodyChunk::End | BodyChunk::Pending => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<IO, B> fmt::Debug for ResponseBody<IO, B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ResponseBody").field("body", &self.body).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
