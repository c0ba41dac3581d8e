//! Use of a stored response for the explained request.

use crate::response_cache::{CacheRole, LoggedUse};
use tidegate_access_log::read::NativeFields;
use tidegate_http_cache::CacheResult;

/// Use of a stored response, with where it is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyUse {
    /// Not known: the request is hypothetical.
    Unknown,
    /// According to the log.
    Logged(CopyEffect),
    /// According to the simulated cache of a replay.
    Simulated(CopyEffect),
}

/// Effect of a stored response on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyEffect {
    /// None: the cache was not asked.
    None,
    /// It answers the request.
    Answer,
    /// It is sent in place of a refusal, except for one by a block, a bucket or maintenance.
    Replacement,
    /// The request is forwarded, with this result of the cache.
    Forwarded(CacheResult),
}

impl CopyUse {
    /// Returns the use that a log names.
    pub(super) fn from_log(native: &NativeFields<'_>) -> Self {
        Self::Logged(match (native.has_copy, native.has_copy_of_refusal) {
            (true, _) => CopyEffect::Answer,
            (false, true) => CopyEffect::Replacement,
            (false, false) => native.cache.map_or(CopyEffect::None, CopyEffect::Forwarded),
        })
    }

    /// Returns the use in a replay.
    pub(super) fn from_role(role: CacheRole) -> Self {
        match role {
            CacheRole::Logged(LoggedUse { is_free: true, .. }) => Self::Logged(CopyEffect::Answer),
            CacheRole::Logged(LoggedUse { is_replacement: true, .. }) => Self::Logged(CopyEffect::Replacement),
            CacheRole::Logged(LoggedUse { result, .. }) => Self::Logged(CopyEffect::Forwarded(result)),
            CacheRole::Copy(_) => Self::Simulated(CopyEffect::Answer),
            CacheRole::Fetch { may_replace_refusal: true, .. } => Self::Simulated(CopyEffect::Replacement),
            CacheRole::Fetch { .. } => Self::Simulated(CopyEffect::Forwarded(CacheResult::Miss)),
            CacheRole::Bypass => Self::Simulated(CopyEffect::Forwarded(CacheResult::Bypass)),
            CacheRole::Unused => Self::Simulated(CopyEffect::None),
        }
    }

    /// Returns the effect; none if it is unknown.
    pub(super) const fn effect(self) -> CopyEffect {
        match self {
            Self::Unknown => CopyEffect::None,
            Self::Logged(effect) | Self::Simulated(effect) => effect,
        }
    }
}
