//! The client's side of a request: what it was sent, and whether it still waits.

use crate::gateway::transport::connection_memory::{ConnectionMemory, MemoryCharge, REQUEST};
use crate::gateway::transport::connection_timeouts::{ConnectionCommand, ConnectionState};
use crate::gateway::upstream::ForwardState;
use http::StatusCode;
use std::rc::Rc;
use tidegate_access_log::{CLIENT_CLOSED_REQUEST, ResponseCut};
use tidegate_http1::Fields;

/// What the client of a request was sent.
pub(in crate::gateway) struct ClientSide {
    connection: Rc<ConnectionState>,
    pub(in crate::gateway) forwarding: Rc<ForwardState>,
    pub(in crate::gateway) status: StatusCode,
    /// Bytes of the body.
    pub(in crate::gateway) bytes: u64,
    /// Why the response of the origin ended before its end.
    pub(in crate::gateway) cut: Option<ResponseCut>,
    /// Seconds of `Retry-After`.
    pub(in crate::gateway) retry_after: Option<u64>,
    /// True if the refusal asks the client to come back with a session.
    pub(in crate::gateway) is_asked_back: bool,
    /// True once the last byte of the body was sent.
    is_complete: bool,
    /// Memory of the request, until it has ended.
    _memory: MemoryCharge,
}

impl ClientSide {
    /// Returns the side of a client that was sent nothing. `fields` are those of its request.
    pub(in crate::gateway) fn new(
        connection: &Rc<ConnectionState>,
        fields: &Fields,
        origin_aborts_on_disconnect: bool,
    ) -> Self {
        Self {
            connection: Rc::clone(connection),
            forwarding: ForwardState::new(origin_aborts_on_disconnect),
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("valid status"),
            bytes: 0,
            cut: None,
            retry_after: None,
            is_asked_back: false,
            is_complete: false,
            _memory: MemoryCharge::new(connection.memory(), REQUEST + fields.memory()),
        }
    }

    /// Returns true if nobody waits for the response.
    pub(in crate::gateway) fn has_left(&self) -> bool {
        self.forwarding.client_left()
    }

    /// Adds `bytes` to the number of body bytes sent, if the client reads them.
    pub(in crate::gateway) fn add_bytes(&mut self, bytes: u64) {
        if !self.has_left() {
            self.bytes += bytes;
        }
    }

    /// Records that the last byte of the body was sent.
    pub(in crate::gateway) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Ends the request for the connection of the client; `aborted` if the client left before the end of the response.
    pub(in crate::gateway) fn disconnect(&mut self, aborted: bool) {
        if !self.has_left() {
            self.forwarding.set_client_left();
            self.connection.on_request_end(aborted);
        }
    }

    /// Ends the request for the connection: aborted, unless the response is complete.
    pub(in crate::gateway) fn end(&mut self) {
        self.disconnect(!self.is_complete);
    }

    pub(in crate::gateway) fn memory(&self) -> &Rc<ConnectionMemory> {
        self.connection.memory()
    }

    /// Charges the connection for `bytes` of memory.
    pub(in crate::gateway) fn charge_memory(&self, bytes: usize) -> MemoryCharge {
        MemoryCharge::new(self.memory(), bytes)
    }

    /// Returns true if the response is sent on a stream of HTTP/2.
    pub(in crate::gateway) fn is_http2(&self) -> bool {
        self.connection.is_http2()
    }

    /// Closes the connection.
    pub(in crate::gateway) fn close_connection(&self) {
        self.connection.command(ConnectionCommand::Close);
    }
}
