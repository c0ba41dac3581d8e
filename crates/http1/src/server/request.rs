//! Requests as passed to the service.

use super::super::chunked::BodyChunk;
use super::super::framing::{BodyLength, FramingInfo, Malformed};
use super::super::message::{Request, RequestHead};
use super::ResponseContext;
use super::conn::{BodyError, SharedConn};
use bytes::Bytes;
use http::{Method, Version};
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// Body of a client request. Reads the connection only when polled.
///
/// Must be polled on the connection's task. If it is dropped early, the connection handles the rest.
pub struct RequestBody<IO>(Option<SharedConn<IO>>);

/// Returns the request of a head, and sets the framing of its body on the connection.
pub(super) fn new_request<IO>(
    conn: &SharedConn<IO>,
    head: RequestHead,
    framing: FramingInfo,
) -> Result<(ResponseContext, Request<RequestBody<IO>>), Malformed> {
    let version = head.version;
    let length = framing.request_length(version)?;
    let is_http10 = version == Version::HTTP_10;
    conn.expect_body(length, framing.expects_continue && !is_http10);
    let response_context = ResponseContext {
        is_http10,
        is_head: head.method == Method::HEAD,
        keeps_alive: framing.keeps_alive(version),
        accepts_trailers: framing.accepts_trailers,
    };
    let body = RequestBody((length != BodyLength::Exact(0)).then(|| conn.clone()));
    Ok((response_context, Request { head, body }))
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Body for RequestBody<IO> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(conn) = &self.0 else { return Poll::Ready(None) };
        Poll::Ready(match ready!(conn.poll_chunk(cx)) {
            Ok(BodyChunk::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(BodyChunk::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(BodyChunk::End | BodyChunk::Pending) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|conn| conn.with_body(|body| body.is_done()))
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |conn| conn.with_body(|body| body.size_hint()))
    }
}

impl<IO> fmt::Debug for RequestBody<IO> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RequestBody").field("is_empty", &self.0.is_none()).finish()
    }
}
