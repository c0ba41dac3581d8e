//! Listening sockets: one per worker on the same port, so that the kernel distributes connections and workers accept
//! independently.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Who connects to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenerKind {
    /// Clients of the site.
    Site,
    /// Other proxies, which ask about the requests of their clients.
    ForwardAuth,
}

/// Maximum length of the accept queue.
const BACKLOG: i32 = 4096;

/// Binds `address` once for each of `workers`. Port 0 selects a free port, the same for all.
///
/// Returns an error if the port is in use, including by another gateway: two gateways on one port would each serve some
/// of the clients, and each use the whole quota.
///
/// All sockets are bound before any is served: closing a socket of the group drops the connections in its queue.
pub(super) fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    if address.port() != 0 {
        drop(socket(address, false)?);
    }
    let first = bind_one(address)?;
    let address = first.local_addr()?;
    let rest = (1..workers).map(|_| bind_one(address));
    std::iter::once(Ok(first)).chain(rest).collect()
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, true)?;
    socket.set_nonblocking(true)?;
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
