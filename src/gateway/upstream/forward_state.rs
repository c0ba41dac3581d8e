//! What a forwarded request and the connection of its client know of each other.

use std::cell::Cell;
use std::rc::Rc;

/// State of a request on its way to the origin and back.
pub(in crate::gateway) struct ForwardState {
    origin_aborts_on_disconnect: bool,
    is_sent: Cell<bool>,
    client_left: Cell<bool>,
}

impl ForwardState {
    pub(in crate::gateway) fn new(origin_aborts_on_disconnect: bool) -> Rc<Self> {
        Rc::new(Self { origin_aborts_on_disconnect, is_sent: Cell::new(false), client_left: Cell::new(false) })
    }

    /// Records whether the origin may have received the whole request.
    pub(in crate::gateway) fn set_sent(&self, is_sent: bool) {
        self.is_sent.set(is_sent);
    }

    /// Records that nobody waits for the response.
    pub(in crate::gateway) fn set_client_left(&self) {
        self.client_left.set(true);
    }

    pub(in crate::gateway) fn client_left(&self) -> bool {
        self.client_left.get()
    }

    /// Returns true if the origin continues its work after the disconnect of the client.
    pub(in crate::gateway) fn outlives_client(&self) -> bool {
        self.is_sent.get() && !self.origin_aborts_on_disconnect
    }
}
