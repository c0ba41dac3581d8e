//! Notifications to webhooks.

use super::ReceiverUrl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Webhook that is sent notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Where notifications are sent.
    pub url: ReceiverUrl,
    /// Form of a notification.
    pub format: NotificationFormat,
    /// Events that are sent, in the order of [`NotificationEvent::ALL`].
    pub events: Vec<NotificationEvent>,
    /// True if a summary of each day is sent.
    pub has_summary: bool,
    /// Authorities of the receiver, in PEM; `None` are the public ones.
    pub authority: Option<PathBuf>,
}

/// Form of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationFormat {
    /// An object with the event and its figures.
    Json,
    /// An object with the member `text`.
    Slack,
    /// Plain text.
    Text,
}

/// Event that is sent to webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum NotificationEvent {
    /// 80 % of a quota are used.
    Quota80,
    /// 95 % of a quota are used.
    Quota95,
    /// A quota is used up.
    QuotaSpent,
    /// The origin reported units beyond the limit, or many for paths without a route cost.
    UnknownCosts,
    /// People were refused.
    PeopleRefused,
    /// The origin does not respond, or a scope of it backs off.
    OriginDown,
    /// A verified crawler has been refused a page for too long.
    PageRefusedTooLong,
    /// A window has missed what the policy promises.
    PromiseMissed,
    /// A certificate ends soon.
    CertificateExpiring,
    /// The configuration has an error.
    ReloadFailed,
}

impl NotificationEvent {
    /// All events.
    pub const ALL: [Self; 10] = [
        Self::Quota80,
        Self::Quota95,
        Self::QuotaSpent,
        Self::UnknownCosts,
        Self::PeopleRefused,
        Self::OriginDown,
        Self::PageRefusedTooLong,
        Self::PromiseMissed,
        Self::CertificateExpiring,
        Self::ReloadFailed,
    ];

    /// Returns the name in the configuration and in notifications.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quota80 => "quota_80",
            Self::Quota95 => "quota_95",
            Self::QuotaSpent => "quota_spent",
            Self::UnknownCosts => "unknown_costs",
            Self::PeopleRefused => "people_refused",
            Self::OriginDown => "origin_down",
            Self::PageRefusedTooLong => "page_refused_too_long",
            Self::PromiseMissed => "promise_missed",
            Self::CertificateExpiring => "certificate_expiring",
            Self::ReloadFailed => "reload_failed",
        }
    }
}
