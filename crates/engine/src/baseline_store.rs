//! File in the state directory with the learned baseline of the site, for bot detection.
//!
//! The file holds observations, not accounting: if it is unreadable, a warning is logged and learning restarts. A crash
//! may lose the last minute.

use crate::state_file::{StateFile, StateFileError, check_version};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use tidegate_policy::Timestamp;
use tidegate_policy::bot_detection::{BaselineCounts, LearnedBaseline};

/// Version of the file format.
const VERSION: u32 = 1;
/// Twenty times the size of the largest file written.
const MAX_FILE_BYTES: usize = 4096;
/// Upper bound of a count, in thousandths: more clients than any site has in a half-life.
const MAX_COUNT_MILLI: u64 = 1_000_000_000_000;

/// Stores the learned baseline in a file.
pub struct BaselineStore(StateFile);

#[derive(Serialize, Deserialize)]
struct BaselineFile {
    version: u32,
    /// Second of the last sample, since 1970.
    updated_at: u64,
    assets: CountsEntry,
    links: CountsEntry,
}

/// Sampled clients, in thousandths because they decay.
#[derive(Serialize, Deserialize)]
struct CountsEntry {
    present: u64,
    absent: u64,
}

impl BaselineStore {
    /// Returns the store in `state_dir`. The file need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self(StateFile::new(state_dir, "baseline.json", MAX_FILE_BYTES))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the stored baseline, or `None` if there is no file. A file that cannot be read is set aside.
    pub fn restore(&self) -> Result<Option<LearnedBaseline>, StateFileError> {
        self.0.restore(parse)
    }

    /// Like [`Self::restore`], and leaves the file where it is.
    pub fn read(&self) -> Result<Option<LearnedBaseline>, StateFileError> {
        self.0.read(parse)
    }

    /// Writes `learned`, unless it is empty.
    pub fn save(&self, learned: &LearnedBaseline) -> io::Result<()> {
        if learned.is_empty() { Ok(()) } else { self.0.save(&BaselineFile::from_learned(learned)) }
    }
}

fn parse(bytes: &[u8]) -> Result<LearnedBaseline, String> {
    let file: BaselineFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    check_version(file.version, VERSION..=VERSION)?;
    file.into_learned().ok_or_else(|| "invalid count".into())
}

impl BaselineFile {
    fn from_learned(learned: &LearnedBaseline) -> Self {
        Self {
            version: VERSION,
            updated_at: learned.updated_at.seconds(),
            assets: CountsEntry::from_counts(learned.assets),
            links: CountsEntry::from_counts(learned.links),
        }
    }

    fn into_learned(self) -> Option<LearnedBaseline> {
        Some(LearnedBaseline {
            updated_at: Timestamp::from_seconds(self.updated_at),
            assets: self.assets.into_counts()?,
            links: self.links.into_counts()?,
        })
    }
}

impl CountsEntry {
    fn from_counts(counts: BaselineCounts) -> Self {
        let milli = |count: f32| ((f64::from(count) * 1000.0).round() as u64).min(MAX_COUNT_MILLI);
        Self { present: milli(counts.present), absent: milli(counts.absent) }
    }

    fn into_counts(self) -> Option<BaselineCounts> {
        let count = |milli: u64| (milli <= MAX_COUNT_MILLI).then_some((milli as f64 / 1000.0) as f32);
        Some(BaselineCounts { present: count(self.present)?, absent: count(self.absent)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_baseline_file_is_an_error() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let store = BaselineStore::new(dir.path());
        assert_eq!(store.read().expect("readable store"), None);
        store.save(&LearnedBaseline::default()).expect("nothing to write");
        assert!(!store.path().exists(), "a baseline without samples is not stored");
        let file = |version: u32, present: u64| {
            let counts = format!("{{\"present\":{present},\"absent\":0}}");
            format!("{{\"version\":{version},\"updated_at\":1,\"assets\":{counts},\"links\":{counts}}}")
        };
        for (text, expected) in [
            (String::new(), "EOF"),
            ("[1]".into(), "invalid"),
            ("\0\0\0".into(), "expected value"),
            (file(1, 1000)[..60].into(), "EOF"),
            (file(2, 1), "unsupported version 2"),
            (file(1, u64::MAX), "invalid count"),
            (file(1, 1).replace(":1,", ":-1,"), "invalid value"),
            (" ".repeat(5000), "larger than 4 KiB"),
        ] {
            std::fs::write(store.path(), &text).expect("write file");
            assert!(store.read().is_err() && store.path().exists(), "reading leaves the file where it is");
            let error = store.restore().expect_err("a damaged file").to_string();
            assert!(error.contains("baseline.json: ") && error.contains(expected), "{text}: {error}");
        }
        std::fs::write(store.path(), file(1, 2500)).expect("write file");
        let learned = store.read().expect("a valid file").expect("a file");
        assert_eq!((learned.assets.present, learned.updated_at), (2.5, Timestamp::from_seconds(1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn baseline_file_round_trips(counts in prop::array::uniform4(0u32..8_000_000), at in 1u64..4_000_000_000) {
            let dir = tempfile::tempdir().expect("temporary directory");
            let [present, absent, referers, none] = counts.map(|eighths| eighths as f32 / 8.0);
            let learned = LearnedBaseline {
                updated_at: Timestamp::from_seconds(at),
                assets: BaselineCounts { present, absent: absent + 1.0 },
                links: BaselineCounts { present: referers, absent: none },
            };
            BaselineStore::new(dir.path()).save(&learned).expect("write file");
            prop_assert_eq!(BaselineStore::new(dir.path()).read().expect("readable store"), Some(learned));
        }
    }
}
