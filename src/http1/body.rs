//! Bodies as they cross the wire: cut out of what was read, put into what is written.

use super::chunked::{self, ChunkReader, Piece};
use super::framing::{Length, Malformed};
use super::wire::Outgoing;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use hyper::body::{Body, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Cuts a body out of what is read.
#[derive(Debug)]
pub(super) enum BodyReader {
    Exact(u64),
    Chunked(ChunkReader),
    UntilClose { closed: bool },
}

impl BodyReader {
    pub(super) fn new(length: Length) -> Self {
        match length {
            Length::Exact(length) => Self::Exact(length),
            Length::Chunked => Self::Chunked(ChunkReader::new()),
            Length::UntilClose => Self::UntilClose { closed: false },
        }
    }

    /// What `buffer` holds of the body.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        match self {
            Self::Exact(0) => Ok(Piece::End),
            Self::Chunked(chunks) => chunks.next(buffer),
            Self::UntilClose { closed: true } if buffer.is_empty() => Ok(Piece::End),
            _ if buffer.is_empty() => Ok(Piece::Later),
            Self::Exact(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                *left -= length as u64;
                Ok(Piece::Data(buffer.split_to(length).freeze()))
            }
            Self::UntilClose { .. } => Ok(Piece::Data(buffer.split().freeze())),
        }
    }

    /// The sender has closed its side; true if that is the end of the body and not its loss.
    pub(super) fn closed(&mut self) -> bool {
        match self {
            Self::UntilClose { closed } => {
                *closed = true;
                true
            }
            _ => self.is_done(),
        }
    }

    /// True once the end has been seen.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Exact(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::UntilClose { closed } => *closed,
        }
    }

    /// How much is certain to come, as far as the sender has said.
    pub(super) fn expected(&self) -> u64 {
        match self {
            Self::Exact(left) => *left,
            Self::Chunked(chunks) => chunks.expected(),
            Self::UntilClose { .. } => 0,
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

/// How a body is written.
#[derive(Debug)]
pub(super) enum Coding {
    /// So many bytes are still owed.
    Exact(u64),
    /// In chunks, and in the end those trailers.
    Chunked(Vec<HeaderName>),
    /// As it comes: the end of the connection is its end.
    UntilClose,
}

/// Writes a body as it comes, no faster than the other side takes it.
#[derive(Debug)]
pub(super) struct BodyWriter<B> {
    body: B,
    coding: Coding,
    ended: bool,
}

/// Why a body could not be written to its end.
#[derive(Debug)]
pub(super) enum WriteError<E> {
    /// The body itself broke off.
    Body(E),
    /// It was longer or shorter than announced.
    Length,
    /// The other side does not take it.
    Io(io::Error),
}

impl<B: Body<Data = Bytes> + Unpin> BodyWriter<B> {
    pub(super) fn new(body: B, coding: Coding) -> Self {
        let ended = matches!(coding, Coding::Exact(0));
        Self { body, coding, ended }
    }

    /// Writes until the body is at its end and nothing waits in `out`.
    ///
    /// Pieces that are at hand together are written together; what is at hand goes out before anyone waits for more.
    pub(super) fn poll_write<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        out: &mut Outgoing,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), WriteError<B::Error>>> {
        loop {
            if self.ended || !out.has_room() {
                ready!(out.poll_flush(io, context)).map_err(WriteError::Io)?;
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => {
                    if let Poll::Ready(Err(error)) = out.poll_flush(io, context) {
                        return Poll::Ready(Err(WriteError::Io(error)));
                    }
                    return Poll::Pending;
                }
                Poll::Ready(None) => self.end(out, None)?,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(WriteError::Body(error))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.put(data, out)?;
                        if self.body.is_end_stream() {
                            self.end(out, None)?;
                        }
                    }
                    Err(frame) => {
                        let trailers = frame.into_trailers().ok();
                        self.end(out, trailers.as_ref())?;
                    }
                },
            }
        }
    }

    fn put(&mut self, data: Bytes, out: &mut Outgoing) -> Result<(), WriteError<B::Error>> {
        match &mut self.coding {
            // An empty chunk would be the last.
            _ if data.is_empty() => {}
            Coding::Exact(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(WriteError::Length)?;
                out.push(data);
            }
            Coding::Chunked(_) => {
                chunked::write_size(out.text(), data.len());
                out.push(data);
                out.text().extend_from_slice(b"\r\n");
            }
            Coding::UntilClose => out.push(data),
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Outgoing, trailers: Option<&HeaderMap>) -> Result<(), WriteError<B::Error>> {
        match &self.coding {
            Coding::Exact(left) if *left > 0 => return Err(WriteError::Length),
            Coding::Chunked(announced) => chunked::write_end(out.text(), trailers, announced),
            _ => {}
        }
        self.ended = true;
        Ok(())
    }
}
