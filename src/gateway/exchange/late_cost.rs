//! Costs that a response reports after its head: in its body, which is scanned as it passes, or in its trailers.

use super::client_side::ClientSide;
use super::known::Known;
use crate::gateway::message::cost;
use crate::gateway::transport::connection_memory::MemoryCharge;
use http::HeaderMap;
use smallvec::SmallVec;
use tidegate_body_cost::{BodyForm, CostScanner, FoundCost};
use tidegate_engine::Permit;
use tidegate_http1::{Fields, Name};
use tidegate_policy::{QuotaId, Units};

/// Costs that the rest of a response reports.
pub(in crate::gateway) struct LateCost {
    /// Reservations in the quotas whose costs are reported late.
    pub(in crate::gateway) permit: Option<Permit>,
    /// One for each quota.
    reports: SmallVec<[LateReport; 2]>,
    /// Scanners of the body, each for all quotas with its paths.
    scanners: SmallVec<[CostScanner; 1]>,
    /// Costs in quotas without a reservation that the head reported, and whether it could be read: what is learned of the path.
    pub(in crate::gateway) learned: SmallVec<[(QuotaId, Units); 2]>,
    pub(in crate::gateway) is_readable: bool,
    /// Memory of the decoders of coded bodies.
    charge: MemoryCharge,
}

/// Cost in one quota.
struct LateReport {
    quota: QuotaId,
    /// Index of the scanner of the body; `None` if the cost can only be in a trailer.
    scanner: Option<usize>,
    in_trailer: Option<Units>,
}

impl LateCost {
    /// Returns what the rest of a successful response with a body will report of the costs in `quotas`; `None` if it cannot.
    /// `take_permit` returns the reservations in these quotas.
    pub(in crate::gateway) fn expect(
        known: &Known,
        client: &ClientSide,
        quotas: SmallVec<[QuotaId; 2]>,
        fields: &Fields,
        take_permit: impl FnOnce(&dyn Fn(QuotaId) -> bool) -> Option<Permit>,
    ) -> Option<Box<Self>> {
        let mut scanners = SmallVec::new();
        let report = |quota: QuotaId| {
            let scanner = scanner(known, quota, fields, &mut scanners);
            LateReport { quota, scanner, in_trailer: None }
        };
        let can_report =
            |report: &LateReport| report.scanner.is_some() || known.rules()[report.quota].cost_trailer.is_some();
        let (reports, unreadable): (SmallVec<[_; 2]>, SmallVec<[_; 2]>) =
            quotas.into_iter().map(report).partition(can_report);
        unreadable.iter().for_each(|report| record(known, report.quota, false));
        if reports.is_empty() {
            return None;
        }
        let permit = take_permit(&|id| reports.iter().any(|report| report.quota == id));
        let (learned, charge) = (SmallVec::new(), client.charge_memory(0));
        Some(Box::new(Self { permit, reports, scanners, learned, is_readable: true, charge }))
    }

    /// Scans a part of the body.
    pub(in crate::gateway) fn scan(&mut self, data: &[u8]) {
        self.scanners.iter_mut().for_each(|scanner| scanner.push(data));
        self.charge.set(self.scanners.iter().map(CostScanner::decoder_memory).sum());
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
        let scanners = std::mem::take(&mut self.scanners).into_iter();
        let found: SmallVec<[FoundCost; 1]> =
            scanners.map(|scanner| if is_whole { scanner.finish() } else { scanner.found() }).collect();
        let cost = |LateReport { quota, scanner, in_trailer }: LateReport| {
            (quota, in_trailer.or_else(|| found[scanner?].milli().map(Units::from_milli)))
        };
        std::mem::take(&mut self.reports).into_iter().map(cost).collect()
    }

    /// Keeps what the head said of the path until the rest is known.
    pub(in crate::gateway) fn keep_learned(&mut self, learned: &[(QuotaId, Units)], is_readable: bool) {
        self.learned.extend_from_slice(learned);
        self.is_readable = is_readable;
    }
}

/// Returns the quotas with late costs of which the head of the response says nothing.
pub(in crate::gateway) fn unreported(known: &Known, fields: &Fields) -> SmallVec<[QuotaId; 2]> {
    let rules = known.rules();
    let is_in_head = |id: QuotaId| {
        let is_free = rules[id].free_when_cached && cost::was_cache_hit(fields);
        is_free || cost::reported_cost(&rules[id], fields).is_some()
    };
    known.config.late_quotas.iter().copied().filter(|id| !is_in_head(*id)).collect()
}

/// Counts a response that should report its cost in `quota`, and did if `is_found`.
pub(in crate::gateway) fn record(known: &Known, quota: QuotaId, is_found: bool) {
    if known.route().has_cost_in(quota) {
        known.worker().shared().late_cost_counts.record(&known.rules()[quota].name, &known.route().name, is_found);
    }
}

/// Returns the index of the scanner of a body for the cost in `quota`, which is added to `scanners` unless one has the same
/// paths; `None` if the body has no form that is read.
fn scanner(known: &Known, quota: QuotaId, fields: &Fields, scanners: &mut SmallVec<[CostScanner; 1]>) -> Option<usize> {
    let paths = known.config.body_costs[quota.index()].as_ref()?;
    if let Some(index) = scanners.iter().position(|scanner| scanner.paths() == paths) {
        return Some(index);
    }
    let form = BodyForm::from_content_type(fields.get(Name::ContentType)?)?;
    let coding = fields.get(Name::ContentEncoding).unwrap_or_default();
    scanners.push(CostScanner::new(paths.clone(), form, coding)?);
    Some(scanners.len() - 1)
}
