//! Listening sockets that pass from one process to the next.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Listening sockets, by the addresses of the configuration that they were bound for.
#[derive(Debug, Default)]
pub struct ListenSockets(Vec<(String, OwnedFd)>);

impl ListenSockets {
    /// Adds a socket of an address.
    pub fn add(&mut self, address: String, socket: OwnedFd) {
        self.0.push((address, socket));
    }

    /// Iterates over the sockets with their addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, BorrowedFd<'_>)> {
        self.0.iter().map(|(address, socket)| (address.as_str(), socket.as_fd()))
    }

    /// Takes the sockets of an address.
    pub(in crate::gateway) fn take(&mut self, address: &str) -> Vec<OwnedFd> {
        let (taken, rest): (Vec<_>, _) = std::mem::take(&mut self.0).into_iter().partition(|(own, _)| own == address);
        self.0 = rest;
        taken.into_iter().map(|(_, socket)| socket).collect()
    }
}
