//! For whom it is shown: how wide, in which colours, by which clock on the wall.

use crate::terminal::ColorMode;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::io::{self, IsTerminal};

/// How text is shown.
#[derive(Clone, Debug)]
pub struct View {
    /// Columns that a line should not go beyond.
    pub width: usize,
    /// Whether there are colours.
    pub ink: ColorMode,
    /// Whose time is local.
    pub zone: TimeZone,
}

impl View {
    /// For standard output, wherever it goes, in the time of this machine.
    pub fn for_stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        Self {
            width: columns.filter(|_| terminal).unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH),
            ink: ColorMode::for_output(terminal),
            zone: TimeZone::system(),
        }
    }

    /// A moment as told in RFC 3339, by the wall clock: the day only where it is not that of `now`.
    pub(super) fn local(&self, moment: &str, now: Option<&str>) -> String {
        self.format_time(moment, now, |_| "%H:%M")
    }

    /// The same with its seconds, where it has any: windows may be shorter than a minute.
    pub(in crate::cli) fn local_exactly(&self, moment: &str, now: Option<&str>) -> String {
        self.format_time(moment, now, |local| if local.second() == 0 { "%H:%M" } else { "%H:%M:%S" })
    }

    fn format_time(&self, moment: &str, now: Option<&str>, time: impl Fn(&Zoned) -> &'static str) -> String {
        let Some(local) = self.to_local(moment) else { return moment.to_owned() };
        let now = now.and_then(|now| self.to_local(now));
        let day = match now {
            Some(now) if now.date() == local.date() => "",
            Some(now) if now.year() != local.year() => "%-d %b %Y ",
            _ => "%-d %b ",
        };
        local.strftime(&format!("{day}{}", time(&local))).to_string()
    }

    /// What the wall clock's zone is called then.
    pub(in crate::cli) fn zone_name(&self, moment: &str) -> String {
        self.to_local(moment).map(|local| local.strftime("%Z").to_string()).unwrap_or_default()
    }

    fn to_local(&self, moment: &str) -> Option<Zoned> {
        Some(moment.parse::<Timestamp>().ok()?.to_zoned(self.zone.clone()))
    }
}

/// Where nobody says how wide it is.
const DEFAULT_WIDTH: usize = 80;

/// Below this nothing could be told.
const MIN_WIDTH: usize = 40;
