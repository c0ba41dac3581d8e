//! A site with a paced quota.

/// Bots are paced, with a burst of five units. Humans are not paced.
pub const RULES: &str = r#"
headers: { retry_after_spread: 0% }
bot_detection: { enabled: false }
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
