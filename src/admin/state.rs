//! The gate at a glance.

use super::Gate;
use crate::engine::{ClientView, QuotaView};
use crate::policy::Units;
use crate::telemetry::rfc3339;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// Quotas, classes, scopes and the most refused clients.
pub(super) async fn show(State(gate): State<Gate>) -> Json<Value> {
    let quotas: Vec<Value> = gate.quotas().iter().map(quota).collect();
    let scopes = gate.scopes();
    let scopes: Vec<Value> =
        scopes.iter().map(|scope| json!({ "name": scope.name, "inflight": scope.inflight })).collect();
    let clients: Vec<Value> = gate.top_clients(TOP_CLIENTS).iter().map(client).collect();
    let (now, started) = (gate.now(), gate.started());
    Json(json!({
        "time": rfc3339(now),
        "started": rfc3339(started),
        "uptime_s": now.since(started).as_secs(),
        "version": gate.version(),
        "missing": gate.missing(),
        "notes": gate.notes(),
        "quotas": quotas,
        "classes": gate.classes(),
        "scopes": scopes,
        "top_clients": clients,
    }))
}

/// One quota, with what each class has had of it.
pub(super) fn quota(view: &QuotaView) -> Value {
    let classes = view.by_class.iter().map(|of_class| {
        json!({
            "class": of_class.class,
            "charged": amount(of_class.charged),
            "shed": of_class.shed.ratio(),
            "tier": of_class.tier,
        })
    });
    json!({
        "name": view.name,
        "limit": amount(view.limit),
        "used": amount(view.used),
        "reserved": amount(view.reserved),
        "remaining": amount(view.limit.minus(view.used).minus(view.reserved)),
        "overrun": amount(view.overrun),
        "drift": view.drift as f64 / 1000.0,
        "window_start": rfc3339(view.window_start),
        "window_end": rfc3339(view.window_end),
        "classes": classes.collect::<Vec<Value>>(),
    })
}

/// Units as a JSON number: `12`, not `12.0`, and `12.25`.
pub(super) fn amount(units: Units) -> Value {
    match units.milli() % 1000 {
        0 => json!(units.floor()),
        _ => json!(units.as_f64()),
    }
}

fn client(view: &ClientView) -> Value {
    json!({ "key": view.key.to_string(), "class": view.class, "refused": view.refused, "tokens": view.tokens })
}

/// As many as fit a screen.
const TOP_CLIENTS: usize = 20;
