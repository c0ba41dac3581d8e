//! What the gate of the demonstration is told: its YAML.

use std::net::SocketAddr;

/// The quota's name.
pub const QUOTA: &str = "shop_api";
/// Its units a day.
pub const LIMIT: u64 = 2_000;
/// From these shares of it on, in percent, search engines are shed.
pub const SHED_THRESHOLDS: [f64; 3] = [30.0, 50.0, 70.0];

/// The part that matters, as it is shown to whoever watches.
pub const RULES_EXCERPT: &str = r#"quotas:
  shop_api:
    limit: 2000
    window: { fixed: 24h }
    cost_header: X-API-Cost            # what the origin says a page really cost
    tiers:                             # from this much used on, refuse this share
      search: [{ above: 30%, shed: 50% }, { above: 50%, shed: 75% }, { above: 70%, shed: 100% }]
      hosting: [{ above: 0%, shed: 100% }]
      impostor: [{ above: 0%, shed: 100% }]
      bot: [{ above: 0%, shed: 100% }]
classes:                               # the first that fits
  - { name: search, when: { operator: [googlebot, bingbot, applebot] } }        # only with proof
  - { name: impostor, when: { kind: impostor } }
  - { name: bot, when: { kind: [verified_bot, declared_bot, suspected_bot] } }
  - { name: hosting, when: { address: [198.19.64.0/22, 203.0.113.128/25, 192.0.2.128/28] } }
  - { name: person, when: { kind: human } }
routes:
  - { match: "/item/*", cost: { shop_api: 1 } }
  - { match: "/category/*", cost: { shop_api: 1 } }
  - { match: "/search", cost: { shop_api: 4 } }
  - { match: "/**" }                   # everything else is free and never refused
"#;

/// The whole file, for a gate at `listen` before `origin`.
pub fn yaml(listen: SocketAddr, admin: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "listen: {listen}\n\
         admin: {{ listen: {admin} }}\n\
         origin: {{ url: \"http://{origin}\" }}\n\
         clients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8] }}\n\
         log: {{ access: off }}\n\
         ledger: memory\n\
         verify: {{ dns: off, refresh: off }}\n\
         {RULES_EXCERPT}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_the_numbers_say() {
        assert!(RULES_EXCERPT.contains(&format!("  {QUOTA}:\n    limit: {LIMIT}\n")));
        for mark in SHED_THRESHOLDS {
            assert!(RULES_EXCERPT.contains(&format!("{{ above: {mark}%")), "{mark}");
        }
        for network in super::super::HOSTING_NETWORKS {
            assert!(RULES_EXCERPT.contains(network), "{network}");
        }
    }
}
