//! The thread that writes the access log, through full disks and moved files.

use super::access_log::{Lines, LogShared};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// Opens what is written to; called again when the file has been moved away.
pub trait OpenSink: FnMut() -> io::Result<Box<dyn Write + Send>> + Send + 'static {}

impl<T: FnMut() -> io::Result<Box<dyn Write + Send>> + Send + 'static> OpenSink for T {}

/// What the writer is asked to do.
pub(super) enum WriterCommand {
    /// Write these.
    Write(Lines),
    /// See whether the file is to be reopened or the log to be closed.
    Wake,
}

/// Writes buffer after buffer, each to its last byte, so that no line is ever torn.
pub(super) struct LogWriter<O> {
    open: O,
    sink: Box<dyn Write + Send>,
    inbox: Receiver<WriterCommand>,
    shared: Arc<LogShared>,
    failing: bool,
}

impl<O: OpenSink> LogWriter<O> {
    pub(super) fn new(mut open: O, inbox: Receiver<WriterCommand>, shared: Arc<LogShared>) -> io::Result<Self> {
        let sink = open()?;
        Ok(Self { open, sink, inbox, shared, failing: false })
    }

    /// Works until the log is closed and empty, or everybody who could write to it is gone.
    pub(super) fn run(mut self) {
        while let Some(order) = self.next() {
            self.reopen_if_asked();
            if let WriterCommand::Write(lines) = order {
                self.write(lines);
            }
        }
        let _ = self.sink.flush();
    }

    fn next(&self) -> Option<WriterCommand> {
        match self.shared.closing.load(Ordering::Acquire) {
            true => self.inbox.try_recv().ok(),
            false => self.inbox.recv().ok(),
        }
    }

    fn reopen_if_asked(&mut self) {
        if !self.shared.reopen.swap(false, Ordering::AcqRel) {
            return;
        }
        match (self.open)() {
            Ok(sink) => {
                self.sink = sink;
                info!("Access log reopened");
            }
            Err(error) => warn!(%error, "Access log not reopened, the old file is written on: {error}"),
        }
    }

    /// Tries until all is written. While it cannot, workers find the queue full and count what they drop.
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
            if self.failing && self.shared.closing.load(Ordering::Acquire) {
                self.shared.drop_lines(count_lines(rest));
                break;
            }
        }
        let _ = self.sink.flush();
        self.shared.return_buffer(lines.bytes);
    }

    fn back_off(&mut self, error: &io::Error) {
        if !self.failing {
            self.failing = true;
            warn!(%error, "Access log cannot be written, tried again every second: {error}");
        }
        if !self.shared.closing.load(Ordering::Acquire) {
            thread::park_timeout(RETRY_AFTER);
        }
        self.reopen_if_asked();
    }

    fn on_recovered(&mut self) {
        if std::mem::take(&mut self.failing) {
            info!("Access log is written again");
        }
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// How long a full disk is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);
