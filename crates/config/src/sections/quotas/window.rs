//! Key `window` of a quota.

use crate::calendar::{CalendarUnit, CivilCalendar, UnknownZone};
use crate::scalars::{Span, TimeOfDay};
use crate::section::{any, at_least_a_second, section};
use crate::setting_path::SettingPath;
use crate::validate::diagnostics::Diagnostics;
use jiff::civil::Time;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::window as policy;

/// Number of sub-windows of a sliding window. The window errs low by at most one sub-window: with 60, 24 minutes of a
/// day.
const SUB_WINDOWS: u32 = 60;

// Not below 1s: RateLimit fields have whole seconds, and shorter intervals are for the `delay` of a scope.
section! {
    /// Window of a quota: exactly one of `calendar`, `fixed`, `first_use` and `sliding`.
    pub(crate) struct Window {
        /// Calendar unit of the window in a time zone: hour, day, week (from Monday) or month. Default none.
        calendar: Option<CalendarUnit>;
        /// IANA name of the time zone; with calendar only.
        zone: String = "UTC".to_owned() => String, any;
        /// Time of day of the renewal, such as `"06:30"`; with calendar only. With calendar: hour, the minute at which
        /// the hour starts, such as `"00:15"`.
        at: Time = Time::midnight() => TimeOfDay, any;
        /// Length of equal windows, counted from 1970-01-01T00:00:00Z. At least 1s. Default none.
        fixed: Option<Duration> = None => Span, at_least_a_second;
        /// Length of a window that starts with the first charge; the first charge after its end starts the next one. Each
        /// budget (per) has a window of its own. At least 1s. Default none.
        first_use: Option<Duration> = None => Span, at_least_a_second;
        /// Length of a sliding window: at most the limit in any span of this length. A charge counts for this length
        /// and up to a 60th of it more; in budgets (per) and shares of clients (per_client), up to a 12th. At least 1s.
        /// Default none.
        sliding: Option<Duration> = None => Span, at_least_a_second;
    }
}

/// A window of each kind.
const EXAMPLE: &str = "write day, { calendar: day, zone: America/Los_Angeles, at: \"00:00\" }, { fixed: 24h }, { first_use: 24h } or \
                       { sliding: 1m }";

/// Returns what to write in place of a text that is no window.
pub(crate) fn window_form(text: &str) -> String {
    let is_length = Span::deserialize(StrDeserializer::<serde::de::value::Error>::new(text)).is_ok();
    match text {
        "fixed" | "first_use" | "sliding" => format!("write it with its length, such as {{ {text}: 24h }}"),
        _ if is_length => format!("write {{ fixed: {text} }}, {{ first_use: {text} }} or {{ sliding: {text} }}"),
        _ => EXAMPLE.to_owned(),
    }
}

/// Returns the window; a placeholder after an error.
pub(super) fn window(keys: Option<&Window>, path: &SettingPath, report: &mut Diagnostics) -> policy::Window {
    let placeholder = policy::Window::Fixed { length: Duration::from_secs(1) };
    // Of a quota that is no map, which has an error of its own.
    let Some(keys) = keys else { return placeholder };
    let lengths = [(path.fixed(), keys.fixed), (path.first_use(), keys.first_use), (path.sliding(), keys.sliding)];
    let given: Vec<_> = lengths.into_iter().filter_map(|(path, length)| Some((path, length?))).collect();
    match (keys.calendar, &given[..]) {
        (Some(unit), []) => calendar_window(unit, keys, path, report).unwrap_or(placeholder),
        (None, [(length_path, length)]) => {
            let (kind, length) = (length_path.last_key(), *length);
            reject_calendar_keys(kind, path, report);
            match kind {
                "first_use" => policy::Window::FirstUse { length },
                "sliding" => policy::Window::Sliding { length, sub_windows: SUB_WINDOWS },
                _ => policy::Window::Fixed { length },
            }
        }
        (None, []) => {
            if !report.has_error_at(path) {
                report.error(path, "found none of calendar, fixed, first_use and sliding", EXAMPLE);
            }
            placeholder
        }
        (calendar, several) => {
            let mut found: Vec<&str> = calendar.map(|_| "calendar").into_iter().collect();
            found.extend(several.iter().map(|(path, _)| path.last_key()));
            report.error(path, format!("found {} at once", found.join(" and ")), "keep one of them");
            placeholder
        }
    }
}

fn reject_calendar_keys(kind: &str, path: &SettingPath, report: &mut Diagnostics) {
    for path in [path.zone(), path.at()] {
        if report.is_set(&path) {
            report.error(&path, format!("has no effect on a {kind} window"), "leave it out, or use calendar");
        }
    }
}

fn calendar_window(
    unit: CalendarUnit,
    Window { zone, at, .. }: &Window,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Option<policy::Window> {
    if unit == CalendarUnit::Hour && at.hour() != 0 {
        report.error(&path.at(), "an hourly window needs a minute, not an hour", "write it like \"00:15\"");
    }
    match CivilCalendar::new(unit, zone, *at) {
        Ok(civil) => Some(policy::Window::Calendar(Arc::new(civil))),
        Err(UnknownZone) => {
            let hint = "use an IANA name such as America/Los_Angeles";
            report.error(&path.zone(), format!("unknown time zone {zone:?}"), hint);
            None
        }
    }
}
