//! What all requests of one client connection share.

use crate::gateway::connection_timeouts::ConnectionState;
use crate::gateway::listener::ListenerKind;
use crate::gateway::worker::Worker;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::identity::ProxyTrust;

/// Address of the gateway as its own client. No connection has it.
const OWN_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Request handler of one client connection.
pub(in crate::gateway) struct RequestHandler {
    pub(super) worker: Rc<Worker>,
    pub(super) connection_state: Rc<ConnectionState>,
    pub(super) listener: ListenerKind,
    pub(super) peer: IpAddr,
    pub(super) peer_text: String,
    /// What the request is for, if the gateway makes it itself.
    pub(super) fill: Option<Fill>,
}

/// A request that the gateway makes itself.
pub(super) struct Fill {
    pub(super) reason: CacheFill,
    /// Name of the class that it is made for.
    pub(super) class: Arc<str>,
}

impl RequestHandler {
    pub(in crate::gateway) fn new(
        worker: Rc<Worker>,
        connection_state: Rc<ConnectionState>,
        listener: ListenerKind,
        peer: SocketAddr,
    ) -> Rc<Self> {
        let peer = peer.ip().to_canonical();
        Rc::new(Self { worker, connection_state, listener, peer, peer_text: peer.to_string(), fill: None })
    }

    /// Returns the handler of a request that the gateway makes itself.
    pub(super) fn for_fill(worker: Rc<Worker>, connection_state: Rc<ConnectionState>, fill: Fill) -> Rc<Self> {
        let (peer, peer_text, fill) = (OWN_ADDRESS, OWN_ADDRESS.to_string(), Some(fill));
        Rc::new(Self { worker, connection_state, listener: ListenerKind::Site, peer, peer_text, fill })
    }

    /// Returns true if forwarding fields of the request are believed.
    pub(super) fn is_trusted(&self, trust: &ProxyTrust) -> bool {
        self.fill.is_some() || self.is_behind_proxy(trust)
    }

    /// Returns true if the peer is a proxy that knows how its clients connect.
    pub(super) fn is_behind_proxy(&self, trust: &ProxyTrust) -> bool {
        self.listener == ListenerKind::ForwardAuth || trust.trusts(self.peer)
    }

    /// Returns why the gateway makes the request itself; `None` for a request of a client.
    pub(super) fn fill_reason(&self) -> Option<CacheFill> {
        self.fill.as_ref().map(|fill| fill.reason)
    }
}
