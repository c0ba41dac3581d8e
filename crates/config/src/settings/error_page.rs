//! HTML pages of the gateway's own error responses.

use crate::SettingPath;
use std::fmt;
use std::path::PathBuf;

/// A file with the HTML form of error responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Statuses of the responses.
    pub status: ErrorStatus,
    /// Path of the file.
    pub file: PathBuf,
    /// Path of the key.
    pub path: SettingPath,
}

/// Statuses that an error page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorStatus {
    /// One status, of [`Self::SENT`].
    Code(u16),
    /// Statuses from 400 to 499 without a page of their own.
    ClientErrors,
    /// Statuses from 500 to 599 without a page of their own.
    ServerErrors,
}

impl ErrorStatus {
    /// Error statuses of the gateway's own responses to clients.
    pub const SENT: [u16; 15] = [400, 401, 403, 405, 408, 413, 414, 417, 421, 429, 431, 502, 503, 504, 508];
}

impl fmt::Display for ErrorStatus {
    /// Writes the key of the file.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(out, "{code}"),
            Self::ClientErrors => out.write_str("4xx"),
            Self::ServerErrors => out.write_str("5xx"),
        }
    }
}
