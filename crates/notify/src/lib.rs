//! Notifications: tells webhooks of events in a running gateway.
//!
//! [`Watch`] finds the events that have begun in what the gateway shows, an [`Observation`] every few seconds, and says each
//! once per window. [`Delivery`] sends a [`Notification`] to a webhook, and repeats what fails. No request waits for either.

mod conditions;
mod delivery;
mod message;
mod notification;
mod observation;
mod promise;
mod store;
mod summary;
mod watch;
mod webhook;

pub use delivery::{Delivery, DeliveryCounts};
pub use notification::{Notification, NotificationKind, select};
pub use observation::{Certificate, Observation, PageCounts, QuotaUsage, Refusals, Trouble};
pub use promise::{PromiseWatch, WindowCounts, missed_text};
pub use store::WatchStore;
pub use watch::{Watch, WatchState};
pub use webhook::{WebhookClient, WebhookError};
