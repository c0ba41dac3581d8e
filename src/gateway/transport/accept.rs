//! The accept loop of a worker, and the thread it runs on.

use super::connection;
use super::connection_slot::ConnectionSlot;
use super::listener::ListenerOptions;
use crate::gateway::exchange::run_fills;
use crate::gateway::shared::Shared;
use crate::gateway::worker::{Stage, Worker};
use crate::telemetry::WorkerTelemetry;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Pause before accepting again when file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Most threads of a worker that read and write files.
const MAX_FILE_THREADS: usize = 16;

/// Maximum bodies of refused requests drained at once; further ones are aborted.
const MAX_DRAINS: usize = 256;
/// Limits of one drained body: bytes and time.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the worker with this index on this thread until the gateway is closed.
pub(in crate::gateway) fn run(
    shared: Arc<Shared>,
    listeners: Vec<(TcpListener, ListenerOptions)>,
    telemetry: WorkerTelemetry,
    stage: watch::Receiver<Stage>,
    index: usize,
    seed: u64,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_FILE_THREADS)
        .build_local(Default::default())?;
    runtime.block_on(async move {
        let (drain, drains) = mpsc::channel(MAX_DRAINS);
        let worker = Worker::new(shared, telemetry, drain, index, seed);
        tokio::task::spawn_local(drain_bodies(drains));
        tokio::task::spawn_local(run_fills(Rc::clone(&worker)));
        for (listener, options) in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::task::spawn_local(accept(Rc::clone(&worker), listener, Rc::new(options), stage.clone()));
        }
        let maintenance = tokio::task::spawn_local(worker.run_maintenance(stage));
        maintenance.await.map_err(io::Error::other)
    })
}

/// Accepts connections until the gateway drains.
async fn accept(
    worker: Rc<Worker>,
    listener: tokio::net::TcpListener,
    options: Rc<ListenerOptions>,
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
                let peer = peer.ip().to_canonical();
                worker.monotonic_now();
                let Some(mut slot) = ConnectionSlot::try_acquire(&worker) else { continue };
                let (worker, options) = (Rc::clone(&worker), Rc::clone(&options));
                if options.proxy_protocol {
                    tokio::task::spawn_local(connection::serve_proxied(worker, options, stream, peer, slot));
                } else if slot.try_count(&worker, peer) {
                    tokio::task::spawn_local(async move {
                        connection::serve(worker, options, stream, peer).await;
                        drop(slot);
                    });
                }
            }
            Err(error) => {
                // A connection closed before it was accepted is harmless; any other error is a shortage.
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    worker.shared().record_accept_failure(&error);
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
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
