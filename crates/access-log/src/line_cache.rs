//! Cache of the middle part of access log lines. It depends on the config and the verdict only, so thousands of
//! requests share it. It is rendered once and then copied.

use super::record::{QuotaCharge, Record, RecordedOutcome};
use super::{evidence, json};
use foldhash::fast::FixedState;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hash, Hasher};
use tidegate_policy::bot_detection::HeadersSeen;
use tidegate_policy::class::Evidence;
use tidegate_policy::{ClassId, ClientKind, OperatorId, QuotaId, Reason, Units};

/// Fragments rendered recently.
///
/// Each fragment has one slot and replaces the fragment before, so the cache does not grow, and values chosen by
/// clients cost other requests at most another rendering. The only client value in a fragment is the bot that it claims
/// to be.
#[derive(Clone, Debug)]
pub(super) struct FragmentCache(Box<[Option<LineFragment>]>);

/// A rendered fragment and its key.
#[derive(Clone, Debug)]
pub(super) struct LineFragment {
    key: FragmentKey,
    /// Text from `headers_seen` to the field before `retry_after_s`.
    text: Vec<u8>,
    /// JSON object key of each quota, with its colon.
    quotas: SmallVec<[Box<[u8]>; 2]>,
}

/// All values that a fragment depends on. Records with equal keys have equal fragments.
#[derive(Clone, Debug)]
struct FragmentKey {
    config_number: u64,
    headers_seen: HeadersSeen,
    kind: ClientKind,
    class: ClassId,
    operator: Option<OperatorId>,
    evidence: SmallVec<[Option<Evidence>; 6]>,
    signed: bool,
    route: usize,
    charges: SmallVec<[(QuotaId, Units, Units); 2]>,
    outcome: RecordedOutcome,
}

impl Default for FragmentCache {
    fn default() -> Self {
        Self(vec![None; CACHE_SLOTS].into())
    }
}

impl FragmentCache {
    /// Returns the fragment of `record`; renders it if it is not cached.
    pub(super) fn get_or_render(&mut self, record: &Record<'_>) -> &LineFragment {
        let entry = &mut self.0[slot(record)];
        if !entry.as_ref().is_some_and(|fragment| fragment.key.matches(record)) {
            *entry = None;
        }
        entry.get_or_insert_with(|| LineFragment::new(record))
    }
}

impl LineFragment {
    fn new(record: &Record<'_>) -> Self {
        let mut text = Vec::with_capacity(512);
        classification(&mut text, record);
        verdict(&mut text, record);
        text.shrink_to_fit();
        let key = |charge: &QuotaCharge<'_>| {
            let mut key = Vec::new();
            json::string(&mut key, charge.quota_name.as_bytes());
            key.push(b':');
            key.into()
        };
        Self { key: FragmentKey::from_record(record), text, quotas: record.charges.iter().map(key).collect() }
    }

    /// Returns the rendered text.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the JSON keys of the charged quotas, in the order of the charges.
    pub(super) fn quotas(&self) -> impl Iterator<Item = &[u8]> {
        self.quotas.iter().map(|key| &**key)
    }
}

impl FragmentKey {
    fn from_record(record: &Record<'_>) -> Self {
        let charges = record.charges.iter().map(|charge| (charge.quota, charge.cost, charge.charged));
        Self {
            config_number: record.names.config_number(),
            headers_seen: record.headers_seen,
            kind: record.kind,
            class: record.class,
            operator: record.operator,
            evidence: record.evidence.into(),
            signed: record.signed,
            route: record.route,
            charges: charges.collect(),
            outcome: record.outcome,
        }
    }

    fn matches(&self, record: &Record<'_>) -> bool {
        let same_charge = |(cached, charge): (&(QuotaId, Units, Units), &QuotaCharge<'_>)| {
            *cached == (charge.quota, charge.cost, charge.charged)
        };
        self.config_number == record.names.config_number()
            && self.headers_seen == record.headers_seen
            && self.kind == record.kind
            && self.class == record.class
            && self.operator == record.operator
            && *self.evidence == *record.evidence
            && self.signed == record.signed
            && self.route == record.route
            && self.outcome == record.outcome
            && self.charges.len() == record.charges.len()
            && self.charges.iter().zip(record.charges).all(same_charge)
    }
}

/// Returns the cache slot of `record`, hashed from the values that differ most between requests.
fn slot(record: &Record<'_>) -> usize {
    let mut hasher = FixedState::default().build_hasher();
    (record.class, record.route, record.outcome, record.headers_seen).hash(&mut hasher);
    record.evidence.iter().for_each(|evidence| evidence.hash(&mut hasher));
    record.charges.iter().for_each(|charge| (charge.cost, charge.charged).hash(&mut hasher));
    hasher.finish() as usize % CACHE_SLOTS
}

fn classification(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b",\"headers_seen\":[");
    let keys = record.names.key_headers(record.class, record.signed);
    let seen = record.headers_seen.names().map(|name| -> &str { name });
    for (index, name) in seen.chain(keys).enumerate() {
        comma(out, index);
        json::string(out, name.as_bytes());
    }
    out.extend_from_slice(b"],\"tls\":");
    // Null if the headers were not examined; a header that is not listed may then have been present.
    let inspected = record.headers_seen.contains(HeadersSeen::INSPECTED);
    json::bool_or_null(out, inspected.then(|| record.headers_seen.contains(HeadersSeen::TLS)));
    out.extend_from_slice(b",\"http_10\":");
    json::bool_or_null(out, inspected.then(|| record.headers_seen.contains(HeadersSeen::HTTP_10)));
    out.extend_from_slice(b",\"kind\":");
    json::string(out, record.kind.name().as_bytes());
    out.extend_from_slice(b",\"class\":");
    json::string(out, record.class_name.as_bytes());
    out.extend_from_slice(b",\"operator\":");
    json::string_or_null(out, record.operator.map(|operator| record.names.operator(operator).as_bytes()));
    out.extend_from_slice(b",\"evidence\":[");
    for (index, entry) in record.evidence.iter().flatten().enumerate() {
        comma(out, index);
        evidence::write(out, *entry, record.names);
    }
    out.extend_from_slice(b"],\"route\":");
    json::string(out, record.route_name.as_bytes());
}

fn verdict(out: &mut Vec<u8>, record: &Record<'_>) {
    amounts(out, b",\"cost\":{", record.charges, |charge| charge.cost);
    amounts(out, b"},\"charged\":{", record.charges, |charge| charge.charged);
    out.extend_from_slice(b"},\"verdict\":");
    json::string(out, record.outcome.verdict().as_bytes());
    out.extend_from_slice(b",\"reason\":");
    reason(out, record.outcome.reason());
    out.extend_from_slice(b",\"shadow_reason\":");
    reason(out, record.outcome.shadow_reason());
}

fn amounts(out: &mut Vec<u8>, opening: &[u8], charges: &[QuotaCharge<'_>], amount: fn(&QuotaCharge<'_>) -> Units) {
    out.extend_from_slice(opening);
    for (index, charge) in charges.iter().enumerate() {
        comma(out, index);
        json::string(out, charge.quota_name.as_bytes());
        out.push(b':');
        json::units(out, amount(charge));
    }
}

fn reason(out: &mut Vec<u8>, reason: Option<Reason>) {
    json::string_or_null(out, reason.map(|reason| reason.name().as_bytes()));
}

fn comma(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

/// Number of slots, a power of two: room for a few classes, routes, verdicts and bots. A used slot takes 512 bytes.
const CACHE_SLOTS: usize = 256;
