//! Terminal summary of a search. Pure function from report to text.

use super::chart::ScatterPlot;
use super::report::{
    AxisReport, CandidateReport, PacingReport, TermReport, TradeOffReport, TunedLogReport, TuningReport,
};
use crate::cache_text;
use crate::summary::client_lines;
use crate::terminal::{Align, ColorMode, columns, display_width, format_duration, group_digits, wrap};
use std::fmt::Write;
use std::slice::from_ref;

/// Renders the report as text, tables and a chart. Fits 80 columns, except for lines of the file.
pub fn summary(report: &TuningReport, color: ColorMode) -> String {
    let mut out = log(&report.log, &report.quota, color);
    if let Some(cache) = &report.cache {
        let saved = cache_text::saved(cache).map_or_else(String::new, |saved| format!("; {saved}"));
        let text = format!("cache: {}{saved}; hits are no requests with a cost", cache_text::answered(cache));
        let _ = writeln!(out, "  {}", wrap(&text, 2, 4, WIDTH));
    }
    out += &format!("\n{}", color.bold("Goal"));
    out += &format!(" (the first term counts most), {} policies tried\n", group_digits(report.tried as u64));
    out += &terms(&report.terms, color);
    let verdict = wrap(&verdict(report), 0, 0, WIDTH);
    let _ = writeln!(out, "\n{}", if report.met { color.bold(&verdict) } else { color.red(&verdict) });
    if !report.patch.is_empty() {
        out += &tiers(report);
    }
    if let Some(trade_off) = &report.trade_off {
        out += &self::trade_off(trade_off, color);
    }
    if !report.patch.is_empty() {
        let _ =
            write!(out, "\n{}\n{}", color.bold("Changed lines (--output FILE writes the whole file)"), report.patch);
    }
    out
}

fn log(log: &TunedLogReport, quota: &str, color: ColorMode) -> String {
    let mut out = format!(
        "{}\n",
        color.bold(&format!("{} requests in {}", group_digits(log.requests), format_duration(log.span_s)))
    );
    out += &client_lines(&log.clients);
    let (plural, windows) = (if log.windows == 1 { "" } else { "s" }, group_digits(log.windows as u64));
    let _ = match log.windows_are_whole {
        true => writeln!(out, "  {windows} complete window{plural} of {quota}"),
        false => writeln!(
            out,
            "  {}",
            color.red(&wrap(
                &format!(
                    "no window of {quota} is completely in the log; the usage of a partial window is not representative"
                ),
                2,
                2,
                80
            ))
        ),
    };
    out
}

/// Returns the verdict, which claims no more than is proven.
fn verdict(report: &TuningReport) -> String {
    let TuningReport { quota, tried, impossible, .. } = report;
    if let Some(picked) = report.picked {
        return format!("Point {picked} of the trade-offs has these values of {quota}:");
    }
    let missed = match impossible.is_empty() {
        true => {
            let tried = group_digits(*tried as u64);
            format!("None of the {tried} policies tried meets the goal; --max-trials NUMBER tries more.")
        }
        false => format!("The goal cannot be met: {}.", impossible.join("; ")),
    };
    match (report.met, report.patch.is_empty()) {
        (true, true) => "The file already meets the goal.".to_owned(),
        (true, false) => format!("The goal is met with the fewest changes by these values of {quota}:"),
        (false, true) => format!("{missed} No tried policy is nearer than the present file."),
        (false, false) => format!("{missed} The nearest policy has these values of {quota}:"),
    }
}

fn terms(terms: &[TermReport], color: ColorMode) -> String {
    let header = ["", "now", "found", ""].map(|cell| color.dim(cell)).to_vec();
    let row = |term: &TermReport| {
        let verdict = match term.met {
            true => "met".to_owned(),
            false => color.red(&format!("missed by {}", format_figure(Some(term.short_by), term.percent))),
        };
        vec![
            term.term.clone(),
            format_figure(term.present, term.percent),
            format_figure(term.found, term.percent),
            verdict,
        ]
    };
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Left];
    columns(2, &alignment, std::iter::once(header).chain(terms.iter().map(row)))
}

fn tiers(report: &TuningReport) -> String {
    let row = |label: &str, class: &str, tiers: &[String]| vec![class.to_owned(), label.to_owned(), tiers.join("  ")];
    let rows = report.tiers.iter().flat_map(|class| match class.present == class.found {
        true => vec![row("as now", &class.class, &class.found)],
        false => vec![row("now", &class.class, &class.present), row("found", "", &class.found)],
    });
    let PacingReport { present, found } = &report.pacing;
    let paced = match present == found {
        true => vec![],
        false => vec![row("now", "pacing", from_ref(present)), row("found", "", from_ref(found))],
    };
    columns(2, &[Align::Left; 3], rows.chain(paced))
}

fn trade_off(trade_off: &TradeOffReport, color: ColorMode) -> String {
    let TradeOffReport { x, y, points } = trade_off;
    let heading = format!("Trade-off: {} against {}", x.measure, y.measure);
    let mut out = format!("\n{}\n", color.bold(&heading));
    let header = vec![String::new(), "point".to_owned(), x.measure.clone(), y.measure.clone()];
    let row = |point: &&CandidateReport| {
        let figures = [format_figure(Some(point.x), x.percent), format_figure(Some(point.y), y.percent)];
        [point_label(point).to_owned(), point.number.to_string()].into_iter().chain(figures).collect()
    };
    let shown = thin_points(points);
    let alignment = [Align::Left, Align::Right, Align::Right, Align::Right];
    let table = columns(2, &alignment, std::iter::once(header).chain(shown.iter().map(row)));
    let indent = table.lines().map(display_width).max().unwrap_or_default() + 2;
    let values =
        std::iter::once("pacing; tiers (above:shed)".to_owned()).chain(shown.iter().map(|point| values(point)));
    for (line, values) in table.lines().zip(values) {
        let gap = " ".repeat(indent - display_width(line));
        let _ = writeln!(out, "{line}{gap}{}", wrap(&values, indent, indent, WIDTH));
    }
    out.push('\n');
    out += &chart(x, y, points);
    let _ = writeln!(out, "  {}", color.dim("o now   x found   · other points that no tried policy beats in both"));
    let _ = writeln!(out, "  {}", color.dim("--select NUMBER takes another point"));
    out
}

fn chart(x: &AxisReport, y: &AxisReport, points: &[CandidateReport]) -> String {
    let range_of = |figure: fn(&CandidateReport) -> f64| {
        let figures = points.iter().map(figure);
        figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), figure| (low.min(figure), high.max(figure)))
    };
    let (x_range, y_range) = (range_of(|point| point.x), range_of(|point| point.y));
    let position = |(low, high): (f64, f64), figure: f64| if high > low { (figure - low) / (high - low) } else { 0.5 };
    let symbol = |point: &CandidateReport| match (point.found, point.present) {
        (true, _) => 'x',
        (_, true) => 'o',
        _ => '·',
    };
    let mut marks: Vec<(f64, f64, char)> =
        points.iter().map(|point| (position(x_range, point.x), position(y_range, point.y), symbol(point))).collect();
    // Marked points cover others.
    marks.sort_by_key(|(_, _, symbol)| "·ox".find(*symbol));
    let labels = |(low, high): (f64, f64), percent| [low, high].map(|end| format_figure(Some(end), percent));
    let (x_ends, y_ends) = (labels(x_range, x.percent), labels(y_range, y.percent));
    ScatterPlot { x: (&x.measure, x_ends), y: (&y.measure, y_ends), points: marks }.render()
}

/// Returns as many points as are readable, including both ends and all marked points.
fn thin_points(points: &[CandidateReport]) -> Vec<&CandidateReport> {
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    let is_shown = |index: usize| index.is_multiple_of(step) || index + 1 == points.len();
    let shown = points.iter().enumerate().filter(|(index, point)| is_shown(*index) || point.present || point.found);
    shown.map(|(_, point)| point).collect()
}

fn point_label(point: &CandidateReport) -> &'static str {
    match (point.present, point.found) {
        (true, true) => "now, found",
        (true, false) => "now",
        (false, true) => "found",
        (false, false) => "",
    }
}

fn values(point: &CandidateReport) -> String {
    let describe_class = |(class, tiers): (&String, &Vec<String>)| format!("{class} {}", tiers.join(" "));
    format!("{}; {}", point.pacing, point.tiers.iter().map(describe_class).collect::<Vec<_>>().join(", "))
}

/// Formats a value of a measure.
pub(super) fn format_figure(figure: Option<f64>, is_percent: bool) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if is_percent => format!("{figure:.1} %"),
        Some(figure) if figure.fract() == 0.0 => group_digits(figure as u64),
        Some(figure) => format!("{figure:.1}"),
    }
}

/// Width of a terminal.
const WIDTH: usize = 80;

/// A readable number of rows.
const MAX_POINTS: usize = 12;
