//! Requests to the origin and answers from it, one at a time on each connection.
//!
//! A [`Connection`] is taken by [`send`](Connection::send), travels on as the [`ResponseBody`], and comes back out of
//! it once request and answer are both through: [`ResponseBody::take_connection`]. Dropped anywhere in between, it is
//! closed.

use super::body::{BodyReader, BodyWriter, BodyCoding, SendBody, WriteError};
use super::chunked::{self, BodyChunk};
use super::framing::Malformed;
use super::head::{self, HeadReader, Limits, ResponseHead};
use super::message::{RequestHead, Response};
use super::name::Name;
use super::buffer::{ReadBuffer, WriteBuffer};
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
    carried: u32,
}

/// Why there is no answer, or no end of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection was closed before anything was written: the origin has not seen the request.
    #[error("the connection was closed before the request was sent")]
    Unsent,
    /// The origin closed the connection without a byte of an answer: it may have seen the request.
    #[error("the connection was closed without an answer")]
    Unanswered,
    /// The answer, or its body, ended before its end.
    #[error("the answer broke off")]
    CutShort,
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
    fn is_silent(&self) -> bool;
}

impl Stream for TcpStream {
    fn is_silent(&self) -> bool {
        let peeked = SockRef::from(self).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl<IO: Stream> Connection<IO> {
    /// A connection over `io`, which is connected.
    pub fn new(io: IO, limits: Limits) -> Self {
        let incoming = ReadBuffer::new(BytesMut::new());
        Self(Box::new(ConnectionInner { io, incoming, outgoing: WriteBuffer::default(), limits, carried: 0 }))
    }

    /// True while the origin has neither closed it nor said something unasked, as far as anyone has noticed.
    pub fn is_idle(&mut self) -> bool {
        self.0.is_quiet(&mut Context::from_waker(Waker::noop()))
    }

    /// The same, asking the system for what has come but was not noticed yet.
    pub fn is_certainly_idle(&self) -> bool {
        self.0.incoming.buffer.is_empty() && self.0.io.is_silent()
    }

    /// How many requests it has carried.
    pub fn carried(&self) -> u32 {
        self.0.carried
    }

    /// Sends a request as it is: its target in origin form, its fields, its body. Waits for the head of the answer.
    pub fn send<B: SendBody>(self, head: &RequestHead, body: B) -> SendRequest<'_, IO, B> {
        let reader = HeadReader::new(self.0.limits);
        SendRequest { line: Some(self.0), head, unsent: Some(body), upload: None, reader, heard: false }
    }
}

impl<IO> fmt::Debug for Connection<IO> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").field("carried", &self.0.carried).finish_non_exhaustive()
    }
}

impl<IO: Stream> ConnectionInner<IO> {
    fn is_quiet(&mut self, context: &mut Context<'_>) -> bool {
        self.incoming.buffer.is_empty() && self.incoming.poll_read(&mut self.io, context, 0).is_pending()
    }
}

/// A request on its way, until the head of its answer is there.
pub struct SendRequest<'a, IO, B> {
    line: Option<Box<ConnectionInner<IO>>>,
    head: &'a RequestHead,
    unsent: Option<B>,
    upload: Option<Upload<B>>,
    reader: HeadReader,
    heard: bool,
}

/// A request's body on its way, and what became of it.
struct Upload<B> {
    body: BodyWriter<B>,
    /// Written to the end.
    done: bool,
    /// The origin takes no more of it; it may have answered all the same.
    refused: Option<io::Error>,
}

impl<IO: Stream, B: SendBody> Future for SendRequest<'_, IO, B> {
    type Output = Result<Response<ResponseBody<IO, B>>, SendFailure<B>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(body) = this.unsent.take()
            && let Err(body) = this.begin(body, context)
        {
            return Poll::Ready(Err(SendFailure { error: Error::Unsent, unsent: Some(body) }));
        }
        this.poll_answer(context).map_err(|error| SendFailure { error, unsent: None })
    }
}

impl<IO: Stream, B: SendBody> SendRequest<'_, IO, B> {
    /// Writes the head, and all of a request without a body; gives the body back if the connection is gone.
    fn begin(&mut self, body: B, context: &mut Context<'_>) -> Result<(), B> {
        let line = self.line.as_mut().expect("polled until it is ready, and no further");
        if line.carried > 0 && !line.is_quiet(context) {
            return Err(body);
        }
        line.carried = line.carried.saturating_add(1);
        let coding = write_head(line.outgoing.text(), self.head, &body);
        if let BodyCoding::Exact(0) = coding
            && let Poll::Ready(Err(_)) = line.outgoing.poll_flush(&mut line.io, context)
            && line.outgoing.is_untouched()
        {
            return Err(body);
        }
        self.upload = Some(Upload { body: BodyWriter::new(body, coding), done: false, refused: None });
        Ok(())
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Response<ResponseBody<IO, B>>, Error>> {
        let line = self.line.as_mut().expect("polled until it is ready, and no further");
        let upload = self.upload.as_mut().expect("set when it began");
        upload.go_on(line, context)?;
        let head = loop {
            match self.reader.response(&mut line.incoming.buffer)? {
                Some(head) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                    return Poll::Ready(Err(Malformed::Switched.into()));
                }
                Some(head) if head.status.is_informational() => {}
                Some(head) => break head,
                None => match ready!(line.incoming.poll_read(&mut line.io, context, 0)) {
                    Ok(0) if self.heard => return Poll::Ready(Err(Error::CutShort)),
                    Ok(0) => return Poll::Ready(Err(Error::Unanswered)),
                    Ok(_) => self.heard = true,
                    Err(error) if self.heard => return Poll::Ready(Err(Error::Io(error))),
                    Err(_) => return Poll::Ready(Err(Error::Unanswered)),
                },
            }
        };
        let ResponseHead { status, version, fields, noted } = head;
        let length = noted.of_response(&self.head.method, status, version)?;
        let body = ResponseBody {
            line: self.line.take(),
            upload: self.upload.take().filter(|upload| !upload.done),
            body: BodyReader::new(length),
            reusable: noted.keeps_alive(version),
        };
        Poll::Ready(Ok(Response { status, fields, body }))
    }
}

impl<B: SendBody> Upload<B> {
    /// Writes what can be written. An origin that takes no more is no error yet: it may have answered.
    fn go_on<IO: AsyncWrite + Unpin>(&mut self, line: &mut ConnectionInner<IO>, context: &mut Context<'_>) -> Result<(), Error> {
        if self.done || self.refused.is_some() {
            return Ok(());
        }
        match self.body.poll_write(&mut line.io, &mut line.outgoing, context) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.done = true,
            Poll::Ready(Err(WriteError::Io(error))) => self.refused = Some(error),
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
    line: Option<Box<ConnectionInner<IO>>>,
    /// What is still being sent, if the origin answered before it had everything.
    upload: Option<Upload<B>>,
    body: BodyReader,
    reusable: bool,
}

impl<IO, B> ResponseBody<IO, B> {
    /// The connection, if all of this answer has been read, all of its request was sent, and the origin keeps it.
    pub fn take_connection(&mut self) -> Option<Connection<IO>> {
        let over = self.body.is_done() && self.upload.is_none() && self.reusable;
        let mut line = self.line.take()?;
        line.incoming.rest();
        (over && line.incoming.buffer.is_empty()).then_some(Connection(line))
    }
}

impl<IO: Stream, B: SendBody> ResponseBody<IO, B> {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<BodyChunk, Error>> {
        let Some(line) = &mut self.line else { return Poll::Ready(Ok(BodyChunk::End)) };
        if let Some(upload) = &mut self.upload {
            upload.go_on(line, context)?;
            if upload.done {
                self.upload = None;
            }
        }
        loop {
            match self.body.next(&mut line.incoming.buffer)? {
                BodyChunk::Later => {}
                piece => return Poll::Ready(Ok(piece)),
            }
            match ready!(line.incoming.poll_read(&mut line.io, context, self.body.expected())) {
                Ok(0) if self.body.closed() => self.reusable = false,
                Ok(0) => return Poll::Ready(Err(Error::CutShort)),
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
                self.line = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        Poll::Ready(match piece {
            BodyChunk::Data(data) => Some(Ok(Frame::data(data))),
            BodyChunk::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            BodyChunk::End | BodyChunk::Later => None,
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
