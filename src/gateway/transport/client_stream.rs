//! The stream of a client, with or without TLS.

use super::connection_memory::{MemoryCharge, TLS_CONNECTION, TLS_SEND_BUFFER};
use super::tracked_stream::TrackedStream;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// Stream of a client. Progress is tracked below TLS: what counts is what the client receives.
pub(in crate::gateway) enum ClientStream {
    /// HTTP without TLS.
    Plain(TrackedStream),
    /// HTTP over TLS. Boxed, because it is large.
    Tls(Box<ChargedTlsStream>),
}

/// A TLS stream, whose buffers are charged to the connection.
pub(in crate::gateway) struct ChargedTlsStream {
    io: TlsStream<TrackedStream>,
    charge: MemoryCharge,
}

impl ChargedTlsStream {
    /// Takes over the `charge` of the handshake.
    pub(in crate::gateway) fn new(mut io: TlsStream<TrackedStream>, charge: MemoryCharge) -> Box<Self> {
        // Bounds what the client lets wait, by the amount that is charged for it.
        io.get_mut().1.set_buffer_limit(Some(TLS_SEND_BUFFER));
        Box::new(Self { io, charge })
    }

    /// Adjusts the charge after a write.
    fn update_charge(&mut self) {
        let waiting = if self.io.get_ref().1.wants_write() { TLS_SEND_BUFFER } else { 0 };
        self.charge.set(TLS_CONNECTION + waiting);
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(&mut tls.io).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Self::Tls(tls) => {
                let written = Pin::new(&mut tls.io).poll_write(cx, bytes);
                tls.update_charge();
                written
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Self::Tls(tls) => {
                let written = Pin::new(&mut tls.io).poll_write_vectored(cx, slices);
                tls.update_charge();
                written
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(tls) => tls.io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(tls) => {
                let flushed = Pin::new(&mut tls.io).poll_flush(cx);
                tls.update_charge();
                flushed
            }
        }
    }

    /// Sends close_notify first, over TLS.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut tls.io).poll_shutdown(cx),
        }
    }
}
