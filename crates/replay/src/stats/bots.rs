//! Requests and units of each bot.

use crate::decision::ReplayedDecision;
use crate::report::{BotReport, NameLookup};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use tidegate_policy::{BotId, ClientKind, OperatorId, Units};

/// Bots, by names of built-in and configured lists, which bounds their number.
#[derive(Default)]
pub(super) struct Bots(HashMap<(ClientKind, BotKey), BotCounts, FixedState>);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum BotKey {
    Operator(OperatorId),
    Bot(BotId),
    Unknown,
}

#[derive(Clone, Copy, Default)]
struct BotCounts {
    requests: u64,
    refused: u64,
    units: Units,
    requested_units: Units,
}

impl Bots {
    pub(super) fn add(&mut self, decision: &ReplayedDecision) {
        let key = match (decision.classification.operator, decision.bot) {
            (Some(operator), _) => BotKey::Operator(operator),
            (None, Some(bot)) => BotKey::Bot(bot),
            (None, None) => BotKey::Unknown,
        };
        let cost = decision.costs.iter().map(|(_, cost)| *cost).sum::<Units>();
        let counts = self.0.entry((decision.classification.kind, key)).or_default();
        counts.requests += 1;
        counts.requested_units = counts.requested_units.saturating_add(cost);
        match decision.refusal_reason {
            Some(_) => counts.refused += 1,
            None => counts.units = counts.units.saturating_add(cost),
        }
    }

    /// Returns the most expensive bots, in descending order.
    pub(super) fn report(&self, names: &NameLookup<'_>) -> Vec<BotReport> {
        let report = |(&(kind, key), counts): (&(ClientKind, BotKey), &BotCounts)| BotReport {
            name: match key {
                BotKey::Operator(operator) => names.operator(operator).to_owned(),
                BotKey::Bot(bot) => names.bot(bot).to_owned(),
                BotKey::Unknown => "(unnamed)".to_owned(),
            },
            kind: kind.name(),
            requests: counts.requests,
            refused: counts.refused,
            units: counts.units,
            units_asked: counts.requested_units,
        };
        let mut bots: Vec<(BotCounts, BotReport)> = self.0.iter().map(|bot| (*bot.1, report(bot))).collect();
        bots.sort_by(|(counts, one), (others, other)| {
            let by_size = others.sort_key().cmp(&counts.sort_key());
            by_size.then_with(|| (&one.name, one.kind).cmp(&(&other.name, other.kind)))
        });
        bots.truncate(MAX_BOTS_REPORTED);
        bots.into_iter().map(|(_, bot)| bot).collect()
    }
}

impl BotCounts {
    fn sort_key(&self) -> (Units, Units, u64) {
        (self.requested_units, self.units, self.requests)
    }
}

/// More rows would hide the most expensive bots.
const MAX_BOTS_REPORTED: usize = 50;
