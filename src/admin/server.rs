//! Server of the admin listener, within bounds: clients without the token do not keep others out.

use super::listener::{Accepted, Listener, Peer};
use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Bounds of the connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// Maximum number of connections. A further one takes the place of the oldest without authorization, or waits.
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

type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The open connections.
#[derive(Default)]
struct OpenConnections {
    tasks: JoinSet<()>,
    /// Oldest first.
    open: VecDeque<(AbortHandle, Authorized)>,
}

/// Mark of a connection: set once a request on it was authorized.
#[derive(Clone, Default)]
pub(super) struct Authorized(Arc<AtomicBool>);

impl OpenConnections {
    /// Returns true if one more connection has a place.
    fn has_room(&mut self, count: usize) -> bool {
        self.open.retain(|(task, _)| !task.is_finished());
        self.open.len() < count || self.open.iter().any(|(_, authorized)| !authorized.is_set())
    }

    /// Serves one more connection; closes the oldest without authorization if there are `count`.
    fn spawn(&mut self, count: usize, authorized: Authorized, connection: ConnectionTask) {
        if self.open.len() >= count
            && let Some(oldest) = self.open.iter().position(|(_, authorized)| !authorized.is_set())
            && let Some((task, _)) = self.open.remove(oldest)
        {
            task.abort();
        }
        self.open.push_back((self.tasks.spawn(connection), authorized));
    }
}

impl Authorized {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Pause before accepting again when file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown` completes; requests in flight are finished.
/// `on_failure` is called with each failure to accept a connection.
pub(super) async fn serve(
    listener: Listener,
    router: Router,
    on_failure: impl Fn(&io::Error),
    shutdown: impl Future<Output = ()>,
) {
    serve_within(ConnectionLimits::default(), listener, router, on_failure, shutdown).await;
}

/// Like [`serve`], within other limits.
pub(super) async fn serve_within(
    limits: ConnectionLimits,
    listener: Listener,
    router: Router,
    on_failure: impl Fn(&io::Error),
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(());
    let mut connections = OpenConnections::default();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.tasks.join_next() => {}
            accepted = listener.accept(), if connections.has_room(limits.count) => match accepted {
                Ok(accepted) => {
                    let authorized = Authorized::default();
                    let router = router.clone().layer(Extension(authorized.clone()));
                    let connection: ConnectionTask = match accepted {
                        Accepted::Tcp(stream, peer) => {
                            Box::pin(serve_connection(limits, stream, peer, router, stopped.clone()))
                        }
                        Accepted::Unix(stream, peer) => {
                            Box::pin(serve_connection(limits, stream, peer, router, stopped.clone()))
                        }
                    };
                    connections.spawn(limits.count, authorized, connection);
                }
                Err(error) => {
                    on_failure(&error);
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(stop);
    while connections.tasks.join_next().await.is_some() {}
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
