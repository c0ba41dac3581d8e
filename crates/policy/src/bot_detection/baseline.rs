//! Baseline of normal behavior on this site: whether humans load assets through the gateway, and whether their browsers
//! send referers. A site may serve assets elsewhere or suppress referers; their absence is then no signal.

use super::decay_factor;
use super::distribution::Distribution;
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
    /// Clients that follow links, by their landings.
    landings: Distribution,
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
    /// Landings from which on a client is no person; 0 if unknown.
    pub landings: f32,
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

    /// Records the landings of a person who follows links.
    pub fn record_landings(&mut self, landings: f32, now: Timestamp, half_life: Duration) {
        self.landings.record(None, landings, now, half_life);
    }

    /// Returns the expected behavior; zero if there are too few samples.
    pub fn expected(&self) -> ExpectedBehavior {
        let landings = self.landings.upper_bound(RARE_SHARE).map_or(0.0, |bound| (bound * MARGIN).max(MIN_LANDINGS));
        ExpectedBehavior {
            assets: self.assets.counts().confidence(),
            links: self.links.counts().confidence(),
            landings,
        }
    }
}

/// Numbers of sampled clients that show a behavior, and of those that do not, with their decay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BaselineCounts {
    /// Clients that show the behavior.
    pub present: f32,
    /// Clients that do not show it.
    pub absent: f32,
}

/// What was learned of a site, for storage across restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearnedBaseline {
    /// Time of the last sample.
    pub updated_at: Timestamp,
    /// Loading the assets of pages.
    pub assets: BaselineCounts,
    /// Sending the referer of the previous page.
    pub links: BaselineCounts,
}

impl SiteBaseline {
    /// Returns what was learned, as of the last samples.
    pub fn learned(&self) -> LearnedBaseline {
        LearnedBaseline {
            updated_at: self.assets.updated_at.max(self.links.updated_at),
            assets: self.assets.counts(),
            links: self.links.counts(),
        }
    }

    /// Restores what an earlier process or a log has taught.
    ///
    /// Samples lose weight with the time since then, but not below [`MIN_RESTORED_SAMPLES`]: while no gateway runs, no
    /// client can show another behavior. As many clients that behave differently outvote them.
    pub fn restore(learned: &LearnedBaseline, now: Timestamp, half_life: Duration) -> Self {
        let factor = decay_factor(now.saturating_duration_since(learned.updated_at), half_life);
        let rate = |counts: BaselineCounts| {
            let BaselineCounts { present, absent } = counts.decayed(factor);
            BaselineRate { updated_at: now, present, absent }
        };
        Self { assets: rate(learned.assets), links: rate(learned.links), landings: Distribution::default() }
    }
}

impl LearnedBaseline {
    /// Returns what was learned with the weight of at most [`MIN_RESTORED_SAMPLES`] clients, the same as after a long
    /// stop. For logs of another server, which may see other requests than the gateway will.
    #[must_use]
    pub fn with_least_weight(&self) -> Self {
        Self { assets: self.assets.decayed(0.0), links: self.links.decayed(0.0), ..*self }
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.assets.samples() + self.links.samples() <= 0.0
    }
}

impl BaselineCounts {
    /// Returns the number of sampled clients.
    pub fn samples(&self) -> f32 {
        self.present + self.absent
    }

    /// Returns the counts times `factor`, but not less than [`MIN_RESTORED_SAMPLES`] of them.
    fn decayed(self, factor: f32) -> Self {
        let kept = (MIN_RESTORED_SAMPLES / self.samples().max(MIN_RESTORED_SAMPLES)).max(factor);
        Self { present: self.present * kept, absent: self.absent * kept }
    }

    /// Returns the confidence with which the behavior is expected of humans: 0 if at most 65 % of the clients show it
    /// or the samples are too few, 1 from 90 % on, linear in between.
    pub fn confidence(&self) -> f32 {
        if self.samples() < MIN_SAMPLES {
            return 0.0;
        }
        ((self.present / self.samples() - MAX_UNCERTAIN_RATIO) / CONFIDENCE_RANGE).clamp(0.0, 1.0)
    }
}

impl BaselineRate {
    fn counts(&self) -> BaselineCounts {
        BaselineCounts { present: self.present, absent: self.absent }
    }

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
}

/// Share of people with more landings than the bound, and the multiple of the bound that is still usual.
const RARE_SHARE: f32 = 0.005;
const MARGIN: f32 = 1.5;

/// Landings that are always usual.
const MIN_LANDINGS: f32 = 20.0;

/// Minimum number of samples for any confidence; slightly below five, since counts decay.
const MIN_SAMPLES: f32 = 4.5;

/// Number of samples that keep their weight while no gateway runs: enough for a confidence, few enough that the clients of
/// an hour outvote them.
const MIN_RESTORED_SAMPLES: f32 = 20.0;

/// Maximum ratio of clients that gives no confidence.
const MAX_UNCERTAIN_RATIO: f32 = 0.65;

/// Difference from this ratio to the one that gives full confidence.
const CONFIDENCE_RANGE: f32 = 0.25;
