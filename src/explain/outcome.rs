//! What becomes of a request, as far as that can be told.

use super::case::{Case, Past};
use super::happened::Decided;
use crate::policy::decide::Position;
use crate::policy::{Reason, Refusal, Verdict};

/// What the rules say, all together.
pub(super) struct Outcome<'a> {
    /// How the requests before it may have gone.
    pub(super) pasts: Vec<Past>,
    /// The verdict; two, where it depends on that.
    pub(super) rulings: Vec<Ruled<'a>>,
    /// A log says that it was decided otherwise.
    pub(super) differs_from_log: bool,
}

/// A verdict, and where it leaves the quotas.
pub(super) struct Ruled<'a> {
    pub(super) verdict: Verdict,
    pub(super) positions: Vec<Position<'a>>,
}

impl<'a> Outcome<'a> {
    pub(super) fn of(case: &Case<'a>) -> Self {
        match case.decided() {
            Some(decided) if decided.is_refused_out_of_sight() => Self::out_of_sight(case, decided),
            Some(decided) => Self::as_decided(case, decided.reason),
            None => Self::open(case),
        }
    }

    /// Whatever may have been before.
    fn open(case: &Case<'a>) -> Self {
        let pasts = vec![Past::Kind, Past::Unkind];
        let mut rulings: Vec<Ruled<'a>> = pasts.iter().map(|past| Ruled::of(case, *past)).collect();
        // Also where it is refused either way, for another reason.
        rulings.dedup_by_key(|ruled| ruled.refusal().copied());
        Self { pasts, rulings, differs_from_log: false }
    }

    /// As it was decided, where the rules of today may say so.
    fn as_decided(case: &Case<'a>, reason: Option<Reason>) -> Self {
        let ruled = |past| (past, Ruled::of(case, past));
        let says_so = |ruled: &Ruled<'_>| ruled.refusal().map(|refusal| refusal.reason) == reason;
        match [Past::Kind, Past::Unkind].map(ruled).into_iter().find(|(_, ruled)| says_so(ruled)) {
            Some((past, ruled)) => Self { pasts: vec![past], rulings: vec![ruled], differs_from_log: false },
            None => Self { differs_from_log: true, ..Self::open(case) },
        }
    }

    /// What can be asked here admitted it; what only the gate saw did not.
    fn out_of_sight(case: &Case<'a>, decided: &Decided) -> Self {
        let admitted = Ruled::of(case, Past::Kind);
        let differs_from_log = admitted.refusal().is_some();
        let reason = decided.reason.unwrap_or(Reason::Throttle);
        let verdict = Verdict::Refuse(Refusal { reason, quotas: 0, wait: decided.wait() });
        Self { pasts: vec![Past::Kind], rulings: vec![Ruled { verdict, ..admitted }], differs_from_log }
    }

    /// Why it is refused, if ever.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.rulings.iter().find_map(Ruled::refusal)
    }

    /// Why it is refused whatever came before, if it is.
    pub(super) fn certain_refusal(&self) -> Option<&Refusal> {
        self.refusal().filter(|_| self.rulings.iter().all(|ruled| ruled.refusal().is_some()))
    }

    /// Where the quotas stand when it is refused.
    pub(super) fn refused_positions(&self) -> &[Position<'a>] {
        let refused = self.rulings.iter().find(|ruled| ruled.refusal().is_some());
        refused.map_or(&[], |ruled| &ruled.positions)
    }
}

impl<'a> Ruled<'a> {
    fn of(case: &Case<'a>, past: Past) -> Self {
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
