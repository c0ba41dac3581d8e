//! Where the demonstration is shown: a terminal, redrawn in place, or a plain stream of lines.

use super::frame;
use super::scoreboard::Scoreboard;
use crate::terminal::ColorMode;
use std::io::{self, Write};
use std::time::Duration;

/// An output and how to write to it.
pub struct Screen {
    out: Box<dyn Write + Send>,
    surface: Surface,
    ink: ColorMode,
}

enum Surface {
    /// A terminal of so many columns, on which the last frame took so many lines.
    Terminal { width: usize, drawn: usize },
    /// Anything else.
    Lines,
}

/// Where nobody says how wide the terminal is.
const DEFAULT_WIDTH: usize = 80;

impl Screen {
    /// A terminal, `width` columns wide where that is known.
    pub fn terminal(out: Box<dyn Write + Send>, width: Option<usize>, ink: ColorMode) -> Self {
        Self { out, surface: Surface::Terminal { width: width.unwrap_or(DEFAULT_WIDTH), drawn: 0 }, ink }
    }

    /// A pipe or a file.
    pub fn lines(out: Box<dyn Write + Send>) -> Self {
        Self { out, surface: Surface::Lines, ink: ColorMode::Plain }
    }

    /// Whether colours may be used.
    pub fn color_mode(&self) -> ColorMode {
        self.ink
    }

    /// How long a picture stands before the next.
    pub fn frame_interval(&self) -> Duration {
        match self.surface {
            Surface::Terminal { .. } => Duration::from_millis(200),
            Surface::Lines => Duration::from_secs(5),
        }
    }

    /// Writes text below whatever is there.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        if let Surface::Terminal { drawn, .. } = &mut self.surface {
            *drawn = 0;
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Shows the board: over the last picture on a terminal, as one more line elsewhere.
    pub fn draw(&mut self, board: &Scoreboard) -> io::Result<()> {
        match &mut self.surface {
            Surface::Terminal { width, drawn } => {
                let picture = frame::frame(board, *width, self.ink);
                let up = if *drawn > 0 { format!("\x1b[{drawn}A\x1b[J") } else { String::new() };
                *drawn = picture.lines().count();
                write!(self.out, "{up}{picture}")?;
            }
            Surface::Lines => writeln!(self.out, "{}", frame::line_of_log(board))?,
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(paper: &SharedBuffer) -> String {
        String::from_utf8_lossy(&paper.0.lock()).into_owned()
    }

    #[test]
    fn a_terminal_is_drawn_over_and_a_pipe_is_not() {
        let paper = SharedBuffer::default();
        let mut terminal = Screen::terminal(Box::new(paper.clone()), None, ColorMode::Plain);
        terminal.draw(&Scoreboard::default()).expect("paper takes everything");
        terminal.draw(&Scoreboard::default()).expect("paper takes everything");
        assert_eq!(written(&paper).matches("\x1b[9A\x1b[J").count(), 1);

        let paper = SharedBuffer::default();
        let mut pipe = Screen::lines(Box::new(paper.clone()));
        pipe.draw(&Scoreboard::default()).expect("paper takes everything");
        pipe.draw(&Scoreboard::default()).expect("paper takes everything");
        assert_eq!(written(&paper).lines().count(), 2);
        assert!(!written(&paper).contains('\x1b'));
    }

    #[test]
    fn what_is_printed_is_not_drawn_over() {
        let paper = SharedBuffer::default();
        let mut terminal = Screen::terminal(Box::new(paper.clone()), Some(60), ColorMode::Plain);
        terminal.draw(&Scoreboard::default()).expect("paper takes everything");
        terminal.print("The day is over.\n").expect("paper takes everything");
        terminal.draw(&Scoreboard::default()).expect("paper takes everything");
        assert!(!written(&paper).contains("\x1b[J"));
    }
}
