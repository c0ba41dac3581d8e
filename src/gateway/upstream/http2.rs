//! Connections of HTTP/2 to the origin (RFC 9113): many requests at once on each.

use super::client_resets::ClientResets;
use super::request_body::RequestBody;
use super::slots::Slot;
use super::stream::OriginStream;
use super::stream_failure::{Processing, StreamFailure, refuses_connection};
use crate::gateway::transport::local_executor::LocalExecutor;
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
use tidegate_policy::identity::ClientKey;

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
    order: ConnectionOrder,
    /// Order of the connections that may take its requests, once it takes none itself.
    replaced_from: Cell<Option<u64>>,
    /// One request at a time.
    is_alone: bool,
    slot: Option<Slot>,
}

/// Order in which the connections of a pool were opened.
pub(super) struct ConnectionOrder {
    own: u64,
    next: Rc<Cell<u64>>,
}

impl ConnectionOrder {
    /// Takes the `next` number of a pool.
    pub(super) fn take(next: &Rc<Cell<u64>>) -> Self {
        let own = next.get();
        next.set(own + 1);
        Self { own, next: Rc::clone(next) }
    }
}

/// One request on a connection. Counts until its request is sent, too.
pub(super) struct Http2Stream {
    connection: Rc<Http2Connection>,
    resets: Rc<ClientResets>,
    /// Client of the request; `None` for one of the gateway itself.
    requester: Option<ClientKey>,
    /// True from sending the request until the end of the response: dropped meanwhile, the stream is reset.
    is_open: Cell<bool>,
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
    /// Returns a connection over the connected `stream`, on which requests without a host are sent `host`. `is_alone` lets
    /// it take one request at a time. Fails if its preface cannot be sent.
    pub(super) async fn new(
        stream: OriginStream,
        limits: HeadLimits,
        host: String,
        slot: Option<Slot>,
        order: ConnectionOrder,
        is_alone: bool,
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
        let (streams, received, replaced_from) = Default::default();
        Ok(Rc::new(Self {
            sender,
            scheme,
            limits,
            driver,
            host,
            streams,
            received,
            order,
            replaced_from,
            is_alone,
            slot,
        }))
    }

    /// Returns true if the connection takes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.replaced_from.get().is_some() || self.sender.is_closed()
    }

    /// Returns true if it takes one request at a time.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Returns its place in the order in which the connections of the pool were opened.
    pub(super) fn order(&self) -> u64 {
        self.order.own
    }

    /// Lets it take no more requests. Those that are in flight go on.
    fn retire(&self) {
        self.replaced_from.set(self.replaced_from.get().or(Some(self.order.next.get())));
    }

    /// Returns true if it takes one more request at once.
    pub(super) fn has_free_stream(&self) -> bool {
        if self.is_alone {
            return self.is_idle();
        }
        let driver = self.driver.borrow();
        let allowed = driver.as_ref().map_or(0, |driver| driver.current_max_send_streams().max(1));
        self.streams.get() < allowed.min(MAX_STREAMS)
    }

    /// Returns true if no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Counts a request of `requester` in flight. If it is reset, it counts in `resets`.
    pub(super) fn begin_stream(
        self: &Rc<Self>,
        requester: Option<ClientKey>,
        resets: &Rc<ClientResets>,
    ) -> Rc<Http2Stream> {
        self.streams.set(self.streams.get() + 1);
        Rc::new(Http2Stream {
            connection: Rc::clone(self),
            resets: Rc::clone(resets),
            requester,
            is_open: Cell::default(),
            received_before: self.received.get(),
        })
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
        self.is_open.set(true);
        let sent = connection.sender.clone().try_send_request(request).await;
        let mut failed = match sent {
            Ok(response) => return self.response(response, upload),
            Err(failed) => failed,
        };
        self.is_open.set(false);
        Err(match failed.take_message() {
            Some(request) => SendFailure { error: Error::Unsent, unsent: Some(request.into_body().body) },
            None => self.on_failed(failed.into_error(), copy),
        })
    }

    /// Handles an error before the response head.
    fn on_failed(&self, error: hyper::Error, copy: Option<RequestBody>) -> SendFailure<RequestBody> {
        let failure = StreamFailure::new(h2_error(&error));
        if failure.concerns_connection() {
            self.connection.retire();
        }
        // A refusal may be the fault of any other request on the connection.
        if matches!(failure, StreamFailure::Reset(_)) && failure.processing() == Processing::Possible {
            self.record_reset();
        }
        let is_unprocessed = failure.processing() == Processing::None;
        let unsent = copy.filter(|_| is_unprocessed);
        let error = match (failure.processing(), failure) {
            (Processing::None | Processing::Unlikely, _) => {
                Error::Refused { source: io::Error::other(error), is_unprocessed }
            }
            (Processing::Possible, StreamFailure::Reset(_) | StreamFailure::Response) => {
                Error::Io(io::Error::other(error))
            }
            (Processing::Possible, _) => Error::NoResponse,
        };
        SendFailure { error, unsent }
    }

    fn record_reset(&self) {
        self.requester.iter().for_each(|client| self.resets.record(*client));
    }

    /// Returns the order from which on connections may take the request of this one, if the connection is retired.
    pub(super) fn replaced_from(&self) -> Option<u64> {
        self.connection.replaced_from.get()
    }

    /// Returns true if nothing was ever received on the connection.
    pub(super) fn is_unanswered(&self) -> bool {
        self.connection.received.get() == 0
    }

    /// Lets the connection take no more requests if it has received nothing since this one: the origin may not answer on it
    /// any more.
    pub(super) fn retire_if_silent(&self) {
        if self.connection.received.get() == self.received_before {
            self.connection.retire();
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
        self.is_open.set(!incoming.is_end_stream());
        let body = Http2Body { incoming, upload, stream: self };
        Ok(Response { status: parts.status, fields: Fields::from(&parts.headers), body })
    }
}

/// Runs `driver` to its end, after which it takes no request: one that it has not begun fails as unsent.
async fn drive(driver: Rc<RefCell<Option<Driver>>>) {
    poll_fn(|cx| match &mut *driver.borrow_mut() {
        Some(driver) => Pin::new(driver).poll(cx).map(drop),
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

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let connection = &self.connection;
        if self.is_open.get() {
            self.record_reset();
            if connection.is_alone {
                connection.retire();
            }
        }
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

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        self.stream.connection.on_received();
        self.stream.is_open.set(matches!(polled, Some(Ok(_))) && !self.incoming.is_end_stream());
        Poll::Ready(match polled {
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(error)) => {
                if refuses_connection(h2_error(&error)) {
                    self.stream.connection.retire();
                }
                Some(Err(Error::Io(io::Error::other(error))))
            }
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

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(abort) = &self.abort {
            if abort.is_aborted.get() {
                return Poll::Ready(Some(Err(h2::Error::from(h2::Reason::CANCEL).into())));
            }
            abort.sender.replace(Some(cx.waker().clone()));
        }
        loop {
            let polled = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()?;
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
