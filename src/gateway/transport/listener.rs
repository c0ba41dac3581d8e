//! Listening sockets: one per worker on the same port, so that the kernel distributes connections and workers accept
//! independently. Each has the options of its listener.

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_config::settings::{HttpsRedirect, Listener};
use tidegate_tls::TlsListener;

/// How the connections of a listener begin, and how they are answered.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct ListenerOptions {
    pub(in crate::gateway) kind: ListenerKind,
    /// Bound address; `None` for requests of the gateway itself.
    pub(in crate::gateway) address: Option<SocketAddr>,
    /// True if a header of the PROXY protocol comes first.
    pub(in crate::gateway) proxy_protocol: bool,
    /// TLS; `None` is HTTP without TLS.
    pub(in crate::gateway) tls: Option<Arc<TlsListener>>,
    /// Value of `Strict-Transport-Security`, if it is added.
    pub(in crate::gateway) hsts: Option<String>,
    /// Port of the https URLs to which all requests are redirected; `None` if they are handled.
    pub(in crate::gateway) redirect_port: Option<u16>,
}

/// Returns the options of all listeners, which are bound to `addresses`. `tls` belongs to the listeners that have it, in
/// order.
pub(in crate::gateway) fn options(
    listeners: &[Listener],
    addresses: &[SocketAddr],
    tls: &[Arc<TlsListener>],
) -> Vec<ListenerOptions> {
    let https_port = listeners.iter().zip(addresses).find(|(listener, _)| listener.tls.is_some());
    let https_port = https_port.map(|(_, address)| address.port());
    let mut tls = tls.iter();
    let options = |(listener, address): (&Listener, &SocketAddr)| ListenerOptions {
        kind: ListenerKind::Site,
        address: Some(*address),
        proxy_protocol: listener.proxy_protocol,
        tls: listener.tls.as_ref().and_then(|_| tls.next().cloned()),
        hsts: listener.tls.as_ref().and_then(|tls| Some(format!("max-age={}", tls.hsts?.as_secs()))),
        redirect_port: listener.redirect.and_then(|HttpsRedirect { port }| port.or(https_port)),
    };
    listeners.iter().zip(addresses).map(options).collect()
}

/// Who connects to a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) enum ListenerKind {
    /// Clients of the site.
    #[default]
    Site,
    /// Other proxies, which ask about the requests of their clients.
    ForwardAuth,
}

/// Maximum length of the accept queue.
const BACKLOG: i32 = 4096;

/// Bytes that wait unsent in the kernel for one client before it takes no more. What it takes is the progress of a client,
/// which by default may not be seen until half of up to 4 MiB is read: people whose connection becomes slow would be closed.
/// A packet of up to 64 KiB exceeds it, and half of it must be sent before the kernel takes more: about 96 KiB are not seen.
const MAX_UNSENT: u32 = 64 * 1024;

/// Binds `address` once for each of `workers`. Port 0 selects a free port, the same for all.
///
/// Returns an error if the port is in use, including by another gateway: two gateways on one port would each serve some
/// of the clients, and each use the whole quota.
///
/// All sockets are bound before any is served: closing a socket of the group drops the connections in its queue.
pub(in crate::gateway) fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    if address.port() != 0 {
        drop(socket(address, false)?);
    }
    let first = bind_one(address)?;
    let address = first.local_addr()?;
    let rest = (1..workers).map(|_| bind_one(address));
    std::iter::once(Ok(first)).chain(rest).collect()
}

/// Returns the sockets of a predecessor, `inherited`, and as many more as `workers` need.
pub(in crate::gateway) fn adopt(inherited: Vec<OwnedFd>, workers: usize) -> io::Result<Vec<TcpListener>> {
    let mut sockets: Vec<TcpListener> = inherited.into_iter().map(TcpListener::from).collect();
    for socket in &sockets {
        socket.set_nonblocking(true)?;
        SockRef::from(socket).set_tcp_notsent_lowat(MAX_UNSENT)?;
    }
    if let Some(first) = sockets.first() {
        let address = first.local_addr()?;
        while sockets.len() < workers {
            // Sockets of systemd share no port: their workers share the socket.
            let another = bind_one(address).or_else(|_| sockets[0].try_clone());
            sockets.push(another?);
        }
    }
    Ok(sockets)
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, true)?;
    socket.set_nonblocking(true)?;
    // Its connections inherit it.
    socket.set_tcp_notsent_lowat(MAX_UNSENT)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Returns a socket bound to `address`, exclusively or shared with others of this process.
fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn little_waits_unsent_for_a_client_that_does_not_read() {
        let bound = bind(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let inherited = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let adopted = adopt(vec![inherited.into()], 1).expect("a listening socket");
        for listener in bound.into_iter().chain(adopted) {
            listener.set_nonblocking(false).expect("a socket");
            let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
            let (connection, _) = listener.accept().expect("a client");
            let unsent = SockRef::from(&connection).tcp_notsent_lowat().expect("an option of Linux");
            assert_eq!(unsent, MAX_UNSENT);
        }
    }
}
