//! Charts of the admitted share of each class's requests with a cost, by step.

use super::chart::{Chart, ChartLabels, Height};
use super::classes::ClassColors;
use super::html::Html;
use super::scale::Scale;
use super::steps::Steps;
use super::time::TimeAxis;
use crate::format::percent;
use crate::report::{ClassReport, MIN_REQUESTS_PER_HOUR, PolicyReport};
use crate::terminal::group_digits;

/// Writes a chart for each class that sent requests with a cost.
pub(super) fn write(
    out: &mut Html,
    policy: &PolicyReport,
    colors: &ClassColors<'_>,
    steps: &Steps,
    axis: TimeAxis<'_>,
) {
    for class in policy.classes.iter().filter(|class| class.costly > 0) {
        let mut chart = Chart::new(axis, Scale::shares());
        for (start, step) in steps.for_class(&class.name) {
            let Some(share) = step.admit_ratio() else { continue };
            let tooltip =
                format!("{}: {} of {}", axis.format_seconds(start), percent(share), group_digits(step.costly));
            let bounds = steps.step_bounds(start, axis);
            // A step that admitted nothing has a mark at the bottom; one without requests has none.
            chart.bar("served", bounds, [0.0, share.max(MIN_VISIBLE_SHARE)], &tooltip);
        }
        let description = description(class, policy, axis);
        out.raw("<figure class=\"").raw(colors.color(&class.name)).raw("\">\n<figcaption><strong>").text(&class.name);
        out.raw("</strong>: ").text(&description).raw("</figcaption>\n");
        let title = format!("Admitted share of {}", class.name);
        chart.write(out, Height::Low, &ChartLabels { title: &title, description }, |share, _| {
            format!("{:.0} %", share * 100.0)
        });
        out.raw("</figure>\n");
    }
}

/// Describes a class with its worst hour, as in the key figures; a bar may cover more than an hour.
fn description(class: &ClassReport, policy: &PolicyReport, axis: TimeAxis<'_>) -> String {
    let all = percent(class.costly_admitted as f64 / class.costly as f64);
    let hours = policy.hours.iter().filter_map(|hour| {
        let of_class = hour.classes.iter().find(|of_class| of_class.name == class.name)?;
        Some((of_class.admit_ratio.filter(|_| of_class.costly >= MIN_REQUESTS_PER_HOUR)?, hour.start))
    });
    match hours.min_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((worst, start)) if worst < 1.0 => {
            let (costly, worst, from) = (group_digits(class.costly), percent(worst), axis.format_time(start));
            format!("{all} of {costly} admitted; {worst} in the worst hour, from {from}.")
        }
        _ => format!("{all} of {} admitted.", group_digits(class.costly)),
    }
}

/// Minimum height of a visible bar, as a ratio.
const MIN_VISIBLE_SHARE: f64 = 0.015;
