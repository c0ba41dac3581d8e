//! Streams to the origin: TCP, TLS over it, or a socket in the file system.

use http::uri::Scheme;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_http1::client;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// Stream to a server of the origin.
pub(in crate::gateway) enum OriginStream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl OriginStream {
    /// Returns the scheme of requests on the stream.
    pub(super) fn scheme(&self) -> Scheme {
        match self {
            Self::Tls(_) => Scheme::HTTPS,
            Self::Tcp(_) | Self::Unix(_) => Scheme::HTTP,
        }
    }

    /// Returns the protocol that the origin chose (ALPN); `None` if it chose none, or without TLS.
    pub(super) fn protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol(),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }
}

/// Calls a method of the stream inside.
macro_rules! delegate {
    ($stream:expr, $method:ident $(, $argument:expr)*) => {
        match $stream.get_mut() {
            OriginStream::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            OriginStream::Tls(stream) => Pin::new(stream).$method($($argument),*),
            OriginStream::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for OriginStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_read, cx, buffer)
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write_vectored, cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_shutdown, cx)
    }
}

impl client::Stream for OriginStream {
    fn has_no_input(&self) -> bool {
        match self {
            Self::Tcp(stream) => has_no_input(stream),
            // A session ticket counts as input: the connection is then not used again.
            Self::Tls(stream) => has_no_input(stream.get_ref().0),
            Self::Unix(stream) => has_no_input(stream),
        }
    }
}

fn has_no_input(socket: &impl AsFd) -> bool {
    let peeked = SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
