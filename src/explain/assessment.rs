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
    pub(super) fn of(case: &ExplainInput<'a>) -> Self {
        match case.decided() {
            _ if case.found.is_some() => Self::replayed(case),
            Some(decided) if decided.is_refused_by_live_state() => Self::unknown_to_rules(case),
            Some(decided) => Self::as_decided(case, decided.reason),
            None => Self::all_histories(case),
        }
    }

    /// Assesses the request under all possible histories.
    fn all_histories(case: &ExplainInput<'a>) -> Self {
        let pasts = case.histories();
        let mut rulings: Vec<AssessedVerdict<'a>> = pasts.iter().map(|past| AssessedVerdict::of(case, *past)).collect();
        // Also where it is refused either way, for another reason.
        rulings.dedup_by_key(|ruled| ruled.refusal().copied());
        Self { pasts, rulings, differs_from_log: false, is_as_logged: false }
    }

    /// Assesses the request as a replay does: by the rules, except for logged refusals by scopes and the ledger, which
    /// cannot be reproduced.
    fn replayed(case: &ExplainInput<'a>) -> Self {
        let open = Self::all_histories(case);
        let logged = case.decided().map(|decided| decided.reason);
        match (logged.flatten(), open.refusal().map(|refusal| refusal.reason)) {
            (Some(Reason::Ledger), _) | (Some(Reason::Throttle | Reason::Backoff), None) => {
                open.with_logged_refusal(case)
            }
            (_, reason) => Self { differs_from_log: logged.is_some_and(|logged| logged != reason), ..open },
        }
    }

    /// Returns the logged decision if the current rules can produce it; otherwise the current assessment.
    fn as_decided(case: &ExplainInput<'a>, reason: Option<Reason>) -> Self {
        let ruled = |past| (past, AssessedVerdict::of(case, past));
        let says_so = |ruled: &AssessedVerdict<'_>| ruled.refusal().map(|refusal| refusal.reason) == reason;
        match [History::BestCase, History::WorstCase].map(ruled).into_iter().find(|(_, ruled)| says_so(ruled)) {
            Some((past, ruled)) => {
                Self { pasts: vec![past], rulings: vec![ruled], differs_from_log: false, is_as_logged: true }
            }
            None => Self { differs_from_log: true, ..Self::all_histories(case) },
        }
    }

    /// Assesses a request that the rules admit here, and that was refused by state that only the gateway had.
    fn unknown_to_rules(case: &ExplainInput<'a>) -> Self {
        let ruled = AssessedVerdict::of(case, History::BestCase);
        let differs_from_log = ruled.refusal().is_some();
        let open = Self { pasts: vec![History::BestCase], rulings: vec![ruled], differs_from_log, is_as_logged: false };
        if differs_from_log { open } else { open.with_logged_refusal(case) }
    }

    /// Replaces the verdict by the logged refusal.
    fn with_logged_refusal(mut self, case: &ExplainInput<'a>) -> Self {
        if let Some((reason, wait)) = case.decided().and_then(|decided| Some((decided.reason?, decided.wait()))) {
            let verdict = Verdict::Refuse(Refusal { reason, quotas: 0, wait });
            self.rulings.iter_mut().for_each(|ruled| ruled.verdict = verdict);
        }
        Self { is_as_logged: true, ..self }
    }

    /// Returns the refusal under any history, if there is one.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.rulings.iter().find_map(AssessedVerdict::refusal)
    }

    /// Returns the refusal if the request is refused under every history.
    pub(super) fn certain_refusal(&self) -> Option<&Refusal> {
        self.refusal().filter(|_| self.rulings.iter().all(|ruled| ruled.refusal().is_some()))
    }

    /// Returns the quota usage of the refusal.
    pub(super) fn refused_positions(&self) -> &[QuotaSnapshot<'a>] {
        let refused = self.rulings.iter().find(|ruled| ruled.refusal().is_some());
        refused.map_or(&[], |ruled| &ruled.positions)
    }
}

impl<'a> AssessedVerdict<'a> {
    fn of(case: &ExplainInput<'a>, past: History) -> Self {
        let (verdict, positions) = case.decide(case.classified().class, past);
        Self { verdict, positions }
    }

    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match &self.verdict {
            Verdict::Refuse(refusal) => Some(refusal),
            Verdict::Admit { .. } => None,
        }
    }
}
