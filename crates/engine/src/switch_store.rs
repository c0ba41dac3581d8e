//! Switches of administrators by name, in a file of the state directory: they outlive restarts and reloads.
//!
//! Several gateways merge theirs: of two changes of one target, the later one counts. An ended switch is kept for a week,
//! so that a gateway that missed its end does not bring it back.

use crate::state_file::{StateFile, StateFileError, check_version};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_policy::display::alters_display;
use tidegate_policy::network::IpPrefix;
use tidegate_policy::switches::{Maintenance, Switch, SwitchEffect, SwitchTarget, Switches};
use tidegate_policy::{ClassId, OperatorId, Timestamp};

/// The switches of a gateway, and their file.
pub struct SwitchStore {
    file: StateFile,
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
    #[error("{MAX_SWITCHES} switches are in effect; end some, or list the networks in a file of `address_lists`")]
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

#[derive(Serialize)]
struct SwitchFile<'e> {
    version: u32,
    switches: Vec<&'e SwitchEntry>,
}

/// The file, with entries that may be damaged.
#[derive(Deserialize)]
struct StoredSwitches {
    version: u32,
    switches: Vec<serde_json::Value>,
}

impl SwitchStore {
    /// Returns a store without switches in `state_dir`. The file need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self { file: StateFile::new(state_dir, "switches.json", MAX_FILE_BYTES), entries: Mutex::default() }
    }

    /// Reads the file. A file that cannot be read in whole or in part is set aside, so that the next change does not
    /// overwrite it; what can be read of it is in effect.
    pub fn restore(&self) -> Result<(), StateFileError> {
        self.file.restore(|bytes| self.parse(bytes)).map(Option::unwrap_or_default)
    }

    /// Takes the entries of a file. Returns an error if some are invalid.
    fn parse(&self, bytes: &[u8]) -> Result<(), String> {
        let file: StoredSwitches = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        check_version(file.version, VERSION..=VERSION)?;
        let count = file.switches.len();
        let entries: BTreeMap<String, SwitchEntry> = file
            .switches
            .into_iter()
            .take(MAX_ENTRIES)
            .filter_map(|entry| serde_json::from_value(entry).ok().filter(SwitchEntry::is_valid))
            .map(|entry| (entry.target.clone(), entry))
            .collect();
        let invalid = count - entries.len();
        *self.entries.lock() = entries;
        match invalid {
            0 => Ok(()),
            _ => Err(format!("{invalid} of {count} switches are invalid, the others are in effect")),
        }
    }

    /// Makes a change, which is later than all earlier ones of its target, and stores it.
    pub fn change(&self, mut entry: SwitchEntry, now: Timestamp) -> Result<(), SwitchError> {
        let mut entries = self.entries.lock();
        let before = entries.get(&entry.target);
        let current = entries.values().filter(|entry| entry.is_current(now)).count();
        let is_new = before.is_none_or(|before| !before.is_current(now));
        if entry.effect.is_some() && is_new && current >= MAX_SWITCHES {
            return Err(SwitchError::TooMany);
        }
        // A clock that went back must not make a change without effect.
        let earliest = before.map_or(0, |before| before.changed_at_us.saturating_add(1));
        entry.changed_at_us = entry.changed_at_us.max(earliest);
        if !make_room(&mut entries, &entry.target, now) {
            return Err(SwitchError::TooMany);
        }
        entries.insert(entry.target.clone(), entry);
        self.write(&entries).map_err(|source| SwitchError::NotStored { path: self.file.path().to_owned(), source })
    }

    /// Takes the later changes of other gateways, within the bounds of the store, and stores them. Returns true if
    /// there were any.
    pub fn merge(&self, others: Vec<SwitchEntry>, now: Timestamp) -> Result<bool, SwitchError> {
        let mut entries = self.entries.lock();
        let mut is_changed = false;
        let latest = (now + MAX_CLOCK_DIFFERENCE).0 / 1000;
        let is_acceptable =
            |other: &SwitchEntry| other.is_valid() && !other.is_forgotten(now) && other.changed_at_us <= latest;
        for other in others.into_iter().filter(is_acceptable) {
            let is_later = entries.get(&other.target).is_none_or(|before| before.changed_at_us < other.changed_at_us);
            if is_later && make_room(&mut entries, &other.target, now) {
                entries.insert(other.target.clone(), other);
                is_changed = true;
            }
        }
        if is_changed {
            self.write(&entries)
                .map_err(|source| SwitchError::NotStored { path: self.file.path().to_owned(), source })?;
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
        self.file.save(&SwitchFile { version: VERSION, switches: entries.values().collect() })
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

    /// Returns true if an entry of the file or of another gateway is one that the API accepts.
    fn is_valid(&self) -> bool {
        let fits = |text: &String| text.len() <= MAX_TEXT_BYTES && !text.contains(alters_display);
        let is_network = |text: &String| IpPrefix::parse(text).is_some_and(|network| network.to_string() == *text);
        let is_target = match self.target.split_once(':') {
            _ if self.target == MAINTENANCE => true,
            Some(("operator" | "class", _)) => fits(&self.target),
            _ => is_network(&self.target),
        };
        let is_maintenance = self.effect.as_deref() == Some(SwitchEffect::Maintenance.name());
        is_target
            && (self.effect.is_none() || is_maintenance == (self.target == MAINTENANCE))
            && self.except.len() <= MAX_EXCEPTIONS
            && self.except.iter().all(|network| fits(network) && IpPrefix::parse(network).is_some())
            && [&self.why, &self.by, &self.peer].into_iter().flatten().all(fits)
    }
}

/// Returns true if there is a place for `target`: its own, a free one, or that of the switch that ended longest ago.
fn make_room(entries: &mut BTreeMap<String, SwitchEntry>, target: &str, now: Timestamp) -> bool {
    if entries.contains_key(target) {
        return true;
    }
    if entries.len() >= MAX_ENTRIES {
        entries.retain(|_, entry| !entry.is_forgotten(now));
    }
    if entries.len() >= MAX_ENTRIES {
        let ended = entries.values().filter(|entry| !entry.is_current(now));
        let oldest = ended.min_by_key(|entry| entry.forgotten_at()).map(|entry| entry.target.clone());
        oldest.and_then(|target| entries.remove(&target));
    }
    entries.len() < MAX_ENTRIES
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

/// Difference of the clocks of two gateways, beyond which a change from the future is wrong.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(24 * 3600);

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
        restarted.restore().expect("readable");
        assert_eq!(targets(&restarted, NOW), ["192.0.2.0/24"]);
        assert_eq!(targets(&restarted, after(3600)), [""; 0]);
    }

    #[test]
    fn unreadable_file_is_reported_and_set_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("switches.json");
        for content in ["{", r#"{"version": 2, "switches": []}"#] {
            std::fs::write(&path, content).expect("writable");
            let store = SwitchStore::new(dir.path());
            let error = store.restore().expect_err("unreadable").to_string();
            assert!(error.starts_with(&path.display().to_string()), "{error}");
            let aside = dir.path().join("switches.json.unreadable");
            assert!(error.ends_with(&format!("the file is now {}", aside.display())), "{error}");
            store.change(block("192.0.2.0/24", NOW), NOW).expect("stored");
            assert_eq!(std::fs::read_to_string(&aside).expect("kept"), content);
            store.restore().expect("readable");
        }
    }

    #[test]
    fn invalid_entries_do_not_take_others_with_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let entry = |entry: SwitchEntry| serde_json::to_value(entry).expect("JSON");
        let valid = block("192.0.2.0/24", NOW);
        let entries = [
            serde_json::json!({ "target": 7 }),
            entry(block("192.0.2.9/24", NOW)),
            entry(block("class:a\u{202e}b", NOW)),
            entry(SwitchEntry { effect: Some("maintenance".into()), ..block("192.0.2.1/32", NOW) }),
            entry(block(MAINTENANCE, NOW)),
            entry(SwitchEntry { except: vec!["all".into()], ..block("192.0.2.2/32", NOW) }),
            entry(SwitchEntry { by: Some("\x1b[2J".into()), ..block("192.0.2.3/32", NOW) }),
            entry(valid.clone()),
        ];
        let file = serde_json::json!({ "version": 1, "switches": entries });
        std::fs::write(dir.path().join("switches.json"), file.to_string()).expect("writable");
        let store = SwitchStore::new(dir.path());
        let error = store.restore().expect_err("invalid entries").to_string();
        assert!(error.contains("7 of 8 switches are invalid, the others are in effect"), "{error}");
        assert_eq!(store.current(NOW), [valid]);
    }

    #[test]
    fn change_from_the_far_future_can_be_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SwitchStore::new(dir.path());
        let future = SwitchEntry { changed_at_us: u64::MAX, ..block("192.0.2.0/24", NOW) };
        assert!(!store.merge(vec![future.clone()], NOW).expect("stored"), "of another gateway");
        store.change(future, NOW).expect("stored");
        store.change(end("192.0.2.0/24", NOW), NOW).expect("stored");
        assert_eq!(targets(&store, NOW), [""; 0]);
    }

    #[test]
    fn ended_switches_make_room_for_new_ones() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = SwitchStore::new(dir.path());
        let network = |index: usize| format!("10.{}.{}.0/24", index / 250, index % 250);
        store
            .merge((0..MAX_ENTRIES).map(|index| end(&network(index), after(index as u64))).collect(), NOW)
            .expect("stored");
        store.change(block("192.0.2.1/32", after(1)), after(1)).expect("stored");
        let kept = store.changes(after(1));
        assert_eq!(kept.len(), MAX_ENTRIES);
        assert!(kept.iter().all(|entry| entry.target != network(0)), "it ended longest ago");
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
        store.restore().expect("the largest file is readable");
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
        for unknown in ["operator:bot", "class:googlebot", "operator:"] {
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
