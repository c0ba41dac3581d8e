//! Identity of an instance in the ledger, and the previous incarnations whose usage it can prove.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A run of an instance's process, as the holder of leases. The next incarnation takes over the leases if it can
/// prove what was spent of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    pub(super) instance: String,
    pub(super) id: String,
    pub(super) predecessors: Vec<String>,
}

/// Maximum number of stored predecessors. They accumulate while the ledger is unreachable; units held by older ones are
/// lost.
const MAX_PREDECESSORS: usize = 8;
const FILE: &str = "gate";

impl Incarnation {
    /// Returns the next incarnation of the instance with this state directory. `fresh` is a unique number. `proven`:
    /// the directory also records the usage of previous incarnations; without it their leases are lost.
    ///
    /// The incarnation is stored before it is returned. The directory must not be copied to a second instance that runs
    /// at the same time. The second inherits nothing while the first sends calls, and units that it cannot inherit
    /// count against both.
    pub fn next(state_dir: &Path, fresh: u64, proven: bool) -> io::Result<Self> {
        fs::create_dir_all(state_dir)?;
        let path = state_dir.join(FILE);
        let content = match fs::read_to_string(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            // The file is foreign or torn: an incarnation without predecessors is safe, because their leases are lost.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
            Err(error) => return Err(error),
        };
        let mut lines = content.lines().filter(|line| is_token(line)).map(str::to_owned);
        let id = format!("{fresh:016x}");
        let name = lines.next().unwrap_or_else(|| id.clone());
        let mut predecessors: Vec<String> =
            if proven { lines.filter(|line| *line != id).collect() } else { Vec::new() };
        predecessors.drain(..predecessors.len().saturating_sub(MAX_PREDECESSORS));

        let ids: String = predecessors.iter().chain([&id]).map(|id| format!("{id}\n")).collect();
        let temp_path = state_dir.join(format!("{FILE}.new"));
        let mut file = File::create(&temp_path)?;
        file.write_all(format!("{name}\n{ids}").as_bytes())?;
        file.sync_all()?;
        fs::rename(&temp_path, &path)?;
        File::open(state_dir)?.sync_all()?;
        Ok(Self { instance: name, id, predecessors })
    }

    /// Returns an incarnation without predecessors.
    pub fn ephemeral(fresh: u64) -> Self {
        let id = format!("{fresh:016x}");
        Self { instance: id.clone(), id, predecessors: Vec::new() }
    }

    /// Returns the name of the holder in the ledger.
    pub(super) fn holder(&self) -> String {
        format!("{}.{}", self.instance, self.id)
    }

    /// Returns the predecessors whose leases are taken over, in the format of the script.
    pub(super) fn predecessors(&self) -> String {
        let names: Vec<String> = self.predecessors.iter().map(|id| format!("{}.{id}", self.instance)).collect();
        names.join(",")
    }
}

fn is_token(line: &str) -> bool {
    line.len() == 16 && line.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_keeps_its_name_and_inherits_proven_incarnations() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let next = |fresh, proven| Incarnation::next(dir.path(), fresh, proven).expect("the directory is writable");
        let first = next(1, true);
        assert_eq!((first.holder(), first.predecessors()), ("0000000000000001.0000000000000001".into(), String::new()));
        let second = next(2, true);
        assert_eq!(second.holder(), "0000000000000001.0000000000000002");
        assert_eq!(second.predecessors(), "0000000000000001.0000000000000001");
        assert_eq!(next(3, false).predecessors(), "");
        assert_eq!(next(4, true).predecessors(), "0000000000000001.0000000000000003");
        for id in 5..30 {
            next(id, true);
        }
        assert_eq!(next(30, true).predecessors.len(), MAX_PREDECESSORS);
    }

    #[test]
    fn invalid_identity_file_starts_a_new_instance() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join(FILE), b"\xff\xfe ../../etc \x00").expect("the directory is writable");
        let identity = Incarnation::next(dir.path(), 7, true).expect("the directory is writable");
        assert_eq!((identity.holder().len(), identity.predecessors()), (33, String::new()));
    }
}
