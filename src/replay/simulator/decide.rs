//! Decision of one simulated request, from the facts of its log line to the scheduling of its completion.

use super::Simulator;
use crate::engine::{AdmissionOutcome, Evaluation, Observation, ObservedRequest, QuotaUsage};
use crate::policy::address_lists::ListSet;
use crate::policy::facts::claimed_operator;
use crate::policy::{BotId, Claim, Facts, Proof, QuotaId, Reason, Signature, Timestamp, Units};
use crate::replay::decision::ReplayedDecision;
use crate::replay::in_flight::{Completion, PendingCharge};
use crate::replay::log::{LogLine, NativeFields, OrderedLine};
use crate::replay::logged_evidence::LoggedEvidence;
use crate::replay::observer::{Observer, PendingRequest};
use crate::replay::origin_cache::PageNumber;
use crate::replay::request::ReplayRequest;
use smallvec::SmallVec;

impl Simulator {
    pub(super) fn decide(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        listener: &mut impl Observer,
    ) -> ReplayedDecision {
        let (at, own) = (next.at, line.native.as_deref());
        let (claim, browser) = self.claims.claim(&self.policy.agents, request.user_agent);
        let said = own.map(|own| LoggedEvidence::of(own, &self.rules, |name| self.policy.operators.id(name)));
        let signature = said.as_ref().map_or(Signature::Absent, |said| said.signature);
        let look = ObservedRequest {
            method: request.method,
            path: &request.path,
            query: request.query,
            client: request.client,
            user_agent: request.user_agent,
            browser,
            referer: request.referer,
            seen: request.seen,
        };
        let observation = match claim {
            Claim::Browser | Claim::NoUserAgent if own.is_none() && !signature.names_an_agent() => {
                Observation::of(&look, &self.admission, at)
            }
            _ => None,
        };
        let holds_key_of = said.as_ref().and_then(|said| said.holds_key_of);
        let facts = Facts {
            method: request.method,
            host: request.host,
            path: &request.path,
            query: request.query,
            client: request.client,
            address_lists: match self.rules.lists.is_empty() {
                true => ListSet::default(),
                false => self.policy.lists.lookup(request.client),
            },
            user_agent: request.user_agent,
            claim,
            proof: said.as_ref().and_then(|said| said.proof).unwrap_or_else(|| self.proof(claim, signature, request)),
            signature,
            api_key_classes: holds_key_of.as_slice(),
            bot_score: match &said {
                Some(said) => said.suspicion,
                None => observation.and_then(|observation| observation.score_if_suspected(&self.admission)),
            },
        };
        let secret = said.as_ref().and_then(|said| said.secret);
        listener.before_decision(&PendingRequest {
            place: next.place,
            at,
            line,
            facts: &facts,
            spread: self.retry_after_spread(own),
            secret,
            admission: &self.admission,
        });
        if own.is_some_and(|own| own.reason == Some(Reason::Ledger.name())) {
            // The ledger refusal was the only one, and it changed no state.
            return self.copy_logged_refusal(next, line, &facts);
        }
        let judgement = self.admission.evaluate(&facts, |_| secret, at);
        let bot = match claim {
            Claim::Bot { bot, .. } => bot,
            _ => None,
        };
        self.apply_decision(next, line, request, (judgement, observation, bot))
    }

    /// Returns a refusal by `ledger` as logged: the missing units cannot be reproduced.
    fn copy_logged_refusal(&self, next: OrderedLine<'_>, line: &LogLine<'_>, facts: &Facts<'_>) -> ReplayedDecision {
        ReplayedDecision {
            place: next.place,
            at: next.at,
            classified: self.rules.classify(facts),
            bot: None,
            route: self.rules.route(facts),
            refused: Some(Reason::Ledger),
            shadow: None,
            refused_by: 0,
            retry_after_s: line.native.as_ref().and_then(|own| own.retry_after_s),
            standings: SmallVec::new(),
            costs: SmallVec::new(),
        }
    }

    /// Applies a decision: schedules completion, settlement and observation of the request.
    fn apply_decision(
        &mut self,
        next: OrderedLine<'_>,
        line: &LogLine<'_>,
        request: &ReplayRequest<'_>,
        (judgement, observation, bot): (Evaluation, Option<Observation>, Option<BotId>),
    ) -> ReplayedDecision {
        let (at, own) = (next.at, line.native.as_deref());
        let Evaluation { classified, route, decision, .. } = judgement;
        let mut decided = ReplayedDecision {
            place: next.place,
            at,
            classified,
            bot,
            route,
            refused: None,
            shadow: decision.shadow,
            refused_by: 0,
            // The response to an admitted request may contain a Retry-After of the origin.
            retry_after_s: own.filter(|own| own.reason.is_none()).and_then(|own| own.retry_after_s),
            standings: decision.standings,
            costs: SmallVec::new(),
        };
        let mut page = None;
        if decided.is_costly() {
            page = self.page(request, at);
            let is_kept = page.is_some_and(|(_, is_kept)| is_kept);
            decided.costs = self.costs(&decided.standings, route, own, is_kept);
        }
        let mut bill = None;
        match decision.ruling {
            AdmissionOutcome::Refused(refusal) => {
                decided.refused = Some(refusal.reason);
                decided.refused_by = refusal.quotas;
                decided.retry_after_s = Some(refusal.retry_after(self.retry_after_spread(own)));
            }
            AdmissionOutcome::Admitted(permit) => match own.and_then(|own| Some((logged_origin_refusal(own)?, own))) {
                Some((reason, own)) => {
                    decided.refused = Some(reason);
                    decided.retry_after_s = own.retry_after_s;
                    // The request waited for slots; then its reservation was released.
                    bill = Some(PendingCharge {
                        permit,
                        class: classified.class,
                        costs: None,
                        then_settled: None,
                        page: None,
                    });
                }
                None if decided.is_costly() => {
                    let fetched = page.filter(|(_, is_kept)| !is_kept).map(|(page, _)| page);
                    let costs = Some(decided.costs.clone());
                    bill = Some(PendingCharge {
                        permit,
                        class: classified.class,
                        costs,
                        then_settled: None,
                        page: fetched,
                    });
                }
                None => {}
            },
        }
        let is_costly = !self.rules.routes[route].is_free();
        let status = Some(line.status).filter(|status| decided.refused.is_none() && *status != CLIENT_LEFT);
        let lesson = observation.map(|observation| (observation.with_costly(is_costly), status));
        let due = match own {
            Some(own) => at + own.scope_wait + own.origin.unwrap_or_default(),
            None => at + self.latency,
        };
        if let Some(turns) = own.and_then(|own| self.sequences(own, &decided.standings, next.place.file))
            && let Some(bill) = bill.take()
        {
            self.settle_in_sequence(&turns, bill, at);
        }
        self.schedule_completion(Completion { due, charge: bill.map(Box::new), observation: lesson });
        decided
    }

    /// Returns the fraction of `retry_after_spread` that the gateway added to the `Retry-After` of a decision.
    fn retry_after_spread(&self, own: Option<&NativeFields<'_>>) -> f64 {
        own.map_or(0.0, |own| self.policy.settings.headers.retry_after_spread.ratio() * chance(own.id))
    }

    /// Returns the requested page, and true if it is cached; `None` without a cache.
    fn page(&self, request: &ReplayRequest<'_>, now: Timestamp) -> Option<(PageNumber, bool)> {
        let cache = self.cache.as_ref()?;
        let page = cache.page(request)?;
        Some((page, cache.is_fresh(page, now)))
    }

    /// Returns the actual cost by quota: as logged, else as assumed for the route, else the expected cost.
    fn costs(
        &self,
        standings: &[QuotaUsage],
        route: usize,
        own: Option<&NativeFields<'_>>,
        is_kept: bool,
    ) -> SmallVec<[(QuotaId, Units); 2]> {
        let cost = |standing: &QuotaUsage| {
            let name = &self.rules.quotas[usize::from(standing.quota.0)].name;
            let told = own.filter(|own| own.reason.is_none()).and_then(|own| own.charged(name));
            let assumed = || if is_kept { Units::ZERO } else { self.costs[route].unwrap_or(standing.cost) };
            (standing.quota, told.unwrap_or_else(assumed))
        };
        standings.iter().map(cost).collect()
    }

    /// Verifies a claim by the published address ranges.
    fn proof(&self, claim: Claim, signature: Signature, request: &ReplayRequest<'_>) -> Proof {
        match claimed_operator(claim, signature).filter(|_| !request.is_named) {
            Some(operator) => self.policy.operators.verify(operator, request.client, Timestamp::default()),
            None => Proof::Unknown,
        }
    }
}

/// Returns the reason of a logged refusal that followed from the state of the origin and cannot be reproduced.
pub(super) fn logged_origin_refusal(own: &NativeFields<'_>) -> Option<Reason> {
    let given = [Reason::Throttle, Reason::Backoff];
    given.into_iter().find(|reason| own.reason == Some(reason.name()))
}

/// Returns the random number in [0, 1] that the gateway derived from the decision id.
fn chance(id: u64) -> f64 {
    f64::from((id >> 32) as u32) / f64::from(u32::MAX)
}

/// Logged status of clients that disconnected before the response.
const CLIENT_LEFT: u16 = 499;
