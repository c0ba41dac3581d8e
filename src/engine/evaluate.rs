//! From the facts of a request to its verdict: the same steps for a live request and for a line of a log.

use super::{Admission, CrawledPage, Decision};
use crate::policy::identity::{ClientKey, CredentialSource};
use crate::policy::{Classification, Facts, Timestamp};

/// What was made of a request.
pub struct Evaluation {
    /// What kind of client asks, and in which class.
    pub classified: Classification,
    /// The place of its route.
    pub route: usize,
    /// Whose bucket pays.
    pub key: ClientKey,
    /// The verdict, with the numbers it was made on.
    pub decision: Decision,
}

impl Admission {
    /// Judges a request by all that is known of it. `secret` is asked for a hash of what it sends in the header or cookie
    /// that its class goes by, if anything is.
    pub fn evaluate(
        &self,
        facts: &Facts<'_>,
        secret: impl FnOnce(&CredentialSource) -> Option<u64>,
        now: Timestamp,
    ) -> Evaluation {
        let classified = self.rules.classify(facts);
        let route = self.rules.route(facts);
        let key = self.rules.key(&classified, facts.client, secret);
        let page = CrawledPage::of(&classified, facts);
        let never_refused = self.rules.is_exempt(facts.method, facts.path);
        let decision = self.admit_guarded(key, classified.class, route, never_refused, page, now);
        Evaluation { classified, route, key, decision }
    }
}
