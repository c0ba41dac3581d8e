//! Tests of the request path without a socket: requests are values that a [`site::Site`] answers.

mod bodies;
mod copies;
mod crowds;
mod delegate;
mod documents;
mod fetches;
mod forms;
mod heads;
mod redirects;
mod refusals;
mod settlement;
mod site;
mod trips;
mod validity;

/// A quota of ten units a minute, of which bots get none.
const QUOTA: &str = "
headers: { retry_after_spread: 0% }
quotas:
  api: { limit: 10, window: { fixed: 60s }, cost_header: X-API-Cost, tiers: { bot: [{ above: 0%, shed: 100% }] } }
classes:
  - { name: bot, when: { kind: [declared_bot, suspected_bot, impostor] } }
  - { name: person, when: { kind: human } }
routes:
  - { match: '/item/*', cost: { api: 1 } }
  - { match: '/search', cost: { api: 4 } }
  - { match: '/**' }
";
