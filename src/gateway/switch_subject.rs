//! The client of a long connection, to which a switch of an administrator may apply later.

use std::net::IpAddr;
use tidegate_policy::switches::{SwitchEffect, Switches};
use tidegate_policy::{Classification, OperatorId, Rules, Timestamp};

/// What switches tell clients apart by.
pub(in crate::gateway) struct SwitchSubject {
    address: IpAddr,
    classification: Classification,
    claimed: Option<OperatorId>,
    /// Name of its class, which a reload keeps.
    class: String,
}

impl SwitchSubject {
    /// Returns the client at `address`, which was classified by `rules`, and claims to belong to an operator.
    pub(in crate::gateway) fn new(
        address: IpAddr,
        classification: Classification,
        claimed: Option<OperatorId>,
        rules: &Rules,
    ) -> Self {
        let class = rules[classification.class].name.clone();
        Self { address, classification, claimed, class }
    }

    /// Returns true if a switch blocks the client.
    pub(in crate::gateway) fn is_blocked(&self, switches: &Switches, rules: &Rules, now: Timestamp) -> bool {
        if switches.is_empty() {
            return false;
        }
        let mut classification = self.classification;
        if let Some(class) = rules.class_id(&self.class) {
            classification.class = class;
        }
        let switch = switches.find(self.address, &classification, self.claimed, now);
        switch.is_some_and(|switch| switch.effect == SwitchEffect::Block)
    }
}
