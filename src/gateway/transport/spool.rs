//! Bodies that are too large for memory, in unnamed files of the state directory. The kernel removes them with the
//! process, so that nothing is left after a crash.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate_policy::identity::ClientKey;
use tokio::task::{JoinHandle, spawn_blocking};

/// Part of all files that those of one client may be, as a divisor.
const CLIENT_PART: u64 = 4;
/// Maximum number of files of one client. Each needs a descriptor.
const MAX_CLIENT_FILES: usize = 256;
/// Length of the parts in which a file is read.
pub(in crate::gateway) const READ_LENGTH: u64 = 64 * 1024;

/// Bytes in files, of all clients and of each one, and the number of its files.
#[derive(Default)]
pub(in crate::gateway) struct SpoolUsage(Mutex<Usage>);

#[derive(Default)]
struct Usage {
    total: u64,
    by_client: HashMap<ClientKey, ClientFiles>,
}

#[derive(Default)]
struct ClientFiles {
    bytes: u64,
    count: usize,
}

/// A body in a file. It can be read while it is written.
pub(in crate::gateway) struct SpoolFile {
    file: Arc<File>,
    client: ClientKey,
    usage: Arc<SpoolUsage>,
    reserved: u64,
    written: u64,
    read: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

/// A part of a body that is being written.
pub(in crate::gateway) struct SpoolWrite(JoinHandle<io::Result<u64>>);

/// Error of a body that cannot be written.
#[derive(Debug, thiserror::Error)]
pub(in crate::gateway) enum SpoolError {
    /// The files would exceed `limits.buffer_disk`, or those of the client a quarter of it.
    #[error("limits.buffer_disk is reached")]
    Full,
    /// The client has [`MAX_CLIENT_FILES`].
    #[error("a client has {MAX_CLIENT_FILES} files")]
    TooManyFiles,
    /// The file failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SpoolUsage {
    /// Reserves `bytes`, if all files then have at most `limit` bytes, and those of the client a quarter of it.
    fn reserve(&self, client: ClientKey, bytes: u64, limit: u64) -> bool {
        let mut usage = self.0.lock();
        let Usage { total, by_client } = &mut *usage;
        let of_client = by_client.entry(client).or_default();
        let fits = total.saturating_add(bytes) <= limit && of_client.bytes.saturating_add(bytes) <= limit / CLIENT_PART;
        if fits {
            *total += bytes;
            of_client.bytes += bytes;
        }
        fits
    }

    /// Counts a file, unless the client has as many as it may have.
    fn add_file(&self, client: ClientKey) -> bool {
        let mut usage = self.0.lock();
        let of_client = usage.by_client.entry(client).or_default();
        let fits = of_client.count < MAX_CLIENT_FILES;
        of_client.count += usize::from(fits);
        fits
    }

    #[cfg(test)]
    pub(in crate::gateway) fn is_empty(&self) -> bool {
        self.0.lock().by_client.is_empty()
    }

    /// Releases a file with its bytes.
    fn release(&self, client: ClientKey, bytes: u64) {
        let mut usage = self.0.lock();
        usage.total -= bytes;
        if let Some(of_client) = usage.by_client.get_mut(&client) {
            of_client.bytes -= bytes;
            of_client.count -= 1;
            if of_client.count == 0 {
                usage.by_client.remove(&client);
            }
        }
    }
}

impl SpoolFile {
    /// Creates an empty file in `dir` for a body of `client`.
    pub(in crate::gateway) fn create(
        dir: &Path,
        client: ClientKey,
        usage: &Arc<SpoolUsage>,
    ) -> Result<Self, SpoolError> {
        if !usage.add_file(client) {
            return Err(SpoolError::TooManyFiles);
        }
        match tempfile::tempfile_in(dir) {
            Ok(file) => {
                let (file, usage) = (Arc::new(file), Arc::clone(usage));
                Ok(Self { file, client, usage, reserved: 0, written: 0, read: 0, reading: None })
            }
            Err(error) => {
                usage.release(client, 0);
                Err(error.into())
            }
        }
    }

    /// Starts to append `data`, within `limit` bytes of all files. One write at a time; await it, then call
    /// [`Self::finish_write`].
    pub(in crate::gateway) fn start_write(&mut self, data: Bytes, limit: u64) -> Result<SpoolWrite, SpoolError> {
        let length = data.len() as u64;
        if !self.usage.reserve(self.client, length, limit) {
            return Err(SpoolError::Full);
        }
        self.reserved += length;
        let (file, position) = (Arc::clone(&self.file), self.written);
        Ok(SpoolWrite(spawn_blocking(move || file.write_all_at(&data, position).map(|()| length))))
    }

    /// Starts to write `parts` into the empty file, within `limit` bytes of all files. `then` gets the file, unless it
    /// fails.
    pub(in crate::gateway) fn fill(
        mut self,
        parts: Arc<[Bytes]>,
        limit: u64,
        then: impl FnOnce(Self) + Send + 'static,
    ) -> Result<(), SpoolError> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        if !self.usage.reserve(self.client, length, limit) {
            return Err(SpoolError::Full);
        }
        self.reserved += length;
        spawn_blocking(move || {
            let written = parts.iter().try_for_each(|part| (&*self.file).write_all(part));
            if written.is_ok() {
                self.written = length;
                then(self);
            }
        });
        Ok(())
    }

    /// Starts to read the part at `position`, which ends before `end`. Fails if the file is shorter.
    pub(in crate::gateway) fn start_read(&self, position: u64, end: u64) -> JoinHandle<io::Result<Bytes>> {
        let file = Arc::clone(&self.file);
        let length = READ_LENGTH.min(end - position) as usize;
        spawn_blocking(move || {
            let mut part = vec![0; length];
            file.read_exact_at(&mut part, position)?;
            Ok(part.into())
        })
    }

    /// Makes `length` written bytes available to the reader.
    pub(in crate::gateway) fn finish_write(&mut self, length: u64) {
        self.written += length;
    }

    /// Appends `data`, within `limit` bytes of all files.
    pub(in crate::gateway) async fn append(&mut self, data: Bytes, limit: u64) -> Result<(), SpoolError> {
        let length = self.start_write(data, limit)?.await?;
        self.finish_write(length);
        Ok(())
    }

    /// Returns the number of bytes that are written and not yet read.
    pub(in crate::gateway) fn unread(&self) -> u64 {
        self.written - self.read
    }

    /// Reads the next part of the unread bytes. Fails if the file is shorter than what was written.
    pub(in crate::gateway) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let reading = match &mut self.reading {
            Some(reading) => reading,
            None => {
                let reading = self.start_read(self.read, self.written);
                self.reading.insert(reading)
            }
        };
        let part = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten();
        self.reading = None;
        let part = part?;
        self.read += part.len() as u64;
        Poll::Ready(Ok(part))
    }
}

impl Future for SpoolWrite {
    type Output = io::Result<u64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.0).poll(cx).map(|written| written.map_err(io::Error::other).flatten())
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.usage.release(self.client, self.reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const FIRST: ClientKey = ClientKey::from_u64(1);
    const SECOND: ClientKey = ClientKey::from_u64(2);

    async fn read(file: &mut SpoolFile) -> Vec<u8> {
        let mut read = Vec::new();
        while file.unread() > 0 {
            read.extend_from_slice(&poll_fn(|context| file.poll_read(context)).await.expect("the file has the rest"));
        }
        read
    }

    #[tokio::test]
    async fn file_is_read_while_it_is_written_and_leaves_nothing() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let usage = Arc::<SpoolUsage>::default();
        let mut file = SpoolFile::create(dir.path(), FIRST, &usage).expect("a file");
        let written: Vec<u8> = (0..200_000u32).map(|number| number as u8).collect();
        let mut received = Vec::new();
        for part in written.chunks(77_777) {
            file.append(Bytes::copy_from_slice(part), 1 << 20).await.expect("space is left");
            received.extend(read(&mut file).await);
        }
        assert!(received == written);
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "the file has no name");
        drop(file);
        let usage = usage.0.lock();
        assert_eq!((usage.total, usage.by_client.len()), (0, 0));
    }

    #[tokio::test]
    async fn files_share_their_limit_and_one_client_has_a_quarter() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let usage = Arc::<SpoolUsage>::default();
        let create = |client| SpoolFile::create(dir.path(), client, &usage).expect("a file");
        let part = |length: usize| Bytes::from(vec![0; length]);
        let mut first = create(FIRST);
        first.append(part(20), 100).await.expect("space is left");
        let mut again = create(FIRST);
        assert!(matches!(again.append(part(6), 100).await, Err(SpoolError::Full)), "the files of a client add up");
        again.append(part(5), 100).await.expect("space is left");
        let mut second = create(SECOND);
        second.append(part(20), 100).await.expect("another client has its own quarter");
        assert!(matches!(second.append(part(1), 45).await, Err(SpoolError::Full)), "all files add up");
        drop(first);
        again.append(part(20), 100).await.expect("the space of the first file is free");
    }

    #[test]
    fn number_of_files_of_one_client_is_bounded() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let usage = Arc::<SpoolUsage>::default();
        let create = |client| SpoolFile::create(dir.path(), client, &usage);
        let files: Vec<SpoolFile> = (0..MAX_CLIENT_FILES).map(|_| create(FIRST).expect("a file")).collect();
        assert!(matches!(create(FIRST), Err(SpoolError::TooManyFiles)) && create(SECOND).is_ok());
        drop(files);
        assert!(create(FIRST).is_ok());
        assert!(matches!(SpoolFile::create(&dir.path().join("gone"), FIRST, &usage), Err(SpoolError::Io(_))));
        assert_eq!(usage.0.lock().by_client.len(), 0);
    }
}
