//! How many pages are asked for in a day, by the clock that wrote the log.

use crate::policy::Timestamp;
use crate::terminal::thousands;
use jiff::tz::Offset;
use std::collections::BTreeMap;

/// The days of a log.
#[derive(Default)]
pub(super) struct Days {
    days: BTreeMap<i64, Day>,
    clocks: BTreeMap<i64, u64>,
    span: Option<(Timestamp, Timestamp)>,
}

/// The pages of one day.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Day {
    pub(super) pages: u64,
    /// Those of people.
    pub(super) people: u64,
}

/// What a day of the site needs.
#[derive(Debug)]
pub(super) struct Demand {
    /// Pages on the busiest day.
    pub(super) busiest: u64,
    /// The most pages of people on a day.
    pub(super) people: u64,
    /// How that was reckoned.
    pub(super) reckoned: String,
}

/// A time zone whose clocks show what the log shows.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) name: String,
    /// What to know of it.
    pub(super) remark: String,
}

impl Days {
    /// Takes a request's time, by a clock so many seconds east of Greenwich.
    pub(super) fn see(&mut self, at: Timestamp, east: i64, page_by_person: Option<bool>) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        if self.clocks.len() < MOST_CLOCKS || self.clocks.contains_key(&east) {
            *self.clocks.entry(east).or_default() += 1;
        }
        let day = (at.seconds() as i64 + east).div_euclid(DAY);
        if self.days.len() < MOST_DAYS || self.days.contains_key(&day) {
            let day = self.days.entry(day).or_default();
            day.pages += u64::from(page_by_person.is_some());
            day.people += u64::from(page_by_person == Some(true));
        }
    }

    /// From when to when it goes, as the log's own clock shows it.
    pub(super) fn span(&self) -> Option<[String; 2]> {
        let (first, last) = self.span?;
        Some([first, last].map(|at| self.civil(at).strftime("%-d %b %Y %H:%M").to_string()))
    }

    /// The pages of a day: those of the busiest, or where the log is shorter than a day, as many as a day would have.
    pub(super) fn demand(&self) -> Demand {
        let Some((first, last)) = self.span else {
            return Demand { busiest: 0, people: 0, reckoned: "the log is empty".into() };
        };
        let covered = last.since(first).as_secs().max(1);
        let most = |count: fn(&Day) -> u64| self.days.values().map(count).max().unwrap_or(0);
        let (busiest, people) = (most(|day| day.pages), most(|day| day.people));
        if covered >= DAY as u64 - ROUGHLY {
            let (most, usual) = (thousands(busiest), thousands(self.usual()));
            let reckoned = match self.days.len() {
                1 => format!("its only day had {most} requests for pages"),
                days => format!("the busiest of {days} days had {most} requests for pages, a usual one {usual}"),
            };
            return Demand { busiest, people, reckoned };
        }
        let all = |count: fn(&Day) -> u64| self.days.values().map(count).sum::<u64>();
        let hours = covered.max(LEAST).div_ceil(3600);
        let of_a_day = |pages: u64| pages * 24 / hours.max(1);
        let pages = all(|day| day.pages);
        let reckoned = format!(
            "it has {} requests for pages in about {hours} h; as many all day long would be {}",
            thousands(pages),
            thousands(of_a_day(pages))
        );
        Demand { busiest: of_a_day(pages), people: of_a_day(all(|day| day.people)), reckoned }
    }

    /// The zone of its clock.
    pub(super) fn zone(&self) -> Zone {
        let most = self.clocks.iter().max_by_key(|(east, count)| (**count, std::cmp::Reverse(**east)));
        let east = most.map_or(0, |(east, _)| *east);
        let written = format!("the log's clock shows {}", offset(east));
        let (name, remark) = match (east, east % 3600, self.clocks.len()) {
            (0, ..) => ("UTC".to_owned(), written),
            // POSIX counts these to the west.
            (_, 0, _) if (-12..=14).contains(&(east / 3600)) => (format!("Etc/GMT{:+}", -east / 3600), written),
            _ => match HALF_HOURS.iter().find(|(seconds, _)| *seconds == east) {
                Some((_, name)) => ((*name).to_owned(), written),
                None => ("UTC".to_owned(), format!("{written}, which is no zone's")),
            },
        };
        let remark = match self.clocks.len() {
            0 | 1 => remark,
            _ => format!("{remark} most of the time, but it is set: name your zone"),
        };
        Zone { name, remark }
    }

    /// The median of the days that the log has from morning to night.
    fn usual(&self) -> u64 {
        let Some((first, last)) = self.span else { return 0 };
        let begins_late = self.civil(first).hour() > 0;
        let ends_early = self.civil(last).hour() < 23;
        let whole = self.days.len().saturating_sub(usize::from(begins_late) + usize::from(ends_early));
        let mut pages: Vec<u64> = match whole {
            0 => self.days.values().map(|day| day.pages).collect(),
            _ => self.days.values().skip(usize::from(begins_late)).take(whole).map(|day| day.pages).collect(),
        };
        pages.sort_unstable();
        pages.get(pages.len() / 2).copied().unwrap_or(0)
    }

    fn civil(&self, at: Timestamp) -> jiff::civil::DateTime {
        let most = self.clocks.iter().max_by_key(|(_, count)| **count).map_or(0, |(east, _)| *east);
        let offset = Offset::from_seconds(most as i32).unwrap_or(Offset::UTC);
        let moment = jiff::Timestamp::from_second(at.seconds() as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        offset.to_datetime(moment)
    }
}

fn offset(east: i64) -> String {
    let sign = if east < 0 { '-' } else { '+' };
    format!("{sign}{:02}{:02}", east.abs() / 3600, east.abs() % 3600 / 60)
}

const DAY: i64 = 86_400;

/// A log that is rotated every day seldom begins with a request of its first minutes.
const ROUGHLY: u64 = 2 * 3600;

/// What is shorter than an hour says little of a day.
const LEAST: u64 = 3600;

/// More than a decade; what made-up times go beyond is not counted by day.
const MOST_DAYS: usize = 4096;

/// More than a server is ever set to.
const MOST_CLOCKS: usize = 64;

/// Zones off the full hour whose clocks are never changed.
const HALF_HOURS: [(i64, &str); 8] = [
    (-34_200, "Pacific/Marquesas"),
    (12_600, "Asia/Tehran"),
    (16_200, "Asia/Kabul"),
    (19_800, "Asia/Kolkata"),
    (20_700, "Asia/Kathmandu"),
    (23_400, "Asia/Yangon"),
    (31_500, "Australia/Eucla"),
    (34_200, "Australia/Darwin"),
];
