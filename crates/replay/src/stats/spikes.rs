//! Times at which far more units were asked for than usual, and by whom.

use super::spenders;
use crate::decision::ReplayedDecision;
use crate::report::{SpenderReport, SpikeReport};
use crate::request::ReplayRequest;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tidegate_engine::spenders::Spenders;
use tidegate_policy::{Timestamp, Units};

/// Demand of each quarter of an hour, and the spenders of the largest ones.
#[derive(Default)]
pub(super) struct Spikes {
    /// The quarter that the latest decision is in.
    current: Option<Quarter>,
    /// Units asked for, by quarters since 1970; only quarters with demand.
    demand: BTreeMap<u64, Units>,
    /// Spenders of the quarters with the largest demand.
    largest: BTreeMap<u64, QuarterSpenders>,
}

struct Quarter {
    number: u64,
    demand: Units,
    spenders: Spenders,
}

struct QuarterSpenders {
    clients: Vec<SpenderReport>,
    paths: Vec<SpenderReport>,
}

impl Spikes {
    pub(super) fn add(&mut self, decision: &ReplayedDecision, request: &ReplayRequest<'_>) {
        let cost = decision.costs.iter().map(|(_, cost)| *cost).sum::<Units>();
        let number = decision.at.seconds() / QUARTER_S;
        if cost.is_zero() {
            return;
        }
        // Time seldom goes back, and never far.
        if self.current.as_ref().is_none_or(|current| current.number < number) {
            self.end_quarter();
            self.current = Some(Quarter { number, demand: Units::ZERO, spenders: Spenders::new(MAX_SPENDERS) });
        }
        if let Some(current) = &mut self.current {
            current.demand = current.demand.saturating_add(cost);
            spenders::add(&mut current.spenders, decision, request);
        }
    }

    fn end_quarter(&mut self) {
        let Some(Quarter { number, demand, spenders }) = self.current.take() else { return };
        if self.demand.len() >= MAX_QUARTERS {
            return;
        }
        self.demand.insert(number, demand);
        let report = spenders::report(&spenders);
        self.largest.insert(number, QuarterSpenders { clients: report.clients, paths: report.paths });
        if self.largest.len() > MAX_LARGEST {
            let smallest = self.largest.keys().min_by_key(|number| self.demand[number]).copied();
            smallest.and_then(|number| self.largest.remove(&number));
        }
    }

    /// Returns the largest spikes in order of time. Adjacent quarters make one spike.
    pub(super) fn report(mut self) -> Vec<SpikeReport> {
        self.end_quarter();
        let Some(usual) = self.usual() else { return Vec::new() };
        let mut spikes: Vec<SpikeReport> = Vec::new();
        for (number, quarter) in &self.largest {
            let demand = self.demand[number];
            if demand.as_f64() <= MIN_RATIO * usual.as_f64() {
                continue;
            }
            let start = Timestamp::from_seconds(number * QUARTER_S);
            match spikes.last_mut().filter(|spike| spike.end == start) {
                Some(spike) => spike.extend(demand, quarter),
                None => spikes.push(SpikeReport::new(start, demand, usual, quarter)),
            }
        }
        spikes.sort_by_key(|spike| Reverse(spike.units_asked));
        spikes.truncate(MAX_REPORTED);
        spikes.sort_by_key(|spike| spike.start);
        spikes.iter_mut().for_each(SpikeReport::keep_largest);
        spikes
    }

    /// Returns the median demand of a quarter with demand; `None` if there are too few for a spike to stand out.
    fn usual(&self) -> Option<Units> {
        let mut demand: Vec<Units> = self.demand.values().copied().collect();
        demand.sort_unstable();
        (demand.len() >= MIN_QUARTERS).then(|| demand[demand.len() / 2])
    }
}

impl SpikeReport {
    fn new(start: Timestamp, demand: Units, usual: Units, spenders: &QuarterSpenders) -> Self {
        let QuarterSpenders { clients, paths } = spenders;
        let end = start + QUARTER;
        let (clients, paths) = (clients.clone(), paths.clone());
        Self { start, end, units_asked: demand, peak: demand, usual, clients, paths }
    }

    /// Adds the next quarter.
    fn extend(&mut self, demand: Units, spenders: &QuarterSpenders) {
        self.end += QUARTER;
        self.units_asked = self.units_asked.saturating_add(demand);
        self.peak = self.peak.max(demand);
        merge(&mut self.clients, &spenders.clients);
        merge(&mut self.paths, &spenders.paths);
    }

    fn keep_largest(&mut self) {
        for spenders in [&mut self.clients, &mut self.paths] {
            spenders
                .sort_by(|one, other| other.units_asked.cmp(&one.units_asked).then_with(|| one.name.cmp(&other.name)));
            spenders.retain(|spender| spender.units_asked.as_f64() >= MIN_SHARE * self.units_asked.as_f64());
            spenders.truncate(MAX_NAMED);
        }
    }
}

/// Adds the demand of `others`.
fn merge(spenders: &mut Vec<SpenderReport>, others: &[SpenderReport]) {
    for other in others {
        match spenders.iter_mut().find(|known| known.name == other.name && known.kind == other.kind) {
            Some(known) => {
                known.requests += other.requests;
                known.refused += other.refused;
                known.units = known.units.saturating_add(other.units);
                known.units_asked = known.units_asked.saturating_add(other.units_asked);
            }
            None => spenders.push(other.clone()),
        }
    }
}

/// Length of an interval, in seconds: an attack of minutes still stands out.
const QUARTER_S: u64 = 900;
const QUARTER: std::time::Duration = std::time::Duration::from_secs(QUARTER_S);

/// A spike has more than this multiple of the usual demand: the busiest hours of a day have about twice.
const MIN_RATIO: f64 = 3.0;

/// Minimum number of quarters with demand: two hours.
const MIN_QUARTERS: usize = 8;

/// Two years. Later quarters are not judged.
const MAX_QUARTERS: usize = 70_272;

/// Quarters whose spenders are kept: a day of spikes.
const MAX_LARGEST: usize = 96;

/// Entries of each table of a quarter.
const MAX_SPENDERS: usize = 1024;

/// Maximum number of reported spikes.
const MAX_REPORTED: usize = 5;

/// Minimum share of a spike that a client or path has that it names.
const MIN_SHARE: f64 = 0.1;

/// Maximum number of clients and of paths that a spike names.
const MAX_NAMED: usize = 3;
