//! State documents from the views of the engine, the gateway and the telemetry.

use super::{
    CacheUsageDocument, ClassDocument, ClassPlanDocument, ClientDocument, CrawlerDocument, LatencyDocument,
    OriginDocument, OriginServerDocument, OutageDocument, PacingDocument, PartitionDocument, PathCostDocument,
    QuotaDocument, ResponsesDocument, RouteDocument, ScopeDocument, SpenderDocument, SpendersDocument, SwitchDocument,
    ThrottleDocument, TierDocument, TrafficDocument,
};
use crate::admin::amount::Amount;
use crate::admin::cache::{self, CacheUsage};
use crate::gateway::{OriginOutage, OriginServerView, OriginView};
use crate::telemetry::{ClassTraffic, Histogram, ResponseCounts, RouteTraffic};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tidegate_access_log::{EvidenceWord, rfc3339};
use tidegate_engine::spenders::{Spender, TopSpenders};
use tidegate_engine::switch_store::SwitchEntry;
use tidegate_engine::{ClassPlan, ClassView, ClientView, PathCostView, QuotaView, ScopeState};
use tidegate_policy::crawl_delay::ComplianceView;
use tidegate_policy::tier::Share;
use tidegate_policy::time::ceil_seconds;
use tidegate_policy::{Reason, Timestamp};

/// Returns the reported units of one path.
pub(crate) fn path_cost(view: PathCostView) -> PathCostDocument {
    let generalization = view.generalization.unwrap_or_default();
    PathCostDocument {
        path: view.path,
        quota: view.quota,
        units: view.units.into(),
        generalized_from: generalization.shapes as u64,
        examples: generalization.examples,
    }
}

/// Returns what the cache did.
pub(crate) fn cache_usage(usage: &CacheUsage) -> CacheUsageDocument {
    let (requests, answered) = cache::answered(usage);
    CacheUsageDocument { requests, answered, hit_ratio: cache::hit_ratio(usage), saved: cache::units(&usage.saved) }
}

/// Returns a switch; an ended one has the effect `off`.
pub(crate) fn switch(entry: &SwitchEntry) -> SwitchDocument {
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
pub(crate) fn quota(view: &QuotaView, now: Timestamp) -> QuotaDocument {
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
        sliding_s: view.sliding.map(|length| length.as_secs()),
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
        tiers: view
            .tiers
            .iter()
            .map(|tier| TierDocument { above: tier.threshold.into(), shed: tier.shed_share.ratio() })
            .collect(),
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

/// Returns the requests of one class.
pub(crate) fn traffic(view: &ClassTraffic) -> TrafficDocument {
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
        responses: responses(&view.responses),
    }
}

/// Returns the requests of one route.
pub(crate) fn route(view: &RouteTraffic) -> RouteDocument {
    let RouteTraffic { route, admitted, refused, responses: counts } = view;
    RouteDocument { route: route.clone(), admitted: *admitted, refused: *refused, responses: responses(counts) }
}

/// Returns responses since the start.
pub(crate) fn responses(view: &ResponseCounts) -> ResponsesDocument {
    let quantile = |share| view.latency.quantile(share).map(milliseconds);
    ResponsesDocument {
        statuses: view.statuses.iter().map(|(status, count)| ((*status).to_owned(), *count)).collect(),
        bytes: view.bytes,
        median_ms: quantile(0.5),
        p95_ms: quantile(0.95),
    }
}

/// Returns durations, counted by size.
pub(crate) fn latency(histogram: &Histogram) -> Vec<LatencyDocument> {
    let document =
        |(bound, requests): (Option<Duration>, u64)| LatencyDocument { up_to_ms: bound.map(milliseconds), requests };
    histogram.buckets().map(document).collect()
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}

/// Returns the largest spenders since `since`. `decision` returns the access log line of a decision, if it is stored.
pub(crate) fn spenders(
    since: Timestamp,
    top: &TopSpenders,
    decision: impl Fn(u64) -> Option<Vec<u8>>,
) -> SpendersDocument {
    let TopSpenders { clients, networks, paths, user_agents } = top;
    let documents = |spenders: &[Spender]| spenders.iter().map(spender).collect();
    let client = |client: &Spender| {
        let line = decision(client.demand.latest_decision).and_then(|line| evidence(&line)).unwrap_or_default();
        let evidence_text = line.evidence.iter().map(|entry| EvidenceWord::describe(entry, &line.client)).collect();
        SpenderDocument { evidence: line.evidence, evidence_text, ..spender(client) }
    };
    SpendersDocument {
        since: rfc3339(since),
        clients: clients.iter().map(client).collect(),
        networks: documents(networks),
        paths: documents(paths),
        user_agents: documents(user_agents),
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
        evidence_text: Vec::new(),
    }
}

/// Evidence of an access log line, and the client that it is about.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LoggedEvidence {
    client: String,
    evidence: Vec<String>,
}

/// Returns the evidence of an access log line.
fn evidence(line: &[u8]) -> Option<LoggedEvidence> {
    serde_json::from_slice(line).ok()
}

/// Returns the crawl compliance of one operator.
pub(crate) fn crawler(operator: &str, view: &ComplianceView) -> CrawlerDocument {
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

/// Returns an origin.
pub(crate) fn origin(origin: OriginView) -> OriginDocument {
    let OriginView { name, authorities, addresses, servers, outage: failures, .. } = origin;
    OriginDocument {
        name,
        authority: authorities,
        resolved: !addresses.is_empty(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        servers: servers.into_iter().map(origin_server).collect(),
        outage: failures.map(outage),
    }
}

/// Returns one server of the origin.
pub(crate) fn origin_server(server: OriginServerView) -> OriginServerDocument {
    let OriginServerView { url, is_healthy, in_flight, failures, last_error } = server;
    OriginServerDocument { url, healthy: is_healthy, in_flight, failures, last_error }
}

/// Returns the outage of the origin.
pub(crate) fn outage(outage: OriginOutage) -> OutageDocument {
    let OriginOutage { since, failed_requests, last_error } = outage;
    OutageDocument { since: rfc3339(since), failed_requests, last_error }
}

/// Returns the scope `name`; `busiest` are its busiest partitions, if it is partitioned.
pub(crate) fn scope(name: String, inflight: u64, state: Option<&ScopeState>, busiest: &[ScopeState]) -> ScopeDocument {
    let partitions = state.and_then(|state| state.partitions);
    ScopeDocument {
        name,
        inflight,
        throttle: state.map(throttle),
        partitions: partitions.map(|count| count as u64),
        busiest_partitions: partitions.map(|_| busiest.iter().map(partition).collect()),
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
pub(crate) fn is_gateway(view: &ClientView) -> bool {
    view.key.parse() == Ok(IpAddr::from(Ipv4Addr::UNSPECIFIED))
}

/// Returns one refused client.
pub(crate) fn client(view: &ClientView) -> ClientDocument {
    ClientDocument {
        key: view.key.clone(),
        class: view.class.clone(),
        refused: view.refusal_count.into(),
        bucket_remaining: view.tokens.map(u64::from),
        limited_by: view.limited_by.map(|reason| reason.name().into()),
        limited_for_s: view.limited_for.map(ceil_seconds),
    }
}
