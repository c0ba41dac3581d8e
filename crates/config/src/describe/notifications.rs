//! Webhooks and the promise in words.

use crate::settings::{NotificationEvent, Webhook};
use tidegate_policy::promise::Promise;

/// Returns where notifications are sent, and of which events.
pub(super) fn webhook(webhook: &Webhook) -> String {
    let Webhook { url, events, has_summary, .. } = webhook;
    let names: Vec<&str> = events.iter().map(|event| event.name()).collect();
    let events = match names.len() == NotificationEvent::ALL.len() {
        true => "all events".to_owned(),
        false => names.join(", "),
    };
    format!("notifications to {url}: {events}{}", if *has_summary { ", a summary of each day" } else { "" })
}

/// Returns what is promised; `None` if nothing is.
pub(super) fn promise(promise: &Promise) -> Option<String> {
    let Promise { people_refused, search_served, left_over } = promise;
    let figures = [
        people_refused.map(|share| format!("at most {share} of people's pages refused")),
        search_served
            .map(|share| format!("at least {share} of the pages of verified search engines served in each hour")),
        left_over.map(|share| format!("at most {share} of the limit left over")),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    (!figures.is_empty()).then(|| format!("promise: {}", figures.join(", ")))
}
