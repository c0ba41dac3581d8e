//! A robots.txt of the operator's own.

use super::LARGEST;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads it, if it is not too large.
pub fn read(file: &Path) -> io::Result<Bytes> {
    let mut text = Vec::new();
    // Anything else that can be opened might never begin.
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    File::open(file)?.take(LARGEST as u64 + 1).read_to_end(&mut text)?;
    if text.len() > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 512 KiB"));
    }
    Ok(text.into())
}
