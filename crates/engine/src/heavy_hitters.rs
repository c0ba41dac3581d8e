//! Keys with the largest demand, in bounded memory.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use tidegate_policy::Units;

/// The keys that asked for the most units. Of more than `max_entries`, the smaller half is dropped: a key that returns
/// counts from zero again, so that its demand is at most too low by that of the keys it was dropped with.
#[derive(Clone, Debug)]
pub struct HeavyHitters<K> {
    demand: HashMap<K, Demand, foldhash::fast::RandomState>,
    max_entries: usize,
}

/// Demand of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Number of requests.
    pub requests: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Charged units.
    pub units: Units,
    /// Expected cost of all requests, in units.
    pub requested_units: Units,
    /// Id of the latest decision.
    pub latest_decision: u64,
}

impl<K: Clone + Eq + Hash + Ord> HeavyHitters<K> {
    /// Creates an empty table of at most `max_entries` keys.
    pub fn new(max_entries: usize) -> Self {
        Self { demand: HashMap::default(), max_entries }
    }

    /// Adds `demand` to that of `key`. A key is made only if it is new.
    pub fn add<Q>(&mut self, key: &Q, demand: Demand)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(known) = self.demand.get_mut(key) {
            known.add(demand);
            return;
        }
        if self.demand.len() >= self.max_entries {
            self.drop_smaller_half();
        }
        self.demand.insert(key.to_owned(), demand);
    }

    /// Adds the demand of all keys of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (key, demand) in &other.demand {
            self.demand.entry(key.clone()).or_default().add(*demand);
        }
        while self.demand.len() > self.max_entries {
            self.drop_smaller_half();
        }
    }

    /// Returns the `count` keys with the most requested units, then requests, in descending order; ties by key.
    pub fn largest(&self, count: usize) -> Vec<(&K, Demand)> {
        let mut entries: Vec<(&K, Demand)> = self.demand.iter().map(|(key, demand)| (key, *demand)).collect();
        let descending = |(key, demand): &(&K, Demand), (other_key, other): &(&K, Demand)| {
            other.size().cmp(&demand.size()).then_with(|| key.cmp(other_key))
        };
        if count < entries.len() {
            entries.select_nth_unstable_by(count, descending);
            entries.truncate(count);
        }
        entries.sort_unstable_by(descending);
        entries
    }

    fn drop_smaller_half(&mut self) {
        self.demand =
            self.largest(self.max_entries / 2).into_iter().map(|(key, demand)| (key.clone(), demand)).collect();
    }
}

impl Demand {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.units = self.units.saturating_add(other.units);
        self.requested_units = self.requested_units.saturating_add(other.requested_units);
        self.latest_decision = other.latest_decision;
    }

    fn size(&self) -> (Units, u64) {
        (self.requested_units, self.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_ENTRIES: usize = 64;

    fn one_unit(is_refused: bool) -> Demand {
        let (cost, refused) = (Units::from_whole(1), u64::from(is_refused));
        let units = if is_refused { Units::ZERO } else { cost };
        Demand { requests: 1, refused, units, requested_units: cost, latest_decision: 7 }
    }

    #[test]
    fn largest_demand_survives_a_flood_of_keys() {
        let mut table = HeavyHitters::new(MAX_ENTRIES);
        let sent = 100 * MAX_ENTRIES as u64;
        for number in 0..sent {
            table.add(&number, one_unit(false));
            table.add(&u64::MAX, one_unit(number % 2 == 0));
            assert!(table.demand.len() <= MAX_ENTRIES);
        }
        let (units, requested_units) = (Units::from_whole(sent / 2), Units::from_whole(sent));
        let expected = Demand { requests: sent, refused: sent / 2, units, requested_units, latest_decision: 7 };
        assert_eq!(table.largest(1), [(&u64::MAX, expected)]);
        assert_eq!(table.largest(usize::MAX).len(), table.demand.len());
    }

    #[test]
    fn merged_tables_count_as_one() {
        let (mut one, mut other) = (HeavyHitters::new(MAX_ENTRIES), HeavyHitters::new(MAX_ENTRIES));
        for number in 0..50 {
            one.add(&number, one_unit(false));
            other.add(&(number + 40), one_unit(false));
        }
        one.merge(&other);
        assert!(one.demand.len() <= MAX_ENTRIES);
        let requests: Vec<u64> = one.largest(11).into_iter().map(|(_, demand)| demand.requests).collect();
        assert_eq!(requests, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
        assert_eq!(one.largest(10).into_iter().map(|(key, _)| *key).collect::<Vec<_>>(), (40..50).collect::<Vec<_>>());
    }
}
