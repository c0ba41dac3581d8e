//! Formatting for the terminal: numbers, durations, bars, columns, and colors if the terminal supports them.

use serde::Serialize;
use std::fmt::{self, Write};
use tidegate_policy::display::alters_display;

/// Use of terminal colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorMode {
    /// With the terminal's colors.
    Color,
    /// Text only.
    Plain,
}

/// Alignment of a cell in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Threshold from which durations are shown in days, in seconds.
const DAYS_THRESHOLD_S: u64 = 48 * 3600;

/// Formats a duration in seconds, such as `2 h 01 min`.
pub fn format_duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        DAYS_THRESHOLD_S.. => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Formats a number with thousands separators, such as `12,345`.
pub fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Adds thousands separators to a decimal number, such as `12,345.25`.
pub fn decimal(number: impl fmt::Display) -> String {
    let digits = number.to_string();
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    whole.parse().map_or_else(|_| digits.clone(), |whole| group_digits(whole) + fraction)
}

/// Draws a bar that is full at 1. `marks`, in percent, are visible inside and outside the filled part.
pub fn bar(filled: f64, marks: &[f64], width: usize) -> String {
    let cells = (filled.clamp(0.0, 1.0) * width as f64).round() as usize;
    let marked: Vec<usize> = marks.iter().map(|mark| (mark / 100.0 * width as f64) as usize).collect();
    (0..width)
        .map(|cell| match (cell < cells, marked.contains(&cell)) {
            (true, false) => '█',
            (true, true) => '▓',
            (false, true) => '┊',
            (false, false) => '·',
        })
        .collect()
}

/// Draws a line of small bars, scaled to the largest of `amounts`.
pub fn sparkline(amounts: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let max = amounts.iter().copied().fold(0.0, f64::max);
    let bar = |amount: &f64| BARS[((amount / max * 7.0).round().max(0.0) as usize).min(7)];
    amounts.iter().map(bar).collect()
}

/// Returns `value` as indented JSON that changes nothing in a terminal.
pub fn json_document(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|json| printable_json(&json) + "\n")
}

/// Returns `value` as a line of JSON that changes nothing in a terminal.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|json| printable_json(&json) + "\n")
}

/// Returns JSON of the same value, in which escapes replace the characters that would change how a terminal shows the rest.
/// Clients choose many of its texts.
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        // Between values; in a string they are escaped already.
        let is_space = matches!(character, '\n' | '\r' | '\t');
        match alters_display(character) && !is_space {
            true => drop(write!(out, "\\u{:04x}", u32::from(character))),
            false => out.push(character),
        }
    }
    out
}

/// Aligns rows of cells in columns, indented by `indent`. Color sequences have no width.
pub fn columns(indent: usize, alignment: &[Align], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let width_of = |index: usize| rows.iter().filter_map(|row| row.get(index)).map(|cell| display_width(cell)).max();
    let widths: Vec<usize> = (0..alignment.len()).map(|index| width_of(index).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = " ".repeat(indent);
        for (index, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[index] - display_width(cell));
            let gap = if index > 0 { "  " } else { "" };
            line += &match alignment[index] {
                Align::Left => format!("{gap}{cell}{padding}"),
                Align::Right => format!("{gap}{padding}{cell}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Wraps text between words at `width`. The first line begins at column `first`, the others are indented by `indent`. A
/// longer word is not broken, so that it can be copied.
pub fn wrap(text: &str, first: usize, indent: usize, width: usize) -> String {
    let mut out = String::new();
    let mut column = first;
    for (count, line) in text.lines().enumerate() {
        let mut is_line_start = count == 0;
        if count > 0 {
            out += &format!("\n{}", " ".repeat(indent));
            (column, is_line_start) = (indent, true);
        }
        for word in line.split(' ') {
            let length = word.chars().count();
            match is_line_start {
                true => column += length,
                false if column + 1 + length > width => {
                    out += &format!("\n{}", " ".repeat(indent));
                    column = indent + length;
                }
                false => {
                    out.push(' ');
                    column += 1 + length;
                }
            }
            out += word;
            is_line_start = false;
        }
    }
    out
}

/// Returns the number of columns of a text; color sequences have no width.
pub fn display_width(text: &str) -> usize {
    let mut columns = 0;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => drop(letters.by_ref().find(|&end| end == 'm')),
            _ => columns += 1,
        }
    }
    columns
}

/// Returns text of a client, with U+FFFD in place of characters that change how a terminal shows the rest.
pub fn printable(text: &str) -> String {
    text.chars().map(|character| if alters_display(character) { '\u{fffd}' } else { character }).collect()
}

/// Shortens a text to `width` characters, with an ellipsis.
pub fn ellipsize(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Truncates a line to `width` characters. The last one of a line that was longer is an ellipsis.
pub fn truncate(line: &str, width: usize) -> String {
    match line.chars().nth(width) {
        None => line.to_owned(),
        Some(_) => line.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect(),
    }
}

impl ColorMode {
    /// Returns [`Self::Color`] for a `terminal`, unless `NO_COLOR` is set.
    pub fn for_output(terminal: bool) -> Self {
        match terminal && std::env::var_os("NO_COLOR").is_none() {
            true => Self::Color,
            false => Self::Plain,
        }
    }

    /// Formats a text that needs attention.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Formats a text of low importance.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Formats an emphasized text.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Colors a text green, yellow or red by the used share of a quota.
    pub fn by_level(self, share: f64, text: &str) -> String {
        let code = match share {
            low if low < 0.5 => "32",
            middle if middle < 0.9 => "33",
            _ => "31",
        };
        self.paint(code, text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Color => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_clients_cannot_change_a_terminal() {
        assert_eq!(printable("bot\u{1b}[31m\u{202e}txt.exe\u{9b} é"), "bot\u{fffd}[31m\u{fffd}txt.exe\u{fffd} é");
        assert_eq!([3, 4].map(|width| ellipsize("four", width)), ["fo…", "four"]);
    }

    #[test]
    fn text_of_clients_in_json_cannot_change_a_terminal() {
        let all = (char::MIN..='\u{ffff}').filter(|character| alters_display(*character));
        let texts = [all.collect::<String>(), "Grüße, 日本 🦀 שלום \"\\\u{9b}".into()];
        for json in [json_document(&texts), json_line(&texts)] {
            let json = json.expect("texts are JSON");
            assert!(json.chars().all(|character| character == '\n' || !alters_display(character)), "{json:?}");
            assert!(json.contains("Grüße, 日本 🦀 שלום"));
            assert_eq!(serde_json::from_str::<[String; 2]>(&json).expect("JSON"), texts);
        }
        let beyond = ('\u{10000}'..=char::MAX).find(|character| alters_display(*character));
        assert_eq!(beyond, None, "would need two escapes");
        let spaced = "{\r\n\t\"a\": 1\n}\n";
        assert_eq!(printable_json(spaced), spaced);
    }

    #[test]
    fn durations_and_numbers_use_readable_units() {
        assert_eq!([0, 59, 121, 7260].map(format_duration), ["0 s", "59 s", "3 min", "2 h 01 min"]);
        assert_eq!([172_799, 172_800, 2_600_000].map(format_duration), ["47 h 59 min", "2 d 0 h", "30 d 2 h"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(group_digits), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(["12", "12345.25", "-1000", ""].map(decimal), ["12", "12,345.25", "-1000", ""]);
    }

    #[test]
    fn column_width_ignores_color_codes() {
        let color = ColorMode::Color;
        let rows = [vec![color.bold("a"), "1,000".into()], vec!["bcd".into(), color.red("2")]];
        let text = columns(1, &[Align::Left, Align::Right], rows.into_iter());
        assert_eq!(text, " \x1b[1ma\x1b[0m    1,000\n bcd      \x1b[31m2\x1b[0m\n");
        assert_eq!(columns(0, &[], std::iter::empty()), "");
    }

    #[test]
    fn text_wraps_only_between_words() {
        assert_eq!(wrap("one two three", 0, 2, 7), "one two\n  three");
        assert_eq!(wrap("one two", 1, 2, 7), "one\n  two");
        assert_eq!(wrap("a http://long.example/ b", 0, 1, 10), "a\n http://long.example/\n b");
        assert_eq!(wrap("first\nsecond", 4, 2, 80), "first\n  second");
        assert_eq!(wrap("", 0, 2, 10), "");
    }
}
