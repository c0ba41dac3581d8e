//! Listening sockets: one a worker on the same port, so that the kernel spreads connections and no worker waits for
//! another to accept.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Binds `address` once for each of `workers`. Port 0 takes a free port, the same for all.
///
/// All are bound before any is served: a socket of the group that closes takes what waits in its queue with it.
pub(super) fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let first = bind_one(address)?;
    let address = first.local_addr()?;
    let rest = (1..workers).map(|_| bind_one(address));
    std::iter::once(Ok(first)).chain(rest).collect()
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
