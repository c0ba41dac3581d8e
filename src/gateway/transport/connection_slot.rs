//! The slot of an open connection, within the limits of connections in all and per address.

use super::connection_limits::AddressGuard;
use crate::gateway::shared_count::CountGuard;
use crate::gateway::worker::Worker;
use crate::telemetry::WorkerTelemetry;
use std::net::IpAddr;

/// Slot of an open connection.
pub(in crate::gateway) struct ConnectionSlot {
    _count: CountGuard,
    /// Count of its address, if connections per address are limited.
    address: Option<AddressGuard>,
    /// Last, so that who sees the connection closed finds room for another.
    _shown: ShownConnection,
}

/// An open connection in the metrics, until dropped.
struct ShownConnection(WorkerTelemetry);

impl ConnectionSlot {
    /// Takes a slot; `None` if there are too many connections.
    pub(in crate::gateway) fn try_acquire(worker: &Worker) -> Option<Self> {
        let max_connections = worker.config().settings.limits.max_connections;
        let shared = &worker.shared;
        let Some(count) = shared.open_connections.try_add(max_connections) else {
            worker.telemetry().connection_refused();
            shared.record_refused_connection(None, max_connections);
            return None;
        };
        Some(Self { _count: count, address: None, _shown: ShownConnection::new(worker.telemetry()) })
    }

    /// Counts the connection for the address of its client. Returns false if the address has too many.
    pub(in crate::gateway) fn try_count(&mut self, worker: &Worker, client: IpAddr) -> bool {
        let config = worker.config();
        let (limits, trust) = (&config.settings.limits, &config.settings.rules.trust);
        let Some(max) = limits.max_connections_per_address else { return true };
        let is_shared = client.is_loopback() || trust.trusts(client);
        if is_shared && !limits.limits_local_connections {
            return true;
        }
        self.address = worker.shared.connection_counts.try_add(trust.key(client), max);
        if self.address.is_none() {
            worker.telemetry().connection_refused();
            worker.shared.record_refused_connection(Some(client), max.get());
        }
        self.address.is_some()
    }
}

impl ShownConnection {
    fn new(telemetry: &WorkerTelemetry) -> Self {
        telemetry.connection_opened();
        Self(telemetry.clone())
    }
}

impl Drop for ShownConnection {
    fn drop(&mut self) {
        self.0.connection_closed();
    }
}
