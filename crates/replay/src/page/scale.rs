//! Quantity axis from 0 to a round number, with round marks.

use crate::format::thousandths;

/// A quantity axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// Quantity at its end.
    pub(super) max: f64,
    /// Difference between two marks.
    step: f64,
}

impl Scale {
    /// Creates an axis from 0 to the first mark at or above `max`, with about `step_count` steps.
    pub(super) fn up_to(max: f64, step_count: f64) -> Self {
        let step = if max > 0.0 { round_step(max / step_count) } else { 1.0 };
        let steps_to_max = (max / step - ROUNDING_TOLERANCE).ceil().max(1.0);
        Self { max: steps_to_max * step, step }
    }

    /// Creates an axis for shares, from 0 to 1, with a mark at one half.
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
        let quantities = (0..=count).map(|index| f64::from(index) * self.step);
        quantities.map(|quantity| (quantity, thousandths((quantity * 1000.0).round() as u64))).collect()
    }
}

/// Returns the smallest round step that is at least `min_step`.
fn round_step(min_step: f64) -> f64 {
    let min_step = min_step.max(f64::MIN_POSITIVE);
    let magnitude = 10_f64.powf(min_step.log10().floor());
    // Steps above 1 have no fraction, because most quantities are whole numbers.
    let is_allowed = |step: &f64| magnitude < 1.0 || step.fract() == 0.0;
    let mut steps = STEP_FACTORS.into_iter().map(|factor| factor * magnitude).filter(is_allowed);
    steps.find(|step| *step >= min_step * (1.0 - ROUNDING_TOLERANCE)).unwrap_or(min_step)
}

/// Round steps, as multiples of a power of ten: enough of them to leave little space above the highest value.
const STEP_FACTORS: [f64; 9] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, 10.0];

/// Excess over a mark that is ignored, as a fraction of a step, so that a rounding error adds no step.
const ROUNDING_TOLERANCE: f64 = 0.001;

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
