//! Chart: a frame with axes, and shapes between them.
//!
//! Shapes are in an SVG of 1,000 by 1,000 that is stretched over the frame. Text is HTML, positioned by percent.

use super::html::Html;
use super::scale::Scale;
use super::time::TimeAxis;
use std::fmt::Write as _;

/// A chart under construction.
pub(super) struct Chart<'a> {
    pub(super) time_axis: TimeAxis<'a>,
    pub(super) scale: Scale,
    shapes: Html,
    level_labels: Html,
}

/// Title and description of a chart for screen readers.
pub(super) struct ChartLabels<'a> {
    /// Title of the chart.
    pub(super) title: &'a str,
    /// Summary of the contents.
    pub(super) description: String,
}

/// Height of a chart.
#[derive(Clone, Copy)]
pub(super) enum Height {
    /// A single chart.
    Tall,
    /// A chart in a column of several.
    Low,
}

/// A line from left to right in steps.
#[derive(Default)]
pub(super) struct StepLine(String);

impl<'a> Chart<'a> {
    pub(super) fn new(time_axis: TimeAxis<'a>, scale: Scale) -> Self {
        Self { time_axis, scale, shapes: Html::default(), level_labels: Html::default() }
    }

    /// Returns the coordinates of a time and a quantity.
    fn point(&self, at: i64, quantity: f64) -> (f64, f64) {
        (self.time_axis.position(at) * VIEW_BOX_SIZE, (1.0 - self.scale.position(quantity)) * VIEW_BOX_SIZE)
    }

    /// Draws a bar from one quantity to a higher one, with `description` as its tooltip.
    pub(super) fn bar(&mut self, class: &'static str, [from, to]: [i64; 2], [low, high]: [f64; 2], description: &str) {
        let ((left, bottom), (right, top)) = (self.point(from, low), self.point(to, high));
        let gap = (right - left) * BAR_GAP;
        self.shapes.raw("<rect class=\"").raw(class).raw("\" x=\"").text(Coordinate(left + gap)).raw("\" y=\"");
        self.shapes
            .text(Coordinate(top))
            .raw("\" width=\"")
            .text(Coordinate(right - left - 2.0 * gap))
            .raw("\" height=\"");
        self.shapes.text(Coordinate(bottom - top)).raw("\"><title>").text(description).raw("</title></rect>\n");
    }

    /// Draws a straight line.
    pub(super) fn line(&mut self, class: &'static str, from: (i64, f64), to: (i64, f64)) {
        let ((x1, y1), (x2, y2)) = (self.point(from.0, from.1), self.point(to.0, to.1));
        self.shapes
            .raw("<line class=\"")
            .raw(class)
            .raw("\" x1=\"")
            .text(Coordinate(x1))
            .raw("\" y1=\"")
            .text(Coordinate(y1));
        self.shapes.raw("\" x2=\"").text(Coordinate(x2)).raw("\" y2=\"").text(Coordinate(y2)).raw("\"/>\n");
    }

    /// Moves the step line to a quantity at time `at`.
    pub(super) fn step(&self, line: &mut StepLine, at: i64, quantity: f64) {
        let (x, y) = self.point(at, quantity);
        let _ = match line.0.is_empty() {
            true => write!(line.0, "M{} {}", Coordinate(x), Coordinate(y)),
            false => write!(line.0, "H{}V{}", Coordinate(x), Coordinate(y)),
        };
    }

    pub(super) fn step_line(&mut self, class: &'static str, line: &StepLine) {
        self.shapes.raw("<path class=\"").raw(class).raw("\" d=\"").text(&line.0).raw("\"/>\n");
    }

    /// Writes a label beside each quantity, lowest first. Moves a label up if it would overlap the previous one.
    pub(super) fn label_levels<'b>(&mut self, levels: impl IntoIterator<Item = (f64, &'b str)>) {
        let mut min_bottom = 0.0_f64;
        for (quantity, label) in levels {
            let bottom = min_bottom.max(self.scale.position(quantity) * 100.0);
            self.label_level(bottom, label);
            min_bottom = bottom + LABEL_HEIGHT;
        }
    }

    fn label_level(&mut self, bottom: f64, label: &str) {
        self.level_labels
            .raw("<span class=\"level\" style=\"bottom:")
            .text(Coordinate(bottom))
            .raw("%\">")
            .text(label)
            .raw("</span>\n");
    }

    /// Writes the chart. `unit` formats the labels of the quantity axis.
    pub(super) fn write(
        self,
        out: &mut Html,
        height: Height,
        labels: &ChartLabels<'_>,
        unit: impl Fn(f64, String) -> String,
    ) {
        let kind = match height {
            Height::Tall => "<div class=\"chart tall\">\n",
            Height::Low => "<div class=\"chart low\">\n",
        };
        out.raw(kind).raw("<div class=\"quantities\" aria-hidden=\"true\">");
        let marks = self.scale.ticks();
        for (quantity, label) in &marks {
            let bottom = Coordinate(self.scale.position(*quantity) * 100.0);
            out.raw("<span style=\"bottom:")
                .text(bottom)
                .raw("%\">")
                .text(unit(*quantity, label.clone()))
                .raw("</span>");
        }
        out.raw("</div>\n<div class=\"plot\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\">\n<title>");
        out.text(labels.title).raw("</title>\n<desc>").text(&labels.description).raw("</desc>\n");
        let mut frame = Self::new(self.time_axis, self.scale);
        for (quantity, _) in &marks {
            frame.line("grid", (self.time_axis.from, *quantity), (self.time_axis.to, *quantity));
        }
        let times = self.time_axis.ticks();
        for mark in times.iter().filter(|mark| mark.is_coarse) {
            frame.line("grid", (mark.at, 0.0), (mark.at, self.scale.max));
        }
        out.add(&frame.shapes).add(&self.shapes).raw("</svg>\n").add(&self.level_labels).raw("</div>\n");
        out.raw("<div class=\"times\" aria-hidden=\"true\">");
        for mark in times {
            out.raw(if mark.is_coarse { "<span" } else { "<span class=\"fine\"" }).raw(" style=\"left:");
            out.text(Coordinate(self.time_axis.position(mark.at) * 100.0)).raw("%\">").text(mark.label).raw("</span>");
        }
        out.raw("</div>\n</div>\n");
    }
}

/// A coordinate rounded to visible precision.
struct Coordinate(f64);

impl std::fmt::Display for Coordinate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", (self.0 * 10.0).round() / 10.0)
    }
}

const VIEW_BOX_SIZE: f64 = 1000.0;

/// Height of a label in a tall chart, in percent.
const LABEL_HEIGHT: f64 = 5.5;

/// Gap on either side of a bar, as a ratio of its width.
const BAR_GAP: f64 = 0.08;
