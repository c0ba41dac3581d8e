//! Assessment of a request: its possible verdicts, combined with the logged decision.

use super::input::{ExplainInput, History};
use crate::policy::decide::QuotaSnapshot;
use crate::policy::{Reason, Refusal, Verdict};

/// Combined result of all rules.
pub(super) struct Assessment<'a> {
    /// Assumed histories of earlier requests.
    pub(super) pasts: Vec<History>,
    /// The verdict; two if it depends on the history.
    pub(super) rulings: Vec<AssessedVerdict<'a>>,
    /// True if the log contains another decision.
    pub(super) differs_from_log: bool,
    /// True if the response is taken from the log.
    pub(super) is_as_logged: bool,
}

/// A verdict, and the quota usage after it.
pub(super) struct AssessedVerdict<'a> {
    pub(super) verdict: Verdict,
    pub(super) positions: Vec<QuotaSnapshot<'a>>,
}

impl<'a> Assessment<'a> {
    pub(super) fn of(input: &ExplainInput<'a>) -> Self {
        match input.decided() {
            _ if input.found.is_some() => Self::replayed(input),
            Some(decision) if decision.is_refused_by_live_state() => Self::unknown_to_rules(input),
            Some(decision) => Self::as_decided(input, decision.reason),
            None => Self::all_histories(input),
        }
    }

    /// Assesses the request under all possible histories.
    fn all_histories(input: &ExplainInput<'a>) -> Self {
        let histories = input.histories();
        let mut verdicts: Vec<AssessedVerdict<'a>> =
            histories.iter().map(|history| AssessedVerdict::of(input, *history)).collect();
        // Also where it is refused either way, for another reason.
        verdicts.dedup_by_key(|assessed| assessed.refusal().copied());
        Self { pasts: histories, rulings: verdicts, differs_from_log: false, is_as_logged: false }
    }

    /// Assesses the request as a replay does: by the rules, except for logged refusals by scopes and the ledger, which
    /// cannot be reproduced.
    fn replayed(input: &ExplainInput<'a>) -> Self {
        let assessment = Self::all_histories(input);
        let logged = input.decided().map(|decision| decision.reason);
        match (logged.flatten(), assessment.refusal().map(|refusal| refusal.reason)) {
            (Some(Reason::Ledger), _) | (Some(Reason::Throttle | Reason::Backoff), None) => {
                assessment.with_logged_refusal(input)
            }
            (_, reason) => Self { differs_from_log: logged.is_some_and(|logged| logged != reason), ..assessment },
        }
    }

    /// Returns the logged decision if the current rules can produce it; otherwise the current assessment.
    fn as_decided(input: &ExplainInput<'a>, reason: Option<Reason>) -> Self {
        let assessed = |history| (history, AssessedVerdict::of(input, history));
        let matches_log = |assessed: &AssessedVerdict<'_>| assessed.refusal().map(|refusal| refusal.reason) == reason;
        match [History::BestCase, History::WorstCase]
            .map(assessed)
            .into_iter()
            .find(|(_, assessed)| matches_log(assessed))
        {
            Some((history, assessed)) => {
                Self { pasts: vec![history], rulings: vec![assessed], differs_from_log: false, is_as_logged: true }
            }
            None => Self { differs_from_log: true, ..Self::all_histories(input) },
        }
    }

    /// Assesses a request that the rules admit here, and that was refused by state that only the gateway had.
    fn unknown_to_rules(input: &ExplainInput<'a>) -> Self {
        let assessed = AssessedVerdict::of(input, History::BestCase);
        let differs_from_log = assessed.refusal().is_some();
        let assessment =
            Self { pasts: vec![History::BestCase], rulings: vec![assessed], differs_from_log, is_as_logged: false };
        if differs_from_log { assessment } else { assessment.with_logged_refusal(input) }
    }

    /// Replaces the verdict by the logged refusal.
    fn with_logged_refusal(mut self, input: &ExplainInput<'a>) -> Self {
        if let Some((reason, wait)) = input.decided().and_then(|decision| Some((decision.reason?, decision.wait()))) {
            let verdict = Verdict::Refuse(Refusal { reason, quotas: 0, wait });
            self.rulings.iter_mut().for_each(|assessed| assessed.verdict = verdict);
        }
        Self { is_as_logged: true, ..self }
    }

    /// Returns the refusal under any history, if there is one.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.rulings.iter().find_map(AssessedVerdict::refusal)
    }

    /// Returns the refusal if the request is refused under every history.
    pub(super) fn certain_refusal(&self) -> Option<&Refusal> {
        self.refusal().filter(|_| self.rulings.iter().all(|assessed| assessed.refusal().is_some()))
    }

    /// Returns the quota usage of the refusal.
    pub(super) fn refused_positions(&self) -> &[QuotaSnapshot<'a>] {
        let refused = self.rulings.iter().find(|assessed| assessed.refusal().is_some());
        refused.map_or(&[], |assessed| &assessed.positions)
    }
}

impl<'a> AssessedVerdict<'a> {
    fn of(input: &ExplainInput<'a>, history: History) -> Self {
        let (verdict, positions) = input.decide(input.classified().class, history);
        Self { verdict, positions }
    }

    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match &self.verdict {
            Verdict::Refuse(refusal) => Some(refusal),
            Verdict::Admit { .. } => None,
        }
    }
}
