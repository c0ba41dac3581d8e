//! What each bot asked for, and what it cost.

use crate::policy::{BotId, Kind, OperatorId, Units};
use crate::replay::decision::Decided;
use crate::replay::report::{BotReport, Names};
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// Bots by what they are known by: names of lists, so that there are only so many.
#[derive(Default)]
pub(super) struct Bots(HashMap<(Kind, Known), Counts, FixedState>);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Known {
    Operator(OperatorId),
    Bot(BotId),
    Nobody,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    requests: u64,
    refused: u64,
    units: Units,
    units_asked: Units,
}

impl Bots {
    pub(super) fn add(&mut self, decided: &Decided) {
        let known = match (decided.classified.operator, decided.bot) {
            (Some(operator), _) => Known::Operator(operator),
            (None, Some(bot)) => Known::Bot(bot),
            (None, None) => Known::Nobody,
        };
        let cost = decided.costs.iter().fold(Units::ZERO, |sum, (_, cost)| sum.plus(*cost));
        let counts = self.0.entry((decided.classified.kind, known)).or_default();
        counts.requests += 1;
        counts.units_asked = counts.units_asked.plus(cost);
        match decided.refused {
            Some(_) => counts.refused += 1,
            None => counts.units = counts.units.plus(cost),
        }
    }

    /// The dearest first.
    pub(super) fn report(&self, names: &Names<'_>) -> Vec<BotReport> {
        let report = |(&(kind, known), counts): (&(Kind, Known), &Counts)| BotReport {
            name: match known {
                Known::Operator(operator) => names.operator(operator).to_owned(),
                Known::Bot(bot) => names.bot(bot).to_owned(),
                Known::Nobody => "(unnamed)".to_owned(),
            },
            kind: kind.name(),
            requests: counts.requests,
            refused: counts.refused,
            units: counts.units.as_f64(),
            units_asked: counts.units_asked.as_f64(),
        };
        let mut bots: Vec<(Counts, BotReport)> = self.0.iter().map(|bot| (*bot.1, report(bot))).collect();
        bots.sort_by(|(counts, one), (others, other)| {
            let by_size = others.size().cmp(&counts.size());
            by_size.then_with(|| (&one.name, one.kind).cmp(&(&other.name, other.kind)))
        });
        bots.truncate(SHOWN);
        bots.into_iter().map(|(_, bot)| bot).collect()
    }
}

impl Counts {
    fn size(&self) -> (Units, Units, u64) {
        (self.units, self.units_asked, self.requests)
    }
}

/// More would hide the dearest.
const SHOWN: usize = 50;
