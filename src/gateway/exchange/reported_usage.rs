//! Usage of quotas that the origin reports in its responses (`sync_from`).

use super::known::Known;
use super::origin_trip::OriginTrip;
use crate::gateway::message::quota_sync::{self, BodyScan};
use crate::gateway::message::target::ClientRequest;
use http::StatusCode;
use tidegate_http1::Fields;
use tidegate_policy::QuotaId;
use tidegate_policy::quota_sync::OriginReport;

/// Synchronizes the quotas of the request with the usage in the response headers (`sync_from`).
pub(in crate::gateway) fn sync_quotas(known: &Known, origin: &mut OriginTrip, status: StatusCode, fields: &Fields) {
    let (config, worker) = (&known.config, known.worker());
    let mut now = None;
    for &quota in &config.synced_quotas {
        let Some(sync) = &known.rules()[quota].sync_from else { continue };
        let Some(window) = window_of(origin, quota) else { continue };
        let now = *now.get_or_insert_with(|| worker.now());
        let ClientRequest { head, has_body, .. } = &known.request;
        let mut reported = quota_sync::read(sync, &known.rules()[quota].name, head, *has_body, status, fields, now);
        reported.report.exhausted &= reported.is_certain || confirms_exhaustion(known, quota, window);
        worker.report_origin_count(config, quota, window, reported.report, now);
        if let Some(header) = reported.unreadable_header {
            worker.record_unreadable_report(config, quota, header, now);
        }
        if let Some(text) = reported.body_text {
            origin.body_scans.push(BodyScan::new(quota, window, reported.report, text.clone()));
        }
    }
}

/// Returns the window in which the request is charged in `quota`; `None` if it costs nothing there.
fn window_of(origin: &OriginTrip, quota: QuotaId) -> Option<u64> {
    let reserved = || origin.late_cost.as_ref()?.permit.as_ref()?.window_in(quota);
    origin.charged(quota).map(|charged| charged.window).or_else(reserved)
}

/// Scans a chunk of the response body for the exhaustion text.
pub(in crate::gateway) fn scan_body(known: &Known, origin: &mut OriginTrip, data: &[u8]) {
    origin.body_scans.retain_mut(|scan| {
        let is_found = scan.scan(data);
        if is_found && (scan.is_certain() || confirms_exhaustion(known, scan.quota, scan.window)) {
            let count = OriginReport { exhausted: true, ..scan.report };
            known.worker().report_origin_count(&known.config, scan.quota, scan.window, count, known.worker().now());
        }
        !is_found && !scan.is_done()
    });
}

/// Returns true if a client in another network was also sent a text of exhaustion whose place is not named.
fn confirms_exhaustion(known: &Known, quota: QuotaId, window: u64) -> bool {
    known.config.admission.confirms_exhaustion(quota, window, known.address_key().network())
}
