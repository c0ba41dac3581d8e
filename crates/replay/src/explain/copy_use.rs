//! Use of a stored response for the explained request.

use crate::response_cache::{CacheRole, LoggedUse};
use tidegate_access_log::read::NativeFields;

/// Use of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyUse {
    /// None.
    None,
    /// It answers the request.
    Answer,
    /// It is sent in place of a refusal, except for one by a block, a bucket or maintenance.
    Replacement,
}

impl CopyUse {
    /// Returns the use that a log names.
    pub(super) fn from_log(native: &NativeFields<'_>) -> Self {
        match (native.has_copy, native.has_copy_of_refusal) {
            (true, _) => Self::Answer,
            (false, true) => Self::Replacement,
            (false, false) => Self::None,
        }
    }

    /// Returns the use in a replay.
    pub(super) fn from_role(role: CacheRole) -> Self {
        match role {
            CacheRole::Copy(_) | CacheRole::Logged(LoggedUse { is_free: true, .. }) => Self::Answer,
            CacheRole::Fetch { may_replace_refusal: true, .. }
            | CacheRole::Logged(LoggedUse { is_replacement: true, .. }) => Self::Replacement,
            CacheRole::Unused | CacheRole::Bypass | CacheRole::Fetch { .. } | CacheRole::Logged(_) => Self::None,
        }
    }
}
