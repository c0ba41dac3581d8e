//! Tests that the summary of `tidegate check` shows what the file sets.

use super::defaults::keys;
use super::settings;
use crate::describe::{BuiltinOperators, summary};
use std::collections::BTreeSet;

/// Keys of a quota, each with two quotas that differ in this key. In place of `W` is a window.
const QUOTA_KEYS: &[(&str, &str, &str)] = &[
    ("limit", "limit: 10, W", "limit: 20, W"),
    ("window", "limit: 10, window: { fixed: 1h }", "limit: 10, window: { sliding: 1h }"),
    ("window.calendar", "limit: 10, window: { calendar: day }", "limit: 10, window: { calendar: week }"),
    ("window.zone", "limit: 10, window: { calendar: day }", "limit: 10, window: { calendar: day, zone: Asia/Tokyo }"),
    ("window.at", "limit: 10, window: { calendar: day }", "limit: 10, window: { calendar: day, at: '06:30' }"),
    ("window.fixed", "limit: 10, window: { fixed: 1h }", "limit: 10, window: { fixed: 2h }"),
    ("window.first_use", "limit: 10, window: { first_use: 1h }", "limit: 10, window: { first_use: 2h }"),
    ("window.sliding", "limit: 10, window: { sliding: 1h }", "limit: 10, window: { sliding: 2h }"),
    ("per_client", "limit: 10, W", "limit: 10, W, per_client: 5"),
    ("cost_header", "limit: 10, W", "limit: 10, W, cost_header: X-Cost"),
    ("cost_json", "limit: 10, W", "limit: 10, W, cost_json: a.b"),
    ("cost_json.path", "limit: 10, W, cost_json: { path: a.b }", "limit: 10, W, cost_json: { path: a.c }"),
    ("cost_json.weight", "limit: 10, W, cost_json: a.b", "limit: 10, W, cost_json: { path: a.b, weight: 4 }"),
    ("cost_trailer", "limit: 10, W", "limit: 10, W, cost_trailer: X-Cost"),
    ("free_when_cached", "limit: 10, W", "limit: 10, W, free_when_cached: true"),
    ("enforce", "limit: 10, W", "limit: 10, W, enforce: false"),
    ("sync_from", "limit: 10, W", "limit: 10, W, sync_from: { remaining_header: X-A }"),
    (
        "sync_from.remaining_header",
        "limit: 10, W, sync_from: { remaining_header: X-A }",
        "limit: 10, W, sync_from: { remaining_header: X-B }",
    ),
    (
        "sync_from.reset_header",
        "limit: 10, W, sync_from: { remaining_header: X-A }",
        "limit: 10, W, sync_from: { remaining_header: X-A, reset_header: X-B }",
    ),
    (
        "sync_from.exhausted",
        "limit: 10, W, sync_from: { remaining_header: X-A }",
        "limit: 10, W, sync_from: { remaining_header: X-A, exhausted: { statuses: [429] } }",
    ),
    (
        "sync_from.exhausted.statuses",
        "limit: 10, W, sync_from: { exhausted: { statuses: [429] } }",
        "limit: 10, W, sync_from: { exhausted: { statuses: [403] } }",
    ),
    (
        "sync_from.exhausted.contains",
        "limit: 10, W, sync_from: { exhausted: { statuses: [429] } }",
        "limit: 10, W, sync_from: { exhausted: { statuses: [429], contains: a } }",
    ),
    (
        "sync_from.exhausted.header",
        "limit: 10, W, sync_from: { exhausted: { statuses: [429], contains: a } }",
        "limit: 10, W, sync_from: { exhausted: { statuses: [429], contains: a, header: X-A } }",
    ),
    (
        "sync_from.exhausted.json",
        "limit: 10, W, sync_from: { exhausted: { statuses: [429], contains: a } }",
        "limit: 10, W, sync_from: { exhausted: { statuses: [429], contains: a, json: /a } }",
    ),
    ("per", "limit: 10, W", "limit: 10, W, per: client"),
    ("per.header", "limit: 10, W, per: client", "limit: 10, W, per: { header: x-key }"),
    ("per.cookie", "limit: 10, W, per: client", "limit: 10, W, per: { cookie: key }"),
    ("limits", "limit: 10, W, per: client", "limit: 10, W, per: client, limits: { bot: 20 }"),
    ("metrics_by_key", "limit: 10, W, per: api_key", "limit: 10, W, per: api_key, metrics_by_key: true"),
    ("max_keys", "limit: 10, W, per: client", "limit: 10, W, per: client, max_keys: 5"),
    ("pacing", "limit: 10, W, TIERS", "limit: 10, W, TIERS, pacing: even"),
    ("pacing.mode", "limit: 10, W, TIERS, pacing: { mode: even }", "limit: 10, W, TIERS, pacing: { mode: learned }"),
    (
        "pacing.burst",
        "limit: 10, W, TIERS, pacing: { mode: even }",
        "limit: 10, W, TIERS, pacing: { mode: even, burst: 20% }",
    ),
    (
        "pacing.weights",
        "limit: 10, W, TIERS, pacing: { mode: even }",
        "limit: 10, W, TIERS, pacing: { mode: even, weights: { bot: 3 } }",
    ),
    (
        "pacing.enforce",
        "limit: 10, W, TIERS, pacing: { mode: even }",
        "limit: 10, W, TIERS, pacing: { mode: even, enforce: false }",
    ),
    ("tiers", "limit: 10, W", "limit: 10, W, TIERS"),
    ("tiers.NAME.steps", "limit: 10, W", "limit: 10, W, tiers: { bot: { steps: [{ above: 50%, shed: 50% }] } }"),
    (
        "tiers.NAME.enforce",
        "limit: 10, W, TIERS",
        "limit: 10, W, tiers: { bot: { steps: [{ above: 50%, shed: 50% }], enforce: false } }",
    ),
    ("tiers.NAME.above", "limit: 10, W, TIERS", "limit: 10, W, tiers: { bot: [{ above: 60%, shed: 50% }] }"),
    ("tiers.NAME.shed", "limit: 10, W, TIERS", "limit: 10, W, tiers: { bot: [{ above: 50%, shed: 60% }] }"),
];

#[test]
fn every_key_of_a_quota_is_in_the_summary() {
    let text = |quota: &str| {
        let quota =
            quota.replace("TIERS", "tiers: { bot: [{ above: 50%, shed: 50% }] }").replace('W', "window: { fixed: 1h }");
        let file = format!(
            "origin: {{ url: 'http://a' }}\napi_keys: []\nquotas: {{ api: {{ {quota} }} }}\nclasses: [{{ name: bot, when: {{ kind: declared_bot }} }}]\n"
        );
        let builtin = BuiltinOperators { names: Vec::new(), product_tokens: Vec::new(), signature_agents: Vec::new() };
        summary(&settings(&file), &[], &builtin)
    };
    let same: Vec<&str> =
        QUOTA_KEYS.iter().filter(|(_, quota, other)| text(quota) == text(other)).map(|(key, ..)| *key).collect();
    assert!(same.is_empty(), "the summary does not show {same:?}");

    let keys = keys();
    let of_quotas = keys.iter().filter_map(|(path, _)| path.strip_prefix("quotas.NAME."));
    let of_quotas: BTreeSet<String> = of_quotas.map(|key| key.replace("[N]", "").replace("steps.", "")).collect();
    let tested: BTreeSet<String> = QUOTA_KEYS.iter().map(|(key, ..)| (*key).to_owned()).collect();
    assert_eq!(tested, of_quotas);
}
