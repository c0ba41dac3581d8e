//! Output of the demo: a terminal that is redrawn in place, or a stream of lines.

use super::frame;
use super::scoreboard::Scoreboard;
use crate::terminal::ColorMode;
use std::io::{self, Write};
use std::time::Duration;

/// An output and its mode.
pub struct Screen {
    out: Box<dyn Write + Send>,
    mode: OutputMode,
    color: ColorMode,
}

enum OutputMode {
    /// A terminal of `width` columns, on which the last frame has `drawn_lines` lines.
    Terminal { width: usize, drawn_lines: usize },
    /// A pipe or a file.
    Lines,
}

/// Default width of a terminal, in columns.
const DEFAULT_WIDTH: usize = 80;

impl Screen {
    /// Creates the output for a terminal of `width` columns, or of the default width.
    pub fn terminal(out: Box<dyn Write + Send>, width: Option<usize>, color: ColorMode) -> Self {
        Self { out, mode: OutputMode::Terminal { width: width.unwrap_or(DEFAULT_WIDTH), drawn_lines: 0 }, color }
    }

    /// Creates the output for a pipe or a file.
    pub fn lines(out: Box<dyn Write + Send>) -> Self {
        Self { out, mode: OutputMode::Lines, color: ColorMode::Plain }
    }

    /// Returns the color mode.
    pub fn color_mode(&self) -> ColorMode {
        self.color
    }

    /// Returns the time between two frames.
    pub fn frame_interval(&self) -> Duration {
        match self.mode {
            OutputMode::Terminal { .. } => Duration::from_millis(200),
            OutputMode::Lines => Duration::from_secs(5),
        }
    }

    /// Writes text below the current content.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        if let OutputMode::Terminal { drawn_lines, .. } = &mut self.mode {
            *drawn_lines = 0;
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Draws the scoreboard: over the last frame on a terminal, else as one more line.
    pub fn draw(&mut self, scoreboard: &Scoreboard) -> io::Result<()> {
        match &mut self.mode {
            OutputMode::Terminal { width, drawn_lines } => {
                let frame = frame::frame(scoreboard, *width, self.color);
                let erase = if *drawn_lines > 0 { format!("\x1b[{drawn_lines}A\x1b[J") } else { String::new() };
                *drawn_lines = frame.lines().count();
                write!(self.out, "{erase}{frame}")?;
            }
            OutputMode::Lines => writeln!(self.out, "{}", frame::log_line(scoreboard))?,
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

    fn written(buffer: &SharedBuffer) -> String {
        String::from_utf8_lossy(&buffer.0.lock()).into_owned()
    }

    #[test]
    fn terminal_frames_are_redrawn_pipe_lines_are_not() {
        let buffer = SharedBuffer::default();
        let mut terminal = Screen::terminal(Box::new(buffer.clone()), None, ColorMode::Plain);
        terminal.draw(&Scoreboard::default()).expect("writable");
        terminal.draw(&Scoreboard::default()).expect("writable");
        assert_eq!(written(&buffer).matches("\x1b[9A\x1b[J").count(), 1);

        let buffer = SharedBuffer::default();
        let mut pipe = Screen::lines(Box::new(buffer.clone()));
        pipe.draw(&Scoreboard::default()).expect("writable");
        pipe.draw(&Scoreboard::default()).expect("writable");
        assert_eq!(written(&buffer).lines().count(), 2);
        assert!(!written(&buffer).contains('\x1b'));
    }

    #[test]
    fn printed_text_is_not_overwritten() {
        let buffer = SharedBuffer::default();
        let mut terminal = Screen::terminal(Box::new(buffer.clone()), Some(60), ColorMode::Plain);
        terminal.draw(&Scoreboard::default()).expect("writable");
        terminal.print("The day is over.\n").expect("writable");
        terminal.draw(&Scoreboard::default()).expect("writable");
        assert!(!written(&buffer).contains("\x1b[J"));
    }
}
