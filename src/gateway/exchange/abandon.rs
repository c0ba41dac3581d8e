//! Forwarded requests whose clients leave.

use super::client_connection::ClientConnection;
use crate::gateway::in_place::boxed_in_place;
use crate::gateway::upstream::ForwardState;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The future of a forwarded request, dropped when its client leaves.
///
/// Once the whole request was sent, it continues without the client: the origin works on the request, so its slots stay
/// in use, and its actual cost is charged.
pub(in crate::gateway) struct Abandonable<F: Future + 'static> {
    /// `None` once completed.
    future: Option<Pin<Box<F>>>,
    forwarding: Rc<ForwardState>,
    connection: Rc<ClientConnection>,
}

impl<F: Future> Abandonable<F> {
    pub(in crate::gateway) fn new(
        future: impl FnOnce() -> F,
        forwarding: Rc<ForwardState>,
        connection: Rc<ClientConnection>,
    ) -> Self {
        Self { future: Some(Box::into_pin(boxed_in_place(future))), forwarding, connection }
    }
}

impl<F: Future> Future for Abandonable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().expect("not polled after completion");
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<F: Future> Drop for Abandonable<F> {
    fn drop(&mut self) {
        let Some(future) = self.future.take().filter(|_| self.forwarding.outlives_client()) else { return };
        self.forwarding.set_client_left();
        self.connection.connection_state.on_request_end(true);
        // Dropping the response drains its body.
        self.connection.worker.run_detached(async { drop(future.await) });
    }
}
