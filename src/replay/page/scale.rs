//! Quantity axis from 0 to a round number, with round marks.

use crate::replay::summary::amount;

/// A quantity axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// Quantity at its end.
    pub(super) max: f64,
    step: f64,
}

impl Scale {
    /// Creates an axis up to at least `max`, with about `steps` steps.
    pub(super) fn up_to(max: f64, steps: f64) -> Self {
        let rough = (max / steps).max(f64::MIN_POSITIVE);
        let magnitude = 10_f64.powf(rough.log10().floor());
        // A quantity that is always a whole number has only whole marks.
        let is_whole = |step: &f64| magnitude < 1.0 || step.fract() == 0.0;
        let mut steps = ROUND_STEPS.into_iter().map(|round| round * magnitude).filter(is_whole);
        let step = steps.find(|step| *step >= rough * 0.999);
        let step = if max > 0.0 { step.unwrap_or(rough) } else { 1.0 };
        Self { max: (max / step - 0.001).ceil().max(1.0) * step, step }
    }

    /// Creates an axis for shares from 0 to 1.
    pub(super) const fn shares() -> Self {
        Self { max: 1.0, step: 0.5 }
    }

    /// Returns the position of a quantity, from 0 to 1.
    pub(super) fn position(self, quantity: f64) -> f64 {
        (quantity / self.max).clamp(0.0, 1.0)
    }

    /// Returns the marks with their labels, from the bottom.
    pub(super) fn ticks(self) -> Vec<(f64, String)> {
        let count = (self.max / self.step).round() as u32;
        (0..=count).map(|mark| f64::from(mark) * self.step).map(|mark| (mark, amount(mark))).collect()
    }
}

/// Step sizes, chosen to leave little space above the highest value.
const ROUND_STEPS: [f64; 9] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, 10.0];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn axis_marks_are_round_numbers() {
        let marks = |max| Scale::up_to(max, 4.0).ticks().into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(marks(10_000.0), ["0", "2,500", "5,000", "7,500", "10,000"]);
        assert_eq!(marks(43_000.0), ["0", "15,000", "30,000", "45,000"]);
        assert_eq!(marks(4000.0), ["0", "1,000", "2,000", "3,000", "4,000"]);
        assert_eq!(marks(7.0), ["0", "2", "4", "6", "8"]);
        assert_eq!(marks(0.0), ["0", "1"]);
    }

    proptest! {
        #[test]
        fn scale_fits_every_value_with_few_marks(max in 0.0..1e12_f64) {
            let scale = Scale::up_to(max, 4.0);
            prop_assert!(scale.max >= max * 0.999);
            prop_assert!(scale.ticks().len() <= 6, "{:?}", scale.ticks());
        }
    }
}
