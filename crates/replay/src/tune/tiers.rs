//! The tiers of one class as a tunable value, in whole percents.

use super::changes::Changes;
use tidegate_policy::Units;
use tidegate_policy::tier::{Share, Tier};

/// Number of random numbers per sample.
pub(super) const DRAWS: usize = 5;

/// Returns tiers from numbers in [0, 1]: the number of tiers, the first and last threshold, the lowest and highest
/// shed.
pub(super) fn from_sample(draws: [f64; DRAWS], limit: Units) -> Vec<Tier> {
    let [steps, first, last, min_shed, max_shed] = draws;
    let steps = 1 + (steps * f64::from(MAX_SAMPLED_TIERS)) as u32;
    let between = |low: u32, high: u32, share: f64| low + (f64::from(high - low) * share) as u32;
    let first = between(0, 100 - steps, first);
    let last = between(first + steps - 1, 99, last);
    // A third of the samples end with refusing all requests.
    let max_shed = between(40, 130, max_shed).min(100);
    let min_shed = if steps == 1 { max_shed } else { between(1, max_shed - (steps - 1), min_shed) };
    let interpolate = |low: u32, high: u32, step: u32| low + (high - low) * step / (steps - 1).max(1);
    (0..steps).map(|step| tier(interpolate(first, last, step), interpolate(min_shed, max_shed, step), limit)).collect()
}

/// Returns tiers that refuse all requests.
pub(super) fn refuse_all() -> Vec<Tier> {
    vec![Tier { threshold: Units::ZERO, shed_share: Share::ALL }]
}

/// Returns tiers that refuse the smallest amount that tiers can express.
pub(super) fn minimal(limit: Units) -> Vec<Tier> {
    vec![tier(99, 1, limit)]
}

/// Returns tiers with a small difference: one threshold or shed ratio `step` percent higher or lower, all thresholds
/// shifted, one tier removed, or one inserted.
pub(super) fn neighbors(tiers: &[Tier], step: u32, limit: Units) -> Vec<Vec<Tier>> {
    let mut all = Vec::new();
    for index in 0..tiers.len() {
        all.extend(
            [-1, 1]
                .into_iter()
                .filter_map(|direction| with_threshold(tiers, index, direction * i64::from(step), limit)),
        );
        all.extend([-1, 1].into_iter().filter_map(|direction| with_shed(tiers, index, direction * i64::from(step))));
    }
    all.extend([-1, 1].into_iter().filter_map(|direction| with_all_shifted(tiers, direction * i64::from(step), limit)));
    if tiers.len() > 1 {
        all.extend((0..tiers.len()).map(|index| without_tier(tiers, index)));
    }
    if tiers.len() < MAX_TIERS {
        all.extend((0..=tiers.len()).filter_map(|index| with_inserted(tiers, index, limit)));
    }
    all
}

/// Returns tiers nearer to `present`, including `present`. For a tier whose shed ratio is restored, also returns
/// variants with a threshold up to `step` percent lower or higher, which may compensate.
pub(super) fn towards_present(tiers: &[Tier], present: &[Tier], step: u32, limit: Units) -> Vec<Vec<Tier>> {
    let mut all = vec![present.to_vec()];
    if tiers.len() == present.len() {
        for (index, present_tier) in present.iter().enumerate() {
            let [mut above, mut shed] = [tiers.to_vec(), tiers.to_vec()];
            (above[index].threshold, shed[index].shed_share) = (present_tier.threshold, present_tier.shed_share);
            let directions = if tiers[index].shed_share != present_tier.shed_share { &[-1, 1][..] } else { &[] };
            let compensated = directions
                .iter()
                .filter_map(|direction| with_threshold(&shed, index, direction * i64::from(step), limit));
            let compensated: Vec<Vec<Tier>> = compensated.collect();
            all.extend([above, shed].into_iter().chain(compensated).filter(|variant| is_increasing(variant)));
        }
    }
    all.retain(|variant| variant != tiers);
    all
}

/// Returns the difference from `present`. An added or removed tier counts as two values with the maximum distance.
pub(super) fn changes(tiers: &[Tier], present: &[Tier], limit: Units) -> Changes {
    let tier_changes = |(tier, present_tier): (&Tier, &Tier)| {
        let units = tier.threshold.milli().abs_diff(present_tier.threshold.milli());
        let share = u128::from(units) * u128::from(Share::ALL.millionths()) / u128::from(limit.milli().max(1));
        let above = u64::try_from(share).unwrap_or(u64::MAX);
        let shed = u64::from(tier.shed_share.millionths().abs_diff(present_tier.shed_share.millionths()));
        Changes {
            priority_inversions: 0,
            changed_values: u32::from(above > 0) + u32::from(shed > 0),
            distance: above + shed,
        }
    };
    let count_change = tiers.len().abs_diff(present.len()) as u32;
    let distance = u64::from(count_change) * 2 * u64::from(Share::ALL.millionths());
    let count_changes = Changes { priority_inversions: 0, changed_values: 2 * count_change, distance };
    tiers.iter().zip(present).map(tier_changes).fold(count_changes, Changes::add)
}

fn with_threshold(tiers: &[Tier], index: usize, percent: i64, limit: Units) -> Option<Vec<Tier>> {
    let step = percent_of(1, limit);
    let lowest = index.checked_sub(1).map_or(Units::ZERO, |before| tiers[before].threshold.saturating_add(step));
    let highest = tiers.get(index + 1).map_or(percent_of(99, limit), |next| next.threshold.saturating_sub(step));
    let shifted = shift_threshold(tiers[index].threshold, percent, limit);
    with_tier(tiers, index, (lowest <= highest).then(|| shifted.clamp(lowest, highest))?, tiers[index].shed_share)
}

fn with_shed(tiers: &[Tier], index: usize, percent: i64) -> Option<Vec<Tier>> {
    let shed = |index: usize| i64::from(tiers[index].shed_share.millionths());
    let lowest = index.checked_sub(1).map_or(PERCENT, |before| shed(before) + PERCENT);
    let highest = if index + 1 < tiers.len() { shed(index + 1) - PERCENT } else { 100 * PERCENT };
    let shifted = (lowest <= highest).then(|| (shed(index) + percent * PERCENT).clamp(lowest, highest))?;
    with_tier(tiers, index, tiers[index].threshold, Share::from_millionths(u32::try_from(shifted).ok()?))
}

fn with_tier(tiers: &[Tier], index: usize, above: Units, shed: Share) -> Option<Vec<Tier>> {
    let mut result = tiers.to_vec();
    result[index] = Tier { threshold: above, shed_share: shed };
    (result != tiers).then_some(result)
}

fn with_all_shifted(tiers: &[Tier], percent: i64, limit: Units) -> Option<Vec<Tier>> {
    let shifted: Vec<Tier> =
        tiers.iter().map(|tier| Tier { threshold: shift_threshold(tier.threshold, percent, limit), ..*tier }).collect();
    let fits = tiers.len() > 1 && is_increasing(&shifted) && shifted.iter().all(|tier| tier.threshold < limit);
    fits.then_some(shifted)
}

fn without_tier(tiers: &[Tier], index: usize) -> Vec<Tier> {
    let mut result = tiers.to_vec();
    result.remove(index);
    result
}

/// Inserts a tier before `index`, halfway between its neighbors.
fn with_inserted(tiers: &[Tier], index: usize, limit: Units) -> Option<Vec<Tier>> {
    let percent = |tier: &Tier| (as_percent(tier.threshold, limit), tier.shed_share.millionths() / PERCENT as u32);
    let before = index.checked_sub(1).map_or((0, 0), |before| percent(&tiers[before]));
    let after = tiers.get(index).map_or((100, 100), percent);
    let mut result = tiers.to_vec();
    result.insert(index, tier((before.0 + after.0) / 2, (before.1 + after.1) / 2, limit));
    (is_increasing(&result) && result[index].shed_share > Share::NONE).then_some(result)
}

/// Returns true if thresholds and shed ratios increase, as settings require.
fn is_increasing(tiers: &[Tier]) -> bool {
    tiers.windows(2).all(|pair| pair[0].threshold < pair[1].threshold && pair[0].shed_share < pair[1].shed_share)
}

fn shift_threshold(above: Units, percent: i64, limit: Units) -> Units {
    let by = percent_of(u32::try_from(percent.unsigned_abs()).unwrap_or(100), limit);
    if percent < 0 { above.saturating_sub(by) } else { above.saturating_add(by) }
}

fn tier(above: u32, shed: u32, limit: Units) -> Tier {
    Tier { threshold: percent_of(above, limit), shed_share: Share::from_millionths(shed * PERCENT as u32) }
}

fn percent_of(percent: u32, limit: Units) -> Units {
    Share::from_millionths(percent * PERCENT as u32).of_units(limit)
}

/// Returns `units` in percent of `limit`, rounded down.
fn as_percent(units: Units, limit: Units) -> u32 {
    let percent = u128::from(units.milli()) * 100 / u128::from(limit.milli().max(1));
    u32::try_from(percent).unwrap_or(100)
}

/// A percent, in millionths.
const PERCENT: i64 = 10_000;

/// Keeps tiers readable.
const MAX_TIERS: usize = 5;

/// Maximum number of tiers of a sample; neighbors add more only if they help.
const MAX_SAMPLED_TIERS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_valid_tier_set(tiers: &[Tier], limit: Units) -> bool {
        let sheds = tiers.iter().all(|tier| tier.shed_share > Share::NONE && tier.threshold < limit);
        !tiers.is_empty() && is_increasing(tiers) && sheds
    }

    proptest! {
        #[test]
        fn random_and_neighboring_tier_sets_are_valid(
            draws in proptest::array::uniform5(0.0..1.0_f64),
            step in 1..=16_u32,
            limit in 1..100_000_u64,
        ) {
            let limit = Units::from_whole(limit);
            let tiers = from_sample(draws, limit);
            prop_assert!(is_valid_tier_set(&tiers, limit), "{tiers:?}");
            for neighbor in neighbors(&tiers, step, limit) {
                prop_assert!(is_valid_tier_set(&neighbor, limit) && neighbor != tiers, "{tiers:?} {neighbor:?}");
            }
        }

        #[test]
        fn steps_back_are_valid_tier_sets(
            draws in proptest::array::uniform5(0.0..1.0_f64),
            present in proptest::array::uniform5(0.0..1.0_f64),
        ) {
            let limit = Units::from_whole(1000);
            let (tiers, present) = (from_sample(draws, limit), from_sample(present, limit));
            for nearer in towards_present(&tiers, &present, 16, limit) {
                prop_assert!(is_valid_tier_set(&nearer, limit));
            }
            prop_assert_eq!(changes(&present, &present, limit), Changes::default());
        }
    }
}
