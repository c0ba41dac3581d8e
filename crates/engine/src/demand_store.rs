//! File in the state directory with the learned demand.
//!
//! The file holds days of observation, not accounting: if it is unreadable, a warning is logged and learning restarts.
//! A crash may lose the last minute of observations.

use crate::LearnedDemand;
use crate::state_file::{StateFile, StateFileError, check_version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use tidegate_policy::pacing::surge::OperatorProfile;
use tidegate_policy::pacing::week::{HOURS_PER_WEEK, HourProfile};
use tidegate_policy::{OperatorId, Units};

/// Version of the file format. Version 1 has no operators.
const VERSION: u32 = 2;
/// Large enough for a thousand quotas with several classes each.
const MAX_FILE_BYTES: usize = 64 << 20;
/// Upper bound of the weeks that the gateway counts.
const MAX_WEEKS: u32 = 100;

/// Stores the learned demand in a file.
pub struct DemandStore {
    file: StateFile,
    /// Names of the operators, by [`OperatorId`].
    operators: Vec<String>,
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
    hours: HourEntries,
    /// Part of single operators, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operators: Option<BTreeMap<String, HourEntries>>,
}

/// For each hour of the week: demand in thousandths of a unit, and number of weeks.
type HourEntries = Vec<(u64, u32)>;

impl DemandStore {
    /// Returns the store in `state_dir`. The file need not exist. `operators` are the names of all operators, by
    /// [`OperatorId`]; others in the file are ignored.
    pub fn new<'a>(state_dir: &Path, operators: impl IntoIterator<Item = &'a str>) -> Self {
        let operators = operators.into_iter().map(str::to_owned).collect();
        Self { file: StateFile::new(state_dir, "demand.json", MAX_FILE_BYTES), operators }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the stored demand, or an empty list if there is no file. A file that cannot be read is set aside.
    pub fn restore(&self) -> Result<Vec<LearnedDemand>, StateFileError> {
        self.file.restore(|bytes| parse(bytes, &self.operators)).map(Option::unwrap_or_default)
    }

    /// Like [`Self::restore`], and leaves the file where it is.
    pub fn read(&self) -> Result<Vec<LearnedDemand>, StateFileError> {
        self.file.read(|bytes| parse(bytes, &self.operators)).map(Option::unwrap_or_default)
    }

    /// Writes `learned`, unless it is empty.
    pub fn save(&self, learned: &[LearnedDemand]) -> io::Result<()> {
        if learned.is_empty() {
            return Ok(());
        }
        let demand = learned.iter().map(|learned| DemandEntry::new(learned, &self.operators)).collect();
        self.file.save(&DemandFile { version: VERSION, demand })
    }
}

fn parse(bytes: &[u8], operators: &[String]) -> Result<Vec<LearnedDemand>, String> {
    let file: DemandFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    check_version(file.version, 1..=VERSION)?;
    let learned: Option<Vec<LearnedDemand>> =
        file.demand.into_iter().map(|entry| entry.into_demand(operators)).collect();
    learned.ok_or_else(|| "invalid hour".into())
}

impl DemandEntry {
    fn new(learned: &LearnedDemand, names: &[String]) -> Self {
        let named =
            |(operator, week): &OperatorProfile| Some((names.get(operator.index())?.clone(), hour_entries(week)));
        Self {
            quota: learned.quota.clone(),
            class: learned.class.clone(),
            hours: hour_entries(&learned.week),
            operators: learned.operators.as_ref().map(|operators| operators.iter().filter_map(named).collect()),
        }
    }

    fn into_demand(self, names: &[String]) -> Option<LearnedDemand> {
        let id = |name: &str| names.iter().position(|known| known == name).map(OperatorId::from_index);
        let profile = |(name, hours): (String, HourEntries)| week(hours).map(|week| id(&name).map(|id| (id, week)));
        let profiles = |operators: BTreeMap<String, HourEntries>| operators.into_iter().map(profile).collect();
        let operators: Option<Option<Vec<Option<OperatorProfile>>>> = self.operators.map(profiles);
        let operators = match operators {
            None => None,
            Some(profiles) => Some(profiles?.into_iter().flatten().collect()),
        };
        Some(LearnedDemand { quota: self.quota, class: self.class, week: week(self.hours)?, operators })
    }
}

fn hour_entries(week: &[HourProfile; HOURS_PER_WEEK]) -> HourEntries {
    week.iter().map(|hour| ((hour.units * 1000.0).round() as u64, hour.weeks as u32)).collect()
}

/// Returns the profile of the hours; `None` if one is invalid.
fn week(hours: HourEntries) -> Option<[HourProfile; HOURS_PER_WEEK]> {
    let hour = |(milli, weeks): (u64, u32)| {
        let is_valid = milli <= Units::MAX.milli() && weeks <= MAX_WEEKS;
        is_valid.then(|| HourProfile { units: Units::from_milli(milli).as_f64(), weeks: f64::from(weeks) })
    };
    let hours: Option<Vec<HourProfile>> = hours.into_iter().map(hour).collect();
    hours?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 2] = ["googlebot", "bingbot"];

    fn demand_with_hours(hours: Vec<(u64, u32)>) -> LearnedDemand {
        let operators = Some([("bingbot".into(), hours.clone())].into());
        let entry = DemandEntry { quota: "api".into(), class: "person".into(), hours, operators };
        entry.into_demand(&NAMES.map(str::to_owned)).expect("valid hours")
    }

    #[test]
    fn invalid_demand_file_is_an_error() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let store = DemandStore::new(dir.path(), NAMES);
        assert_eq!(store.read().expect("readable store"), []);
        for (text, expected) in [
            ("", "EOF"),
            ("{\"version\":3,\"demand\":[]}", "unsupported version 3"),
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
            let hours = || vec![hour; HOURS_PER_WEEK];
            let entry = |hours, operators| DemandEntry { quota: "q".into(), class: "c".into(), hours, operators };
            assert_eq!(entry(hours(), None).into_demand(&[]), None);
            let operators = Some([("googlebot".to_owned(), hours())].into());
            assert_eq!(entry(vec![(1, 1); HOURS_PER_WEEK], operators).into_demand(&[]), None);
        }
    }

    #[test]
    fn file_of_an_older_version_is_read_and_names_identify_operators() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let hours = format!("[{}]", vec!["[2000,3]"; HOURS_PER_WEEK].join(","));
        let file = |version: u32, operators: &str| {
            let text = format!(
                r#"{{"version":{version},"demand":[{{"quota":"api","class":"search","hours":{hours}{operators}}}]}}"#
            );
            std::fs::write(dir.path().join("demand.json"), text).expect("write file");
            DemandStore::new(dir.path(), NAMES).restore().expect("a valid file").remove(0)
        };
        let older = file(1, "");
        assert_eq!((older.week[0], older.operators), (HourProfile { units: 2.0, weeks: 3.0 }, None));
        let newer = file(2, &format!(r#","operators":{{"bingbot":{hours},"gone":{hours}}}"#));
        assert_eq!(newer.operators, Some(vec![(OperatorId(1), newer.week)]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn demand_file_round_trips(hours in prop::collection::vec((0u64..1_000_000_000, 0u32..4), HOURS_PER_WEEK)) {
            let dir = tempfile::tempdir().expect("temporary directory");
            let (store, learned) = (DemandStore::new(dir.path(), NAMES), demand_with_hours(hours));
            store.save(std::slice::from_ref(&learned)).expect("write file");
            prop_assert_eq!(DemandStore::new(dir.path(), NAMES).read().expect("readable store"), vec![learned]);
        }
    }
}
