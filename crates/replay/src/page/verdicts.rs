//! Charts of admitted and refused requests of each class, by step.

use super::chart::{Chart, ChartLabels, Height};
use super::classes::ClassColors;
use super::html::Html;
use super::scale::Scale;
use super::steps::Steps;
use super::table;
use super::time::{TimeAxis, format_length};
use crate::format::percent;
use crate::report::{ClassReport, PolicyReport};
use crate::terminal::{Align, group_digits};
use std::collections::BTreeMap;

/// Writes a chart for each class with requests; `index` is the index of the policy in `steps`.
pub(super) fn write(
    out: &mut Html,
    policy: &PolicyReport,
    colors: &ClassColors<'_>,
    steps: &[Steps],
    axis: TimeAxis<'_>,
    index: usize,
) {
    let policy_steps = &steps[index];
    out.raw("<p class=\"note\">Each bar is ").text(format_length(policy_steps.length));
    out.raw("; each class has its own scale. Solid: admitted. Outlined: refused.</p>\n");
    for class in policy.classes.iter().filter(|class| class.requests > 0) {
        // Both policies use the same scale.
        let max_requests =
            steps.iter().flat_map(|steps| steps.for_class(&class.name)).map(|(_, step)| step.admitted + step.refused);
        let mut chart = Chart::new(axis, Scale::up_to(max_requests.max().unwrap_or(0) as f64, 2.0));
        for (start, step) in policy_steps.for_class(&class.name) {
            let (admitted, all) = (step.admitted as f64, (step.admitted + step.refused) as f64);
            let (admitted_count, refused_count) = (group_digits(step.admitted), group_digits(step.refused));
            let tooltip = format!("{}: {admitted_count} admitted, {refused_count} refused", axis.format_seconds(start));
            let bounds = policy_steps.step_bounds(start, axis);
            if step.admitted > 0 {
                chart.bar("admitted", bounds, [0.0, admitted], &tooltip);
            }
            if step.refused > 0 {
                chart.bar("refused", bounds, [admitted, all], &tooltip);
            }
        }
        let description = description(class);
        out.raw("<figure class=\"").raw(colors.color(&class.name)).raw("\">\n<figcaption><strong>").text(&class.name);
        out.raw("</strong>: ").text(&description).raw("</figcaption>\n");
        let title = format!("Verdicts on {}", class.name);
        chart.write(out, Height::Low, &ChartLabels { title: &title, description }, |_, label| label);
        out.raw("</figure>\n");
    }
    write_table(out, policy, policy_steps, axis);
}

fn description(class: &ClassReport) -> String {
    let refused: u64 = class.refused.values().sum();
    let shadow: u64 = class.shadow.values().sum();
    let shadow_text = match shadow {
        0 => String::new(),
        shadow => format!("; {} would have been refused, were shadow mode off", group_digits(shadow)),
    };
    match refused {
        0 => format!("{} requests, none refused{shadow_text}.", group_digits(class.requests)),
        _ => format!(
            "{} requests, {} refused ({}){shadow_text}.",
            group_digits(class.requests),
            group_digits(refused),
            reasons(&class.refused)
        ),
    }
}

/// Formats reasons like `1,234 by tier, 5 by quota`.
fn reasons(refused: &BTreeMap<&'static str, u64>) -> String {
    let parts: Vec<String> =
        refused.iter().map(|(reason, count)| format!("{} by {reason}", group_digits(*count))).collect();
    parts.join(", ")
}

fn write_table(out: &mut Html, policy: &PolicyReport, steps: &Steps, axis: TimeAxis<'_>) {
    const HEAD: [(&str, Align); 5] = [
        ("From", Align::Left),
        ("class", Align::Left),
        ("admitted", Align::Right),
        ("refused", Align::Right),
        ("admitted share (with a cost)", Align::Right),
    ];
    let rows = policy.classes.iter().flat_map(|class| {
        steps.for_class(&class.name).map(|(start, step)| {
            vec![
                Html::from_text(axis.format_seconds(start)),
                Html::from_text(&class.name),
                Html::from_text(group_digits(step.admitted)),
                Html::from_text(group_digits(step.refused)),
                Html::from_text(step.admit_ratio().map_or("-".into(), percent)),
            ]
        })
    });
    table::collapsible(out, "All classes as a table", &HEAD, rows);
}
