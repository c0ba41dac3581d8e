//! A client connection: what precedes its first request, protocol detection, serving, and forced closing.

use super::batched_stream::{BatchedConnection, BatchedStream};
use super::client_body::{ClientBody, HTTP2_STREAM_WINDOW};
use super::client_stream::ClientStream;
use super::connection_memory::{HTTP2_CONNECTION, MemoryCharge};
use super::connection_slot::ConnectionSlot;
use super::connection_timeouts::{ConnectionCommand, ConnectionState};
use super::extended_connect;
use super::http2_messages::{from_http2, to_http2};
use super::listener::ListenerOptions;
use super::local_executor::LocalExecutor;
use super::proxy_protocol::{ProxyHeaderError, read_header};
use super::tls_handshake::{self, TlsConnection};
use super::tracked_stream::TrackedStream;
use crate::gateway::exchange::answer::refusal::reject_unparsed;
use crate::gateway::exchange::{ClientConnection, handle};
use crate::gateway::worker::Worker;
use bytes::BytesMut;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::ops::DerefMut;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tidegate_config::settings::Limits;
use tidegate_http1::server::{self, Finish, Served};
use tidegate_http1::{self as http1, Request};
use tidegate_tls::TlsListener;
use tokio::io::AsyncReadExt;
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
pub(in crate::gateway) async fn serve(
    worker: Rc<Worker>,
    options: Rc<ListenerOptions>,
    stream: TcpStream,
    peer: IpAddr,
) {
    let connection_state = track(&worker, &stream);
    serve_tracked(worker, options, stream, peer, connection_state).await;
}

/// Serves the client of a proxy, whose address precedes the connection. `slot` is that of the connection.
pub(in crate::gateway) async fn serve_proxied(
    worker: Rc<Worker>,
    options: Rc<ListenerOptions>,
    mut stream: TcpStream,
    proxy: IpAddr,
    mut slot: ConnectionSlot,
) {
    let connection_state = track(&worker, &stream);
    connection_state.on_proxy_header_start();
    let header = match worker.config().settings.rules.trust.trusts(proxy) {
        true => run_until_commanded(&connection_state, Box::pin(read_header(&mut stream)), close_unless_last).await,
        false => Some(Err(ProxyHeaderError::Untrusted)),
    };
    let client = match header {
        Some(Ok(client)) => client.map_or(proxy, |client| client.ip().to_canonical()),
        Some(Err(error)) => return worker.record_proxy_error(proxy, &error),
        None => return,
    };
    // The limit is one of clients, and a health check of the proxy is none.
    if client == proxy || slot.try_count(&worker, client) {
        connection_state.on_established();
        serve_tracked(worker, options, stream, client, connection_state).await;
    }
}

/// Adds the connection to those whose timeouts are checked.
fn track(worker: &Worker, stream: &TcpStream) -> Rc<ConnectionState> {
    let max_requests = worker.config().settings.limits.max_requests_per_connection;
    let connection_state = ConnectionState::new(worker.monotonic_tick(), worker.shared().clock.clone(), max_requests);
    worker.connections().add(&connection_state);
    let _ = stream.set_nodelay(true);
    connection_state
}

async fn serve_tracked(
    worker: Rc<Worker>,
    options: Rc<ListenerOptions>,
    stream: TcpStream,
    peer: IpAddr,
    connection_state: Rc<ConnectionState>,
) {
    // Boxed, so that neither occupies the memory of the other.
    match &options.tls {
        None => Box::pin(serve_plain(worker, options, stream, peer, connection_state)).await,
        Some(tls) => Box::pin(serve_tls(worker, Rc::clone(&options), tls, stream, peer, connection_state)).await,
    }
}

async fn serve_tls(
    worker: Rc<Worker>,
    options: Rc<ListenerOptions>,
    tls: &TlsListener,
    stream: TcpStream,
    peer: IpAddr,
    connection_state: Rc<ConnectionState>,
) {
    connection_state.on_handshake_start();
    let handshake = Box::pin(tls_handshake::accept(&worker, tls, stream, peer, &connection_state));
    let connection = run_until_commanded(&connection_state, handshake, close_unless_last).await;
    let Some(Some(TlsConnection { stream, is_http2, certificate_names })) = connection else { return };
    connection_state.on_established();
    let limits = worker.config().settings.limits.clone();
    let connection =
        ClientConnection::new(Rc::clone(&worker), Rc::clone(&connection_state), options, peer, certificate_names);
    let prefix = BytesMut::new();
    match is_http2 {
        true => serve_http2(&limits, &connection_state, stream, prefix, connection).await,
        false => serve_http1(&worker, &limits, &connection_state, stream, prefix, connection).await,
    }
}

/// Lets a connection without a request wait for the last one, but not longer.
fn close_unless_last<F>(_: Pin<&mut F>, command: ConnectionCommand) -> CloseMode {
    match command {
        ConnectionCommand::Drain => CloseMode::Immediate,
        _ => CloseMode::Graceful,
    }
}

async fn serve_plain(
    worker: Rc<Worker>,
    options: Rc<ListenerOptions>,
    stream: TcpStream,
    peer: IpAddr,
    connection_state: Rc<ConnectionState>,
) {
    let limits = worker.config().settings.limits.clone();
    let mut stream = ClientStream::Plain(TrackedStream::new(stream, Rc::clone(&connection_state)));
    let mut prefix = BytesMut::new();
    let is_http2 = {
        let charge = MemoryCharge::new(connection_state.memory(), 0);
        let detection = pin!(detect_http2(&mut stream, &mut prefix, charge));
        run_until_commanded(&connection_state, detection, close_unless_last).await
    };
    let connection = ClientConnection::new(Rc::clone(&worker), Rc::clone(&connection_state), options, peer, Vec::new());
    match is_http2 {
        Some(Ok(true)) => serve_http2(&limits, &connection_state, stream, prefix, connection).await,
        Some(Ok(false)) => serve_http1(&worker, &limits, &connection_state, stream, prefix, connection).await,
        _ => {}
    }
}

async fn serve_http1(
    worker: &Worker,
    limits: &Limits,
    connection_state: &ConnectionState,
    stream: ClientStream,
    prefix: BytesMut,
    connection: Rc<ClientConnection>,
) {
    let finish = || match connection_state.command_sent() {
        ConnectionCommand::Continue => Finish::Never,
        ConnectionCommand::CloseAfterResponse => Finish::AfterResponse,
        ConnectionCommand::Drain | ConnectionCommand::Close => Finish::Now,
    };
    let limits = http1::HeadLimits { size: limits.max_head_size, fields: limits.max_headers };
    let on_malformed = |error| reject_unparsed(&connection.worker, error);
    let read_buffer = Rc::clone(connection_state.memory().read_buffer());
    let (interim, date) = (connection_state.interim(), || worker.date());
    let options = server::ServeOptions { limits, finish, interim, read_buffer, date, on_malformed };
    let connection = Box::pin(server::serve(stream, prefix, options, |Request { head, body }| {
        handle(Rc::clone(&connection), Request { head, body: ClientBody::Http1(body) })
    }));
    let ended = run_until_commanded(connection_state, connection, |_, _| CloseMode::Graceful);
    match ended.await.flatten() {
        Some(Served::Lingering(lingering)) => {
            let closed = Box::pin(tokio::time::timeout(LINGER_TIMEOUT, lingering.until_closed()));
            run_until_commanded(connection_state, closed, |_, _| CloseMode::Graceful).await;
        }
        Some(Served::Upgraded { io, received, mut body }) => {
            if let Some(tunnel) = body.take_tunnel() {
                let tunnel = Box::pin(tunnel.run(io, received));
                run_until_commanded(connection_state, tunnel, |_, _| CloseMode::Graceful).await;
            }
        }
        None => {}
    }
}

async fn serve_http2(
    limits: &Limits,
    connection_state: &Rc<ConnectionState>,
    stream: ClientStream,
    prefix: BytesMut,
    connection: Rc<ClientConnection>,
) {
    let charge = MemoryCharge::new(connection_state.memory(), HTTP2_CONNECTION);
    let stream = BatchedStream::new(stream, prefix, charge);
    let state = Rc::clone(connection_state);
    let service = service_fn(move |mut request: http::Request<_>| {
        let upgrade = extended_connect::is_request(&request).then(|| hyper::upgrade::on(&mut request));
        let (connection, connection_state) = (Rc::clone(&connection), Rc::clone(&state));
        // Boxed, because hyper and tokio move it several times.
        Box::pin(async move {
            let response = match upgrade {
                None => to_http2(handle(connection, from_http2(request)).await, &connection_state),
                Some(upgrade) => extended_connect::respond(connection, &connection_state, request, upgrade).await,
            };
            Ok::<_, Infallible>(response)
        })
    });
    let connection = hyper::server::conn::http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_send_buf_size(HTTP2_SEND_BUFFER)
        .enable_connect_protocol()
        .max_concurrent_streams(limits.http2_max_concurrent_streams)
        .max_header_list_size(u32::try_from(limits.max_head_size).unwrap_or(u32::MAX))
        .serve_connection(TokioIo::new(stream.clone()), service);
    let connection = BatchedConnection { connection: Box::pin(connection), stream };
    run_until_commanded(connection_state, pin!(connection), |mut batched, _| {
        batched.connection.as_mut().graceful_shutdown();
        CloseMode::Graceful
    })
    .await;
}

/// Reads into `prefix`, whose memory is charged, until the protocol is certain. Returns true for HTTP/2.
async fn detect_http2(stream: &mut ClientStream, prefix: &mut BytesMut, mut charge: MemoryCharge) -> io::Result<bool> {
    loop {
        let compared = prefix.len().min(PREFACE.len());
        if prefix[..compared] != PREFACE[..compared] {
            return Ok(false);
        }
        if compared == PREFACE.len() {
            return Ok(true);
        }
        let read = std::future::poll_fn(|cx| {
            prefix.reserve(INITIAL_READ_CAPACITY);
            let read = pin!(stream.read_buf(prefix)).poll(cx);
            // A client that sends nothing holds no buffer.
            if read.is_pending() && prefix.is_empty() {
                *prefix = BytesMut::new();
            }
            read
        });
        if read.await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        charge.set(prefix.capacity());
    }
}

/// Polls `work` until it completes or is commanded to stop; `obey` starts its graceful end, and is called again for a
/// stronger command. Returns `None` if it was aborted. Work that occupies much memory is boxed, and so freed at its end.
async fn run_until_commanded<F: Future>(
    connection_state: &ConnectionState,
    mut work: Pin<impl DerefMut<Target = F>>,
    mut obey: impl FnMut(Pin<&mut F>, ConnectionCommand) -> CloseMode,
) -> Option<F::Output> {
    let mut obeyed = ConnectionCommand::Continue;
    std::future::poll_fn(|cx| {
        let command = connection_state.poll_command(cx);
        if command == ConnectionCommand::Close {
            return Poll::Ready(None);
        }
        if command > obeyed {
            obeyed = command;
            if let CloseMode::Immediate = obey(work.as_mut(), command) {
                return Poll::Ready(None);
            }
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Mode in which work ends after a command.
enum CloseMode {
    Immediate,
    Graceful,
}
