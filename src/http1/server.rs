//! Requests from a client and answers to it, one after the other on one connection.
//!
//! [`serve`] runs a connection; it ends by itself when the client leaves, when either side wants it to, or when the
//! client says what cannot be understood. How long anything may take is the caller's business: it drops the future.

mod conn;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use conn::Lingering;
pub use request::{BodyError, RequestBody};

use super::body::SendBody;
use super::buffer::WriteBuffer;
use super::framing::{BodyLength, Malformed};
use super::head::{HeadReader, Limits};
use super::message::{Request, Response};
use bytes::BytesMut;
use conn::{SharedConn, SkipResult};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection is served by.
#[derive(Debug)]
pub struct ServeOptions<'a, D, R> {
    /// How large heads may be.
    pub limits: Limits,
    /// Set to end the connection after the answer under way, or at once if there is none. Whoever sets it polls.
    pub finish: &'a Cell<bool>,
    /// Tells the time for answers that carry none.
    pub date: D,
    /// Answers what cannot be understood. It is the last answer: where the next request begins is not known.
    pub on_malformed: R,
}

/// What of a request its answer depends on.
#[derive(Clone, Copy, Debug)]
struct ResponseContext {
    is_http10: bool,
    is_head: bool,
    keeps_alive: bool,
    takes_trailers: bool,
}

impl ResponseContext {
    /// Nobody knows what was asked, nor where it ends.
    const UNPARSED: Self = Self { is_http10: false, is_head: false, keeps_alive: false, takes_trailers: false };
}

/// Serves the client on `io`, of whom `first` has been read already.
///
/// The work of `service` is dropped if the client leaves meanwhile. Returns the connection if the client might not
/// get to read the last answer were it closed at once.
pub async fn serve<IO, S, F, B, D, R>(
    io: IO,
    first: BytesMut,
    terms: ServeOptions<'_, D, R>,
    mut service: S,
) -> Option<Lingering<IO>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: FnMut(Request<RequestBody<IO>>) -> F,
    F: Future<Output = Response<B>>,
    B: SendBody,
    D: Fn() -> [u8; 29],
    R: Fn(Malformed) -> Response<B>,
{
    let mut line = SharedConn::new(io, first);
    let mut out = WriteBuffer::default();
    let mut reader = HeadReader::new(terms.limits);
    loop {
        let head = poll_fn(|context| line.poll_head(&mut reader, terms.finish, context)).await?;
        let (asked, request) = match head.and_then(|(head, noted)| request::new_request(&line, head, noted)) {
            Ok(request) => request,
            Err(fault) => {
                line.expect_body(BodyLength::Exact(0), false);
                response::send(&mut line, &mut out, ResponseContext::UNPARSED, (terms.on_malformed)(fault), &terms)
                    .await?;
                return Some(Lingering::new(line));
            }
        };
        let response = {
            let mut work = pin!(service(request));
            poll_fn(|context| match work.as_mut().poll(context) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => line.poll_closed(context).map(|()| None),
            })
            .await?
        };
        let kept = response::send(&mut line, &mut out, asked, response, &terms).await?;
        match poll_fn(|context| line.poll_skip_body(kept, context)).await {
            SkipResult::All if kept => line.reset(),
            SkipResult::All => return line.close().await,
            SkipResult::Partial => return Some(Lingering::new(line)),
        }
    }
}
