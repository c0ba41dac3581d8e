//! Logs that are read twice: first for what is in them, then to try on them what is proposed.

use crate::replay::log::{LogFiles, LogReadError, LogSource};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Some logs.
pub struct Logs(Vec<Log>);

enum Log {
    /// It can be opened again.
    File(PathBuf),
    /// It comes only once, and is kept.
    Buffered { name: String, text: Arc<[u8]> },
}

/// Why logs cannot be read twice.
#[derive(Debug, thiserror::Error)]
pub enum LogBufferError {
    /// One cannot be read.
    #[error(transparent)]
    Unreadable(#[from] LogReadError),
    /// One that comes only once does not fit in memory.
    #[error("{name}: has more than 1 GiB and can be read only once; give the name of a file, or fewer days")]
    TooLong {
        /// What it is called.
        name: String,
    },
}

impl Logs {
    /// The files at these paths. What comes only once, as standard input does, is read now.
    pub fn of(paths: &[PathBuf]) -> Result<Self, LogBufferError> {
        let log = |path: &PathBuf| match path.is_file() && path != Path::new("-") {
            true => Ok(Log::File(path.clone())),
            false => buffered(path),
        };
        paths.iter().map(log).collect::<Result<_, _>>().map(Self)
    }

    /// One that is this text.
    pub fn buffered(name: String, text: Vec<u8>) -> Self {
        Self(vec![Log::Buffered { name, text: text.into() }])
    }

    /// What they are called.
    pub fn names(&self) -> Vec<String> {
        let name = |log: &Log| match log {
            Log::File(path) => path.display().to_string(),
            Log::Buffered { name, .. } => name.clone(),
        };
        self.0.iter().map(name).collect()
    }

    /// Their lines, from the beginning.
    pub(super) fn open(&self) -> Result<Vec<LogSource>, LogReadError> {
        let source = |log: &Log| match log {
            Log::File(path) => Ok(LogFiles::open(std::slice::from_ref(path))?.sources),
            Log::Buffered { name, text } => {
                Ok(vec![LogSource::new(name.clone(), Box::new(Cursor::new(Arc::clone(text))))])
            }
        };
        let sources: Result<Vec<Vec<LogSource>>, LogReadError> = self.0.iter().map(source).collect();
        Ok(sources?.into_iter().flatten().collect())
    }
}

fn buffered(path: &PathBuf) -> Result<Log, LogBufferError> {
    let mut text = Vec::new();
    let name = path.display().to_string();
    for source in LogFiles::open(std::slice::from_ref(path))?.sources {
        text = source.into_text(MAX_BUFFERED_BYTES)?.ok_or_else(|| LogBufferError::TooLong { name: name.clone() })?;
    }
    Ok(Log::Buffered { name, text: text.into() })
}

/// As much as `tune` keeps of a log.
const MAX_BUFFERED_BYTES: u64 = 1 << 30;
