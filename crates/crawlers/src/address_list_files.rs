//! Address files of the administrator: read at the start and again whenever one changes.
//!
//! An invalid file prevents the start of the gateway. Later, the last valid networks stay active until the file is
//! valid again.

use crate::network_list::{self, InvalidEntry};
use std::fmt;
use std::io;
use std::path::Path;
use tidegate_engine::files::FileWatch;
use tidegate_policy::address_lists::AddressLists;
use tidegate_policy::network::IpPrefix;

/// The files of all lists, with the networks read from each.
#[derive(Debug, Default)]
pub struct AddressListFiles(Vec<AddressListFile>);

#[derive(Debug)]
struct AddressListFile {
    watch: FileWatch,
    /// Location of its key in the settings.
    location: String,
    networks: Vec<IpPrefix>,
    /// Current error of the file, while the previous networks stay active.
    error: Option<String>,
}

/// All errors in some files, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressListErrors(Vec<String>);

/// Result of [`AddressListFiles::reload_changed`].
#[derive(Debug, Default)]
pub struct ReloadResult {
    /// Indexes of the changed lists.
    pub changed: Vec<usize>,
    /// All lists, if any of them changed.
    pub lists: Option<AddressLists>,
    /// Errors of changed files, whose previous networks stay active.
    pub errors: Vec<String>,
}

/// Twice the size of two million networks. A larger file is not a list.
const MAX_FILE_BYTES: usize = 64 << 20;

impl AddressListFiles {
    /// Reads the files at these paths, each with the location of its key, or returns all errors.
    pub fn read<'a>(sources: impl Iterator<Item = (&'a Path, &'a str)>) -> Result<Self, AddressListErrors> {
        let mut errors = Vec::new();
        let read = |(path, location): (&Path, &str)| {
            let watch = FileWatch::new(path, MAX_FILE_BYTES);
            let mut file = AddressListFile { watch, location: location.to_owned(), networks: Vec::new(), error: None };
            match file.read_if_changed() {
                Some(Ok(networks)) => file.networks = networks,
                Some(Err(file_errors)) => errors.extend(file_errors),
                None => {}
            }
            file
        };
        let files = sources.map(read).collect();
        if errors.is_empty() { Ok(Self(files)) } else { Err(AddressListErrors(errors)) }
    }

    /// Returns the networks of all files as last read.
    pub fn lists(&self) -> AddressLists {
        AddressLists::new(&self.0.iter().map(|file| file.networks.clone()).collect::<Vec<_>>())
    }

    /// Returns the number of networks of each file, and its current error, if any.
    pub fn states(&self) -> impl Iterator<Item = (usize, Option<&str>)> {
        self.0.iter().map(|file| (file.networks.len(), file.error.as_deref()))
    }

    /// Reads the files that have changed. An error is reported once, until the file changes again.
    pub fn reload_changed(&mut self) -> ReloadResult {
        let mut result = ReloadResult::default();
        for (index, file) in self.0.iter_mut().enumerate() {
            match file.read_if_changed() {
                None => {}
                Some(Ok(networks)) => {
                    if networks != file.networks {
                        result.changed.push(index);
                    }
                    file.networks = networks;
                    file.error = None;
                }
                Some(Err(errors)) => {
                    file.error = errors.first().map(|first| match errors.len() {
                        1 => first.clone(),
                        2 => format!("{first} (and 1 more line)"),
                        count => format!("{first} (and {} more lines)", count - 1),
                    });
                    result.errors.extend(errors);
                }
            }
        }
        result.lists = (!result.changed.is_empty()).then(|| self.lists());
        result
    }
}

impl AddressListFile {
    /// Returns the networks of the file or its errors, if it has changed.
    fn read_if_changed(&mut self) -> Option<Result<Vec<IpPrefix>, Vec<String>>> {
        let content = self.watch.read_if_changed()?;
        let text = content.and_then(|content| {
            String::from_utf8(content).map_err(|_| io::Error::other("stream did not contain valid UTF-8"))
        });
        let file = self.watch.path().display();
        let message = |InvalidEntry { line, found }: InvalidEntry| {
            let place = line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}"));
            format!("{place}: {found:?} is not an address or network; write e.g. 192.0.2.0/24 or 2001:db8::/32")
        };
        Some(match text {
            Ok(text) => network_list::parse(&text).map_err(|entries| entries.into_iter().map(message).collect()),
            Err(error) => Err(vec![format!("{}: {file} cannot be read: {error}; name a UTF-8 file", self.location)]),
        })
    }
}

impl fmt::Display for AddressListErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for AddressListErrors {}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::ListId;
    use tidegate_policy::address_lists::ListSet;

    fn list_sources(paths: &[impl AsRef<Path>]) -> impl Iterator<Item = (&Path, &str)> {
        paths.iter().map(|path| (path.as_ref(), "gate.yaml:2:9: address_lists.a.file"))
    }

    #[test]
    fn changed_file_is_reloaded_invalid_file_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("hosting.txt");
        let write = |text: &str| std::fs::write(&path, text).expect("write file");
        write("192.0.2.0/24\n");
        let mut files = AddressListFiles::read(list_sources(&[&path])).expect("valid lists");
        let is_listed = |lists: &AddressLists, address: &str| {
            lists.lookup(address.parse().expect("an IP")) == ListSet::from_ids([ListId(0)])
        };
        assert!(is_listed(&files.lists(), "192.0.2.7"));
        assert!(files.reload_changed().lists.is_none(), "unchanged file");

        write("198.51.100.0/24 # moved\n");
        let lists = files.reload_changed().lists.expect("changed lists");
        assert!(is_listed(&lists, "198.51.100.7") && !is_listed(&lists, "192.0.2.7"));

        write("198.51.100.0/24\nnonsense\n");
        let result = files.reload_changed();
        assert!(result.lists.is_none() && is_listed(&files.lists(), "198.51.100.7"), "the previous networks stay");
        let prefix = format!("{}:2: \"nonsense\" is not an address or network", path.display());
        assert!(result.errors.len() == 1 && result.errors[0].starts_with(&prefix), "{:?}", result.errors);
        assert!(files.reload_changed().errors.is_empty(), "reported once");
        assert!(files.states().eq([(1, Some(&*result.errors[0]))]), "the error stays");

        for (text, others) in [("a\nb\n", " (and 1 more line)"), ("a\nb\nc\n", " (and 2 more lines)")] {
            write(text);
            let first = files.reload_changed().errors.swap_remove(0);
            assert!(files.states().eq([(1, Some(&*format!("{first}{others}")))]), "{text:?}");
        }

        std::fs::remove_file(&path).expect("remove file");
        assert!(files.reload_changed().errors[0].contains("cannot be read"));
        assert!(files.states().all(|(_, error)| error.is_some()));
        write("192.0.2.0/24\n");
        assert!(files.reload_changed().lists.is_some());
        assert!(files.states().eq([(1, None)]));
    }

    #[test]
    fn briefly_empty_file_keeps_its_networks() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("partners.txt");
        let write = |text: &str| std::fs::write(&path, text).expect("write file");
        write("192.0.2.0/24\n");
        let mut files = AddressListFiles::read(list_sources(&[&path])).expect("valid lists");
        for empty_text in ["", "# being written\n"] {
            write(empty_text);
            assert!(files.reload_changed().lists.is_none(), "{empty_text:?} may be an unfinished write");
            write("192.0.2.0/24\n");
            assert!(files.reload_changed().lists.is_none(), "unchanged file");
        }
        write("");
        assert!(files.reload_changed().lists.is_none());
        assert_eq!(files.reload_changed().lists.expect("accepted empty file").network_counts(), [0]);
        write("192.0.2.0/24\n");
        assert!(files.reload_changed().lists.is_some());
    }

    #[test]
    fn unreadable_list_error_names_the_file() {
        let error = AddressListFiles::read(list_sources(&["/dev/zero"])).expect_err("an invalid list").to_string();
        assert_eq!(
            error,
            "gate.yaml:2:9: address_lists.a.file: /dev/zero cannot be read: not a regular file; name a UTF-8 file"
        );
    }

    #[test]
    fn all_list_errors_are_reported_at_startup() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let paths = ["a.txt", "b.txt"].map(|name| dir.path().join(name));
        std::fs::write(&paths[0], "1.2.3.4\n1.2.3\n::/129\n").expect("write file");
        let errors = AddressListFiles::read(list_sources(&paths)).expect_err("invalid lists").to_string();
        assert_eq!(errors.lines().count(), 3, "{errors}");
        assert!(errors.lines().nth(1).is_some_and(|line| line.contains("a.txt:3: \"::/129\"")), "{errors}");
    }
}
