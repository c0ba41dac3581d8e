//! Indexes of configured and built-in items.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl $name {
            /// Returns the id of the item at `index`, or the largest id if it is smaller.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                Self(<$number>::try_from(index).unwrap_or(<$number>::MAX))
            }

            /// Returns the index of the item.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// Index of a class in the settings.
    ClassId(u16);

    /// Index of a quota in the settings.
    QuotaId(u16);

    /// Index of a route in the settings.
    RouteId(u32);

    /// Index of a scope in the settings.
    ScopeId(u16);

    /// Index of an origin in the settings.
    OriginId(u16);

    /// Index of an address list in the settings.
    ListId(u8);

    /// Index of a bot in the built-in list.
    BotId(u16);

    /// Index of a crawler operator (`googlebot`, `bingbot`, ...) in the operator table.
    OperatorId(u16);
}

/// Class id by name that stays the same across reloads, unlike its index in the configuration.
pub type StableClassId = u16;
