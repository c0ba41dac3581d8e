//! Server of the admin listener, within bounds: idle and slow clients do not keep others out.

use super::listener::{Accepted, Listener, Peer};
use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

/// Bounds of the connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// Maximum number of connections; further ones wait.
    pub(super) count: usize,
    /// Time to receive a request head, including the pause before it.
    pub(super) header_timeout: Duration,
    /// Time after which a connection is closed, once its request is finished.
    pub(super) lifetime: Duration,
    /// Time for that request to finish.
    pub(super) finish_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            count: 64,
            header_timeout: Duration::from_secs(10),
            lifetime: Duration::from_secs(60),
            finish_timeout: Duration::from_secs(15),
        }
    }
}

/// Pause before accepting again when file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown` completes; requests in flight are finished.
pub(super) async fn serve(listener: Listener, router: Router, shutdown: impl Future<Output = ()>) {
    serve_within(ConnectionLimits::default(), listener, router, shutdown).await;
}

/// Like [`serve`], within other limits.
pub(super) async fn serve_within(
    limits: ConnectionLimits,
    listener: Listener,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limits.count => match accepted {
                Ok(Accepted::Tcp(stream, peer)) => {
                    connections.spawn(serve_connection(limits, stream, peer, router.clone(), stopped.clone()));
                }
                Ok(Accepted::Unix(stream, peer)) => {
                    connections.spawn(serve_connection(limits, stream, peer, router.clone(), stopped.clone()));
                }
                Err(error) => {
                    warn!(%error, "Cannot accept admin connections: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(stop);
    while connections.join_next().await.is_some() {}
}

async fn serve_connection(
    limits: ConnectionLimits,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    router: Router,
    mut stopped: watch::Receiver<()>,
) {
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(limits.lifetime) => {}
        _ = stopped.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(limits.finish_timeout, connection).await;
}
