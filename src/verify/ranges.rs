//! Lookup of all published address ranges in one table, with their meaning for each operator.
//!
//! Two networks are nested or disjoint, so the address space divides into intervals in which all addresses are in the
//! same networks. A lookup is one binary search for the interval, however deep the networks are nested.

use crate::policy::OperatorId;
use ipnet::IpNet;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::net::IpAddr;

/// Address ranges of all operators.
#[derive(Debug)]
pub(super) struct Ranges {
    v4: IntervalTable<u32>,
    v6: IntervalTable<u128>,
    /// Matches of the intervals. Intervals with equal matches share an entry.
    says: Vec<RangeMatches>,
}

/// Match of an address in an operator's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RangeMatch {
    /// The network belongs to the operator, but is not published for this crawler.
    Undecided,
    /// Published as an address of this crawler.
    Verified,
}

/// A network of one operator.
pub(super) type Range = (IpNet, OperatorId, RangeMatch);

/// Matches of an address, by operator. Ranges of several operators may overlap; each operator has one entry with its
/// best match.
type RangeMatches = SmallVec<[(OperatorId, RangeMatch); 4]>;

/// Start of each interval, and the index of its matches. The last interval ends with the address space.
#[derive(Debug)]
struct IntervalTable<A> {
    begin: Vec<A>,
    says: Vec<u32>,
}

impl Ranges {
    pub(super) fn new(ranges: impl IntoIterator<Item = Range>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, operator, range_match) in ranges {
            match network {
                IpNet::V4(network) => {
                    v4.push((network.network().to_bits(), network.broadcast().to_bits(), (operator, range_match)));
                }
                IpNet::V6(network) => {
                    v6.push((network.network().to_bits(), network.broadcast().to_bits(), (operator, range_match)));
                }
            }
        }
        let mut interner = MatchInterner::default();
        let v4 = intervals(v4, |address| address.checked_add(1), &mut interner);
        let v6 = intervals(v6, |address| address.checked_add(1), &mut interner);
        Self { v4, v6, says: interner.says }
    }

    /// Returns the best match of any range that contains `address` for `operator`.
    pub(super) fn best_match(&self, operator: OperatorId, address: IpAddr) -> Option<RangeMatch> {
        let index = match address {
            IpAddr::V4(address) => self.v4.at(address.to_bits()),
            IpAddr::V6(address) => self.v6.at(address.to_bits()),
        };
        self.says[index?].iter().find(|(owner, _)| *owner == operator).map(|(_, range_match)| *range_match)
    }
}

impl<A: Copy + Ord> IntervalTable<A> {
    fn at(&self, address: A) -> Option<usize> {
        let index = self.begin.partition_point(|begin| *begin <= address).checked_sub(1)?;
        Some(self.says[index] as usize)
    }

    /// Starts an interval after `last`, unless that is the last address.
    fn begin_after(&mut self, last: A, next: fn(A) -> Option<A>, match_index: u32) {
        if let Some(begin) = next(last) {
            self.begin(begin, match_index);
        }
    }

    /// Starts an interval at `begin`; `match_index` is the index of its matches.
    fn begin(&mut self, begin: A, match_index: u32) {
        match self.begin.last() {
            Some(last) if *last == begin => *self.says.last_mut().expect("one entry per interval") = match_index,
            _ => {
                self.begin.push(begin);
                self.says.push(match_index);
            }
        }
    }
}

/// Divides the address space into intervals: walks over the sorted networks and keeps a stack of those that contain the
/// current address.
fn intervals<A: Copy + Ord>(
    mut networks: Vec<(A, A, (OperatorId, RangeMatch))>,
    next: fn(A) -> Option<A>,
    interner: &mut MatchInterner,
) -> IntervalTable<A> {
    networks.sort_by_key(|(first, last, _)| (*first, std::cmp::Reverse(*last)));
    let mut table = IntervalTable { begin: Vec::new(), says: Vec::new() };
    let mut containing: Vec<(A, (OperatorId, RangeMatch))> = Vec::new();
    for (first, last, range_match) in networks {
        while let Some((end, _)) = containing.pop_if(|(last, _)| *last < first) {
            table.begin_after(end, next, interner.intern(&containing));
        }
        containing.push((last, range_match));
        table.begin(first, interner.intern(&containing));
    }
    while let Some((end, _)) = containing.pop() {
        table.begin_after(end, next, interner.intern(&containing));
    }
    table
}

/// Interns sets of matches.
#[derive(Default)]
struct MatchInterner {
    says: Vec<RangeMatches>,
    places: HashMap<RangeMatches, u32>,
}

impl MatchInterner {
    fn intern<A>(&mut self, containing: &[(A, (OperatorId, RangeMatch))]) -> u32 {
        let mut matches = RangeMatches::new();
        for (_, (operator, range_match)) in containing {
            match matches.iter_mut().find(|(owner, _)| owner == operator) {
                Some((_, best)) => *best = (*best).max(*range_match),
                None => matches.push((*operator, *range_match)),
            }
        }
        matches.sort_unstable();
        *self.places.entry(matches).or_insert_with_key(|matches| {
            self.says.push(matches.clone());
            u32::try_from(self.says.len() - 1).expect("fewer than the bounded number of ranges")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = Vec<Range>> {
        // Few bits differ, so that networks are nested and touch at their ends, including the ends of the address
        // space.
        let v4 = (any::<u8>(), 0..=32u8).prop_map(|(bits, length)| {
            let address = u32::from(bits & 0xf0) << 24 | u32::from(bits & 0x0f);
            IpNet::V4(Ipv4Net::new(address.into(), length).expect("at most 32").trunc())
        });
        let v6 = (any::<u8>(), 0..=128u8).prop_map(|(bits, length)| {
            let address = u128::from(bits & 0xf0) << 120 | u128::from(bits & 0x0f);
            IpNet::V6(Ipv6Net::new(address.into(), length).expect("at most 128").trunc())
        });
        let range_match = prop_oneof![Just(RangeMatch::Verified), Just(RangeMatch::Undecided)];
        let range = (prop_oneof![v4, v6], (0..3u16).prop_map(OperatorId), range_match);
        prop::collection::vec(range, 0..20)
    }

    fn addresses(ranges: &[Range]) -> Vec<IpAddr> {
        let ends = ranges.iter().flat_map(|(network, ..)| [network.network(), network.broadcast()]);
        let neighbors = |address: IpAddr| match address {
            IpAddr::V4(address) => {
                [-1, 0, 1].map(|step| IpAddr::V4(address.to_bits().wrapping_add_signed(step).into()))
            }
            IpAddr::V6(address) => {
                [-1, 0, 1].map(|step| IpAddr::V6(address.to_bits().wrapping_add_signed(step).into()))
            }
        };
        ends.flat_map(neighbors).collect()
    }

    proptest! {
        #[test]
        fn range_table_agrees_with_its_networks(ranges in ranges()) {
            let table = Ranges::new(ranges.iter().copied());
            for address in addresses(&ranges) {
                for operator in (0..3).map(OperatorId) {
                    let containing =
                        ranges.iter().filter(|(network, owner, _)| *owner == operator && network.contains(&address));
                    let best = containing.map(|(.., range_match)| *range_match).max();
                    prop_assert_eq!(table.best_match(operator, address), best);
                }
            }
        }
    }
}
