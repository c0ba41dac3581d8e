//! Usage of a quota that a user assumes.

use tidegate_policy::Units;
use tidegate_policy::tier::Share;

/// Assumed usage of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssumedUsage {
    /// Used units.
    Units(Units),
    /// Share of the limit that applies to the request.
    Share(Share),
}

impl AssumedUsage {
    /// Returns the used units of `limit`.
    pub(super) fn of_limit(self, limit: Units) -> Units {
        match self {
            Self::Units(units) => units,
            Self::Share(share) => share.of_units(limit),
        }
    }
}
