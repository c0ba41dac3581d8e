//! What every chart has: a frame with axes, and shapes between them.
//!
//! Shapes are in an SVG of 1,000 by 1,000 that is stretched over the frame; words are HTML, placed by percent.

use super::html::Html;
use super::scale::Scale;
use super::time::TimeAxis;
use std::fmt::Write as _;

/// A chart that is being drawn.
pub(super) struct Chart<'a> {
    pub(super) span: TimeAxis<'a>,
    pub(super) scale: Scale,
    shapes: Html,
    words: Html,
}

/// What a chart is for those who do not see it.
pub(super) struct ChartLabels<'a> {
    /// What it is called.
    pub(super) title: &'a str,
    /// What there is to see.
    pub(super) description: String,
}

/// How high it is.
#[derive(Clone, Copy)]
pub(super) enum Height {
    /// One that stands alone.
    Tall,
    /// One of several below each other.
    Low,
}

/// A line that goes from left to right in steps.
#[derive(Default)]
pub(super) struct StepLine(String);

impl<'a> Chart<'a> {
    pub(super) fn new(span: TimeAxis<'a>, scale: Scale) -> Self {
        Self { span, scale, shapes: Html::default(), words: Html::default() }
    }

    /// Where a moment and a quantity are, for a line.
    fn point(&self, at: i64, quantity: f64) -> (f64, f64) {
        (self.span.position(at) * SIZE, (1.0 - self.scale.position(quantity)) * SIZE)
    }

    /// A bar from one quantity to a higher one, with what it says to whoever points at it.
    pub(super) fn bar(&mut self, class: &'static str, [from, to]: [i64; 2], [low, high]: [f64; 2], description: &str) {
        let ((left, bottom), (right, top)) = (self.point(from, low), self.point(to, high));
        let gap = (right - left) * GAP;
        self.shapes.raw("<rect class=\"").raw(class).raw("\" x=\"").text(Short(left + gap)).raw("\" y=\"");
        self.shapes.text(Short(top)).raw("\" width=\"").text(Short(right - left - 2.0 * gap)).raw("\" height=\"");
        self.shapes.text(Short(bottom - top)).raw("\"><title>").text(description).raw("</title></rect>\n");
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &'static str, from: (i64, f64), to: (i64, f64)) {
        let ((x1, y1), (x2, y2)) = (self.point(from.0, from.1), self.point(to.0, to.1));
        self.shapes.raw("<line class=\"").raw(class).raw("\" x1=\"").text(Short(x1)).raw("\" y1=\"").text(Short(y1));
        self.shapes.raw("\" x2=\"").text(Short(x2)).raw("\" y2=\"").text(Short(y2)).raw("\"/>\n");
    }

    /// Puts the line to a quantity, from this moment on.
    pub(super) fn step(&self, stairs: &mut StepLine, at: i64, quantity: f64) {
        let (x, y) = self.point(at, quantity);
        let _ = match stairs.0.is_empty() {
            true => write!(stairs.0, "M{} {}", Short(x), Short(y)),
            false => write!(stairs.0, "H{}V{}", Short(x), Short(y)),
        };
    }

    pub(super) fn step_line(&mut self, class: &'static str, stairs: &StepLine) {
        self.shapes.raw("<path class=\"").raw(class).raw("\" d=\"").text(&stairs.0).raw("\"/>\n");
    }

    /// A word beside each quantity, lowest first: a little higher where it would stand on the one before.
    pub(super) fn name_levels<'b>(&mut self, levels: impl IntoIterator<Item = (f64, &'b str)>) {
        let mut free = 0.0_f64;
        for (quantity, word) in levels {
            let bottom = free.max(self.scale.position(quantity) * 100.0);
            self.name_level(bottom, word);
            free = bottom + LINE;
        }
    }

    fn name_level(&mut self, bottom: f64, word: &str) {
        self.words
            .raw("<span class=\"level\" style=\"bottom:")
            .text(Short(bottom))
            .raw("%\">")
            .text(word)
            .raw("</span>\n");
    }

    /// The whole of it. `mark` says what a quantity on the axis is called.
    pub(super) fn write(
        self,
        out: &mut Html,
        height: Height,
        about: &ChartLabels<'_>,
        unit: impl Fn(f64, String) -> String,
    ) {
        let kind = match height {
            Height::Tall => "<div class=\"chart tall\">\n",
            Height::Low => "<div class=\"chart low\">\n",
        };
        out.raw(kind).raw("<div class=\"quantities\" aria-hidden=\"true\">");
        let marks = self.scale.marks();
        for (quantity, label) in &marks {
            let bottom = Short(self.scale.position(*quantity) * 100.0);
            out.raw("<span style=\"bottom:")
                .text(bottom)
                .raw("%\">")
                .text(unit(*quantity, label.clone()))
                .raw("</span>");
        }
        out.raw("</div>\n<div class=\"plot\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\">\n<title>");
        out.text(about.title).raw("</title>\n<desc>").text(&about.description).raw("</desc>\n");
        let mut frame = Self::new(self.span, self.scale);
        for (quantity, _) in &marks {
            frame.line("grid", (self.span.from, *quantity), (self.span.to, *quantity));
        }
        let times = self.span.marks();
        for mark in times.iter().filter(|mark| mark.is_coarse) {
            frame.line("grid", (mark.at, 0.0), (mark.at, self.scale.top));
        }
        out.add(&frame.shapes).add(&self.shapes).raw("</svg>\n").add(&self.words).raw("</div>\n");
        out.raw("<div class=\"times\" aria-hidden=\"true\">");
        for mark in times {
            out.raw(if mark.is_coarse { "<span" } else { "<span class=\"fine\"" }).raw(" style=\"left:");
            out.text(Short(self.span.position(mark.at) * 100.0)).raw("%\">").text(mark.label).raw("</span>");
        }
        out.raw("</div>\n</div>\n");
    }
}

/// A place with as many decimals as can be seen.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", (self.0 * 10.0).round() / 10.0)
    }
}

const SIZE: f64 = 1000.0;

/// The height of a word in a tall chart, in percent.
const LINE: f64 = 5.5;

/// Between two bars, of the width of one, on either side.
const GAP: f64 = 0.08;
