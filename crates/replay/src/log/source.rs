//! Sources of lines: plain and compressed files, and standard input.

use super::compression::decompress;
use super::{LineError, LogOptions};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opened log files.
pub struct LogFiles {
    /// Sources, in the order of the command line.
    pub sources: Vec<LogSource>,
    /// Total size in bytes; `None` if unknown.
    pub total_bytes: Option<u64>,
    /// Bytes read so far.
    pub bytes_read: Arc<AtomicU64>,
}

/// A stream of lines. Each line is borrowed from the read buffer.
pub struct LogSource {
    /// Name of the source.
    pub name: String,
    /// What is known about its format.
    pub(super) options: LogOptions,
    stream: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Bytes of the block that were read and not returned yet.
    ready: Range<usize>,
    is_eof: bool,
    line_number: u64,
}

/// Error when a file cannot be opened or read to its end.
#[derive(Debug, thiserror::Error)]
#[error("{name}: cannot be read: {source}; expected an access log, plain, or compressed with gzip, zstd or bzip2")]
pub struct LogReadError {
    name: String,
    source: io::Error,
}

impl LogReadError {
    /// Returns the error of a log for which no thread can be started.
    pub(super) fn no_thread(source: &io::Error) -> Self {
        Self { name: "log".to_owned(), source: io::Error::other(format!("no thread can be started: {source}")) }
    }
}

impl LogFiles {
    /// Opens files of any format that is detected; see [`Self::open_with`].
    pub fn open(paths: &[PathBuf]) -> Result<Self, LogReadError> {
        Self::open_with(paths, &LogOptions::default())
    }

    /// Opens files; `-` is standard input. Detects compressed files by their first bytes.
    pub fn open_with(paths: &[PathBuf], options: &LogOptions) -> Result<Self, LogReadError> {
        let bytes_read = Arc::new(AtomicU64::new(0));
        let mut total_bytes = Some(0);
        let mut sources = Vec::new();
        for path in paths {
            let name = path.display().to_string();
            let unreadable = |source| LogReadError { name: name.clone(), source };
            let stream: Box<dyn Read + Send> = match path.as_path() == Path::new("-") {
                true if sources.iter().any(|source: &LogSource| source.name == name) => {
                    return Err(unreadable(io::Error::other("standard input is named twice; it can be read once")));
                }
                true => {
                    total_bytes = None;
                    Box::new(io::stdin())
                }
                false => {
                    let file = File::open(path).map_err(unreadable)?;
                    let metadata = file.metadata().map_err(unreadable)?;
                    if metadata.is_dir() {
                        return Err(unreadable(io::Error::other("is a directory; name its files")));
                    }
                    total_bytes = total_bytes.filter(|_| metadata.is_file()).map(|bytes| bytes + metadata.len());
                    Box::new(file)
                }
            };
            let counted = CountingReader { stream, bytes_read: Arc::clone(&bytes_read) };
            let stream = decompress(counted).map_err(unreadable)?;
            sources.push(LogSource::new(name.clone(), stream).with_options(options));
        }
        Ok(Self { sources, total_bytes, bytes_read })
    }
}

/// UTF-8 byte order mark, which some editors write before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of a source.
pub struct NumberedLine<'a> {
    /// Line number, from 1.
    pub number: u64,
    /// Text without line break.
    pub text: Result<&'a [u8], LineError>,
}

impl LogSource {
    /// Creates a source that reads lines of `stream`.
    pub fn new(name: String, stream: Box<dyn Read + Send>) -> Self {
        let options = LogOptions::default();
        Self { name, options, stream, buffer: vec![0; BUFFER_BYTES], ready: 0..0, is_eof: false, line_number: 0 }
    }

    /// Returns the source with what is known about its format.
    #[must_use]
    pub fn with_options(self, options: &LogOptions) -> Self {
        Self { options: options.clone(), ..self }
    }

    /// Reads the whole source before its first line; returns `None` if it has more than `max_bytes` bytes.
    pub fn into_text(self, max_bytes: u64) -> Result<Option<Vec<u8>>, LogReadError> {
        let mut text = Vec::new();
        let bytes_read = self.stream.take(max_bytes + 1).read_to_end(&mut text);
        let length = bytes_read.map_err(|source| LogReadError { name: self.name, source })?;
        Ok(Some(text).filter(|_| length as u64 <= max_bytes))
    }

    /// Returns the first lines without reading them: those of the first block.
    pub(super) fn first_lines(&mut self) -> Result<impl Iterator<Item = &[u8]>, LogReadError> {
        while !self.is_eof && self.ready.len() < BUFFER_BYTES {
            self.fill()?;
        }
        let block = &self.buffer[self.ready.clone()];
        let block = block.strip_prefix(BYTE_ORDER_MARK).unwrap_or(block);
        let whole = if self.is_eof { block.len() } else { memchr::memrchr(b'\n', block).unwrap_or(0) };
        Ok(block[..whole].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Returns true if the next line, or the end, is known without a read.
    pub(super) fn has_line(&self) -> bool {
        self.is_eof || memchr::memchr(b'\n', &self.buffer[self.ready.clone()]).is_some()
    }

    /// Returns the next line; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<NumberedLine<'_>>, LogReadError> {
        let Some(line) = self.read_line()? else { return Ok(None) };
        self.line_number += 1;
        let text = match line {
            ScannedLine::Line(range) => {
                let text = &self.buffer[range];
                let text =
                    if self.line_number == 1 { text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text) } else { text };
                Ok(text.strip_suffix(b"\r").unwrap_or(text))
            }
            ScannedLine::TooLong => Err(LineError::TooLong),
        };
        Ok(Some(NumberedLine { number: self.line_number, text }))
    }

    fn read_line(&mut self) -> Result<Option<ScannedLine>, LogReadError> {
        let (mut scanned, mut too_long) = (0, false);
        loop {
            let unscanned = self.ready.start + scanned;
            let end = memchr::memchr(b'\n', &self.buffer[unscanned..self.ready.end]).map(|at| unscanned + at);
            if end.is_none() && !self.is_eof {
                scanned = self.ready.len();
                if scanned > MAX_LINE_BYTES {
                    (too_long, scanned, self.ready) = (true, 0, 0..0);
                }
                self.fill()?;
                continue;
            }
            let line = self.ready.start..end.unwrap_or(self.ready.end);
            self.ready.start = end.map_or(self.ready.end, |end| end + 1);
            return Ok(match line.len() {
                _ if too_long => Some(ScannedLine::TooLong),
                0 if end.is_none() => None,
                ..=MAX_LINE_BYTES => Some(ScannedLine::Line(line)),
                _ => Some(ScannedLine::TooLong),
            });
        }
    }

    /// Moves the unread bytes to the front of the block and reads more behind them.
    fn fill(&mut self) -> Result<(), LogReadError> {
        self.buffer.copy_within(self.ready.clone(), 0);
        self.ready = 0..self.ready.len();
        let bytes_read = loop {
            match self.stream.read(&mut self.buffer[self.ready.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|source| LogReadError { name: self.name.clone(), source })?,
            }
        };
        self.is_eof = bytes_read == 0;
        self.ready.end += bytes_read;
        Ok(())
    }
}

enum ScannedLine {
    Line(Range<usize>),
    TooLong,
}

/// Reader that counts the bytes read.
struct CountingReader {
    stream: Box<dyn Read + Send>,
    bytes_read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes_read = self.stream.read(buffer)?;
        self.bytes_read.fetch_add(bytes_read as u64, Ordering::Relaxed);
        Ok(bytes_read)
    }
}

/// Read size: large enough to save system calls, small enough for the CPU caches.
const BUFFER_BYTES: usize = 256 * 1024;

/// No server accepts a request line of this length, or logs more than a few other fields.
const MAX_LINE_BYTES: usize = 64 * 1024;
