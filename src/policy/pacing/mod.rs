//! Spreads what remains of a quota over the time that remains, so that the afternoon looks like the morning.
//!
//! Classes are either served first (people: refused only when nothing is left) or paced. What those served first are
//! expected to ask for until the window ends is put aside; the rest is offered to the paced classes by their weights.
//! [`week`] and [`demand`] learn what a class asks for in each hour of the week, [`plan`] divides what remains, a [`bucket`] holds
//! what a class may take at this moment, and a [`pacer`] keeps all of this for one quota. Nothing is ever handed out
//! here: the limit itself is kept by others, whatever a plan says.

pub mod bucket;
pub mod demand;
pub mod pacer;
pub mod plan;
pub mod week;

#[cfg(test)]
mod tests;

use super::class::ClassId;
use super::tier::Share;
use super::units::Units;
use bucket::PacingAllowance;
use std::num::NonZeroU32;

/// How a quota is spread over its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// What is known of the hours to come.
    pub forecast: PacingMode,
    /// So much of the limit a class may be ahead of its plan.
    pub burst_share: Share,
    /// What the plan has for each class, by [`ClassId`].
    pub roles: Vec<Role>,
    /// Whose share stays when more is asked for than was expected, by [`ClassId`]: the higher, the longer.
    pub priorities: Vec<u8>,
    /// False: its refusals are counted and logged, not carried out, and tiers hold as if there were none.
    pub enforce: bool,
}

/// What is known of the hours to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacingMode {
    /// They will be like the hours before, on the whole.
    Even,
    /// Each will be like the same hour of days and weeks before.
    Learned,
}

impl PacingMode {
    /// Its name in YAML and in the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Learned => "learned",
        }
    }
}

/// What a plan has for a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// What it will ask for is put aside.
    #[default]
    Unpaced,
    /// It is offered a part of the rest, by this weight.
    Paced(NonZeroU32),
    /// Nothing: a tier shuts it out from the first unit on.
    Excluded,
}

/// What the plan has for one request.
#[derive(Clone, Copy, Debug)]
pub struct PlanSnapshot {
    /// More is taken than was planned until now, and than the burst allows.
    pub is_ahead: bool,
    /// What is put aside for those served first.
    pub earmarked: Units,
    /// What its class may take now, if it is paced.
    pub allowance: Option<PacingAllowance>,
}

impl Pacing {
    /// What the plan has for `class`.
    pub fn role(&self, class: ClassId) -> Role {
        self.roles.get(usize::from(class.0)).copied().unwrap_or_default()
    }

    /// True for a class that is refused what is beyond its plan.
    pub fn is_paced(&self, class: ClassId) -> bool {
        matches!(self.role(class), Role::Paced(_))
    }
}
