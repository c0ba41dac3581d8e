//! Summary of a day.

use crate::notification::{Notification, NotificationKind};
use crate::observation::{Observation, Refusals};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use tidegate_policy::Units;

/// Counts of the current day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DaySummary {
    /// The day; empty before the first observation.
    day: String,
    people: Refusals,
    others: Refusals,
    /// The largest usage and the limit of each quota, in thousandths of a unit.
    quotas: BTreeMap<String, (u64, u64)>,
    /// Counts of this process at the last observation; `None` before the first.
    #[serde(skip)]
    last: Option<(Refusals, Refusals)>,
}

impl DaySummary {
    /// Adds what has happened since the last observation. Returns the summary of a day that has ended.
    pub(super) fn observe(&mut self, observation: &Observation) -> Option<Notification> {
        // The clock of the process before was ahead.
        if self.last.is_none() && self.day > observation.day {
            *self = Self::default();
        }
        // A clock that is set back begins no new day.
        let has_ended = !self.day.is_empty() && self.day < observation.day;
        let summary = has_ended.then(|| self.notification(observation));
        if has_ended || self.day.is_empty() {
            *self = Self { day: observation.day.clone(), last: self.last, ..Self::default() };
        }
        let (people, others) = (observation.people, observation.others);
        let last = self.last.replace((people, others)).unwrap_or_default();
        self.people += people.since(last.0);
        self.others += others.since(last.1);
        for quota in &observation.quotas {
            let (used, limit) = self.quotas.entry(quota.name.clone()).or_default();
            (*used, *limit) = ((*used).max(quota.used.milli()), quota.limit.milli());
        }
        self.quotas.retain(|name, _| observation.quotas.iter().any(|quota| quota.name == *name));
        summary
    }

    fn notification(&self, observation: &Observation) -> Notification {
        let Self { day, people, others, quotas, .. } = self;
        let mut text = format!(
            "{day}: {} requests of people, {} refused; {} of others, {} refused.",
            people.requests,
            people.refused_percent(),
            others.requests,
            others.refused_percent()
        );
        let units = |milli: u64| Units::from_milli(milli);
        for (name, (used, limit)) in quotas {
            text += &format!(" Quota {name}: {} of {} {} used.", units(*used), units(*limit), units(*limit).noun());
        }
        let usage = |(name, (used, limit)): (&String, &(u64, u64))| {
            (name.clone(), json!({ "used": units(*used).as_f64(), "limit": units(*limit).as_f64() }))
        };
        let usage: serde_json::Map<_, _> = quotas.iter().map(usage).collect();
        Notification {
            kind: NotificationKind::Summary,
            subject: day.clone(),
            at: observation.at,
            text,
            figures: BTreeMap::from([("people", json!(people)), ("others", json!(others)), ("quotas", json!(usage))]),
        }
    }
}
