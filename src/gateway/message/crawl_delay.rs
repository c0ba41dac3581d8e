//! Computes the crawl delays of robots.txt: those of the settings, and for `auto` those that the quotas permit.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_crawlers::robots::{RobotsDirectives, usage_lines};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_engine::QuotaView;
use tidegate_policy::crawl_delay::{AdvisedDelay, CrawlBudget, CrawlDelay, budgets};
use tidegate_policy::{ClassId, OperatorId, QuotaId, Timestamp, Units};

/// Minimum observation time before the usage of other classes counts: one day, so that all hours are covered.
const MIN_OBSERVATION: Duration = Duration::from_secs(24 * 60 * 60);

/// Computes delays for `crawl_delay: auto`, and keeps them stable because crawlers cache robots.txt.
#[derive(Default)]
pub(in crate::gateway) struct CrawlDelayAdviser(Mutex<BTreeMap<ClassId, AdvisedDelay>>);

/// Current delays by operator, and the directives by crawler name.
pub(in crate::gateway) struct AdvertisedDelays {
    pub(in crate::gateway) per_operator: Vec<(OperatorId, u32)>,
    pub(in crate::gateway) directives: RobotsDirectives,
}

impl CrawlDelayAdviser {
    /// Discards the advice given under previous settings.
    pub(in crate::gateway) fn reset(&self) {
        self.0.lock().clear();
    }

    /// Returns the current delays. `quotas` are the snapshots at `uptime`.
    pub(in crate::gateway) fn advertised(
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
                let others = |id: QuotaId| {
                    let view = quotas.iter().find(|view| view.name == settings.rules[id].name);
                    view.map_or(Units::ZERO, |quota| usage_of_others(quota, class, settings, id, uptime))
                };
                let affordable = budgets(&settings.rules, class, others)
                    .map(|budget| CrawlBudget::affordable_delay(&budget))
                    .max()?;
                Some(self.advised(class, affordable, uptime))
            }
        };
        let per_operator: Vec<(OperatorId, u32)> =
            delays.per_operator.iter().filter_map(|(operator, delay)| Some((*operator, seconds(*delay)?))).collect();
        let delay_of = |operator| per_operator.iter().find(|(id, _)| *id == operator).map(|(_, seconds)| *seconds);
        let crawlers =
            operators.product_tokens().filter_map(|(token, operator)| Some((token.to_owned(), delay_of(operator)?)));
        let directives = RobotsDirectives {
            per_crawler: crawlers.collect(),
            default: delays.default.and_then(seconds),
            honeypot: settings.robots.honeypot.clone(),
            usage: usage_lines(settings.robots.terms),
            license: settings.robots.license.clone(),
        };
        AdvertisedDelays { per_operator, directives }
    }

    fn advised(&self, class: ClassId, seconds: u32, now: Timestamp) -> u32 {
        let mut delays = self.0.lock();
        let advised = delays.entry(class).or_insert(AdvisedDelay { seconds, changed_at: now });
        *advised = advised.updated(seconds, now);
        advised.seconds
    }
}

/// Returns the units of a quota that all classes but `class` use per window; zero until that is known.
fn usage_of_others(quota: &QuotaView, class: ClassId, settings: &Settings, id: QuotaId, uptime: Timestamp) -> Units {
    let observed = uptime.saturating_duration_since(Timestamp::default());
    if observed < MIN_OBSERVATION {
        return Units::ZERO;
    }
    let window = settings.rules[id].window.nominal_length();
    let of_others = quota.by_class.iter().enumerate().filter(|(other, _)| *other != class.index());
    let charged: u128 = of_others.map(|(_, of_class)| u128::from(of_class.charged.milli())).sum();
    let milli = charged * window.as_secs() as u128 / u128::from(observed.as_secs());
    Units::from_milli(u64::try_from(milli).unwrap_or(u64::MAX))
}
