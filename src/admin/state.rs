//! The gate at a glance.

use super::api::SettingsView;
use super::corrections::Corrections;
use super::{Gate, ScopeView};
use crate::engine::{ClassPlan, ClientView, PlanView, QuotaView, ScopeState};
use crate::policy::crawl_delay::ComplianceView;
use crate::policy::tier::Share;
use crate::policy::time::ceil_seconds;
use crate::policy::{Reason, Timestamp, Units};
use crate::telemetry::rfc3339;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// Where it is, what it is told, its quotas, classes and scopes, who is refused most, and what was corrected by hand.
pub(super) async fn show(State(gate): State<Gate>, State(corrections): State<Arc<Corrections>>) -> Json<Value> {
    let (now, started) = (gate.now(), gate.started());
    let quotas: Vec<Value> = gate.quotas().iter().map(|view| quota(view, now)).collect();
    let scopes: Vec<Value> = gate.scopes().iter().map(scope).collect();
    let clients: Vec<Value> = gate.top_clients(TOP_CLIENTS).iter().map(client).collect();
    let places = gate.addresses();
    Json(json!({
        "time": rfc3339(now),
        "started": rfc3339(started),
        "uptime_s": now.saturating_duration_since(started).as_secs(),
        "version": gate.version(),
        "revision": gate.revision(),
        "listen": addresses(&places.listen),
        "admin": places.admin.map(|admin| admin.to_string()),
        "origin": {
            "authority": places.origin,
            "known": !places.origin_addresses.is_empty(),
            "addresses": addresses(&places.origin_addresses),
        },
        "settings": settings(&gate.settings()),
        "missing": gate.not_ready_reasons(),
        "ledger_trouble": gate.ledger_error(),
        "untrusted_proxy": gate.untrusted_proxy(),
        "notes": gate.notes(),
        "quotas": quotas,
        "classes": gate.classes(),
        "scopes": scopes,
        "crawlers": gate.crawlers().iter().map(|(operator, seen)| crawler(operator, seen)).collect::<Vec<Value>>(),
        "connections": gate.connections(),
        "top_clients": clients,
        "log_lines_dropped": gate.log_lines_dropped(),
        "corrections": corrections.list(),
    }))
}

/// One quota, with what each class has had of it.
pub(super) fn quota(view: &QuotaView, now: Timestamp) -> Value {
    let classes = view.by_class.iter().map(|of_class| {
        json!({
            "class": of_class.class,
            "charged": amount(of_class.charged),
            "shed": of_class.shed.ratio(),
            "tier": of_class.tier,
            "guarded": amount(of_class.guard_admitted),
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

fn plan(view: &PlanView) -> Value {
    json!({ "mode": view.forecast.name(), "line": amount(view.planned), "aside": amount(view.earmarked) })
}

fn class_plan(view: &ClassPlan) -> Value {
    let next_hours: Vec<f64> = view.next_hours.iter().map(|units| (units * 1000.0).round() / 1000.0).collect();
    json!({
        "share": view.admit_share.map(Share::ratio),
        "purse": view.tokens.map(amount),
        "per_hour": view.refill_per_hour.map(amount),
        "next_hours": next_hours,
    })
}

/// Units as a JSON number: `12`, not `12.0`, and `12.25`.
pub(super) fn amount(units: Units) -> Value {
    match units.milli() % 1000 {
        0 => json!(units.floor()),
        _ => json!(units.as_f64()),
    }
}

fn crawler(operator: &str, seen: &ComplianceView) -> Value {
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    json!({
        "operator": operator,
        "delay_s": seen.advertised,
        "requests": seen.requests,
        "robots_share": share(seen.robots, seen.requests),
        "spacing_s": (seen.intervals > 0).then(|| seen.intervals_total.as_secs_f64() / seen.intervals as f64),
        "early": seen.violations,
        "early_share": share(seen.violations, seen.intervals),
    })
}

fn settings(view: &SettingsView) -> Value {
    let failed = view.last_reload_error.as_ref().map(|(time, why)| json!({ "time": rfc3339(*time), "mistakes": why }));
    json!({ "loaded": rfc3339(view.loaded), "last_reload_failed": failed })
}

fn addresses(of: &[SocketAddr]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

fn scope(view: &ScopeView) -> Value {
    let throttle = view.throttle.as_ref();
    let mut told = throttle.map_or_else(|| json!({}), throttle_state);
    told["name"] = json!(view.name);
    told["inflight"] = json!(view.inflight);
    if let Some(values) = throttle.and_then(|state| state.partitions) {
        told["values"] = json!(values);
        told["busiest"] = view.busiest.iter().map(partition).collect();
    }
    told
}

fn partition(of: &ScopeState) -> Value {
    let mut told = throttle_state(of);
    told["value"] = json!(&*of.name);
    told["inflight"] = json!(of.in_flight);
    told
}

/// How hard a scope presses now.
fn throttle_state(state: &ScopeState) -> Value {
    json!({
        "waiting": state.queue_length,
        "limit": state.limit,
        "delay_s": state.delay.as_secs_f64(),
        "rests_for_s": state.backoff_remaining.as_secs_f64(),
        "level": state.backoff_level,
        "controller": state.controller.unwrap_or("fixed"),
    })
}

fn client(view: &ClientView) -> Value {
    json!({
        "key": view.key,
        "class": view.class,
        "refused": view.refused,
        "tokens": view.tokens,
        "limited_by": view.limited_by.map(Reason::name),
        "lifts_in_s": view.limited_for.map(ceil_seconds),
    })
}

/// As many as fit a screen.
const TOP_CLIENTS: usize = 20;
