//! What all requests of one client connection share.

use crate::gateway::connection_timeouts::ConnectionState;
use crate::gateway::worker::Worker;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// Request handler of one client connection.
pub(in crate::gateway) struct RequestHandler {
    pub(super) worker: Rc<Worker>,
    pub(super) connection_state: Rc<ConnectionState>,
    pub(super) peer: IpAddr,
    pub(super) peer_text: String,
}

impl RequestHandler {
    pub(in crate::gateway) fn new(
        worker: Rc<Worker>,
        connection_state: Rc<ConnectionState>,
        peer: SocketAddr,
    ) -> Rc<Self> {
        let peer = peer.ip().to_canonical();
        Rc::new(Self { worker, connection_state, peer, peer_text: peer.to_string() })
    }
}
