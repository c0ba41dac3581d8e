//! HTTP/1.1 server: serves the requests of one connection in sequence.
//!
//! [`serve`] runs a connection. It returns when the client disconnects, when either side closes the connection, or
//! after a malformed request. The caller implements timeouts by dropping the future.

mod conn;
mod interim;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use conn::BodyError;
pub use conn::Lingering;
pub use interim::InterimResponses;
pub use request::RequestBody;

use super::body::SendBody;
use super::buffer::{ReadBufferState, WriteBuffer};
use super::framing::{BodyLength, Malformed};
use super::head::{HeadLimits, HeadReader};
use super::message::{Request, Response};
use bytes::BytesMut;
use conn::{SharedConn, SkipResult};
use http::StatusCode;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};

/// Parameters of [`serve`].
#[derive(Debug)]
pub struct ServeOptions<'a, E, D, R> {
    /// Limits of request heads.
    pub limits: HeadLimits,
    /// Returns when the connection ends. Called as each response is written, so that the last one announces it. The
    /// connection must be polled after a change.
    pub finish: E,
    /// Interim responses to the current request. The service adds some while it is polled.
    pub interim: &'a InterimResponses,
    /// Updated whenever the read buffer changes.
    pub read_buffer: Rc<ReadBufferState>,
    /// Returns the current time, for responses without a Date field.
    pub date: D,
    /// Responds to a malformed request. This response is the last one, because the start of the next request is
    /// unknown.
    pub on_malformed: R,
}

/// What is left of a connection that is not simply closed.
pub enum Served<IO, B> {
    /// Closing it at once could prevent the client from reading the last response.
    Lingering(Lingering<IO>),
    /// The last response switched protocols.
    Upgraded {
        /// Stream of the client.
        io: IO,
        /// What the client has sent on it.
        received: BytesMut,
        /// Body of the last response, which was not sent.
        body: B,
    },
}

/// End of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// The client decides.
    #[default]
    Never,
    /// After the next response, which announces it. The connection waits for its request.
    AfterResponse,
    /// After the current response, or at once if there is none.
    Now,
}

/// Properties of a request that determine its response.
#[derive(Clone, Copy, Debug)]
struct ResponseContext {
    is_http10: bool,
    is_head: bool,
    keeps_alive: bool,
    accepts_trailers: bool,
}

impl ResponseContext {
    /// Context of a request that could not be parsed.
    const UNPARSED: Self = Self { is_http10: false, is_head: false, keeps_alive: false, accepts_trailers: false };
}

/// Serves the client on `io`, from which `first` has already been read.
///
/// The future of `service` is dropped if the client disconnects meanwhile. Returns the connection if it is not closed.
pub async fn serve<IO, S, F, B, E, D, R>(
    io: IO,
    first: BytesMut,
    options: ServeOptions<'_, E, D, R>,
    mut service: S,
) -> Option<Served<IO, B>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: FnMut(Request<RequestBody<IO>>) -> F,
    F: Future<Output = Response<B>>,
    B: SendBody,
    E: Fn() -> Finish,
    D: Fn() -> [u8; 29],
    R: Fn(Malformed) -> Response<B>,
{
    let mut conn = SharedConn::new(io, first, Rc::clone(&options.read_buffer));
    let mut out = WriteBuffer::default();
    let mut reader = HeadReader::new(options.limits);
    loop {
        let head = poll_fn(|cx| conn.poll_head(&mut reader, (options.finish)(), cx)).await?;
        let (response_context, request) = match head
            .and_then(|(head, framing)| request::new_request(&conn, head, framing))
        {
            Ok(request) => request,
            Err(error) => {
                conn.expect_body(BodyLength::Exact(0), false);
                response::send(&mut conn, &mut out, ResponseContext::UNPARSED, (options.on_malformed)(error), &options)
                    .await?;
                return Some(Served::Lingering(Lingering::new(conn)));
            }
        };
        let response = {
            let mut future = pin!(service(request));
            poll_fn(|cx| match future.as_mut().poll(cx) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => match conn.poll_interim(options.interim, cx) {
                    Poll::Ready(Err(_)) => Poll::Ready(None),
                    _ => conn.poll_closed(cx).map(|()| None),
                },
            })
            .await?
        };
        if !options.interim.is_empty() {
            poll_fn(|cx| conn.poll_interim(options.interim, cx)).await.ok()?;
        }
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            let body = response::send_switch(&mut conn, &mut out, response).await?;
            let (io, received) = conn.into_parts()?;
            return Some(Served::Upgraded { io, received, body });
        }
        let keep_alive = response::send(&mut conn, &mut out, response_context, response, &options).await?;
        match poll_fn(|cx| conn.poll_skip_body(keep_alive, cx)).await {
            SkipResult::All if keep_alive => conn.reset(),
            SkipResult::All => return conn.close().await,
            SkipResult::Partial => return Some(Served::Lingering(Lingering::new(conn))),
        }
    }
}
