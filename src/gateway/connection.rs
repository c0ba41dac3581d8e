//! A client connection: protocol detection, serving, and forced closing.

use super::client_body::{ClientBody, HTTP2_STREAM_WINDOW};
use super::connection_memory::{HTTP2_CONNECTION, MemoryCharge};
use super::connection_timeouts::{ConnectionCommand, ConnectionState};
use super::handler::RequestHandler;
use super::listener::ListenerKind;
use super::response_body::ResponseBody;
use super::tracked_stream::TrackedStream;
use super::worker::Worker;
use bytes::BytesMut;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_config::settings::Limits;
use tidegate_http1::server::{self, Finish};
use tidegate_http1::{self as http1, Fields, Request, RequestHead, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Connection preface of an HTTP/2 client with prior knowledge (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Four times the window of a stream, so that one slow reader does not block the others.
const HTTP2_CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Maximum bytes of a response that wait in the stream of a client that does not read.
const HTTP2_SEND_BUFFER: usize = 64 * 1024;
/// Ping interval; a peer that does not respond is disconnected.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);

/// Time for the client to read the last response and close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Capacity for the head of a typical request.
const INITIAL_READ_CAPACITY: usize = 8 * 1024;

/// Serves one client until it disconnects, times out, or the connection is closed by command.
pub(super) async fn serve(worker: Rc<Worker>, kind: ListenerKind, stream: TcpStream, peer: SocketAddr) {
    let limits = worker.current().settings.limits.clone();
    let connection_state = ConnectionState::new(worker.monotonic_tick(), limits.max_requests_per_connection);
    worker.connections().add(&connection_state);
    let _ = stream.set_nodelay(true);
    let mut stream = TrackedStream::new(stream, Rc::clone(&connection_state));
    let mut prefix = BytesMut::with_capacity(INITIAL_READ_CAPACITY);
    let is_http2 =
        run_until_commanded(&connection_state, detect_http2(&mut stream, &mut prefix), |_, command| match command {
            ConnectionCommand::Drain => CloseMode::Immediate,
            _ => CloseMode::Graceful,
        });
    let is_http2 = is_http2.await;
    let handler = RequestHandler::new(Rc::clone(&worker), Rc::clone(&connection_state), kind, peer);
    match is_http2 {
        Some(Ok(true)) => serve_http2(&limits, &connection_state, RewindStream { prefix, io: stream }, handler).await,
        Some(Ok(false)) => serve_http1(&worker, &limits, &connection_state, stream, prefix, handler).await,
        _ => {}
    }
}

async fn serve_http1(
    worker: &Worker,
    limits: &Limits,
    connection_state: &ConnectionState,
    stream: TrackedStream,
    prefix: BytesMut,
    handler: Rc<RequestHandler>,
) {
    let finish = Cell::new(match connection_state.command_sent() {
        ConnectionCommand::Continue => Finish::Never,
        _ => Finish::AfterResponse,
    });
    let limits = http1::HeadLimits { size: limits.max_head_size, fields: limits.max_headers };
    let on_malformed = |error| handler.reject_unparsed(error);
    let read_buffer = Rc::clone(connection_state.memory().read_buffer());
    let options = server::ServeOptions { limits, finish: &finish, read_buffer, date: || worker.date(), on_malformed };
    let connection = server::serve(stream, prefix, options, |Request { head, body }| {
        Rc::clone(&handler).handle(Request { head, body: ClientBody::Http1(body) })
    });
    let ended = run_until_commanded(connection_state, connection, |_, command| {
        finish.set(if command == ConnectionCommand::Drain { Finish::Now } else { Finish::AfterResponse });
        CloseMode::Graceful
    });
    if let Some(Some(lingering)) = ended.await {
        let closed = run_until_commanded(connection_state, lingering.until_closed(), |_, _| CloseMode::Graceful);
        let _ = tokio::time::timeout(LINGER_TIMEOUT, closed).await;
    }
}

async fn serve_http2(
    limits: &Limits,
    connection_state: &ConnectionState,
    stream: RewindStream,
    handler: Rc<RequestHandler>,
) {
    let _charge = MemoryCharge::new(connection_state.memory(), HTTP2_CONNECTION);
    let service = service_fn(move |request: http::Request<_>| {
        let response = Rc::clone(&handler).handle(from_http2(request));
        async move { Ok::<_, Infallible>(to_http2(response.await)) }
    });
    let connection = hyper::server::conn::http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_send_buf_size(HTTP2_SEND_BUFFER)
        .max_concurrent_streams(limits.http2_max_concurrent_streams)
        .max_header_list_size(u32::try_from(limits.max_head_size).unwrap_or(u32::MAX))
        .serve_connection(TokioIo::new(stream), service);
    run_until_commanded(connection_state, connection, |connection, _| {
        connection.graceful_shutdown();
        CloseMode::Graceful
    })
    .await;
}

fn from_http2(request: http::Request<Incoming>) -> Request<ClientBody> {
    let (http::request::Parts { method, uri, version, headers, .. }, body) = request.into_parts();
    let head = RequestHead { method, target: uri, version, fields: Fields::from(&headers) };
    Request { head, body: ClientBody::Http2(body) }
}

fn to_http2(response: Response<ResponseBody>) -> http::Response<ResponseBody> {
    let mut converted = http::Response::new(response.body);
    *converted.status_mut() = response.status;
    *converted.headers_mut() = response.fields.to_map();
    converted
}

/// Reads into `prefix` until the protocol is certain. Returns true for HTTP/2.
async fn detect_http2(stream: &mut TrackedStream, prefix: &mut BytesMut) -> io::Result<bool> {
    loop {
        let compared = prefix.len().min(PREFACE.len());
        if prefix[..compared] != PREFACE[..compared] {
            return Ok(false);
        }
        if compared == PREFACE.len() {
            return Ok(true);
        }
        if stream.read_buf(prefix).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Polls `work` until it completes or is commanded to stop; `obey` starts its graceful end, and is called again for a
/// stronger command. Returns `None` if it was aborted.
async fn run_until_commanded<F: Future>(
    connection_state: &ConnectionState,
    work: F,
    mut obey: impl FnMut(Pin<&mut F>, ConnectionCommand) -> CloseMode,
) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut obeyed = ConnectionCommand::Continue;
    std::future::poll_fn(|context| {
        let command = connection_state.poll_command(context);
        if command == ConnectionCommand::Close {
            return Poll::Ready(None);
        }
        if command > obeyed {
            obeyed = command;
            if let CloseMode::Immediate = obey(work.as_mut(), command) {
                return Poll::Ready(None);
            }
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Mode in which work ends after a command.
enum CloseMode {
    Immediate,
    Graceful,
}

/// A stream that first yields the bytes read for protocol detection.
struct RewindStream {
    prefix: BytesMut,
    io: TrackedStream,
}

impl AsyncRead for RewindStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let length = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix.split_to(length));
        if self.prefix.is_empty() {
            self.prefix = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RewindStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Executor that runs the streams of an HTTP/2 connection on the worker's thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(async move {
            stream.await;
        });
    }
}
