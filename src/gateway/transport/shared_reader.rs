//! Sends a range of a body that others share.

use super::connection_memory::{ConnectionMemory, MemoryCharge, SharedCharge};
use super::shared_body::{OwnedBody, SharedBody, SharedContent};
use super::spool::READ_LENGTH;
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate_policy::identity::ClientKey;
use tokio::task::JoinHandle;

/// Most bytes of a file that are in memory for a reader: a part is read while another is written.
const MAX_READ_MEMORY: usize = 2 * READ_LENGTH as usize;

/// A range of a body on its way to a client.
pub(in crate::gateway) struct SharedReader {
    body: Arc<SharedBody>,
    /// Number of the next part in memory, and the bytes of it that were read.
    next: (usize, usize),
    position: u64,
    end: u64,
    charge: Option<SharedCharge>,
    /// Charge for what was read from a file.
    read_charge: Option<MemoryCharge>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl SharedReader {
    /// Returns a reader of the bytes from `first` to before `end`.
    pub(in crate::gateway) fn new(stored: &OwnedBody, first: u64, end: u64) -> Self {
        let (mut part, mut offset) = (0, first as usize);
        while let Some(bytes) = stored.parts().get(part).filter(|bytes| bytes.len() <= offset) {
            offset -= bytes.len();
            part += 1;
        }
        let body = stored.share();
        body.add_reader();
        Self { body, next: (part, offset), position: first, end, charge: None, read_charge: None, reading: None }
    }

    /// Charges the reader's part of the body to the connection of `client`.
    pub(in crate::gateway) fn charge(&mut self, memory: &Rc<ConnectionMemory>, client: ClientKey) {
        self.charge = Some(SharedCharge::new(memory, Arc::clone(&self.body), client));
    }

    /// Returns the number of bytes that are left.
    pub(in crate::gateway) fn remaining(&self) -> u64 {
        self.end - self.position
    }

    /// Polls for the next bytes; `None` at the end.
    pub(in crate::gateway) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.remaining() == 0 {
            return Poll::Ready(None);
        }
        let body = Arc::clone(&self.body);
        let reading = match &mut self.reading {
            Some(reading) => reading,
            None => match &*body.content() {
                SharedContent::Memory(parts) => return Poll::Ready(self.take_part(parts).map(Ok)),
                SharedContent::File(file) => {
                    let memory = self.charge.as_ref().map(SharedCharge::memory);
                    self.read_charge = memory.map(|memory| MemoryCharge::new(memory, MAX_READ_MEMORY));
                    self.reading.insert(file.start_read(self.position, self.end))
                }
            },
        };
        let part = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten();
        self.reading = None;
        self.position += part.as_ref().map_or(0, |part| part.len() as u64);
        Poll::Ready(Some(part))
    }

    fn take_part(&mut self, parts: &[Bytes]) -> Option<Bytes> {
        let (part, offset) = self.next;
        let bytes = parts.get(part)?;
        let end = bytes.len().min(offset + usize::try_from(self.remaining()).unwrap_or(usize::MAX));
        self.position += (end - offset) as u64;
        self.next = (part + 1, 0);
        Some(bytes.slice(offset..end))
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        self.body.remove_reader();
    }
}

#[cfg(test)]
mod tests {
    use super::super::spool::{SpoolFile, SpoolUsage};
    use super::*;
    use proptest::prelude::*;
    use std::future::poll_fn;
    use std::task::Waker;

    const CLIENT: ClientKey = ClientKey::from_u64(1);

    fn body(lengths: &[usize]) -> OwnedBody {
        let mut next = 0_u8..;
        let mut part = |&length: &usize| next.by_ref().take(length).collect();
        OwnedBody::new(lengths.iter().map(&mut part).collect())
    }

    proptest! {
        /// A stored body is not charged. A displaced body is charged once, divided among its readers, in any order in which
        /// owners and readers come and go.
        #[test]
        fn body_is_charged_once(steps in prop::collection::vec(0..4_u8, 0..40)) {
            let memory = Rc::<ConnectionMemory>::default();
            let base = memory.total();
            let stored = body(&[100, 20]);
            let new_reader = |owner: &OwnedBody| {
                let mut reader = SharedReader::new(owner, 0, 120);
                reader.charge(&memory, CLIENT);
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
            let mut reader = SharedReader::new(&body, first as u64, end as u64);
            let mut read = Vec::new();
            while let Poll::Ready(Some(Ok(part))) = reader.poll_next(&mut Context::from_waker(Waker::noop())) {
                prop_assert!(!part.is_empty());
                read.extend_from_slice(&part);
                prop_assert_eq!(reader.remaining(), (end - first - read.len()) as u64);
            }
            prop_assert_eq!(read, body.parts().concat()[first..end].to_vec());
        }
    }

    #[test]
    fn stored_body_is_charged_to_its_readers_together_once_it_is_displaced() {
        let connections = [(); 4].map(|()| Rc::<ConnectionMemory>::default());
        let base = connections[0].total();
        let stored = OwnedBody::new(vec![Bytes::from_static(&[0; 1000])]);
        let read = |memory| {
            let mut reader = SharedReader::new(&stored, 0, 1000);
            reader.charge(memory, CLIENT);
            reader
        };
        let mut readers: Vec<_> = connections.iter().map(read).collect();
        let charged = || connections.each_ref().map(|memory| memory.total() - base);
        assert_eq!(charged(), [0; 4]);
        drop(stored);
        assert_eq!(charged(), [250; 4]);
        readers.truncate(1);
        assert_eq!(charged(), [1000, 0, 0, 0]);
        drop(readers);
        assert_eq!(charged(), [0; 4]);
    }

    async fn next(reader: &mut SharedReader) -> Vec<u8> {
        poll_fn(|context| reader.poll_next(context)).await.expect("a part").expect("no error").to_vec()
    }

    #[tokio::test]
    async fn displaced_body_moves_into_a_file_and_its_readers_go_on() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (memory, usage) = (Rc::<ConnectionMemory>::default(), Arc::<SpoolUsage>::default());
        let base = memory.total();
        let stored = body(&[100, 20, 30]);
        let whole = stored.parts().concat();
        let (mut reader, mut late) = (SharedReader::new(&stored, 10, 150), SharedReader::new(&stored, 5, 60));
        reader.charge(&memory, CLIENT);
        late.charge(&memory, CLIENT);
        assert_eq!(next(&mut reader).await, whole[10..100]);
        let displaced = || memory.begin_moves().into_iter().map(|(body, _)| body).collect::<Vec<_>>();
        assert!(displaced().is_empty(), "the body is stored");
        drop(stored);
        assert!((150..152).contains(&(memory.total() - base)));
        let bodies = displaced();
        assert_eq!(bodies.len(), 1, "two readers have the same body");
        for body in bodies {
            let file = SpoolFile::create(dir.path(), CLIENT, &usage).expect("file");
            body.move_to(file, 1000).expect("there is space");
        }
        while memory.total() > base {
            tokio::task::yield_now().await;
        }
        assert_eq!(next(&mut reader).await, whole[100..150]);
        assert!(memory.total() > base, "what was read is in memory");
        assert_eq!(next(&mut late).await, whole[5..60]);
        drop((reader, late));
        assert_eq!(memory.total(), base);
        assert!(usage.is_empty(), "the file is gone with its last reader");
    }
}
