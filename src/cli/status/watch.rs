//! `tidegate status --watch`: draws the state over and over, in place on a terminal.

use super::view::{View, terminal_size};
use crate::cli::{CommandError, exit_code};
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

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
        if let Err(error) =
            draw(&mut io::stdout().lock(), &last, problem.as_deref(), terminal_size().map(|(_, rows)| rows))
        {
            return exit_code(Err(error));
        }
        sleep(INTERVAL);
        match picture(&View::for_stdout()) {
            Ok(text) => (last, problem) = (text, None),
            Err(error) => problem = Some(error.to_string()),
        }
    }
}

/// Writes one picture: over the last one on a terminal of this many rows, cut to them; else below it.
fn draw(out: &mut impl Write, picture: &str, problem: Option<&str>, rows: Option<usize>) -> io::Result<()> {
    let mut lines = problem.into_iter().chain(picture.trim_end().lines());
    let Some(rows) = rows else {
        lines.try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
        return out.flush();
    };
    // Each line is cleared as it is written, so that nothing flickers; without wrapping, so that each takes one row.
    write!(out, "\x1b[?7l\x1b[H")?;
    for line in lines.take(rows.saturating_sub(1)) {
        writeln!(out, "{line}\x1b[K")?;
    }
    write!(out, "\x1b[J\x1b[?7h")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(picture: &str, problem: Option<&str>, rows: Option<usize>) -> String {
        let mut out = Vec::new();
        draw(&mut out, picture, problem, rows).expect("memory is writable");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn picture_is_cut_to_the_terminal() {
        assert_eq!(drawn("one\ntwo\nthree\n", None, Some(3)), "\x1b[?7l\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[?7h");
        assert_eq!(drawn("three\n", Some("gone"), Some(9)), "\x1b[?7l\x1b[Hgone\x1b[K\nthree\x1b[K\n\x1b[J\x1b[?7h");
    }

    #[test]
    fn pictures_follow_each_other_in_a_pipe() {
        assert_eq!(drawn("one\ntwo\n", None, None), "one\ntwo\n\n");
        assert_eq!(drawn("one\n", Some("no connection"), None), "no connection\none\n\n");
    }
}
