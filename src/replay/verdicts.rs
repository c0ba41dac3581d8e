//! `--verdicts`: one line of JSON for each decision.

use super::decided::Decided;
use super::trial::Trial;
use crate::policy::Reason;
use crate::telemetry::rfc3339_exact;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// One decision, as it is written.
#[derive(Serialize)]
struct Verdict<'a> {
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
}

/// Appends `decided` to `out`.
pub(super) fn write(out: &mut dyn Write, files: &[String], trial: &Trial, decided: &Decided) -> io::Result<()> {
    let rules = trial.rules();
    let classified = &decided.classified;
    let cost = |standing: &crate::engine::Standing| {
        (rules.quotas[usize::from(standing.quota.0)].name.as_str(), standing.cost.as_f64())
    };
    let verdict = Verdict {
        file: &files[decided.place.file],
        line: decided.place.number,
        time: rfc3339_exact(decided.at),
        kind: classified.kind.name(),
        class: &rules.classes[usize::from(classified.class.0)].name,
        operator: classified.operator.map(|operator| trial.operator(operator)),
        route: &rules.routes[decided.route].name,
        cost: decided.standings.iter().map(cost).collect(),
        verdict: if decided.refused.is_none() { "admitted" } else { "refused" },
        reason: decided.refused.map(Reason::name),
        retry_after_s: decided.retry_after_s,
    };
    serde_json::to_writer(&mut *out, &verdict)?;
    out.write_all(b"\n")
}
