//! Key `pacing` of a quota: a word, or keys.

use crate::scalars::Percent;
use crate::section::{any, section, stored_as_written};
use crate::serde_forms::{NamedMap, word_or_keys};
use crate::setting_path::SettingPath;
use crate::validate::diagnostics::Diagnostics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use tidegate_policy::class::Class;
use tidegate_policy::pacing::{self as policy, PacingMode, PacingRole};
use tidegate_policy::quota::ClassTiers;
use tidegate_policy::tier::Share;
use tidegate_policy::window::Window;

/// Maximum weight of a class.
const MAX_WEIGHT: u32 = 1000;

/// Pacing of a quota.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacing(PacingOptions);

section! {
    /// Keys of pacing.
    pub(crate) struct PacingOptions {
        /// Forecast of demand. off: no pacing. even: equal units per hour. learned: by the demand of each class in each
        /// hour of the week, refused requests included, so that the admit share is the same in every hour; it needs a
        /// day to learn and is even until then.
        mode: Mode = Mode::Off => Mode, any;
        /// Share of the limit that a class may use ahead of its plan, more than 0%. A class stays within this share of
        /// the limit of its allocation by weight.
        burst: Share = Share::from_millionths(50_000) => Percent, more_than_zero;
        /// Weight of a class, 1 to 1000, by class, if the units do not suffice for all paced classes. A class without
        /// tiers is paced if it has a weight. Default 1 each.
        weights: NamedMap<u32>;
        /// false: shadow mode. Refusals by the plan are counted and logged only, and the tiers hold as without pacing.
        enforce: bool = true => bool, any;
    }
}

fn more_than_zero(Percent(share): &Percent, _: Option<&Percent>) -> Option<String> {
    (*share == Share::NONE).then(|| "found 0%; write a share such as 5%".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Off,
    Even,
    Learned,
}

stored_as_written!(Mode);

word_or_keys! {
    Pacing, "a pacing mode; use off, even, learned or { mode: learned, burst: 5% }":
    "off" => Self(PacingOptions { mode: Mode::Off, ..PacingOptions::default() }),
    "even" => Self(PacingOptions { mode: Mode::Even, ..PacingOptions::default() }),
    "learned" => Self(PacingOptions { mode: Mode::Learned, ..PacingOptions::default() }),
    PacingOptions => Self
}

/// Returns the pacing of the quota at `path`; `None` if it is off. `class_tiers` are the tiers of its classes.
pub(super) fn pacing(
    Pacing(keys): &Pacing,
    window: &Window,
    class_tiers: &[Option<ClassTiers>],
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Option<policy::Pacing> {
    let weights = weights(&keys.weights, path, classes, report);
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
    Some(policy::Pacing { forecast: mode, burst_share: keys.burst, roles, priorities, enforce: keys.enforce })
}

/// Returns the configured weight of each class; `None` for classes without one.
fn weights(
    by_name: &NamedMap<u32>,
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> Vec<Option<NonZeroU32>> {
    let mut weights = vec![None; classes.len()];
    for (class, weight) in &by_name.0 {
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
