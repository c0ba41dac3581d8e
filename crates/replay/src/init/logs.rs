//! Logs that are read twice: first for the analysis, then for the dry run.

use crate::log::{LogFiles, LogOptions, LogReadError, LogSource};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Input logs of `init`.
pub struct Logs {
    inputs: Vec<LogInput>,
    options: LogOptions,
}

enum LogInput {
    /// A file that can be opened again.
    File(PathBuf),
    /// Content of a stream, buffered because it can be read only once.
    Buffered { name: String, text: Arc<[u8]> },
}

/// Error while opening or buffering logs.
#[derive(Debug, thiserror::Error)]
pub enum LogBufferError {
    /// A log is unreadable.
    #[error(transparent)]
    Unreadable(#[from] LogReadError),
    /// A stream exceeds the buffer size.
    #[error("{name}: exceeds 1 GiB and can be read only once; use a file, or fewer days")]
    TooLong {
        /// Name of the log.
        name: String,
    },
}

impl Logs {
    /// Opens the logs at `paths`. Streams, such as standard input, are buffered now.
    pub fn from_paths(paths: &[PathBuf], options: &LogOptions) -> Result<Self, LogBufferError> {
        let log = |path: &PathBuf| match path.is_file() && path != Path::new("-") {
            true => Ok(LogInput::File(path.clone())),
            false => read_to_buffer(path),
        };
        let inputs = paths.iter().map(log).collect::<Result<_, _>>()?;
        Ok(Self { inputs, options: options.clone() })
    }

    /// Creates a log with the content `text`.
    pub fn from_text(name: String, text: Vec<u8>) -> Self {
        let inputs = vec![LogInput::Buffered { name, text: text.into() }];
        Self { inputs, options: LogOptions::default() }
    }

    /// Returns the names of the logs.
    pub fn names(&self) -> Vec<String> {
        let name = |log: &LogInput| match log {
            LogInput::File(path) => path.display().to_string(),
            LogInput::Buffered { name, .. } => name.clone(),
        };
        self.inputs.iter().map(name).collect()
    }

    /// Opens all logs from the beginning.
    pub(super) fn open(&self) -> Result<Vec<LogSource>, LogReadError> {
        let source = |log: &LogInput| match log {
            LogInput::File(path) => Ok(LogFiles::open(std::slice::from_ref(path))?.sources),
            LogInput::Buffered { name, text } => {
                Ok(vec![LogSource::new(name.clone(), Box::new(Cursor::new(Arc::clone(text))))])
            }
        };
        let sources: Result<Vec<Vec<LogSource>>, LogReadError> = self.inputs.iter().map(source).collect();
        Ok(sources?.into_iter().flatten().map(|source| source.with_options(&self.options)).collect())
    }
}

fn read_to_buffer(path: &PathBuf) -> Result<LogInput, LogBufferError> {
    let mut text = Vec::new();
    let name = path.display().to_string();
    for source in LogFiles::open(std::slice::from_ref(path))?.sources {
        text = source.into_text(MAX_BUFFERED_BYTES)?.ok_or_else(|| LogBufferError::TooLong { name: name.clone() })?;
    }
    Ok(LogInput::Buffered { name, text: text.into() })
}

/// Maximum size of a buffered log, in bytes; the same as of `tune`.
const MAX_BUFFERED_BYTES: u64 = 1 << 30;
