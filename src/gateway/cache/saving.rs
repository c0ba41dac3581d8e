//! What stored responses are worth, and the memory that each class of worth gets.

use serde::{Deserialize, Serialize};
use tidegate_policy::Units;

/// What a stored response saves each time that it is used: a share of a quota's limit, in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::gateway) struct Saving(u32);

/// Number of classes of responses by what a byte of them saves. Each is 16 times the one below, so that to displace a
/// response costs a sixteenth of what it saves at least. The lowest is for those that save nothing.
pub(super) const CLASSES: usize = 8;

/// Bits of the factor between two classes.
const CLASS_BITS: u32 = 4;
/// Bytes to which savings of responses are compared: a typical page.
const TYPICAL_PAGE: u64 = 16 * 1024;
/// Least size of a response in this comparison, in bytes.
const MIN_SIZE: u64 = 4 * 1024;

impl Saving {
    /// Of a response that saves work of the origin alone.
    pub(in crate::gateway) const NOTHING: Self = Self(0);

    /// Returns the saving of a response that costs `cost` of `limit`.
    pub(in crate::gateway) fn of(cost: Units, limit: Units) -> Self {
        if cost.is_zero() {
            return Self::NOTHING;
        }
        let billionths = u128::from(cost.milli()) * 1_000_000_000 / u128::from(limit.milli().max(1));
        Self(billionths.clamp(1, u32::MAX.into()) as u32)
    }

    /// Returns the class of a response that occupies `bytes`, below [`CLASSES`].
    pub(super) fn class(self, bytes: u64) -> usize {
        if self == Self::NOTHING {
            return 0;
        }
        let of_page = u64::from(self.0) * TYPICAL_PAGE / bytes.max(MIN_SIZE);
        let above_lowest = of_page.max(1).ilog2() / CLASS_BITS;
        (1 + above_lowest as usize).min(CLASSES - 1)
    }
}

/// Returns the bytes of `memory` that each class may occupy, where they occupy `used`: what more valuable ones leave, and an
/// equal part at least, which those that come first leave as soon as it is used.
pub(super) fn capacities(memory: u64, used: [u64; CLASSES]) -> [u64; CLASSES] {
    let part = memory / CLASSES as u64;
    std::array::from_fn(|class| {
        let above: u64 = used[class + 1..].iter().sum();
        let below: u64 = used[..class].iter().map(|&used| used.min(part)).sum();
        memory.saturating_sub(above + below).max(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn units(milli: u64) -> Units {
        Units::from_milli(milli)
    }

    #[test]
    fn class_follows_from_the_share_of_the_limit_that_a_byte_saves() {
        let class = |milli, limit, bytes| Saving::of(units(milli), units(limit)).class(bytes);
        assert_eq!(class(0, 1_000_000, 1), 0);
        assert_eq!(class(1, u64::MAX, u64::MAX), 1, "the least cost is worth more than none");
        assert_eq!(class(u64::MAX, 1, 1), CLASSES - 1);
        let page = |milli| class(milli, 1_000_000, TYPICAL_PAGE);
        assert_eq!([1, 16, 256, 4096, 65_536].map(page), [3, 4, 5, 6, 7]);
        assert_eq!(class(16_000, 16_000_000, TYPICAL_PAGE), page(1000), "of another quota");
        assert_eq!(class(16, 1_000_000, TYPICAL_PAGE * 16), page(1), "of a large page");
        assert_eq!(class(16, 1_000_000, 1), class(16, 1_000_000, MIN_SIZE));
    }

    proptest! {
        #[test]
        fn response_of_a_higher_class_saves_more(milli: u32, other: u32, bytes in MIN_SIZE..1 << 30) {
            let saving = |milli: u32| Saving::of(units(milli.into()), units(1_000_000));
            let class = |milli| saving(milli).class(bytes);
            prop_assert_eq!(class(milli) > class(other), saving(milli) > saving(other) && class(milli) != class(other));
        }

        #[test]
        fn classes_within_their_capacities_fit_into_memory(
            memory in 8..1u64 << 40,
            parts in proptest::array::uniform8(0..1u64 << 20),
            // Order in which the classes grow.
            order in Just((0..CLASSES).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut used = [0; CLASSES];
            for class in order {
                used[class] = parts[class] * (memory >> 20).max(1);
                // Classes above their capacities shrink, the lowest first, until all are within.
                for at in 0..CLASSES {
                    used[at] = used[at].min(capacities(memory, used)[at]);
                }
                let capacities = capacities(memory, used);
                prop_assert!(used.iter().sum::<u64>() <= memory, "{:?} of {}", used, memory);
                prop_assert!(capacities.iter().all(|&capacity| capacity >= memory / CLASSES as u64));
            }
        }

        #[test]
        fn lower_classes_take_no_more_than_their_parts_from_higher_ones(
            memory in 1024..1u64 << 40, used in proptest::array::uniform8(0..1u64 << 40), class in 1..CLASSES,
        ) {
            let mut others = used;
            others[..class].fill(u64::MAX >> 8);
            let left = capacities(memory, others)[class];
            let above: u64 = used[class + 1..].iter().sum();
            let of_lower = memory / CLASSES as u64 * class as u64;
            prop_assert!(left >= memory.saturating_sub(above + of_lower));
        }
    }
}
