//! Evaluation of a classified request: what its path costs, and the verdict of the rules.

use super::classify::classify;
use super::journal::Journal;
use super::known::Known;
use super::lookup::CacheRole;
use crate::gateway::request_bodies::ReadBody;
use crate::gateway::transport::listener::ListenerKind;
use crate::gateway::unknown_paths::UnknownPath;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_engine::{Classified, Evaluation, LearnedCosts, RequestPurpose};
use tidegate_policy::Timestamp;
use tidegate_policy::cache::CacheFill;
use tidegate_policy::path_shape::PathShape;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Maximum wait of a request for a lease. A burst can exceed the leased units; the next lease usually takes a few
/// milliseconds, on a busy disk a second.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(2);

/// Maximum wait of a request for the response to another one of the same shape, which shows what both cost.
const MAX_COST_WAIT: Duration = Duration::from_secs(2);

/// Decides on a request. Waits only for a lease, and for the cost of a path that is unknown while a quota is nearly spent. After
/// a wait for a lease, the current configuration decides.
pub(in crate::gateway) async fn evaluate(known: Box<Known>, role: &CacheRole, now: Timestamp) -> Box<Journal> {
    let (learned, unknown_path) = match learned_costs(&known, role) {
        Some(costs) => (costs, UnknownPath::None),
        // A client that sends slowly would keep the path from others.
        None if receives_body(&known) => (LearnedCosts::new(), UnknownPath::AwaitsBody),
        // Boxed to keep the future of other requests small.
        None => Box::pin(wait_for_cost(&known)).await,
    };
    let evaluation = decide(&known, role, &learned, now);
    if let Some(ledger_responses) = &known.worker().shared().ledger_responses
        && evaluation.decision.verdict.waits_for_lease()
        && known.worker().shared().may_wait_for_ledger(known.rules())
    {
        let ledger_responses = Arc::clone(ledger_responses);
        // Boxed to keep the future of other requests small.
        let evaluated = Box::pin(evaluate_after_lease(known, role, &unknown_path, &ledger_responses));
        let (known, evaluation) = evaluated.await;
        return Journal::new(known, evaluation, unknown_path);
    }
    Journal::new(known, evaluation, unknown_path)
}

/// Returns the learned costs of a request in quotas in which its route has none; `None` if nothing is known yet.
fn learned_costs(known: &Known, role: &CacheRole) -> Option<LearnedCosts> {
    let (admission, Classified { route, exemption, .. }) = (&known.config.admission, known.classified);
    match role.is_free() || exemption.is_some() || !admission.learns_path_costs(route) {
        true => Some(LearnedCosts::new()),
        false => admission.learned_costs(route, &known.request.facts()),
    }
}

/// Returns true if the body of a request is received before it is sent to the origin.
fn receives_body(known: &Known) -> bool {
    known.request.has_body && !known.route().streams_body && known.connection.listener.kind == ListenerKind::Site
}

/// Waits, if a quota is nearly spent, until the request may be the one of its shape in flight. Returns the costs that were
/// learned meanwhile, or a guard for the request; if neither comes in time, the costs of a request about which nothing is known.
async fn wait_for_cost(known: &Known) -> (LearnedCosts, UnknownPath) {
    let (worker, route, facts) = (known.worker(), known.classified.route, known.request.facts());
    let (admission, client) = (&known.config.admission, known.address_key());
    // Another proxy does not say when it has the response.
    if known.connection.listener.kind == ListenerKind::ForwardAuth {
        return (LearnedCosts::new(), UnknownPath::None);
    }
    let paths = &worker.shared().unknown_paths;
    let mut timeout = pin!(sleep(MAX_COST_WAIT));
    loop {
        let mut ended = pin!(paths.ended.notified());
        // Enabled before the costs are read, so that no notification is missed.
        ended.as_mut().enable();
        let costs = admission.costs_if_nearly_spent(route, worker.now());
        if costs.is_empty() {
            return (costs, UnknownPath::None);
        }
        if let Some(costs) = admission.learned_costs(route, &facts) {
            return (costs, UnknownPath::None);
        }
        let free_after = match paths.enter(PathShape::of(&facts), client, worker.monotonic_now()) {
            Ok(guard) => {
                return match admission.learned_costs(route, &facts) {
                    // Another request has ended since the look above, and its costs were learned.
                    Some(costs) => (costs, UnknownPath::None),
                    None => (LearnedCosts::new(), UnknownPath::InFlight(Box::new(guard))),
                };
            }
            Err(free_after) => free_after.unwrap_or(MAX_COST_WAIT),
        };
        if timeout.is_elapsed() {
            return (costs, UnknownPath::None);
        }
        tokio::select! { () = ended => {} () = &mut timeout => {} () = sleep(free_after) => {} }
    }
}

/// Decides again on a request whose cost was unknown before its body was received. Waits for the cost as a request without a
/// body does, and for a lease. The first decision stands if the request has no learned costs then.
pub(in crate::gateway) async fn reevaluate_after_body(journal: &mut Journal) {
    let known = &journal.known;
    let (learned, unknown_path) =
        match known.config.admission.learned_costs(known.classified.route, &known.request.facts()) {
            Some(costs) => (costs, UnknownPath::None),
            None => wait_for_cost(known).await,
        };
    journal.origin.unknown_path = unknown_path;
    if learned.is_empty() {
        return;
    }
    // Releases what the first decision reserved: the second one reserves it again.
    journal.origin.settle_unknown();
    let connection = Rc::clone(&journal.known.connection);
    let mut timeout = pin!(sleep(MAX_LEASE_WAIT));
    loop {
        let ledger_responses = connection.worker.shared().ledger_responses.as_deref();
        let mut notified = pin!(ledger_responses.map(Notify::notified));
        if let Some(notified) = notified.as_mut().as_pin_mut() {
            // Enabled before the lease state is read, so that no notification is missed.
            notified.enable();
        }
        let evaluation = decide(&journal.known, &CacheRole::Unused, &learned, connection.worker.now());
        let waits_for_lease = evaluation.decision.verdict.waits_for_lease()
            && connection.worker.shared().may_wait_for_ledger(journal.known.rules());
        match notified.as_pin_mut().filter(|_| waits_for_lease && !timeout.is_elapsed()) {
            Some(notified) => tokio::select! { () = notified => {} () = &mut timeout => {} },
            None => return journal.set_evaluation(evaluation),
        }
    }
}

/// Decides on a classified request with the costs `learned`. Does not wait.
fn decide(known: &Known, role: &CacheRole, learned: &LearnedCosts, now: Timestamp) -> Evaluation {
    let purpose = match known.fill() {
        _ if role.is_free() => RequestPurpose::Copy,
        Some(CacheFill::Refresh) => RequestPurpose::Refresh,
        Some(CacheFill::Warm) | None => RequestPurpose::Response,
    };
    let stated = known.read_body.as_deref().map(|body| with_stated_costs(known, body, learned));
    let learned = stated.as_ref().unwrap_or(learned);
    known.config.admission.evaluate_classified(known.classified, &known.request.facts(), learned, purpose, now)
}

/// Returns the costs `learned`, and those that the body states, as far as they can be served.
fn with_stated_costs(known: &Known, body: &ReadBody, learned: &LearnedCosts) -> LearnedCosts {
    let bodies = known.config.request_bodies.iter();
    let (class, payer) = (known.classified.classification.class, known.classified.payer());
    let stated = bodies.flat_map(|bodies| bodies.stated_costs(known.classified.route, body));
    let stated = stated.map(|(quota, cost)| (quota, cost.min(known.rules()[quota].highest_stated(class, payer))));
    learned.iter().copied().chain(stated).collect()
}

/// Classifies and decides again once the ledger has granted a lease, or after [`MAX_LEASE_WAIT`].
async fn evaluate_after_lease(
    mut known: Box<Known>,
    role: &CacheRole,
    unknown_path: &UnknownPath,
    ledger_responses: &Notify,
) -> (Box<Known>, Evaluation) {
    let worker = Rc::clone(known.worker());
    let mut timeout = pin!(sleep(MAX_LEASE_WAIT));
    loop {
        let mut notified = pin!(ledger_responses.notified());
        // Enabled before the lease state is read, so that no notification is missed.
        notified.as_mut().enable();
        // What was read of a body is what this configuration asked for.
        let config = if known.read_body.is_some() { Rc::clone(&known.config) } else { worker.config() };
        (known.client, known.classified) = classify(&known.connection, &known.request, &config, worker.now());
        known.config = config;
        let learned = learned_costs(&known, role).unwrap_or_else(|| match unknown_path {
            // It has waited in vain: decided like one that costs.
            UnknownPath::None => known.config.admission.costs_if_nearly_spent(known.classified.route, worker.now()),
            UnknownPath::AwaitsBody | UnknownPath::InFlight(_) => LearnedCosts::new(),
        });
        let evaluation = decide(&known, role, &learned, worker.now());
        if !evaluation.decision.verdict.waits_for_lease() || timeout.is_elapsed() {
            return (known, evaluation);
        }
        tokio::select! { () = notified => {} () = &mut timeout => {} }
    }
}
