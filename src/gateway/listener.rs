//! Listening sockets: one a worker on the same port, so that the kernel spreads connections and no worker waits for
//! another to accept.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Binds `address` once for each of `workers`. Port 0 takes a free port, the same for all.
///
/// A port that somebody listens on already, be it another gate, is taken: two gates on one port would each serve a part
/// of the clients, and each spend the whole quota.
///
/// All are bound before any is served: a socket of the group that closes takes what waits in its queue with it.
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

/// A socket bound to `address`, alone or as one of several of this process.
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
