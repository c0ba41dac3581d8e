//! Bytes between clients and the gateway: sockets, TLS, connections with their limits and timeouts, bodies.

pub(in crate::gateway) mod accept;
pub(in crate::gateway) mod batched_stream;
pub(in crate::gateway) mod client_body;
pub(in crate::gateway) mod client_stream;
pub(in crate::gateway) mod connection;
pub(in crate::gateway) mod connection_limits;
pub(in crate::gateway) mod connection_memory;
pub(in crate::gateway) mod connection_slot;
pub(in crate::gateway) mod connection_timeouts;
pub(in crate::gateway) mod extended_connect;
pub(in crate::gateway) mod http2_messages;
pub(in crate::gateway) mod listen_sockets;
pub(in crate::gateway) mod listener;
pub(in crate::gateway) mod local_executor;
pub(in crate::gateway) mod proxy_protocol;
pub(in crate::gateway) mod shared_body;
pub(in crate::gateway) mod shared_reader;
pub(in crate::gateway) mod spool;
pub(in crate::gateway) mod stream_body;
pub(in crate::gateway) mod sweep;
pub(in crate::gateway) mod tls_handshake;
pub(in crate::gateway) mod tracked_stream;
pub(in crate::gateway) mod upgrade_slot;
pub(in crate::gateway) mod websocket;
