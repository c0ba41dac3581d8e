//! Agreement of a policy with the gateway that wrote the log.

use crate::decision::ReplayedDecision;
use crate::log::LinePosition;
use crate::report::AgreementReport;
use tidegate_access_log::read::NativeFields;
use tidegate_policy::{Reason, Rules};

/// Counts of logged decisions by agreement.
#[derive(Default)]
pub(super) struct Agreement {
    same: u64,
    different: u64,
    first_different: Option<LinePosition>,
    copied_from_log: u64,
    restarts: u64,
    corrections: u64,
}

impl Agreement {
    pub(super) fn add(&mut self, decision: &ReplayedDecision, native: &NativeFields<'_>, rules: &Rules) {
        let class = &rules[decision.classification.class].name;
        match native.reason == decision.refusal_reason.map(Reason::name) && native.class == **class {
            true => self.same += 1,
            false => {
                self.different += 1;
                self.first_different.get_or_insert(decision.position);
            }
        }
        self.copied_from_log += u64::from(decision.is_copied_from_log());
    }

    /// Returns true if no decision has differed so far.
    pub(super) fn is_consistent(&self) -> bool {
        self.different == 0
    }

    pub(super) fn record_restart(&mut self) {
        self.restarts += 1;
    }

    pub(super) fn record_correction(&mut self) {
        self.corrections += 1;
    }

    pub(super) fn report(&self) -> Option<AgreementReport> {
        (self.same + self.different > 0).then(|| AgreementReport {
            same: self.same,
            different: self.different,
            first_different: self.first_different.map(Into::into),
            copied_from_log: self.copied_from_log,
            restarts: self.restarts,
            corrections: self.corrections,
        })
    }
}
