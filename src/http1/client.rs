//! Requests to the origin and answers from it, one at a time on each connection.
//!
//! A [`Connection`] is taken by [`send`](Connection::send), travels on as the [`ResponseBody`], and comes back out of
//! it once request and answer are both through: [`ResponseBody::take_connection`]. Dropped anywhere in between, it is
//! closed.

use super::body::{BodyCoding, BodyReader, BodyWriter, SendBody, WriteError};
use super::buffer::{ReadBuffer, WriteBuffer};
use super::chunked::{self, BodyChunk};
use super::framing::Malformed;
use super::head::{self, HeadReader, Limits, ResponseHead};
use super::message::{RequestHead, Response};
use super::name::Name;
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use socket2::SockRef;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection to the origin on which nothing is under way.
pub struct Connection<IO>(Box<ConnectionInner<IO>>);

struct ConnectionInner<IO> {
    io: IO,
    incoming: ReadBuffer,
    outgoing: WriteBuffer,
    limits: Limits,
    requests_sent: u32,
}

/// Why there is no answer, or no end of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection was closed before anything was written: the origin has not seen the request.
    #[error("the connection was closed before the request was sent")]
    Unsent,
    /// The origin closed the connection without a byte of an answer: it may have seen the request.
    #[error("the connection was closed without an answer")]
    NoResponse,
    /// The answer, or its body, ended before its end.
    #[error("the answer broke off")]
    UnexpectedEof,
    /// The answer is not HTTP/1.1 that everyone reads the same way.
    #[error("the answer is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// The request's body broke off.
    #[error("the request's body broke off")]
    Body(Box<dyn StdError + Send + Sync>),
    /// The request's body is not as long as it was announced.
    #[error("the request's body has another length than announced")]
    BodyLength,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
}

/// An error, and the request's body if it provably did not leave.
#[derive(Debug)]
pub struct SendFailure<B> {
    /// Why.
    pub error: Error,
    /// The body as it was handed in.
    pub unsent: Option<B>,
}

/// What a connection runs over.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// True if nothing has come, not even the end. Asks the system, not the reactor.
    fn has_no_input(&self) -> bool;
}

impl Stream for TcpStream {
    fn has_no_input(&self) -> bool {
        let peeked = SockRef::from(self).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl<IO: Stream> Connection<IO> {
    /// A connection over `io`, which is connected.
    pub fn new(io: IO, limits: Limits) -> Self {
        let incoming = ReadBuffer::new(BytesMut::new());
        Self(Box::new(ConnectionInner { io, incoming, outgoing: WriteBuffer::default(), limits, requests_sent: 0 }))
    }

    /// True while the origin has neither closed it nor said something unasked, as far as anyone has noticed.
    pub fn is_idle(&mut self) -> bool {
        self.0.poll_idle(&mut Context::from_waker(Waker::noop()))
    }

    /// The same, asking the system for what has come but was not noticed yet.
    pub fn is_idle_now(&self) -> bool {
        self.0.incoming.buffer.is_empty() && self.0.io.has_no_input()
    }

    /// How many requests it has carried.
    pub fn requests_sent(&self) -> u32 {
        self.0.requests_sent
    }

    /// Sends a request as it is: its target in origin form, its fields, its body. Waits for the head of the answer.
    pub fn send<B: SendBody>(self, head: &RequestHead, body: B) -> SendRequest<'_, IO, B> {
        let reader = HeadReader::new(self.0.limits);
        SendRequest { conn: Some(self.0), head, unsent: Some(body), upload: None, reader, response_started: false }
    }
}

impl<IO> fmt::Debug for Connection<IO> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").field("carried", &self.0.requests_sent).finish_non_exhaustive()
    }
}

impl<IO: Stream> ConnectionInner<IO> {
    fn poll_idle(&mut self, context: &mut Context<'_>) -> bool {
        self.incoming.buffer.is_empty() && self.incoming.poll_read(&mut self.io, context, 0).is_pending()
    }
}

/// A request on its way, until the head of its answer is there.
pub struct SendRequest<'a, IO, B> {
    conn: Option<Box<ConnectionInner<IO>>>,
    head: &'a RequestHead,
    unsent: Option<B>,
    upload: Option<Upload<B>>,
    reader: HeadReader,
    response_started: bool,
}

/// A request's body on its way, and what became of it.
struct Upload<B> {
    body: BodyWriter<B>,
    /// Written to the end.
    done: bool,
    /// The origin takes no more of it; it may have answered all the same.
    write_error: Option<io::Error>,
}

impl<IO: Stream, B: SendBody> Future for SendRequest<'_, IO, B> {
    type Output = Result<Response<ResponseBody<IO, B>>, SendFailure<B>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(body) = this.unsent.take()
            && let Err(body) = this.start(body, context)
        {
            return Poll::Ready(Err(SendFailure { error: Error::Unsent, unsent: Some(body) }));
        }
        this.poll_response(context).map_err(|error| SendFailure { error, unsent: None })
    }
}

impl<IO: Stream, B: SendBody> SendRequest<'_, IO, B> {
    /// Writes the head, and all of a request without a body; gives the body back if the connection is gone.
    fn start(&mut self, body: B, context: &mut Context<'_>) -> Result<(), B> {
        let conn = self.conn.as_mut().expect("polled until it is ready, and no further");
        if conn.requests_sent > 0 && !conn.poll_idle(context) {
            return Err(body);
        }
        conn.requests_sent = conn.requests_sent.saturating_add(1);
        let coding = write_head(conn.outgoing.front_mut(), self.head, &body);
        if let BodyCoding::Exact(0) = coding
            && let Poll::Ready(Err(_)) = conn.outgoing.poll_flush(&mut conn.io, context)
            && conn.outgoing.is_unwritten()
        {
            return Err(body);
        }
        self.upload = Some(Upload { body: BodyWriter::new(body, coding), done: false, write_error: None });
        Ok(())
    }

    fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Result<Response<ResponseBody<IO, B>>, Error>> {
        let conn = self.conn.as_mut().expect("polled until it is ready, and no further");
        let upload = self.upload.as_mut().expect("set when it began");
        upload.poll_upload(conn, context)?;
        let head = loop {
            match self.reader.response(&mut conn.incoming.buffer)? {
                Some(head) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                    return Poll::Ready(Err(Malformed::Switched.into()));
                }
                Some(head) if head.status.is_informational() => {}
                Some(head) => break head,
                None => match ready!(conn.incoming.poll_read(&mut conn.io, context, 0)) {
                    Ok(0) if self.response_started => return Poll::Ready(Err(Error::UnexpectedEof)),
                    Ok(0) => return Poll::Ready(Err(Error::NoResponse)),
                    Ok(_) => self.response_started = true,
                    Err(error) if self.response_started => return Poll::Ready(Err(Error::Io(error))),
                    Err(_) => return Poll::Ready(Err(Error::NoResponse)),
                },
            }
        };
        let ResponseHead { status, version, fields, noted } = head;
        let length = noted.response_length(&self.head.method, status, version)?;
        let body = ResponseBody {
            conn: self.conn.take(),
            upload: self.upload.take().filter(|upload| !upload.done),
            body: BodyReader::new(length),
            reusable: noted.keeps_alive(version),
        };
        Poll::Ready(Ok(Response { status, fields, body }))
    }
}

impl<B: SendBody> Upload<B> {
    /// Writes what can be written. An origin that takes no more is no error yet: it may have answered.
    fn poll_upload<IO: AsyncWrite + Unpin>(
        &mut self,
        conn: &mut ConnectionInner<IO>,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        if self.done || self.write_error.is_some() {
            return Ok(());
        }
        match self.body.poll_write(&mut conn.io, &mut conn.outgoing, context) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.done = true,
            Poll::Ready(Err(WriteError::Io(error))) => self.write_error = Some(error),
            Poll::Ready(Err(WriteError::Body(error))) => return Err(Error::Body(error)),
            Poll::Ready(Err(WriteError::Length)) => return Err(Error::BodyLength),
        }
        Ok(())
    }
}

/// Writes a request's head and says how its body is to follow.
fn write_head<B: Body>(out: &mut Vec<u8>, head: &RequestHead, body: &B) -> BodyCoding {
    let RequestHead { method, target, fields, .. } = head;
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
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
            BodyCoding::Chunked(chunked::announced(fields))
        }
    };
    out.extend_from_slice(b"\r\n");
    coding
}

/// The body of an answer, and the connection it comes on.
pub struct ResponseBody<IO, B> {
    conn: Option<Box<ConnectionInner<IO>>>,
    /// What is still being sent, if the origin answered before it had everything.
    upload: Option<Upload<B>>,
    body: BodyReader,
    reusable: bool,
}

impl<IO, B> ResponseBody<IO, B> {
    /// The connection, if all of this answer has been read, all of its request was sent, and the origin keeps it.
    pub fn take_connection(&mut self) -> Option<Connection<IO>> {
        let over = self.body.is_done() && self.upload.is_none() && self.reusable;
        let mut conn = self.conn.take()?;
        conn.incoming.shrink();
        (over && conn.incoming.buffer.is_empty()).then_some(Connection(conn))
    }
}

impl<IO: Stream, B: SendBody> ResponseBody<IO, B> {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<BodyChunk, Error>> {
        let Some(conn) = &mut self.conn else { return Poll::Ready(Ok(BodyChunk::End)) };
        if let Some(upload) = &mut self.upload {
            upload.poll_upload(conn, context)?;
            if upload.done {
                self.upload = None;
            }
        }
        loop {
            match self.body.next(&mut conn.incoming.buffer)? {
                BodyChunk::Pending => {}
                piece => return Poll::Ready(Ok(piece)),
            }
            match ready!(conn.incoming.poll_read(&mut conn.io, context, self.body.expected())) {
                Ok(0) if self.body.closed() => self.reusable = false,
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

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let piece = match ready!(self.poll_piece(context)) {
            Ok(piece) => piece,
            Err(error) => {
                self.conn = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        Poll::Ready(match piece {
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
