//! Charts of admitted and refused requests of each class, by step.

use super::chart::{Chart, ChartLabels, Height};
use super::classes::ClassColors;
use super::html::Html;
use super::scale::Scale;
use super::steps::Steps;
use super::table;
use super::time::{TimeAxis, length};
use crate::replay::report::{ClassReport, PolicyReport};
use crate::terminal::{Align, group_digits};
use std::collections::BTreeMap;

/// Writes a chart for each class with requests; `place` is the index of the policy in `steps`.
pub(super) fn write(
    out: &mut Html,
    policy: &PolicyReport,
    names: &ClassColors<'_>,
    steps: &[Steps],
    span: TimeAxis<'_>,
    place: usize,
) {
    let ours = &steps[place];
    out.raw("<p class=\"note\">Each bar is ").text(length(ours.length));
    out.raw("; each class has its own scale. Solid: admitted. Outlined: refused.</p>\n");
    for class in policy.classes.iter().filter(|class| class.requests > 0) {
        // Both policies use the same scale.
        let most =
            steps.iter().flat_map(|steps| steps.of_class(&class.name)).map(|(_, step)| step.admitted + step.refused);
        let mut chart = Chart::new(span, Scale::up_to(most.max().unwrap_or(0) as f64, 2.0));
        for (start, step) in ours.of_class(&class.name) {
            let (admitted, all) = (step.admitted as f64, (step.admitted + step.refused) as f64);
            let (let_through, refused) = (group_digits(step.admitted), group_digits(step.refused));
            let says = format!("{}: {let_through} admitted, {refused} refused", span.moment(start));
            let stretch = ours.step_bounds(start, span);
            if step.admitted > 0 {
                chart.bar("admitted", stretch, [0.0, admitted], &says);
            }
            if step.refused > 0 {
                chart.bar("refused", stretch, [admitted, all], &says);
            }
        }
        let says = description(class);
        out.raw("<figure class=\"").raw(names.colour(&class.name)).raw("\">\n<figcaption><strong>").text(&class.name);
        out.raw("</strong>: ").text(&says).raw("</figcaption>\n");
        let title = format!("Verdicts on {}", class.name);
        chart.write(out, Height::Low, &ChartLabels { title: &title, description: says }, |_, label| label);
        out.raw("</figure>\n");
    }
    as_table(out, policy, ours, span);
}

fn description(class: &ClassReport) -> String {
    let refused: u64 = class.refused.values().sum();
    let shadow: u64 = class.shadow.values().sum();
    let tried = match shadow {
        0 => String::new(),
        shadow => format!("; {} more in shadow mode", group_digits(shadow)),
    };
    match refused {
        0 => format!("{} requests, none refused{tried}.", group_digits(class.requests)),
        _ => format!(
            "{} requests, {} refused ({}){tried}.",
            group_digits(class.requests),
            group_digits(refused),
            reasons(&class.refused)
        ),
    }
}

/// Formats reasons like `by tier 1,234, by quota 5`.
fn reasons(refused: &BTreeMap<&'static str, u64>) -> String {
    let told: Vec<String> =
        refused.iter().map(|(reason, count)| format!("by {reason} {}", group_digits(*count))).collect();
    told.join(", ")
}

fn as_table(out: &mut Html, policy: &PolicyReport, steps: &Steps, span: TimeAxis<'_>) {
    const HEAD: [(&str, Align); 5] = [
        ("From", Align::Left),
        ("class", Align::Left),
        ("admitted", Align::Right),
        ("refused", Align::Right),
        ("admitted share (with a cost)", Align::Right),
    ];
    let rows = policy.classes.iter().flat_map(|class| {
        steps.of_class(&class.name).map(|(start, step)| {
            vec![
                Html::of(span.moment(start)),
                Html::of(&class.name),
                Html::of(group_digits(step.admitted)),
                Html::of(group_digits(step.refused)),
                Html::of(step.served().map_or("-".into(), crate::replay::summary::percent)),
            ]
        })
    });
    table::collapsible(out, "All classes as a table", &HEAD, rows);
}
