//! A robots.txt of the operator's own.

use super::LARGEST;
use crate::files;
use bytes::Bytes;
use std::io;
use std::path::Path;

/// Reads it, if it is not too large.
pub fn read(file: &Path) -> io::Result<Bytes> {
    files::read(file, LARGEST).map(Bytes::from)
}
