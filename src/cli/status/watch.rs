//! `tidegate status --watch`: draws the state over and over, in place on a terminal.

use super::view::{View, terminal_size};
use crate::cli::{CommandError, exit_code};
use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;
use tidegate_replay::terminal::display_width;

/// Time between two pictures.
const INTERVAL: Duration = Duration::from_secs(2);

/// Draws `picture` until the process is stopped. Returns an error if the first picture fails; a later failure is shown
/// above the last picture, because a gateway that restarts comes back.
pub(super) fn run(picture: impl Fn(&View) -> Result<String, CommandError>) -> ExitCode {
    let mut last = match picture(&View::for_stdout()) {
        Ok(text) => text,
        Err(error) => return error.report(),
    };
    let mut problem = None;
    loop {
        if let Err(error) = draw(&mut io::stdout().lock(), &last, problem.as_deref(), terminal_size()) {
            return exit_code(Err(error));
        }
        sleep(INTERVAL);
        match picture(&View::for_stdout()) {
            Ok(text) => (last, problem) = (text, None),
            Err(error) => problem = Some(error.to_string()),
        }
    }
}

/// Writes one picture: over the last one on a terminal of these columns and rows, cut to them; else below it.
fn draw(
    out: &mut impl Write,
    picture: &str,
    problem: Option<&str>,
    terminal: Option<(usize, usize)>,
) -> io::Result<()> {
    let mut lines = problem.into_iter().chain(picture.trim_end().lines());
    let Some((columns, rows)) = terminal else {
        lines.try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
        return out.flush();
    };
    // Each line is cleared as it is written, so that nothing flickers; without wrapping, so that each takes one row.
    write!(out, "\x1b[?7l\x1b[H")?;
    for line in lines.take(rows.saturating_sub(1)) {
        // In a full line, the cursor stands on the last column, which would be cleared.
        let clear = if display_width(line) < columns { "\x1b[K" } else { "" };
        writeln!(out, "{}{clear}", clip(line, columns))?;
    }
    write!(out, "\x1b[J\x1b[?7h")?;
    out.flush()
}

/// Returns a line of at most `columns`; the last column of a longer one is an ellipsis. Colors take no column.
fn clip(line: &str, columns: usize) -> Cow<'_, str> {
    if display_width(line) <= columns {
        return line.into();
    }
    let (mut kept, mut width, mut is_escape) = (String::new(), 0, false);
    for letter in line.chars() {
        is_escape |= letter == '\x1b';
        if !is_escape {
            width += 1;
        }
        if is_escape || width < columns {
            kept.push(letter);
        }
        is_escape &= letter != 'm';
    }
    kept.push('…');
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_end_with_an_ellipsis_and_keep_their_colors() {
        assert_eq!(clip("12345", 5), "12345");
        assert_eq!(clip("123456", 5), "1234…");
        assert_eq!(clip("\x1b[31m12345\x1b[0m", 5), "\x1b[31m12345\x1b[0m");
        assert_eq!(clip("\x1b[31m123456\x1b[0m", 5), "\x1b[31m1234\x1b[0m…");
    }

    fn drawn(picture: &str, problem: Option<&str>, rows: Option<usize>) -> String {
        let terminal = rows.map(|rows| (80, rows));
        let mut out = Vec::new();
        draw(&mut out, picture, problem, terminal).expect("memory is writable");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn picture_is_cut_to_the_terminal() {
        assert_eq!(drawn("one\ntwo\nthree\n", None, Some(3)), "\x1b[?7l\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[?7h");
        assert_eq!(drawn("three\n", Some("gone"), Some(9)), "\x1b[?7l\x1b[Hgone\x1b[K\nthree\x1b[K\n\x1b[J\x1b[?7h");
    }

    #[test]
    fn line_of_the_whole_width_keeps_its_last_letter() {
        let line = "x".repeat(80);
        assert_eq!(drawn(&line, None, Some(3)), format!("\x1b[?7l\x1b[H{line}\n\x1b[J\x1b[?7h"));
    }

    #[test]
    fn pictures_follow_each_other_in_a_pipe() {
        assert_eq!(drawn("one\ntwo\n", None, None), "one\ntwo\n\n");
        assert_eq!(drawn("one\n", Some("no connection"), None), "no connection\none\n\n");
    }
}
