//! A body on its way from its file to a client, block by block, so that it is never whole in memory.

use crate::gateway::transport::connection_memory::{ConnectionMemory, MemoryCharge};
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tidegate_cache_disk::{BLOCK, DiskBody, ReadMode};
use tokio::task::{JoinHandle, spawn_blocking};

/// Reader of a part of a body.
pub(in crate::gateway) struct DiskReader {
    body: DiskBody,
    next: u64,
    end: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    _charge: Option<MemoryCharge>,
}

/// Most blocks that are in memory at once: one is read while the parts of another are written.
const MAX_BLOCKS: usize = 2;

impl DiskReader {
    /// Returns the reader of the bytes from `first` to before `end`.
    pub(super) fn new(body: DiskBody, first: u64, end: u64) -> Self {
        Self { body, next: first, end, reading: None, _charge: None }
    }

    /// Charges the blocks to the connection of the client.
    pub(super) fn charge(&mut self, memory: &Rc<ConnectionMemory>) {
        self._charge = Some(MemoryCharge::new(memory, MAX_BLOCKS * BLOCK as usize));
    }

    /// Returns the number of bytes that are left.
    pub(in crate::gateway) fn remaining(&self) -> u64 {
        self.end - self.next
    }

    /// Polls for the next bytes; `None` at the end.
    pub(in crate::gateway) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.remaining() == 0 {
            return Poll::Ready(None);
        }
        let number = self.next / BLOCK;
        let block = match self.read_page_cache(number) {
            Some(block) => block,
            None => ready!(self.poll_read(number, cx)),
        };
        Poll::Ready(Some(block.map(|block| {
            let start = number * BLOCK;
            let (from, to) = (self.next - start, (self.end - start).min(block.len() as u64));
            self.next = start + to;
            block.slice(from as usize..to as usize)
        })))
    }

    /// Returns the block, if no read of it is in progress and the page cache has it, or if it is damaged.
    fn read_page_cache(&self, number: u64) -> Option<io::Result<Bytes>> {
        let is_unread = self.reading.is_none();
        let block = is_unread.then(|| self.body.read_block(number, ReadMode::PageCache))?;
        (!matches!(&block, Err(error) if error.kind() == io::ErrorKind::WouldBlock)).then_some(block)
    }

    /// Polls for the block, which another thread reads.
    fn poll_read(&mut self, number: u64, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let reading = self.reading.get_or_insert_with(|| {
            let body = self.body.clone();
            spawn_blocking(move || body.read_block(number, ReadMode::Blocking))
        });
        let block = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten();
        self.reading = None;
        Poll::Ready(block)
    }
}
