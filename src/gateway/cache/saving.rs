//! What stored responses are worth.

use serde::{Deserialize, Serialize};

/// What a stored response saves each time that it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::gateway) enum Saving {
    /// Work of the origin alone.
    #[default]
    Nothing,
    /// Units of a quota.
    Units,
}
