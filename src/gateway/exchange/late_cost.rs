//! Costs that a response reports after its head: in its body, which is scanned as it passes, or in its trailers.

use super::client_side::ClientSide;
use super::known::Known;
use super::origin_trip::OriginTrip;
use crate::gateway::message::cost;
use crate::gateway::transport::connection_memory::MemoryCharge;
use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;
use tidegate_body_cost::{BodyForm, CostScanner};
use tidegate_engine::{Permit, Receipt};
use tidegate_http1::{Fields, Name};
use tidegate_policy::{QuotaId, Units};

/// Costs that the rest of a response reports.
pub(in crate::gateway) struct LateCost {
    /// Reservations in the quotas whose costs are reported late.
    pub(in crate::gateway) permit: Option<Permit>,
    /// One for each quota.
    reports: SmallVec<[LateReport; 2]>,
    /// Costs in quotas without a reservation that the head reported, and whether it could be read: what is learned of the path.
    pub(in crate::gateway) learned: SmallVec<[(QuotaId, Units); 2]>,
    pub(in crate::gateway) is_readable: bool,
    /// Memory of the decoders of coded bodies.
    charge: MemoryCharge,
}

/// Cost in one quota.
struct LateReport {
    quota: QuotaId,
    /// Scanner of the body; `None` if the cost can only be in a trailer.
    scanner: Option<CostScanner>,
    in_trailer: Option<Units>,
}

impl LateCost {
    /// Prepares for what the rest of a response will report, unless its head has said all. Only a successful response with a body
    /// reports a cost. One that refuses the call (4xx) says nothing of costs, and has none: returns its charges.
    pub(in crate::gateway) fn expect(
        known: &Known,
        origin: &mut OriginTrip,
        client: &ClientSide,
        status: StatusCode,
        fields: &Fields,
        has_body: bool,
    ) -> Receipt {
        let rules = known.rules();
        let is_in_head = |id: QuotaId| {
            let is_free = rules[id].free_when_cached && cost::was_cache_hit(fields);
            is_free || cost::reported_cost(&rules[id], fields).is_some()
        };
        let quotas: SmallVec<[QuotaId; 2]> =
            known.config.late_quotas.iter().copied().filter(|id| !is_in_head(*id)).collect();
        if status.is_client_error() {
            return origin.release(|id| quotas.contains(&id));
        }
        if !status.is_success() || !has_body {
            return Receipt::default();
        }
        let report = |quota: QuotaId| LateReport { quota, scanner: scanner(known, quota, fields), in_trailer: None };
        let (reports, unreadable): (SmallVec<[_; 2]>, SmallVec<[_; 2]>) = quotas
            .into_iter()
            .map(report)
            .partition(|it| it.scanner.is_some() || rules[it.quota].cost_trailer.is_some());
        unreadable.iter().for_each(|report| record(known, report.quota, false));
        if !reports.is_empty() {
            let permit = origin.split_off(|id| reports.iter().any(|report| report.quota == id));
            let (learned, charge) = (SmallVec::new(), client.charge_memory(0));
            origin.late_cost = Some(Box::new(Self { permit, reports, learned, is_readable: true, charge }));
        }
        Receipt::default()
    }

    /// Scans a part of the body.
    pub(in crate::gateway) fn scan(&mut self, data: &[u8]) {
        self.reports.iter_mut().filter_map(|report| report.scanner.as_mut()).for_each(|scanner| scanner.push(data));
        let decoders = self.reports.iter().filter_map(|report| report.scanner.as_ref());
        self.charge.set(decoders.map(CostScanner::decoder_memory).sum());
    }

    /// Reads the trailers.
    pub(in crate::gateway) fn read_trailers(&mut self, known: &Known, trailers: &HeaderMap) {
        for report in &mut self.reports {
            let Some(name) = &known.rules()[report.quota].cost_trailer else { continue };
            let values = trailers.get_all(name).iter().map(http::HeaderValue::as_bytes);
            report.in_trailer = cost::sum_of(values);
        }
    }

    /// Takes the reported cost in each quota; `None` without one. The response was received to its end if `is_whole`.
    pub(in crate::gateway) fn take_costs(&mut self, is_whole: bool) -> SmallVec<[(QuotaId, Option<Units>); 2]> {
        let cost = |LateReport { quota, scanner, in_trailer }: LateReport| {
            let found = scanner.map(|scanner| if is_whole { scanner.finish() } else { scanner.found() });
            (quota, in_trailer.or_else(|| found?.milli().map(Units::from_milli)))
        };
        std::mem::take(&mut self.reports).into_iter().map(cost).collect()
    }

    /// Keeps what the head said of the path until the rest is known.
    pub(in crate::gateway) fn keep_learned(&mut self, learned: &[(QuotaId, Units)], is_readable: bool) {
        self.learned.extend_from_slice(learned);
        self.is_readable = is_readable;
    }
}

/// Counts a response that should report its cost in `quota`, and did if `is_found`.
pub(in crate::gateway) fn record(known: &Known, quota: QuotaId, is_found: bool) {
    if known.route().has_cost_in(quota) {
        known.worker().shared().late_cost_counts.record(&known.rules()[quota].name, &known.route().name, is_found);
    }
}

/// Returns the scanner of a body for the cost in `quota`; `None` if it has no form that is read.
fn scanner(known: &Known, quota: QuotaId, fields: &Fields) -> Option<CostScanner> {
    let paths = known.config.body_costs[quota.index()].as_ref()?;
    let form = BodyForm::from_content_type(fields.get(Name::ContentType)?)?;
    let coding = fields.get(Name::ContentEncoding).unwrap_or_default();
    CostScanner::new(paths.clone(), form, coding)
}
