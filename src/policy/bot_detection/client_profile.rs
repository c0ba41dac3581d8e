//! What is kept of a client's requests: decayed counts, in 64 bytes.

use super::{
    BaselineSample, ClientHints, HeadersSeen, Referer, RequestFeatures, ResourceKind, ResponseOutcome, decay_since,
};
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
    pending_pages: u8,
    pending_since: u8,
    /// Pages asked for.
    pub(super) pages: f32,
    /// Those that were served whole, so that there was something to load for them, and time to.
    pub(super) served: f32,
    /// Those that a page of this site led to.
    pub(super) linked_pages: f32,
    /// Those that were not there, each once.
    pub(super) missing: f32,
    /// Those that cost something, each once.
    pub(super) costly: f32,
    /// What belongs to pages.
    pub(super) assets: f32,
    /// Looks at robots.txt.
    pub(super) robots_reads: f32,
    /// Steps into the trap.
    pub(super) honeypot_hits: f32,
    /// Seconds from one new page to the next: the mean of late, and the variance.
    pub(super) mean_interval: f32,
    pub(super) interval_variance: f32,
    /// How many pages there were, as far as a byte counts.
    pub(super) views: u8,
    /// The customs that it has been heard on.
    sampled: u8,
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
    pub fn record(
        &mut self,
        sight: &RequestFeatures,
        outcome: ResponseOutcome,
        half_life: Duration,
    ) -> Option<BaselineSample> {
        if !sight.is_informative(outcome) {
            return None;
        }
        self.decay(sight.at, half_life);
        match sight.aim {
            ResourceKind::Robots => self.robots_reads += 1.0,
            // Another site may have put the trap into its pages, for people to fall into.
            ResourceKind::Honeypot if sight.referer != Referer::External => self.honeypot_hits += 1.0,
            ResourceKind::Asset => {
                self.assets += 1.0;
                // One alone may be a picture that somebody else's page shows; of two, the first counts a little less by now.
                let several = self.views > 0 && self.assets > 1.5;
                return several.then(|| self.sample_once(ASSETS, BaselineSample::LoadsAssets)).flatten();
            }
            ResourceKind::Page(_) if sight.is_background_fetch() && self.loads_assets() => {}
            ResourceKind::Page(page) => return self.record_page(page, sight, outcome),
            ResourceKind::Honeypot | ResourceKind::Other => {}
        }
        None
    }

    /// The habits as they count at `now`.
    #[must_use]
    pub fn decayed(mut self, now: Timestamp, half_life: Duration) -> Self {
        self.decay(now, half_life);
        self
    }

    /// True when there is something that programs seldom do: what belongs to the pages was loaded, or links were followed.
    pub fn shows_human_traits(&self) -> bool {
        self.loads_assets() || self.follows_links()
    }

    /// The second of the last request.
    pub fn since(&self) -> u32 {
        self.since
    }

    pub(super) fn loads_assets(&self) -> bool {
        self.assets * RARE_RATIO > self.pages
    }

    pub(super) fn follows_links(&self) -> bool {
        self.linked_pages * RARE_RATIO > self.pages
    }

    fn decay(&mut self, now: Timestamp, half_life: Duration) {
        let Some(left) = decay_since(&mut self.since, now, half_life) else { return };
        if (self.since as u8).wrapping_sub(self.pending_since) >= ASSET_GRACE_S {
            self.served += f32::from(std::mem::take(&mut self.pending_pages));
        }
        for count in [
            &mut self.pages,
            &mut self.served,
            &mut self.linked_pages,
            &mut self.missing,
            &mut self.costly,
            &mut self.assets,
            &mut self.robots_reads,
            &mut self.honeypot_hits,
        ] {
            *count *= left;
        }
    }

    fn record_page(&mut self, page: u16, sight: &RequestFeatures, outcome: ResponseOutcome) -> Option<BaselineSample> {
        let first_time = !self.recent.contains(&page);
        if first_time {
            self.record_interval(sight.at);
            self.recent.rotate_right(1);
            self.recent[0] = page;
        }
        self.record_headers(sight);
        // Before this page is added: its assets cannot have come yet.
        let witness = self.baseline_sample(sight.referer);
        let one = |noticed: bool| f32::from(u8::from(noticed));
        self.views = self.views.saturating_add(1);
        self.pages += 1.0;
        if outcome == ResponseOutcome::Served {
            self.count_settled_page();
        }
        // Where nobody wrote it down, it is nothing to hold against anybody.
        self.linked_pages += one(matches!(sight.referer, Referer::Internal | Referer::Unknown));
        self.missing += one(first_time && outcome == ResponseOutcome::NotFound);
        self.costly += one(first_time && sight.costly);
        witness
    }

    /// Counts a page that was served; in full, once there was time to load what belongs to it.
    fn count_settled_page(&mut self) {
        if self.pending_pages == 0 {
            self.pending_since = self.since as u8;
        }
        match self.pending_pages.checked_add(1) {
            Some(pending_pages) => self.pending_pages = pending_pages,
            None => self.served += 1.0,
        }
    }

    /// What it shows of the customs by asking for one more page.
    fn baseline_sample(&mut self, referer: Referer) -> Option<BaselineSample> {
        match (self.views, referer) {
            (1.., Referer::Internal) if self.sampled & LINKS == 0 => {
                self.sample_once(LINKS, BaselineSample::SendsReferer)
            }
            (MIN_SAMPLE_PAGES.., _) if self.follows_links() => self.sample_once(ASSETS, BaselineSample::NoAssets),
            (MIN_SAMPLE_PAGES.., _) if self.loads_assets() => self.sample_once(LINKS, BaselineSample::NoReferer),
            _ => None,
        }
    }

    /// Each client is heard once on each custom.
    fn sample_once(&mut self, custom: u8, witness: BaselineSample) -> Option<BaselineSample> {
        let heard = self.sampled & custom != 0;
        self.sampled |= custom;
        (!heard).then_some(witness)
    }

    /// Learns the time between two pages; the same page again and again is a page that refreshes itself.
    fn record_interval(&mut self, at: Timestamp) {
        let now = (at.0 / 10_000_000) as u32;
        let mean_interval = now.wrapping_sub(self.last_page);
        self.last_page = now;
        // Half the range and more is a clock that was set back.
        if self.views == 0 || mean_interval > u32::MAX / 2 {
            return;
        }
        let gap = mean_interval as f32 / 100.0;
        if self.views > 4 && gap > self.mean_interval * PAUSE_RATIO {
            return;
        }
        let weight = (1.0 / f32::from(self.views)).max(1.0 / 16.0);
        let off = gap - self.mean_interval;
        self.mean_interval += off * weight;
        self.interval_variance = (1.0 - weight) * (self.interval_variance + weight * off * off);
    }

    fn record_headers(&mut self, sight: &RequestFeatures) {
        let RequestFeatures { browser, seen, .. } = sight;
        let weight = (1.0 / (f32::from(self.views) + 1.0)).max(1.0 / 8.0);
        let secure = seen.contains(HeadersSeen::TLS);
        self.old_http.update(seen.contains(HeadersSeen::HTTP_10), weight);
        if !seen.contains(HeadersSeen::INSPECTED) {
            return;
        }
        self.no_language.update(browser.sends_language && !seen.contains(HeadersSeen::LANGUAGE), weight);
        self.no_fetch.update(secure && browser.sends_fetch && !seen.contains(HeadersSeen::FETCH), weight);
        self.wrong_hints.update(
            match browser.hints {
                ClientHints::Unknown => false,
                ClientHints::Always => secure && !seen.contains(HeadersSeen::HINTS),
                ClientHints::Never => seen.contains(HeadersSeen::HINTS),
            },
            weight,
        );
        let bare = !seen.contains(HeadersSeen::ACCEPT) || !seen.contains(HeadersSeen::ENCODING);
        self.bare.update(browser.graphical && bare, weight);
    }
}

impl MovingRatio {
    fn update(&mut self, noticed: bool, weight: f32) {
        let (share, now) = (f32::from(self.0), if noticed { 255.0 } else { 0.0 });
        self.0 = (share + (now - share) * weight).round() as u8;
    }

    pub(super) fn ratio(self) -> f32 {
        f32::from(self.0) / 255.0
    }
}

/// One in so many is as good as never: a picture that a page's own address ends in, a link that was copied.
const RARE_RATIO: f32 = 20.0;

/// Seconds from the first of the young pages until they are held against a client: a class that opens a page together,
/// behind one address and with one browser, asks for all of it before the first picture.
const ASSET_GRACE_S: u8 = 4;

/// After so many pages the next one shows what a client does not do.
const MIN_SAMPLE_PAGES: u8 = 2;

/// The customs, as bits.
const ASSETS: u8 = 1;
const LINKS: u8 = 2;

/// So many times the usual gap is a pause, and not a part of the pace.
const PAUSE_RATIO: f32 = 8.0;
