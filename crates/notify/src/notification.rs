//! A notification: an event with its figures, or a summary.

use serde_json::Value;
use std::collections::BTreeMap;
use tidegate_config::settings::{NotificationEvent, Webhook};
use tidegate_policy::Timestamp;

/// Message to an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// What it is about.
    pub kind: NotificationKind,
    /// Name of the quota, scope, operator or domain; empty if there is none.
    pub subject: String,
    /// Time of the event.
    pub at: Timestamp,
    /// One or more sentences.
    pub text: String,
    /// Figures of the text.
    pub figures: BTreeMap<&'static str, Value>,
}

/// Kind of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationKind {
    /// An event.
    Event(NotificationEvent),
    /// Summary of a day.
    Summary,
    /// Test of an administrator.
    Test,
}

impl NotificationKind {
    /// Returns the name in notifications.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Event(event) => event.name(),
            Self::Summary => "summary",
            Self::Test => "test",
        }
    }
}

impl Notification {
    /// Returns the notification of a test.
    pub fn test(at: Timestamp) -> Self {
        let text = "This is a test: notifications of Tidegate arrive here.".to_owned();
        Self { kind: NotificationKind::Test, subject: String::new(), at, text, figures: BTreeMap::new() }
    }

    /// Returns the share of a quota that the event is about; `None` for other events.
    fn quota_level(&self) -> Option<NotificationEvent> {
        match self.kind {
            NotificationKind::Event(
                level @ (NotificationEvent::Quota80 | NotificationEvent::Quota95 | NotificationEvent::QuotaSpent),
            ) => Some(level),
            _ => None,
        }
    }
}

/// Returns what of `notifications`, which have the same time, is for a webhook. Of several levels of one quota, only the
/// highest is: the others are passed.
pub fn select<'n>(notifications: &'n [Notification], webhook: &Webhook) -> Vec<&'n Notification> {
    let is_wanted = |notification: &&Notification| match notification.kind {
        NotificationKind::Event(event) => webhook.events.contains(&event),
        NotificationKind::Summary => webhook.has_summary,
        NotificationKind::Test => true,
    };
    let wanted: Vec<&Notification> = notifications.iter().filter(is_wanted).collect();
    let is_passed = |notification: &&Notification| {
        notification.quota_level().is_some_and(|level| {
            wanted.iter().any(|other| other.subject == notification.subject && other.quota_level() > Some(level))
        })
    };
    wanted.iter().filter(|notification| !is_passed(notification)).copied().collect()
}
