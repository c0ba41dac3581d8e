//! `--verdicts`: one JSON line per decision.

use super::decision::ReplayedDecision;
use super::policy::Policy;
use super::terminal::json_line;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use tidegate_access_log::{rfc3339, rfc3339_exact};
use tidegate_engine::QuotaUsage;
use tidegate_http_cache::CacheResult;
use tidegate_policy::{QuotaId, Reason, Units};

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
    cache: Option<&'static str>,
    saved: BTreeMap<&'a str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
}

/// Appends a decision under `policy` to `out`, with the name of the policy if two are compared.
pub(super) fn write(
    out: &mut dyn Write,
    files: &[String],
    policy: &Policy,
    decision: &ReplayedDecision,
    is_comparison: bool,
) -> io::Result<()> {
    let rules = &policy.settings.rules;
    let classified = &decision.classification;
    let quota = |quota: QuotaId| rules[quota].name.as_str();
    let usages = || decision.quota_usage.iter();
    let by_name =
        |amounts: &[(QuotaId, Units)]| amounts.iter().map(|(id, units)| (quota(*id), units.as_f64())).collect();
    let by_quota =
        |amount: &dyn Fn(&QuotaUsage) -> f64| usages().map(|usage| (quota(usage.quota), amount(usage))).collect();
    let verdict = VerdictLine {
        file: &files[decision.position.file],
        line: decision.position.number,
        time: rfc3339_exact(decision.at),
        kind: classified.kind.name(),
        class: &rules[classified.class].name,
        operator: classified.operator.map(|operator| policy.operators.name(operator)),
        route: &rules[decision.route].name,
        cost: by_name(&decision.costs),
        verdict: match decision.refusal_reason {
            None => "admitted",
            Some(_) if decision.asks_back => "challenged",
            Some(_) => "refused",
        },
        reason: decision.refusal_reason.map(Reason::name),
        retry_after_s: decision.retry_after_s,
        bot: decision.bot.map(|bot| policy.user_agents.name(bot)),
        expected: by_quota(&|usage| usage.cost.as_f64()),
        tier: usages().map(|usage| usage.tier).max(),
        used: by_quota(&|usage| decision.used_before(usage).as_f64()),
        window_end: usages().map(|usage| (quota(usage.quota), rfc3339(usage.resets_at))).collect(),
        cache: decision.cache.map(CacheResult::name),
        saved: by_name(&decision.saved),
        policy: is_comparison.then_some(policy.name.as_str()),
    };
    out.write_all(json_line(&verdict)?.as_bytes())
}
