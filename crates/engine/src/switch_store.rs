//! Switches of administrators by name, in a file of the state directory: they outlive restarts and reloads.
//!
//! Several gateways merge theirs: of two changes of one target, the later one counts. An ended switch is kept for a week,
//! so that a gateway that missed its end does not bring it back.

use crate::files;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_policy::network::IpPrefix;
use tidegate_policy::switches::{Maintenance, Switch, SwitchEffect, SwitchTarget, Switches};
use tidegate_policy::{ClassId, OperatorId, Timestamp};

/// The switches of a gateway, and their file.
pub struct SwitchStore {
    path: PathBuf,
    /// By target.
    entries: Mutex<BTreeMap<String, SwitchEntry>>,
}

/// Last change of one target, as an administrator made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchEntry {
    /// Network, `operator:NAME`, `class:NAME`, or [`MAINTENANCE`].
    pub target: String,
    /// `block`, `allow` or `maintenance`; `None` if the switch was ended.
    pub effect: Option<String>,
    /// Time of the change, in microseconds since 1970.
    pub changed_at_us: u64,
    /// End of the switch, in seconds since 1970; `None` without one, or if it was ended.
    pub until_s: Option<u64>,
    /// Networks that are served during maintenance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Reason that the administrator gave.
    pub why: Option<String>,
    /// Name of the administrator, which is not verified.
    pub by: Option<String>,
    /// Address or user that the change came from.
    pub peer: Option<String>,
}

/// Error: a change of a switch is not possible.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// There are too many switches.
    #[error("{MAX_SWITCHES} switches are kept; end some, or list the networks in a file of `address_lists`")]
    TooMany,
    /// The change is in effect, but cannot be stored.
    #[error("in effect until the next start only: cannot write {}: {source}", path.display())]
    NotStored {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Error: the stored switches cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct SwitchFileError {
    path: PathBuf,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct SwitchFile {
    version: u32,
    switches: Vec<SwitchEntry>,
}

impl SwitchStore {
    /// Returns a store without switches in `state_dir`. The file need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("switches.json"), entries: Mutex::default() }
    }

    /// Reads the file. A file that cannot be read stays as it is until the next change.
    pub fn read(&self) -> Result<(), SwitchFileError> {
        let unreadable = |reason: String| SwitchFileError { path: self.path.clone(), reason };
        let bytes = files::read_if_exists(&self.path, MAX_FILE_BYTES).map_err(|error| unreadable(error.to_string()))?;
        let Some(bytes) = bytes else { return Ok(()) };
        let file: SwitchFile = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if file.version != VERSION {
            return Err(unreadable(format!("unsupported version {} (this build supports {VERSION})", file.version)));
        }
        let entries = file.switches.into_iter().take(MAX_ENTRIES).map(|entry| (entry.target.clone(), entry));
        *self.entries.lock() = entries.collect();
        Ok(())
    }

    /// Makes a change, which is later than all earlier ones of its target, and stores it.
    pub fn change(&self, mut entry: SwitchEntry, now: Timestamp) -> Result<(), SwitchError> {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| !entry.is_forgotten(now));
        let before = entries.get(&entry.target);
        let current = entries.values().filter(|entry| entry.is_current(now)).count();
        let is_new = before.is_none_or(|before| !before.is_current(now));
        if entry.effect.is_some() && is_new && (current >= MAX_SWITCHES || entries.len() >= MAX_ENTRIES) {
            return Err(SwitchError::TooMany);
        }
        // A clock that went back must not make a change without effect.
        entry.changed_at_us = before.map_or(0, |before| before.changed_at_us + 1).max(entry.changed_at_us);
        entries.insert(entry.target.clone(), entry);
        self.write(&entries).map_err(|source| SwitchError::NotStored { path: self.path.clone(), source })
    }

    /// Takes the later changes of other gateways, within the bounds of the store, and stores them. Returns true if
    /// there were any.
    pub fn merge(&self, others: Vec<SwitchEntry>, now: Timestamp) -> Result<bool, SwitchError> {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| !entry.is_forgotten(now));
        let mut is_changed = false;
        for other in others.into_iter().filter(|other| other.is_valid() && !other.is_forgotten(now)) {
            let before = entries.get(&other.target);
            let has_room = before.is_some() || entries.len() < MAX_ENTRIES;
            if has_room && before.is_none_or(|before| before.changed_at_us < other.changed_at_us) {
                entries.insert(other.target.clone(), other);
                is_changed = true;
            }
        }
        if is_changed {
            self.write(&entries).map_err(|source| SwitchError::NotStored { path: self.path.clone(), source })?;
        }
        Ok(is_changed)
    }

    /// Returns all changes that other gateways may lack.
    pub fn changes(&self, now: Timestamp) -> Vec<SwitchEntry> {
        self.entries.lock().values().filter(|entry| !entry.is_forgotten(now)).cloned().collect()
    }

    /// Returns the switches in effect, by target.
    pub fn current(&self, now: Timestamp) -> Vec<SwitchEntry> {
        self.entries.lock().values().filter(|entry| entry.is_current(now)).cloned().collect()
    }

    /// Returns the switches in effect, resolved by the names of a configuration. One of an unknown name has no effect.
    pub fn resolve(
        &self,
        operator: impl Fn(&str) -> Option<OperatorId>,
        class: impl Fn(&str) -> Option<ClassId>,
        now: Timestamp,
    ) -> Switches {
        let (mut maintenance, mut switches) = (None, Vec::new());
        for entry in self.current(now) {
            let Some(effect) = entry.effect.as_deref().and_then(SwitchEffect::from_name) else { continue };
            let until = entry.until_s.map(Timestamp::from_seconds);
            if entry.target == MAINTENANCE {
                let except = entry.except.iter().filter_map(|network| IpPrefix::parse(network)).collect();
                maintenance = Some(Maintenance { until, except });
                continue;
            }
            let target = match entry.target.split_once(':') {
                Some(("operator", name)) => operator(name).map(SwitchTarget::Operator),
                Some(("class", name)) => class(name).map(SwitchTarget::Class),
                _ => IpPrefix::parse(&entry.target).map(SwitchTarget::Network),
            };
            switches.extend(target.map(|target| (target, Switch { effect, until })));
        }
        Switches::new(maintenance, switches)
    }

    fn write(&self, entries: &BTreeMap<String, SwitchEntry>) -> io::Result<()> {
        let file = SwitchFile { version: VERSION, switches: entries.values().cloned().collect() };
        files::replace(&self.path, &serde_json::to_vec(&file)?)
    }
}

impl SwitchEntry {
    /// Returns true if the switch has an effect at `now`.
    fn is_current(&self, now: Timestamp) -> bool {
        self.effect.is_some() && self.until_s.is_none_or(|until| now < Timestamp::from_seconds(until))
    }

    /// Returns the time after which no gateway needs the change; `None` as long as it is in effect without an end.
    pub fn forgotten_at(&self) -> Option<Timestamp> {
        let ended = match (&self.effect, self.until_s) {
            (Some(_), None) => return None,
            (Some(_), Some(until)) => Timestamp::from_seconds(until),
            (None, _) => Timestamp(self.changed_at_us.saturating_mul(1000)),
        };
        Some(ended + KEPT_AFTER_END)
    }

    fn is_forgotten(&self, now: Timestamp) -> bool {
        self.forgotten_at().is_some_and(|at| at <= now)
    }

    /// Returns true if an entry of another gateway is within the bounds of the API.
    fn is_valid(&self) -> bool {
        let texts = [Some(&self.target), self.why.as_ref(), self.by.as_ref(), self.peer.as_ref()];
        self.except.len() <= MAX_EXCEPTIONS && texts.into_iter().flatten().all(|text| text.len() <= MAX_TEXT_BYTES)
    }
}

/// Target of maintenance.
pub const MAINTENANCE: &str = "maintenance";

/// Maximum number of switches in effect. More addresses belong into a file of `address_lists`.
pub const MAX_SWITCHES: usize = 1000;

/// Maximum number of networks that are served during maintenance.
pub const MAX_EXCEPTIONS: usize = 64;

/// Maximum length of a name or a reason, in bytes.
pub const MAX_TEXT_BYTES: usize = 400;

/// Maximum number of switches in effect and ended within a week.
const MAX_ENTRIES: usize = 10 * MAX_SWITCHES;

/// All entries with texts of the maximum length.
const MAX_FILE_BYTES: usize = MAX_ENTRIES * 4096;

const KEPT_AFTER_END: Duration = Duration::from_secs(7 * 24 * 3600);

/// Version of the file format.
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
    const DAY: u64 = 24 * 3600;

    fn block(target: &str, changed_at: Timestamp) -> SwitchEntry {
        SwitchEntry {
            target: target.to_owned(),
            effect: Some("block".into()),
            changed_at_us: changed_at.0 / 1000,
            until_s: Some(NOW.seconds() + 3600),
            except: Vec::new(),
            why: Some("scrapes".into()),
            by: Some("ann".into()),
            peer: None,
        }
    }

    fn end(target: &str, changed_at: Timestamp) -> SwitchEntry {
        SwitchEntry { effect: None, until_s: None, ..block(target, changed_at) }
    }

    fn after(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(NOW.seconds() + seconds)
    }

    fn targets(store: &SwitchStore, now: Timestamp) -> Vec<String> {
        store.current(now).into_iter().map(|entry| entry.target).collect()
    }

    #[test]
    fn switches_outlive_restarts_until_they_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SwitchStore::new(dir.path());
        store.change(block("192.0.2.0/24", NOW), NOW).expect("stored");
        store.change(block("class:bot", NOW), NOW).expect("stored");
        store.change(end("class:bot", NOW), NOW).expect("stored");
        let restarted = SwitchStore::new(dir.path());
        restarted.read().expect("readable");
        assert_eq!(targets(&restarted, NOW), ["192.0.2.0/24"]);
        assert_eq!(targets(&restarted, after(3600)), [""; 0]);
    }

    #[test]
    fn unreadable_file_is_reported_and_kept_until_the_next_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("switches.json");
        for content in ["{", r#"{"version": 2, "switches": []}"#] {
            std::fs::write(&path, content).expect("writable");
            let store = SwitchStore::new(dir.path());
            let error = store.read().expect_err("unreadable").to_string();
            assert!(error.starts_with(&path.display().to_string()), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("readable"), content);
            store.change(block("192.0.2.0/24", NOW), NOW).expect("stored");
            store.read().expect("readable");
        }
    }

    #[test]
    fn later_change_counts_in_any_order_of_merges() {
        let changes = [block("192.0.2.1/32", NOW), end("192.0.2.1/32", after(1)), block("192.0.2.1/32", after(2))];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let dir = tempfile::tempdir().expect("a directory");
            let store = SwitchStore::new(dir.path());
            for index in order {
                store.merge(vec![changes[index].clone()], NOW).expect("stored");
            }
            assert_eq!(store.changes(NOW), [changes[2].clone()], "{order:?}");
            assert!(!store.merge(changes.to_vec(), NOW).expect("stored"), "nothing is new");
        }
    }

    #[test]
    fn change_counts_although_the_clock_went_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SwitchStore::new(dir.path());
        store.change(block("192.0.2.1/32", after(60)), NOW).expect("stored");
        store.change(end("192.0.2.1/32", NOW), NOW).expect("stored");
        assert_eq!(targets(&store, NOW), [""; 0]);
        let other = SwitchStore::new(tempfile::tempdir().expect("a directory").path());
        let _ = other.merge(vec![block("192.0.2.1/32", after(60))], NOW);
        let _ = other.merge(store.changes(NOW), NOW);
        assert_eq!(targets(&other, NOW), [""; 0], "also on other gateways");
    }

    #[test]
    fn ended_switches_are_forgotten_after_a_week() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SwitchStore::new(dir.path());
        store.change(block("192.0.2.1/32", NOW), NOW).expect("stored");
        store.change(end("192.0.2.1/32", NOW), NOW).expect("stored");
        assert!(!store.merge(vec![block("192.0.2.1/32", NOW)], after(6 * DAY)).expect("stored"));
        assert_eq!(store.changes(after(6 * DAY)).len(), 1);
        assert_eq!(store.changes(after(8 * DAY)), []);
    }

    #[test]
    fn number_and_size_of_switches_are_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SwitchStore::new(dir.path());
        let network = |index: usize| format!("10.{}.{}.0/24", index / 250, index % 250);
        let many = (0..MAX_ENTRIES + 5).map(|index| block(&network(index), NOW)).collect();
        store.merge(many, NOW).expect("stored");
        assert_eq!(store.changes(NOW).len(), MAX_ENTRIES);
        assert!(matches!(store.change(block("192.0.2.1/32", NOW), NOW), Err(SwitchError::TooMany)));
        store.change(end(&network(1), after(1)), NOW).expect("an end is always possible");
        let long = SwitchEntry { why: Some("x".repeat(MAX_TEXT_BYTES + 1)), ..block(&network(2), after(9)) };
        assert!(!store.merge(vec![long], NOW).expect("stored"), "too long for the API of any gateway");
        store.read().expect("the largest file is readable");
    }

    #[test]
    fn names_are_resolved_and_unknown_ones_have_no_effect() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SwitchStore::new(dir.path());
        let resolve = || {
            store.resolve(
                |name| (name == "googlebot").then_some(OperatorId(1)),
                |name| (name == "bot").then_some(ClassId(2)),
                NOW,
            )
        };
        for unknown in ["operator:bot", "class:googlebot", "elsewhere", "operator:"] {
            store.change(block(unknown, NOW), NOW).expect("stored");
        }
        assert!(resolve().is_empty());
        for known in ["operator:googlebot", "class:bot", "2001:db8::/64"] {
            store.change(block(known, NOW), NOW).expect("stored");
            assert!(!resolve().is_empty(), "{known}");
            store.change(end(known, NOW), NOW).expect("stored");
        }
        let maintenance = SwitchEntry { effect: Some("maintenance".into()), ..block(MAINTENANCE, NOW) };
        store.change(maintenance, NOW).expect("stored");
        assert!(!resolve().is_empty());
    }
}
