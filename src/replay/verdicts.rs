//! `--verdicts`: one JSON line per decision.

use super::decision::ReplayedDecision;
use super::simulator::Simulator;
use crate::engine::QuotaUsage;
use crate::policy::{QuotaId, Reason};
use crate::telemetry::{rfc3339, rfc3339_exact};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Decision as a JSON line.
#[derive(Serialize)]
struct VerdictLine<'a> {
    file: &'a str,
    line: u64,
    time: String,
    kind: &'static str,
    class: &'a str,
    operator: Option<&'a str>,
    route: &'a str,
    cost: BTreeMap<&'a str, f64>,
    verdict: &'static str,
    reason: Option<&'static str>,
    retry_after_s: Option<u64>,
    bot: Option<&'a str>,
    expected: BTreeMap<&'a str, f64>,
    tier: Option<u8>,
    used: BTreeMap<&'a str, f64>,
    window_end: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
}

/// Appends `decided` to `out`, with the name of the `policy` if there are several.
pub(super) fn write(
    out: &mut dyn Write,
    files: &[String],
    trial: &Simulator,
    decided: &ReplayedDecision,
    policy: Option<&str>,
) -> io::Result<()> {
    let rules = trial.rules();
    let classified = &decided.classified;
    let quota = |quota: QuotaId| rules.quotas[usize::from(quota.0)].name.as_str();
    let standings = || decided.standings.iter();
    let of_each = |amount: &dyn Fn(&QuotaUsage) -> f64| {
        standings().map(|standing| (quota(standing.quota), amount(standing))).collect()
    };
    let verdict = VerdictLine {
        file: &files[decided.place.file],
        line: decided.place.number,
        time: rfc3339_exact(decided.at),
        kind: classified.kind.name(),
        class: &rules.classes[usize::from(classified.class.0)].name,
        operator: classified.operator.map(|operator| trial.operator(operator)),
        route: &rules.routes[decided.route].name,
        cost: decided.costs.iter().map(|(id, cost)| (quota(*id), cost.as_f64())).collect(),
        verdict: if decided.refused.is_none() { "admitted" } else { "refused" },
        reason: decided.refused.map(Reason::name),
        retry_after_s: decided.retry_after_s,
        bot: decided.bot.map(|bot| trial.bot(bot)),
        expected: of_each(&|standing| standing.cost.as_f64()),
        tier: standings().map(|standing| standing.tier).max(),
        used: of_each(&|standing| decided.used_before(standing).as_f64()),
        window_end: standings().map(|standing| (quota(standing.quota), rfc3339(standing.resets_at))).collect(),
        policy,
    };
    serde_json::to_writer(&mut *out, &verdict)?;
    out.write_all(b"\n")
}
