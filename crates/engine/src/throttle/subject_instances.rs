//! Parts of a scope with limits of their own: each client has a number of slots, and clients, networks and routes that
//! draw overload responses back off.
//!
//! Such a part has an instance, and its requests need a slot of this instance, too. So they queue, probe and recover
//! like those of a scope, and other requests pass them.

use super::ids::{InstanceId, SlotGrant};
use super::instance::ScopeInstance;
use super::limiter::FeedbackEffect;
use super::scheduler::Scheduler;
use crate::InlineVec;
use std::sync::Arc;
use tidegate_policy::throttle::backoff::BackoffEpoch;
use tidegate_policy::throttle::overload::{BackoffSubject, OverloadEvidence, RequestSource};
use tidegate_policy::throttle::{OriginOutcome, ThrottleConfig};

/// Maximum number of parts in all scopes together, beyond which no further ones back off. The number of clients with
/// slots or waiters is bounded by the slots and the queues.
const MAX_SUBJECTS: usize = 4096;

impl Scheduler {
    /// Adds the instances of the parts that `source` belongs to. Creates the instance of a client whose slots are
    /// limited. Removes idle ones.
    pub(super) fn add_subjects(&mut self, instances: &mut InlineVec<InstanceId>, source: &RequestSource) {
        for parent in 0..instances.len() {
            let parent = instances[parent];
            let is_client_limited = self.instances[parent.0].limiter.client_slots().is_some();
            if self.instances[parent.0].subjects.is_empty() && !is_client_limited {
                continue;
            }
            for subject in source.subjects() {
                let is_client = matches!(subject, BackoffSubject::Client(_));
                let is_limited = is_client && is_client_limited;
                let id = match self.instances[parent.0].subjects.instances.get(&subject) {
                    Some(&id) if !is_limited && self.instances[id.0].is_idle(self.now) => {
                        self.remove_subject(parent, subject);
                        continue;
                    }
                    Some(&id) => id,
                    None if is_limited => self.create_subject(parent, subject),
                    None => continue,
                };
                if is_client {
                    self.update_client(parent, id);
                }
                self.instances[id.0].touch(self.now);
                instances.push(id);
            }
        }
    }

    /// Applies the slots of a client, which change with the limit of the scope.
    fn update_client(&mut self, parent: InstanceId, client: InstanceId) {
        let config = self.subject_config(parent, true);
        let limiter = &mut self.instances[client.0].limiter;
        if !config.as_ref().zip(limiter.config.as_ref()).is_some_and(|(new, old)| Arc::ptr_eq(new, old)) {
            limiter.update_config(config, self.now);
        }
    }

    /// Removes the idle parts among `instances`, whose requests have ended.
    pub(super) fn remove_idle_subjects(&mut self, instances: &[InstanceId]) {
        for id in instances {
            // The same instance can be named twice.
            let Some(instance) = self.instances.get(id.0) else { continue };
            if let Some((parent, subject)) = instance.part_of.filter(|_| instance.is_idle(self.now)) {
                self.remove_subject(parent, subject);
            }
        }
    }

    /// Applies the configurations of all scopes to their parts. Forgets overload of routes, whose ids have changed.
    pub(super) fn update_subjects(&mut self) {
        let parts = |(id, parent): (usize, &mut ScopeInstance)| {
            parent.subjects.evidence = OverloadEvidence::default();
            parent.subjects.client_config = None;
            let parts = parent.subjects.instances.iter().map(|(subject, part)| (InstanceId(id), *subject, *part));
            parts.collect::<Vec<_>>()
        };
        let parts: Vec<_> = self.instances.iter_mut().flat_map(parts).collect();
        for (parent, subject, InstanceId(part)) in parts {
            let config = self.subject_config(parent, matches!(subject, BackoffSubject::Client(_)));
            let limiter = &mut self.instances[part].limiter;
            limiter.update_config(config, self.now);
            if let BackoffSubject::Route(_) = subject {
                limiter.end_backoff();
            }
        }
    }

    /// Returns the configuration of a part of a scope instance: its backoff and queue, and the slots of a client.
    fn subject_config(&mut self, parent: InstanceId, is_client: bool) -> Option<Arc<ThrottleConfig>> {
        let ScopeInstance { limiter, subjects, .. } = &mut self.instances[parent.0];
        let scope = limiter.config.as_deref()?;
        let slots = limiter.client_slots().filter(|_| is_client);
        let cached = subjects.client_config.as_ref().filter(|config| is_client && config.concurrency == slots);
        if let Some(config) = cached {
            return Some(Arc::clone(config));
        }
        let config = Arc::new(ThrottleConfig {
            concurrency: slots,
            spacing: Default::default(),
            controller: None,
            queue: limiter.client_queue(slots),
            ..scope.clone()
        });
        if is_client {
            subjects.client_config = Some(Arc::clone(&config));
        }
        Some(config)
    }

    /// Removes all parts that have recovered, or that had no request for long.
    pub(super) fn evict_idle_subjects(&mut self) {
        if self.subject_count == 0 {
            return;
        }
        let (now, instances) = (self.now, &self.instances);
        let idle_parts = |(id, parent): (usize, &ScopeInstance)| {
            let parts = parent.subjects.instances.iter().filter(|(_, part)| instances[part.0].is_idle(now));
            parts.map(|(subject, _)| (InstanceId(id), *subject)).collect::<Vec<_>>()
        };
        let idle: Vec<_> = instances.iter().flat_map(idle_parts).collect();
        idle.into_iter().for_each(|(parent, subject)| self.remove_subject(parent, subject));
    }

    /// Records a response in the scope instance `id` of `grant`, or in the part of it that an overload is attributed to,
    /// and in the smaller parts that back off already. Returns the effect.
    pub(super) fn record_in_scope(
        &mut self,
        (id, epoch): (InstanceId, BackoffEpoch),
        grant: &SlotGrant,
        outcome: &OriginOutcome,
        random: f64,
    ) -> FeedbackEffect {
        let (now, sent, source) = (self.now, grant.granted_at, grant.source);
        let ScopeInstance { limiter, subjects, .. } = &mut self.instances[id.0];
        let backoff = limiter.config.as_ref().and_then(|config| config.backoff.as_ref());
        let attributable = backoff.filter(|backoff| {
            backoff.pauses_after(outcome) && !outcome.is_unreachable && limiter.backoff_state.is_current(epoch)
        });
        let Some(backoff) = attributable else {
            if outcome.is_success() {
                subjects.evidence.record_success(source.route, now);
            }
            let effect = limiter.record_response(epoch, outcome, random, sent, now);
            self.record_in_subjects(id, grant, outcome, random, |_| true);
            return effect;
        };
        let level = limiter.backoff_state.level();
        let attribution =
            subjects.evidence.record_overload(source, backoff.min_clients, backoff.window, level > 0, now);
        let Some(subject) = attribution.subject else {
            let effect = limiter.record_response(epoch, outcome, random, sent, now);
            self.record_in_subjects(id, grant, outcome, random, |_| true);
            return effect;
        };
        if attribution.is_first_of_network {
            limiter.record_load(outcome, sent, now);
        }
        self.record_in_subjects(id, grant, outcome, random, |other| other < subject);
        self.record_in_subject(id, subject, grant, outcome, random)
    }

    /// Records a response in the parts of scope instance `parent` that the request was granted slots of.
    fn record_in_subjects(
        &mut self,
        parent: InstanceId,
        grant: &SlotGrant,
        outcome: &OriginOutcome,
        random: f64,
        is_recorded: impl Fn(BackoffSubject) -> bool,
    ) {
        for &(id, epoch) in &grant.instances {
            let instance = &mut self.instances[id.0];
            if instance.part_of.is_some_and(|(scope, subject)| scope == parent && is_recorded(subject)) {
                let _ = instance.limiter.record_response(epoch, outcome, random, grant.granted_at, self.now);
            }
        }
    }

    /// Records an overload in a part of scope instance `parent`. Creates the instance of the part if it has none.
    fn record_in_subject(
        &mut self,
        parent: InstanceId,
        subject: BackoffSubject,
        grant: &SlotGrant,
        outcome: &OriginOutcome,
        random: f64,
    ) -> FeedbackEffect {
        let (id, epoch) = match self.instances[parent.0].subjects.instances.get(&subject) {
            Some(&id) => {
                // Requests that were sent before the part backed off belong to the same overload.
                let granted = grant.instances.iter().find(|(granted, _)| *granted == id);
                (id, granted.map_or(BackoffEpoch::BEFORE_ANY, |(_, epoch)| *epoch))
            }
            None => {
                if self.subject_count >= MAX_SUBJECTS {
                    self.evict_idle_subjects();
                }
                if self.subject_count >= MAX_SUBJECTS {
                    return FeedbackEffect::default();
                }
                let id = self.create_subject(parent, subject);
                (id, self.instances[id.0].limiter.backoff_state.epoch())
            }
        };
        self.instances[id.0].limiter.record_response(epoch, outcome, random, grant.granted_at, self.now)
    }

    fn create_subject(&mut self, parent: InstanceId, subject: BackoffSubject) -> InstanceId {
        let config = self.subject_config(parent, matches!(subject, BackoffSubject::Client(_)));
        let scope = Arc::clone(&self.instances[parent.0].scope);
        let mut instance = ScopeInstance::new(&scope, Arc::clone(&scope), config, self.now);
        instance.part_of = Some((parent, subject));
        instance.touch(self.now);
        let id = InstanceId(self.instances.insert(instance));
        self.instances[parent.0].subjects.instances.insert(subject, id);
        self.subject_count += 1;
        id
    }

    fn remove_subject(&mut self, parent: InstanceId, subject: BackoffSubject) {
        if let Some(InstanceId(id)) = self.instances[parent.0].subjects.instances.remove(&subject) {
            self.instances.remove(id);
            self.subject_count -= 1;
        }
    }
}
