//! Input of an explanation: one request and everything that the rules read about it.

use super::assumed_usage::AssumedUsage;
use super::copy_use::{CopyEffect, CopyUse};
use super::environment::Environment;
use super::explanation::RequestSummary;
use super::logged_outcome::{LoggedDecision, LoggedOutcome};
use crate::log::LogLine;
use http::{HeaderMap, Method};
use std::net::IpAddr;
use std::sync::Arc;
use tidegate_access_log::{hexadecimal, rfc3339};
use tidegate_config::settings::Redirect;
use tidegate_engine::{ClassPlan, Engine, LeaseMode, PlanView, QuotaView};
use tidegate_policy::bucket::BucketState;
use tidegate_policy::budget::Payer;
use tidegate_policy::cost::Cost;
use tidegate_policy::crawler_guard::GuardState;
use tidegate_policy::decide::{CheckObserver, DecisionRequest, QuotaSnapshot, decide_observed};
use tidegate_policy::key_usage::KeyUsage;
use tidegate_policy::pacing::bucket::PacingAllowance;
use tidegate_policy::pacing::{Pacing, PlanSnapshot};
use tidegate_policy::path::resolved;
use tidegate_policy::path_costs::Generalization;
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::request_fields::FieldMatch;
use tidegate_policy::route::Route;
use tidegate_policy::switches::Switch;
use tidegate_policy::tier::{Share, ShedState};
use tidegate_policy::{
    ClassId, Classification, ClientFacts, Facts, QuotaId, RequestFacts, RouteId, Timestamp, Units, Verdict,
};

/// A request and the state that a decision on it would use.
#[derive(Clone)]
pub struct ExplainInput<'a> {
    pub(super) environment: Environment<'a>,
    pub(super) request: RequestAttributes,
    pub(super) client: ClientFacts,
    pub(super) now: Timestamp,
    /// State of the client's token bucket.
    pub(super) bucket_state: BucketState,
    /// Usage of each quota of the route.
    pub(super) quota_snapshots: Vec<QuotaSnapshot<'a>>,
    /// State that a replay found before the request; `None` if the result depends on earlier requests.
    pub(super) replayed: Option<ReplayedState<'a>>,
    /// Quotas of a running gateway or of a replay, with their pacing plans; empty if there is neither.
    pub(super) quotas: &'a [QuotaView],
    /// Jitter of `Retry-After`, as a fraction of the wait.
    pub(super) spread: f64,
    /// Switch that applied to the client, if the request comes from a log.
    pub(super) switch: Option<Switch>,
    /// Logged outcome of the request, if it comes from a log.
    pub(super) logged: Option<LoggedOutcome>,
    /// Use of a stored response.
    pub(super) copy: CopyUse,
    /// Directory whose cost the gateway generalized from other paths and applies to the request.
    pub(super) generalized_cost: Option<(String, Generalization)>,
}

/// Usage of the route's quotas for each class, as a replay found it.
#[derive(Clone)]
pub(super) struct ReplayedState<'a> {
    /// Class of [`ExplainInput::quota_snapshots`].
    pub(super) class: ClassId,
    /// Usage of each quota, indexed by [`ClassId`].
    pub(super) by_class: Vec<Vec<QuotaSnapshot<'a>>>,
}

/// Attributes of the request that rules match.
#[derive(Clone, Debug)]
pub(super) struct RequestAttributes {
    pub(super) method: Method,
    pub(super) host: String,
    /// Normalized path, as rules match it.
    pub(super) path: String,
    /// Path with its dot segments resolved, as the client spelled it.
    pub(super) resolved_path: String,
    /// Other readings of the path.
    pub(super) other_paths: Vec<String>,
    pub(super) query: Option<String>,
    pub(super) user_agent: Vec<u8>,
    /// True for a CORS preflight.
    pub(super) is_preflight: bool,
    /// Other headers of the request, if known.
    pub(super) headers: HeaderMap,
    /// Address of the connection's peer.
    pub(super) peer: IpAddr,
    /// Addresses of the trusted proxies on the path.
    pub(super) hops: Vec<IpAddr>,
    /// What the JSON body says; `None` if it is not known.
    pub(super) json: Option<JsonMatch>,
    /// Conditions of routes on header fields and cookies that it meets; `None` if it meets none.
    pub(super) fields: Option<FieldMatch>,
}

/// Assumption about earlier requests where their history decides and is unknown: the position in the shed share, the
/// last admission by the crawler guard, and the units left in the pacing plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum History {
    /// The history that favors this request most.
    BestCase,
    /// The history that favors this request least.
    WorstCase,
}

impl RequestAttributes {
    /// Returns the attributes of the logged request of `line`, whose headers are not known.
    pub(super) fn from_log(request: &RequestFacts<'_>, line: &LogLine<'_>, client: IpAddr) -> Self {
        let sent_path = line.request.as_ref().map_or(request.path, |sent| &sent.path);
        Self {
            method: request.method.clone(),
            host: request.host.to_owned(),
            path: request.path.to_owned(),
            resolved_path: resolved(sent_path).into_owned(),
            other_paths: request.other_paths.to_vec(),
            query: request.query.map(str::to_owned),
            user_agent: request.user_agent.to_vec(),
            is_preflight: request.is_preflight,
            headers: HeaderMap::new(),
            peer: client,
            hops: Vec::new(),
            json: request.json.cloned(),
            fields: request.fields.cloned(),
        }
    }

    /// Returns the request as rules match it.
    pub(super) fn facts(&self) -> RequestFacts<'_> {
        let Self { method, host, path, other_paths, query, user_agent, .. } = self;
        let (query, is_preflight) = (query.as_deref(), self.is_preflight);
        let (json, fields) = (self.json.as_ref(), self.fields.as_ref());
        RequestFacts { method, host, path, other_paths, query, user_agent, is_preflight, json, fields }
    }
}

impl<'a> ExplainInput<'a> {
    pub(super) fn new(
        environment: Environment<'a>,
        request: RequestAttributes,
        client: ClientFacts,
        now: Timestamp,
    ) -> Self {
        Self {
            environment,
            request,
            client,
            now,
            bucket_state: BucketState::default(),
            quota_snapshots: Vec::new(),
            replayed: None,
            quotas: &[],
            switch: None,
            spread: 0.0,
            copy: CopyUse::Unknown,
            logged: None,
            generalized_cost: None,
        }
    }

    /// Returns the input with the usage of each quota taken from `used`; quotas for which it returns `None` are unused.
    pub(super) fn with_used(self, used: impl Fn(&str) -> Option<AssumedUsage>) -> Self {
        self.with_used_and_learned(used, &[])
    }

    /// Like [`Self::with_used`], for a request with `learned` costs in quotas in which its route has none.
    pub(super) fn with_used_and_learned(
        self,
        used: impl Fn(&str) -> Option<AssumedUsage>,
        learned: &[(QuotaId, Units)],
    ) -> Self {
        let rules = &self.environment.settings.rules;
        let admission = Engine::new(LeaseMode::Local, 1).admission(Arc::clone(rules), self.now);
        for quota in &rules.quotas {
            if let Some(used) = used(&quota.name) {
                let _ = admission.set_used(&quota.name, used.of_limit(quota.limit), self.now);
            }
        }
        let views = admission.quotas(self.now);
        let classification = self.classification();
        let class = classification.class;
        // Without a listed key, the address stands for the credential.
        let client = rules.key(&classification, self.client.address, |_| None);
        let customer = rules.customer_key(&self.client, |_| None).unwrap_or(client);
        let payer = Payer { client, customer };
        let snapshot = |&(id, cost): &(QuotaId, Cost)| {
            let quota = &rules[id];
            let limit = quota.limit_of(class, payer);
            let (taken, resets_at) = match views.iter().find(|view| view.name == quota.name) {
                Some(view) => (view.used, view.window_end),
                // A budget is that of the one who pays. The latest time at which units come back is that of a charge just now.
                None => {
                    let taken = used(&quota.name).map_or(Units::ZERO, |used| used.of_limit(limit));
                    let renewal = KeyUsage::new(quota.key_windows(), 1).renewal(self.now.0, customer, Units::ZERO);
                    (taken, renewal.unwrap_or(quota.window.span(self.now).end))
                }
            };
            let cost = match cost {
                Cost::Fixed(units) => units,
                Cost::Learned | Cost::Requested { .. } => cost.first_estimate().min(limit),
            };
            QuotaSnapshot {
                id,
                quota,
                cost,
                taken,
                limit,
                leased: limit,
                client_used: quota.client_limit.map(|_| Units::ZERO),
                client_resets_at: resets_at,
                resets_at,
                shedding: ShedState::default(),
                // The plan is unknown: assume that usage follows it, whatever it allots to this class.
                plan: quota.pacing.as_ref().map(|_| PlanSnapshot {
                    is_ahead: false,
                    refresh_limit: Units::ZERO,
                    earmarked: Units::ZERO,
                    allowance: None,
                }),
                guard_state: None,
                guard_admitted: false,
            }
        };
        // The gateway evaluates quotas in this order.
        let learned: Vec<_> = learned.iter().map(|&(id, cost)| (id, Cost::Fixed(cost))).collect();
        let is_replaced = |(id, _): &&(QuotaId, Cost)| learned.iter().any(|(other, _)| other == id);
        let costs = self.route().costs.iter().filter(|cost| !is_replaced(cost)).chain(&learned);
        let mut quota_snapshots: Vec<QuotaSnapshot<'a>> = costs.map(snapshot).collect();
        quota_snapshots.sort_by_key(|snapshot| snapshot.id);
        Self { quota_snapshots, replayed: None, ..self }
    }

    /// Returns the input with unused quotas; costs that were learned or stated stay.
    pub(super) fn with_unused_quotas(self) -> Self {
        let is_of_request = |id| self.is_learned(id) || self.route().has_requested_cost_in(id);
        let learned = self.quota_snapshots.iter().filter(|snapshot| is_of_request(snapshot.id));
        let learned: Vec<_> = learned.map(|snapshot| (snapshot.id, snapshot.cost)).collect();
        self.with_used_and_learned(|_| None, &learned)
    }

    /// Returns the input with the directory whose cost the gateway generalized and applies to the request, as `find`
    /// returns it.
    pub fn with_generalized_cost(
        self,
        find: impl FnOnce(&RequestFacts<'_>) -> Option<(String, Generalization)>,
    ) -> Self {
        let generalized_cost = find(&self.request.facts());
        Self { generalized_cost, ..self }
    }

    /// Returns the quotas whose costs the origin may report for the request although its route has none.
    pub(super) fn quotas_that_may_be_reported(&self) -> Vec<&'a str> {
        let (rules, route) = (self.environment.rules(), self.route());
        // A route without scopes does not reach the origin.
        let is_sent = !route.scopes.is_empty() && rules.exemption(&self.request.facts()).is_none();
        let quotas = rules.quotas.iter().enumerate().filter(|(index, quota)| {
            is_sent && quota.has_reported_costs() && self.is_learned(QuotaId::from_index(*index))
        });
        quotas.map(|(_, quota)| quota.name.as_str()).collect()
    }

    /// Returns the input with all units of the quotas leased to this instance.
    pub(super) fn with_full_lease(mut self) -> Self {
        self.quota_snapshots.iter_mut().for_each(|snapshot| snapshot.leased = snapshot.limit);
        self
    }

    /// Returns the input with a state in which every admit share admits the next request of the class.
    pub(super) fn at_next_admit(&self) -> Self {
        let mut next = self.clone();
        for snapshot in &mut next.quota_snapshots {
            snapshot.shedding.carry = 0;
            if let Some(allowance) = snapshot.plan.as_mut().and_then(|plan| plan.allowance.as_mut()) {
                allowance.bucket = allowance.bucket.assuming_turn();
            }
        }
        next
    }

    /// Returns the input with the quotas and plans of a gateway or replay.
    pub fn with_quotas(self, quotas: &'a [QuotaView]) -> Self {
        Self { quotas, ..self }
    }

    /// Returns the pacing plan of `quota` and its part for `class`; `None` if no plan is known.
    pub(super) fn plan(&self, quota: &str, class: &str) -> Option<(&PlanView, Option<&ClassPlan>)> {
        let view = self.quotas.iter().find(|view| view.name == quota)?;
        let class_plan = view.by_class.iter().find(|view| view.class == class).and_then(|view| view.plan.as_ref());
        Some((view.plan.as_ref()?, class_plan))
    }

    /// Returns the possible histories, the best case first. After a replay there is only one.
    pub(super) fn histories(&self) -> Vec<History> {
        if self.replayed.is_some() { vec![History::BestCase] } else { vec![History::BestCase, History::WorstCase] }
    }

    /// Returns `snapshot` with `taken` units of its quota taken.
    pub(super) fn with_taken(&self, snapshot: QuotaSnapshot<'a>, taken: Units) -> QuotaSnapshot<'a> {
        let is_ahead = |pacing: &Pacing| {
            let plan = self.quotas.iter().find(|view| view.name == snapshot.quota.name)?.plan?;
            Some(taken > plan.planned.saturating_add(pacing.burst_share.of_units(snapshot.quota.limit)))
        };
        let is_ahead = snapshot.quota.pacing.as_ref().and_then(is_ahead);
        let plan = snapshot.plan.map(|plan| PlanSnapshot { is_ahead: is_ahead.unwrap_or(plan.is_ahead), ..plan });
        QuotaSnapshot { taken, plan, ..snapshot }
    }

    /// Returns the input with the usage of those quotas replaced for which `used` returns an amount.
    pub fn override_used(mut self, used: impl Fn(&str) -> Option<AssumedUsage>) -> Self {
        let updated = |snapshot: &QuotaSnapshot<'a>| match used(&snapshot.quota.name) {
            Some(taken) => self.with_taken(*snapshot, taken.of_limit(snapshot.limit)),
            None => *snapshot,
        };
        let all = |quota_snapshots: &Vec<QuotaSnapshot<'a>>| quota_snapshots.iter().map(updated).collect::<Vec<_>>();
        let quota_snapshots = all(&self.quota_snapshots);
        let by_class = self.replayed.as_ref().map(|replayed| replayed.by_class.iter().map(all).collect());
        self.quota_snapshots = quota_snapshots;
        if let (Some(replayed), Some(by_class)) = (&mut self.replayed, by_class) {
            replayed.by_class = by_class;
        }
        self
    }

    /// Returns the gateway's decision, if the log contains it.
    pub(super) fn logged_decision(&self) -> Option<&LoggedDecision> {
        self.logged.as_ref()?.decision.as_ref()
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts { request: self.request.facts(), client: &self.client }
    }

    pub(super) fn classification(&self) -> Classification {
        self.environment.rules().classify(&self.facts())
    }

    /// Returns the redirect that an admitted request gets in place of a response of the origin.
    pub(super) fn redirect(&self) -> Option<&'a Redirect> {
        let Environment { settings, .. } = self.environment;
        let is_served = settings.rules.read_exemption(&self.request.method, &self.request.path).is_some();
        settings.redirect(self.route_id()).filter(|_| !is_served)
    }

    /// Returns which of several origins is sent the request, and with which path if it is rewritten.
    pub(super) fn sent_as(&self) -> Option<String> {
        let settings = self.environment.settings;
        let (route, id) = (self.route(), self.route_id());
        if route.scopes.is_empty() {
            return None;
        }
        let path = settings.rewrite(id).map(|rewrite| rewrite.path(&self.request.resolved_path));
        match (settings.origin_name(route.origin), path) {
            (Some(origin), None) => Some(format!("the origin is {origin}")),
            (Some(origin), Some(path)) => Some(format!("the origin is {origin}, and is sent the path {path}")),
            (None, Some(path)) => Some(format!("the origin is sent the path {path}")),
            (None, None) => None,
        }
    }

    pub(super) fn route_id(&self) -> RouteId {
        self.environment.rules().route(&self.request.facts())
    }

    pub(super) fn route(&self) -> &'a Route {
        &self.environment.rules()[self.route_id()]
    }

    /// Returns true if the route has no cost in `quota`, so that a cost in it was learned from what the origin reported.
    pub(super) fn is_learned(&self, quota: QuotaId) -> bool {
        !self.route().has_cost_in(quota)
    }

    /// Returns the input of the decision if the client were of `class`.
    pub(super) fn decision_request_for(&self, class: ClassId) -> DecisionRequest<'a> {
        let rules = self.environment.rules();
        DecisionRequest {
            class,
            class_rules: &rules[class],
            route: self.route(),
            has_learned_cost: self.quota_snapshots.iter().any(|snapshot| self.is_learned(snapshot.id)),
            exemption: rules.exemption(&self.request.facts()),
            switch: self.switch,
            has_copy: self.copy.effect() == CopyEffect::Answer,
            is_refresh: self.logged_decision().is_some_and(|decision| decision.is_refresh),
        }
    }

    /// Returns the usage of the route's quotas if the client were of `class`; empty if the request costs nothing.
    /// Without a replay, the history of earlier requests is the one that `history` assumes.
    fn quotas_for(&self, class: ClassId, history: History) -> Vec<QuotaSnapshot<'a>> {
        let request = self.decision_request_for(class);
        match &self.replayed {
            _ if request.is_free() => Vec::new(),
            Some(replayed) if replayed.class != class => replayed.by_class[class.index()].clone(),
            Some(_) => self.quota_snapshots.clone(),
            None => self.quotas_after(&request, history),
        }
    }

    fn quotas_after(&self, request: &DecisionRequest<'a>, history: History) -> Vec<QuotaSnapshot<'a>> {
        let guard = request.class_rules.guard.filter(|_| self.classification().operator.is_some());
        let (carry, last_admitted) = match history {
            History::BestCase => (0, Timestamp::default()),
            History::WorstCase => (Share::ALL.millionths() - 1, self.now),
        };
        let guard_state = guard.map(|guard| GuardState {
            guard,
            last_admitted,
            is_overdue: false,
            spent: Units::ZERO,
            window_elapsed: Share::ALL,
        });
        let snapshot_after = |snapshot: &QuotaSnapshot<'a>| {
            let shedding = ShedState { carry, ..snapshot.shedding };
            let is_paced = snapshot.quota.pacing.as_ref().is_some_and(|pacing| pacing.is_paced(request.class));
            // In the worst case the pacing bucket is empty.
            let allowance = (is_paced && history == History::WorstCase).then(PacingAllowance::default);
            let plan = snapshot.plan.map(|plan| PlanSnapshot { allowance, ..plan });
            QuotaSnapshot { shedding, guard_state, plan, ..*snapshot }
        };
        self.quota_snapshots.iter().map(snapshot_after).collect()
    }

    /// Returns the verdict of the rules if the client were of `class`, and the quota usage after it. `observer` receives
    /// the result of each check.
    pub(super) fn decide(
        &self,
        class: ClassId,
        history: History,
        observer: &mut impl CheckObserver,
    ) -> (Verdict, Vec<QuotaSnapshot<'a>>) {
        let mut snapshots = self.quotas_for(class, history);
        let request = self.decision_request_for(class);
        let verdict = decide_observed(&request, self.bucket_state, &mut snapshots, self.now, observer);
        (verdict, snapshots)
    }

    pub(super) fn request_summary(&self) -> RequestSummary {
        let RequestAttributes { method, host, path, query, user_agent, .. } = &self.request;
        RequestSummary {
            time: rfc3339(self.now),
            decision: self
                .logged_decision()
                .map(|decision| String::from_utf8_lossy(&hexadecimal(decision.id)).into_owned()),
            method: method.to_string(),
            host: host.clone(),
            path: path.clone(),
            query: query.clone(),
            client: self.client.address.to_string(),
            user_agent: String::from_utf8_lossy(user_agent).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, CURL, NOON, PolicyFixture};
    use super::*;
    use std::time::Duration;

    #[test]
    fn assumed_usage_of_a_budget_is_of_the_limit_that_applies() {
        let policy = PolicyFixture::new(
            "quotas: { api: { per: class, limit: 3, limits: { bot: 5000 }, window: { sliding: 1h } } }\n\
             classes: [ { name: bot, when: { kind: declared_bot } }, { name: person, when: { kind: human } } ]\n\
             routes: [ { match: \"/item/*\", cost: { api: 1 } } ]\n",
        );
        for (used, expected) in [
            (AssumedUsage::Units(Units::from_whole(4995)), 4995),
            (AssumedUsage::Share(Share::ALL), 5000),
            (AssumedUsage::Share(Share::from_ratio(0.5)), 2500),
        ] {
            let input = policy.request(CURL, CLIENT, "/item/1", 0);
            for input in [input.clone().with_used(|_| Some(used)), input.override_used(|_| Some(used))] {
                assert_eq!(input.quota_snapshots[0].taken, Units::from_whole(expected), "{used:?}");
                let wait = input.quota_snapshots[0].resets_at.saturating_duration_since(NOON);
                assert_eq!(wait, Duration::from_secs(65 * 60), "at the latest, after the window and a part of it");
            }
        }
    }
}
