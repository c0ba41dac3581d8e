//! Several responses of one URL, selected by request fields.
//!
//! What `Vary` names counts for its own URL alone, or one odd page would split the copies of a whole route. Responses of
//! one URL may name different fields. Each set of them is kept, and a request looks in all sets: a new one makes no stored
//! response unreachable.

use super::key::{CacheKey, SelectedValues};
use super::saving::Saving;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_http_cache::vary::{MAX_SELECTING_FIELDS, SelectingFields};
use tidegate_http1::Fields;
use tidegate_policy::Timestamp;

/// Time after which a name is forgotten, if the later responses of the URL do not name it.
const NAME_TIME: Duration = Duration::from_secs(3600);

/// Most sets of fields of one URL. A response with another one is not stored while copies of all of them are fresh.
pub(super) const MAX_SETS: usize = 8;

/// Request fields that select among the responses of a URL.
#[derive(Debug)]
pub(in crate::gateway) struct Variants {
    pub(super) url: Box<str>,
    /// Part of the keys of the responses. Without this entry, they are not found.
    pub(super) salt: u64,
    /// Fields that responses named. The origin is sent them.
    pub(super) names: Vec<NamedField>,
    /// Sets of fields that select responses, that of the last one first. Not empty.
    pub(super) sets: Vec<FieldSet>,
    /// What the response saves that saves most.
    pub(super) saving: Saving,
    /// Time of the last write to the URL, in nanoseconds: responses requested before are invalidated.
    pub(super) written_at: AtomicU64,
}

/// A request field that `Vary` named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedField {
    pub(super) name: String,
    /// Time of the last response that named it.
    pub(super) named_at: Timestamp,
}

/// Fields that together select responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldSet {
    pub(super) fields: SelectingFields,
    /// End of the freshness of all responses that they select.
    pub(super) fresh_until: Timestamp,
}

/// What selects a response that is to be stored.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Selection {
    /// Fields that the response named.
    pub(super) named: SelectingFields,
    /// Fields that select it: those, what else the origin was sent because others named it, and those of the rules.
    pub(super) fields: SelectingFields,
    /// Their values in the request.
    pub(super) values: SelectedValues,
}

impl Variants {
    /// Returns what selects among the responses of `url` once it has one that `selection` selects, fresh until
    /// `fresh_until`; `known` did so before. Returns `None` if there are too many sets of fields.
    pub(super) fn with(
        known: Option<&Self>,
        selection: &Selection,
        (now, fresh_until): (Timestamp, Timestamp),
        new: impl FnOnce() -> Self,
    ) -> Option<Self> {
        let mut variants = known.map_or_else(new, Self::copied);
        variants.name(&selection.named, now);
        let mut set = FieldSet { fields: selection.fields.clone(), fresh_until };
        if let Some(at) = variants.sets.iter().position(|known| known.fields == set.fields) {
            set.fresh_until = set.fresh_until.max(variants.sets.remove(at).fresh_until);
        } else if variants.sets.len() >= MAX_SETS {
            let at = variants.sets.iter().rposition(|known| known.fresh_until <= now)?;
            variants.sets.remove(at);
        }
        variants.sets.insert(0, set);
        Some(variants)
    }

    /// Returns what selects among the responses of `url`, which has none yet.
    pub(super) fn new(url: &str, salt: u64) -> Self {
        Self {
            url: url.into(),
            salt,
            names: Vec::new(),
            sets: Vec::new(),
            saving: Saving::NOTHING,
            written_at: AtomicU64::default(),
        }
    }

    fn copied(&self) -> Self {
        let written_at = AtomicU64::new(self.written_at.load(Ordering::Acquire));
        let Self { url, salt, names, sets, saving, .. } = self;
        Self { url: url.clone(), salt: *salt, names: names.clone(), sets: sets.clone(), saving: *saving, written_at }
    }

    /// Records the fields that a response named at `now`, and forgets those that were named long before.
    fn name(&mut self, named: &SelectingFields, now: Timestamp) {
        self.names
            .retain(|known| !named.contains(&known.name) && now.saturating_duration_since(known.named_at) < NAME_TIME);
        self.names.extend(named.names().map(|name| NamedField { name: name.to_owned(), named_at: now }));
        // The oldest come first.
        self.names.drain(..self.names.len().saturating_sub(MAX_SELECTING_FIELDS));
    }

    /// Iterates over the names of the fields that the origin is sent, because responses named them.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|named| named.name.as_str())
    }

    /// Iterates over the keys under which a response to a request with `fields` may be stored; `url` is that of the URL.
    /// The first is that of a response to come, if it names what the last one did.
    pub(super) fn keys(&self, url: CacheKey, fields: &Fields) -> impl Iterator<Item = CacheKey> {
        self.sets.iter().map(move |set| self.key(url, &SelectedValues::read(&set.fields, fields)))
    }

    /// Records a write to the URL.
    pub(super) fn record_write(&self, now: Timestamp) {
        self.written_at.fetch_max(now.0, Ordering::AcqRel);
    }

    /// Returns true if a write invalidated the responses that were requested at `requested_at`.
    pub(in crate::gateway) fn is_written_since(&self, requested_at: Timestamp) -> bool {
        requested_at.0 < self.written_at.load(Ordering::Acquire)
    }

    /// Returns the key of the response that `values` select.
    pub(super) fn key(&self, url: CacheKey, values: &SelectedValues) -> CacheKey {
        url.of_variant(self.salt, values)
    }

    /// Returns the number of bytes that the names occupy.
    pub(super) fn memory(&self) -> u64 {
        let of_set = |set: &FieldSet| set.fields.names().map(|name| name.len() + 48).sum::<usize>() + 64;
        let of_name = |named: &NamedField| named.name.len() + 64;
        (self.sets.iter().map(of_set).sum::<usize>() + self.names.iter().map(of_name).sum::<usize>()) as u64
    }
}
