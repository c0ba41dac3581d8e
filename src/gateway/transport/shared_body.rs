//! Bodies that stored responses share with the responses that are being sent.
//!
//! A body is in memory while it is stored. If others displace it while it is sent, it moves into a file, from which its
//! readers go on.

use super::spool::{SpoolError, SpoolFile};
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A body with owners and readers.
pub(in crate::gateway) struct SharedBody {
    content: RwLock<SharedContent>,
    len: usize,
    /// The content is or was to be moved into a file.
    is_moved: AtomicBool,
    /// Stored responses with the body.
    owners: AtomicUsize,
    /// Responses that send the body.
    readers: AtomicUsize,
}

/// Content of a body.
pub(in crate::gateway) enum SharedContent {
    Memory(Arc<[Bytes]>),
    File(SpoolFile),
}

/// A body as part of a stored response.
pub(in crate::gateway) struct OwnedBody {
    parts: Arc<[Bytes]>,
    body: Arc<SharedBody>,
}

impl SharedBody {
    /// Returns the bytes that one of its readers accounts for. A stored body occupies memory of the cache; one that was
    /// displaced occupies that of its readers together, until it is in a file.
    pub(in crate::gateway) fn memory_of_reader(&self) -> usize {
        let is_stored = self.owners.load(Ordering::Relaxed) > 0;
        if is_stored || matches!(*self.content.read(), SharedContent::File(_)) {
            return 0;
        }
        self.len.div_ceil(self.readers.load(Ordering::Relaxed).max(1))
    }

    /// Returns true for a displaced body that is to be moved into a file, once.
    pub(in crate::gateway) fn begin_move(&self) -> bool {
        self.memory_of_reader() > 0 && !self.is_moved.swap(true, Ordering::Relaxed)
    }

    /// Returns the content, which moves at most once.
    pub(in crate::gateway) fn content(&self) -> RwLockReadGuard<'_, SharedContent> {
        self.content.read()
    }

    /// Counts a reader, until [`Self::remove_reader`].
    pub(in crate::gateway) fn add_reader(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::gateway) fn remove_reader(&self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Starts to move the body into the empty `file`, within `limit` bytes of all files. It stays in memory if that fails.
    pub(in crate::gateway) fn move_to(self: Arc<Self>, file: SpoolFile, limit: u64) -> Result<(), SpoolError> {
        let parts = match &*self.content.read() {
            SharedContent::Memory(parts) => Arc::clone(parts),
            SharedContent::File(_) => return Ok(()),
        };
        file.fill(parts, limit, move |file| *self.content.write() = SharedContent::File(file))
    }
}

impl OwnedBody {
    pub(in crate::gateway) fn new(parts: Vec<Bytes>) -> Self {
        let parts: Arc<[Bytes]> = parts.into();
        let body = SharedBody {
            content: RwLock::new(SharedContent::Memory(Arc::clone(&parts))),
            len: parts.iter().map(Bytes::len).sum(),
            is_moved: AtomicBool::new(false),
            owners: AtomicUsize::new(1),
            readers: AtomicUsize::new(0),
        };
        Self { parts, body: Arc::new(body) }
    }

    /// Returns the parts in their order.
    pub(in crate::gateway) fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Returns the body, for its readers.
    pub(in crate::gateway) fn share(&self) -> Arc<SharedBody> {
        Arc::clone(&self.body)
    }

    /// Returns the number of bytes.
    pub(in crate::gateway) fn len(&self) -> usize {
        self.body.len
    }
}

impl Clone for OwnedBody {
    fn clone(&self) -> Self {
        self.body.owners.fetch_add(1, Ordering::Relaxed);
        Self { parts: Arc::clone(&self.parts), body: Arc::clone(&self.body) }
    }
}

impl Drop for OwnedBody {
    fn drop(&mut self) {
        self.body.owners.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for OwnedBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("OwnedBody").field(&self.body.len).finish()
    }
}
