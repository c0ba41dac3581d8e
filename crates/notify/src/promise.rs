//! What the windows of the first quota keep of the promise.

use crate::observation::{Observation, PageCounts, Refusals};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_policy::promise::{KeptFigures, Promise, PromisedFigure};
use tidegate_policy::tier::Share;
use tidegate_policy::{Timestamp, Units};

/// Counts of the current window, and of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseWatch {
    current: Option<WindowCounts>,
    last: Option<WindowCounts>,
    #[serde(skip)]
    seen: Seen,
}

/// Counts of this process at the last observation.
#[derive(Clone, Debug, Default)]
struct Seen {
    at: Option<Timestamp>,
    pages: PageCounts,
    /// Name and overrun of the first quota.
    quota: Option<(String, Units)>,
}

/// What was seen is no part of the state.
impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

/// Counts of one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCounts {
    /// Name of the quota.
    #[serde(default)]
    quota: String,
    /// Start of the window, in seconds since 1970.
    start: u64,
    /// False if its usage at the end is not known: the gateway was not observed for a while, or the window is short.
    is_whole: bool,
    people: Refusals,
    /// Pages of search engines in the current hour, by its number since 1970.
    hour: (u64, Refusals),
    /// Pages of search engines in the hour with the largest share of refusals.
    worst_hour: Option<Refusals>,
    saving_refusals: u64,
    /// Usage, limit and overrun, in thousandths of a unit.
    used: u64,
    limit: u64,
    overrun: u64,
}

/// Number of pages in an hour below which its share says nothing. `tidegate plan` uses the same.
const MIN_PAGES_PER_HOUR: u64 = 10;

const SECONDS_PER_DAY: u64 = 24 * 3600;

/// Length of a window below which the usage at the last observation is not that at its end.
const MIN_LENGTH: Duration = Duration::from_secs(600);

/// Time without an observation after which the usage at the end of a window is not known.
const MAX_GAP: Duration = Duration::from_secs(300);

impl PromiseWatch {
    /// Adds what has happened since the last observation. Nothing is counted while nothing is promised.
    pub(super) fn observe(&mut self, observation: &Observation) {
        let Observation { at, pages, promise, quotas, .. } = observation;
        let now = Seen {
            at: Some(*at),
            pages: *pages,
            quota: quotas.first().map(|quota| (quota.name.clone(), quota.overrun)),
        };
        let seen = std::mem::replace(&mut self.seen, now);
        let Some(quota) = quotas.first().filter(|_| !promise.is_empty()) else {
            (self.current, self.last) = (None, None);
            return;
        };
        let day = at.seconds() - at.seconds() % SECONDS_PER_DAY;
        // A sliding window has no end: its days are compared.
        let start = quota.window_start.map_or(day, Timestamp::seconds);
        let is_continued = seen.at.is_none_or(|seen| at.saturating_duration_since(seen) <= MAX_GAP);
        // A window of another quota, of another length, or of a clock that was set back has not ended.
        let is_other = |window: &WindowCounts| window.quota != quota.name || window.start > start;
        self.current.take_if(|current| is_other(current));
        self.last.take_if(|last| is_other(last));
        if self.current.as_ref().is_none_or(|current| current.start < start) {
            let mut ended = self.current.take();
            if let Some(ended) = &mut ended {
                ended.end_hour();
                ended.is_whole &= is_continued && seen.at.is_some();
            }
            self.last = ended.or(self.last.take());
            let end = quota.window_start.map_or(start + SECONDS_PER_DAY, |_| quota.window_end.seconds());
            let is_whole = end.saturating_sub(start) >= MIN_LENGTH.as_secs();
            self.current = Some(WindowCounts { quota: quota.name.clone(), start, is_whole, ..WindowCounts::default() });
        }
        let Some(current) = &mut self.current else { return };
        current.is_whole &= is_continued;
        current.people += pages.people.since(seen.pages.people);
        let hour = at.seconds() / 3600;
        if current.hour.0 != hour {
            current.end_hour();
            current.hour = (hour, Refusals::default());
        }
        current.hour.1 += pages.search.since(seen.pages.search);
        current.saving_refusals += pages.saving_refusals.saturating_sub(seen.pages.saving_refusals);
        // Counts of this process, which has counted from zero.
        let overrun_before = match seen.quota {
            Some((name, overrun)) if name == quota.name => overrun,
            Some(_) => quota.overrun,
            None => Units::ZERO,
        };
        current.overrun += quota.overrun.saturating_sub(overrun_before).milli();
        (current.used, current.limit) = (quota.used.milli(), quota.limit.milli());
    }

    /// Returns the counts of the current window; `None` if nothing is promised.
    pub fn current(&self) -> Option<&WindowCounts> {
        self.current.as_ref()
    }

    /// Returns the counts of the last window; `None` if none has ended.
    pub fn last(&self) -> Option<&WindowCounts> {
        self.last.as_ref()
    }
}

impl WindowCounts {
    /// Returns the start of the window.
    pub fn start(&self) -> Timestamp {
        Timestamp::from_seconds(self.start)
    }

    /// Returns the figures of the window. What is left over is known when it `has_ended`.
    pub fn figures(&self, has_ended: bool) -> KeptFigures {
        let worst_hour = [self.worst_hour, Some(self.hour.1)].into_iter().flatten().filter(counts);
        let served = worst_hour.map(|hour| 1.0 - share(hour)).min_by(f64::total_cmp);
        let is_left_over = has_ended && self.is_whole && self.saving_refusals > 0 && self.limit > 0;
        KeptFigures {
            people_refused: (self.people.requests > 0).then(|| share(self.people)),
            search_served: served,
            left_over: is_left_over.then(|| self.limit.saturating_sub(self.used) as f64 / self.limit as f64),
            overrun: Units::from_milli(self.overrun),
        }
    }

    fn end_hour(&mut self) {
        let (_, hour) = std::mem::take(&mut self.hour);
        let is_worse = |worst: Refusals| share(hour) > share(worst);
        if counts(&hour) && self.worst_hour.is_none_or(is_worse) {
            self.worst_hour = Some(hour);
        }
    }
}

fn counts(hour: &Refusals) -> bool {
    hour.requests >= MIN_PAGES_PER_HOUR
}

fn share(pages: Refusals) -> f64 {
    pages.refused as f64 / pages.requests.max(1) as f64
}

/// Returns what a window has missed, as sentences; `None` if it has kept the promise.
pub fn missed_text(promise: &Promise, window: &WindowCounts) -> Option<String> {
    let kept = window.figures(true);
    let percent = |ratio: Option<f64>| format!("{:.1} %", ratio.unwrap_or_default() * 100.0);
    let promised = |share: Option<Share>| percent(share.map(Share::ratio));
    let sentence = |figure: PromisedFigure| match figure {
        PromisedFigure::PeopleRefused => format!(
            "{} of people's pages were refused (promised: at most {}).",
            percent(kept.people_refused),
            promised(promise.people_refused)
        ),
        PromisedFigure::SearchServed => format!(
            "Verified search engines were served {} of their pages in the worst hour (promised: at least {}).",
            percent(kept.search_served),
            promised(promise.search_served)
        ),
        PromisedFigure::LeftOver => format!(
            "{} of the limit were left over although pages were refused (promised: at most {}).",
            percent(kept.left_over),
            promised(promise.left_over)
        ),
        PromisedFigure::Overrun => {
            format!("The origin reported {} {} beyond the limit.", kept.overrun, kept.overrun.noun())
        }
    };
    let missed: Vec<String> = promise.missed(&kept).into_iter().map(sentence).collect();
    let start = rfc3339(window.start());
    (!missed.is_empty()).then(|| format!("The window from {start} missed the promise. {}", missed.join(" ")))
}

#[cfg(test)]
mod tests;
