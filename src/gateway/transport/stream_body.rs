//! Response bodies on streams of HTTP/2.
//!
//! h2 takes whole parts and keeps what the client has no window for, also after the end of the body. A part is short, and
//! is charged to the connection until h2 has written it.

use super::client_body::BodyError;
use super::connection_memory::{HTTP2_RESPONSE, MemoryCharge};
use super::connection_timeouts::ConnectionState;
use crate::gateway::message::response_body::ResponseBody;
use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Maximum length of a part: the default maximum of a DATA frame (RFC 9113 section 6.5.2).
const MAX_PART: usize = 16 * 1024;

/// A response body in parts for h2.
pub(in crate::gateway) struct StreamBody {
    body: ResponseBody,
    /// Bytes of the body that are the next parts.
    rest: Bytes,
    stream: Rc<ResponseStream>,
}

/// A part that h2 has until it is written.
pub(in crate::gateway) struct StreamPart {
    bytes: Bytes,
    len: usize,
    stream: Rc<ResponseStream>,
}

/// A response until its last byte is written.
struct ResponseStream {
    connection_state: Rc<ConnectionState>,
    /// Key of its progress.
    key: usize,
    charge: RefCell<MemoryCharge>,
    /// Charge for a body of one chunk, whose parts are slices of it.
    _body_charge: Option<MemoryCharge>,
    /// Parts are copies, and are charged one by one.
    is_copied: bool,
    /// Bytes of the parts that are not written.
    unwritten: Cell<usize>,
    /// The body has no further part yet.
    is_pending: Cell<bool>,
}

impl StreamBody {
    pub(in crate::gateway) fn new(mut body: ResponseBody, connection_state: &Rc<ConnectionState>) -> Self {
        let stream = Rc::new(ResponseStream {
            key: connection_state.on_response_start(),
            charge: RefCell::new(MemoryCharge::new(connection_state.memory(), HTTP2_RESPONSE)),
            _body_charge: body.take_charge(),
            is_copied: body.has_large_parts(),
            unwritten: Cell::new(0),
            is_pending: Cell::new(false),
            connection_state: Rc::clone(connection_state),
        });
        Self { body, rest: Bytes::new(), stream }
    }

    fn next_part(&mut self) -> StreamPart {
        let bytes = self.rest.split_to(self.rest.len().min(MAX_PART));
        // A slice would keep the buffer in which it was received, 512 KiB at most.
        let bytes = if self.stream.is_copied { Bytes::copy_from_slice(&bytes) } else { bytes };
        if self.rest.is_empty() {
            self.rest = Bytes::new();
        }
        self.stream.on_part(bytes.len());
        StreamPart { len: bytes.len(), bytes, stream: Rc::clone(&self.stream) }
    }
}

impl Body for StreamBody {
    type Data = StreamPart;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<StreamPart>, BodyError>>> {
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            self.stream.on_polled(polled.is_pending());
            match ready!(polled).map(|frame| frame.map(Frame::into_data)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(Err(frame))) => {
                    return Poll::Ready(frame.into_trailers().ok().map(|map| Ok(Frame::trailers(map))));
                }
                Some(Ok(Ok(data))) => self.rest = data,
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.next_part()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut total = SizeHint::new();
        total.set_lower(hint.lower() + rest);
        hint.upper().into_iter().for_each(|upper| total.set_upper(upper + rest));
        total
    }
}

impl ResponseStream {
    fn on_part(&self, len: usize) {
        self.set_unwritten(self.unwritten.get() + len);
        self.connection_state.on_response_progress(self.key, 0);
    }

    fn on_polled(&self, is_pending: bool) {
        self.is_pending.set(is_pending);
        self.set_unwritten(self.unwritten.get());
    }

    fn on_written(&self, len: usize) {
        self.set_unwritten(self.unwritten.get() - len);
        self.connection_state.on_response_progress(self.key, len);
    }

    fn set_unwritten(&self, unwritten: usize) {
        self.unwritten.set(unwritten);
        let copied = if self.is_copied { unwritten } else { 0 };
        self.charge.borrow_mut().set(HTTP2_RESPONSE + copied);
        self.connection_state.on_origin_wait(self.key, self.is_pending.get() && unwritten == 0);
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        self.connection_state.on_response_end(self.key);
    }
}

impl Buf for StreamPart {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for StreamPart {
    fn drop(&mut self) {
        self.stream.on_written(self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tidegate_engine::clock::Clock;

    fn next(body: &mut StreamBody) -> Option<StreamPart> {
        let Poll::Ready(frame) = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        frame?.ok()?.into_data().ok()
    }

    #[test]
    fn parts_are_short_and_charged_until_they_are_written() {
        let state = ConnectionState::new(Rc::default(), Clock::system(), 1);
        let (charged, base) = (|| state.memory().total(), state.memory().total());
        let mut response = ResponseBody::full(vec![1; 40_000]);
        response.charge(state.memory());
        let mut body = StreamBody::new(response, &state);
        let parts: Vec<_> = std::iter::from_fn(|| next(&mut body)).collect();
        assert_eq!(
            parts.iter().map(|part| part.remaining()).collect::<Vec<_>>(),
            [MAX_PART, MAX_PART, 40_000 - 2 * MAX_PART]
        );
        assert!(body.is_end_stream());
        drop(body);
        let mut parts = parts.into_iter();
        let last = parts.next_back();
        parts.for_each(drop);
        assert_eq!(charged(), base + 40_000 + HTTP2_RESPONSE as u64, "a part keeps the whole");
        drop(last);
        assert_eq!(charged(), base);
    }
}
