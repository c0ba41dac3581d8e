//! Pacing: distributes the remaining units of a quota over the remaining time, so that classes are served evenly.
//!
//! A class is either unpaced (humans: refused only when no units are left) or paced. The forecast demand of unpaced
//! classes until the end of the window is earmarked; the rest is offered to the paced classes by weight. [`week`] and
//! [`demand`] learn the demand of a class per hour of week, [`surge`] finds single operators that request several times as
//! much as usual, [`plan`] allocates the remaining units, a [`bucket`] meters
//! a class, and a [`pacer`] keeps the plan of one quota. Plans grant no units: the quota limit holds regardless.

pub mod bucket;
pub mod demand;
pub mod pacer;
pub mod plan;
mod recent_admission;
pub mod surge;
pub mod week;

#[cfg(test)]
mod tests;

use super::ids::ClassId;
use super::tier::Share;
use super::units::Units;
use bucket::PacingAllowance;
use std::num::NonZeroU32;

/// Pacing settings of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Forecast of future demand.
    pub forecast: PacingMode,
    /// Burst of a class ahead of its plan, as a share of the limit.
    pub burst_share: Share,
    /// Role of each class in the plan, by [`ClassId`].
    pub roles: Vec<PacingRole>,
    /// Priority of each class, by [`ClassId`]: classes with a higher value keep their admit share longer when demand
    /// exceeds the forecast.
    pub priorities: Vec<u8>,
    /// False for shadow mode: refusals are counted and logged, not enforced, and tiers apply as if there were no
    /// pacing.
    pub enforce: bool,
}

/// Forecast of future demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacingMode {
    /// Constant demand, like the average of the recent hours.
    Even,
    /// Demand by hour of week, learned from past days and weeks.
    Learned,
}

impl PacingMode {
    /// Returns the name in YAML and in the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Learned => "learned",
        }
    }
}

/// Role of a class in the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacingRole {
    /// Unpaced: its forecast demand is earmarked.
    #[default]
    Unpaced,
    /// Paced: it gets a part of the rest, by this weight.
    Paced(NonZeroU32),
    /// Excluded: a tier refuses it from the first unit on.
    Excluded,
}

/// State of the plan for one request.
#[derive(Clone, Copy, Debug)]
pub struct PlanSnapshot {
    /// True if usage exceeds the planned usage by more than the burst.
    pub is_ahead: bool,
    /// Units earmarked for unpaced classes.
    pub earmarked: Units,
    /// Usage up to which stored responses may be refreshed: what is beyond it, requests are expected to need.
    pub refresh_limit: Units,
    /// Current allowance of the request's class, if it is paced.
    pub allowance: Option<PacingAllowance>,
}

impl Pacing {
    /// Returns the role of `class`.
    pub fn role(&self, class: ClassId) -> PacingRole {
        self.roles.get(class.index()).copied().unwrap_or_default()
    }

    /// Returns true if requests of `class` beyond the plan are refused.
    pub fn is_paced(&self, class: ClassId) -> bool {
        matches!(self.role(class), PacingRole::Paced(_))
    }
}
