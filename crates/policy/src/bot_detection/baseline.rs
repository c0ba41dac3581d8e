//! Baseline of normal behavior on this site: whether humans load assets through the gateway, and whether their browsers
//! send referers. A site may serve assets elsewhere or suppress referers; their absence is then no signal.

use super::decay_factor;
use crate::Timestamp;
use std::time::Duration;

/// Contribution of one client to the baseline: at most one sample about assets, and one about referers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineSample {
    /// The client loads assets of pages.
    LoadsAssets,
    /// The client follows links like a human, but loads no assets.
    NoAssets,
    /// The client sends referers of this site.
    SendsReferer,
    /// The client loads assets of several pages, but sends no referer of this site.
    NoReferer,
}

/// Rates of normal behavior in recent samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SiteBaseline {
    /// Rate of clients that load the assets of pages.
    assets: BaselineRate,
    /// Rate of clients that send the referer of this site, as a followed link does.
    links: BaselineRate,
}

/// Decayed counts of clients that show a behavior, and of those that do not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct BaselineRate {
    /// Time to which both counts are decayed.
    updated_at: Timestamp,
    present: f32,
    absent: f32,
}

/// Confidence with which each behavior is expected of humans on this site, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedBehavior {
    /// Loading the assets of pages.
    pub assets: f32,
    /// Sending the referer of the previous page.
    pub links: f32,
}

impl SiteBaseline {
    /// Records `sample`. Earlier samples lose half of their weight in each `half_life`.
    pub fn record(&mut self, sample: BaselineSample, now: Timestamp, half_life: Duration) {
        let (rate, present) = match sample {
            BaselineSample::LoadsAssets => (&mut self.assets, true),
            BaselineSample::NoAssets => (&mut self.assets, false),
            BaselineSample::SendsReferer => (&mut self.links, true),
            BaselineSample::NoReferer => (&mut self.links, false),
        };
        rate.record(present, now, half_life);
    }

    /// Returns the expected behavior; zero if there are too few samples.
    pub fn expected(&self) -> ExpectedBehavior {
        ExpectedBehavior { assets: self.assets.confidence(), links: self.links.confidence() }
    }
}

impl BaselineRate {
    fn record(&mut self, present: bool, now: Timestamp, half_life: Duration) {
        let factor = decay_factor(now.saturating_duration_since(self.updated_at), half_life);
        self.updated_at = self.updated_at.max(now);
        self.present *= factor;
        self.absent *= factor;
        match present {
            true => self.present += 1.0,
            false => self.absent += 1.0,
        }
    }

    /// Returns the confidence: 0 if at most 65 % of the clients show the behavior, 1 from 90 % on, linear in between.
    fn confidence(&self) -> f32 {
        let samples = self.present + self.absent;
        if samples < MIN_SAMPLES {
            return 0.0;
        }
        ((self.present / samples - MAX_UNCERTAIN_RATIO) / CONFIDENCE_RANGE).clamp(0.0, 1.0)
    }
}

/// Minimum number of samples for any confidence; slightly below five, since counts decay.
const MIN_SAMPLES: f32 = 4.5;

/// Maximum ratio of clients that gives no confidence.
const MAX_UNCERTAIN_RATIO: f32 = 0.65;

/// Difference from this ratio to the one that gives full confidence.
const CONFIDENCE_RANGE: f32 = 0.25;
