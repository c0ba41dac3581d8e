//! What people do on this site: whether they load pictures and styles through the gate, and whether their browsers say
//! which page led them on. A site may keep its pictures elsewhere or forbid referers; then their absence means nothing.

use super::decay_factor;
use crate::policy::Timestamp;
use std::time::Duration;

/// What a client, once, has shown of the customs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineSample {
    /// It loads what belongs to the pages.
    LoadsAssets,
    /// It goes from page to page as people do, and loads nothing that belongs to them.
    NoAssets,
    /// It says which page of this site led it on.
    SendsReferer,
    /// It loads what belongs to several pages, and none of them led to another.
    NoReferer,
}

/// What the witnesses of late have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SiteBaseline {
    assets: BaselineRate,
    links: BaselineRate,
}

/// Who did so and who did not, in decayed counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct BaselineRate {
    since: Timestamp,
    yes: f32,
    no: f32,
}

/// How much may be expected of a person on this site, from 0 (nothing) to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedBehavior {
    /// To load what belongs to the pages.
    pub assets: f32,
    /// To come from one page to the next.
    pub links: f32,
}

impl SiteBaseline {
    /// Hears one more witness.
    pub fn record(&mut self, witness: BaselineSample, now: Timestamp, half_life: Duration) {
        let (custom, yes) = match witness {
            BaselineSample::LoadsAssets => (&mut self.assets, true),
            BaselineSample::NoAssets => (&mut self.assets, false),
            BaselineSample::SendsReferer => (&mut self.links, true),
            BaselineSample::NoReferer => (&mut self.links, false),
        };
        custom.record(yes, now, half_life);
    }

    /// What is expected, as far as there are witnesses enough.
    pub fn expected(&self) -> ExpectedBehavior {
        ExpectedBehavior { assets: self.assets.confidence(), links: self.links.confidence() }
    }
}

impl BaselineRate {
    fn record(&mut self, yes: bool, now: Timestamp, half_life: Duration) {
        let left = decay_factor(now.saturating_duration_since(self.since), half_life);
        self.since = self.since.max(now);
        (self.yes, self.no) = (self.yes * left, self.no * left);
        *(if yes { &mut self.yes } else { &mut self.no }) += 1.0;
    }

    /// What nearly all do is expected in full, what two of three do not at all.
    fn confidence(&self) -> f32 {
        let witnesses = self.yes + self.no;
        if witnesses < MIN_SAMPLES { 0.0 } else { ((self.yes / witnesses - 0.65) / 0.25).clamp(0.0, 1.0) }
    }
}

/// Fewer witnesses prove nothing; decayed, so a little less than five.
const MIN_SAMPLES: f32 = 4.5;
