//! What becomes of a request, as far as that can be told.

use super::input::{ExplainInput, History};
use crate::policy::decide::QuotaSnapshot;
use crate::policy::{Reason, Refusal, Verdict};

/// What the rules say, all together.
pub(super) struct Assessment<'a> {
    /// How the requests before it may have gone.
    pub(super) pasts: Vec<History>,
    /// The verdict; two, where it depends on that.
    pub(super) rulings: Vec<AssessedVerdict<'a>>,
    /// A log says that it was decided otherwise.
    pub(super) differs_from_log: bool,
    /// Nothing but a log knows what the client was told.
    pub(super) is_as_logged: bool,
}

/// A verdict, and where it leaves the quotas.
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

    /// Whatever may have been before.
    fn all_histories(case: &ExplainInput<'a>) -> Self {
        let pasts = case.histories();
        let mut rulings: Vec<AssessedVerdict<'a>> = pasts.iter().map(|past| AssessedVerdict::of(case, *past)).collect();
        // Also where it is refused either way, for another reason.
        rulings.dedup_by_key(|ruled| ruled.refusal().copied());
        Self { pasts, rulings, differs_from_log: false, is_as_logged: false }
    }

    /// As a replay decides: by the rules, unless it was the origin that had no room, or the ledger. That a log tells, and
    /// nobody can work it out again.
    fn replayed(case: &ExplainInput<'a>) -> Self {
        let open = Self::all_histories(case);
        let logged = case.decided().map(|decided| decided.reason);
        match (logged.flatten(), open.refusal().map(|refusal| refusal.reason)) {
            (Some(Reason::Ledger), _) | (Some(Reason::Throttle | Reason::Backoff), None) => open.from_log(case),
            (_, reason) => Self { differs_from_log: logged.is_some_and(|logged| logged != reason), ..open },
        }
    }

    /// As it was decided, where the rules of today may say so.
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

    /// What can be asked here admitted it; what only the gate saw did not.
    fn unknown_to_rules(case: &ExplainInput<'a>) -> Self {
        let ruled = AssessedVerdict::of(case, History::BestCase);
        let differs_from_log = ruled.refusal().is_some();
        let open = Self { pasts: vec![History::BestCase], rulings: vec![ruled], differs_from_log, is_as_logged: false };
        if differs_from_log { open } else { open.from_log(case) }
    }

    /// Refused as the log says.
    fn from_log(mut self, case: &ExplainInput<'a>) -> Self {
        if let Some((reason, wait)) = case.decided().and_then(|decided| Some((decided.reason?, decided.wait()))) {
            let verdict = Verdict::Refuse(Refusal { reason, quotas: 0, wait });
            self.rulings.iter_mut().for_each(|ruled| ruled.verdict = verdict);
        }
        Self { is_as_logged: true, ..self }
    }

    /// Why it is refused, if ever.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.rulings.iter().find_map(AssessedVerdict::refusal)
    }

    /// Why it is refused whatever came before, if it is.
    pub(super) fn certain_refusal(&self) -> Option<&Refusal> {
        self.refusal().filter(|_| self.rulings.iter().all(|ruled| ruled.refusal().is_some()))
    }

    /// Where the quotas stand when it is refused.
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
