//! Assessment of a request: its possible verdicts, combined with the logged decision.

use super::input::{ExplainInput, History};
use super::step::StepResult;
use tidegate_policy::decide::{Check, CheckResult, QuotaSnapshot};
use tidegate_policy::{Reason, Refusal, RefusedQuotas, Verdict};

/// Combined result of all rules.
pub(super) struct Assessment<'a> {
    /// The decision under each assumed history of earlier requests; at least one.
    decisions: Vec<AssessedDecision<'a>>,
    /// True if the log contains another decision.
    pub(super) differs_from_log: bool,
    /// True if the response is taken from the log.
    pub(super) is_logged_response: bool,
}

/// A decision: its verdict, the quota usage after it, and the results of its checks.
pub(super) struct AssessedDecision<'a> {
    pub(super) verdict: Verdict,
    pub(super) quota_snapshots: Vec<QuotaSnapshot<'a>>,
    checks: Vec<CheckResult>,
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
        let decisions = input.histories().into_iter().map(|history| AssessedDecision::new(input, history)).collect();
        Self { decisions, differs_from_log: false, is_logged_response: false }
    }

    /// Assesses the request as a replay does: by the rules, except for logged refusals by scopes and the ledger, which
    /// cannot be reproduced.
    fn from_replay(input: &ExplainInput<'a>) -> Self {
        let assessment = Self::all_histories(input);
        let logged = input.logged_decision().map(|decision| decision.reason);
        match (logged.flatten(), assessment.refusal().map(|refusal| refusal.reason)) {
            (Some(Reason::Ledger), _) => assessment.with_logged_refusal(input),
            (Some(reason), None) if reason.is_of_scope() => assessment.with_logged_refusal(input),
            (_, reason) => Self { differs_from_log: logged.is_some_and(|logged| logged != reason), ..assessment },
        }
    }

    /// Returns the logged decision if the current rules can produce it; otherwise the current assessment.
    fn from_logged_decision(input: &ExplainInput<'a>, reason: Option<Reason>) -> Self {
        let matches_log = |decision: &AssessedDecision<'_>| decision.refusal().map(|refusal| refusal.reason) == reason;
        let mut assessment = Self::all_histories(input);
        match assessment.decisions.iter().position(matches_log) {
            Some(index) => {
                let decisions = vec![assessment.decisions.swap_remove(index)];
                Self { decisions, differs_from_log: false, is_logged_response: true }
            }
            None => Self { differs_from_log: true, ..assessment },
        }
    }

    /// Assesses a request that the rules admit here, and that was refused by state that only the gateway had.
    fn from_live_state_refusal(input: &ExplainInput<'a>) -> Self {
        let decision = AssessedDecision::new(input, History::BestCase);
        let differs_from_log = decision.refusal().is_some();
        let assessment = Self { decisions: vec![decision], differs_from_log, is_logged_response: false };
        if differs_from_log { assessment } else { assessment.with_logged_refusal(input) }
    }

    /// Replaces the verdict by the logged refusal.
    fn with_logged_refusal(mut self, input: &ExplainInput<'a>) -> Self {
        if let Some((reason, wait)) =
            input.logged_decision().and_then(|decision| Some((decision.reason?, decision.retry_after())))
        {
            let verdict = Verdict::Refuse(Refusal { reason, quotas: RefusedQuotas::NONE, wait });
            self.decisions.iter_mut().for_each(|decision| decision.verdict = verdict);
        }
        Self { is_logged_response: true, ..self }
    }

    /// Returns the decisions with different outcomes: two if the outcome depends on the history. They may both be
    /// refusals, for another reason.
    pub(super) fn outcomes(&self) -> &[AssessedDecision<'a>] {
        match self.decisions.as_slice() {
            [first, second] if first.refusal() == second.refusal() => &self.decisions[..1],
            decisions => decisions,
        }
    }

    /// Returns the quota usage under the first history.
    pub(super) fn quota_snapshots(&self) -> &[QuotaSnapshot<'a>] {
        self.decisions.first().map_or(&[], |decision| &decision.quota_snapshots)
    }

    /// Returns the results of a check; empty if the decision does not reach it.
    pub(super) fn results(&self, check: Check) -> impl Iterator<Item = CheckResult> {
        let results = self.decisions.iter().flat_map(|decision| &decision.checks);
        results.filter(move |result| result.check == check).copied()
    }

    /// Returns the checks that refuse the request under any history.
    pub(super) fn refusing_checks(&self) -> impl Iterator<Item = Check> {
        let results = self.decisions.iter().flat_map(|decision| &decision.checks);
        results.filter(|result| result.result.is_err()).map(|result| result.check)
    }

    /// Returns the combined result of a check; `None` if the decision does not reach it.
    pub(super) fn step_result(&self, check: Check) -> Option<StepResult> {
        let enforced = self.results(check).next()?.enforced;
        let passes = |result: CheckResult| result.result.is_ok();
        Some(match (self.results(check).any(passes), self.results(check).all(passes)) {
            (_, true) => StepResult::Passed,
            (true, false) if enforced => StepResult::Depends,
            _ => StepResult::refused(enforced),
        })
    }

    /// Returns the refusal under any history, if there is one.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.decisions.iter().find_map(AssessedDecision::refusal)
    }

    /// Returns the refusal if the request is refused under every history.
    pub(super) fn certain_refusal(&self) -> Option<&Refusal> {
        self.refusal().filter(|_| self.decisions.iter().all(|decision| decision.refusal().is_some()))
    }

    /// Returns the quota usage of the refusal.
    pub(super) fn refused_snapshots(&self) -> &[QuotaSnapshot<'a>] {
        let refused = self.decisions.iter().find(|decision| decision.refusal().is_some());
        refused.map_or(&[], |decision| &decision.quota_snapshots)
    }
}

impl<'a> AssessedDecision<'a> {
    fn new(input: &ExplainInput<'a>, history: History) -> Self {
        let mut checks = Vec::new();
        let (verdict, quota_snapshots) = input.decide(input.classification().class, history, &mut checks);
        Self { verdict, quota_snapshots, checks }
    }

    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match &self.verdict {
            Verdict::Refuse(refusal) => Some(refusal),
            Verdict::Admit { .. } => None,
        }
    }
}
