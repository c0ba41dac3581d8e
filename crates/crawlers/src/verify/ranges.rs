//! Lookup of all published address ranges in one table, with their meaning for each operator.

use ipnet::IpNet;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::net::IpAddr;
use tidegate_policy::OperatorId;
use tidegate_policy::network_table::NetworkTable;

/// Address ranges of all operators.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Index in `matches` of each interval.
    intervals: NetworkTable<u32>,
    /// Different matches of the intervals.
    matches: Vec<RangeMatches>,
}

/// Match of an address in an operator's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RangeMatch {
    /// The network belongs to the operator, but is not published for this crawler.
    Neutral,
    /// Published as an address of this crawler.
    Verified,
}

/// A network of one operator.
pub(super) type OperatorRange = (IpNet, OperatorId, RangeMatch);

/// Matches of an address, by operator. Ranges of several operators may overlap; each operator has one entry with its
/// best match.
type RangeMatches = SmallVec<[(OperatorId, RangeMatch); 4]>;

impl Ranges {
    pub(super) fn new(ranges: impl IntoIterator<Item = OperatorRange>) -> Self {
        let networks = ranges
            .into_iter()
            .map(|(network, operator, result)| ((network.network(), network.broadcast()), (operator, result)));
        let mut interner = MatchInterner::default();
        let intervals = NetworkTable::new(networks, |ranges| interner.intern(ranges));
        Self { intervals, matches: interner.matches }
    }

    /// Returns the best match of any range that contains `address` for `operator`.
    pub(super) fn best_match(&self, operator: OperatorId, address: IpAddr) -> Option<RangeMatch> {
        let matches = &self.matches[*self.intervals.get(address)? as usize];
        matches.iter().find(|(other, _)| *other == operator).map(|(_, result)| *result)
    }
}

/// Interns sets of matches.
#[derive(Default)]
struct MatchInterner {
    matches: Vec<RangeMatches>,
    indices: HashMap<RangeMatches, u32, foldhash::fast::FixedState>,
}

impl MatchInterner {
    fn intern(&mut self, ranges: &[(OperatorId, RangeMatch)]) -> u32 {
        let mut matches = RangeMatches::new();
        for (operator, result) in ranges {
            match matches.iter_mut().find(|(other, _)| other == operator) {
                Some((_, best)) => *best = (*best).max(*result),
                None => matches.push((*operator, *result)),
            }
        }
        matches.sort_unstable();
        *self.indices.entry(matches).or_insert_with_key(|matches| {
            self.matches.push(matches.clone());
            u32::try_from(self.matches.len() - 1).expect("fewer than the bounded number of ranges")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = Vec<OperatorRange>> {
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
        let range_match = prop_oneof![Just(RangeMatch::Verified), Just(RangeMatch::Neutral)];
        let range = (prop_oneof![v4, v6], (0..3u16).prop_map(OperatorId), range_match);
        prop::collection::vec(range, 0..20)
    }

    fn addresses(ranges: &[OperatorRange]) -> Vec<IpAddr> {
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
