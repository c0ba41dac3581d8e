//! What a request costs: by the response of the origin, by the report of another proxy, or by the rules.

use super::client_side::ClientSide;
use super::known::Known;
use super::late_cost::{self, LateCost};
use super::origin_trip::OriginTrip;
use crate::gateway::cache::Saving;
use crate::gateway::message::cost;
use crate::gateway::unknown_paths::UnknownPath;
use http::StatusCode;
use smallvec::SmallVec;
use tidegate_engine::{QuotaUsage, Receipt};
use tidegate_http1::{Fields, Name};
use tidegate_policy::cost::highest_plausible;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::{QuotaId, Units};
use tracing::warn;

/// Returns what a response of the origin costs in a quota of the request, which expects `expected`: without a report,
/// a cost that was learned for the path alone is none.
pub(in crate::gateway) fn actual_cost(known: &Known, id: QuotaId, expected: Units, fields: &Fields) -> Units {
    let unreported = if known.route().has_cost_in(id) { expected } else { Units::ZERO };
    let cost = cost::actual_cost(&known.rules()[id], unreported, fields);
    plausible_cost(known, id, expected, cost)
}

/// Returns `cost`, or the highest plausible one if it is implausible.
fn plausible_cost(known: &Known, id: QuotaId, expected: Units, cost: Units) -> Units {
    let highest = highest_plausible(expected, limit(known, id));
    // What a client states makes no cost implausible.
    if cost > highest && known.route().has_requested_cost_in(id) {
        return cost_up_to_limit(known, id, expected, cost);
    }
    cost_up_to(known, id, expected, cost, highest)
}

/// Returns the limit of the quota for the one who pays for the request.
fn limit(known: &Known, id: QuotaId) -> Units {
    known.rules()[id].limit_of(known.classified.classification.class, known.classified.payer())
}

/// Returns `cost`, or the limit of the one who pays if it is higher. What bodies report varies by orders of magnitude: a short answer
/// says nothing of a long one.
fn cost_up_to_limit(known: &Known, id: QuotaId, expected: Units, cost: Units) -> Units {
    cost_up_to(known, id, expected, cost, limit(known, id))
}

/// Returns `cost`, or `highest` if it is higher: counts it, and logs the first of each quota.
fn cost_up_to(known: &Known, id: QuotaId, expected: Units, cost: Units, highest: Units) -> Units {
    let quota = &known.rules()[id];
    if cost <= highest {
        return cost;
    }
    if known.config.admission.count_implausible_cost(id) {
        let (route, quota) = (&known.route().name, &quota.name);
        warn!(
            %route, %quota, %cost,
            "the origin reports {cost} of {quota} for a request of route {route} that was expected to cost {expected}: charging \
             {highest}"
        );
    }
    highest
}

/// Charges costs that were not expected: those that the origin reported, and those of a page in response to an exempt request.
pub(in crate::gateway) fn charge_unexpected_costs(
    known: &Known,
    origin: &mut OriginTrip,
    status: StatusCode,
    fields: &Fields,
) {
    charge_reported_costs(known, origin, status, fields);
    if let Some(exemption) = known.classified.exemption.filter(|exemption| exemption.is_bounded()) {
        charge_exempt(known, origin, exemption, status, fields);
    }
}

/// Charges an exempt request as a page if the origin has answered it with one. If it cost units, those of its route are
/// ordinary requests for a while.
fn charge_exempt(known: &Known, origin: &mut OriginTrip, exemption: Exemption, status: StatusCode, fields: &Fields) {
    origin.exempt = None;
    let config = &known.config;
    let route = known.classified.route;
    let is_page = is_page(exemption, status, fields);
    if is_page {
        for (quota, cost) in config.admission.expected_costs(route) {
            if cost::reported_cost(&known.rules()[quota], fields).is_none() && !cost.is_zero() {
                charge_without_reservation(known, origin, quota, cost);
            }
        }
    }
    let has_cost = origin.has_charges();
    if !has_cost && !is_page && status.is_success() {
        config.admission.record_exempt_answer(exemption, route);
    }
    if has_cost && config.admission.record_exempt_cost(exemption, route, origin.decided_at) {
        let (route, kind) = (&known.route().name, exemption.description());
        warn!(%route, "the origin answers with pages what is free on route {route}, {kind}: for an hour, it costs what pages cost");
    }
}

/// Charges costs that the origin reported in quotas in which the route has none, and learns them by the path. An exempt
/// request costs nothing by its route, but is charged what the origin reports for it; that teaches nothing of other requests.
fn charge_reported_costs(known: &Known, origin: &mut OriginTrip, status: StatusCode, fields: &Fields) {
    if known.config.reported_quotas.is_empty() {
        return;
    }
    let is_exempt = known.classified.exemption.is_some();
    let config = &known.config;
    let rules = known.rules();
    let mut reported: SmallVec<[(QuotaId, Units); 2]> = SmallVec::new();
    let mut is_readable = true;
    for &id in &config.reported_quotas {
        if cost::is_unreadable(&rules[id], fields) {
            is_readable = false;
            warn_unreadable_cost(known, id);
        }
        if !is_exempt && known.route().has_cost_in(id) {
            continue;
        }
        let cost = cost::reported_cost(&rules[id], fields).filter(|cost| !cost.is_zero());
        let charged = origin.charged(id).copied();
        match (cost, charged) {
            (None, _) => {}
            (Some(_), Some(charged)) => reported.push((id, charged.settled)),
            (Some(cost), None) => {
                let cost = plausible_cost(known, id, Units::ZERO, cost);
                reported.push((id, cost));
                charge_unexpected_cost(known, origin, id, cost);
            }
        }
    }
    let route = known.classified.route;
    if let Some(late) = &mut origin.late_cost {
        late.keep_learned(&reported, is_readable);
        return;
    }
    if !is_exempt && config.admission.learns_path_costs(route) {
        let is_conclusive = status.is_success() && is_readable && !cost::was_cache_hit(fields);
        let (facts, network) = (known.request.facts(), known.address_key().network());
        config.admission.record_path_costs(&facts, network, &reported, is_conclusive);
    }
    origin.unknown_path = UnknownPath::None;
}

fn warn_unreadable_cost(known: &Known, id: QuotaId) {
    if known.config.is_first_unreadable_cost(known.classified.route) {
        let (route, quota) = (&known.route().name, &known.rules()[id].name);
        warn!(%route, %quota, "cost header of {quota} is no number for route {route}: charging the expected cost");
    }
}

/// Prepares for the costs that the rest of a response will report. One that refuses the call (4xx) reports none and has none:
/// returns the charges of its earlier attempts, for [`OriginTrip::charge`].
pub(in crate::gateway) fn expect_late_costs(
    known: &Known,
    origin: &mut OriginTrip,
    client: &ClientSide,
    status: StatusCode,
    fields: &Fields,
    has_body: bool,
) -> Receipt {
    let quotas = late_cost::unreported(known, fields);
    if status.is_client_error() {
        return origin.split_off(|id| quotas.contains(&id)).map_or_else(Receipt::default, |mut unspent| {
            unspent.mark_unsent();
            unspent.settle_unknown()
        });
    }
    if status.is_success() && has_body {
        let late = LateCost::expect(known, client, quotas, fields, |is_late| origin.split_off(is_late));
        origin.late_cost = late;
    }
    Receipt::default()
}

/// Charges what the rest of a response has reported, once it has ended: `is_whole` if it was received to its end. Of one that
/// was not, the rest may have cost more than is known.
#[inline]
pub(in crate::gateway) fn settle_late_cost(known: &Known, origin: &mut OriginTrip, is_whole: bool) {
    if let Some(late) = origin.late_cost.take() {
        settle_reported_late(known, origin, late, is_whole);
    }
}

fn settle_reported_late(known: &Known, origin: &mut OriginTrip, mut late: Box<LateCost>, is_whole: bool) {
    let mut costs = late.take_costs(is_whole);
    let LateCost { permit, mut learned, is_readable, .. } = *late;
    let reported = |costs: &[(QuotaId, Option<Units>)], id| costs.iter().find(|(quota, _)| *quota == id)?.1;
    if let Some(permit) = permit {
        let receipt = permit.settle(|id, expected| match reported(&costs, id) {
            Some(cost) if is_whole => cost_up_to_limit(known, id, expected, cost),
            Some(cost) => cost_up_to_limit(known, id, expected, cost).max(expected),
            // A cost that was learned for the path alone is none.
            None if is_whole && !known.route().has_cost_in(id) => Units::ZERO,
            None => expected,
        });
        origin.charge(receipt);
    }
    if is_whole {
        costs.iter().for_each(|(id, cost)| late_cost::record(known, *id, cost.is_some()));
    }
    costs.retain(|(id, _)| !known.route().has_cost_in(*id));
    for (id, cost) in costs.iter().filter_map(|(id, cost)| Some((*id, (*cost)?))).filter(|(_, cost)| !cost.is_zero()) {
        let charged = origin.charged(id).map(|charged| charged.settled).unwrap_or_else(|| {
            let cost = cost_up_to_limit(known, id, Units::ZERO, cost);
            charge_unexpected_cost(known, origin, id, cost);
            cost
        });
        learned.push((id, charged));
    }
    let config = &known.config;
    if known.classified.exemption.is_none() && config.admission.learns_path_costs(known.classified.route) {
        let (facts, network) = (known.request.facts(), known.address_key().network());
        config.admission.record_path_costs(&facts, network, &learned, is_whole && is_readable);
    }
    origin.unknown_path = UnknownPath::None;
}

/// Settles with the costs that another proxy reports, by the names of quotas. Quotas of the route that it does not name
/// are charged as expected.
pub(in crate::gateway) fn settle_reported(known: &Known, origin: &mut OriginTrip, costs: &[(String, Units)]) {
    let rules = known.rules();
    let reported = |quota: QuotaId| costs.iter().find(|(name, _)| *name == rules[quota].name).map(|(_, cost)| *cost);
    origin.settle(|quota, expected| {
        reported(quota).map_or(expected, |cost| plausible_cost(known, quota, expected, cost))
    });
    for id in (0..rules.quotas.len()).map(QuotaId::from_index) {
        let is_expected = origin.charged(id).is_some();
        let cost = if is_expected { None } else { reported(id) };
        if let Some(cost) = cost.filter(|cost| !cost.is_zero()) {
            charge_unexpected_cost(known, origin, id, plausible_cost(known, id, Units::ZERO, cost));
        }
    }
}

/// Charges a cost in a quota in which the route has none. Logs the first of each route.
fn charge_unexpected_cost(known: &Known, origin: &mut OriginTrip, id: QuotaId, cost: Units) {
    let config = &known.config;
    charge_without_reservation(known, origin, id, cost);
    if config.is_first_unexpected_cost(known.classified.route) {
        let (route, quota) = (&known.route().name, &known.rules()[id].name);
        warn!(%route, %quota, %cost, "route {route} has no cost in {quota}, and the origin reports {cost}: give it one");
    }
}

fn charge_without_reservation(known: &Known, origin: &mut OriginTrip, id: QuotaId, cost: Units) {
    let classified = &known.classified;
    let class = classified.classification.class;
    let permit = known.config.admission.unexpected_permit(classified.payer(), class, id, origin.decided_at);
    origin.charge(permit.settle(|_, _| cost));
}

/// Charges what the decision expected, because the origin's cache was not what responded.
pub(in crate::gateway) fn charge_as_unexpected(known: &Known, origin: &mut OriginTrip, usages: &[QuotaUsage]) {
    for usage in usages {
        charge_without_reservation(known, origin, usage.quota, usage.cost);
    }
}

/// Returns the expected cost of the request as saved, less what was charged. A request of the gateway itself saves nothing:
/// without the cache, there would be none.
pub(in crate::gateway) fn saved_units(known: &Known, origin: &OriginTrip) -> SmallVec<[(QuotaId, Units); 2]> {
    if known.fill().is_some() {
        return SmallVec::new();
    }
    let charged = |quota| origin.charged(quota).map(|charged| charged.settled).unwrap_or_default();
    let expected = known.config.admission.expected_costs(known.classified.route);
    expected.map(|(quota, cost)| (quota, cost.saturating_sub(charged(quota)))).collect()
}

/// Returns what a copy of the response saves: the units charged for it. Where nothing was charged because the client is
/// exempt from the quotas, or because the response is `from_cache`, the origin's own, it saves what the route is expected
/// to cost.
pub(in crate::gateway) fn saving_of_copy(known: &Known, origin: &OriginTrip, from_cache: bool) -> Saving {
    let saving = |quota: QuotaId, cost| Saving::of(cost, known.rules()[quota].limit);
    let charged = origin.units.charges().iter().map(|charged| saving(charged.quota, charged.settled)).max();
    let charged = charged.filter(|charged| *charged != Saving::NOTHING || !from_cache);
    // Neither tells what the page costs.
    let expected = || {
        let costs = known.config.admission.expected_costs(known.classified.route);
        costs.map(|(quota, cost)| saving(quota, cost)).max()
    };
    charged.or_else(expected).unwrap_or(Saving::NOTHING)
}

/// Longest answer to a certificate authority: a token, a dot and a hash (RFC 8555 section 8.1).
const MAX_KEY_AUTHORIZATION: u64 = 512;

/// Returns true if the response to an exempt request is a page, because the origin does not know such requests. An answer to a
/// preflight lets pages of other origins send more than they may without one (the Fetch standard, section 4.8), or is empty.
fn is_page(exemption: Exemption, status: StatusCode, fields: &Fields) -> bool {
    let has = |name| fields.get_all_by_text(name).next().is_some();
    let length =
        fields.get(Name::ContentLength).and_then(|length| std::str::from_utf8(length).ok()?.parse::<u64>().ok());
    let is_answer = match exemption {
        Exemption::Preflight => {
            let allows_origin = has("access-control-allow-origin");
            allows_origin && (has("access-control-allow-methods") || has("access-control-allow-headers"))
        }
        Exemption::AcmeChallenge => {
            let is_html = fields.get(Name::ContentType).is_some_and(|kind| kind.starts_with(b"text/html"));
            !is_html && length.is_none_or(|length| length <= MAX_KEY_AUTHORIZATION)
        }
        Exemption::RobotsTxt | Exemption::CrawlPolicy | Exemption::Usage => true,
    };
    status.is_success() && status != StatusCode::NO_CONTENT && length != Some(0) && !is_answer
}
