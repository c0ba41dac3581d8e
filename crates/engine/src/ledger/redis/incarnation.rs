//! Identity of an instance in the ledger.

use crate::files;
use std::io;
use std::path::Path;

/// A run of an instance's process, as the holder of leases. No record of its spending outlives it, so the units that a
/// crashed incarnation held are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// Name of the holder: the instance, and the number of the run.
    pub(super) holder: String,
}

const FILE: &str = "gate";
const MAX_FILE_BYTES: usize = 64 << 10;

impl Incarnation {
    /// Returns the next incarnation of the instance with this state directory, which stores the name of the instance.
    /// `fresh` is a unique number.
    pub fn next(state_dir: &Path, fresh: u64) -> io::Result<Self> {
        files::create_dir(state_dir)?;
        let path = state_dir.join(FILE);
        let content = files::read_if_exists(&path, MAX_FILE_BYTES)?.unwrap_or_default();
        // An invalid file is foreign or torn: the instance receives a new name.
        if let Some(instance) = String::from_utf8_lossy(&content).lines().find(|line| is_token(line)) {
            return Ok(Self::of_instance(instance, fresh));
        }
        let instance = token(fresh);
        files::replace(&path, format!("{instance}\n").as_bytes())?;
        Ok(Self::of_instance(&instance, fresh))
    }

    /// Returns the only incarnation of an instance without state.
    pub fn ephemeral(fresh: u64) -> Self {
        Self::of_instance(&token(fresh), fresh)
    }

    /// Returns the name of the instance, and the number of the run, which no other has.
    pub(super) fn instance_and_run(&self) -> (&str, &str) {
        self.holder.split_once('.').unwrap_or((&self.holder, &self.holder))
    }

    pub(super) fn of_instance(instance: &str, fresh: u64) -> Self {
        Self { holder: format!("{instance}.{}", token(fresh)) }
    }
}

pub(super) fn token(number: u64) -> String {
    format!("{number:016x}")
}

fn is_token(line: &str) -> bool {
    line.len() == 16 && line.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_keeps_its_name_over_restarts() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let next = |fresh| Incarnation::next(dir.path(), fresh).expect("the directory is writable").holder;
        assert_eq!(next(1), "0000000000000001.0000000000000001");
        assert_eq!(next(2), "0000000000000001.0000000000000002");
        // Earlier versions also stored the incarnation.
        std::fs::write(dir.path().join(FILE), "0000000000000007\n0000000000000008\n")
            .expect("the directory is writable");
        assert_eq!(next(9), "0000000000000007.0000000000000009");
    }

    #[test]
    fn invalid_identity_file_starts_a_new_instance() {
        let contents: [&[u8]; 5] =
            [b"\xff\xfe ../../etc \x00", b"", b"000000000000001", b"000000000000000A", b"000000000000000g"];
        for content in contents {
            let dir = tempfile::tempdir().expect("a temporary directory");
            std::fs::write(dir.path().join(FILE), content).expect("the directory is writable");
            let next = |fresh| Incarnation::next(dir.path(), fresh).expect("the directory is writable");
            assert_eq!(next(7), Incarnation::ephemeral(7), "{content:?}");
            assert_eq!(next(8).holder, "0000000000000007.0000000000000008");
        }
    }
}
