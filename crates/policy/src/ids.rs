//! Indexes of configured and built-in items.

/// Index of a class in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

/// Index of a quota in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaId(pub u16);

/// Index of a scope in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u16);

/// Index of an address list in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(pub u8);

/// Index of a bot in the built-in list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BotId(pub u16);

/// Index of a crawler operator (`googlebot`, `bingbot`, ...) in the operator table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(pub u16);

/// Class id by name that stays the same across reloads, unlike its index in the configuration.
pub type StableClassId = u16;
