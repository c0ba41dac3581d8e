//! Who hears what a replay comes to.

use super::decision::Decided;
use super::log::{Line, Place};
use super::simulator::Trial;
use crate::engine::{Admission, Prospect, QuotaView};
use crate::policy::{Facts, Timestamp};

/// Hears of every decision.
pub(super) trait Listener {
    /// A request is about to be decided about.
    fn asked(&mut self, _asking: &Asking<'_, '_>) {}

    /// It has been decided about.
    fn decided(&mut self, trial: &Trial, decided: &Decided);
}

/// Hears what has been decided.
pub(super) struct Told<T>(pub(super) T);

impl<T: FnMut(&Trial, &Decided)> Listener for Told<T> {
    fn decided(&mut self, trial: &Trial, decided: &Decided) {
        self.0(trial, decided);
    }
}

/// A request of a log, with all that the rules see of it.
pub struct Asking<'a, 'text> {
    /// Where it stands.
    pub place: Place,
    /// When it comes.
    pub at: Timestamp,
    /// The line.
    pub line: &'a Line<'text>,
    /// What is known of it.
    pub facts: &'a Facts<'a>,
    /// What part of `retry_after_spread` is added to its `Retry-After`.
    pub spread: f64,
    pub(super) secret: Option<u64>,
    pub(super) admission: &'a Admission,
}

impl Asking<'_, '_> {
    /// What it will find.
    pub fn prospect(&self) -> Prospect<'_> {
        self.admission.prospect(self.facts, |_| self.secret, self.at)
    }

    /// How all quotas stand.
    pub fn quotas(&self) -> Vec<QuotaView> {
        self.admission.quotas(self.at)
    }
}
