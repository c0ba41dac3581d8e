//! The slot of an open connection, within the limits of connections in all and per address.

use super::shared::Shared;
use super::worker::Worker;
use crate::telemetry::WorkerTelemetry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_policy::identity::ClientKey;

/// Slot of an open connection.
pub(super) struct ConnectionSlot {
    shared: Arc<Shared>,
    telemetry: WorkerTelemetry,
    /// Address it is counted for, if connections per address are limited.
    counted_address: Option<ClientKey>,
}

impl ConnectionSlot {
    /// Takes a slot; `None` if there are too many connections.
    pub(super) fn try_acquire(worker: &Worker) -> Option<Self> {
        let max_connections = worker.current().settings.limits.max_connections;
        let shared = &worker.shared;
        if shared.open_connections.fetch_add(1, Ordering::Relaxed) >= max_connections {
            shared.open_connections.fetch_sub(1, Ordering::Relaxed);
            worker.telemetry().connection_refused();
            shared.record_refused_connection(None, max_connections);
            return None;
        }
        worker.telemetry().connection_opened();
        Some(Self { shared: Arc::clone(shared), telemetry: worker.telemetry().clone(), counted_address: None })
    }

    /// Counts the connection for the address of its client. Returns false if the address has too many.
    pub(super) fn try_count(&mut self, worker: &Worker, client: IpAddr) -> bool {
        let current = worker.current();
        let (limits, trust) = (&current.settings.limits, &current.settings.rules.trust);
        let Some(max) = limits.max_connections_per_address else { return true };
        let is_shared = client.is_loopback() || trust.trusts(client);
        if is_shared && !limits.limits_local_connections {
            return true;
        }
        let key = trust.key(client);
        if !self.shared.connection_counts.try_acquire(key, max) {
            self.telemetry.connection_refused();
            self.shared.record_refused_connection(Some(client), max.get());
            return false;
        }
        self.counted_address = Some(key);
        true
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
