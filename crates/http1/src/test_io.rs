//! Mock stream with scripted input, and a mock body that the test controls.

use super::client::Stream;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// An end of a connection whose other end is the test. Clones share the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct MockStream(Rc<RefCell<MockState>>);

#[derive(Debug, Default)]
struct MockState {
    pending_reads: VecDeque<Vec<u8>>,
    after_script: AfterScript,
    written: Vec<u8>,
    reads: usize,
    writes: usize,
    write_limit: Option<usize>,
    is_shut_down: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum AfterScript {
    #[default]
    Pending,
    Eof,
    Error,
    RepeatLast,
}

impl MockStream {
    /// Returns a stream that yields each of `parts` as one read, then waits.
    pub(super) fn reads_from<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> Self {
        let script = Self::default();
        parts.into_iter().for_each(|part| script.push_read(part));
        script
    }

    /// Returns a stream that yields `text` in segments of the lengths `cuts`, then the rest in one.
    pub(super) fn reads_in_segments(mut text: &[u8], cuts: &[usize]) -> Self {
        let script = Self::default();
        for &cut in cuts {
            let (segment, rest) = text.split_at(cut.min(text.len()));
            script.push_read(segment);
            text = rest;
        }
        script.push_read(text);
        script
    }

    pub(super) fn push_read(&self, part: impl AsRef<[u8]>) {
        if !part.as_ref().is_empty() {
            self.state().pending_reads.push_back(part.as_ref().to_vec());
        }
    }

    pub(super) fn then_eof(self) -> Self {
        self.close();
        self
    }

    pub(super) fn close(&self) {
        self.state().after_script = AfterScript::Eof;
    }

    pub(super) fn then_error(self) -> Self {
        self.state().after_script = AfterScript::Error;
        self
    }

    /// Repeats the last part forever.
    pub(super) fn then_repeat_last(self) -> Self {
        self.state().after_script = AfterScript::RepeatLast;
        self
    }

    /// Accepts at most `limit` bytes of writes.
    pub(super) fn write_limit(self, limit: usize) -> Self {
        self.state().write_limit = Some(limit);
        self
    }

    pub(super) fn written(&self) -> String {
        String::from_utf8_lossy(&self.state().written).into_owned()
    }

    pub(super) fn reads(&self) -> usize {
        self.state().reads
    }

    pub(super) fn writes(&self) -> usize {
        self.state().writes
    }

    fn state(&self) -> RefMut<'_, MockState> {
        self.0.borrow_mut()
    }
}

impl AsyncRead for MockStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        state.reads += 1;
        let after_script = state.after_script;
        let Some(mut next) = state.pending_reads.pop_front() else {
            return match after_script {
                AfterScript::Eof => Poll::Ready(Ok(())),
                AfterScript::Error => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                AfterScript::Pending | AfterScript::RepeatLast => Poll::Pending,
            };
        };
        let rest = next.split_off(next.len().min(buffer.remaining()));
        buffer.put_slice(&next);
        if !rest.is_empty() {
            state.pending_reads.push_front(rest);
        } else if let (AfterScript::RepeatLast, true) = (after_script, state.pending_reads.is_empty()) {
            state.pending_reads.push_back(next);
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream for MockStream {
    fn has_no_input(&self) -> bool {
        let state = self.state();
        state.pending_reads.is_empty() && matches!(state.after_script, AfterScript::Pending)
    }
}

impl AsyncWrite for MockStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        let room = state.write_limit.map_or(usize::MAX, |limit| limit - state.written.len());
        if room == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let bytes = &bytes[..bytes.len().min(room)];
        state.written.extend_from_slice(bytes);
        state.writes += 1;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.poll_write(cx, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state().is_shut_down = true;
        Poll::Ready(Ok(()))
    }
}

/// A body of unknown length. Clones share the body.
#[derive(Clone, Debug, Default)]
pub(super) struct MockBody(Rc<RefCell<VecDeque<Option<Frame<Bytes>>>>>);

impl MockBody {
    /// Returns a body without frames that has not ended.
    pub(super) fn open() -> Self {
        Self::default()
    }

    /// Returns a complete body of `frames`.
    pub(super) fn all(frames: impl IntoIterator<Item = Frame<Bytes>>) -> Self {
        let body = Self::open();
        body.0.borrow_mut().extend(frames.into_iter().map(Some).chain([None]));
        body
    }

    pub(super) fn send(&self, data: &'static str) {
        self.0.borrow_mut().push_back(Some(Frame::data(Bytes::from(data))));
    }
}

impl Body for MockBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.borrow_mut().pop_front() {
            None => Poll::Pending,
            Some(next) => Poll::Ready(next.map(Ok)),
        }
    }
}

/// A body whose length differs from the declared one.
#[derive(Debug)]
pub(super) struct WrongLengthBody {
    pub(super) length: u64,
    pub(super) body: MockBody,
}

impl Body for WrongLengthBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

/// Any body.
pub(super) struct DynBody(Pin<Box<dyn Body<Data = Bytes, Error = Infallible>>>);

impl DynBody {
    pub(super) fn new(body: impl Body<Data = Bytes, Error = Infallible> + 'static) -> Self {
        Self(Box::pin(body))
    }
}

impl Body for DynBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Returns the result of `future` if it completes without waiting.
pub(super) fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
