//! Inputs of the decision on a request, collected without deciding.

use super::admission::ChargeContext;
use super::cost_estimates::ExpectedCost;
use super::{Admission, CrawledPage};
use tidegate_policy::bucket::BucketState;
use tidegate_policy::budget::Payer;
use tidegate_policy::decide::{DecisionRequest, QuotaSnapshot};
use tidegate_policy::identity::CredentialSource;
use tidegate_policy::{ClassId, Facts, QuotaId, Timestamp, Units};

/// Inputs of the decision on a hypothetical request.
#[derive(Clone, Debug)]
pub struct DryRun<'a> {
    /// State of the client's bucket.
    pub bucket_state: BucketState,
    /// Snapshots of the route's quotas for each class the client could have, by [`ClassId`].
    pub by_class: Vec<Vec<QuotaSnapshot<'a>>>,
}

impl Admission {
    /// Returns the inputs of the decision on a request with these facts and these learned costs. `secret` is used as in
    /// [`Admission::evaluate`]. Changes only what the request itself would change: a plan that is due is created.
    pub fn dry_run(
        &self,
        facts: &Facts<'_>,
        learned: &[(QuotaId, Units)],
        secret: impl Fn(&CredentialSource) -> Option<u64>,
        now: Timestamp,
    ) -> DryRun<'_> {
        let classified = self.rules.classify(facts);
        let route = self.rules.route(&facts.request);
        let exemption = self.rules.exemption(&facts.request);
        let key = self.key(exemption, &classified, facts.client.address, &secret);
        let customer = self.rules.customer_key(facts.client, &secret).unwrap_or(key);
        let page = CrawledPage::new(&classified, &facts.request);
        let bucket_state = self.bucket_state(exemption, key, self.class_id(classified.class));
        let snapshots = |(index, class_rules)| {
            let class = ClassId::from_index(index);
            let request = DecisionRequest {
                class,
                class_rules,
                route: &self.rules[route],
                has_learned_cost: !learned.is_empty(),
                exemption,
                switch: None,
                has_copy: false,
                is_refresh: false,
            };
            let learned = if request.is_free() { &[] } else { learned };
            let charges = self.with_learned(self.charges(&request, route), learned);
            let context = ChargeContext {
                class,
                payer: Payer { client: key, customer },
                class_id: self.class_id(class),
                limited_client: class_rules.has_client_limits.then_some(key),
                crawler: self.guarded_crawler(class_rules, page.as_ref(), now),
            };
            let snapshot = |charge: &(QuotaId, ExpectedCost)| {
                let mut state = self.counter(charge.0).lock_at(now);
                let snapshot = self.quota_snapshot(&mut state, charge, context);
                state.adopt_plan();
                snapshot
            };
            charges.iter().map(snapshot).collect()
        };
        DryRun { bucket_state, by_class: self.rules.classes.iter().enumerate().map(snapshots).collect() }
    }
}
