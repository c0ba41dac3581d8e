//! Connections of HTTP/2 to the origin (RFC 9113): many requests at once on each.

use super::request_body::RequestBody;
use super::slots::Slot;
use super::stream::OriginStream;
use crate::gateway::local_executor::LocalExecutor;
use bytes::Bytes;
use http::uri::{PathAndQuery, Scheme};
use http::{Uri, Version, header};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tidegate_http1::client::{Error, SendFailure};
use tidegate_http1::{Fields, HeadLimits, Malformed, Name, RequestHead, Response};

/// Maximum requests at once on one connection, if the origin allows as many.
const MAX_STREAMS: usize = 64;

/// Bytes of a response that the origin may send before they are read.
const STREAM_WINDOW: u32 = 128 * 1024;

/// Bytes of all responses that the origin may send before they are read: a response that is not read stops no other.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;

/// Maximum streams that were reset, and on which the origin may still send.
const MAX_RESET_STREAMS: usize = 1024;

/// Future that sends the requests of a connection.
type Driver = Connection<TokioIo<OriginStream>, UploadBody, LocalExecutor>;

/// A connection of HTTP/2 to the origin.
pub(super) struct Http2Connection {
    sender: SendRequest<UploadBody>,
    scheme: Scheme,
    limits: HeadLimits,
    driver: Rc<RefCell<Option<Driver>>>,
    /// Host of requests without one.
    host: String,
    streams: Cell<usize>,
    /// Number of response heads and parts of bodies that were received.
    received: Cell<u64>,
    is_retired: Cell<bool>,
    slot: Option<Slot>,
}

/// One request on a connection. Counts until its request is sent, too.
pub(super) struct Http2Stream {
    connection: Rc<Http2Connection>,
    /// What the connection had received before.
    received_before: u64,
}

/// A response body. Dropping it resets the stream, unless the origin has sent its end; a request that is still being sent is
/// aborted as soon as the origin takes its last part.
pub(in crate::gateway) struct Http2Body {
    incoming: Incoming,
    upload: AbortOnDrop,
    stream: Rc<Http2Stream>,
}

/// A request body that can be aborted while the connection sends it. Its trailers are left out: no client of gRPC sends any,
/// and the gateway does not know which ones the origin believes.
struct UploadBody {
    body: RequestBody,
    abort: Option<Rc<UploadAbort>>,
    /// The origin has the stream until the body is sent.
    _stream: Option<Rc<Http2Stream>>,
}

/// Tells the task that sends a request body to stop.
#[derive(Default)]
struct UploadAbort {
    is_aborted: Cell<bool>,
    sender: RefCell<Option<Waker>>,
}

/// Aborts the upload of a request whose response is not awaited any more.
struct AbortOnDrop(Option<Rc<UploadAbort>>);

impl Http2Connection {
    /// Returns a connection over the connected `stream`, on which requests without a host are sent `host`. Fails if its
    /// preface cannot be sent.
    pub(super) async fn new(
        stream: OriginStream,
        limits: HeadLimits,
        host: String,
        slot: Option<Slot>,
    ) -> io::Result<Rc<Self>> {
        let scheme = stream.scheme();
        let (sender, driver) = Builder::new(LocalExecutor)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(u32::try_from(limits.size).unwrap_or(u32::MAX))
            // What the origin still sends on a stream that a client made the gateway reset is no fault of the origin.
            .max_local_error_reset_streams(None)
            .max_concurrent_reset_streams(MAX_RESET_STREAMS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let driver = Rc::new(RefCell::new(Some(driver)));
        tokio::task::spawn_local(drive(Rc::clone(&driver)));
        let (streams, received, is_retired) = Default::default();
        Ok(Rc::new(Self { sender, scheme, limits, driver, host, streams, received, is_retired, slot }))
    }

    /// Returns true if the connection takes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.is_retired.get() || self.sender.is_closed()
    }

    /// Returns true if the origin allows one more request at once.
    pub(super) fn has_free_stream(&self) -> bool {
        let driver = self.driver.borrow();
        let allowed = driver.as_ref().map_or(0, |driver| driver.current_max_send_streams().max(1));
        self.streams.get() < allowed.min(MAX_STREAMS)
    }

    /// Returns true if no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Counts a request in flight.
    pub(super) fn begin_stream(self: &Rc<Self>) -> Rc<Http2Stream> {
        self.streams.set(self.streams.get() + 1);
        Rc::new(Http2Stream { connection: Rc::clone(self), received_before: self.received.get() })
    }

    fn on_received(&self) {
        self.received.set(self.received.get() + 1);
    }
}

impl Http2Stream {
    /// Sends the request of this stream, and waits for the response head.
    pub(super) async fn send(
        self: Rc<Self>,
        head: &RequestHead,
        body: RequestBody,
    ) -> Result<Response<Http2Body>, SendFailure<RequestBody>> {
        let connection = &self.connection;
        let Some(uri) = uri(head, &connection.scheme, &connection.host) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "host or path cannot be sent over HTTP/2");
            return Err(SendFailure { error: Error::Io(source), unsent: Some(body) });
        };
        let is_empty = body.is_end_stream();
        let copy = body.copy();
        let abort = (!is_empty).then(Rc::<UploadAbort>::default);
        let upload = AbortOnDrop(abort.clone());
        let stream = (!is_empty).then(|| Rc::clone(&self));
        let mut request = http::Request::new(UploadBody { body, abort, _stream: stream });
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = head.fields.to_map();
        // The authority of the URI, the length of the body, and the trailers that are left out.
        for name in [header::HOST, header::CONTENT_LENGTH, header::TRAILER] {
            request.headers_mut().remove(name);
        }
        match connection.sender.clone().try_send_request(request).await {
            Ok(response) => self.response(response, upload),
            Err(mut failed) => Err(match failed.take_message() {
                Some(request) => SendFailure { error: Error::Unsent, unsent: Some(request.into_body().body) },
                None if is_unprocessed(failed.error()) => SendFailure { error: Error::Unsent, unsent: copy },
                None => SendFailure { error: sent_error(failed.into_error()), unsent: None },
            }),
        }
    }

    /// Returns true if nothing was ever received on the connection.
    pub(super) fn is_unanswered(&self) -> bool {
        self.connection.received.get() == 0
    }

    /// Lets the connection take no more requests if it has received nothing since this one: the origin may not answer on it
    /// any more.
    pub(super) fn retire_if_silent(&self) {
        if self.connection.received.get() == self.received_before {
            self.connection.is_retired.set(true);
        }
    }

    fn response(
        self: Rc<Self>,
        response: http::Response<Incoming>,
        upload: AbortOnDrop,
    ) -> Result<Response<Http2Body>, SendFailure<RequestBody>> {
        self.connection.on_received();
        let (parts, incoming) = response.into_parts();
        if parts.headers.len() > self.connection.limits.fields {
            return Err(SendFailure { error: Malformed::HeadTooLarge.into(), unsent: None });
        }
        let body = Http2Body { incoming, upload, stream: self };
        Ok(Response { status: parts.status, fields: Fields::from(&parts.headers), body })
    }
}

/// Runs `driver` to its end, after which it takes no request: one that it has not begun fails as unsent.
async fn drive(driver: Rc<RefCell<Option<Driver>>>) {
    poll_fn(|context| match &mut *driver.borrow_mut() {
        Some(driver) => Pin::new(driver).poll(context).map(drop),
        None => Poll::Ready(()),
    })
    .await;
    drop(driver.take());
}

/// Returns the target of a request in absolute form.
fn uri(head: &RequestHead, scheme: &Scheme, default_host: &str) -> Option<Uri> {
    let host = head.fields.get(Name::Host).filter(|host| !host.is_empty());
    let authority = host.unwrap_or(default_host.as_bytes());
    let path = head.target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::builder().scheme(scheme.clone()).authority(authority).path_and_query(path).build().ok()
}

/// Returns true if the origin has certainly not processed the request: it refused the stream, or the stream is above the
/// last one of its GOAWAY (RFC 9113 section 8.7).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let Some(error) = h2_error(error).filter(|error| error.is_remote()) else { return false };
    error.is_go_away() || (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Returns the error of a request that the origin may have received.
fn sent_error(error: hyper::Error) -> Error {
    let is_reset = h2_error(&error).is_some_and(h2::Error::is_reset);
    if is_reset { Error::Io(io::Error::other(error)) } else { Error::NoResponse }
}

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.streams.set(connection.streams.get() - 1);
        connection.slot.iter().for_each(Slot::wake_waiter);
    }
}

impl Http2Body {
    /// Stops a request that is still being sent.
    pub(super) fn abort_upload(&mut self) {
        self.upload = AbortOnDrop(None);
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        self.stream.connection.on_received();
        Poll::Ready(match polled {
            Some(frame) => Some(frame.map_err(|error| Error::Io(io::Error::other(error)))),
            // A stream that was reset without an error ends without its end, too.
            None if !self.incoming.is_end_stream() => Some(Err(Error::UnexpectedEof)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(abort) = &self.abort {
            if abort.is_aborted.get() {
                return Poll::Ready(Some(Err(h2::Error::from(h2::Reason::CANCEL).into())));
            }
            abort.sender.replace(Some(context.waker().clone()));
        }
        loop {
            let polled = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?;
            if polled.as_ref().is_none_or(Frame::is_data) {
                return Poll::Ready(Ok(polled).transpose());
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(abort) = &self.0 {
            abort.is_aborted.set(true);
            abort.sender.take().into_iter().for_each(Waker::wake);
        }
    }
}
