//! A request as the service gets it.

use super::super::chunked::BodyChunk;
use super::super::framing::{BodyLength, FramingInfo, Malformed};
use super::super::message::{Request, RequestHead};
use super::ResponseContext;
use super::conn::SharedConn;
use bytes::Bytes;
use http::{Method, Version};
use hyper::body::{Body, Frame, SizeHint};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// A request's body as the client sends it; read from the connection by whoever polls it, and no faster.
///
/// To be polled on the connection's own task. Dropped before its end, the rest is the connection's business.
pub struct RequestBody<IO>(Option<SharedConn<IO>>);

/// Why a request's body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client closed the connection.
    #[error("the client closed the connection")]
    CutShort,
    /// The body is not what HTTP/1.1 allows.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Makes a request of its head, and notes on `line` how its body is framed.
pub(super) fn new_request<IO>(
    line: &SharedConn<IO>,
    head: RequestHead,
    noted: FramingInfo,
) -> Result<(ResponseContext, Request<RequestBody<IO>>), Malformed> {
    let version = head.version;
    let length = noted.request_length(version)?;
    let is_http10 = version == Version::HTTP_10;
    line.expect_body(length, noted.expects_continue && !is_http10);
    let asked = ResponseContext {
        is_http10,
        is_head: head.method == Method::HEAD,
        keeps_alive: noted.keeps_alive(version),
        takes_trailers: noted.accepts_trailers,
    };
    let body = RequestBody((length != BodyLength::Exact(0)).then(|| line.clone()));
    Ok((asked, Request { head, body }))
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Body for RequestBody<IO> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(line) = &self.0 else { return Poll::Ready(None) };
        Poll::Ready(match ready!(line.poll_chunk(context)) {
            Ok(BodyChunk::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(BodyChunk::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(BodyChunk::End | BodyChunk::Pending) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|line| line.with_body(|body| body.is_done()))
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |line| line.with_body(|body| body.size_hint()))
    }
}

impl<IO> fmt::Debug for RequestBody<IO> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RequestBody").field("is_empty", &self.0.is_none()).finish()
    }
}
