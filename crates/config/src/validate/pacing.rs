//! Validates `pacing` of a quota and assigns the roles of its classes.

use super::diagnostics::Diagnostics;
use crate::raw::pacing::{Mode, Pacing as Raw};
use crate::setting_path::SettingPath;
use std::num::NonZeroU32;
use tidegate_policy::class::Class;
use tidegate_policy::pacing::{Pacing, PacingMode, PacingRole};
use tidegate_policy::quota::ClassTiers;
use tidegate_policy::tier::Share;
use tidegate_policy::window::Window;

/// Default share of the limit that a class may use ahead of its plan.
const DEFAULT_BURST: Share = Share::from_millionths(50_000);
/// Maximum weight of a class.
const MAX_WEIGHT: u32 = 1000;

/// Returns the pacing of the quota at `path`; `None` if it is off. `class_tiers` are the tiers of its classes.
pub(super) fn pacing(
    raw: &Raw,
    window: &Window,
    class_tiers: &[Option<ClassTiers>],
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Option<Pacing> {
    let Raw(keys) = raw;
    let weights = weights(raw, path, classes, report);
    let burst = keys.burst.as_ref().map_or(DEFAULT_BURST, |percent| percent.0);
    if burst == Share::NONE {
        report.error(&path.burst(), "found 0%", "write a share such as 5%");
    }
    let mode = match keys.mode {
        Mode::Off => return None,
        Mode::Even => PacingMode::Even,
        Mode::Learned => PacingMode::Learned,
    };
    if matches!(window, Window::Sliding { .. }) {
        report.error(
            path,
            "pacing requires a window with an end",
            "sliding windows have none: use tiers, or a calendar or fixed window",
        );
    }
    let role = |(tiers, weight): (&Option<ClassTiers>, &Option<NonZeroU32>)| match (tiers, weight) {
        (Some(tiers), _) if excludes(tiers) => PacingRole::Excluded,
        (_, Some(weight)) => PacingRole::Paced(*weight),
        (Some(_), None) => PacingRole::Paced(NonZeroU32::MIN),
        (None, None) => PacingRole::Unpaced,
    };
    let roles: Vec<PacingRole> = class_tiers.iter().zip(&weights).map(role).collect();
    let has_paced_class = roles.iter().any(|role| matches!(role, PacingRole::Paced(_)));
    if !has_paced_class && !report.has_error_at(&SettingPath::ROOT.classes()) && !report.has_error_at(path) {
        report.error(
            path,
            "no class to pace",
            "give a class tiers or a weight: { mode: learned, weights: { search: 1 } }",
        );
    }
    let priorities = classes.iter().map(|class| class.priority).collect();
    Some(Pacing { forecast: mode, burst_share: burst, roles, priorities, enforce: keys.enforce.unwrap_or(true) })
}

/// Returns the configured weight of each class; `None` for classes without one.
fn weights(raw: &Raw, path: &SettingPath, classes: &[Class], report: &mut Diagnostics) -> Vec<Option<NonZeroU32>> {
    let mut weights = vec![None; classes.len()];
    for (class, weight) in &raw.0.weights.0 {
        let path = path.weights().entry(class);
        if !(1..=MAX_WEIGHT).contains(weight) {
            report.error(&path, format!("found {weight}"), format!("write a number from 1 to {MAX_WEIGHT}"));
        }
        match classes.iter().position(|known| known.name == *class) {
            Some(index) => weights[index] = NonZeroU32::new(*weight),
            None => report.unknown_name(&path, "class", class, classes.iter().map(|class| class.name.as_str())),
        }
    }
    weights
}

/// Returns true if the tiers refuse everything from the first unit.
fn excludes(tiers: &ClassTiers) -> bool {
    tiers.enforce && tiers.tiers.shutoff_at().is_some_and(|mark| mark.is_zero())
}
