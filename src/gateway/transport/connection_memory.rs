//! Memory that client connections occupy, and its limit.
//!
//! Each connection is charged for its buffers and for the requests and responses in progress, as they change. A
//! worker's tick adds up its connections; above `limits.memory`, those that occupy most are closed.

use super::shared_body::SharedBody;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_http1::ReadBufferState;
use tidegate_policy::identity::ClientKey;

/// Bytes of a connection without a request and a read buffer: its task and its socket.
const CONNECTION: usize = 10 * 1024;
/// Bytes of an HTTP/2 connection in addition: its frame buffers and header tables.
pub(in crate::gateway) const HTTP2_CONNECTION: usize = 48 * 1024;
/// Bytes of a response on an HTTP/2 stream in addition, until its last byte is written: the stream, its task and its head.
pub(in crate::gateway) const HTTP2_RESPONSE: usize = 4 * 1024;
/// Bytes of a TLS connection in addition: its keys, and the record that is received.
pub(in crate::gateway) const TLS_CONNECTION: usize = 24 * 1024;
/// Bytes of a TLS connection in addition while encrypted data waits for the client.
pub(in crate::gateway) const TLS_SEND_BUFFER: usize = 32 * 1024;
/// Longest part of a body that is not charged, in bytes: HTTP/1.1 copies it into the buffer of the connection.
pub(in crate::gateway) const MAX_UNCHARGED: usize = 4 * 1024;
/// Bytes of a request in progress, besides its head.
pub(in crate::gateway) const REQUEST: usize = 8 * 1024;

/// Bytes that a connection occupies.
#[derive(Default)]
pub(in crate::gateway) struct ConnectionMemory {
    charged: Cell<usize>,
    read_buffer: Rc<ReadBufferState>,
    /// Stored bodies of responses in progress.
    shared: RefCell<Slab<(Arc<SharedBody>, ClientKey)>>,
}

impl ConnectionMemory {
    /// Returns the bytes that the connection occupies.
    pub(in crate::gateway) fn total(&self) -> u64 {
        let shared: usize = self.shared.borrow().iter().map(|(_, (body, _))| body.memory_of_reader()).sum();
        (CONNECTION + self.charged.get() + self.read_buffer.allocated() + shared) as u64
    }

    /// Returns the stored bodies that others displaced, each once, and one of the clients that read it.
    pub(in crate::gateway) fn begin_moves(&self) -> Vec<(Arc<SharedBody>, ClientKey)> {
        let shared = self.shared.borrow();
        shared.iter().filter(|(_, (body, _))| body.begin_move()).map(|(_, entry)| entry.clone()).collect()
    }

    /// Returns the state of the HTTP/1.1 read buffer.
    pub(in crate::gateway) fn read_buffer(&self) -> &Rc<ReadBufferState> {
        &self.read_buffer
    }
}

/// Charge for a stored body, which several connections may send at once.
pub(in crate::gateway) struct SharedCharge {
    memory: Rc<ConnectionMemory>,
    key: usize,
}

impl SharedCharge {
    pub(in crate::gateway) fn new(memory: &Rc<ConnectionMemory>, body: Arc<SharedBody>, client: ClientKey) -> Self {
        let key = memory.shared.borrow_mut().insert((body, client));
        Self { memory: Rc::clone(memory), key }
    }

    /// Returns the memory of the connection.
    pub(in crate::gateway) fn memory(&self) -> &Rc<ConnectionMemory> {
        &self.memory
    }
}

impl Drop for SharedCharge {
    fn drop(&mut self) {
        drop(self.memory.shared.borrow_mut().remove(self.key));
    }
}

/// Bytes charged to a connection, until dropped.
pub(in crate::gateway) struct MemoryCharge {
    memory: Rc<ConnectionMemory>,
    bytes: usize,
}

impl MemoryCharge {
    pub(in crate::gateway) fn new(memory: &Rc<ConnectionMemory>, bytes: usize) -> Self {
        memory.charged.set(memory.charged.get() + bytes);
        Self { memory: Rc::clone(memory), bytes }
    }

    /// Replaces the charge by `bytes`.
    pub(in crate::gateway) fn set(&mut self, bytes: usize) {
        let charged = &self.memory.charged;
        charged.set(charged.get() - self.bytes + bytes);
        self.bytes = bytes;
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes that the client connections of all workers occupied at their last ticks.
#[derive(Default)]
pub(in crate::gateway) struct MemoryTotal(AtomicU64);

impl MemoryTotal {
    /// Replaces `previous`, the bytes of one worker, by `current`. Returns the bytes that this worker has to free, its
    /// part of what exceeds `limit`.
    pub(in crate::gateway) fn update(&self, previous: u64, current: u64, limit: u64) -> u64 {
        // Wraps around for a decrease.
        let change = current.wrapping_sub(previous);
        let total = self.0.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        let excess = total.saturating_sub(limit);
        (u128::from(excess) * u128::from(current)).div_ceil(u128::from(total.max(1))) as u64
    }
}

/// Returns the least number of the largest holders that together occupy `excess` bytes, largest first.
pub(in crate::gateway) fn largest<T>(mut holders: Vec<(u64, T)>, excess: u64) -> impl Iterator<Item = T> {
    holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut freed = 0;
    holders.into_iter().map_while(move |(bytes, holder)| {
        let is_needed = freed < excess;
        freed += bytes;
        is_needed.then_some(holder)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_of_what_exists() {
        let memory = Rc::<ConnectionMemory>::default();
        let base = memory.total();
        let mut request = MemoryCharge::new(&memory, 100);
        let response = MemoryCharge::new(&memory, 50);
        assert_eq!(memory.total() - base, 150);
        request.set(30);
        assert_eq!(memory.total() - base, 80);
        drop(response);
        drop(request);
        assert_eq!(memory.total(), base);
    }

    #[test]
    fn each_worker_frees_its_part_of_the_excess() {
        let total = MemoryTotal::default();
        assert_eq!(total.update(0, 300, 1000), 0);
        assert_eq!(total.update(0, 700, 1000), 0);
        assert_eq!(total.update(300, 500, 1000), 84, "500 of 1200, which are 200 too many");
        assert_eq!(total.update(700, 500, 1000), 0);
        assert_eq!(total.update(500, 500, 400), 300);
        assert_eq!(total.update(500, 0, 0), 0, "nothing of this worker is left");
    }

    #[test]
    fn largest_holders_go_first() {
        let holders = vec![(5, 'a'), (20, 'b'), (10, 'c'), (1, 'd')];
        let freed = |excess| largest(holders.clone(), excess).collect::<String>();
        assert_eq!(["", "b", "b", "bc", "bcad"], [0, 1, 20, 21, 1000].map(freed).each_ref().map(String::as_str));
    }
}
