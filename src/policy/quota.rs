//! A quota as the settings mean it: how much, for how long, and what of it each class may use.

use super::class::ClassId;
use super::pacing::Pacing;
use super::tier::TierSet;
use super::units::Units;
use super::window::Window;

/// Units that may be spent in a window.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Its name in YAML, metrics, headers and logs.
    pub name: String,
    /// Units that were bought for each window.
    pub limit: Units,
    /// How its windows follow each other.
    pub window: Window,
    /// False: its refusals are counted and logged, not carried out, and it may be overspent.
    pub enforce: bool,
    /// The response header in which the origin says what an answer really cost.
    pub cost_header: Option<http::HeaderName>,
    /// An answer that the origin had cached cost nothing.
    pub free_when_cached: bool,
    /// How the origin tells where its own count stands, if it does.
    pub sync_from: Option<SyncFrom>,
    /// How what remains is spread over the time that remains, if it is.
    pub pacing: Option<Pacing>,
    /// The ladder of each class, by [`ClassId`]; a class without one is refused only when nothing is left.
    pub class_tiers: Vec<Option<ClassTiers>>,
}

/// How an origin tells, with its answers, where its own count of a quota stands.
#[derive(Clone, Debug)]
pub struct SyncFrom {
    /// The response header that says how many units are left.
    pub remaining_header: Option<http::HeaderName>,
    /// The response header that says when they are renewed.
    pub reset_header: Option<http::HeaderName>,
    /// Which answers say that nothing is left.
    pub exhausted: Option<ExhaustedRule>,
}

/// Which answers say that nothing is left.
#[derive(Clone, Debug)]
pub struct ExhaustedRule {
    /// Those with one of these statuses ...
    pub statuses: Vec<u16>,
    /// ... and, if given, with this text in a header's value or near the beginning of the body.
    pub contains: Option<String>,
}

/// One class's tiers in one quota.
#[derive(Clone, Debug)]
pub struct ClassTiers {
    /// The tiers.
    pub ladder: TierSet,
    /// False: its refusals are counted and logged, not carried out.
    pub enforce: bool,
}

impl Quota {
    /// The ladder of `class`, if it has one.
    pub fn tiers_for(&self, class: ClassId) -> Option<&TierSet> {
        self.class_tiers(class).map(|of_class| &of_class.ladder)
    }

    /// True when a refusal by tier is carried out for `class`.
    pub fn enforced_for(&self, class: ClassId) -> bool {
        self.enforce && self.class_tiers(class).is_none_or(|of_class| of_class.enforce)
    }

    /// The pacing, where it is carried out.
    pub fn enforced_pacing(&self) -> Option<&Pacing> {
        self.pacing.as_ref().filter(|pacing| self.enforce && pacing.enforce)
    }

    /// What tiers count of what is `taken`: nothing as long as the quota is not ahead of its plan, so that only those hold
    /// that begin with the first unit.
    pub fn used_for_tiers(&self, taken: Units, is_ahead: Option<bool>) -> Units {
        match (self.enforced_pacing(), is_ahead) {
            (Some(_), Some(false)) => Units::ZERO,
            _ => taken,
        }
    }

    /// From this much taken on, nothing of `class` is let through. Where a plan lets tiers rest there is no such mark,
    /// unless it is the first unit.
    pub fn shutoff_level(&self, class: ClassId) -> Units {
        let paced = self.enforced_pacing().is_some_and(|pacing| pacing.is_paced(class));
        let enforced = self.class_tiers(class).filter(|_| self.enforced_for(class) && !paced);
        enforced.and_then(|of_class| of_class.ladder.shutoff_at()).map_or(self.limit, |mark| mark.min(self.limit))
    }

    fn class_tiers(&self, class: ClassId) -> Option<&ClassTiers> {
        self.class_tiers.get(usize::from(class.0)).and_then(Option::as_ref)
    }
}
