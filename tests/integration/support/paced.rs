//! A site with a paced quota.

/// Bots are paced, and may be five units ahead of their plan at once; people are served first.
pub const RULES: &str = r#"
headers: { retry_after_spread: 0% }
behaviour: { enabled: false }
quotas:
  api:
    limit: 100
    window: { calendar: day, zone: UTC }
    pacing: even
    tiers: { bot: [ { above: 95%, shed: 100% } ] }
classes:
  - { name: bot, when: { kind: [verified_bot, declared_bot] } }
  - { name: person, when: { kind: human } }
routes: [ { match: /page, cost: { api: 1 } } ]
"#;
