//! Connections to the origin, and the bodies of its responses, over HTTP/1.1 or HTTP/2.

use super::http2::{Http2Body, Http2Stream};
use super::request_body::RequestBody;
use super::stream::OriginStream;
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tidegate_http1::client::{self, OnInterim, SendFailure};
use tidegate_http1::{RequestHead, Response};

/// An idle connection of HTTP/1.1 to the origin.
pub(super) type Http1Connection = client::Connection<OriginStream>;

/// What takes one request: a connection of HTTP/1.1, or a stream of HTTP/2.
pub(super) enum Connection {
    Http1(Http1Connection),
    Http2(Rc<Http2Stream>),
}

/// Response body of the origin.
pub(in crate::gateway) enum OriginBody {
    Http1(client::ResponseBody<OriginStream, RequestBody>),
    Http2(Box<Http2Body>),
}

impl Connection {
    /// Sends a request, and waits for the response head. `on_interim` gets the interim responses of HTTP/1.1; hyper drops
    /// those of HTTP/2.
    pub(super) async fn send(
        self,
        head: &RequestHead,
        body: RequestBody,
        on_interim: Option<OnInterim<'_>>,
    ) -> Result<Response<OriginBody>, SendFailure<RequestBody>> {
        match self {
            Self::Http1(connection) => {
                let Response { status, fields, body } = connection.send(head, body).with_interim(on_interim).await?;
                Ok(Response { status, fields, body: OriginBody::Http1(body) })
            }
            // Boxed to keep the future of HTTP/1.1 small.
            Self::Http2(stream) => {
                let Response { status, fields, body } = Box::pin(stream.send(head, body)).await?;
                Ok(Response { status, fields, body: OriginBody::Http2(Box::new(body)) })
            }
        }
    }
}

impl OriginBody {
    /// Returns the connection of HTTP/1.1 if the response was read and the request sent completely, and the origin keeps it
    /// open. A request that is still being sent is aborted.
    pub(in crate::gateway) fn take_connection(&mut self) -> Option<Http1Connection> {
        match self {
            Self::Http1(body) => body.take_connection(),
            Self::Http2(body) => {
                body.abort_upload();
                None
            }
        }
    }

    /// Returns true for a stream of a connection of HTTP/2, which other requests may share.
    pub(in crate::gateway) fn is_stream_of_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Limits each of the next reads to about `bytes`. Frames of HTTP/2 have a limit of their own.
    pub(in crate::gateway) fn set_max_read(&mut self, bytes: usize) {
        if let Self::Http1(body) = self {
            body.set_max_read(bytes);
        }
    }

    /// Returns the capacity of the buffer in which the last part was received; 0 if it is not known. The part keeps it.
    pub(in crate::gateway) fn buffer_capacity(&self) -> usize {
        match self {
            Self::Http1(body) => body.buffer_capacity(),
            Self::Http2(_) => 0,
        }
    }

    /// Returns the stream after a response that switched protocols, and what the origin has sent on it.
    pub(in crate::gateway) fn into_upgraded(self) -> Option<(OriginStream, BytesMut)> {
        match self {
            Self::Http1(body) => body.into_upgraded(),
            Self::Http2(_) => None,
        }
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = client::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, client::Error>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(cx),
            Self::Http2(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}
