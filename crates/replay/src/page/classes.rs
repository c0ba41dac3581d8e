//! Classes of all policies, each with the same color in every chart.

use crate::report::Report;

/// Class names, in the order of the files.
pub(super) struct ClassColors<'a>(Vec<&'a str>);

impl<'a> ClassColors<'a> {
    pub(super) fn from_report(report: &'a Report) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for class in report.policies.iter().flat_map(|policy| &policy.classes) {
            if !names.contains(&class.name.as_str()) {
                names.push(&class.name);
            }
        }
        Self(names)
    }

    /// Returns the CSS class of a class's color. Colors repeat; charts also show the class name.
    pub(super) fn color(&self, name: &str) -> &'static str {
        COLORS[self.0.iter().position(|other| *other == name).unwrap_or(0) % COLORS.len()]
    }
}

const COLORS: [&str; 7] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"];
