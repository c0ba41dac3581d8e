//! What is kept of a client's requests: decayed counts, in 64 bytes.

use super::{ResourceKind, ClientHints, ResponseOutcome, Referer, HeadersSeen, RequestFeatures, BaselineSample, left_since};
use crate::policy::Timestamp;
use std::time::Duration;

/// A client's habits. Counts are decayed ones: what was noticed a half-life ago counts half.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientProfile {
    /// The second that the counts are of.
    since: u32,
    /// When the last new page was asked for, in hundredths of a second; goes round once in 497 days.
    last_page: u32,
    /// The last few pages, latest first.
    recent: [u16; 3],
    /// Pages so young that what belongs to them may still be on its way, and the second of the first, as far as a byte counts.
    young: u8,
    young_since: u8,
    /// Pages asked for.
    pub(super) pages: f32,
    /// Those that were served whole, so that there was something to load for them, and time to.
    pub(super) served: f32,
    /// Those that a page of this site led to.
    pub(super) linked: f32,
    /// Those that were not there, each once.
    pub(super) missing: f32,
    /// Those that cost something, each once.
    pub(super) costly: f32,
    /// What belongs to pages.
    pub(super) assets: f32,
    /// Looks at robots.txt.
    pub(super) robots: f32,
    /// Steps into the trap.
    pub(super) traps: f32,
    /// Seconds from one new page to the next: the mean of late, and the variance.
    pub(super) gap: f32,
    pub(super) gap_variance: f32,
    /// How many pages there were, as far as a byte counts.
    pub(super) views: u8,
    /// The customs that it has been heard on.
    told: u8,
    /// How many of the late pages lacked, or had, what their browser always, or never, sends.
    pub(super) no_language: MovingRatio,
    pub(super) no_fetch: MovingRatio,
    pub(super) wrong_hints: MovingRatio,
    pub(super) bare: MovingRatio,
    pub(super) old_http: MovingRatio,
}

/// A moving share, in 255ths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MovingRatio(u8);

impl ClientProfile {
    /// Adds what was seen, and what became of it. Returns what the client is a witness of, once, if it is one.
    #[must_use]
    pub fn learn(&mut self, sight: &RequestFeatures, outcome: ResponseOutcome, half_life: Duration) -> Option<BaselineSample> {
        if !sight.tells_something(outcome) {
            return None;
        }
        self.fade(sight.at, half_life);
        match sight.aim {
            ResourceKind::Robots => self.robots += 1.0,
            // Another site may have put the trap into its pages, for people to fall into.
            ResourceKind::Trap if sight.referer != Referer::Elsewhere => self.traps += 1.0,
            ResourceKind::Asset => {
                self.assets += 1.0;
                // One alone may be a picture that somebody else's page shows; of two, the first counts a little less by now.
                let several = self.views > 0 && self.assets > 1.5;
                return several.then(|| self.testify(ASSETS, BaselineSample::LoadsAssets)).flatten();
            }
            ResourceKind::Page(_) if sight.is_by_a_page() && self.loads_assets() => {}
            ResourceKind::Page(page) => return self.turn_to(page, sight, outcome),
            ResourceKind::Trap | ResourceKind::Other => {}
        }
        None
    }

    /// The habits as they count at `now`.
    #[must_use]
    pub fn at(mut self, now: Timestamp, half_life: Duration) -> Self {
        self.fade(now, half_life);
        self
    }

    /// True when there is something that programs seldom do: what belongs to the pages was loaded, or links were followed.
    pub fn has_marks_of_people(&self) -> bool {
        self.loads_assets() || self.follows_links()
    }

    /// The second of the last request.
    pub fn since(&self) -> u32 {
        self.since
    }

    pub(super) fn loads_assets(&self) -> bool {
        self.assets * SELDOM > self.pages
    }

    pub(super) fn follows_links(&self) -> bool {
        self.linked * SELDOM > self.pages
    }

    fn fade(&mut self, now: Timestamp, half_life: Duration) {
        let Some(left) = left_since(&mut self.since, now, half_life) else { return };
        if (self.since as u8).wrapping_sub(self.young_since) >= TIME_TO_LOAD_S {
            self.served += f32::from(std::mem::take(&mut self.young));
        }
        for count in [
            &mut self.pages,
            &mut self.served,
            &mut self.linked,
            &mut self.missing,
            &mut self.costly,
            &mut self.assets,
            &mut self.robots,
            &mut self.traps,
        ] {
            *count *= left;
        }
    }

    fn turn_to(&mut self, page: u16, sight: &RequestFeatures, outcome: ResponseOutcome) -> Option<BaselineSample> {
        let first_time = !self.recent.contains(&page);
        if first_time {
            self.keep_pace(sight.at);
            self.recent.rotate_right(1);
            self.recent[0] = page;
        }
        self.note_headers(sight);
        // Before this page is added: its assets cannot have come yet.
        let witness = self.witness(sight.referer);
        let one = |noticed: bool| f32::from(u8::from(noticed));
        self.views = self.views.saturating_add(1);
        self.pages += 1.0;
        if outcome == ResponseOutcome::Served {
            self.wait_for_assets();
        }
        // Where nobody wrote it down, it is nothing to hold against anybody.
        self.linked += one(matches!(sight.referer, Referer::Here | Referer::Unknown));
        self.missing += one(first_time && outcome == ResponseOutcome::Missing);
        self.costly += one(first_time && sight.costly);
        witness
    }

    /// Counts a page that was served; in full, once there was time to load what belongs to it.
    fn wait_for_assets(&mut self) {
        if self.young == 0 {
            self.young_since = self.since as u8;
        }
        match self.young.checked_add(1) {
            Some(young) => self.young = young,
            None => self.served += 1.0,
        }
    }

    /// What it shows of the customs by asking for one more page.
    fn witness(&mut self, referer: Referer) -> Option<BaselineSample> {
        match (self.views, referer) {
            (1.., Referer::Here) if self.told & LINKS == 0 => self.testify(LINKS, BaselineSample::TellsLinks),
            (PAGES_OF_A_WITNESS.., _) if self.follows_links() => self.testify(ASSETS, BaselineSample::LoadsNone),
            (PAGES_OF_A_WITNESS.., _) if self.loads_assets() => self.testify(LINKS, BaselineSample::TellsNone),
            _ => None,
        }
    }

    /// Each client is heard once on each custom.
    fn testify(&mut self, custom: u8, witness: BaselineSample) -> Option<BaselineSample> {
        let heard = self.told & custom != 0;
        self.told |= custom;
        (!heard).then_some(witness)
    }

    /// Learns the time between two pages; the same page again and again is a page that refreshes itself.
    fn keep_pace(&mut self, at: Timestamp) {
        let now = (at.0 / 10_000_000) as u32;
        let gap = now.wrapping_sub(self.last_page);
        self.last_page = now;
        // Half the range and more is a clock that was set back.
        if self.views == 0 || gap > u32::MAX / 2 {
            return;
        }
        let gap = gap as f32 / 100.0;
        if self.views > 4 && gap > self.gap * PAUSE {
            return;
        }
        let weight = (1.0 / f32::from(self.views)).max(1.0 / 16.0);
        let off = gap - self.gap;
        self.gap += off * weight;
        self.gap_variance = (1.0 - weight) * (self.gap_variance + weight * off * off);
    }

    fn note_headers(&mut self, sight: &RequestFeatures) {
        let RequestFeatures { browser, seen, .. } = sight;
        let weight = (1.0 / (f32::from(self.views) + 1.0)).max(1.0 / 8.0);
        let secure = seen.has(HeadersSeen::SECURE);
        self.old_http.note(seen.has(HeadersSeen::OLD_HTTP), weight);
        if !seen.has(HeadersSeen::LOOKED) {
            return;
        }
        self.no_language.note(browser.sends_language && !seen.has(HeadersSeen::LANGUAGE), weight);
        self.no_fetch.note(secure && browser.sends_fetch && !seen.has(HeadersSeen::FETCH), weight);
        self.wrong_hints.note(
            match browser.hints {
                ClientHints::Perhaps => false,
                ClientHints::Always => secure && !seen.has(HeadersSeen::HINTS),
                ClientHints::Never => seen.has(HeadersSeen::HINTS),
            },
            weight,
        );
        let bare = !seen.has(HeadersSeen::ACCEPT) || !seen.has(HeadersSeen::ENCODING);
        self.bare.note(browser.graphical && bare, weight);
    }
}

impl MovingRatio {
    fn note(&mut self, noticed: bool, weight: f32) {
        let (share, now) = (f32::from(self.0), if noticed { 255.0 } else { 0.0 });
        self.0 = (share + (now - share) * weight).round() as u8;
    }

    pub(super) fn ratio(self) -> f32 {
        f32::from(self.0) / 255.0
    }
}

/// One in so many is as good as never: a picture that a page's own address ends in, a link that was copied.
const SELDOM: f32 = 20.0;

/// Seconds from the first of the young pages until they are held against a client: a class that opens a page together,
/// behind one address and with one browser, asks for all of it before the first picture.
const TIME_TO_LOAD_S: u8 = 4;

/// After so many pages the next one shows what a client does not do.
const PAGES_OF_A_WITNESS: u8 = 2;

/// The customs, as bits.
const ASSETS: u8 = 1;
const LINKS: u8 = 2;

/// So many times the usual gap is a pause, and not a part of the pace.
const PAUSE: f32 = 8.0;
