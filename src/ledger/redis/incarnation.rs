//! Which gate this is, and which of its earlier lives its books speak for.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A gate in one of its lives. A life is one run of the process: leases belong to it, and the next life takes them over
/// where it can prove what was spent of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    pub(super) gate: String,
    pub(super) id: String,
    pub(super) predecessors: Vec<String>,
}

/// Lives that never reached the ledger pile up while it cannot be reached; what the oldest of them held is then lost.
const MAX_PREDECESSORS: usize = 8;
const FILE: &str = "gate";

impl Incarnation {
    /// The next life of the gate whose state directory this is. `fresh` is a number that nobody else draws; `proven` says
    /// that the directory also tells what the earlier lives have spent: without proof their leases are lost.
    ///
    /// Remembered before it returns. The directory must not be copied to a second gate that runs beside this one: the
    /// second inherits nothing as long as the first speaks, and what it cannot inherit counts against both.
    pub fn next(state_dir: &Path, fresh: u64, proven: bool) -> io::Result<Self> {
        fs::create_dir_all(state_dir)?;
        let path = state_dir.join(FILE);
        let written = match fs::read_to_string(&path) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            // Not ours, or torn: a gate without a past is safe, its leases are lost.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
            Err(error) => return Err(error),
        };
        let mut lines = written.lines().filter(|line| is_token(line)).map(str::to_owned);
        let id = format!("{fresh:016x}");
        let gate = lines.next().unwrap_or_else(|| id.clone());
        let mut predecessors: Vec<String> =
            if proven { lines.filter(|line| *line != id).collect() } else { Vec::new() };
        predecessors.drain(..predecessors.len().saturating_sub(MAX_PREDECESSORS));

        let lives: String = predecessors.iter().chain([&id]).map(|life| format!("{life}\n")).collect();
        let draft = state_dir.join(format!("{FILE}.new"));
        let mut file = File::create(&draft)?;
        file.write_all(format!("{gate}\n{lives}").as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(state_dir)?.sync_all()?;
        Ok(Self { gate, id, predecessors })
    }

    /// A gate without a past.
    pub fn ephemeral(fresh: u64) -> Self {
        let id = format!("{fresh:016x}");
        Self { gate: id.clone(), id: id, predecessors: Vec::new() }
    }

    /// Its name in the ledger.
    pub(super) fn holder(&self) -> String {
        format!("{}.{}", self.gate, self.id)
    }

    /// The lives whose leases it takes over, as the script reads them.
    pub(super) fn predecessors(&self) -> String {
        let names: Vec<String> = self.predecessors.iter().map(|id| format!("{}.{id}", self.gate)).collect();
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
    fn a_gate_keeps_its_name_and_takes_over_what_it_can_prove() {
        let folder = tempfile::tempdir().expect("a folder");
        let next = |fresh, proven| Incarnation::next(folder.path(), fresh, proven).expect("it can be written");
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
    fn a_foreign_file_is_a_gate_without_a_past() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), b"\xff\xfe ../../etc \x00").expect("it is written");
        let identity = Incarnation::next(folder.path(), 7, true).expect("it can be written");
        assert_eq!((identity.holder().len(), identity.predecessors()), (33, String::new()));
    }
}
