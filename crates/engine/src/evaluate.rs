//! Evaluation of a request, from its facts to its verdict: the same steps for live requests and for log lines.

use super::exempt_costs::ExemptGuard;
use super::{Admission, CrawledPage, Decision};
use std::net::IpAddr;
use tidegate_policy::budget::Payer;
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::exempt::Exemption;
use tidegate_policy::identity::{ClientKey, CredentialSource};
use tidegate_policy::switches::Switch;
use tidegate_policy::{Classification, Facts, QuotaId, RequestFacts, RouteId, Timestamp, Units};

/// A classified and routed request, before its verdict.
#[derive(Clone, Copy, Debug)]
pub struct Classified {
    /// Kind and class of the client.
    pub classification: Classification,
    /// Route.
    pub route: RouteId,
    /// Key of the bucket that pays.
    pub key: ClientKey,
    /// Key of the customer that pays; that of the client's address without a credential of one.
    pub customer: ClientKey,
    /// Switch that applies to the client.
    pub switch: Option<Switch>,
    /// Why the request is not use; `None` for an ordinary one.
    pub exemption: Option<Exemption>,
}

impl Classified {
    /// Returns who pays for the request.
    pub fn payer(&self) -> Payer {
        Payer { client: self.key, customer: self.customer }
    }
}

/// What a request is for, beside its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestPurpose {
    /// A response from the origin.
    #[default]
    Response,
    /// A stored response, which costs nothing.
    Copy,
    /// A refresh of a stored response by the gateway, with surplus units.
    Refresh,
}

/// Classification and decision of one request.
pub struct Evaluation {
    /// Class and route. Its exemption is `None` if the request is decided as an ordinary one.
    pub classified: Classified,
    /// Verdict, with the state that it is based on.
    pub decision: Decision,
    /// Present for an exempt request that the origin answers, until its response.
    pub exempt: Option<ExemptGuard>,
}

impl Admission {
    /// Evaluates a request by its facts, whose response comes from the origin. The arguments are those of
    /// [`Self::classify`].
    pub fn evaluate(
        &self,
        facts: &Facts<'_>,
        switch: impl FnOnce(&Classification) -> Option<Switch>,
        secret: impl Fn(&CredentialSource) -> Option<u64>,
        now: Timestamp,
    ) -> Evaluation {
        let classified = self.classify(facts, switch, secret, now);
        let learned = self.learned_costs(classified.route, &facts.request).filter(|_| classified.exemption.is_none());
        let learned = learned.unwrap_or_default();
        self.evaluate_classified(classified, &facts.request, &learned, RequestPurpose::Response, now)
    }

    /// Classifies and routes a request by its facts. `secret` returns the hash of a credential. It is called with the
    /// header or cookie that keys the buckets of the class, if there is one. `switch` returns the switch that applies
    /// to the classified client.
    pub fn classify(
        &self,
        facts: &Facts<'_>,
        switch: impl FnOnce(&Classification) -> Option<Switch>,
        secret: impl Fn(&CredentialSource) -> Option<u64>,
        now: Timestamp,
    ) -> Classified {
        let classification = self.rules.classify(facts);
        let route = self.rules.route(&facts.request);
        let is_exempt =
            |exemption: &Exemption| !exemption.is_bounded() || !self.exempt_costs.are_ordinary(*exemption, route, now);
        let exemption = self.rules.exemption(&facts.request).filter(is_exempt);
        let key = self.key(exemption, &classification, facts.client.address, &secret);
        let customer = self.rules.customer_key(facts.client, &secret).unwrap_or(key);
        let switch = switch(&classification);
        Classified { classification, route, key, customer, switch, exemption }
    }

    /// Returns the key of the bucket that pays. `secret` as in [`Self::classify`]. That of a bounded exemption is the address,
    /// whatever the client claims to be.
    pub(super) fn key(
        &self,
        exemption: Option<Exemption>,
        classification: &Classification,
        address: IpAddr,
        secret: impl FnOnce(&CredentialSource) -> Option<u64>,
    ) -> ClientKey {
        match exemption {
            Some(exemption) if exemption.is_bounded() => self.rules.trust.key(address),
            _ => self.rules.key(classification, address, secret),
        }
    }

    /// Decides on a classified request. `learned` are its expected costs in quotas in which its route has none. Where others
    /// have used up what is exempt, or too many of its kind wait for a response, a request is decided as an ordinary one.
    pub fn evaluate_classified(
        &self,
        classified: Classified,
        request: &RequestFacts<'_>,
        learned: &[(QuotaId, Units)],
        purpose: RequestPurpose,
        now: Timestamp,
    ) -> Evaluation {
        let Classified { classification, route, key, switch, exemption, .. } = classified;
        let page = CrawledPage::new(&classification, request);
        let mut decision_request = DecisionRequest {
            class: classification.class,
            class_rules: &self.rules[classification.class],
            route: &self.rules[route],
            has_learned_cost: !learned.is_empty(),
            exemption,
            switch,
            has_copy: purpose == RequestPurpose::Copy,
            is_refresh: purpose == RequestPurpose::Refresh,
        };
        let mut exempt = None;
        if let Some(bounded) = decision_request.bounded_exemption() {
            exempt = self.exempt_costs.begin(bounded, route);
            decision_request.exemption = exempt.is_some().then_some(bounded);
        }
        if let Some(bounded) = decision_request.bounded_exemption().filter(|_| decision_request.bucket().is_some()) {
            if let Some(decision) = self.admit_exempt(key, &decision_request, bounded, now) {
                return Evaluation { classified, decision, exempt };
            }
            (decision_request.exemption, exempt) = (None, None);
        }
        let learned = if decision_request.is_free() { &[] } else { learned };
        let charges = self.with_learned(self.charges(&decision_request, route), learned);
        let decision = self.admit_with_costs(classified.payer(), &decision_request, &charges, page, now);
        Evaluation { classified: Classified { exemption: decision_request.exemption, ..classified }, decision, exempt }
    }
}
