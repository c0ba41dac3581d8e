//! What all requests of one client connection share.

use crate::gateway::cache::FillOutcome;
use crate::gateway::message::site::is_forwarded_https;
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use crate::gateway::transport::listener::{ListenerKind, ListenerOptions};
use crate::gateway::worker::Worker;
use hyper::body::Body;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use tidegate_http1::{Fields, Name, RequestHead};
use tidegate_policy::cache::CacheFill;
use tidegate_policy::identity::ProxyTrust;
use tokio::sync::oneshot;

/// Address of the gateway as its own client. No connection has it.
const OWN_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Connection of a client, as its requests see it.
pub(in crate::gateway) struct ClientConnection {
    pub(in crate::gateway) worker: Rc<Worker>,
    pub(in crate::gateway) connection_state: Rc<ConnectionState>,
    pub(in crate::gateway) listener: Rc<ListenerOptions>,
    pub(in crate::gateway) peer: IpAddr,
    pub(in crate::gateway) peer_text: String,
    /// Names in the verified certificate of the client; empty without one.
    pub(in crate::gateway) certificate_names: Vec<String>,
    /// What the request is for, if the gateway makes it itself.
    pub(in crate::gateway) fill: Option<Fill>,
}

/// A request that the gateway makes itself.
pub(in crate::gateway) struct Fill {
    pub(in crate::gateway) reason: CacheFill,
    /// Name of the class that it is made for.
    pub(in crate::gateway) class: Arc<str>,
    /// Where its outcome is sent, until its end.
    outcome: Cell<Option<oneshot::Sender<FillOutcome>>>,
}

impl Fill {
    /// Returns the part of the request that is known before, and where its outcome arrives at its end, if it was decided.
    pub(in crate::gateway) fn new(reason: CacheFill, class: Arc<str>) -> (Self, oneshot::Receiver<FillOutcome>) {
        let (outcome, receiver) = oneshot::channel();
        (Self { reason, class, outcome: Cell::new(Some(outcome)) }, receiver)
    }

    /// Ends the request with `outcome`.
    pub(in crate::gateway) fn end(&self, outcome: FillOutcome) {
        if let Some(sender) = self.outcome.take() {
            // Fails if the receiver is dropped.
            let _ = sender.send(outcome);
        }
    }
}

impl ClientConnection {
    pub(in crate::gateway) fn new(
        worker: Rc<Worker>,
        connection_state: Rc<ConnectionState>,
        listener: Rc<ListenerOptions>,
        peer: IpAddr,
        certificate_names: Vec<String>,
    ) -> Rc<Self> {
        let peer = peer.to_canonical();
        Rc::new(Self {
            worker,
            connection_state,
            listener,
            peer,
            peer_text: peer.to_string(),
            certificate_names,
            fill: None,
        })
    }

    /// Returns the connection of a request that the gateway makes itself.
    pub(in crate::gateway) fn for_fill(
        worker: Rc<Worker>,
        connection_state: Rc<ConnectionState>,
        fill: Fill,
    ) -> Rc<Self> {
        let (peer, peer_text, fill) = (OWN_ADDRESS, OWN_ADDRESS.to_string(), Some(fill));
        Rc::new(Self {
            worker,
            connection_state,
            listener: Rc::default(),
            peer,
            peer_text,
            certificate_names: Vec::new(),
            fill,
        })
    }

    /// Returns the connection of a request that outlives its answer, and takes no memory of the connection.
    pub(in crate::gateway) fn for_request_that_outlives_it(&self) -> Rc<Self> {
        let Self { worker, listener, peer, peer_text, certificate_names, .. } = self;
        Rc::new(Self {
            worker: Rc::clone(worker),
            connection_state: ConnectionState::new(worker.monotonic_tick(), worker.shared().clock.clone(), u32::MAX),
            listener: Rc::clone(listener),
            peer: *peer,
            peer_text: peer_text.clone(),
            certificate_names: certificate_names.clone(),
            fill: None,
        })
    }

    /// Returns bytes that were not used before, for a key of a WebSocket.
    pub(in crate::gateway) fn new_nonce(&self) -> [u8; 16] {
        let halves = [self.worker.next_decision_id(), self.worker.next_decision_id()];
        std::array::from_fn(|index| halves[index / 8].to_le_bytes()[index % 8])
    }

    /// Returns true if forwarding fields of the request are believed.
    pub(in crate::gateway) fn is_trusted(&self, trust: &ProxyTrust) -> bool {
        self.fill.is_some() || self.is_behind_proxy(trust)
    }

    /// Returns true if the peer is a proxy that knows how its clients connect.
    pub(in crate::gateway) fn is_behind_proxy(&self, trust: &ProxyTrust) -> bool {
        self.listener.kind == ListenerKind::ForwardAuth || trust.trusts(self.peer)
    }

    /// Returns true if the client uses https: by what a trusted proxy says, else by the connection.
    pub(in crate::gateway) fn is_https(&self, trust: &ProxyTrust, fields: &Fields) -> bool {
        let forwarded = if self.is_trusted(trust) { is_forwarded_https(fields) } else { None };
        forwarded.unwrap_or(self.listener.tls.is_some())
    }

    /// Returns why the gateway makes the request itself; `None` for a request of a client.
    pub(in crate::gateway) fn fill_reason(&self) -> Option<CacheFill> {
        self.fill.as_ref().map(|fill| fill.reason)
    }

    /// Drains the body of a rejected request within bounds; otherwise the client would be disconnected before it reads
    /// the response. Bodies that wait for 100-continue are not drained.
    pub(in crate::gateway) fn drain_body(&self, head: &RequestHead, body: ClientBody) {
        if !body.is_end_stream() && !head.fields.contains(Name::Expect) {
            body.drain(&self.worker.drain());
        }
    }
}
