//! Scatter chart for a terminal.

/// Contents of a chart.
pub(super) struct ScatterPlot<'a> {
    /// Label of the horizontal axis, and of its two ends.
    pub(super) x: (&'a str, [String; 2]),
    /// Label of the vertical axis, and of its two ends.
    pub(super) y: (&'a str, [String; 2]),
    /// Points from 0 to 1 on both axes, with their symbols. Later points cover earlier ones.
    pub(super) points: Vec<(f64, f64, char)>,
}

impl ScatterPlot<'_> {
    /// Renders the chart as lines of text.
    pub(super) fn render(&self) -> String {
        let mut grid = vec![vec![' '; WIDTH]; HEIGHT];
        for &(x, y, symbol) in &self.points {
            let cell_index = |part: f64, cells: usize| (part.clamp(0.0, 1.0) * (cells - 1) as f64).round() as usize;
            grid[HEIGHT - 1 - cell_index(y, HEIGHT)][cell_index(x, WIDTH)] = symbol;
        }
        let (x_name, [x_low, x_high]) = &self.x;
        let (y_name, [y_low, y_high]) = &self.y;
        let margin = y_low.chars().count().max(y_high.chars().count());
        let mut text = format!("  {y_name}\n");
        for (row, cells) in grid.iter().enumerate() {
            let label = match row {
                0 => y_high.as_str(),
                _ if row + 1 == HEIGHT => y_low.as_str(),
                _ => "",
            };
            let line = format!("  {label:>margin$} │{}", cells.iter().collect::<String>());
            text += line.trim_end();
            text.push('\n');
        }
        let pad = " ".repeat(margin);
        text += &format!("  {pad} └{}\n", "─".repeat(WIDTH));
        let width = WIDTH.saturating_sub(x_low.chars().count() + x_high.chars().count());
        let name: String = x_name.chars().take(width.saturating_sub(2)).collect();
        text += &format!("  {pad}  {x_low}{name:^width$}{x_high}\n");
        text
    }
}

/// Fits within 80 columns with labels of ten characters.
const WIDTH: usize = 60;
const HEIGHT: usize = 12;
