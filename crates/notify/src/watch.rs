//! Finds the events that have begun, each once.

use crate::conditions::{self, Condition};
use crate::notification::{Notification, NotificationKind};
use crate::observation::{Observation, QuotaUsage, Refusals};
use crate::promise::PromiseWatch;
use crate::summary::DaySummary;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tidegate_config::settings::NotificationEvent;
use tidegate_policy::{Timestamp, Units};

/// Finds the events that have begun since the last observation.
///
/// An event of a window is returned once in it, any other when it begins and once a day while it lasts. None is returned twice
/// in an hour.
#[derive(Debug, Default)]
pub struct Watch {
    state: WatchState,
    /// Requests of people in the last minutes: time since the start, and count since the start.
    people: VecDeque<(Duration, Refusals)>,
    /// Time since the start at which the troubles of the origin began.
    troubles: BTreeMap<String, Duration>,
    /// Overrun and units without a route of each quota at the start of its window.
    window_starts: BTreeMap<String, (Option<Timestamp>, (Units, Units))>,
}

/// What must survive a restart, so that nothing is said twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchState {
    sent: BTreeMap<String, Sent>,
    pub(super) day: DaySummary,
    promise: PromiseWatch,
}

/// The last notification of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sent {
    /// Time, in seconds since 1970.
    at: u64,
    /// Start of its window, in seconds since 1970; `None` for an event that lasts.
    window: Option<u64>,
    /// True if its condition held at the last observation.
    holds: bool,
}

/// Time over which the refusals of people are counted.
const PEOPLE_SPAN: Duration = Duration::from_secs(600);

/// Time after which an event that began again is sent again.
const MIN_PAUSE: Duration = Duration::from_secs(3600);

/// Time after which an event that lasts is sent again.
const REPEAT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Time after which an event that does not hold is forgotten: more than the longest window.
const FORGET_AFTER: Duration = Duration::from_secs(400 * 24 * 3600);

/// Maximum number of events remembered. Their subjects are names of the configuration.
const MAX_SENT: usize = 8192;

impl Watch {
    /// Continues from a stored state.
    pub fn new(state: WatchState) -> Self {
        Self { state, ..Self::default() }
    }

    /// Returns what must survive a restart.
    pub fn state(&self) -> &WatchState {
        &self.state
    }

    /// Returns what the windows keep of the promise.
    pub fn promise(&self) -> &PromiseWatch {
        &self.state.promise
    }

    /// Returns the events that have begun, and the summary of a day that has ended.
    pub fn observe(&mut self, observation: &Observation) -> Vec<Notification> {
        let now = observation.at.seconds();
        // A clock that was ahead holds nothing back for longer than a pause.
        self.state.sent.values_mut().for_each(|sent| sent.at = sent.at.min(now));
        self.state.promise.observe(observation);
        let conditions = self.conditions(observation);
        let mut held = BTreeSet::new();
        let mut notifications = Vec::new();
        for condition in conditions {
            let key = key(condition.event, &condition.subject);
            if self.begins(&key, &condition, observation.at) {
                notifications.push(Notification {
                    kind: NotificationKind::Event(condition.event),
                    subject: condition.subject,
                    at: observation.at,
                    text: condition.text,
                    figures: condition.figures,
                });
            }
            held.insert(key);
        }
        self.state.sent.retain(|key, sent| {
            sent.holds = held.contains(key);
            sent.holds || now.saturating_sub(sent.at) < FORGET_AFTER.as_secs()
        });
        notifications.extend(self.state.day.observe(observation));
        notifications
    }

    fn conditions(&mut self, observation: &Observation) -> Vec<Condition> {
        let Observation { quotas, uptime, .. } = observation;
        let mut conditions: Vec<Condition> = quotas.iter().flat_map(conditions::levels).collect();
        for quota in quotas {
            let since = self.counts_at_window_start(quota);
            conditions.extend(conditions::unknown_costs(quota, since));
        }
        self.window_starts.retain(|name, _| quotas.iter().any(|quota| quota.name == *name));
        conditions.extend(conditions::people_refused(self.recent_people(*uptime, observation.people)));
        for trouble in &observation.origin_troubles {
            let since = *self.troubles.entry(trouble.subject.clone()).or_insert(*uptime);
            if uptime.saturating_sub(since) >= trouble.min_duration {
                conditions.push(conditions::origin_down(trouble));
            }
        }
        self.troubles.retain(|subject, _| observation.origin_troubles.iter().any(|it| it.subject == *subject));
        conditions.extend(conditions::at_present(observation));
        conditions.extend(conditions::promise_missed(&self.state.promise, observation));
        conditions
    }

    /// Returns true if the event has not been sent yet, and remembers that it is.
    fn begins(&mut self, key: &str, condition: &Condition, at: Timestamp) -> bool {
        let (now, window) = (at.seconds(), condition.window.map(Timestamp::seconds));
        let pause = |sent: &Sent| if sent.holds { REPEAT_AFTER } else { MIN_PAUSE };
        let is_new = match self.state.sent.get(key) {
            None => self.state.sent.len() < MAX_SENT,
            // A clock that was set back leads to no second notification.
            Some(sent) if window.is_some() => {
                window != sent.window && now.saturating_sub(sent.at) >= MIN_PAUSE.as_secs()
            }
            Some(sent) => now.saturating_sub(sent.at) >= pause(sent).as_secs(),
        };
        if is_new {
            self.state.sent.insert(key.to_owned(), Sent { at: now, window, holds: true });
        }
        is_new
    }

    /// Returns overrun and units without a route of a quota at the start of its window, as far as this process knows.
    fn counts_at_window_start(&mut self, quota: &QuotaUsage) -> (Units, Units) {
        let counts = (quota.overrun, quota.unrouted);
        match self.window_starts.get_mut(&quota.name) {
            // All that this process has counted belongs to the first window that it sees.
            None => {
                let none = (Units::ZERO, Units::ZERO);
                self.window_starts.insert(quota.name.clone(), (quota.window_start, none));
                none
            }
            Some((start, at_start)) => {
                if *start != quota.window_start {
                    (*start, *at_start) = (quota.window_start, counts);
                }
                *at_start
            }
        }
    }

    /// Returns the requests of people in the last minutes.
    fn recent_people(&mut self, uptime: Duration, count: Refusals) -> Refusals {
        self.people.push_back((uptime, count));
        while self.people.front().is_some_and(|(at, _)| uptime.saturating_sub(*at) > PEOPLE_SPAN) {
            self.people.pop_front();
        }
        // A process that is younger than that span has counted from zero.
        let first =
            self.people.front().filter(|_| uptime > PEOPLE_SPAN).map_or_else(Refusals::default, |(_, first)| *first);
        count.since(first)
    }
}

fn key(event: NotificationEvent, subject: &str) -> String {
    format!("{} {subject}", event.name())
}

#[cfg(test)]
mod tests;
