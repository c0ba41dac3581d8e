//! Configuration of the demo gateway.

use std::net::SocketAddr;
use std::path::Path;

/// Name of the quota.
pub(super) const QUOTA: &str = "shop_api";
/// Limit of the quota, in units per day.
pub(super) const LIMIT: u64 = 2_000;
/// Usage from which search engines are shed, in percent of the limit.
pub(super) const SHED_THRESHOLDS: [f64; 3] = [30.0, 50.0, 70.0];

/// The part of the configuration that the demo prints.
pub(super) const RULES_EXCERPT: &str = r#"quotas:
  shop_api:
    limit: 2000
    window: { fixed: 24h }
    cost_header: X-API-Cost            # response header with the actual cost
    tiers:                             # above this usage, refuse this share
      search: [{ above: 30%, shed: 50% }, { above: 50%, shed: 75% }, { above: 70%, shed: 100% }]
      hosting: [{ above: 0%, shed: 100% }]
      impostor: [{ above: 0%, shed: 100% }]
      bot: [{ above: 0%, shed: 100% }]
classes:                               # first match wins
  - { name: search, when: { operator: [googlebot, bingbot, applebot] } }        # verified crawlers only
  - { name: impostor, when: { kind: impostor } }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot] } }
  - { name: hosting, when: { address: [198.19.64.0/22, 203.0.113.128/25, 192.0.2.128/28] } }
  - { name: person, when: { kind: human } }
routes:
  - { match: "/item/*", cost: { shop_api: 1 } }
  - { match: "/category/*", cost: { shop_api: 1 } }
  - { match: "/search", cost: { shop_api: 4 } }
  - { match: "/**" }                   # other paths are free and never refused
"#;

/// Returns the whole configuration of a gateway at `listen` in front of `origin`.
/// What it learns is stored in `state_dir`.
pub(super) fn yaml(listen: SocketAddr, admin: SocketAddr, origin: SocketAddr, state_dir: &Path) -> String {
    format!(
        "listen: {listen}\n\
         admin: {{ listen: {admin} }}\n\
         origin: {{ url: \"http://{origin}\" }}\n\
         clients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }}\n\
         log: {{ access: off }}\n\
         state_dir: {state_dir:?}\n\
         ledger: memory\n\
         verify: {{ dns: off, refresh_interval: off }}\n\
         {RULES_EXCERPT}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_config_matches_the_constants() {
        assert!(RULES_EXCERPT.contains(&format!("  {QUOTA}:\n    limit: {LIMIT}\n")));
        for threshold in SHED_THRESHOLDS {
            assert!(RULES_EXCERPT.contains(&format!("{{ above: {threshold}%")), "{threshold}");
        }
    }
}
