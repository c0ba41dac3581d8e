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
        for (network, operator, standing) in ranges {
            match network {
                IpNet::V4(network) => {
                    v4.push((network.network().to_bits(), network.broadcast().to_bits(), (operator, standing)));
                }
                IpNet::V6(network) => {
                    v6.push((network.network().to_bits(), network.broadcast().to_bits(), (operator, standing)));
                }
            }
        }
        let mut known = MatchInterner::default();
        let v4 = intervals(v4, |address| address.checked_add(1), &mut known);
        let v6 = intervals(v6, |address| address.checked_add(1), &mut known);
        Self { v4, v6, says: known.says }
    }

    /// Returns the best match of any range that contains `address` for `operator`.
    pub(super) fn best_match(&self, operator: OperatorId, address: IpAddr) -> Option<RangeMatch> {
        let says = match address {
            IpAddr::V4(address) => self.v4.at(address.to_bits()),
            IpAddr::V6(address) => self.v6.at(address.to_bits()),
        };
        self.says[says?].iter().find(|(whose, _)| *whose == operator).map(|(_, standing)| *standing)
    }
}

impl<A: Copy + Ord> IntervalTable<A> {
    fn at(&self, address: A) -> Option<usize> {
        let place = self.begin.partition_point(|begin| *begin <= address).checked_sub(1)?;
        Some(self.says[place] as usize)
    }

    /// Starts an interval after `last`, unless that is the last address.
    fn begin_after(&mut self, last: A, next: fn(A) -> Option<A>, says: u32) {
        if let Some(begin) = next(last) {
            self.begin(begin, says);
        }
    }

    /// Starts an interval at `begin` with the matches `says`.
    fn begin(&mut self, begin: A, says: u32) {
        match self.begin.last() {
            Some(last) if *last == begin => *self.says.last_mut().expect("one entry per interval") = says,
            _ => {
                self.begin.push(begin);
                self.says.push(says);
            }
        }
    }
}

/// Divides the address space into intervals: walks over the sorted networks and keeps a stack of those that contain the
/// current address.
fn intervals<A: Copy + Ord>(
    mut networks: Vec<(A, A, (OperatorId, RangeMatch))>,
    next: fn(A) -> Option<A>,
    known: &mut MatchInterner,
) -> IntervalTable<A> {
    networks.sort_by_key(|(first, last, _)| (*first, std::cmp::Reverse(*last)));
    let mut stretches = IntervalTable { begin: Vec::new(), says: Vec::new() };
    let mut around: Vec<(A, (OperatorId, RangeMatch))> = Vec::new();
    for (first, last, says) in networks {
        while let Some((left, _)) = around.pop_if(|(last, _)| *last < first) {
            stretches.begin_after(left, next, known.intern(&around));
        }
        around.push((last, says));
        stretches.begin(first, known.intern(&around));
    }
    while let Some((left, _)) = around.pop() {
        stretches.begin_after(left, next, known.intern(&around));
    }
    stretches
}

/// Interns sets of matches.
#[derive(Default)]
struct MatchInterner {
    says: Vec<RangeMatches>,
    places: HashMap<RangeMatches, u32>,
}

impl MatchInterner {
    fn intern<A>(&mut self, around: &[(A, (OperatorId, RangeMatch))]) -> u32 {
        let mut says = RangeMatches::new();
        for (_, (operator, standing)) in around {
            match says.iter_mut().find(|(whose, _)| whose == operator) {
                Some((_, best)) => *best = (*best).max(*standing),
                None => says.push((*operator, *standing)),
            }
        }
        says.sort_unstable();
        *self.places.entry(says).or_insert_with_key(|says| {
            self.says.push(says.clone());
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
        let standing = prop_oneof![Just(RangeMatch::Verified), Just(RangeMatch::Undecided)];
        let range = (prop_oneof![v4, v6], (0..3u16).prop_map(OperatorId), standing);
        prop::collection::vec(range, 0..20)
    }

    fn addresses(ranges: &[Range]) -> Vec<IpAddr> {
        let ends = ranges.iter().flat_map(|(network, ..)| [network.network(), network.broadcast()]);
        let beside = |address: IpAddr| match address {
            IpAddr::V4(address) => {
                [-1, 0, 1].map(|step| IpAddr::V4(address.to_bits().wrapping_add_signed(step).into()))
            }
            IpAddr::V6(address) => {
                [-1, 0, 1].map(|step| IpAddr::V6(address.to_bits().wrapping_add_signed(step).into()))
            }
        };
        ends.flat_map(beside).collect()
    }

    proptest! {
        #[test]
        fn range_table_agrees_with_its_networks(ranges in ranges()) {
            let table = Ranges::new(ranges.iter().copied());
            for address in addresses(&ranges) {
                for operator in (0..3).map(OperatorId) {
                    let around = ranges.iter().filter(|(network, whose, _)| *whose == operator && network.contains(&address));
                    prop_assert_eq!(table.best_match(operator, address), around.map(|(.., standing)| *standing).max());
                }
            }
        }
    }
}
