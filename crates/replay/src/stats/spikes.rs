//! Times at which far more units were asked for than usual, and by whom.

use crate::decision::ReplayedDecision;
use crate::report::{SpenderReport, SpikeReport};
use crate::request::ReplayRequest;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidegate_engine::Demand;
use tidegate_engine::heavy_hitters::HeavyHitters;
use tidegate_policy::{ClientKind, Timestamp, Units};

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
    clients: HeavyHitters<(IpAddr, ClientKind)>,
    paths: HeavyHitters<String>,
}

struct QuarterSpenders {
    demand: Units,
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
            let (clients, paths) = (HeavyHitters::new(MAX_SPENDERS), HeavyHitters::new(MAX_SPENDERS));
            self.current = Some(Quarter { number, demand: Units::ZERO, clients, paths });
        }
        let Some(current) = &mut self.current else { return };
        current.demand = current.demand.saturating_add(cost);
        let is_refused = decision.refusal_reason.is_some();
        let demand = Demand {
            requests: 1,
            refused: u64::from(is_refused),
            units: if is_refused { Units::ZERO } else { cost },
            requested_units: cost,
            latest_decision: 0,
        };
        if !request.is_host_name {
            current.clients.add(&(request.client, decision.classification.kind), demand);
        }
        current.paths.add(&request.path[..request.path.floor_char_boundary(MAX_PATH_BYTES)], demand);
    }

    fn end_quarter(&mut self) {
        let Some(Quarter { number, demand, clients, paths }) = self.current.take() else { return };
        if self.demand.len() >= MAX_QUARTERS {
            return;
        }
        self.demand.insert(number, demand);
        if self.largest.len() >= MAX_LARGEST {
            let smallest = self.largest.iter().min_by_key(|(_, quarter)| quarter.demand);
            match smallest.map(|(number, quarter)| (*number, quarter.demand)) {
                Some((smallest, least)) if least < demand => self.largest.remove(&smallest),
                _ => return,
            };
        }
        let clients = clients.largest(MAX_KEPT).into_iter();
        let clients =
            clients.map(|((client, kind), demand)| spender(client.to_string(), Some(*kind), demand)).collect();
        let paths = paths.largest(MAX_KEPT).into_iter();
        let paths = paths.map(|(path, demand)| spender(path.clone(), None, demand)).collect();
        self.largest.insert(number, QuarterSpenders { demand, clients, paths });
    }

    /// Returns the largest spikes in order of time. Adjacent quarters make one spike.
    pub(super) fn report(mut self) -> Vec<SpikeReport> {
        self.end_quarter();
        let Some(usual) = self.usual() else { return Vec::new() };
        let mut spikes: Vec<SpikeReport> = Vec::new();
        for (number, quarter) in &self.largest {
            let demand = quarter.demand;
            if demand.as_f64() <= MIN_RATIO * usual.as_f64() {
                continue;
            }
            let start = Timestamp::from_seconds(number * QUARTER_S);
            match spikes.last_mut().filter(|spike| spike.end == start) {
                Some(spike) => spike.extend(quarter),
                None => spikes.push(SpikeReport::new(start, usual, quarter)),
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
    fn new(start: Timestamp, usual: Units, quarter: &QuarterSpenders) -> Self {
        let QuarterSpenders { demand, clients, paths } = quarter;
        let end = start + QUARTER;
        let (clients, paths) = (clients.clone(), paths.clone());
        Self { start, end, units_asked: *demand, peak: *demand, usual, clients, paths }
    }

    /// Adds the next quarter.
    fn extend(&mut self, quarter: &QuarterSpenders) {
        self.end += QUARTER;
        self.units_asked = self.units_asked.saturating_add(quarter.demand);
        self.peak = self.peak.max(quarter.demand);
        merge(&mut self.clients, &quarter.clients);
        merge(&mut self.paths, &quarter.paths);
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

fn spender(name: String, kind: Option<ClientKind>, demand: Demand) -> SpenderReport {
    let Demand { requests, refused, units, requested_units, .. } = demand;
    SpenderReport { name, kind: kind.map(|kind| kind.name()), requests, refused, units, units_asked: requested_units }
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

/// Clients and paths that are kept of a quarter.
const MAX_KEPT: usize = 10;

/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 200;

/// Maximum number of reported spikes.
const MAX_REPORTED: usize = 5;

/// Minimum share of a spike that a client or path has that it names.
const MIN_SHARE: f64 = 0.1;

/// Maximum number of clients and of paths that a spike names.
const MAX_NAMED: usize = 3;
