//! File in the state directory with the learned demand.
//!
//! The file holds days of observation, not accounting: if it is unreadable, a warning is logged and learning restarts.
//! A crash may lose the last minute of observations.

use crate::LearnedDemand;
use crate::files;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use tidegate_policy::Units;
use tidegate_policy::pacing::week::{HOURS_PER_WEEK, HourProfile};

/// Version of the file format.
const VERSION: u32 = 1;
/// Large enough for a thousand quotas with several classes each.
const MAX_FILE_BYTES: usize = 64 << 20;
/// Upper bound of the weeks that the gateway counts.
const MAX_WEEKS: u32 = 100;

/// Stores the learned demand in a file.
pub struct DemandStore {
    path: PathBuf,
    /// Content of the file, if known: the last content read or written.
    content: Mutex<Vec<u8>>,
}

/// Error: the learned demand cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct DemandStoreError {
    path: PathBuf,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct DemandFile {
    version: u32,
    demand: Vec<DemandEntry>,
}

#[derive(Serialize, Deserialize)]
struct DemandEntry {
    quota: String,
    class: String,
    /// For each hour of the week: demand in thousandths of a unit, and number of weeks.
    hours: Vec<(u64, u32)>,
}

impl DemandStore {
    /// Returns the store in `state_dir`. The file need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("demand.json"), content: Mutex::default() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the stored demand, or an empty list if there is no file. A file that cannot be read is set aside: it may be of a
    /// later version.
    pub fn restore(&self) -> Result<Vec<LearnedDemand>, DemandStoreError> {
        self.read_with(|reason| files::set_aside_for(&self.path, &reason))
    }

    /// Like [`Self::restore`], and leaves the file where it is.
    pub fn read(&self) -> Result<Vec<LearnedDemand>, DemandStoreError> {
        self.read_with(|reason| reason)
    }

    fn read_with(&self, on_invalid: impl FnOnce(String) -> String) -> Result<Vec<LearnedDemand>, DemandStoreError> {
        let unreadable = |reason: String| DemandStoreError { path: self.path.clone(), reason };
        let bytes = files::read_if_exists(&self.path, MAX_FILE_BYTES).map_err(|error| unreadable(error.to_string()))?;
        let Some(bytes) = bytes else { return Ok(Vec::new()) };
        parse(&bytes).map_err(|reason| unreadable(on_invalid(reason)))
    }

    /// Writes `learned` if it differs from the content of the file, which is replaced atomically.
    pub fn save(&self, learned: &[LearnedDemand]) -> io::Result<()> {
        let demand: Vec<DemandEntry> = learned.iter().map(DemandEntry::from_demand).collect();
        let bytes = serde_json::to_vec(&DemandFile { version: VERSION, demand })?;
        let mut content = self.content.lock();
        if learned.is_empty() || *content == bytes {
            return Ok(());
        }
        if let Some(dir) = self.path.parent() {
            files::create_dir(dir)?;
        }
        files::replace(&self.path, &bytes)?;
        *content = bytes;
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<LearnedDemand>, String> {
    let file: DemandFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if file.version != VERSION {
        return Err(format!("unsupported version {} (this build supports {VERSION})", file.version));
    }
    let learned: Option<Vec<LearnedDemand>> = file.demand.into_iter().map(DemandEntry::into_demand).collect();
    learned.ok_or_else(|| "invalid hour".into())
}

impl DemandEntry {
    fn from_demand(learned: &LearnedDemand) -> Self {
        let hours = learned.week.iter().map(|hour| ((hour.units * 1000.0).round() as u64, hour.weeks as u32)).collect();
        Self { quota: learned.quota.clone(), class: learned.class.clone(), hours }
    }

    fn into_demand(self) -> Option<LearnedDemand> {
        let hour = |(milli, weeks): (u64, u32)| {
            let is_valid = milli <= Units::MAX.milli() && weeks <= MAX_WEEKS;
            is_valid.then(|| HourProfile { units: Units::from_milli(milli).as_f64(), weeks: f64::from(weeks) })
        };
        let hours: Option<Vec<HourProfile>> = self.hours.into_iter().map(hour).collect();
        let week: [HourProfile; HOURS_PER_WEEK] = hours?.try_into().ok()?;
        Some(LearnedDemand { quota: self.quota, class: self.class, week })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demand_with_hours(hours: Vec<(u64, u32)>) -> LearnedDemand {
        DemandEntry { quota: "api".into(), class: "person".into(), hours }.into_demand().expect("valid hours")
    }

    #[test]
    fn invalid_demand_file_is_an_error() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let store = DemandStore::new(dir.path());
        assert_eq!(store.read().expect("readable store"), []);
        for (text, expected) in [
            ("", "EOF"),
            ("{\"version\":2,\"demand\":[]}", "unsupported version 2"),
            ("{\"version\":1,\"demand\":[{\"quota\":\"q\",\"class\":\"c\",\"hours\":[[1,1]]}]}", "invalid hour"),
            ("\0\0\0", "expected value"),
        ] {
            std::fs::write(dir.path().join("demand.json"), text).expect("write file");
            assert!(store.read().is_err() && store.path().exists(), "reading leaves the file where it is");
            let error = store.restore().expect_err("a damaged file").to_string();
            assert!(error.contains("demand.json: ") && error.contains(expected), "{error}");
            let aside = std::fs::read_to_string(dir.path().join("demand.json.unreadable")).expect("set aside");
            assert_eq!(aside, text);
        }
        for hour in [(u64::MAX, 1), (1, u32::MAX)] {
            let entry = DemandEntry { quota: "q".into(), class: "c".into(), hours: vec![hour; HOURS_PER_WEEK] };
            assert_eq!(entry.into_demand(), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn demand_file_round_trips(hours in prop::collection::vec((0u64..1_000_000_000, 0u32..4), HOURS_PER_WEEK)) {
            let dir = tempfile::tempdir().expect("temporary directory");
            let (store, learned) = (DemandStore::new(dir.path()), demand_with_hours(hours));
            store.save(std::slice::from_ref(&learned)).expect("write file");
            prop_assert_eq!(DemandStore::new(dir.path()).read().expect("readable store"), vec![learned]);
        }
    }
}
