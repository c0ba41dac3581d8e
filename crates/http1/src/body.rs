//! Reading and writing of message bodies.

use super::buffer::WriteBuffer;
use super::chunked::{self, BodyChunk, ChunkReader};
use super::framing::{BodyLength, Malformed};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use http_body::{Body, SizeHint};
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Extracts a body from the read buffer.
#[derive(Debug)]
pub(super) enum BodyReader {
    Exact(u64),
    Chunked(ChunkReader),
    UntilClose { is_closed: bool },
}

impl BodyReader {
    pub(super) fn new(length: BodyLength) -> Self {
        match length {
            BodyLength::Exact(length) => Self::Exact(length),
            BodyLength::Chunked => Self::Chunked(ChunkReader::new()),
            BodyLength::UntilClose => Self::UntilClose { is_closed: false },
        }
    }

    /// Returns the next chunk of the body in `buffer`.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<BodyChunk, Malformed> {
        match self {
            Self::Exact(0) => Ok(BodyChunk::End),
            Self::Chunked(chunks) => chunks.next(buffer),
            Self::UntilClose { is_closed: true } if buffer.is_empty() => Ok(BodyChunk::End),
            _ if buffer.is_empty() => Ok(BodyChunk::Pending),
            Self::Exact(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                *left -= length as u64;
                Ok(BodyChunk::Data(buffer.split_to(length).freeze()))
            }
            Self::UntilClose { .. } => Ok(BodyChunk::Data(buffer.split().freeze())),
        }
    }

    /// Handles the end of the stream. Returns true if it completes the body, false if it truncates it.
    pub(super) fn on_eof(&mut self) -> bool {
        match self {
            Self::UntilClose { is_closed } => {
                *is_closed = true;
                true
            }
            _ => self.is_done(),
        }
    }

    /// Returns true once the end of the body was read.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Exact(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::UntilClose { is_closed } => *is_closed,
        }
    }

    /// Returns the number of bytes that are certain to follow, if declared by the sender.
    pub(super) fn expected(&self) -> u64 {
        match self {
            Self::Exact(left) => *left,
            Self::Chunked(chunks) => chunks.expected(),
            Self::UntilClose { .. } => 0,
        }
    }

    /// Returns the number of bytes that follow; `None` if the sender has not declared it.
    pub(super) fn declared_rest(&self) -> Option<u64> {
        match self {
            Self::Exact(left) => Some(*left),
            _ => None,
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Exact(left) => SizeHint::with_exact(*left),
            _ if self.is_done() => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}

/// A body that can be sent.
pub trait SendBody: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin {}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin> SendBody for B {}

/// Coding of a body while it is written.
#[derive(Debug)]
pub(super) enum BodyCoding {
    /// Exact length; holds the remaining bytes.
    Exact(u64),
    /// Chunked, followed by these trailers.
    Chunked(Vec<HeaderName>),
    /// Uncoded; the connection's end is the body's end.
    UntilClose,
}

/// Writes a body as its chunks arrive, at the speed of the receiver.
pub(super) struct BodyWriter<B> {
    body: B,
    coding: BodyCoding,
    /// Result once the body has ended; earlier chunks are still written.
    end: Option<Result<(), WriteError>>,
}

/// Error of a body that is not written completely.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The body returned an error.
    Body(Box<dyn Error + Send + Sync>),
    /// The body is longer or shorter than declared.
    Length,
    /// The receiver does not accept it.
    Io(io::Error),
}

impl<B: SendBody> BodyWriter<B> {
    pub(super) fn new(body: B, coding: BodyCoding) -> Self {
        let end = matches!(coding, BodyCoding::Exact(0)).then_some(Ok(()));
        Self { body, coding, end }
    }

    /// Writes until the body has ended and `out` is empty.
    ///
    /// Chunks that are ready together are written together. Ready chunks are written before any wait for more.
    pub(super) fn poll_write<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        out: &mut WriteBuffer,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), WriteError>> {
        loop {
            if self.end.is_some() || !out.has_capacity() {
                ready!(out.poll_flush(io, cx)).map_err(WriteError::Io)?;
            }
            if let Some(end) = self.end.take() {
                return Poll::Ready(end);
            }
            self.end = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    if let Poll::Ready(Err(error)) = out.poll_flush(io, cx) {
                        return Poll::Ready(Err(WriteError::Io(error)));
                    }
                    return Poll::Pending;
                }
                Poll::Ready(None) => Some(self.finish(out, None)),
                Poll::Ready(Some(Err(error))) => Some(Err(WriteError::Body(error.into()))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data().map(|data| self.put(data, out)) {
                    Ok(Ok(())) if self.body.is_end_stream() => Some(self.finish(out, None)),
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(Err(error)),
                    Err(frame) => Some(self.finish(out, frame.into_trailers().ok().as_ref())),
                },
            };
        }
    }

    fn put(&mut self, data: Bytes, out: &mut WriteBuffer) -> Result<(), WriteError> {
        match &mut self.coding {
            // An empty chunk would end the body.
            _ if data.is_empty() => {}
            BodyCoding::Exact(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(WriteError::Length)?;
                out.push(data);
            }
            BodyCoding::Chunked(_) => {
                chunked::write_size(out.front_mut(), data.len());
                out.push(data);
                out.front_mut().extend_from_slice(b"\r\n");
            }
            BodyCoding::UntilClose => out.push(data),
        }
        Ok(())
    }

    fn finish(&self, out: &mut WriteBuffer, trailers: Option<&HeaderMap>) -> Result<(), WriteError> {
        match &self.coding {
            BodyCoding::Exact(left) if *left > 0 => return Err(WriteError::Length),
            BodyCoding::Chunked(announced) => chunked::write_end(out.front_mut(), trailers, announced),
            _ => {}
        }
        Ok(())
    }
}
