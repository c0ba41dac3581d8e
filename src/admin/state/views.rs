//! State documents from the views of the gateway.

use super::{
    CacheUsageDocument, ClassDocument, ClassPlanDocument, ClientDocument, CrawlerDocument, OriginDocument,
    OriginServerDocument, OutageDocument, PacingDocument, PartitionDocument, PathCostDocument, QuotaDocument,
    ReloadFailureDocument, ScopeDocument, SettingsDocument, SpenderDocument, SpendersDocument, StateDocument,
    SwitchDocument, ThrottleDocument, TrafficDocument,
};
use crate::admin::amount::Amount;
use crate::admin::api::SettingsView;
use crate::admin::cache;
use crate::admin::corrections::Corrections;
use crate::admin::{CacheUsage, DynGateway, ScopeView};
use crate::gateway::{OriginOutage, OriginServerView};
use crate::telemetry::ClassTraffic;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tidegate_access_log::rfc3339;
use tidegate_engine::spenders::{Spender, TopSpenders};
use tidegate_engine::switch_store::SwitchEntry;
use tidegate_engine::{ClassPlan, ClassView, ClientView, PathCostView, QuotaView, ScopeState};
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::tier::Share;
use tidegate_policy::time::ceil_seconds;
use tidegate_policy::{Reason, Timestamp};

/// Number of paths without a route cost for which the origin reported most.
const PATH_COSTS: usize = 5;

/// Returns the whole state.
pub(in crate::admin) async fn show(
    State(gateway): State<DynGateway>,
    State(corrections): State<Arc<Corrections>>,
) -> Json<Value> {
    Json(json!(document(&gateway, &corrections)))
}

/// Returns the whole state, as it is now.
pub(in crate::admin) fn document(gateway: &DynGateway, corrections: &Corrections) -> StateDocument {
    let (now, started) = (gateway.now(), gateway.started_at());
    let listen_addresses = gateway.addresses();
    StateDocument {
        time: rfc3339(now),
        started: rfc3339(started),
        uptime_s: now.saturating_duration_since(started).as_secs(),
        version: gateway.version().into(),
        revision: gateway.revision().into(),
        listen: addresses(&listen_addresses.listen),
        admin: listen_addresses.admin.map(|admin| admin.to_string()),
        origin: OriginDocument {
            resolved: !listen_addresses.origin_addresses.is_empty(),
            addresses: addresses(&listen_addresses.origin_addresses),
            authority: listen_addresses.origin,
            servers: gateway.origin_servers().into_iter().map(origin_server).collect(),
            outage: gateway.origin_outage().map(outage),
        },
        settings: settings(gateway.settings()),
        not_ready_reasons: gateway.not_ready_reasons(),
        ledger_error: gateway.ledger_error(),
        untrusted_proxy: gateway.untrusted_proxy(),
        notes: gateway.warnings(),
        quotas: gateway.quotas().iter().map(|view| quota(view, now)).collect(),
        path_costs: gateway.path_costs().into_iter().take(PATH_COSTS).map(path_cost).collect(),
        classes: gateway.classes(),
        traffic: gateway.class_traffic().iter().map(traffic).collect(),
        spenders: spenders(gateway),
        scopes: gateway.scopes().iter().map(scope).collect(),
        crawlers: gateway.crawlers().iter().map(|(operator, view)| crawler(operator, view)).collect(),
        connections: gateway.connections() as u64,
        top_clients: gateway.top_clients(TOP_CLIENTS).iter().filter(|view| !is_gateway(view)).map(client).collect(),
        log_lines_dropped: gateway.log_lines_dropped(),
        corrections: corrections.list(),
        switches: gateway.switches().iter().map(switch).collect(),
        cache: gateway.cache_usage().map(|usage| cache_usage(&usage)),
    }
}

fn path_cost(view: PathCostView) -> PathCostDocument {
    let generalization = view.generalization.unwrap_or_default();
    PathCostDocument {
        path: view.path,
        quota: view.quota,
        units: view.units.into(),
        generalized_from: generalization.shapes as u64,
        examples: generalization.examples,
    }
}

fn cache_usage(usage: &CacheUsage) -> CacheUsageDocument {
    let (requests, answered) = cache::answered(usage);
    CacheUsageDocument { requests, answered, hit_ratio: cache::hit_ratio(usage), saved: cache::units(&usage.saved) }
}

/// Returns a switch; an ended one has the effect `off`.
pub(in crate::admin) fn switch(entry: &SwitchEntry) -> SwitchDocument {
    SwitchDocument {
        target: entry.target.clone(),
        effect: entry.effect.clone().unwrap_or_else(|| "off".into()),
        since: rfc3339(Timestamp(entry.changed_at_us.saturating_mul(1000))),
        until: entry.until_s.map(|until| rfc3339(Timestamp::from_seconds(until))),
        except: entry.except.clone(),
        why: entry.why.clone(),
        by: entry.by.clone(),
        peer: entry.peer.clone(),
    }
}

/// Returns one quota with the usage of each class.
pub(in crate::admin) fn quota(view: &QuotaView, now: Timestamp) -> QuotaDocument {
    QuotaDocument {
        name: view.name.clone(),
        limit: view.limit.into(),
        enforce: view.enforce,
        used: view.used.into(),
        reserved: view.reserved.into(),
        remaining: view.limit.saturating_sub(view.used).saturating_sub(view.reserved).into(),
        overrun: view.overrun.into(),
        drift: Amount::from_signed_milli(view.drift),
        closed_until: view.closed_until.map(rfc3339),
        lost: view.lost.into(),
        window_start: rfc3339(view.window_start),
        window_end: rfc3339(view.window_end),
        window_ends_in_s: view.window_end.saturating_duration_since(now).as_secs(),
        pacing: view.plan.as_ref().map(|plan| PacingDocument {
            mode: plan.forecast.name().into(),
            planned: plan.planned.into(),
            earmarked: plan.earmarked.into(),
            unpaced_demand_ratio: plan.unpaced_demand_ratio.map(|ratio| (ratio * 1000.0).round() / 1000.0),
        }),
        classes: view.by_class.iter().map(class).collect(),
    }
}

fn class(view: &ClassView) -> ClassDocument {
    ClassDocument {
        class: view.class.clone(),
        charged: view.charged.into(),
        shed: view.shed_share.ratio(),
        tier: view.tier,
        guard_units: view.guard_admitted.into(),
        plan: view.plan.as_ref().map(class_plan),
    }
}

fn class_plan(view: &ClassPlan) -> ClassPlanDocument {
    ClassPlanDocument {
        admit_share: view.admit_share.map(Share::ratio),
        tokens: view.tokens.map(Amount::from),
        refill_per_hour: view.refill_per_hour.map(Amount::from),
        forecast_24h: view.next_hours.iter().map(|units| (units * 1000.0).round() / 1000.0).collect(),
    }
}

fn traffic(view: &ClassTraffic) -> TrafficDocument {
    let sum = |counts: &[(Reason, u64)]| counts.iter().map(|(_, count)| count).sum();
    let named =
        |counts: &[(Reason, u64)]| counts.iter().map(|(reason, count)| (reason.name().to_owned(), *count)).collect();
    TrafficDocument {
        class: view.class.clone(),
        admitted: view.admitted,
        refused: sum(&view.refused),
        refused_by: named(&view.refused),
        shadow_refused: sum(&view.shadow),
        shadow_refused_by: named(&view.shadow),
    }
}

fn spenders(gateway: &DynGateway) -> SpendersDocument {
    let (since, TopSpenders { clients, networks, paths, user_agents }) = gateway.top_spenders(TOP_SPENDERS);
    let documents = |spenders: &[Spender]| spenders.iter().map(spender).collect();
    let client = |client: &Spender| SpenderDocument {
        evidence: evidence(gateway, client.demand.latest_decision).unwrap_or_default(),
        ..spender(client)
    };
    SpendersDocument {
        since: rfc3339(since),
        clients: clients.iter().map(client).collect(),
        networks: documents(&networks),
        paths: documents(&paths),
        user_agents: documents(&user_agents),
    }
}

fn spender(spender: &Spender) -> SpenderDocument {
    let Spender { name, kind, demand } = spender;
    SpenderDocument {
        name: name.clone(),
        kind: kind.map(|kind| kind.name().to_owned()),
        requests: demand.requests,
        refused: demand.refused,
        units: demand.units.into(),
        units_asked: demand.requested_units.into(),
        latest_decision: format!("{:016x}", demand.latest_decision),
        evidence: Vec::new(),
    }
}

/// Returns the evidence of a decision, unless it is no longer stored.
fn evidence(gateway: &DynGateway, decision: u64) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Line {
        evidence: Vec<String>,
    }
    let line: Line = serde_json::from_slice(&gateway.decision(decision)?).ok()?;
    Some(line.evidence)
}

fn crawler(operator: &str, view: &ComplianceView) -> CrawlerDocument {
    let ratio = |part: f64, whole: u64| (whole > 0).then(|| part / whole as f64);
    CrawlerDocument {
        operator: operator.into(),
        crawl_delay_s: view.advertised,
        requests: view.requests,
        robots_share: ratio(view.robots_txt_requests as f64, view.requests),
        mean_interval_s: ratio(view.total_interval.as_secs_f64(), view.interval_count),
        violations: view.violations,
        violation_ratio: ratio(view.violations as f64, view.interval_count),
    }
}

fn origin_server(server: OriginServerView) -> OriginServerDocument {
    let OriginServerView { url, is_healthy, in_flight, failures, last_error } = server;
    OriginServerDocument { url, healthy: is_healthy, in_flight, failures, last_error }
}

fn outage(outage: OriginOutage) -> OutageDocument {
    let OriginOutage { since, failed_requests, last_error } = outage;
    OutageDocument { since: rfc3339(since), failed_requests, last_error }
}

fn settings(view: SettingsView) -> SettingsDocument {
    let failure = |(time, errors)| ReloadFailureDocument { time: rfc3339(time), errors };
    SettingsDocument { loaded_at: rfc3339(view.loaded_at), last_reload_failed: view.last_reload_error.map(failure) }
}

fn addresses(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

fn scope(view: &ScopeView) -> ScopeDocument {
    let partitions = view.throttle.as_ref().and_then(|state| state.partitions);
    ScopeDocument {
        name: view.name.clone(),
        inflight: view.inflight,
        throttle: view.throttle.as_ref().map(throttle),
        partitions: partitions.map(|count| count as u64),
        busiest_partitions: partitions.map(|_| view.busiest.iter().map(partition).collect()),
    }
}

fn partition(state: &ScopeState) -> PartitionDocument {
    PartitionDocument { partition: state.name.to_string(), inflight: state.in_flight.into(), throttle: throttle(state) }
}

fn throttle(state: &ScopeState) -> ThrottleDocument {
    ThrottleDocument {
        queue_length: state.queue_length.into(),
        limit: state.limit.map(u64::from),
        delay_s: state.delay.as_secs_f64(),
        backoff_s: state.backoff_remaining.as_secs_f64(),
        backoff_level: state.backoff_level,
        backoff_parts: state.backoff_parts as u64,
        controller: state.controller.unwrap_or("fixed").into(),
    }
}

/// Returns true for the client of the gateway's own requests: refusals of `tidegate cache warm` are no concern of others.
fn is_gateway(view: &ClientView) -> bool {
    view.key.parse() == Ok(IpAddr::from(Ipv4Addr::UNSPECIFIED))
}

fn client(view: &ClientView) -> ClientDocument {
    ClientDocument {
        key: view.key.clone(),
        class: view.class.clone(),
        refused: view.refusal_count.into(),
        bucket_remaining: view.tokens.map(u64::from),
        limited_by: view.limited_by.map(|reason| reason.name().into()),
        limited_for_s: view.limited_for.map(ceil_seconds),
    }
}

/// Spenders of each kind.
const TOP_SPENDERS: usize = 10;

/// Fits one screen.
const TOP_CLIENTS: usize = 20;
