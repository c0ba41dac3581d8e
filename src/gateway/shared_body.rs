//! Bodies in memory that stored responses share with the responses that are being sent.

use super::connection_memory::{ConnectionMemory, SharedCharge};
use bytes::Bytes;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Parts of a body. They stay in memory together until the last owner and the last reader have dropped them.
#[derive(Debug)]
pub(super) struct SharedBody {
    parts: Box<[Bytes]>,
    len: usize,
    /// Stored responses with the body.
    owners: AtomicUsize,
    /// Responses that send the body.
    readers: AtomicUsize,
}

/// A body as part of a stored response.
#[derive(Debug)]
pub(super) struct OwnedBody(Arc<SharedBody>);

/// A range of a body on its way to a client.
pub(super) struct SharedReader {
    body: Arc<SharedBody>,
    /// Number of the next part, and the bytes of it that were read.
    next: (usize, usize),
    remaining: u64,
    charge: Option<SharedCharge>,
}

impl SharedBody {
    /// Returns the bytes that one of its readers accounts for. A stored body occupies memory of the cache; one that was
    /// displaced occupies that of its readers together.
    pub(super) fn memory_of_reader(&self) -> usize {
        match self.owners.load(Ordering::Relaxed) {
            0 => self.len.div_ceil(self.readers.load(Ordering::Relaxed).max(1)),
            _ => 0,
        }
    }
}

impl OwnedBody {
    pub(super) fn new(parts: Vec<Bytes>) -> Self {
        let len = parts.iter().map(Bytes::len).sum();
        let body = SharedBody { parts: parts.into(), len, owners: AtomicUsize::new(1), readers: AtomicUsize::new(0) };
        Self(Arc::new(body))
    }

    /// Returns the parts in their order.
    pub(super) fn parts(&self) -> &[Bytes] {
        &self.0.parts
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len
    }

    /// Returns a reader of the bytes from `first` to before `end`.
    pub(super) fn read(&self, first: u64, end: u64) -> SharedReader {
        self.0.readers.fetch_add(1, Ordering::Relaxed);
        let (mut part, mut offset) = (0, first as usize);
        while let Some(bytes) = self.0.parts.get(part).filter(|bytes| bytes.len() <= offset) {
            offset -= bytes.len();
            part += 1;
        }
        SharedReader { body: Arc::clone(&self.0), next: (part, offset), remaining: end - first, charge: None }
    }
}

impl Clone for OwnedBody {
    fn clone(&self) -> Self {
        self.0.owners.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for OwnedBody {
    fn drop(&mut self) {
        self.0.owners.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedReader {
    /// Charges the reader's part of the body to the connection of its client.
    pub(super) fn charge(&mut self, memory: &Rc<ConnectionMemory>) {
        self.charge = Some(SharedCharge::new(memory, Arc::clone(&self.body)));
    }

    /// Returns the number of bytes that are left.
    pub(super) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the next bytes; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let (part, offset) = self.next;
        let bytes = self.body.parts.get(part).filter(|_| self.remaining > 0)?;
        let end = bytes.len().min(offset + usize::try_from(self.remaining).unwrap_or(usize::MAX));
        self.remaining -= (end - offset) as u64;
        self.next = (part + 1, 0);
        Some(bytes.slice(offset..end))
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        self.body.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body(lengths: &[usize]) -> OwnedBody {
        let mut next = 0_u8..;
        let mut part = |&length: &usize| next.by_ref().take(length).collect();
        OwnedBody::new(lengths.iter().map(&mut part).collect())
    }

    proptest! {
        /// Whoever comes and goes: a body is charged to nobody while it is stored, and once, to all of its readers together,
        /// afterwards.
        #[test]
        fn body_is_charged_once(steps in prop::collection::vec(0..4_u8, 0..40)) {
            let memory = Rc::<ConnectionMemory>::default();
            let base = memory.total();
            let stored = body(&[100, 20]);
            let new_reader = |owner: &OwnedBody| {
                let mut reader = owner.read(0, 120);
                reader.charge(&memory);
                reader
            };
            let mut readers = vec![new_reader(&stored)];
            let mut owners = vec![stored];
            for step in steps {
                match step {
                    0 => readers.extend(owners.first().map(&new_reader)),
                    1 if readers.len() > 1 => drop(readers.pop()),
                    2 if !owners.is_empty() => owners.push(owners[0].clone()),
                    3 => drop(owners.pop()),
                    _ => {}
                }
                let charged = (memory.total() - base) as usize;
                match owners.is_empty() {
                    false => prop_assert_eq!(charged, 0),
                    true => prop_assert!((120..120 + readers.len()).contains(&charged), "{} bytes", charged),
                }
            }
        }

        #[test]
        fn any_range_is_read_part_by_part(lengths in prop::collection::vec(1..9_usize, 1..6), a in 0..48_usize, b in 0..48_usize) {
            let body = body(&lengths);
            let (a, b) = (a.min(body.len()), b.min(body.len()));
            let (first, end) = (a.min(b), a.max(b));
            let mut reader = body.read(first as u64, end as u64);
            let mut read = Vec::new();
            while let Some(part) = reader.next() {
                prop_assert!(!part.is_empty());
                read.extend_from_slice(&part);
                prop_assert_eq!(reader.remaining(), (end - first - read.len()) as u64);
            }
            prop_assert_eq!(read, body.parts().concat()[first..end].to_vec());
        }
    }
}
