//! The access log: workers fill buffers, one thread writes them, and no request ever waits for the disk.

use super::log_writer::{LogWriter, OpenSink, WriterCommand};
use parking_lot::Mutex;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::Thread;
use std::time::Duration;

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output, for whoever collects it there.
    Stdout,
    /// A file, appended to. It is made, with its directories, where it is missing: readable by owner and group.
    File(PathBuf),
}

/// The access log of the process.
pub struct AccessLog {
    orders: SyncSender<WriterCommand>,
    shared: Arc<LogShared>,
    writer: Thread,
    finished: Mutex<Receiver<()>>,
}

/// One worker's end of the access log: a buffer that is handed over when it is full enough.
pub struct LogBuffer {
    lines: Lines,
    orders: SyncSender<WriterCommand>,
    shared: Arc<LogShared>,
}

/// Lines on their way to the writer.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

/// What the workers and the writer have in common.
#[derive(Default)]
pub(super) struct LogShared {
    /// Lines that were thrown away because the writer could not keep up.
    pub(super) dropped: AtomicU64,
    /// Somebody has moved the file away.
    pub(super) reopen: AtomicBool,
    /// The process is going; nothing is waited for any longer.
    pub(super) closing: AtomicBool,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl AccessLog {
    /// Opens the log and starts its thread; fails where the file cannot be opened now.
    pub fn start(target: LogTarget) -> io::Result<Self> {
        match target {
            LogTarget::Stdout => Self::start_with(|| Ok(Box::new(io::stdout()))),
            LogTarget::File(path) => Self::start_with(move || open(&path)),
        }
    }

    /// The same over anything that can be opened, and opened again.
    pub fn start_with(open: impl OpenSink) -> io::Result<Self> {
        let (orders, inbox) = mpsc::sync_channel(QUEUE_LENGTH);
        let (done, finished) = mpsc::channel();
        let shared = Arc::new(LogShared::default());
        let writer = LogWriter::new(open, inbox, Arc::clone(&shared))?;
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || {
            writer.run();
            drop(done);
        })?;
        Ok(Self { orders, shared, writer: thread.thread().clone(), finished: Mutex::new(finished) })
    }

    /// A worker's end.
    pub fn buffer(&self) -> LogBuffer {
        LogBuffer { lines: Lines::default(), orders: self.orders.clone(), shared: Arc::clone(&self.shared) }
    }

    /// Lines that were thrown away so far.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Opens the file again, after somebody has moved it away (SIGUSR1).
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Writes all that was handed over and ends the thread. False when it took longer than `patience`.
    pub fn close(&self, patience: Duration) -> bool {
        self.shared.closing.store(true, Ordering::Release);
        self.wake();
        matches!(self.finished.lock().recv_timeout(patience), Err(mpsc::RecvTimeoutError::Disconnected))
    }

    /// The writer waits for an order or, while the disk is full, for the next try. An inbox without room needs no
    /// further order.
    fn wake(&self) {
        let _ = self.orders.try_send(WriterCommand::Wake);
        self.writer.unpark();
    }
}

impl LogBuffer {
    /// The buffer to append a line to; [`LogBuffer::appended`] follows.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.lines.bytes
    }

    /// Counts the line; hands the buffer over once it is full enough.
    pub(super) fn appended(&mut self) {
        self.lines.count += 1;
        if self.lines.bytes.len() >= HAND_OVER_BYTES {
            self.flush();
        }
    }

    /// Hands over what there is. Never waits: where there is no room, the lines are dropped and counted.
    pub fn flush(&mut self) {
        if self.lines.count == 0 {
            return;
        }
        let empty = Lines { bytes: self.shared.spare_buffer(), count: 0 };
        let full = std::mem::replace(&mut self.lines, empty);
        if let Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) =
            self.orders.try_send(WriterCommand::Write(full))
            && let WriterCommand::Write(lines) = order
        {
            self.shared.drop_lines(lines.count);
            self.shared.return_buffer(lines.bytes);
        }
    }
}

impl LogShared {
    pub(super) fn drop_lines(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn return_buffer(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spare = self.spare.lock();
        if spare.len() < QUEUE_LENGTH && buffer.capacity() <= 4 * HAND_OVER_BYTES {
            spare.push(buffer);
        }
    }

    fn spare_buffer(&self) -> Vec<u8> {
        self.spare.lock().pop().unwrap_or_else(|| Vec::with_capacity(HAND_OVER_BYTES + LINE_BYTES))
    }
}

fn open(path: &Path) -> io::Result<Box<dyn io::Write + Send>> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    }
    Ok(Box::new(OpenOptions::new().append(true).create(true).mode(0o640).open(path)?))
}

/// A buffer goes to the writer from this size on, or at the next tick: about four hundred lines. Waking the writer
/// costs more than a dozen of them.
pub(super) const HAND_OVER_BYTES: usize = 256 * 1024;

/// Room for the line that goes over the size.
const LINE_BYTES: usize = 4 * 1024;

/// Buffers that may wait for the writer: 8 MiB, the better part of a second of a busy gate.
pub(super) const QUEUE_LENGTH: usize = 32;

#[cfg(test)]
mod tests;
