//! Assessment of a request: its possible verdicts, combined with the logged decision.

use super::input::{ExplainInput, History};
use crate::policy::decide::QuotaSnapshot;
use crate::policy::{Reason, Refusal, RefusedQuotas, Verdict};

/// Combined result of all rules.
pub(super) struct Assessment<'a> {
    /// Assumed histories of earlier requests.
    pub(super) histories: Vec<History>,
    /// The verdict; two if it depends on the history.
    pub(super) verdicts: Vec<AssessedVerdict<'a>>,
    /// True if the log contains another decision.
    pub(super) differs_from_log: bool,
    /// True if the response is taken from the log.
    pub(super) is_logged_response: bool,
}

/// A verdict, and the quota usage after it.
pub(super) struct AssessedVerdict<'a> {
    pub(super) verdict: Verdict,
    pub(super) quota_snapshots: Vec<QuotaSnapshot<'a>>,
}

impl<'a> Assessment<'a> {
    pub(super) fn new(input: &ExplainInput<'a>) -> Self {
        match input.logged_decision() {
            _ if input.replayed.is_some() => Self::from_replay(input),
            Some(decision) if decision.is_refused_by_live_state() => Self::from_live_state_refusal(input),
            Some(decision) => Self::from_logged_decision(input, decision.reason),
            None => Self::all_histories(input),
        }
    }

    /// Assesses the request under all possible histories.
    fn all_histories(input: &ExplainInput<'a>) -> Self {
        let histories = input.histories();
        let mut verdicts: Vec<AssessedVerdict<'a>> =
            histories.iter().map(|history| AssessedVerdict::new(input, *history)).collect();
        // Also where it is refused either way, for another reason.
        verdicts.dedup_by_key(|assessed| assessed.refusal().copied());
        Self { histories, verdicts, differs_from_log: false, is_logged_response: false }
    }

    /// Assesses the request as a replay does: by the rules, except for logged refusals by scopes and the ledger, which
    /// cannot be reproduced.
    fn from_replay(input: &ExplainInput<'a>) -> Self {
        let assessment = Self::all_histories(input);
        let logged = input.logged_decision().map(|decision| decision.reason);
        match (logged.flatten(), assessment.refusal().map(|refusal| refusal.reason)) {
            (Some(Reason::Ledger), _) | (Some(Reason::Throttle | Reason::Backoff), None) => {
                assessment.with_logged_refusal(input)
            }
            (_, reason) => Self { differs_from_log: logged.is_some_and(|logged| logged != reason), ..assessment },
        }
    }

    /// Returns the logged decision if the current rules can produce it; otherwise the current assessment.
    fn from_logged_decision(input: &ExplainInput<'a>, reason: Option<Reason>) -> Self {
        let assessed = |history| (history, AssessedVerdict::new(input, history));
        let matches_log = |assessed: &AssessedVerdict<'_>| assessed.refusal().map(|refusal| refusal.reason) == reason;
        match [History::BestCase, History::WorstCase]
            .map(assessed)
            .into_iter()
            .find(|(_, assessed)| matches_log(assessed))
        {
            Some((history, assessed)) => Self {
                histories: vec![history],
                verdicts: vec![assessed],
                differs_from_log: false,
                is_logged_response: true,
            },
            None => Self { differs_from_log: true, ..Self::all_histories(input) },
        }
    }

    /// Assesses a request that the rules admit here, and that was refused by state that only the gateway had.
    fn from_live_state_refusal(input: &ExplainInput<'a>) -> Self {
        let assessed = AssessedVerdict::new(input, History::BestCase);
        let differs_from_log = assessed.refusal().is_some();
        let assessment = Self {
            histories: vec![History::BestCase],
            verdicts: vec![assessed],
            differs_from_log,
            is_logged_response: false,
        };
        if differs_from_log { assessment } else { assessment.with_logged_refusal(input) }
    }

    /// Replaces the verdict by the logged refusal.
    fn with_logged_refusal(mut self, input: &ExplainInput<'a>) -> Self {
        if let Some((reason, wait)) =
            input.logged_decision().and_then(|decision| Some((decision.reason?, decision.retry_after())))
        {
            let verdict = Verdict::Refuse(Refusal { reason, quotas: RefusedQuotas::NONE, wait });
            self.verdicts.iter_mut().for_each(|assessed| assessed.verdict = verdict);
        }
        Self { is_logged_response: true, ..self }
    }

    /// Returns the refusal under any history, if there is one.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.verdicts.iter().find_map(AssessedVerdict::refusal)
    }

    /// Returns the refusal if the request is refused under every history.
    pub(super) fn certain_refusal(&self) -> Option<&Refusal> {
        self.refusal().filter(|_| self.verdicts.iter().all(|assessed| assessed.refusal().is_some()))
    }

    /// Returns the quota usage of the refusal.
    pub(super) fn refused_snapshots(&self) -> &[QuotaSnapshot<'a>] {
        let refused = self.verdicts.iter().find(|assessed| assessed.refusal().is_some());
        refused.map_or(&[], |assessed| &assessed.quota_snapshots)
    }
}

impl<'a> AssessedVerdict<'a> {
    fn new(input: &ExplainInput<'a>, history: History) -> Self {
        let (verdict, quota_snapshots) = input.decide(input.classification().class, history);
        Self { verdict, quota_snapshots }
    }

    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match &self.verdict {
            Verdict::Refuse(refusal) => Some(refusal),
            Verdict::Admit { .. } => None,
        }
    }
}
