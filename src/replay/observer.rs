//! Who hears what a replay comes to.

use super::decision::ReplayedDecision;
use super::log::{LinePosition, LogLine};
use super::simulator::Simulator;
use crate::engine::{Admission, DryRun, QuotaView};
use crate::policy::{Facts, Timestamp};

/// Hears of every decision.
pub(super) trait Observer {
    /// A request is about to be decided about.
    fn before_decision(&mut self, _asking: &PendingRequest<'_, '_>) {}

    /// It has been decided about.
    fn after_decision(&mut self, trial: &Simulator, decided: &ReplayedDecision);
}

/// Hears what has been decided.
pub(super) struct FnObserver<T>(pub(super) T);

impl<T: FnMut(&Simulator, &ReplayedDecision)> Observer for FnObserver<T> {
    fn after_decision(&mut self, trial: &Simulator, decided: &ReplayedDecision) {
        self.0(trial, decided);
    }
}

/// A request of a log, with all that the rules see of it.
pub struct PendingRequest<'a, 'text> {
    /// Where it stands.
    pub place: LinePosition,
    /// When it comes.
    pub at: Timestamp,
    /// The line.
    pub line: &'a LogLine<'text>,
    /// What is known of it.
    pub facts: &'a Facts<'a>,
    /// What part of `retry_after_spread` is added to its `Retry-After`.
    pub spread: f64,
    pub(super) secret: Option<u64>,
    pub(super) admission: &'a Admission,
}

impl PendingRequest<'_, '_> {
    /// What it will find.
    pub fn dry_run(&self) -> DryRun<'_> {
        self.admission.dry_run(self.facts, |_| self.secret, self.at)
    }

    /// How all quotas stand.
    pub fn quotas(&self) -> Vec<QuotaView> {
        self.admission.quotas(self.at)
    }
}
