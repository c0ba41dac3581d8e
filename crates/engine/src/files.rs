//! Files that the administrator or the gateway replaces while the gateway runs: bounded reads, durable writes, and
//! detection of changes.

use rustix::fs::OFlags;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Flags that let the opening of a symbolic link fail, and no opening wait.
pub(crate) const NO_LINK: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// Watch of a file for changes. Only a file whose metadata differ is read again.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    max_bytes: usize,
    /// Identity of the file at the last read; `None` if it could not be read.
    stamp: Option<FileStamp>,
    /// True once the content was read twice with the same stamp. Timestamps are coarse, so the content may change right
    /// after the first read without a change of the stamp.
    is_settled: bool,
    /// Hash of the content, or the error, that was returned last.
    returned: Option<std::result::Result<u64, String>>,
    /// True if the content returned last has more than blank lines and comments.
    is_filled: bool,
    /// True if the last read found the file emptied.
    was_emptied: bool,
}

/// Metadata of a file that change with its content: device, inode, length, and times of modification and status change.
type FileStamp = (u64, u64, u64, [i64; 4]);

impl FileWatch {
    /// Creates the watch of a regular file of at most `max_bytes`. It reads nothing yet.
    pub fn new(path: &Path, max_bytes: usize) -> Self {
        Self {
            path: path.to_owned(),
            max_bytes,
            stamp: None,
            is_settled: false,
            returned: None,
            is_filled: false,
            was_emptied: false,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content of the file, or the error of the read, if it differs from what was returned last.
    ///
    /// Many editors and `>` truncate a file before they write it. Therefore a file that becomes empty, or has only blank
    /// lines and comments, counts as changed only if the next read finds the same.
    pub fn read_if_changed(&mut self) -> Option<Result<Vec<u8>>> {
        if !self.may_have_changed() {
            return None;
        }
        let returned = match read(&self.path, self.max_bytes) {
            Ok(content) => self.is_new(&content).then_some(Ok(content))?,
            Err(error) => {
                // The cause may be outside the file, so it is read again.
                (self.stamp, self.was_emptied) = (None, false);
                let message = Some(Err(error.to_string()));
                if self.returned == message {
                    return None;
                }
                self.returned = message;
                Err(error)
            }
        };
        Some(returned)
    }

    fn may_have_changed(&mut self) -> bool {
        let stamp = metadata(&self.path).ok().as_ref().map(stamp);
        let is_same = stamp.is_some() && stamp == self.stamp;
        let was_settled = std::mem::replace(&mut self.is_settled, is_same);
        self.stamp = stamp;
        !(is_same && was_settled)
    }

    fn is_new(&mut self, content: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let hash = Some(Ok(hasher.finish()));
        let is_filled = !is_blank(content);
        let is_emptied = self.is_filled && !is_filled;
        let was_emptied = std::mem::replace(&mut self.was_emptied, is_emptied);
        if self.returned == hash || (is_emptied && !was_emptied) {
            return false;
        }
        (self.returned, self.is_filled, self.was_emptied) = (hash, is_filled, false);
        true
    }
}

/// Reads a regular file of at most `max_bytes`. Other file types are refused: reading them may block or never end.
pub fn read(path: &Path, max_bytes: usize) -> Result<Vec<u8>> {
    if !metadata(path).map_err(|error| with_resolved_path(path, error))?.is_file() {
        return Err(Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    File::open(path)?.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > max_bytes {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("larger than {} KiB", max_bytes / 1024))),
        false => Ok(bytes),
    }
}

/// Returns the file if it is a regular one.
pub(crate) fn regular(file: File) -> Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::other("not a regular file")) }
}

/// Creates a FIFO, whose opening waits for another process.
#[cfg(test)]
pub(crate) fn make_fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status();
    assert!(status.is_ok_and(|status| status.success()), "mkfifo is installed");
}

/// Reads a file as [`read`] does. Returns `None` if it does not exist.
pub fn read_if_exists(path: &Path, max_bytes: usize) -> Result<Option<Vec<u8>>> {
    match read(path, max_bytes) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        content => content.map(Some),
    }
}

/// Creates a directory that only the current user may access, unless it exists. Fails if others may write to it.
pub fn create_dir(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    check_dir(dir)
}

/// Returns an error if the directory is unusable, or if other users may replace files in it: its owner, unless it is root,
/// and its group or all users, if they may write.
pub fn check_dir(dir: &Path) -> Result<()> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let metadata = metadata(dir)?;
    let (mode, owner, user) = (metadata.mode() & 0o7777, metadata.uid(), rustix::process::geteuid().as_raw());
    let refuse = |reason: String| Err(Error::new(ErrorKind::PermissionDenied, reason));
    if mode & WRITABLE_BY_OTHERS != 0 {
        return refuse(format!("other users may write to it (mode {mode:o}): run chmod go-w {}", dir.display()));
    }
    if owner != user && owner != 0 {
        return refuse(format!("it belongs to user {owner}, and the gateway runs as user {user}"));
    }
    Ok(())
}

/// Renames a file, so that no later write replaces it. Returns its new path, at which an earlier file is overwritten.
fn set_aside(path: &Path) -> Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".unreadable");
    let aside = PathBuf::from(aside);
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Sets an unreadable file aside, and returns `reason` with what became of the file.
pub fn set_aside_for(path: &Path, reason: &str) -> String {
    match set_aside(path) {
        Ok(aside) => format!("{reason}; the file is now {}", aside.display()),
        Err(error) => format!("{reason}; the file cannot be set aside: {error}"),
    }
}

/// Replaces a file durably, readable by the current user only. After a power cut, either the old or the new content is
/// complete. Waits for another process that replaces it. A symbolic link is replaced, not followed.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    Replacement::begin(path)?.write(content)
}

/// Replacement of a file. One at a time is open, so that nothing is lost between the read of the old content and the write
/// of the new one. Its draft beside the file is the lock; dropped before it is written, it leaves the file as it was.
#[derive(Debug)]
pub struct Replacement {
    /// Path of the file.
    path: PathBuf,
    /// Path of the draft.
    draft_path: PathBuf,
    draft: File,
}

impl Replacement {
    /// Waits until no other replacement is open, and opens that of the file at `path`, or of the file that a symbolic link
    /// there leads to.
    pub fn of_target(path: &Path) -> Result<Self> {
        match fs::canonicalize(path) {
            Ok(target) => Self::begin(&target),
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
                Self::begin(path)
            }
            Err(error) => Err(match fs::read_link(path) {
                Ok(target) if error.kind() == ErrorKind::NotFound => {
                    let target = target.display();
                    let hint = "create that file, or remove the link";
                    Error::new(error.kind(), format!("a symbolic link to {target}, which does not exist; {hint}"))
                }
                _ => error,
            }),
        }
    }

    fn begin(path: &Path) -> Result<Self> {
        let mut draft_path = path.as_os_str().to_owned();
        draft_path.push(".new");
        let draft_path = PathBuf::from(draft_path);
        let mut has_removed = false;
        loop {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600).custom_flags(NO_LINK);
            let draft = match options.open(&draft_path) {
                Ok(draft) => draft,
                // A link, or what a process of another user left when it was killed.
                Err(error) if !has_removed && (is_link(&error) || error.kind() == ErrorKind::PermissionDenied) => {
                    fs::remove_file(&draft_path).map_err(|_| error)?;
                    has_removed = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            draft.lock()?;
            let replacement = Self { path: path.to_owned(), draft_path: draft_path.clone(), draft };
            // The draft of the process that had the lock is now the file, or gone.
            if !replacement.has_draft() {
                continue;
            }
            let metadata = replacement.draft.metadata()?;
            // A network file system may give a new file to another user.
            let is_own = has_removed || metadata.uid() == rustix::process::geteuid().as_raw();
            if is_own && metadata.nlink() == 1 {
                replacement.draft.set_permissions(Permissions::from_mode(0o600))?;
                return Ok(replacement);
            }
            if has_removed {
                return Err(Error::other(format!("{} is a link", draft_path.display())));
            }
            // Left by another user, or a link. The drop removes it.
            has_removed = true;
        }
    }

    /// Returns the path of the file, with links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the new file the owner, the group and the mode of `like`.
    pub fn set_access(&self, like: &Metadata) -> Result<()> {
        let own = self.draft.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(&self.draft, Some(like.uid()), Some(like.gid()))?;
        }
        self.draft.set_permissions(Permissions::from_mode(like.mode() & 0o777))
    }

    /// Writes the new content in place of the file.
    pub fn write(mut self, content: &[u8]) -> Result<()> {
        self.draft.set_len(0)?;
        self.draft.write_all(content)?;
        self.draft.sync_all()?;
        if !self.has_draft() {
            return Err(Error::other("another process removed the draft"));
        }
        fs::rename(&self.draft_path, &self.path)?;
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    }

    /// Returns true if the locked draft is the file at its path.
    fn has_draft(&self) -> bool {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let at_path = fs::symlink_metadata(&self.draft_path).map(identity);
        at_path.is_ok_and(|at_path| self.draft.metadata().is_ok_and(|draft| identity(draft) == at_path))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.has_draft() {
            let _ = fs::remove_file(&self.draft_path);
        }
    }
}

/// Returns true if the opening with [`NO_LINK`] has found a symbolic link.
fn is_link(error: &Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Adds the absolute path to `error` if `path` is relative to the working directory.
fn with_resolved_path(path: &Path, error: Error) -> Error {
    match std::path::absolute(path) {
        Ok(absolute) if path.is_relative() => {
            Error::new(error.kind(), format!("{error}, resolved to {}", absolute.display()))
        }
        _ => error,
    }
}

fn stamp(metadata: &Metadata) -> FileStamp {
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    (metadata.dev(), metadata.ino(), metadata.len(), times)
}

/// Returns true if the content has only blank lines and comments.
fn is_blank(content: &[u8]) -> bool {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let is_blank = |line: &[u8]| matches!(line.trim_ascii(), [] | [b'#', ..]);
    content.split(|byte| *byte == b'\n').all(is_blank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn text(read: Option<Result<Vec<u8>>>) -> Option<String> {
        read.map(|content| String::from_utf8(content.expect("a readable file")).expect("text"))
    }

    #[test]
    fn only_a_changed_file_is_read_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("list.txt");
        let mut watch = FileWatch::new(&path, 2048);
        let error = watch.read_if_changed().expect("the file is missing").expect_err("no file");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(watch.read_if_changed().is_none(), "an error is returned once");

        fs::write(&path, "a").expect("write file");
        assert_eq!(text(watch.read_if_changed()).as_deref(), Some("a"));
        fs::write(&path, "b").expect("write file");
        assert_eq!(text(watch.read_if_changed()).as_deref(), Some("b"), "the time of the file may be the same");
        while watch.may_have_changed() {}
        assert!(watch.read_if_changed().is_none());

        let modified = metadata(&path).and_then(|metadata| metadata.modified()).expect("time of the file");
        fs::write(&path, "c").expect("write file");
        let file = File::options().write(true).open(&path).expect("open file");
        file.set_modified(modified + std::time::Duration::from_nanos(1)).expect("set the time");
        assert_eq!(text(watch.read_if_changed()).as_deref(), Some("c"), "the same size within the same second");
        assert!(watch.read_if_changed().is_none());

        fs::remove_file(&path).expect("remove file");
        assert!(watch.read_if_changed().is_some_and(|read| read.is_err()));
        fs::write(&path, "c").expect("write file");
        assert_eq!(text(watch.read_if_changed()).as_deref(), Some("c"), "the file is readable again");
    }

    #[test]
    fn emptied_file_counts_at_the_second_read() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("list.txt");
        let mut watch = FileWatch::new(&path, 2048);
        for (content, is_changed) in [
            ("", true),
            ("a", true),
            ("", false),
            ("a", false),
            (" \n# being written\n", false),
            (" \n# being written\n", true),
            ("", true),
            ("b", true),
            ("\u{feff}\n", false),
            ("", true),
        ] {
            fs::write(&path, content).expect("write file");
            let expected = is_changed.then_some(content);
            assert_eq!(text(watch.read_if_changed()).as_deref(), expected, "{content:?}");
        }
    }

    #[test]
    fn directory_that_others_may_write_to_is_refused() {
        let parent = tempfile::tempdir().expect("temporary directory");
        let dir = parent.path().join("state");
        for (mode, is_accepted) in [(0o700, true), (0o755, true), (0o770, false), (0o702, false), (0o1777, false)] {
            DirBuilder::new().mode(0o700).create(&dir).expect("create directory");
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("set mode");
            let result = create_dir(&dir);
            assert_eq!(result.is_ok(), is_accepted, "{mode:o}");
            if let Err(error) = result {
                let text = error.to_string();
                assert!(text.contains(&format!("mode {mode:o}")) && text.contains("chmod go-w"), "{text}");
            }
            fs::remove_dir(&dir).expect("remove directory");
        }
        assert_eq!(check_dir(&dir).expect_err("it is gone").kind(), ErrorKind::NotFound);
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, foreign) = (dir.path().join("demand.json"), dir.path().join("foreign"));
        fs::write(&foreign, "foreign").expect("write file");
        for link in ["demand.json", "demand.json.new"] {
            symlink(&foreign, dir.path().join(link)).expect("create link");
        }
        replace(&path, b"own").expect("replace file");
        assert_eq!(read_if_exists(&path, 2048).expect("read file"), Some(b"own".to_vec()));
        assert_eq!(fs::read_to_string(&foreign).expect("read file"), "foreign");
    }

    #[test]
    fn replaced_file_is_private_and_leaves_no_draft() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("state/demand.json");
        assert!(read_if_exists(&path, 2048).expect("no error").is_none());
        assert_eq!(replace(&path, b"one").expect_err("no directory").kind(), ErrorKind::NotFound);
        create_dir(&dir.path().join("state")).expect("create directory");
        for content in ["one", "two"] {
            replace(&path, content.as_bytes()).expect("replace file");
            assert_eq!(read_if_exists(&path, 2048).expect("read file"), Some(content.into()));
        }
        let mode = |path: &Path| metadata(path).expect("metadata").mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.path().join("state"))), (0o600, 0o700));

        let occupied = dir.path().join("state/occupied");
        fs::create_dir(&occupied).expect("create directory");
        assert!(replace(&occupied, b"one").is_err(), "a directory cannot be replaced by a file");
        assert_eq!(fs::read_dir(dir.path().join("state")).expect("read directory").count(), 2, "no draft");
    }

    #[test]
    fn replacements_of_one_file_at_once_lose_nothing() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("list.txt");
        let append = |line: String| {
            let replacement = Replacement::of_target(&path)?;
            let mut content = read_if_exists(replacement.path(), 1 << 20)?.unwrap_or_default();
            content.extend_from_slice(line.as_bytes());
            replacement.write(&content)
        };
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let (append, path) = (&append, &path);
                scope.spawn(move || {
                    for line in 0..25 {
                        append(format!("{writer}.{line}\n")).expect("a replaced file");
                        drop(Replacement::of_target(path).expect("a draft that is not written"));
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).expect("read file");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!((lines.len(), text.lines().count()), (200, 200));
        assert_eq!(fs::read_dir(dir.path()).expect("read directory").count(), 1, "no draft");
    }

    #[test]
    fn replacement_keeps_links_and_access() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, link) = (dir.path().join("real.yaml"), dir.path().join("keys.yaml"));
        symlink("real.yaml", &link).expect("create link");
        let error = Replacement::of_target(&link).expect_err("the link leads nowhere");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        for mode in [0o640, 0o604, 0o600] {
            fs::write(&path, "old").expect("write file");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set mode");
            // Only root can give a file away.
            let owner =
                if rustix::process::geteuid().is_root() { 65_534 } else { metadata(&path).expect("metadata").uid() };
            std::os::unix::fs::chown(&path, Some(owner), None).expect("set owner");
            // What a crash left.
            fs::write(dir.path().join("real.yaml.new"), "a longer draft").expect("write file");
            let replacement = Replacement::of_target(&link).expect("a file");
            replacement.set_access(&metadata(&path).expect("metadata")).expect("the own file");
            replacement.write(b"new").expect("replace file");
            let content = fs::read_to_string(&path).expect("read file");
            assert_eq!((content.as_str(), metadata(&path).expect("metadata").mode() & 0o777), ("new", mode));
            assert_eq!(metadata(&path).expect("metadata").uid(), owner);
            assert!(fs::symlink_metadata(&link).expect("metadata").is_symlink());
        }
        drop(Replacement::of_target(&link).expect("a file"));
        assert_eq!(fs::read_to_string(&path).expect("read file"), "new", "it was not written");
        // A hard link to a file of another process is no draft.
        fs::hard_link(&path, dir.path().join("real.yaml.new")).expect("create link");
        let replacement = Replacement::of_target(&link).expect("a file");
        assert_eq!(fs::read_to_string(&path).expect("read file"), "new");
        drop(replacement);
    }

    #[test]
    fn special_and_oversized_files_are_not_read() {
        let read_error = |path: &Path| read(path, 2048).expect_err("an unreadable file").to_string();
        assert_eq!(read_error(Path::new("/dev/zero")), "not a regular file");
        let absolute = std::env::current_dir().expect("working directory").join("no/such.txt");
        assert!(read_error(Path::new("no/such.txt")).ends_with(&format!(", resolved to {}", absolute.display())));
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("list.txt");
        for (length, is_read) in [(2048, true), (2049, false)] {
            File::create(&path).and_then(|file| file.set_len(length)).expect("sparse file");
            assert_eq!(read(&path, 2048).is_ok(), is_read, "{length}");
        }
        assert_eq!(read_error(&path), "larger than 2 KiB");
    }
}
