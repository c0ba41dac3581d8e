//! Bodies of the gateway's own error responses.

use crate::SettingPath;
use std::fmt;
use std::path::PathBuf;

/// A body of error responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Statuses of the responses.
    pub status: ErrorStatus,
    /// Body of the responses.
    pub body: ErrorBody,
    /// Path of the key.
    pub path: SettingPath,
}

/// Body of error responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// HTML in a file, for clients that accept HTML.
    Html(PathBuf),
    /// JSON, for all other clients.
    Json(ErrorJson),
}

/// JSON of error responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorJson {
    /// Problem document (RFC 9457).
    Problem,
    /// Error of OpenAI's API.
    OpenAi,
    /// Error of Anthropic's API.
    Anthropic,
    /// Document in a file.
    File(PathBuf),
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

impl fmt::Display for ErrorPage {
    /// Writes statuses and body in words: `429 in pages/busy.html`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ", self.status)?;
        match &self.body {
            ErrorBody::Html(file) | ErrorBody::Json(ErrorJson::File(file)) => write!(out, "in {}", file.display()),
            ErrorBody::Json(ErrorJson::Problem) => out.write_str("as problem+json"),
            ErrorBody::Json(ErrorJson::OpenAi) => out.write_str("as an error of OpenAI's API"),
            ErrorBody::Json(ErrorJson::Anthropic) => out.write_str("as an error of Anthropic's API"),
        }
    }
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
