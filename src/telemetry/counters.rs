//! Counters of one worker since the last scrape: plain numbers, found by index, under a lock of their own.
//!
//! Classes, routes, scopes and operators keep their index across reloads. Their names come from the configuration and the
//! built-in lists, so clients cannot add any.

use super::handshake_result::HandshakeResult;
use super::histogram::{BucketedDuration, Histogram};
use super::status_class::StatusClass;
use std::time::Duration;
use tidegate_access_log::{NameResolver, Record, RecordedOutcome};
use tidegate_http_cache::CacheResult;
use tidegate_policy::bot_detection::Signal;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::class::Evidence;
use tidegate_policy::throttle::Scope;
use tidegate_policy::{ClientKind, Reason, ScopeId, Units};

/// Counters of one worker, or of several added up.
#[derive(Clone, Debug, Default)]
pub struct WorkerCounters {
    pub(super) classes: NamedSlots<ClassCounters>,
    pub(super) scopes: NamedSlots<ScopeCounters>,
    /// Requests by origin, then by scope, where there are several origins; those of their `scopes` do not count them.
    pub(super) origins: NamedSlots<NamedSlots<UpstreamCounters>>,
    pub(super) operators: NamedSlots<OperatorCounters>,
    pub(super) routes: NamedSlots<RouteCounters>,
    /// Units charged for unexpected costs, by route.
    pub(super) unexpected_costs: NamedSlots<Units>,
    /// Requests of suspected bots, by signal.
    pub(super) signals: [u64; Signal::ALL.len()],
    pub(super) kinds: [KindCounters; ClientKind::ALL.len()],
    /// Requests by result of the cache, in the order of [`CacheResult::ALL`].
    pub(super) cache: [u64; CacheResult::ALL.len()],
    /// Responses to requests that were rejected before classification, by status class.
    pub(super) unclassified: [u64; StatusClass::NAMES.len()],
    pub(super) connections_open: u64,
    pub(super) connections_refused: u64,
    pub(super) connections_shed: u64,
    /// TLS handshakes, in the order of [`HandshakeResult::ALL`].
    pub(super) handshakes: [u64; HandshakeResult::ALL.len()],
    /// Bytes that the open connections occupy.
    pub(super) connection_memory: u64,
    slot_index: SlotIndex,
}

/// Slots of the classes, routes and scopes of the current config, so that names are compared once and not for every request.
#[derive(Clone, Debug, Default)]
struct SlotIndex {
    config_number: u64,
    classes: SlotMap,
    routes: SlotMap,
    /// The default scope, then the scopes by id.
    scopes: SlotMap,
}

/// Slot indexes, by id in the config.
#[derive(Clone, Debug, Default)]
struct SlotMap(Vec<Option<usize>>);

/// Counters by name, in the order of first use.
#[derive(Clone, Debug)]
pub(super) struct NamedSlots<T>(Vec<(Box<str>, T)>);

/// Requests of one kind of client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KindCounters {
    pub(super) admitted: u64,
    /// Requests that rules refused, but those of browsers that were asked to come back.
    pub(super) refused: u64,
    /// Requests that the administrator has blocked.
    pub(super) blocked: u64,
}

/// Counters of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassCounters {
    pub(super) admitted: u64,
    /// Requests with a cost that the administrator has not blocked: all, and those admitted.
    pub(super) costly: u64,
    pub(super) costly_admitted: u64,
    pub(super) refused: [u64; Reason::ALL.len()],
    pub(super) shadow: [u64; Reason::ALL.len()],
    pub(super) responses: ResponseCounters,
    pub(super) refused_duration: Histogram,
    /// Units that stored responses saved, by quota.
    pub(super) saved: NamedSlots<Units>,
    /// Units that refreshes of stored responses used, by quota.
    pub(super) refreshed: NamedSlots<Units>,
}

/// Counters of one route.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteCounters {
    pub(super) refused: u64,
    pub(super) responses: ResponseCounters,
}

/// Counters of the responses of a class or a route.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseCounters {
    pub(super) codes: [u64; StatusClass::NAMES.len()],
    /// Body bytes.
    pub(super) bytes: u64,
    pub(super) admitted_duration: Histogram,
}

/// What is counted of one response, found once for its class and its route.
#[derive(Clone, Copy)]
struct CountedResponse {
    code: StatusClass,
    bytes: u64,
    /// Time from the first byte of the request to the last byte of the response.
    duration: BucketedDuration,
}

/// Counters of one scope.
#[derive(Clone, Debug, Default)]
pub(super) struct ScopeCounters {
    pub(super) upstream: UpstreamCounters,
    pub(super) inflight: u64,
}

/// Counters of the requests to the origins.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamCounters {
    pub(super) codes: [u64; StatusClass::NAMES.len()],
    pub(super) duration: Histogram,
}

/// Counters of one crawler operator.
#[derive(Clone, Debug, Default)]
pub(super) struct OperatorCounters {
    pub(super) verified: u64,
    pub(super) impostor: u64,
    /// Signatures: valid, invalid, unverifiable.
    pub(super) signed: [u64; 3],
}

impl WorkerCounters {
    /// Counts a finished request.
    pub fn record(&mut self, record: &Record<'_>) {
        let kind = &mut self.kinds[record.client.kind as usize];
        // Whether it is a person shows when it comes back.
        let is_asked_back = record.client.more.is_some_and(|more| more.is_asked_back);
        match record.decision.outcome {
            RecordedOutcome::Admitted { .. } => kind.admitted += 1,
            RecordedOutcome::Refused(_) if is_asked_back => {}
            RecordedOutcome::Refused(reason) if reason.is_of_administrator() => kind.blocked += 1,
            RecordedOutcome::Refused(_) => kind.refused += 1,
        }
        if let Some(result) = record.response.cache {
            self.cache[result as usize] += 1;
        }
        self.slot_index.reset_for(record.names.config_number());
        let response = CountedResponse {
            code: StatusClass::from_status(record.response.status),
            bytes: record.response.bytes,
            duration: BucketedDuration::new(record.response.total),
        };
        self.slot_index
            .classes
            .counters_of(record.client.class.index(), &mut self.classes, || record.client.class_name)
            .record(record, response);
        self.slot_index
            .routes
            .counters_of(record.decision.route.index(), &mut self.routes, || record.decision.route_name)
            .record(record, response);
        if let Some(origin) = record.response.origin {
            let code = origin.status.map_or(StatusClass::Error, StatusClass::from_status);
            match record.decision.origin {
                None => self.each_scope(record.names, origin.scopes, |scope| {
                    scope.upstream.record(code, origin.duration);
                }),
                Some(name) => {
                    let counters = self.origins.get_or_insert(name);
                    for &scope in origin.scopes {
                        counters.get_or_insert(record.names.scope(scope)).record(code, origin.duration);
                    }
                }
            }
        }
        let unexpected: Units = record.units.unexpected_costs.iter().map(|cost| cost.charged).sum();
        let unexpected = unexpected.saturating_add(record.units.learned_charges);
        if !unexpected.is_zero() {
            let total = self.unexpected_costs.get_or_insert(record.decision.route_name);
            *total = total.saturating_add(unexpected);
        }
        for evidence in record.client.evidence.iter().flatten() {
            match *evidence {
                Evidence::Behavior(signal) => self.signals[signal as usize] += 1,
                Evidence::BeyondPeople(_) => self.signals[Signal::BeyondPeople as usize] += 1,
                _ => {}
            }
            if let Some(operator) = evidence.claimed_operator() {
                self.operators.get_or_insert(record.names.operator(operator)).record(evidence);
            }
        }
    }

    /// Calls `each` with the counters of `scopes`, or with those of the default scope if `scopes` is empty.
    pub(super) fn each_scope(
        &mut self,
        names: &dyn NameResolver,
        scopes: &[ScopeId],
        mut each: impl FnMut(&mut ScopeCounters),
    ) {
        let Self { slot_index: index, scopes: slots, .. } = self;
        index.reset_for(names.config_number());
        if scopes.is_empty() {
            each(index.scopes.counters_of(0, slots, || Scope::DEFAULT));
        }
        for &scope in scopes {
            each(index.scopes.counters_of(scope.index() + 1, slots, || names.scope(scope)));
        }
    }

    /// Counts a response to a request that was rejected before classification.
    pub fn response_without_class(&mut self, status: u16) {
        self.unclassified[StatusClass::from_status(status).index()] += 1;
    }

    /// Counts an accepted connection.
    pub fn connection_opened(&mut self) {
        self.connections_open += 1;
    }

    /// Counts a closed connection.
    pub fn connection_closed(&mut self) {
        self.connections_open = self.connections_open.saturating_sub(1);
    }

    /// Counts a connection that was closed because a limit was reached.
    pub fn connection_refused(&mut self) {
        self.connections_refused += 1;
    }

    /// Records the `bytes` that the open connections occupy, and counts connections `closed` to free memory.
    pub fn connection_memory(&mut self, bytes: u64, closed: u64) {
        self.connection_memory = bytes;
        self.connections_shed += closed;
    }

    /// Counts a TLS handshake.
    pub fn tls_handshake(&mut self, result: HandshakeResult) {
        self.handshakes[result as usize] += 1;
    }

    /// Takes all counters and resets them. Slot indexes and the numbers of open connections and requests in flight
    /// remain. Origins are found by their names, and a removed one does not remain.
    pub(super) fn take_all(&mut self) -> Self {
        let left = Self {
            classes: self.classes.zeroed(),
            routes: self.routes.zeroed(),
            scopes: self
                .scopes
                .zeroed_except(|scope| ScopeCounters { inflight: scope.inflight, ..ScopeCounters::default() }),
            operators: self.operators.zeroed(),
            unexpected_costs: self.unexpected_costs.zeroed(),
            connections_open: self.connections_open,
            connection_memory: self.connection_memory,
            slot_index: std::mem::take(&mut self.slot_index),
            ..Self::default()
        };
        std::mem::replace(self, left)
    }

    /// Adds the counters of `other`, except open connections and requests in flight, which each scrape reads again.
    pub(super) fn merge(&mut self, other: &Self) {
        for (name, class) in other.classes.iter() {
            self.classes.get_or_insert(name).merge(class);
        }
        for (name, route) in other.routes.iter() {
            self.routes.get_or_insert(name).merge(route);
        }
        for (name, scope) in other.scopes.iter() {
            self.scopes.get_or_insert(name).upstream.merge(&scope.upstream);
        }
        for (name, scopes) in other.origins.iter() {
            let totals = self.origins.get_or_insert(name);
            scopes.iter().for_each(|(scope, counts)| totals.get_or_insert(scope).merge(counts));
        }
        for (name, operator) in other.operators.iter() {
            let total = self.operators.get_or_insert(name);
            total.verified += operator.verified;
            total.impostor += operator.impostor;
            add(&mut total.signed, &operator.signed);
        }
        for (route, units) in other.unexpected_costs.iter() {
            let total = self.unexpected_costs.get_or_insert(route);
            *total = total.saturating_add(*units);
        }
        for (total, kind) in self.kinds.iter_mut().zip(&other.kinds) {
            total.admitted += kind.admitted;
            total.refused += kind.refused;
            total.blocked += kind.blocked;
        }
        add(&mut self.signals, &other.signals);
        add(&mut self.cache, &other.cache);
        add(&mut self.unclassified, &other.unclassified);
        self.connections_refused += other.connections_refused;
        self.connections_shed += other.connections_shed;
        add(&mut self.handshakes, &other.handshakes);
    }
}

impl ResponseCounters {
    fn record(&mut self, CountedResponse { code, bytes, duration }: CountedResponse, is_admitted: bool) {
        self.codes[code.index()] += 1;
        self.bytes += bytes;
        if is_admitted {
            self.admitted_duration.add(duration);
        }
    }

    /// Adds the counters of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        add(&mut self.codes, &other.codes);
        self.bytes += other.bytes;
        self.admitted_duration.merge(&other.admitted_duration);
    }
}

impl ClassCounters {
    fn record(&mut self, record: &Record<'_>, response: CountedResponse) {
        let reason = record.decision.outcome.reason();
        let is_blocked = reason.is_some_and(Reason::is_of_administrator);
        let costly = u64::from(!is_blocked && record.units.charges.iter().any(|charge| !charge.cost.is_zero()));
        self.costly += costly;
        match record.decision.outcome {
            RecordedOutcome::Admitted { shadow_reason: shadow } => {
                self.admitted += 1;
                self.costly_admitted += costly;
                self.responses.record(response, true);
                if let Some(reason) = shadow {
                    self.shadow[reason as usize] += 1;
                }
            }
            RecordedOutcome::Refused(reason) => {
                self.refused[reason as usize] += 1;
                self.refused_duration.add(response.duration);
                self.responses.record(response, false);
            }
        }
        for (quota, units) in record.units.saved {
            let total = self.saved.get_or_insert(quota);
            *total = total.saturating_add(*units);
        }
        for charge in record.units.charges.iter().filter(|_| record.request.fill == Some(CacheFill::Refresh)) {
            let total = self.refreshed.get_or_insert(charge.quota_name);
            *total = total.saturating_add(charge.charged);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.costly += other.costly;
        self.costly_admitted += other.costly_admitted;
        add(&mut self.refused, &other.refused);
        add(&mut self.shadow, &other.shadow);
        self.responses.merge(&other.responses);
        self.refused_duration.merge(&other.refused_duration);
        for (total, units) in [(&mut self.saved, &other.saved), (&mut self.refreshed, &other.refreshed)] {
            for (quota, units) in units.iter() {
                let total = total.get_or_insert(quota);
                *total = total.saturating_add(*units);
            }
        }
    }
}

impl RouteCounters {
    fn record(&mut self, record: &Record<'_>, response: CountedResponse) {
        let is_admitted = matches!(record.decision.outcome, RecordedOutcome::Admitted { .. });
        self.refused += u64::from(!is_admitted);
        self.responses.record(response, is_admitted);
    }

    fn merge(&mut self, other: &Self) {
        self.refused += other.refused;
        self.responses.merge(&other.responses);
    }
}

impl UpstreamCounters {
    fn record(&mut self, code: StatusClass, duration: Duration) {
        self.codes[code.index()] += 1;
        self.duration.record(duration);
    }

    fn merge(&mut self, other: &Self) {
        add(&mut self.codes, &other.codes);
        self.duration.merge(&other.duration);
    }
}

impl OperatorCounters {
    fn record(&mut self, evidence: &Evidence) {
        match evidence {
            Evidence::AddressVerified(_) => self.verified += 1,
            Evidence::AddressMismatch(_) => self.impostor += 1,
            Evidence::SignatureValid(_) => self.signed[0] += 1,
            Evidence::SignatureInvalid(_) => self.signed[1] += 1,
            Evidence::SignatureUnknown(_) => self.signed[2] += 1,
            _ => {}
        }
    }
}

impl<T> Default for NamedSlots<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> NamedSlots<T> {
    /// Returns the counters of `name`; creates them if missing.
    pub(super) fn get_or_insert(&mut self, name: &str) -> &mut T {
        let index = self.index(name);
        &mut self.0[index].1
    }

    fn index(&mut self, name: &str) -> usize {
        self.0.iter().position(|(existing, _)| **existing == *name).unwrap_or_else(|| {
            self.0.push((name.into(), T::default()));
            self.0.len() - 1
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the counters of names for which `is_current` returns false, the oldest first, until `max` of them remain.
    /// Indexes change.
    pub(super) fn retain_newest(&mut self, max: usize, is_current: impl Fn(&str) -> bool) {
        let removed = self.0.iter().filter(|(name, _)| !is_current(name)).count();
        let mut surplus = removed.saturating_sub(max);
        self.0.retain(|(name, _)| {
            let is_surplus = surplus > 0 && !is_current(name);
            surplus -= usize::from(is_surplus);
            !is_surplus
        });
    }

    /// Returns all counters with their names, by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, slot)| (&**name, slot))
    }

    fn zeroed(&self) -> Self {
        self.zeroed_except(|_| T::default())
    }

    fn zeroed_except(&self, retained: impl Fn(&T) -> T) -> Self {
        Self(self.0.iter().map(|(name, slot)| (name.clone(), retained(slot))).collect())
    }
}

impl SlotIndex {
    /// Clears the index if it belongs to another config than `config_number`.
    fn reset_for(&mut self, config_number: u64) {
        if self.config_number != config_number {
            *self = Self { config_number, ..Self::default() };
        }
    }
}

impl SlotMap {
    /// Returns the counters of the item `number` of the config. The first call looks the index up by `name`.
    fn counters_of<'a, 'n, T: Default>(
        &mut self,
        number: usize,
        slots: &'a mut NamedSlots<T>,
        name: impl FnOnce() -> &'n str,
    ) -> &'a mut T {
        if self.0.len() <= number {
            self.0.resize(number + 1, None);
        }
        let index = *self.0[number].get_or_insert_with(|| slots.index(name()));
        &mut slots.0[index].1
    }
}

fn add(totals: &mut [u64], more: &[u64]) {
    totals.iter_mut().zip(more).for_each(|(total, more)| *total += more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_access_log::sample::{TestNames, sample_record, sample_with};
    use tidegate_policy::ClassId;

    #[test]
    fn oldest_of_the_removed_names_are_forgotten() {
        let mut slots = NamedSlots::<u64>::default();
        for name in ["a", "b", "c", "d", "e"] {
            *slots.get_or_insert(name) += 1;
        }
        slots.retain_newest(2, |name| name == "a");
        assert_eq!(slots.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "d", "e"]);
        slots.retain_newest(2, |name| name == "a");
        assert_eq!(slots.iter().count(), 3);
    }

    #[test]
    fn reload_that_renumbers_classes_keeps_their_counts() {
        let mut counters = WorkerCounters::default();
        for name in ["bot", "person"] {
            counters.classes.get_or_insert(name);
        }
        let names = &TestNames(1);
        counters.record(&sample_record());
        counters.record(&sample_with(|it| {
            it.client.class = ClassId(0);
            it.names = names;
        }));
        counters.record(&sample_with(|it| {
            it.client.class = ClassId(1);
            it.client.class_name = "bot";
            it.names = names;
        }));
        counters.record(&sample_with(|it| {
            it.client.class = ClassId(7);
            it.client.class_name = "new";
            it.names = names;
        }));
        let counts: Vec<_> = counters.classes.iter().map(|(name, class)| (name, class.admitted)).collect();
        assert_eq!(counts, [("bot", 1), ("person", 2), ("new", 1)]);
    }

    #[test]
    fn reason_and_kind_indexes_match_their_order() {
        assert!(Reason::ALL.iter().enumerate().all(|(index, &reason)| reason as usize == index));
        assert!(ClientKind::ALL.iter().enumerate().all(|(index, &kind)| kind as usize == index));
    }

    #[test]
    fn scopes_are_counted_by_name_not_number() {
        let mut counters = WorkerCounters::default();
        for (names, scopes) in [(TestNames(0), &[ScopeId(0)][..]), (TestNames(1), &[ScopeId(3)]), (TestNames(1), &[])] {
            counters.each_scope(&names, scopes, |scope| scope.inflight += 1);
        }
        let open: Vec<_> = counters.scopes.iter().map(|(name, scope)| (name, scope.inflight)).collect();
        assert_eq!(open, [("search_backend", 2), ("default", 1)]);
    }

    #[test]
    fn take_resets_counters_but_keeps_gauges() {
        let mut counters = WorkerCounters::default();
        counters.connection_opened();
        counters.scopes.get_or_insert("default").inflight = 3;
        counters.record(&sample_record());
        let mut total = WorkerCounters::default();
        total.merge(&counters.take_all());
        total.merge(&counters.take_all());
        assert_eq!(total.classes.get_or_insert("person").admitted, 1);
        assert_eq!((total.kinds[0].admitted, total.kinds[0].refused), (1, 0));
        assert_eq!((counters.connections_open, counters.scopes.get_or_insert("default").inflight), (1, 3));
    }

    #[test]
    fn address_proof_is_counted_per_operator() {
        use tidegate_policy::OperatorId;
        let mut counters = WorkerCounters::default();
        counters
            .record(&sample_with(|it| it.client.evidence = &[None, Some(Evidence::AddressVerified(OperatorId(0)))]));
        counters.record(&sample_with(|it| it.client.evidence = &[Some(Evidence::AddressMismatch(OperatorId(0)))]));
        let google = counters.operators.get_or_insert("googlebot");
        assert_eq!((google.verified, google.impostor), (1, 1));
    }

    #[test]
    fn signatures_are_counted_per_named_operator() {
        use tidegate_policy::OperatorId;
        let mut counters = WorkerCounters::default();
        for evidence in [
            Evidence::SignatureValid(OperatorId(0)),
            Evidence::SignatureInvalid(Some(OperatorId(0))),
            Evidence::SignatureInvalid(None),
            Evidence::SignatureUnknown(Some(OperatorId(0))),
            Evidence::SignatureUnknown(Some(OperatorId(0))),
            Evidence::SignatureUnlisted,
        ] {
            let entries = [None, Some(evidence)];
            counters.record(&sample_with(|it| it.client.evidence = &entries));
        }
        let mut total = WorkerCounters::default();
        total.merge(&counters.take_all());
        assert_eq!(total.operators.get_or_insert("googlebot").signed, [1, 1, 2]);
    }
}
