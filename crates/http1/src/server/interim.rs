//! Interim responses (RFC 9110 section 15.2), such as 103 Early Hints, before the response to a request.

use super::super::fields::Fields;
use super::super::head::write_status;
use super::super::name::Name;
use http::StatusCode;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Maximum bytes that wait for a client. Further interim responses are left out: clients need none.
const MAX_WAITING: usize = 32 * 1024;

/// Interim responses that wait until the connection sends them.
#[derive(Debug, Default)]
pub struct InterimResponses(RefCell<Vec<u8>>);

impl InterimResponses {
    /// Adds an interim response to the current request. The client must speak HTTP/1.1, which [`super::serve`] sends it
    /// once the service has been polled.
    pub fn push(&self, status: StatusCode, fields: &Fields) {
        let mut waiting = self.0.borrow_mut();
        let before = waiting.len();
        write_status(&mut waiting, false, status);
        fields.write(&mut waiting, |name| {
            !matches!(name, Name::Connection | Name::TransferEncoding | Name::ContentLength)
        });
        waiting.extend_from_slice(b"\r\n");
        if waiting.len() > MAX_WAITING {
            waiting.truncate(before);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Writes what waits. Fails if `io` does.
    pub(super) fn poll_write(&self, io: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waiting = self.0.borrow_mut();
        while !waiting.is_empty() {
            let written = ready!(Pin::new(&mut *io).poll_write(cx, &waiting))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            waiting.drain(..written);
        }
        *waiting = Vec::new();
        Pin::new(io).poll_flush(cx)
    }
}
