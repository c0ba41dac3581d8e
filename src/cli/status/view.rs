//! Output options: width, colors and time zone.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use std::io::{self, IsTerminal};
use tidegate_replay::terminal::ColorMode;

/// Options for rendering text.
#[derive(Clone, Debug)]
pub struct View {
    /// Maximum width of a line, in columns.
    pub width: usize,
    /// Color mode.
    pub color: ColorMode,
    /// Local time zone.
    pub zone: TimeZone,
}

impl View {
    /// Returns the options for standard output, with the zone of this machine.
    pub fn for_stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let columns = columns.filter(|_| terminal).or(terminal_size().map(|(columns, _)| columns));
        Self {
            width: columns.unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH),
            color: ColorMode::for_output(terminal),
            zone: TimeZone::system(),
        }
    }

    /// Formats an RFC 3339 time in the local zone, with the date only if it differs from that of `now`.
    pub(super) fn local(&self, timestamp: &str, now: Option<&str>) -> String {
        self.format_time(timestamp, now, |_| "%H:%M")
    }

    /// Like [`Self::local`], with seconds unless they are zero, because windows may be shorter than a minute.
    pub(in crate::cli) fn local_exactly(&self, timestamp: &str, now: Option<&str>) -> String {
        self.format_time(timestamp, now, |local| if local.second() == 0 { "%H:%M" } else { "%H:%M:%S" })
    }

    fn format_time(&self, timestamp: &str, now: Option<&str>, time: impl Fn(&ZonedDateTime) -> &'static str) -> String {
        let Some(local) = self.to_local(timestamp) else { return timestamp.to_owned() };
        let now = now.and_then(|now| self.to_local(now));
        let day = match now {
            Some(now) if now.date() == local.date() => "",
            Some(now) if now.year() != local.year() => "%-d %b %Y ",
            _ => "%-d %b ",
        };
        local.strftime(&format!("{day}{}", time(&local))).to_string()
    }

    /// Returns the abbreviation of the local zone at `timestamp`.
    pub(in crate::cli) fn zone_name(&self, timestamp: &str) -> String {
        self.to_local(timestamp).map(|local| local.strftime("%Z").to_string()).unwrap_or_default()
    }

    fn to_local(&self, timestamp: &str) -> Option<ZonedDateTime> {
        Some(timestamp.parse::<Timestamp>().ok()?.to_zoned_datetime(self.zone.clone()))
    }
}

/// Returns the columns and rows of the terminal; `None` if standard output is none.
pub(super) fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some((size.ws_col.into(), size.ws_row.into())).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

/// Default width, in columns.
const DEFAULT_WIDTH: usize = 80;

/// Minimum width, in columns.
const MIN_WIDTH: usize = 40;
