//! The set of quotas that refused a request.

/// Quotas of a request that refused it, by their position among the quotas of the route; one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedQuotas(u32);

impl RefusedQuotas {
    /// Maximum number of quotas of a route.
    pub const MAX_QUOTAS: usize = u32::BITS as usize;

    /// The empty set: no quota refused the request.
    pub const NONE: Self = Self(0);

    /// Creates the set of the quotas at `indexes`.
    pub fn from_indexes(indexes: impl IntoIterator<Item = usize>) -> Self {
        let mut quotas = Self::NONE;
        indexes.into_iter().for_each(|index| quotas.insert(index));
        quotas
    }

    /// Adds the quota at `index`, which is below [`Self::MAX_QUOTAS`]: the settings allow a route no more.
    #[inline]
    pub fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Returns true if the quota at `index` refused the request.
    #[inline]
    pub const fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// Returns true if no quota refused the request.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quota_of_a_route_has_its_own_bit() {
        for index in 0..RefusedQuotas::MAX_QUOTAS {
            let quotas = RefusedQuotas::from_indexes([index]);
            let contained: Vec<usize> =
                (0..RefusedQuotas::MAX_QUOTAS).filter(|&other| quotas.contains(other)).collect();
            assert_eq!(contained, [index]);
        }
        assert!(RefusedQuotas::NONE.is_empty() && !RefusedQuotas::from_indexes([31]).is_empty());
    }
}
