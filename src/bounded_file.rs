//! Files that the operator of the site names, and may replace while the gate runs.

use std::fs::{File, metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a regular file of at most `most_bytes`. Anything else that can be opened might never begin, or never end.
pub fn read(path: &Path, most_bytes: usize) -> Result<Vec<u8>> {
    if !metadata(path).map_err(|error| with_resolved_path(path, error))?.is_file() {
        return Err(Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    File::open(path)?.take(most_bytes as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > most_bytes {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("it is larger than {} KiB", most_bytes / 1024))),
        false => Ok(bytes),
    }
}

/// The same error, with where a path was looked for that goes by the folder in which the gate was started.
fn with_resolved_path(path: &Path, error: Error) -> Error {
    match std::path::absolute(path) {
        Ok(absolute) if path.is_relative() => {
            Error::new(error.kind(), format!("{error}, looked for at {}", absolute.display()))
        }
        _ => error,
    }
}

/// Tells a file that is emptied for good from one that somebody writes at this moment: `>` and many editors empty it first.
#[derive(Debug, Default)]
pub struct EmptyFileDebounce(bool);

impl EmptyFileDebounce {
    /// Whether what a look at the file has found counts, where before there `was` something in it and now there `is`:
    /// nothing in place of something does only when the look before has found nothing, too.
    pub fn accept(&mut self, was: bool, is: bool) -> bool {
        let emptied = was && !is;
        let before = std::mem::replace(&mut self.0, emptied);
        !emptied || before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_file_counts_at_the_second_look() {
        let mut emptied = EmptyFileDebounce::default();
        for (was, is, counts) in [
            (false, false, true),
            (false, true, true),
            (true, false, false),
            (true, true, true),
            (true, false, false),
            (true, false, true),
            (false, false, true),
        ] {
            assert_eq!(emptied.accept(was, is), counts, "{was} {is}");
        }
    }

    #[test]
    fn what_never_ends_or_is_too_large_is_not_read() {
        let told = |path: &Path| read(path, 2048).expect_err("it cannot be read").to_string();
        assert_eq!(told(Path::new("/dev/zero")), "it is no regular file");
        let here = std::env::current_dir().expect("a folder").join("no/such.txt");
        assert!(told(Path::new("no/such.txt")).ends_with(&format!(", looked for at {}", here.display())));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("list.txt");
        for (length, is_read) in [(2048, true), (2049, false)] {
            File::create(&path).and_then(|file| file.set_len(length)).expect("it is all holes");
            assert_eq!(read(&path, 2048).is_ok(), is_read, "{length}");
        }
        assert_eq!(told(&path), "it is larger than 2 KiB");
    }
}
