//! The accept loop of a worker, and the thread it runs on.

use super::connection;
use super::handler::run_fills;
use super::listener::ListenerKind;
use super::shared::Shared;
use super::worker::{Stage, Worker};
use crate::telemetry::WorkerTelemetry;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidegate_policy::identity::ClientKey;
use tokio::sync::{mpsc, watch};
use tracing::warn;

/// Pause before accepting again when file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Most threads of a worker that read and write files.
const MAX_FILE_THREADS: usize = 16;

/// Maximum bodies of refused requests drained at once; further ones are aborted.
const MAX_DRAINS: usize = 256;
/// Limits of one drained body: bytes and time.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs one worker on this thread until the gateway is closed.
pub(super) fn run(
    shared: Arc<Shared>,
    listeners: Vec<(TcpListener, ListenerKind)>,
    telemetry: WorkerTelemetry,
    stage: watch::Receiver<Stage>,
    seed: u64,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_FILE_THREADS)
        .build_local(Default::default())?;
    runtime.block_on(async move {
        let (drain, drains) = mpsc::channel(MAX_DRAINS);
        let worker = Worker::new(shared, telemetry, drain, seed);
        tokio::task::spawn_local(drain_bodies(drains));
        tokio::task::spawn_local(run_fills(Rc::clone(&worker)));
        for (listener, kind) in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::task::spawn_local(accept(Rc::clone(&worker), listener, kind, stage.clone()));
        }
        let maintenance = tokio::task::spawn_local(worker.run_maintenance(stage));
        maintenance.await.map_err(io::Error::other)
    })
}

/// Accepts connections until the gateway drains.
async fn accept(
    worker: Rc<Worker>,
    listener: tokio::net::TcpListener,
    kind: ListenerKind,
    mut stage: watch::Receiver<Stage>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            _ = stage.wait_for(|stage| *stage != Stage::Serving) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                worker.monotonic_now();
                let Some(slot) = ConnectionSlot::try_acquire(&worker, peer.ip()) else { continue };
                let worker = Rc::clone(&worker);
                tokio::task::spawn_local(async move {
                    connection::serve(worker, kind, stream, peer).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // A connection closed before it was accepted is harmless; any other error is a shortage.
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    warn!(%error, "Cannot accept connections: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

/// Slot of an open connection.
struct ConnectionSlot {
    shared: Arc<Shared>,
    telemetry: WorkerTelemetry,
    /// Address it is counted for, if connections per address are limited.
    counted_address: Option<ClientKey>,
}

impl ConnectionSlot {
    fn try_acquire(worker: &Rc<Worker>, peer: IpAddr) -> Option<Self> {
        let current = worker.current();
        let limits = &current.settings.limits;
        let address_limit = limits.max_connections_per_address.map(|max| (current.settings.rules.trust.key(peer), max));
        let shared = &worker.shared;
        let open = shared.open_connections.fetch_add(1, Ordering::Relaxed);
        if open < limits.max_connections
            && address_limit.is_none_or(|(key, max)| shared.connection_counts.try_acquire(key, max))
        {
            worker.telemetry().connection_opened();
            let counted_address = address_limit.map(|(key, _)| key);
            return Some(Self { shared: Arc::clone(shared), telemetry: worker.telemetry().clone(), counted_address });
        }
        shared.open_connections.fetch_sub(1, Ordering::Relaxed);
        worker.telemetry().connection_refused();
        None
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(key) = self.counted_address {
            self.shared.connection_counts.release(key);
        }
        self.telemetry.connection_closed();
    }
}

/// Drains bodies of rejected requests within bounds, so that the clients can read the responses.
async fn drain_bodies(mut bodies: mpsc::Receiver<Incoming>) {
    while let Some(mut body) = bodies.recv().await {
        tokio::task::spawn_local(tokio::time::timeout(DRAIN_TIMEOUT, async move {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, bytes::Bytes::len);
                if read > DRAIN_BYTES {
                    break;
                }
            }
        }));
    }
}
