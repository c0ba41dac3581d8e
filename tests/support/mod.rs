//! What tests over the wire share: a gate, an origin that does as it is told, and a client that shows every byte.
//!
//! Nothing here sleeps. Whatever waits has a limit after which the test fails instead of hanging.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

pub mod access_log;
pub mod client;
pub mod combined_log;
pub mod crowd;
pub mod day;
pub mod gate;
pub mod origin;
pub mod site;

use std::path::PathBuf;
use std::time::Duration;

/// After this long a test that waits has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Where the developers' shared test data is, if it is here; says so where it is not.
pub fn shared() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");
    let folder = std::env::var_os("TIDEGATE_SHARED").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no ../shared");
    None
}
