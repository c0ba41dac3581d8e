//! Report of the clients, networks, paths and user agents that asked for the most units.

use crate::decision::ReplayedDecision;
use crate::report::{SpenderReport, SpendersReport};
use crate::request::ReplayRequest;
use tidegate_engine::Demand;
use tidegate_engine::spenders::{Spender, Spenders, SpendingRequest, TopSpenders};
use tidegate_policy::Units;

/// Entries of each table.
const MAX_ENTRIES: usize = 16_384;

/// Rows of each table in the report.
const MAX_REPORTED: usize = 10;

/// Returns empty tables.
pub(super) fn new() -> Spenders {
    Spenders::new(MAX_ENTRIES)
}

/// Adds a decided request to `spenders`.
pub(super) fn add(spenders: &mut Spenders, decision: &ReplayedDecision, request: &ReplayRequest<'_>) {
    let cost = decision.costs.iter().map(|(_, cost)| *cost).sum::<Units>();
    let is_refused = decision.refusal_reason.is_some();
    spenders.add(&SpendingRequest {
        client: (!request.is_host_name).then_some(request.client),
        // Each process hashes keys with a secret of its own, so that the keys of a log are not those of the replay.
        key: None,
        kind: decision.classification.kind,
        path: &request.path,
        user_agent: request.user_agent,
        cost,
        charged: if is_refused { Units::ZERO } else { cost },
        is_refused,
        decision: 0,
    });
}

/// Returns the largest spenders.
pub(super) fn report(spenders: &Spenders) -> SpendersReport {
    let rows = |spenders: Vec<Spender>| spenders.into_iter().map(row).collect();
    let TopSpenders { clients, networks, paths, user_agents } = spenders.top(MAX_REPORTED);
    SpendersReport {
        clients: rows(clients),
        networks: rows(networks),
        paths: rows(paths),
        user_agents: rows(user_agents),
    }
}

fn row(spender: Spender) -> SpenderReport {
    let Spender { name, kind, demand } = spender;
    let Demand { requests, refused, units, requested_units, .. } = demand;
    SpenderReport { name, kind: kind.map(|kind| kind.name()), requests, refused, units, units_asked: requested_units }
}
