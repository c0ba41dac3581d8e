//! History of what customers have used: in the state directory, a table of comma-separated values for each month.

use super::ServiceState;
use crate::admin::UsageRecord;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_engine::{Admission, EndedWindow, files};
use tidegate_policy::api_keys::{ApiKey, customer};
use tidegate_policy::{QuotaId, Timestamp, Units};
use tracing::warn;

/// Time after the end of a window at which its usage is recorded: most requests that began in it have ended.
const DELAY: Duration = Duration::from_secs(60);

/// Interval of the checks whether a window has ended. It is short because the clock of a demo runs faster.
const TICK: Duration = Duration::from_secs(1);

/// Windows that are shorter have no history.
const MIN_WINDOW: Duration = Duration::from_secs(3600);

/// Number of months that are kept.
const MAX_MONTHS: usize = 24;

/// Maximum size of the table of a month, in bytes: a million windows of customers.
const MAX_FILE_BYTES: usize = 96 << 20;

/// First line of a table. A file with another one is of another version.
const HEADER: &str = "window_start,window_end,quota,key,class,limit,used";

/// The tables in a state directory.
#[derive(Clone, Debug)]
pub(super) struct UsageHistory {
    dir: PathBuf,
}

/// Windows that are in the history.
#[derive(Debug, Default)]
struct RecordedWindows {
    /// Start of the latest recorded window, by quota.
    recorded: HashMap<String, String>,
    /// Start of the window that was the current one when the earlier ones were recorded, by quota.
    current: HashMap<String, Timestamp>,
}

impl UsageHistory {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.to_owned() }
    }

    /// Returns the records of a month such as `2026-11`, by customer, quota and window.
    pub(super) fn read(&self, month: &str) -> Result<Vec<UsageRecord>, String> {
        if !is_month(month) {
            return Err(format!("month: found {month:?}, needs a month such as 2026-11"));
        }
        let path = self.path(month);
        let bytes = files::read_if_exists(&path, MAX_FILE_BYTES);
        let bytes = bytes.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
        let Some((header, lines)) = text.split_once('\n') else { return Ok(Vec::new()) };
        if header != HEADER {
            return Err(format!("{} is of another version: its first line is not {HEADER}", path.display()));
        }
        // A window is written twice if a kill came in between. A line that a power cut damaged has not all values.
        let records = lines.lines().filter_map(parse);
        let key = |record: &UsageRecord| (record.key.clone(), record.quota.clone(), record.window_start.clone());
        let records: BTreeMap<_, UsageRecord> = records.map(|record| (key(&record), record)).collect();
        Ok(records.into_values().collect())
    }

    /// Appends records to the tables of their months, durably, and removes the tables of months that are too long ago.
    fn append(&self, records: &[(String, UsageRecord)]) -> io::Result<()> {
        for records in records.chunk_by(|(one, _), (other, _)| one == other) {
            let path = self.path(&records[0].0);
            let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(&path)?;
            let length = file.metadata()?.len();
            let mut text = String::new();
            if length == 0 {
                let _ = writeln!(text, "{HEADER}");
            } else {
                let mut last = [0];
                file.read_exact_at(&mut last, length - 1)?;
                // A write that was cut.
                if last != [b'\n'] {
                    text.push('\n');
                }
            }
            records.iter().for_each(|(_, record)| write_line(&mut text, record));
            if length + text.len() as u64 > MAX_FILE_BYTES as u64 {
                return Err(io::Error::new(ErrorKind::FileTooLarge, format!("{} is full", path.display())));
            }
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
        }
        let months = self.months()?;
        months.iter().rev().skip(MAX_MONTHS).try_for_each(|month| fs::remove_file(self.path(month)))
    }

    /// Returns the months with a table, in order.
    fn months(&self) -> io::Result<Vec<String>> {
        let mut months = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let month = name.to_str().and_then(|name| name.strip_prefix("usage.")?.strip_suffix(".csv"));
            months.extend(month.filter(|month| is_month(month)).map(str::to_owned));
        }
        months.sort();
        Ok(months)
    }

    fn path(&self, month: &str) -> PathBuf {
        self.dir.join(format!("usage.{month}.csv"))
    }

    /// Returns the windows in the latest tables.
    fn progress(&self) -> RecordedWindows {
        let mut progress = RecordedWindows::default();
        for month in self.months().unwrap_or_default().iter().rev().take(2) {
            match self.read(month) {
                Ok(records) => {
                    for record in records {
                        let latest = progress.recorded.entry(record.quota).or_default();
                        *latest = record.window_start.max(std::mem::take(latest));
                    }
                }
                Err(error) => warn!("Usage of ended windows may be recorded twice: {error}"),
            }
        }
        progress
    }
}

impl ServiceState {
    /// Records what customers have used in windows that have ended, until dropped.
    pub(super) async fn record_usage_history(&self) {
        let history = UsageHistory::new(&self.startup_settings.state_dir);
        let (mut progress, mut failed) = (None, false);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = self.handle.now();
            if !self.handle.with_admission(has_history) {
                continue;
            }
            let progress = progress.get_or_insert_with(|| history.progress());
            let records = self.handle.with_admission(|admission| ended(admission, progress, now));
            let Some((records, current)) = records else { continue };
            match history.append(&records) {
                Ok(()) => {
                    failed = false;
                    for (_, record) in records {
                        progress.recorded.insert(record.quota, record.window_start);
                    }
                    progress.current.extend(current);
                }
                Err(error) if !failed => {
                    failed = true;
                    warn!("The usage of customers in ended windows cannot be recorded: {error}");
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the recorded usage of a month, by default the current one.
    pub(super) fn usage_of_month(&self, month: Option<&str>) -> Result<Vec<UsageRecord>, String> {
        let current = month_of(self.handle.now());
        UsageHistory::new(&self.startup_settings.state_dir).read(month.unwrap_or(&current))
    }
}

fn has_history(admission: &Admission) -> bool {
    !admission.rules().api_keys.is_empty() && admission.customer_budgets().next().is_some()
}

/// Months and records of the windows that have ended and are not recorded, and the current windows of their quotas; `None` if
/// none has ended.
type Ended = Option<(Vec<(String, UsageRecord)>, Vec<(String, Timestamp)>)>;

fn ended(admission: &Admission, progress: &RecordedWindows, now: Timestamp) -> Ended {
    let (mut records, mut current) = (Vec::new(), Vec::new());
    for id in admission.customer_budgets() {
        let quota = &admission.rules()[id];
        let start = admission.window_start(id, now);
        if progress.current.get(&quota.name) == Some(&start) || now < start + DELAY {
            continue;
        }
        current.push((quota.name.clone(), start));
        for window in admission.ended_windows(id, now) {
            let is_recorded =
                progress.recorded.get(&quota.name).is_some_and(|latest| *latest >= rfc3339(window.span.start));
            if window.span.length() >= MIN_WINDOW && !is_recorded {
                records.extend(records_of(admission, id, &window));
            }
        }
    }
    records.sort_by(|(one, _), (other, _)| one.cmp(other));
    (!current.is_empty()).then_some((records, current))
}

fn records_of(admission: &Admission, id: QuotaId, window: &EndedWindow) -> Vec<(String, UsageRecord)> {
    let (rules, span) = (admission.rules(), window.span);
    let quota = &rules[id];
    let Some(budget) = &quota.budget else { return Vec::new() };
    let used: HashMap<_, Units> = window.used.iter().map(|entry| (entry.key, entry.used)).collect();
    // The middle is in the month in all time zones, as the start of a month is not.
    let month = month_of(span.start + span.length() / 2);
    let record = |(_, key): (&_, &ApiKey)| {
        let customer = customer(&key.name);
        let used = *used.get(&customer).filter(|used| !used.is_zero())?;
        let record = UsageRecord {
            key: key.name.clone(),
            class: rules[key.class].name.clone(),
            quota: quota.name.clone(),
            limit: budget.limit(key.class, customer, quota.limit).into(),
            used: used.into(),
            window_start: rfc3339(span.start),
            window_end: rfc3339(span.end),
        };
        Some((month.clone(), record))
    };
    rules.api_keys.iter().filter_map(record).collect()
}

fn month_of(time: Timestamp) -> String {
    rfc3339(time).chars().take(7).collect()
}

fn is_month(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(text.split_once('-'), Some((year, month)) if year.len() == 4 && month.len() == 2 && digits(year) && digits(month))
}

/// Names of customers, classes and quotas have no character that needs quotes.
fn write_line(text: &mut String, record: &UsageRecord) {
    let UsageRecord { key, class, quota, limit, used, window_start, window_end } = record;
    let [limit, used] = [limit, used].map(|amount| amount.units().unwrap_or_default());
    let _ = writeln!(text, "{window_start},{window_end},{quota},{key},{class},{limit},{used}");
}

fn parse(line: &str) -> Option<UsageRecord> {
    let values: Vec<&str> = line.split(',').collect();
    let [window_start, window_end, quota, key, class, limit, used] = values[..] else { return None };
    let amount = |text: &str| text.parse::<Units>().ok().map(Into::into);
    Some(UsageRecord {
        key: key.to_owned(),
        class: class.to_owned(),
        quota: quota.to_owned(),
        limit: amount(limit)?,
        used: amount(used)?,
        window_start: window_start.to_owned(),
        window_end: window_end.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, day: u32, used: u64) -> (String, UsageRecord) {
        let record = UsageRecord {
            key: key.into(),
            class: "pro".into(),
            quota: "customer".into(),
            limit: Units::from_whole(500).into(),
            used: Units::from_milli(used).into(),
            window_start: format!("2026-11-{day:02}T00:00:00Z"),
            window_end: format!("2026-11-{:02}T00:00:00Z", day + 1),
        };
        ("2026-11".into(), record)
    }

    fn used(history: &UsageHistory) -> Vec<(String, String, String)> {
        let records = history.read("2026-11").expect("a table");
        let used = |record: UsageRecord| (record.key, record.window_start[8..10].to_owned(), record.used.to_string());
        records.into_iter().map(used).collect()
    }

    #[test]
    fn records_outlive_damage_and_count_once() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let history = UsageHistory::new(dir.path());
        assert_eq!(used(&history), []);
        history.append(&[record("acme", 1, 12_250), record("trial", 1, 1000)]).expect("the disk has room");
        // A write that a power cut has cut, and the window once more after the restart.
        let path = history.path("2026-11");
        let text = fs::read_to_string(&path).expect("a table");
        assert!(text.ends_with("2026-11-01T00:00:00Z,2026-11-02T00:00:00Z,customer,trial,pro,500,1\n"), "{text}");
        fs::write(&path, &text[..text.len() - 20]).expect("the disk has room");
        history.append(&[record("acme", 1, 12_250), record("trial", 1, 1000)]).expect("the disk has room");
        history.append(&[record("acme", 2, 3000)]).expect("the disk has room");
        let values = |key: &str, day: &str, used: &str| (key.to_owned(), day.to_owned(), used.to_owned());
        let expected = [values("acme", "01", "12.25"), values("acme", "02", "3"), values("trial", "01", "1")];
        assert_eq!(used(&history), expected);
        assert_eq!(history.progress().recorded["customer"], "2026-11-02T00:00:00Z");
        fs::write(&path, "of another version\n").expect("the disk has room");
        assert!(history.read("2026-11").is_err_and(|error| error.contains("is of another version")));
    }

    #[test]
    fn months_are_bounded_and_are_no_paths() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let history = UsageHistory::new(dir.path());
        for year in 2020..2024 {
            for month in 1..=12 {
                let (_, record) = record("acme", 1, 1000);
                history.append(&[(format!("{year}-{month:02}"), record)]).expect("the disk has room");
            }
        }
        let months = history.months().expect("a directory");
        assert_eq!((months.len(), months[0].as_str()), (MAX_MONTHS, "2022-01"));
        for month in ["../etc", "2026-1", "2026-011", "", "2026/11"] {
            assert!(history.read(month).is_err(), "{month}");
        }
    }
}
