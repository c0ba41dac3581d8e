//! What robots.txt asks of crawlers now: what the settings say, and where they leave it to the budget, what that affords.

use crate::config::Settings;
use crate::engine::QuotaView;
use crate::policy::crawl_delay::{AdvisedDelay, CrawlBudget, CrawlDelay, budgets};
use crate::policy::{ClassId, OperatorId, Timestamp, Units};
use crate::robots::RobotsDirectives;
use crate::verify::OperatorTable;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Before a whole day has been seen, nobody knows what people use of the budget.
const EXPERIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Remembers what was advised, because crawlers do.
#[derive(Default)]
pub(super) struct CrawlDelayAdviser(Mutex<BTreeMap<ClassId, AdvisedDelay>>);

/// What is asked, by operator and by the names of its crawlers.
pub(super) struct AdvertisedDelays {
    pub(super) of_operators: Vec<(OperatorId, u32)>,
    pub(super) wishes: RobotsDirectives,
}

impl CrawlDelayAdviser {
    /// Forgets what was advised under other settings.
    pub(super) fn begin_anew(&self) {
        self.0.lock().clear();
    }

    /// What is asked now. `quotas` as they stand after `uptime`.
    pub(super) fn asked(
        &self,
        settings: &Settings,
        operators: &OperatorTable,
        quotas: &[QuotaView],
        uptime: Timestamp,
    ) -> AdvertisedDelays {
        let delays = &settings.robots.delays;
        let seconds = |delay: CrawlDelay| match delay {
            CrawlDelay::Seconds(seconds) => Some(seconds),
            CrawlDelay::Auto(class) => {
                let others = |place| {
                    quotas.get(place).map_or(Units::ZERO, |quota| others(quota, class, settings, place, uptime))
                };
                let affords = budgets(&settings.rules, class, others).map(|budget| CrawlBudget::affords(&budget)).max()?;
                Some(self.advised(class, affords, uptime))
            }
        };
        let of_operators: Vec<(OperatorId, u32)> =
            delays.of_operators.iter().filter_map(|(operator, delay)| Some((*operator, seconds(*delay)?))).collect();
        let asked_of =
            |operator| of_operators.iter().find(|(known, _)| *known == operator).map(|(_, seconds)| *seconds);
        let crawlers = operators.tokens().filter_map(|(token, operator)| Some((token.to_owned(), asked_of(operator)?)));
        let wishes = RobotsDirectives {
            of_crawlers: crawlers.collect(),
            of_everybody: delays.of_everybody.and_then(seconds),
            trap: settings.robots.trap.clone(),
        };
        AdvertisedDelays { of_operators, wishes }
    }

    fn advised(&self, class: ClassId, seconds: u32, now: Timestamp) -> u32 {
        let mut advice = self.0.lock();
        let standing = advice.entry(class).or_insert(AdvisedDelay { seconds, since: now });
        *standing = standing.after(seconds, now);
        standing.seconds
    }
}

/// What all but `class` use of a quota in a window, once that is known.
fn others(quota: &QuotaView, class: ClassId, settings: &Settings, place: usize, uptime: Timestamp) -> Units {
    let seen = uptime.since(Timestamp::default());
    if seen < EXPERIENCE {
        return Units::ZERO;
    }
    let window = settings.rules.quotas[place].window.usual_length();
    let of_others = quota.by_class.iter().enumerate().filter(|(other, _)| *other != usize::from(class.0));
    let charged: u128 = of_others.map(|(_, of_class)| u128::from(of_class.charged.milli())).sum();
    let milli = charged * window.as_secs() as u128 / u128::from(seen.as_secs());
    Units::from_milli(u64::try_from(milli).unwrap_or(u64::MAX))
}
