//! State of the gateway as JSON, for `GET /api/v1/state` and the quota endpoints.

use super::amount::amount;
use super::api::SettingsView;
use super::corrections::Corrections;
use super::{DynGateway, ScopeView};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tidegate_access_log::rfc3339;
use tidegate_engine::{ClassPlan, ClientView, PlanView, QuotaView, ScopeState};
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::tier::Share;
use tidegate_policy::time::ceil_seconds;
use tidegate_policy::{Reason, Timestamp};

/// Returns the whole state; the data of `tidegate status`.
///
/// `not_ready_reasons`: empty if ready. `ledger_error`: null if none. `untrusted_proxy`: warning about a proxy that
/// `trusted_proxies` does not name, with the YAML to write; null if none was seen. `notes`: warnings, such as keys that
/// wait for a restart. `top_clients`: the twenty clients refused most often. `corrections`: the last twenty manual
/// corrections.
pub(super) async fn show(
    State(gateway): State<DynGateway>,
    State(corrections): State<Arc<Corrections>>,
) -> Json<Value> {
    let (now, started) = (gateway.now(), gateway.started_at());
    let quotas: Vec<Value> = gateway.quotas().iter().map(|view| quota(view, now)).collect();
    let scopes: Vec<Value> = gateway.scopes().iter().map(scope).collect();
    let clients: Vec<Value> = gateway.top_clients(TOP_CLIENTS).iter().map(client).collect();
    let listen_addresses = gateway.addresses();
    Json(json!({
        "time": rfc3339(now),
        "started": rfc3339(started),
        "uptime_s": now.saturating_duration_since(started).as_secs(),
        "version": gateway.version(),
        "revision": gateway.revision(),
        "listen": addresses(&listen_addresses.listen),
        "admin": listen_addresses.admin.map(|admin| admin.to_string()),
        "origin": {
            "authority": listen_addresses.origin,
            "resolved": !listen_addresses.origin_addresses.is_empty(),
            "addresses": addresses(&listen_addresses.origin_addresses),
        },
        "settings": settings(&gateway.settings()),
        "not_ready_reasons": gateway.not_ready_reasons(),
        "ledger_error": gateway.ledger_error(),
        "untrusted_proxy": gateway.untrusted_proxy(),
        "notes": gateway.warnings(),
        "quotas": quotas,
        "classes": gateway.classes(),
        "scopes": scopes,
        "crawlers": gateway.crawlers().iter().map(|(operator, view)| crawler(operator, view)).collect::<Vec<Value>>(),
        "connections": gateway.connections(),
        "top_clients": clients,
        "log_lines_dropped": gateway.log_lines_dropped(),
        "corrections": corrections.list(),
    }))
}

/// Returns one quota with the usage of each class.
///
/// `lost`: units counted as used after a crash, though they may not have been. `drift`: units reported by the origin
/// minus units counted here. `overrun`: units that the origin reported as spent beyond the limit. `closed_until`: the
/// origin reported that nothing remains (`sync_from.exhausted`). `pacing`: null without pacing. Of a class, `shed`:
/// share of its requests that its tier refuses now; `guard_units`: units admitted by the crawler guard since the start;
/// `plan`: see [`class_plan`].
pub(super) fn quota(view: &QuotaView, now: Timestamp) -> Value {
    let classes = view.by_class.iter().map(|of_class| {
        json!({
            "class": of_class.class,
            "charged": amount(of_class.charged),
            "shed": of_class.shed_share.ratio(),
            "tier": of_class.tier,
            "guard_units": amount(of_class.guard_admitted),
            "plan": of_class.plan.as_ref().map(class_plan),
        })
    });
    json!({
        "name": view.name,
        "limit": amount(view.limit),
        "enforce": view.enforce,
        "used": amount(view.used),
        "reserved": amount(view.reserved),
        "remaining": amount(view.limit.saturating_sub(view.used).saturating_sub(view.reserved)),
        "overrun": amount(view.overrun),
        "drift": view.drift as f64 / 1000.0,
        "closed_until": view.closed_until.map(rfc3339),
        "lost": amount(view.lost),
        "window_start": rfc3339(view.window_start),
        "window_end": rfc3339(view.window_end),
        "window_ends_in_s": view.window_end.saturating_duration_since(now).as_secs(),
        "pacing": view.plan.as_ref().map(plan),
        "classes": classes.collect::<Vec<Value>>(),
    })
}

/// Returns the pacing plan: `mode`; `planned`, the units that the plan would have used by now; `earmarked`, the units
/// for unpaced classes until the end of the window.
fn plan(view: &PlanView) -> Value {
    json!({ "mode": view.forecast.name(), "planned": amount(view.planned), "earmarked": amount(view.earmarked) })
}

/// Returns the plan of a class: `admit_share` (null for an unpaced class), `tokens` (units available at once),
/// `refill_per_hour` in units, and `forecast_24h`, the forecast units of each of the next 24 hours.
fn class_plan(view: &ClassPlan) -> Value {
    let next_hours: Vec<f64> = view.next_hours.iter().map(|units| (units * 1000.0).round() / 1000.0).collect();
    json!({
        "admit_share": view.admit_share.map(Share::ratio),
        "tokens": view.tokens.map(amount),
        "refill_per_hour": view.refill_per_hour.map(amount),
        "forecast_24h": next_hours,
    })
}

/// Returns the crawl compliance of one operator. `robots_share`: share of its requests for robots.txt.
/// `mean_interval_s`: mean interval between two page requests. `violations`: page requests before the crawl delay was
/// over. `violation_ratio`: violations per interval.
fn crawler(operator: &str, view: &ComplianceView) -> Value {
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    json!({
        "operator": operator,
        "crawl_delay_s": view.advertised,
        "requests": view.requests,
        "robots_share": share(view.robots_txt_requests, view.requests),
        "mean_interval_s": (view.interval_count > 0).then(|| view.total_interval.as_secs_f64() / view.interval_count as f64),
        "violations": view.violations,
        "violation_ratio": share(view.violations, view.interval_count),
    })
}

fn settings(view: &SettingsView) -> Value {
    let failed =
        view.last_reload_error.as_ref().map(|(time, errors)| json!({ "time": rfc3339(*time), "errors": errors }));
    json!({ "loaded_at": rfc3339(view.loaded_at), "last_reload_failed": failed })
}

fn addresses(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// Returns one scope. A partitioned scope has the number of `partitions` and up to 20 `busiest_partitions`. These
/// contain partition keys: do not partition by a header with a secret.
fn scope(view: &ScopeView) -> Value {
    let throttle = view.throttle.as_ref();
    let mut document = throttle.map_or_else(|| json!({}), throttle_state);
    document["name"] = json!(view.name);
    document["inflight"] = json!(view.inflight);
    if let Some(count) = throttle.and_then(|state| state.partitions) {
        document["partitions"] = json!(count);
        document["busiest_partitions"] = view.busiest.iter().map(partition).collect();
    }
    document
}

fn partition(state: &ScopeState) -> Value {
    let mut document = throttle_state(state);
    document["partition"] = json!(&*state.name);
    document["inflight"] = json!(state.in_flight);
    document
}

/// Returns the state of a scope or partition. `delay_s`: current time between two requests. `backoff_level`:
/// consecutive overloads, less one for each `backoff.window` without an overload. `controller`: `autothrottle`,
/// `gradient`, `rampup` or `fixed`.
fn throttle_state(state: &ScopeState) -> Value {
    json!({
        "queue_length": state.queue_length,
        "limit": state.limit,
        "delay_s": state.delay.as_secs_f64(),
        "backoff_s": state.backoff_remaining.as_secs_f64(),
        "backoff_level": state.backoff_level,
        "controller": state.controller.unwrap_or("fixed"),
    })
}

/// Returns one refused client. `refused` counts refusals of all rules, including tiers, quotas and scopes. `limited_by`
/// and `limited_for_s` name only the client's own rule: a bucket or a block (`limited_for_s` is null for a block).
fn client(view: &ClientView) -> Value {
    json!({
        "key": view.key,
        "class": view.class,
        "refused": view.refusal_count,
        "bucket_remaining": view.tokens,
        "limited_by": view.limited_by.map(Reason::name),
        "limited_for_s": view.limited_for.map(ceil_seconds),
    })
}

/// Fits one screen.
const TOP_CLIENTS: usize = 20;
