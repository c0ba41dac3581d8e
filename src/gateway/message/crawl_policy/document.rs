//! The crawl-policy document, built from the rules and the quota state.

use crate::gateway::message::crawl_delay::AdvertisedDelays;
use serde::Serialize;
use std::iter;
use tidegate_access_log::rfc3339;
use tidegate_config::settings::{self, Settings};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::QuotaView;
use tidegate_policy::class::{Class, ClassMatcher};
use tidegate_policy::crawl_delay::find_bot_class;
use tidegate_policy::identity::KeySource;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::quota::Quota;
use tidegate_policy::terms::UsageTerms;
use tidegate_policy::{ClassId, ClientKind, OperatorId, ProofMethod, Timestamp, Units};

/// The whole document.
#[derive(Serialize)]
pub(in crate::gateway) struct PolicyDocument<'a> {
    pub(super) contact: Option<&'a str>,
    /// What pages may be used for, if robots.txt says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terms: Option<Terms>,
    /// URL of the license of the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) license: Option<&'a str>,
    /// Ways to verify crawlers, each with an explanation.
    pub(super) verification: Vec<Verification>,
    pub(super) operators: Vec<Operator<'a>>,
    pub(super) undeclared_or_unverified_bots: OtherBots<'a>,
    pub(super) classes: Vec<ClassEntry<'a>>,
}

/// Permissions by purpose; those of which nothing is said are left out.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Terms {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) search: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) training: Option<bool>,
}

/// A verification method of crawlers.
#[derive(Serialize)]
pub(super) struct Verification {
    pub(super) name: &'static str,
    pub(super) how: &'static str,
    #[serde(skip)]
    supports: fn(&PolicyContext<'_, '_>, OperatorId) -> bool,
}

/// A crawler operator.
#[derive(Serialize)]
pub(super) struct Operator<'a> {
    pub(super) name: &'a str,
    pub(super) crawlers: Vec<&'a str>,
    /// Names of the ways that can verify the operator.
    pub(super) verified_by: Vec<&'static str>,
    pub(super) class: Option<&'a str>,
    pub(super) crawl_delay_s: Option<u32>,
}

/// Rules for declared bots without verification.
#[derive(Serialize)]
pub(super) struct OtherBots<'a> {
    pub(super) class: Option<&'a str>,
    pub(super) crawl_delay_s: Option<u32>,
}

/// Current rules of a class.
#[derive(Serialize)]
pub(super) struct ClassEntry<'a> {
    pub(super) name: &'a str,
    pub(super) kinds: Vec<&'static str>,
    pub(super) operators: Vec<&'a str>,
    pub(super) user_agents: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) purposes: Vec<&'static str>,
    /// True if the class is blocked; then it has no bucket and no quotas.
    pub(super) blocked: bool,
    /// Crawl delay in seconds, if all of the class have the same. That of each operator is beside its name.
    pub(super) crawl_delay_s: Option<u32>,
    pub(super) bucket: Option<BucketEntry>,
    pub(super) quotas: Vec<QuotaEntry<'a>>,
}

/// Token bucket of a class, per client or shared.
#[derive(Serialize)]
pub(super) struct BucketEntry {
    pub(super) shared_by: &'static str,
    pub(super) capacity: u32,
    pub(super) fill: u32,
    pub(super) interval_s: f64,
    pub(super) counts: &'static str,
}

/// Access of a class to one quota. Ratios are of the limit of the quota, or of the requests of the class.
#[derive(Serialize)]
pub(super) struct QuotaEntry<'a> {
    pub(super) name: &'a str,
    /// Share of the quota limit that the class may still use, rounded to hundredths.
    pub(super) remaining: f64,
    /// Share of the class's requests that are refused now.
    pub(super) refused_ratio: f64,
    pub(super) tiers: Vec<TierEntry>,
    pub(super) window_ends: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) units: Option<UnitEntry>,
}

#[derive(Serialize)]
pub(super) struct TierEntry {
    pub(super) above: f64,
    pub(super) refused_ratio: f64,
}

#[derive(Serialize)]
pub(super) struct UnitEntry {
    pub(super) limit: f64,
    pub(super) remaining: f64,
}

/// All verification methods, one entry each.
const VERIFICATION_METHODS: [Verification; 3] = [
    Verification {
        name: "addresses",
        how: "The address is among those that the operator publishes for the crawler.",
        supports: |context, operator| context.operators.supports(operator, ProofMethod::Address),
    },
    Verification {
        name: "names",
        how: "The address has a name of the operator in DNS, and that name has the address.",
        supports: |context, operator| context.operators.supports(operator, ProofMethod::Dns),
    },
    Verification {
        name: "signatures",
        how: "The request is signed with a key that the operator publishes (Web Bot Auth).",
        supports: |context, operator| {
            let mut agents = context.operators.signature_agents();
            context.settings.verify.signatures.is_some() && agents.any(|(_, owner)| owner == operator)
        },
    },
];

impl<'a> PolicyDocument<'a> {
    /// Builds the document for the time `now`.
    pub(in crate::gateway) fn build(
        settings: &'a Settings,
        operators: &'a OperatorTable,
        quotas: &[QuotaView],
        crawl_delays: &AdvertisedDelays,
        now: Timestamp,
    ) -> Self {
        let context = PolicyContext { settings, operators, quotas, crawl_delays, now };
        Self {
            contact: context.config().contact.as_deref(),
            terms: terms(settings.robots.terms),
            license: settings.robots.license.as_deref(),
            verification: VERIFICATION_METHODS.into(),
            operators: context.operators(),
            undeclared_or_unverified_bots: context.other_bots(),
            classes: context.classes(),
        }
    }
}

fn terms(UsageTerms { search, agent, training }: UsageTerms) -> Option<Terms> {
    [search, agent, training].iter().any(Option::is_some).then_some(Terms { search, agent, training })
}

/// Inputs of the document.
struct PolicyContext<'a, 's> {
    settings: &'a Settings,
    operators: &'a OperatorTable,
    quotas: &'s [QuotaView],
    crawl_delays: &'s AdvertisedDelays,
    now: Timestamp,
}

impl<'a> PolicyContext<'a, '_> {
    fn config(&self) -> &'a settings::CrawlPolicy {
        self.settings.crawl_policy.as_ref().expect("served only if configured")
    }

    fn operators(&self) -> Vec<Operator<'a>> {
        let with_ids = (0..).map(OperatorId).zip(self.operators.names());
        let operators = with_ids.filter(|(id, _)| self.operators.is_built_in(*id)).map(|(id, name)| Operator {
            name,
            crawlers: self
                .operators
                .product_tokens()
                .filter(|(_, owner)| *owner == id)
                .map(|(token, _)| token)
                .collect(),
            verified_by: VERIFICATION_METHODS
                .iter()
                .filter(|method| (method.supports)(self, id))
                .map(|method| method.name)
                .collect(),
            class: self.class_of_operator(id).and_then(|class| self.class_name(class)),
            crawl_delay_s: self.crawl_delay_of(id),
        });
        operators.collect()
    }

    fn other_bots(&self) -> OtherBots<'a> {
        let class = self.class_of_others().and_then(|class| self.class_name(class));
        OtherBots { class, crawl_delay_s: self.crawl_delays.directives.default }
    }

    fn classes(&self) -> Vec<ClassEntry<'a>> {
        let with_ids = (0..).map(ClassId).zip(&self.settings.rules.classes);
        let public_classes =
            with_ids.filter(|(id, class)| self.is_public(&class.matcher) && self.accepts_bots(*id, &class.matcher));
        public_classes.map(|(id, class)| self.class(id, class)).collect()
    }

    fn class(&self, id: ClassId, class: &'a Class) -> ClassEntry<'a> {
        let blocked = class.blocked && class.enforce;
        let bucket = class.bucket.filter(|_| class.enforce && !blocked).map(|bucket| BucketEntry {
            shared_by: match class.key {
                KeySource::Address | KeySource::Credential(_) => "client",
                KeySource::Operator => "operator",
                KeySource::Class => "class",
            },
            capacity: bucket.capacity,
            fill: bucket.fill,
            interval_s: bucket.interval.as_secs_f64(),
            counts: if bucket.costed_only { "costed" } else { "all" },
        });
        let without_budgets = self.settings.rules.quotas.iter().filter(|quota| quota.budget.is_none());
        let quotas = without_budgets.zip(self.quotas).filter(|(quota, _)| quota.enforce && !blocked);
        ClassEntry {
            name: &class.name,
            kinds: class.matcher.kinds.iter().map(|kind| kind.name()).collect(),
            operators: class.matcher.operators.iter().filter_map(|id| self.public_name(*id)).collect(),
            user_agents: &class.matcher.user_agents,
            purposes: class.matcher.purposes.iter().map(|purpose| purpose.name()).collect(),
            blocked,
            crawl_delay_s: self.crawl_delay_of_class(id),
            bucket,
            quotas: quotas.map(|(quota, view)| self.quota(id, class, quota, view)).collect(),
        }
    }

    fn quota(&self, id: ClassId, class: &Class, quota: &'a Quota, view: &QuotaView) -> QuotaEntry<'a> {
        let tier_set = quota.tiers_for(id).filter(|_| class.enforce && quota.enforced_for(id));
        let ceiling = if tier_set.is_some() { quota.shutoff_level(id) } else { quota.limit };
        let is_closed = view.closed_until.is_some_and(|until| until > self.now);
        let left = match is_closed {
            true => Units::ZERO,
            false => ceiling.min(view.limit).saturating_sub(view.used).saturating_sub(view.reserved),
        };
        let of_class = view.by_class.get(id.index());
        let shed = of_class.filter(|_| tier_set.is_some()).map(|of_class| of_class.shed_share);
        let paced = of_class.filter(|_| class.enforce && quota.enforced_pacing().is_some());
        let unplanned = paced.and_then(|of_class| Some(of_class.plan.as_ref()?.admit_share?.complement()));
        let tier = |tier: &tidegate_policy::tier::Tier| TierEntry {
            above: ratio(tier.threshold, quota.limit),
            refused_ratio: tier.shed_share.ratio(),
        };
        QuotaEntry {
            name: &quota.name,
            remaining: ratio(left, view.limit),
            refused_ratio: if left.is_zero() { 1.0 } else { shed.max(unplanned).map_or(0.0, |shed| shed.ratio()) },
            tiers: tier_set.map_or_else(Vec::new, |tier_set| tier_set.tiers().iter().map(tier).collect()),
            window_ends: rfc3339(view.window_end),
            units: self.config().show_units.then(|| UnitEntry { limit: view.limit.as_f64(), remaining: left.as_f64() }),
        }
    }

    /// Returns the name of an operator, if it is public that the gateway recognizes it.
    fn public_name(&self, operator: OperatorId) -> Option<&'a str> {
        self.operators.is_built_in(operator).then(|| self.operators.name(operator))
    }

    /// Returns true for classes that match bots by public criteria. Other classes, and operators that only this site
    /// has, are private agreements with a client.
    fn is_public(&self, matcher: &ClassMatcher) -> bool {
        let has_only_private_operators =
            !matcher.operators.is_empty() && matcher.operators.iter().all(|id| self.public_name(*id).is_none());
        matcher.depends_on_crawler_only() && !has_only_private_operators && matcher.kinds != [ClientKind::Human]
    }

    /// Returns true if a bot can be in the class, given the order of classes. A match by user agent counts as possible.
    fn accepts_bots(&self, class: ClassId, matcher: &ClassMatcher) -> bool {
        let purposes = || iter::once(None).chain(Purpose::ALL.map(Some));
        let accepts = |kind| {
            purposes().any(|purpose| find_bot_class(&self.settings.rules.classes, kind, None, purpose) == Some(class))
        };
        let mut operators = (0..).map(OperatorId).take(self.operators.names().count());
        !matcher.user_agents.is_empty()
            || ClientKind::ALL.into_iter().filter(|kind| *kind != ClientKind::Human).any(accepts)
            || operators.any(|operator| self.class_of_operator(operator) == Some(class))
    }

    fn class_of_operator(&self, operator: OperatorId) -> Option<ClassId> {
        find_bot_class(
            &self.settings.rules.classes,
            ClientKind::VerifiedBot,
            Some(operator),
            self.operators.purpose(operator),
        )
    }

    fn class_of_others(&self) -> Option<ClassId> {
        find_bot_class(&self.settings.rules.classes, ClientKind::DeclaredBot, None, None)
    }

    fn class_name(&self, class: ClassId) -> Option<&'a str> {
        self.settings.rules.classes.get(class.index()).map(|class| class.name.as_str())
    }

    fn crawl_delay_of(&self, operator: OperatorId) -> Option<u32> {
        self.crawl_delays.per_operator.iter().find(|(id, _)| *id == operator).map(|(_, seconds)| *seconds)
    }

    fn crawl_delay_of_class(&self, class: ClassId) -> Option<u32> {
        let ids = (0..).map(OperatorId).take(self.operators.names().count());
        let of_operators =
            ids.filter(|id| self.class_of_operator(*id) == Some(class)).map(|id| self.crawl_delay_of(id));
        let of_others = (self.class_of_others() == Some(class)).then_some(self.crawl_delays.directives.default);
        let mut all = of_operators.chain(of_others);
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }
}

/// Returns `part / whole` in whole hundredths, so that the total cannot be derived from it.
fn ratio(part: Units, whole: Units) -> f64 {
    let hundredths = u128::from(part.milli()) * 100 / u128::from(whole.milli().max(1));
    hundredths as f64 / 100.0
}
