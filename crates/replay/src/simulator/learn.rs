//! Learning of a simulation: hours are observed as a gateway would observe them that starts with the log and runs to its
//! end.

use super::Simulator;
use std::time::Duration;
use tidegate_engine::LearnedDemand;
use tidegate_policy::Timestamp;
use tidegate_policy::bot_detection::LearnedBaseline;

/// Interval of plans: hours that end without a request are recorded, too.
const PLAN_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// Part of the last hour that a log may lack: its last request is rarely at the end of its last minute.
const LAST_HOUR_TOLERANCE: Duration = Duration::from_secs(60);

impl Simulator {
    /// Observes every hour from `now` on.
    pub(crate) fn start_learning(&mut self, now: Timestamp) {
        self.learned_until = Some(Timestamp::default());
        self.learn_until(now);
    }

    /// Returns what a gateway would have learned by the end of the log at `last`. The last hour counts only if the log
    /// contains it but for a minute.
    pub(crate) fn learned(mut self, last: Timestamp) -> (Vec<LearnedDemand>, LearnedBaseline) {
        self.settle_all(last);
        self.admission.plan_paced_quotas(last + LAST_HOUR_TOLERANCE);
        (self.engine.learned_demand(), self.engine.learned_baseline())
    }

    /// Records the hours that have ended by `now`, if this simulation learns.
    pub(super) fn learn_until(&mut self, now: Timestamp) {
        let is_due = |last: Timestamp| now.saturating_duration_since(last) >= PLAN_INTERVAL;
        if self.learned_until.is_some_and(is_due) {
            self.learned_until = Some(now);
            self.admission.plan_paced_quotas(now);
        }
    }
}
