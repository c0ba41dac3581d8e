//! One client connection: which protocol it speaks, and its life under watch.

use super::exchange::Exchange;
use super::watch::{Order, Watch};
use super::worker::Worker;
use bytes::BytesMut;
use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// What an HTTP/2 client that knows the gate speaks it says first (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream may fill a quarter of this before its siblings are held up: one slow reader does not starve the rest.
const HTTP2_STREAM_WINDOW: u32 = 256 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// A peer that answers no ping is gone.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(20);

/// Serves one client until it leaves, is told to, or takes too long.
pub(super) async fn serve(worker: Rc<Worker>, stream: TcpStream, peer: SocketAddr) {
    let limits = worker.current().settings.limits.clone();
    let watch = Watch::new(worker.uptime(), limits.requests_per_connection);
    worker.watched().add(&watch);
    let _ = stream.set_nodelay(true);
    let mut stream = Watched { io: stream, first: BytesMut::with_capacity(1024), watch: Rc::clone(&watch) };
    let Some(Ok(http2)) = under_orders(&watch, stream.speaks_http2(), |_| Ending::Now).await else { return };

    let exchange = Exchange::new(Rc::clone(&worker), Rc::clone(&watch), peer);
    let service = service_fn(move |request| exchange.clone().handle(request));
    let stream = stream.into_hyper();
    if http2 {
        let connection = hyper::server::conn::http2::Builder::new(OnThisThread)
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING_EVERY)
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .max_concurrent_streams(limits.http2_streams)
            .max_header_list_size(u32::try_from(limits.max_head_size).unwrap_or(u32::MAX))
            .serve_connection(stream, service);
        under_orders(&watch, connection, |connection| {
            connection.graceful_shutdown();
            Ending::InItsTime
        })
        .await;
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.header_read_timeout(None).max_header_size(limits.max_head_size);
        if limits.max_headers != 100 {
            builder.max_headers(limits.max_headers);
        }
        let connection = builder.serve_connection(stream, service);
        under_orders(&watch, connection, |connection| {
            connection.graceful_shutdown();
            Ending::InItsTime
        })
        .await;
    }
}

/// Runs `work` until it ends or is ordered to; `finish` asks it to come to its end. `None` if it was cut off.
async fn under_orders<F: Future>(
    watch: &Watch,
    work: F,
    mut finish: impl FnMut(Pin<&mut F>) -> Ending,
) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut finishing = false;
    std::future::poll_fn(|context| {
        match watch.order(context) {
            Order::Serve => {}
            Order::Finish if finishing => {}
            Order::Finish => {
                finishing = true;
                if let Ending::Now = finish(work.as_mut()) {
                    return Poll::Ready(None);
                }
            }
            Order::Close => return Poll::Ready(None),
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// How work that is asked to come to its end does so.
enum Ending {
    Now,
    InItsTime,
}

/// A stream that notes for the watch what it waits for, and begins with bytes that were read to see what is spoken.
struct Watched<S> {
    io: S,
    first: BytesMut,
    watch: Rc<Watch>,
}

impl Watched<TcpStream> {
    /// Reads until it is certain which protocol the client speaks.
    async fn speaks_http2(&mut self) -> io::Result<bool> {
        loop {
            let known = self.first.len().min(PREFACE.len());
            if self.first[..known] != PREFACE[..known] {
                return Ok(false);
            }
            if known == PREFACE.len() {
                return Ok(true);
            }
            if self.io.read_buf(&mut self.first).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.watch.heard();
        }
    }

    fn into_hyper(self) -> Watched<TokioIo<TcpStream>> {
        Watched { io: TokioIo::new(self.io), first: self.first, watch: self.watch }
    }
}

impl Read for Watched<TokioIo<TcpStream>> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let length = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first.split_to(length));
            if self.first.is_empty() {
                self.first = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = read {
            self.watch.heard();
        }
        read
    }
}

impl Write for Watched<TokioIo<TcpStream>> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.watch.wrote(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.watch.wrote(written.is_pending());
        written
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

/// Runs the streams of an HTTP/2 connection on the worker's own thread.
#[derive(Clone, Copy)]
struct OnThisThread;

impl<F: Future + 'static> Executor<F> for OnThisThread {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(async move {
            stream.await;
        });
    }
}
