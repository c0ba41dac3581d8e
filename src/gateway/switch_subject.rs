//! The client of a long connection, to which a switch of an administrator may apply later.

use super::request_context::RequestContext;
use super::worker::CurrentConfig;
use std::net::IpAddr;
use tidegate_policy::switches::SwitchEffect;
use tidegate_policy::{Classification, OperatorId, Timestamp};

/// What switches tell clients apart by.
pub(super) struct SwitchSubject {
    address: IpAddr,
    classification: Classification,
    claimed: Option<OperatorId>,
    /// Name of its class, which a reload keeps.
    class: String,
}

impl SwitchSubject {
    /// Returns the client of a request.
    pub(super) fn new(context: &RequestContext) -> Self {
        let classification = context.evaluation().classification.clone();
        let class = context.current().settings.rules[classification.class].name.clone();
        Self { address: context.client_address(), classification, claimed: context.claimed_operator(), class }
    }

    /// Returns true if a switch blocks the client.
    pub(super) fn is_blocked(&self, current: &CurrentConfig, now: Timestamp) -> bool {
        if current.switches.is_empty() {
            return false;
        }
        let mut classification = self.classification.clone();
        if let Some(class) = current.settings.rules.class_id(&self.class) {
            classification.class = class;
        }
        let switch = current.switches.find(self.address, &classification, self.claimed, now);
        switch.is_some_and(|switch| switch.effect == SwitchEffect::Block)
    }
}
