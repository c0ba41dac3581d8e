//! Evaluation of a request, from its facts to its verdict: the same steps for live requests and for log lines.

use super::{Admission, CrawledPage, Decision};
use tidegate_policy::decide::DecisionRequest;
use tidegate_policy::identity::{ClientKey, CredentialSource};
use tidegate_policy::switches::Switch;
use tidegate_policy::{Classification, Facts, RouteId, Timestamp};

/// Classification and decision of one request.
pub struct Evaluation {
    /// Kind and class of the client.
    pub classification: Classification,
    /// Route.
    pub route: RouteId,
    /// Key of the bucket that pays.
    pub key: ClientKey,
    /// Switch that applies to the client.
    pub switch: Option<Switch>,
    /// Verdict, with the state that it is based on.
    pub decision: Decision,
}

impl Admission {
    /// Evaluates a request by its facts. `secret` returns the hash of a credential. It is called with the header or
    /// cookie that keys the buckets of the class, if there is one. `switch` returns the switch that applies to the
    /// classified client.
    pub fn evaluate(
        &self,
        facts: &Facts<'_>,
        switch: impl FnOnce(&Classification) -> Option<Switch>,
        secret: impl FnOnce(&CredentialSource) -> Option<u64>,
        now: Timestamp,
    ) -> Evaluation {
        let classification = self.rules.classify(facts);
        let route = self.rules.route(&facts.request);
        let key = self.rules.key(&classification, facts.client.address, secret);
        let page = CrawledPage::new(&classification, &facts.request);
        let never_refused = self.rules.is_exempt(facts.request.method, facts.request.path);
        let switch = switch(&classification);
        let request = DecisionRequest {
            class: classification.class,
            class_rules: &self.rules[classification.class],
            route: &self.rules[route],
            is_exempt: never_refused,
            switch,
        };
        let decision = self.admit_guarded(key, &request, route, page, now);
        Evaluation { classification, route, key, switch, decision }
    }
}
