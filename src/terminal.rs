//! What every screen is made of: numbers as people read them, bars, and colours where a terminal has them.

/// Whether colours may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// The terminal's colours.
    Coloured,
    /// Text only.
    Plain,
}

/// Seconds as a person says them.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `12,345`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A bar that is full at 1; a mark, in percent, is seen where it is not reached yet and where it is.
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

/// As much of a line as fits.
pub fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

impl Ink {
    /// Emphasised.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Green, yellow or red, by how much of a quota is gone.
    pub fn level(self, share: f64, text: &str) -> String {
        let colour = match share {
            low if low < 0.5 => "32",
            middle if middle < 0.9 => "33",
            _ => "31",
        };
        self.paint(colour, text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_numbers_read_as_people_say_them() {
        assert_eq!([0, 59, 121, 7260].map(span), ["0 s", "59 s", "3 min", "2 h 01 min"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
