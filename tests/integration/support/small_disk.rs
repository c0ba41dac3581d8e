//! A file system of a given size, in memory.

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A mounted file system, unmounted at the end of the test.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a file system of `size`, such as `64k`. Returns `None` where none can be mounted.
    pub fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let options = ["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"];
        let result = Command::new("mount").args(options).arg(dir.path()).output();
        result.is_ok_and(|output| output.status.success()).then(|| Self(dir))
    }

    /// Returns the root of the file system.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
