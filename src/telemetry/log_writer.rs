//! Writer thread of the access log. It survives full disks and moved files.

use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// Size from which a buffer is handed over before the next tick: about 400 lines. Waking the writer costs more than
/// writing a dozen lines.
pub(super) const FLUSH_THRESHOLD_BYTES: usize = 256 * 1024;

/// Room for the line that exceeds the size.
const LINE_BYTES: usize = 4 * 1024;

/// Number of buffers that may wait for the writer: 8 MiB, most of a second of log of a busy gateway.
pub(super) const QUEUE_LENGTH: usize = 32;

/// Lines on the way to the writer.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

/// State shared by the workers and the writer.
#[derive(Default)]
pub(super) struct LogShared {
    /// Number of lines dropped because the writer could not keep up.
    pub(super) dropped: AtomicU64,
    /// True after the file was moved away, until the writer has reopened it.
    pub(super) reopen: AtomicBool,
    /// True while the process exits. The writer then no longer waits for the disk.
    pub(super) closing: AtomicBool,
    spare_buffers: Mutex<Vec<Vec<u8>>>,
}

/// Opens the sink; called again after the file was moved away.
pub trait OpenSink: FnMut() -> io::Result<Box<dyn Write + Send>> + Send + 'static {}

impl<T: FnMut() -> io::Result<Box<dyn Write + Send>> + Send + 'static> OpenSink for T {}

/// Command for the writer thread.
pub(super) enum WriterCommand {
    /// Writes these lines.
    Write(Lines),
    /// Checks whether to reopen the file or to close the log.
    Wake,
}

/// Writes the buffers one after the other, each to its last byte, so that no line is torn.
pub(super) struct LogWriter<O> {
    open: O,
    /// Name of the sink in messages.
    name: String,
    sink: Box<dyn Write + Send>,
    commands: Receiver<WriterCommand>,
    shared: Arc<LogShared>,
    is_failing: bool,
}

impl LogShared {
    pub(super) fn drop_lines(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn return_buffer(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spare_buffers = self.spare_buffers.lock();
        if spare_buffers.len() < QUEUE_LENGTH && buffer.capacity() <= 4 * FLUSH_THRESHOLD_BYTES {
            spare_buffers.push(buffer);
        }
    }

    pub(super) fn spare_buffer(&self) -> Vec<u8> {
        self.spare_buffers.lock().pop().unwrap_or_else(|| Vec::with_capacity(FLUSH_THRESHOLD_BYTES + LINE_BYTES))
    }
}

impl<O: OpenSink> LogWriter<O> {
    pub(super) fn new(
        name: String,
        mut open: O,
        commands: Receiver<WriterCommand>,
        shared: Arc<LogShared>,
    ) -> io::Result<Self> {
        let sink = open()?;
        Ok(Self { open, name, sink, commands, shared, is_failing: false })
    }

    /// Runs until the log is closed and the queue is empty, or until all senders are gone.
    pub(super) fn run(mut self) {
        while let Some(command) = self.next() {
            self.reopen_if_requested();
            if let WriterCommand::Write(lines) = command {
                self.write(lines);
            }
        }
        let _ = self.sink.flush();
    }

    fn next(&self) -> Option<WriterCommand> {
        match self.shared.closing.load(Ordering::Acquire) {
            true => self.commands.try_recv().ok(),
            false => self.commands.recv().ok(),
        }
    }

    fn reopen_if_requested(&mut self) {
        if !self.shared.reopen.swap(false, Ordering::AcqRel) {
            return;
        }
        match (self.open)() {
            Ok(sink) => {
                self.sink = sink;
                info!("Access log reopened");
            }
            Err(error) => {
                warn!(%error, "Cannot reopen the access log {}, keeping the old file: {error}", self.name);
            }
        }
    }

    /// Retries until all bytes are written. Meanwhile the queue fills up, and the workers drop and count lines.
    fn write(&mut self, lines: Lines) {
        let mut rest = lines.bytes.as_slice();
        while !rest.is_empty() {
            match self.sink.write(rest) {
                Ok(0) => self.back_off(&io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.on_recovered();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.back_off(&error),
            }
            if self.is_failing && self.shared.closing.load(Ordering::Acquire) {
                self.shared.drop_lines(count_lines(rest));
                break;
            }
        }
        let _ = self.sink.flush();
        self.shared.return_buffer(lines.bytes);
    }

    fn back_off(&mut self, error: &io::Error) {
        if !self.is_failing {
            self.is_failing = true;
            warn!(%error, "Access log {} not writable, retrying every second: {error}", self.name);
        }
        if !self.shared.closing.load(Ordering::Acquire) {
            thread::park_timeout(RETRY_INTERVAL);
        }
        self.reopen_if_requested();
    }

    fn on_recovered(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            info!("Access log writable again");
        }
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Interval between attempts while the disk cannot be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
