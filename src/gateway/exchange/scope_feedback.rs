//! Feedback of the origin's responses to the scopes of a request.

use super::known::Known;
use super::origin_trip::{OriginStage, OriginTrip};
use crate::gateway::message::cost;
use crate::gateway::upstream::{ForwardError, OriginBody, rate_limit};
use tidegate_engine::ThrottleRejection;
use tidegate_http1::Response;
use tidegate_policy::throttle;
use tidegate_policy::throttle::autothrottle::Adjustment;
use tracing::{info, warn};

/// Reports the upstream outcome to the scopes. Returns the rejection if a scope entered backoff.
pub(in crate::gateway) fn report_to_scopes(
    known: &Known,
    origin: &OriginTrip,
    is_for_origin_cache: bool,
    result: Result<&Response<OriginBody>, &ForwardError>,
) -> Option<ThrottleRejection> {
    let (OriginStage::Answered { duration, .. }, Some(slots)) = (origin.stage, origin.answered_slots()) else {
        return None;
    };
    // A 504 means that the origin's cache has no response, which is no overload.
    if is_for_origin_cache {
        return None;
    }
    let (status, retry_after) = match result {
        Err(error) if !error.is_of_origin() => return None,
        Err(_) => (None, None),
        Ok(Response { status, fields, .. }) => {
            let is_error = status.is_client_error() || status.is_server_error();
            let parse = if is_error { rate_limit::retry_after } else { rate_limit::exhausted_for };
            (Some(status.as_u16()), parse(fields, known.worker().now()))
        }
    };
    let measured =
        known.route().is_latency_sampled && !result.is_ok_and(|response| cost::was_cache_hit(&response.fields));
    let is_unreachable = result.is_err_and(ForwardError::is_unreachable);
    let outcome =
        throttle::OriginOutcome { status, latency: duration, latency_counts: measured, retry_after, is_unreachable };
    let feedback = slots.record_response(&outcome, known.random(), known.worker().monotonic_now());
    feedback.delay_adjustments.iter().for_each(|(scope, adjustment)| log_delay_adjustment(scope, adjustment));
    let cause = if is_unreachable { "unreachable" } else { "overloaded" };
    for (scope, wait) in &feedback.entered_backoff {
        let wait_s = wait.as_secs_f64();
        warn!(%scope, backoff_ms = wait.as_millis(), "Origin {cause}: scope {scope} backs off for {wait_s:.1} s");
    }
    let rejection = feedback.backoff?;
    Some(ThrottleRejection { retry_after: rejection.retry_after.max(retry_after.unwrap_or_default()), ..rejection })
}

/// Handles a response body that was aborted or timed out: reports it to the scopes and releases the slots.
pub(in crate::gateway) fn report_aborted_body(known: &Known, origin: &mut OriginTrip) {
    let OriginStage::Answered { duration: latency, .. } = origin.stage else { return };
    if let Some(slots) = origin.take_answered_slots() {
        let outcome = throttle::OriginOutcome {
            status: None,
            latency,
            latency_counts: false,
            retry_after: None,
            is_unreachable: false,
        };
        slots.record_response(&outcome, known.random(), known.worker().monotonic_now());
    }
}

/// Logs a delay adjustment of a scope whose autothrottle has `log_adjustments: true`.
fn log_delay_adjustment(scope: &str, adjustment: &Adjustment) {
    let Adjustment { outcome: throttle::OriginOutcome { status, latency, .. }, old_delay: old, new_delay: new, reason } =
        adjustment;
    info!(
        target: "autothrottle", scope, ?latency, status, ?old, ?new, why = reason,
        "Delay of {scope}: {old:?} -> {new:?}, {reason}"
    );
}
