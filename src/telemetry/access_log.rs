//! Access log of the process. Workers fill buffers and one thread writes them, so that no request waits for the disk.

use super::log_file::LogFile;
use super::log_writer::{FLUSH_THRESHOLD_BYTES, Lines, LogShared, LogWriter, OpenSink, QUEUE_LENGTH, WriterCommand};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::Thread;
use std::time::Duration;
use tidegate_config::settings::{AccessLogFormat, LogRotation};

/// Destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to, its rotation, and the format of its lines. The file and its directories are created if missing, readable by owner and
    /// group.
    File(PathBuf, Option<LogRotation>, AccessLogFormat),
}

/// Handle of the access log and its writer thread.
pub struct AccessLog {
    commands: SyncSender<WriterCommand>,
    shared: Arc<LogShared>,
    writer: Thread,
    finished: Mutex<Receiver<()>>,
    format: AccessLogFormat,
}

/// Buffer of one worker. It is handed to the writer once it holds [`FLUSH_THRESHOLD_BYTES`].
pub struct LogBuffer {
    lines: Lines,
    commands: SyncSender<WriterCommand>,
    shared: Arc<LogShared>,
    /// Format of the lines.
    pub(super) format: AccessLogFormat,
}

impl AccessLog {
    /// Opens the log and starts its thread. Returns an error if the file cannot be opened.
    pub fn start(target: LogTarget) -> io::Result<Self> {
        match target {
            LogTarget::Stdout => Self::start_with("on standard output", || Ok(Box::new(io::stdout()))),
            LogTarget::File(path, rotation, format) => {
                let name = path.display().to_string();
                let log = Self::start_with(name, move || Ok(Box::new(LogFile::open(&path, rotation)?)))?;
                Ok(Self { format, ..log })
            }
        }
    }

    /// Like [`Self::start`], for any sink that can be opened repeatedly. Messages name it.
    pub fn start_with(name: impl Into<String>, open: impl OpenSink) -> io::Result<Self> {
        let (commands, inbox) = mpsc::sync_channel(QUEUE_LENGTH);
        let (done, finished) = mpsc::channel();
        let shared = Arc::new(LogShared::default());
        let writer = LogWriter::new(name.into(), open, inbox, Arc::clone(&shared))?;
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || {
            writer.run();
            drop(done);
        })?;
        Ok(Self {
            commands,
            shared,
            writer: thread.thread().clone(),
            finished: Mutex::new(finished),
            format: AccessLogFormat::Json,
        })
    }

    /// Returns a new buffer for a worker.
    pub fn buffer(&self) -> LogBuffer {
        LogBuffer {
            lines: Lines::default(),
            commands: self.commands.clone(),
            shared: Arc::clone(&self.shared),
            format: self.format,
        }
    }

    /// Returns the number of lines dropped so far.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Opens the file again after it was moved away (SIGUSR1).
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Writes all lines handed over and ends the thread. Returns false if that took longer than `timeout`.
    pub fn close(&self, timeout: Duration) -> bool {
        self.shared.closing.store(true, Ordering::Release);
        self.wake();
        matches!(self.finished.lock().recv_timeout(timeout), Err(mpsc::RecvTimeoutError::Disconnected))
    }

    /// Wakes the writer, which waits for a command or, while the disk is full, for the next retry. A full inbox needs
    /// no further command.
    fn wake(&self) {
        let _ = self.commands.try_send(WriterCommand::Wake);
        self.writer.unpark();
    }
}

impl LogBuffer {
    /// Returns the buffer for the next line. The caller then calls [`LogBuffer::end_line`].
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.lines.bytes
    }

    /// Counts the appended line; hands the buffer over once it is large enough.
    pub(super) fn end_line(&mut self) {
        self.lines.count += 1;
        if self.lines.bytes.len() >= FLUSH_THRESHOLD_BYTES {
            self.flush();
        }
    }

    /// Hands over the buffered lines. Never waits: if the queue is full, the lines are dropped and counted.
    pub fn flush(&mut self) {
        if self.lines.count == 0 {
            return;
        }
        let empty = Lines { bytes: self.shared.spare_buffer(), count: 0 };
        let full = std::mem::replace(&mut self.lines, empty);
        if let Err(TrySendError::Full(command) | TrySendError::Disconnected(command)) =
            self.commands.try_send(WriterCommand::Write(full))
            && let WriterCommand::Write(lines) = command
        {
            self.shared.drop_lines(lines.count);
            self.shared.return_buffer(lines.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
