//! All published address ranges in one structure, each with what it means for which operator.

use std::net::IpAddr;

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;
use smallvec::SmallVec;

use crate::policy::OperatorId;

/// Where the crawlers of all operators come from.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Ranges of several operators overlap, and one may hold another, so each prefix keeps a few.
    by_prefix: JointPrefixMap<IpNet, SmallVec<[(OperatorId, Standing); 2]>>,
}

/// What an address in a range says about the claim to be of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// The network belongs to the operator, but is not published for this crawler.
    Undecided,
    /// Published as an address of this crawler.
    Proven,
}

impl Ranges {
    pub(super) fn add(&mut self, range: IpNet, operator: OperatorId, standing: Standing) {
        self.by_prefix.entry(range.trunc()).or_default().push((operator, standing));
    }

    /// Returns the best that any range around `address` says for `operator`.
    pub(super) fn standing(&self, operator: OperatorId, address: IpAddr) -> Option<Standing> {
        // An IPv4 client on a dual-stack listener comes as ::ffff:a.b.c.d.
        let host = IpNet::from(address.to_canonical());
        let around = self.by_prefix.cover(&host).flat_map(|(_, operators)| operators);
        around.filter(|(whose, _)| *whose == operator).map(|(_, standing)| *standing).max()
    }
}
