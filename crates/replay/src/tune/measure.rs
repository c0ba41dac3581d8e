//! Measures of a replay that goals refer to.

use crate::report::{ClassReport, HourReport, MIN_REQUESTS_PER_HOUR, PolicyReport, QuotaReport, WindowReport};
use std::fmt;
use tidegate_policy::Units;

/// A measure of a class or quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Kind of the measure.
    pub kind: MeasureKind,
    /// Name of the class or quota.
    pub name: String,
    /// True if the measure is in percent, false for a count or units.
    pub is_share: bool,
}

/// Kind of a measure. Measures of a class count only requests with a cost, because tiers never refuse others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureKind {
    /// Refused requests of a class.
    Refused,
    /// Admitted requests of a class.
    Admitted,
    /// Admit ratio in the worst hour of a class, relative to the best hour.
    Evenness,
    /// Units left of a quota at the end of its windows, on average.
    Unused,
    /// Units used of a quota in its windows, on average.
    Used,
}

impl Measure {
    /// Returns the value, in percent if it is a share; `None` if there was nothing to measure.
    pub(super) fn value(&self, report: &PolicyReport) -> Option<f64> {
        let class = || report.classes.iter().find(|class| class.name == self.name);
        let quota = || report.quotas.iter().find(|quota| quota.name == self.name);
        match self.kind {
            MeasureKind::Refused => self.count_or_percent(class()?, |class| class.costly - class.costly_admitted),
            MeasureKind::Admitted => self.count_or_percent(class()?, |class| class.costly_admitted),
            MeasureKind::Evenness => evenness(&report.hours, &self.name),
            MeasureKind::Unused => self.mean_per_window(quota()?, |window| window.left),
            MeasureKind::Used => self.mean_per_window(quota()?, |window| window.used),
        }
    }

    fn count_or_percent(&self, class: &ClassReport, count: impl Fn(&ClassReport) -> u64) -> Option<f64> {
        match self.is_share {
            true => (class.costly > 0).then(|| 100.0 * count(class) as f64 / class.costly as f64),
            false => Some(count(class) as f64),
        }
    }

    fn mean_per_window(&self, quota: &QuotaReport, units: impl Fn(&WindowReport) -> Units) -> Option<f64> {
        let windows = complete_windows(quota);
        if windows.is_empty() {
            return None;
        }
        let mean = windows.iter().map(|window| units(window).as_f64()).sum::<f64>() / windows.len() as f64;
        let scale = if self.is_share { 100.0 / quota.limit.as_f64() } else { 1.0 };
        Some(mean * scale)
    }
}

/// Returns the windows that the log covers, or all windows if it covers none.
pub(super) fn complete_windows(quota: &QuotaReport) -> Vec<&WindowReport> {
    let covered: Vec<&WindowReport> = quota.windows.iter().filter(|window| window.whole).collect();
    if covered.is_empty() { quota.windows.iter().collect() } else { covered }
}

/// Returns the evenness of a class in percent; `None` if no hour with enough requests has an admitted one.
fn evenness(hours: &[HourReport], class_name: &str) -> Option<f64> {
    let admit_ratio = |hour: &HourReport| {
        let class = hour.classes.iter().find(|class| class.name == class_name)?;
        class.admit_ratio.filter(|_| class.costly >= MIN_REQUESTS_PER_HOUR)
    };
    let ratios: Vec<f64> = hours.iter().filter_map(admit_ratio).collect();
    let worst = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let best = ratios.iter().copied().fold(0.0, f64::max);
    (best > 0.0).then(|| 100.0 * worst / best)
}

impl MeasureKind {
    /// All kinds: those of a class, then those of a quota.
    pub const ALL: [Self; 5] = [Self::Refused, Self::Admitted, Self::Evenness, Self::Unused, Self::Used];

    /// Returns the name used in goals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
            Self::Evenness => "evenness",
            Self::Unused => "unused",
            Self::Used => "used",
        }
    }

    /// Returns the unit of a measure that is not a share.
    pub const fn unit(self) -> &'static str {
        if self.is_per_class() { "requests" } else { "units" }
    }

    /// Returns true for measures of a class, false for those of a quota.
    pub const fn is_per_class(self) -> bool {
        matches!(self, Self::Refused | Self::Admitted | Self::Evenness)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.name, self.kind.name())
    }
}
