//! Output files of commands: never an input of the same command, and complete or unchanged.
//!
//! A file is written beside its place and put there at the end, so that a run that fails leaves what was there before.
//! What is no file (a pipe, a device) is written as it comes. `-` is standard output, as it is standard input among
//! logs.

use super::CommandError;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// Inputs and outputs of a command, so that no output overwrites another file of the command.
pub(super) struct OutputPaths(Vec<(FileIdentity, String)>);

/// Identity of a file, independent of its name.
#[derive(PartialEq)]
enum FileIdentity {
    Existing { device: u64, inode: u64 },
    New(PathBuf),
    StandardOutput,
}

/// An output that conflicts with no other file of the command.
pub(super) struct OutputTarget {
    name: String,
    kind: OutputKind,
}

enum OutputKind {
    StandardOutput,
    Stream(PathBuf),
    /// Regular file at the end of all symbolic links, with its metadata if it exists.
    File(PathBuf, Option<Metadata>),
}

/// An open output.
pub(super) struct Output {
    name: String,
    writer: BufWriter<Box<dyn Write>>,
    temp_file: Option<TempFile>,
}

/// Temporary file that is renamed to its target at the end, and removed if it is dropped before.
struct TempFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl OutputPaths {
    /// Creates the paths of a command that reads logs (`-` is standard input) and, by option, other files.
    pub(super) fn with_inputs<'a>(
        logs: &[PathBuf],
        others: impl IntoIterator<Item = (&'static str, Option<&'a Path>)>,
    ) -> Self {
        let mut inputs = Vec::new();
        for log in logs {
            let metadata = if log == Path::new(DASH) { stream_metadata(io::stdin()) } else { fs::metadata(log).ok() };
            inputs.extend(
                metadata.as_ref().and_then(identity_of).map(|identity| (identity, "is read as a log".to_owned())),
            );
        }
        for (option, file) in others {
            let metadata = file.and_then(|file| fs::metadata(file).ok());
            inputs.extend(
                metadata.as_ref().and_then(identity_of).map(|identity| (identity, format!("is read as {option}"))),
            );
        }
        let stdout = stream_metadata(io::stdout()).filter(Metadata::is_file);
        inputs.extend(
            stdout.as_ref().and_then(identity_of).map(|identity| (identity, "is the standard output".to_owned())),
        );
        Self(inputs)
    }

    /// Adds the output of `option`. Fails if it is an input or another output.
    pub(super) fn add_output(&mut self, option: &str, path: &Path) -> Result<OutputTarget, CommandError> {
        let name = path.display().to_string();
        let kind = OutputKind::from_path(path).map_err(|error| unwritable(&name, &error))?;
        if let Some(identity) = kind.identity() {
            if let Some((_, role)) = self.0.iter().find(|(other, _)| *other == identity) {
                return Err(CommandError::Usage(format!("{option}: {name} {role}; name another file")));
            }
            self.0.push((identity, format!("is the output of {option}")));
        }
        Ok(OutputTarget { name, kind })
    }
}

impl OutputKind {
    fn from_path(path: &Path) -> io::Result<Self> {
        if STDOUT_PATHS.iter().any(|name| path == Path::new(name)) {
            return Ok(Self::StandardOutput);
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(metadata) if metadata.is_file() && !DESCRIPTOR_DIRS.iter().any(|dir| path.starts_with(dir)) => {
                // A read-only file is an error, although a rename in a writable directory would replace it.
                OpenOptions::new().write(true).open(path)?;
                Ok(Self::File(path.canonicalize()?, Some(metadata)))
            }
            Ok(_) => Ok(Self::Stream(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = resolve_links(path)?;
                let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Err(error) };
                let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
                Ok(Self::File(dir.canonicalize()?.join(name), None))
            }
            Err(error) => Err(error),
        }
    }

    fn identity(&self) -> Option<FileIdentity> {
        match self {
            Self::StandardOutput => Some(FileIdentity::StandardOutput),
            Self::Stream(path) => fs::metadata(path).ok().as_ref().and_then(identity_of),
            Self::File(_, Some(metadata)) => identity_of(metadata),
            Self::File(path, None) => Some(FileIdentity::New(path.clone())),
        }
    }
}

impl OutputTarget {
    /// Returns true if the output occupies standard output.
    pub(super) fn is_standard_output(&self) -> bool {
        matches!(self.kind, OutputKind::StandardOutput)
    }

    /// Opens the output. An existing file is not changed before [`Output::finish`].
    pub(super) fn open(self) -> Result<Output, CommandError> {
        let Self { name, kind } = self;
        let opened: io::Result<(Box<dyn Write>, Option<TempFile>)> = match kind {
            OutputKind::StandardOutput => Ok((Box::new(io::stdout().lock()), None)),
            OutputKind::Stream(path) => File::create(path).map(|file| (Box::new(file) as _, None)),
            OutputKind::File(path, metadata) => TempFile::create_beside(path, metadata.as_ref())
                .and_then(|temp_file| Ok((Box::new(temp_file.file.try_clone()?) as _, Some(temp_file)))),
        };
        let (writer, temp_file) = opened.map_err(|error| unwritable(&name, &error))?;
        Ok(Output { name, writer: BufWriter::new(writer), temp_file })
    }
}

impl Output {
    /// Flushes the output and moves a file to its target.
    pub(super) fn finish(mut self) -> Result<(), CommandError> {
        let result = self.writer.flush().and_then(|()| self.temp_file.take().map_or(Ok(()), TempFile::persist));
        result.map_err(|error| self.failed(&error))
    }

    /// Returns the error of a failed write.
    pub(super) fn failed(&self, error: &io::Error) -> CommandError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CommandError::BrokenPipe,
            _ => CommandError::Failed(format!("{}: cannot be written: {error}", self.name)),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl TempFile {
    fn create_beside(target: PathBuf, metadata: Option<&Metadata>) -> io::Result<Self> {
        let mut number = 0;
        let (file, path) = loop {
            let path = target.with_file_name(format!(".tidegate-{}-{number}.part", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                opened => break (opened?, path),
            }
        };
        let temp_file = Self { file, path, target };
        if let Some(metadata) = metadata {
            // Only root may change the owner.
            let _ = fchown(&temp_file.file, Some(metadata.uid()), Some(metadata.gid()));
            temp_file.file.set_permissions(metadata.permissions())?;
        }
        Ok(temp_file)
    }

    fn persist(self) -> io::Result<()> {
        self.file.sync_all()?;
        // A mount point cannot be replaced, only written.
        fs::rename(&self.path, &self.target).or_else(|_| fs::copy(&self.path, &self.target).map(drop))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Fails after the file was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the identity of a file; `None` for devices, which contain nothing to overwrite.
fn identity_of(metadata: &Metadata) -> Option<FileIdentity> {
    (!metadata.file_type().is_char_device())
        .then(|| FileIdentity::Existing { device: metadata.dev(), inode: metadata.ino() })
}

fn stream_metadata(stream: impl AsFd) -> Option<Metadata> {
    File::from(stream.as_fd().try_clone_to_owned().ok()?).metadata().ok()
}

/// Follows symbolic links whose last target does not exist yet.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let Ok(target) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::other("too many symbolic links"))
}

fn unwritable(name: &str, error: &io::Error) -> CommandError {
    CommandError::Usage(format!("{name}: cannot be written: {error}; name a writable file"))
}

const DASH: &str = "-";

const STDOUT_PATHS: [&str; 4] = [DASH, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Directories of open file descriptors, which are written directly, regardless of their type.
const DESCRIPTOR_DIRS: [&str; 3] = ["/dev/fd", "/proc/self/fd", "/dev/stderr"];

/// The limit of Linux.
const MAX_SYMLINKS: usize = 40;
