//! The middle of a line: what follows from the settings and the verdict, and so is the same for thousands of requests.
//! It is written once and then copied.

use super::json;
use super::record::{NameResolver, QuotaCharge, Record, RecordedOutcome};
use crate::policy::bot_detection::HeadersSeen;
use crate::policy::class::Evidence;
use crate::policy::{ClassId, ClientKind, OperatorId, QuotaId, Reason, Units};
use foldhash::fast::FixedState;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hash, Hasher};

/// The passages written lately.
///
/// Each has one place, and the last to want it has it: nothing grows, and what clients make up costs others at most a
/// second writing. There is nothing of a client in them but which bot it claims to be.
#[derive(Clone, Debug)]
pub(super) struct FragmentCache(Box<[Option<LineFragment>]>);

/// One passage, and what it is about.
#[derive(Clone, Debug)]
pub(super) struct LineFragment {
    about: FragmentKey,
    /// From the headers that were seen to where `Retry-After` follows.
    text: Vec<u8>,
    /// The key of each quota, as it stands in objects.
    quotas: SmallVec<[Box<[u8]>; 2]>,
}

/// All that a passage depends on: two records that agree in this have the same.
#[derive(Clone, Debug)]
struct FragmentKey {
    settings: u64,
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
    /// The passage of `record`.
    pub(super) fn get_or_render(&mut self, record: &Record<'_>) -> &LineFragment {
        let place = &mut self.0[slot(record)];
        if !place.as_ref().is_some_and(|passage| passage.about.matches(record)) {
            *place = None;
        }
        place.get_or_insert_with(|| LineFragment::new(record))
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
        Self { about: FragmentKey::of(record), text, quotas: record.charges.iter().map(key).collect() }
    }

    /// Its text.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The keys of the quotas that were charged, in the order of the charges.
    pub(super) fn quotas(&self) -> impl Iterator<Item = &[u8]> {
        self.quotas.iter().map(|key| &**key)
    }
}

impl FragmentKey {
    fn of(record: &Record<'_>) -> Self {
        let charges = record.charges.iter().map(|charge| (charge.quota, charge.expected, charge.settled));
        Self {
            settings: record.names.settings(),
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
        let same_charge = |(known, charge): (&(QuotaId, Units, Units), &QuotaCharge<'_>)| {
            *known == (charge.quota, charge.expected, charge.settled)
        };
        self.settings == record.names.settings()
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

/// Where the passage of `record` lies if it lies anywhere: told by what differs most between requests.
fn slot(record: &Record<'_>) -> usize {
    let mut hasher = FixedState::default().build_hasher();
    (record.class, record.route, record.outcome, record.headers_seen).hash(&mut hasher);
    record.evidence.iter().for_each(|found| found.hash(&mut hasher));
    record.charges.iter().for_each(|charge| (charge.expected, charge.settled).hash(&mut hasher));
    hasher.finish() as usize % CACHE_SLOTS
}

fn classification(out: &mut Vec<u8>, record: &Record<'_>) {
    out.extend_from_slice(b",\"headers_seen\":[");
    let keys = record.names.key_headers(record.class, record.signed);
    let seen = record.headers_seen.names().map(|name| -> &str { name });
    for (place, name) in seen.chain(keys).enumerate() {
        comma(out, place);
        json::string(out, name.as_bytes());
    }
    out.extend_from_slice(b"],\"secure\":");
    // Null where nobody looked: then a header that is not named may have been there.
    let looked = record.headers_seen.contains(HeadersSeen::INSPECTED);
    json::bool_or_null(out, looked.then(|| record.headers_seen.contains(HeadersSeen::TLS)));
    out.extend_from_slice(b",\"old_http\":");
    json::bool_or_null(out, looked.then(|| record.headers_seen.contains(HeadersSeen::HTTP_10)));
    out.extend_from_slice(b",\"kind\":");
    json::string(out, record.kind.name().as_bytes());
    out.extend_from_slice(b",\"class\":");
    json::string(out, record.class_name.as_bytes());
    out.extend_from_slice(b",\"operator\":");
    json::string_or_null(out, record.operator.map(|operator| record.names.operator(operator).as_bytes()));
    out.extend_from_slice(b",\"evidence\":[");
    for (place, found) in record.evidence.iter().flatten().enumerate() {
        comma(out, place);
        evidence(out, *found, record.names);
    }
    out.extend_from_slice(b"],\"route\":");
    json::string(out, record.route_name.as_bytes());
}

fn verdict(out: &mut Vec<u8>, record: &Record<'_>) {
    amounts(out, b",\"cost\":{", record.charges, |charge| charge.expected);
    amounts(out, b"},\"charged\":{", record.charges, |charge| charge.settled);
    out.extend_from_slice(b"},\"verdict\":");
    json::string(out, record.outcome.verdict().as_bytes());
    out.extend_from_slice(b",\"reason\":");
    reason(out, record.outcome.reason());
    out.extend_from_slice(b",\"shadow\":");
    reason(out, record.outcome.shadow());
}

fn amounts(out: &mut Vec<u8>, opening: &[u8], charges: &[QuotaCharge<'_>], amount: fn(&QuotaCharge<'_>) -> Units) {
    out.extend_from_slice(opening);
    for (place, charge) in charges.iter().enumerate() {
        comma(out, place);
        json::string(out, charge.quota_name.as_bytes());
        out.push(b':');
        json::units(out, amount(charge));
    }
}

fn reason(out: &mut Vec<u8>, reason: Option<Reason>) {
    json::string_or_null(out, reason.map(|reason| reason.name().as_bytes()));
}

/// `names_bot:GPTBot`: what was found, and whose name it bears.
fn evidence(out: &mut Vec<u8>, found: Evidence, names: &dyn NameResolver) {
    let (what, whose) = match found {
        Evidence::AgentRule(place) => ("agent_rule:", names.agent_rule(place)),
        Evidence::NoUserAgent => ("no_user_agent", ""),
        Evidence::UserAgentNoMatch => ("names_no_bot", ""),
        Evidence::UserAgentMatch(bot) => ("names_bot:", names.bot(bot)),
        Evidence::UserAgentHeuristic => ("shaped_like_bot", ""),
        Evidence::AddressVerified(operator) => ("address_published:", names.operator(operator)),
        Evidence::AddressMismatch(operator) => ("address_foreign:", names.operator(operator)),
        Evidence::AddressPrivate(operator) => ("address_private:", names.operator(operator)),
        Evidence::ApiKey => ("holds_key", ""),
        Evidence::DnsVerified(operator) => ("name_proven:", names.operator(operator)),
        Evidence::DnsMismatch(operator) => ("name_foreign:", names.operator(operator)),
        Evidence::AddressList(list) => ("on_list:", names.list(list)),
        Evidence::Behavior(signal) => ("behaves:", signal.name()),
        Evidence::SignatureValid(operator) => ("signed:", names.operator(operator)),
        Evidence::SignatureMalformed => ("signature_unreadable", ""),
        Evidence::SignatureUnlisted => ("signed_unlisted", ""),
        Evidence::SignatureInvalid(Some(operator)) => ("signature_invalid:", names.operator(operator)),
        Evidence::SignatureInvalid(None) => ("signature_invalid", ""),
        Evidence::SignatureUnknown(Some(operator)) => ("signature_unknown:", names.operator(operator)),
        Evidence::SignatureUnknown(None) => ("signature_unknown", ""),
    };
    out.push(b'"');
    out.extend_from_slice(what.as_bytes());
    json::content(out, whose.as_bytes());
    out.push(b'"');
}

fn comma(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.push(b',');
    }
}

/// A power of two: a few classes, routes, verdicts and bots each; half a kilobyte a place that is in use.
const CACHE_SLOTS: usize = 256;
