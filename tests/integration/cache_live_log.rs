//! A day of the demo before a site that counts its units, without and with the cache: the quota holds, people are served,
//! and the cache serves to bots what the quota refused them.

use crate::support::client::{Client, Response};
use crate::support::day_trace;
use crate::support::gateway::TestGateway;
use crate::support::load::{LoadRequest, format_request};
use crate::support::metered_site::{OriginMode, SHOP};
use std::time::Duration;
use tidegate_policy::ClientKind;

/// A request of the day: its time, itself, and the true kind of its client.
type DayRequest = (Duration, LoadRequest, ClientKind);

/// A day before the gateway.
struct LiveDay {
    /// Units that the site counted.
    spent: u64,
    responses: Vec<Response>,
}

#[test]
fn cache_serves_to_bots_what_the_quota_refused_them() {
    let day: Vec<DayRequest> =
        day_trace::labeled_day(11, 0.05).map(|(at, request, kind, _)| (at, request, kind)).collect();
    let demand = units(&day, |_| true);
    let limit = demand / 2;
    let without = send_day(&day, &rules(limit, "", ""));
    let with = send_day(&day, &rules(limit, "cache: {}", ", cache: { ttl: 6h }"));
    for live in [&without, &with] {
        assert!(live.spent <= limit, "{} of {limit} units are spent", live.spent);
        let refused = |kind| count(&day, |index| live.is_refused(index) && day[index].2 == kind);
        assert_eq!(refused(ClientKind::Human), 0, "people are refused last");
        // Each unit of the demand is spent, refused, or of a page that was stored.
        let other = units(&day, |index| live.is_refused(index) || live.is_copy(index));
        assert_eq!(live.spent + other, demand);
    }
    let saved = units(&day, |index| with.is_copy(index));
    let refused = |live: &LiveDay| count(&day, |index| live.is_refused(index));
    let (refused_without, refused_with) = (refused(&without), refused(&with));
    println!(
        "{demand} units wanted, {limit} bought; spent {} without the cache, {} with it, and {saved} saved; {refused_without} \
         requests refused without it, {refused_with} with it",
        without.spent, with.spent
    );
    assert!(refused_with < refused_without * 9 / 10 && saved > demand / 10, "the cache serves what it has");
}

impl LiveDay {
    fn is_refused(&self, index: usize) -> bool {
        self.responses[index].status == 429
    }

    fn is_copy(&self, index: usize) -> bool {
        self.responses[index].field("cache-status").starts_with("tidegate; hit")
    }
}

fn count(day: &[DayRequest], is_counted: impl Fn(usize) -> bool) -> usize {
    (0..day.len()).filter(|index| is_counted(*index)).count()
}

/// Returns the units that the site takes for some of the requests.
fn units(day: &[DayRequest], is_counted: impl Fn(usize) -> bool) -> u64 {
    let counted = day.iter().enumerate().filter(|(index, _)| is_counted(*index));
    counted.map(|(_, (_, request, _))| (SHOP.cost)(&request.target)).sum()
}

/// Sends the requests of a day one after another, at their times.
fn send_day(day: &[DayRequest], rules: &str) -> LiveDay {
    let (origin, counters) = SHOP.start_origin(OriginMode::Steady);
    let gateway = TestGateway::with_rules(origin.address(), rules);
    let mut client: Option<Client> = None;
    let mut now = Duration::ZERO;
    let responses = day.iter().map(|(at, request, _)| {
        gateway.clock.advance(at.saturating_sub(now));
        now = now.max(*at);
        let connection = client.get_or_insert_with(|| gateway.connect());
        connection.send(format_request("shop.example", request));
        let response = connection.response_or_eof(&request.method).expect("a whole response");
        if response.field("connection") == "close" {
            client = None;
        }
        response
    });
    let responses = responses.collect();
    let spent = counters.lock().spent;
    LiveDay { spent, responses }
}

/// Returns rules with timeouts that the clock, which advances faster than responses arrive, does not reach.
fn rules(limit: u64, cache: &str, page_cache: &str) -> String {
    format!(
        r#"
{cache}
workers: 1
origin: {{ url: ORIGIN, idle_timeout: 1h, response_timeout: 1h }}
limits: {{ keep_alive_timeout: 1h, first_byte_timeout: 1h, header_timeout: 1h, response_write_timeout: 1h, min_rate: 0B }}
quotas:
  api:
    limit: {limit}
    window: {{ first_use: 48h }}
    tiers:
      bot: [{{ above: 40%, shed: 50% }}, {{ above: 50%, shed: 75% }}, {{ above: 60%, shed: 100% }}]
classes:
  - {{ name: bot, when: {{ kind: [verified_bot, declared_bot, suspected_bot, impostor] }} }}
  - {{ name: person, when: {{ kind: human }} }}
routes:
  - {{ match: "/item/*", cost: {{ api: 1 }}{page_cache} }}
  - {{ match: "/category/*", cost: {{ api: 1 }}{page_cache} }}
  - {{ match: "/search", cost: {{ api: 4 }}{page_cache} }}
"#
    )
}
