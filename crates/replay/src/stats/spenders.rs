//! Clients, networks, paths and user agents that asked for the most units, in bounded memory.

use crate::decision::ReplayedDecision;
use crate::report::{SpenderReport, SpendersReport};
use crate::request::ReplayRequest;
use foldhash::fast::FixedState;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use tidegate_policy::network::IpPrefix;
use tidegate_policy::{ClientKind, Units};

/// Number of entries from which the smaller half of a table is dropped. One that is dropped and returns counts from zero
/// again, so that an amount is at most too low by what the smallest entries have.
const MAX_ENTRIES: usize = 16_384;

/// Rows of each table in the report.
const MAX_REPORTED: usize = 10;

/// Maximum length of a path or user agent, in bytes.
const MAX_NAME_LENGTH: usize = 200;

/// Demand by client, network, path and user agent.
#[derive(Default)]
pub(super) struct Spenders {
    clients: Table<(IpAddr, ClientKind)>,
    networks: Table<IpPrefix>,
    paths: Table<String>,
    user_agents: Table<String>,
}

struct Table<K>(HashMap<K, Demand, FixedState>);

#[derive(Clone, Copy, Default)]
struct Demand {
    requests: u64,
    refused: u64,
    units: Units,
    requested_units: Units,
}

impl Spenders {
    pub(super) fn add(&mut self, decision: &ReplayedDecision, request: &ReplayRequest<'_>) {
        let cost = decision.costs.iter().map(|(_, cost)| *cost).sum::<Units>();
        let is_refused = decision.refusal_reason.is_some();
        if !request.is_host_name {
            self.clients.add((request.client, decision.classification.kind), cost, is_refused);
            self.networks.add(network(request.client), cost, is_refused);
        }
        self.paths.add_name(&request.path, cost, is_refused);
        self.user_agents.add_name(&String::from_utf8_lossy(request.user_agent), cost, is_refused);
    }

    pub(super) fn report(&self) -> SpendersReport {
        SpendersReport {
            clients: self.clients.report(|(client, kind)| (client.to_string(), Some(kind.name()))),
            networks: self.networks.report(|network| (network.to_string(), None)),
            paths: self.paths.report(|path| (path.clone(), None)),
            user_agents: self.user_agents.report(|name| (name.clone(), None)),
        }
    }
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Clone + Eq + Hash + Ord> Table<K> {
    fn add(&mut self, key: K, cost: Units, is_refused: bool) {
        self.0.entry(key).or_default().add(cost, is_refused);
        if self.0.len() > MAX_ENTRIES {
            let kept = self.sorted().into_iter().take(MAX_ENTRIES / 2).collect();
            self.0 = kept;
        }
    }

    fn report(&self, label: impl Fn(&K) -> (String, Option<&'static str>)) -> Vec<SpenderReport> {
        let row = |(key, demand): (K, Demand)| {
            let (name, kind) = label(&key);
            let Demand { requests, refused, units, requested_units } = demand;
            SpenderReport { name, kind, requests, refused, units, units_asked: requested_units }
        };
        self.sorted().into_iter().take(MAX_REPORTED).map(row).collect()
    }

    /// Returns the entries by demand, largest first.
    fn sorted(&self) -> Vec<(K, Demand)> {
        let mut entries: Vec<(K, Demand)> = self.0.iter().map(|(key, demand)| (key.clone(), *demand)).collect();
        entries.sort_by(|(one, of_one), (other, of_other)| {
            let size = |demand: &Demand| Reverse((demand.requested_units, demand.requests));
            size(of_one).cmp(&size(of_other)).then_with(|| one.cmp(other))
        });
        entries
    }
}

impl Table<String> {
    fn add_name(&mut self, name: &str, cost: Units, is_refused: bool) {
        let name = &name[..name.floor_char_boundary(MAX_NAME_LENGTH)];
        match self.0.get_mut(name) {
            Some(demand) => demand.add(cost, is_refused),
            None => self.add(name.to_owned(), cost, is_refused),
        }
    }
}

impl Demand {
    fn add(&mut self, cost: Units, is_refused: bool) {
        self.requests += 1;
        self.refused += u64::from(is_refused);
        self.requested_units = self.requested_units.saturating_add(cost);
        if !is_refused {
            self.units = self.units.saturating_add(cost);
        }
    }
}

/// Returns the /24 or /48 of a client.
fn network(client: IpAddr) -> IpPrefix {
    IpPrefix::new(client, if client.is_ipv4() { 24 } else { 48 }).expect("shorter than an address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_demand_comes_first_and_memory_is_bounded() {
        let mut table = Table::default();
        let unit = Units::from_whole(1);
        for number in 0..(3 * MAX_ENTRIES) {
            table.add(number, unit, false);
            table.add(usize::MAX, unit, number % 2 == 0);
        }
        assert!(table.0.len() <= MAX_ENTRIES);
        let rows = table.report(|key| (key.to_string(), None));
        assert_eq!((rows.len(), rows[0].name.as_str()), (MAX_REPORTED, usize::MAX.to_string().as_str()));
        let sent = 3 * MAX_ENTRIES as u64;
        assert_eq!((rows[0].requests, rows[0].refused), (sent, sent / 2));
        assert_eq!((rows[0].units, rows[0].units_asked), (Units::from_whole(sent / 2), Units::from_whole(sent)));
        assert_eq!(network("192.0.2.77".parse().expect("an address")).to_string(), "192.0.2.0/24");
    }
}
