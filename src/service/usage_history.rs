//! History of what customers have used: in the state directory, a table of comma-separated values for each month.

use super::ServiceState;
use crate::admin::UsageRecord;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_engine::{Admission, EndedWindow, files};
use tidegate_policy::api_keys::{ApiKey, customer};
use tidegate_policy::window::Span;
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

/// Maximum length of a line, which names of customers, classes and quotas do not exceed, in bytes.
const MAX_LINE_BYTES: u64 = 1024;

/// First line of a table. A file with another one is of another version.
const HEADER: &str = "window_start,window_end,quota,key,class,limit,used";

/// The tables in a state directory.
#[derive(Clone, Debug)]
pub(super) struct UsageHistory {
    dir: PathBuf,
}

/// What this process has recorded, by quota: the window that was the current one when it recorded those before.
type RecordedUntil = HashMap<String, Span>;

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
        // What follows the last line break is a line that was cut.
        let lines = lines.rsplit_once('\n').map_or("", |(lines, _)| lines);
        if header != HEADER {
            return Err(format!("{} is of another version: its first line is not {HEADER}", path.display()));
        }
        // Of two records of a window, as one that was corrected, the later one counts.
        let records = lines.lines().filter_map(parse);
        let records: BTreeMap<_, UsageRecord> = records.map(|record| (window(&record), record)).collect();
        Ok(records.into_values().collect())
    }

    /// Removes the records that are in the tables of their months.
    fn remove_recorded(&self, records: &mut Vec<(String, UsageRecord)>) -> Result<(), String> {
        let months: BTreeSet<String> = records.iter().map(|(month, _)| month.clone()).collect();
        for month in months {
            let recorded: HashMap<_, UsageRecord> =
                self.read(&month)?.into_iter().map(|record| (window(&record), record)).collect();
            let is_missing = |record: &UsageRecord| {
                recorded.get(&window(record)).is_none_or(|recorded| recorded.used.units() != record.used.units())
            };
            records.retain(|(of_month, record)| *of_month != month || is_missing(record));
        }
        Ok(())
    }

    /// Appends records to the tables of their months, durably, and removes the tables of months that are too long ago.
    fn append(&self, records: &[(String, UsageRecord)]) -> io::Result<()> {
        for records in records.chunk_by(|(one, _), (other, _)| one == other) {
            let path = self.path(&records[0].0);
            let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(&path)?;
            let length = remove_cut_line(&file)?;
            let mut text = if length == 0 { format!("{HEADER}\n") } else { String::new() };
            records.iter().for_each(|(_, record)| write_line(&mut text, record));
            if length + text.len() as u64 > MAX_FILE_BYTES as u64 {
                return Err(io::Error::new(ErrorKind::FileTooLarge, format!("{} is full", path.display())));
            }
            file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).inspect_err(|_| {
                // What a full disk has cut is written once there is room.
                let _ = file.set_len(length);
            })?;
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
}

/// Removes the end of a table after its last line break, which a kill has cut. Returns the length of the rest.
fn remove_cut_line(file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(MAX_LINE_BYTES);
    let mut end = vec![0; (length - start) as usize];
    file.read_exact_at(&mut end, start)?;
    let kept = end.iter().rposition(|&byte| byte == b'\n').map_or(start, |last| start + last as u64 + 1);
    if kept < length {
        file.set_len(kept)?;
    }
    Ok(kept)
}

impl ServiceState {
    /// Records what customers have used in windows that have ended, until dropped.
    pub(super) async fn record_usage_history(&self) {
        let history = UsageHistory::new(&self.startup_settings.state_dir);
        let (mut progress, mut failed) = (RecordedUntil::new(), false);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = self.handle.now();
            if !self.handle.with_admission(has_history) {
                continue;
            }
            let ended = self.handle.with_admission(|admission| ended(admission, &progress, now));
            let Some((mut records, current)) = ended else { continue };
            let appended = history
                .remove_recorded(&mut records)
                .and_then(|()| history.append(&records).map_err(|error| error.to_string()));
            match appended {
                Ok(()) => {
                    failed = false;
                    progress.extend(current);
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

/// Months and records of the windows that have ended since the latest ones were recorded, and the current windows of their quotas;
/// `None` if none has ended.
type Ended = Option<(Vec<(String, UsageRecord)>, Vec<(String, Span)>)>;

fn ended(admission: &Admission, progress: &RecordedUntil, now: Timestamp) -> Ended {
    let (mut records, mut current) = (Vec::new(), Vec::new());
    for id in admission.customer_budgets() {
        let quota = &admission.rules()[id];
        let (span, recorded) = (admission.history_span(id, now), progress.get(&quota.name));
        // After a start, windows before the last one have waited long enough, and the next request may take their place.
        let is_early = now < span.start + DELAY;
        if recorded == Some(&span) || is_early && recorded.is_some() {
            continue;
        }
        let before = Timestamp(span.start.0.saturating_sub(1));
        let reached = if is_early { quota.history_span(before) } else { span };
        current.push((quota.name.clone(), reached));
        for window in admission.ended_windows(id, now) {
            if window.span.length() >= MIN_WINDOW && window.span.end + DELAY <= now {
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
    let months = 1..=12;
    matches!(text.split_once('-'), Some((year, month)) if year.len() == 4 && digits(year) && month.len() == 2
        && digits(month) && month.parse().is_ok_and(|month: u32| months.contains(&month)))
}

/// Returns what identifies a record.
fn window(record: &UsageRecord) -> [String; 4] {
    [&record.key, &record.quota, &record.window_start, &record.window_end].map(String::clone)
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
        let cut = used(&history);
        assert_eq!(cut, [("acme".to_owned(), "01".to_owned(), "12.25".to_owned())], "a line that is cut has no usage");
        let mut missing = vec![record("acme", 1, 12_250), record("trial", 1, 1000)];
        history.remove_recorded(&mut missing).expect("a table");
        assert_eq!(missing.len(), 1, "what the cut write has recorded is not written again");
        history.append(&missing).expect("the disk has room");
        history.append(&[record("acme", 2, 3000)]).expect("the disk has room");
        let values = |key: &str, day: &str, used: &str| (key.to_owned(), day.to_owned(), used.to_owned());
        let expected = [values("acme", "01", "12.25"), values("acme", "02", "3"), values("trial", "01", "1")];
        assert_eq!(used(&history), expected);
        // A number that is cut is no smaller number.
        let text = fs::read_to_string(&path).expect("a table");
        for length in text.len() - 80..text.len() {
            fs::write(&path, &text[..length]).expect("the disk has room");
            let mut rest = vec![record("acme", 1, 12_250), record("trial", 1, 1000), record("acme", 2, 3000)];
            history.remove_recorded(&mut rest).expect("a table");
            history.append(&rest).expect("the disk has room");
            assert_eq!(used(&history), expected.to_vec(), "{length}");
            assert!((1..=2).contains(&rest.len()), "{length}: {rest:?}");
        }
        // So is a first line.
        fs::write(&path, "window_start,wind").expect("the disk has room");
        history.append(&[record("acme", 1, 1000)]).expect("the disk has room");
        assert_eq!(used(&history), [values("acme", "01", "1")]);
        // A window with another end is another one.
        let (month, mut longer) = record("acme", 1, 9000);
        longer.window_end = "2026-12-01T00:00:00Z".into();
        history.append(&[(month, longer)]).expect("the disk has room");
        assert_eq!(used(&history).len(), 2);
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
        for month in ["../etc", "2026-1", "2026-011", "", "2026/11", "2026-00", "2026-13", "2026-99"] {
            assert!(history.read(month).is_err(), "{month}");
        }
    }
}
