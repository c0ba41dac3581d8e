//! Pacing: which classes a plan is made for, and what it may assume.

use super::diagnostics::Diagnostics;
use crate::config::raw::pacing::{Mode, Pacing as Raw};
use crate::policy::class::Class;
use crate::policy::pacing::{Pacing, PacingMode, Role};
use crate::policy::quota::ClassTiers;
use crate::policy::tier::Share;
use crate::policy::window::Window;
use std::num::NonZeroU32;

/// So much a class may be ahead of its plan.
const BURST: Share = Share::from_millionths(50_000);
/// Beyond this a class may as well be left out.
const MAX_WEIGHT: u32 = 1000;

/// The pacing of a quota at `path`, whose classes have these `ladders`.
pub(super) fn pacing(
    raw: &Raw,
    window: &Window,
    ladders: &[Option<ClassTiers>],
    path: &str,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Option<Pacing> {
    let Raw(keys) = raw;
    let weights = weights(raw, path, classes, report);
    let burst = keys.burst.as_ref().map_or(BURST, |percent| percent.0);
    if burst == Share::NONE {
        report.error(&format!("{path}.burst"), "found 0%", "write how far a class may run ahead, such as 5%");
    }
    let forecast = match keys.mode {
        Mode::Off => return None,
        Mode::Even => PacingMode::Even,
        Mode::Learned => PacingMode::Learned,
    };
    if matches!(window, Window::Sliding { .. }) {
        report.error(
            path,
            "a sliding window never ends, so there is nothing to last until",
            "use tiers, or a calendar or fixed window",
        );
    }
    let role = |(ladder, weight): (&Option<ClassTiers>, &Option<NonZeroU32>)| match (ladder, weight) {
        (Some(of_class), _) if excludes(of_class) => Role::Excluded,
        (_, Some(weight)) => Role::Paced(*weight),
        (Some(_), None) => Role::Paced(NonZeroU32::MIN),
        (None, None) => Role::Unpaced,
    };
    let roles: Vec<Role> = ladders.iter().zip(&weights).map(role).collect();
    let paces_somebody = roles.iter().any(|role| matches!(role, Role::Paced(_)));
    if !paces_somebody && !report.has_error_at("classes") && !report.has_error_at(path) {
        report.error(
            path,
            "there is nobody to pace: every class is served first, or not at all",
            "give a class tiers, or a weight: { mode: learned, weights: { search: 1 } }",
        );
    }
    let priorities = classes.iter().map(|class| class.priority).collect();
    Some(Pacing { forecast, burst_share: burst, roles, priorities, enforce: keys.enforce.unwrap_or(true) })
}

/// The weight of each class, as far as one is written.
fn weights(raw: &Raw, path: &str, classes: &[Class], report: &mut Diagnostics) -> Vec<Option<NonZeroU32>> {
    let mut weights = vec![None; classes.len()];
    for (class, weight) in &raw.0.weights.0 {
        let path = format!("{path}.weights.{class}");
        if !(1..=MAX_WEIGHT).contains(weight) {
            report.error(&path, format!("found {weight}"), format!("write a number from 1 to {MAX_WEIGHT}"));
        }
        match classes.iter().position(|known| known.name == *class) {
            Some(place) => weights[place] = NonZeroU32::new(*weight),
            None => report.unknown(&path, "class", class, classes.iter().map(|class| class.name.as_str())),
        }
    }
    weights
}

/// True for tiers that refuse everything from the first unit on.
fn excludes(of_class: &ClassTiers) -> bool {
    of_class.enforce && of_class.ladder.shutoff_at().is_some_and(|mark| mark.is_zero())
}
