//! Switches: what an administrator has blocked or allowed at run time, and maintenance.

use super::Timestamp;
use super::class::Classification;
use super::ids::{ClassId, OperatorId};
use super::network::IpPrefix;
use std::collections::HashMap;
use std::net::IpAddr;

/// Switches in effect, resolved for one configuration.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    maintenance: Option<Maintenance>,
    /// Switches of networks by prefix length in bits, longest first.
    networks: Vec<(u8, HashMap<IpPrefix, Switch>)>,
    operators: HashMap<OperatorId, Switch>,
    classes: HashMap<ClassId, Switch>,
}

/// Clients to which a switch applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTarget {
    /// Clients of a network, or one address.
    Network(IpPrefix),
    /// Crawlers of an operator. A block includes those that only claim to be of it.
    Operator(OperatorId),
    /// Clients of a class.
    Class(ClassId),
}

/// Effect of a switch on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchEffect {
    /// The request is refused.
    Block,
    /// The request passes all rules that protect units for others: block, bucket, client share, tier and pacing.
    Allow,
    /// The request is refused until the end of maintenance.
    Maintenance,
}

/// A switch that applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Effect on the request.
    pub effect: SwitchEffect,
    /// End of the switch; `None` if it is not known.
    pub until: Option<Timestamp>,
}

/// A maintenance of the site.
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// Announced end; `None` if it lasts until it is switched off.
    pub until: Option<Timestamp>,
    /// Networks that are served meanwhile.
    pub except: Vec<IpPrefix>,
}

impl Switches {
    /// Creates the switches of `maintenance` and `entries`. Of two with the same target, the later one counts.
    pub fn new(maintenance: Option<Maintenance>, entries: impl IntoIterator<Item = (SwitchTarget, Switch)>) -> Self {
        let mut switches = Self { maintenance, ..Self::default() };
        let mut networks: HashMap<u8, HashMap<IpPrefix, Switch>> = HashMap::new();
        for (target, switch) in entries {
            match target {
                SwitchTarget::Network(network) => networks.entry(network.length()).or_default().insert(network, switch),
                SwitchTarget::Operator(operator) => switches.operators.insert(operator, switch),
                SwitchTarget::Class(class) => switches.classes.insert(class, switch),
            };
        }
        switches.networks = networks.into_iter().collect();
        switches.networks.sort_unstable_by_key(|(length, _)| std::cmp::Reverse(*length));
        switches
    }

    /// Returns true if no request is affected.
    pub fn is_empty(&self) -> bool {
        self.maintenance.is_none() && self.networks.is_empty() && self.operators.is_empty() && self.classes.is_empty()
    }

    /// Returns the switch that applies to a client: maintenance, or the most specific one of its network, its operator
    /// and its class, in this order. `claimed` is the operator that the client claims to belong to.
    pub fn find(
        &self,
        address: IpAddr,
        classified: &Classification,
        claimed: Option<OperatorId>,
        now: Timestamp,
    ) -> Option<Switch> {
        if self.is_empty() {
            return None;
        }
        let is_current = |switch: &&Switch| switch.until.is_none_or(|until| now < until);
        let maintenance = self.maintenance.as_ref().and_then(|maintenance| maintenance.switch_for(address));
        let by_network = || {
            self.networks
                .iter()
                .find_map(|(length, switches)| switches.get(&IpPrefix::new(address, *length)?).filter(is_current))
        };
        let by_operator = || {
            let proven = classified.operator.and_then(|operator| self.operators.get(&operator));
            let claimed = claimed.and_then(|operator| self.operators.get(&operator));
            proven.or(claimed.filter(|switch| switch.effect == SwitchEffect::Block)).filter(is_current)
        };
        let by_class = || self.classes.get(&classified.class).filter(is_current);
        maintenance
            .filter(|switch| is_current(&switch))
            .or_else(|| by_network().or_else(by_operator).or_else(by_class).copied())
    }
}

impl Maintenance {
    fn switch_for(&self, address: IpAddr) -> Option<Switch> {
        let is_served = self.except.iter().any(|network| network.contains(address));
        (!is_served).then_some(Switch { effect: SwitchEffect::Maintenance, until: self.until })
    }
}

impl SwitchEffect {
    /// All effects.
    pub const ALL: [Self; 3] = [Self::Block, Self::Allow, Self::Maintenance];

    /// Returns the name in the API and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Allow => "allow",
            Self::Maintenance => "maintenance",
        }
    }

    /// Returns the effect with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{ClientKind, EvidenceList};

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
    const LATER: Timestamp = Timestamp::from_seconds(1_800_003_600);

    fn network(text: &str) -> SwitchTarget {
        SwitchTarget::Network(IpPrefix::parse(text).expect("a network"))
    }

    fn until_later(effect: SwitchEffect) -> Switch {
        Switch { effect, until: Some(LATER) }
    }

    fn crawler(operator: Option<u16>) -> Classification {
        Classification {
            kind: ClientKind::VerifiedBot,
            operator: operator.map(OperatorId),
            class: ClassId(1),
            evidence: EvidenceList::default(),
        }
    }

    fn effect(switches: &Switches, address: &str, operator: Option<u16>, claimed: Option<u16>) -> Option<SwitchEffect> {
        let address = address.parse().expect("an address");
        let found = switches.find(address, &crawler(operator), claimed.map(OperatorId), NOW);
        found.map(|switch| switch.effect)
    }

    #[test]
    fn most_specific_switch_applies() {
        use SwitchEffect::{Allow, Block};
        let entries = [
            (SwitchTarget::Class(ClassId(1)), Block),
            (SwitchTarget::Operator(OperatorId(3)), Allow),
            (network("192.0.2.0/24"), Block),
            (network("192.0.2.7"), Allow),
            (network("2001:db8::/64"), Allow),
        ];
        let switches = Switches::new(None, entries.map(|(target, effect)| (target, until_later(effect))));
        assert_eq!(effect(&switches, "192.0.2.7", Some(3), None), Some(Allow));
        assert_eq!(effect(&switches, "192.0.2.8", Some(3), None), Some(Block), "a network before an operator");
        assert_eq!(effect(&switches, "198.51.100.1", Some(3), None), Some(Allow), "an operator before a class");
        assert_eq!(effect(&switches, "198.51.100.1", None, None), Some(Block));
        assert_eq!(effect(&switches, "2001:db8::9", None, None), Some(Allow));
        assert_eq!(effect(&switches, "2001:db8:0:1::9", None, None), Some(Block));
    }

    #[test]
    fn claim_of_an_operator_is_blocked_but_never_allowed() {
        for (action, expected) in [(SwitchEffect::Block, Some(SwitchEffect::Block)), (SwitchEffect::Allow, None)] {
            let switches = Switches::new(None, [(SwitchTarget::Operator(OperatorId(3)), until_later(action))]);
            assert_eq!(effect(&switches, "192.0.2.1", None, Some(3)), expected);
            assert_eq!(effect(&switches, "192.0.2.1", Some(4), None), None);
        }
    }

    #[test]
    fn maintenance_precedes_all_switches_except_for_its_networks() {
        let except = vec![IpPrefix::parse("192.0.2.0/24").expect("a network")];
        let allowed = [(network("198.51.100.1"), until_later(SwitchEffect::Allow))];
        let switches = Switches::new(Some(Maintenance { until: None, except }), allowed);
        assert_eq!(effect(&switches, "192.0.2.1", None, None), None);
        assert_eq!(effect(&switches, "198.51.100.1", None, None), Some(SwitchEffect::Maintenance));
    }

    #[test]
    fn switch_ends_at_its_time() {
        let switches = Switches::new(
            Some(Maintenance { until: Some(LATER), except: Vec::new() }),
            [(network("192.0.2.1"), until_later(SwitchEffect::Block))],
        );
        let find = |now| switches.find("192.0.2.1".parse().expect("an address"), &crawler(None), None, now);
        assert_eq!(find(NOW).map(|switch| switch.effect), Some(SwitchEffect::Maintenance));
        assert_eq!(find(LATER), None);
        assert!(Switches::default().is_empty() && !switches.is_empty());
    }
}
