//! Delivery to one webhook: a bounded queue, and attempts until one succeeds.

use crate::notification::Notification;
use crate::webhook::{WebhookClient, WebhookError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// Maximum number of notifications that wait for one webhook.
const QUEUE_LENGTH: usize = 64;

/// Waits between the attempts: a receiver that restarts is back within a minute, one that is repaired within the half hour.
const WAITS: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1200),
];

/// Longest wait that a receiver may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(1200);

/// Queue of a webhook. Dropped, nothing more is sent.
#[derive(Debug)]
pub struct Delivery {
    queue: mpsc::Sender<Notification>,
    url: String,
    counts: Arc<DeliveryCounts>,
    /// Number of notifications that wait for the receiver.
    pending: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts of the notifications to all webhooks, since the process start.
#[derive(Debug, Default)]
pub struct DeliveryCounts {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl DeliveryCounts {
    /// Returns the number that were accepted.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number that were given up.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl Delivery {
    /// Starts a task that sends what [`Self::queue`] adds, one after the other.
    pub fn start(client: WebhookClient, counts: Arc<DeliveryCounts>) -> Self {
        let (queue, mut notifications) = mpsc::channel(QUEUE_LENGTH);
        let (url, pending) = (client.url().to_string(), Arc::<AtomicU64>::default());
        let (all, waiting) = (Arc::clone(&counts), Arc::clone(&pending));
        let task = tokio::spawn(async move {
            while let Some(notification) = notifications.recv().await {
                let result = send(&client, &notification).await;
                waiting.fetch_sub(1, Ordering::Relaxed);
                let name = notification.kind.name();
                match result {
                    Ok(()) => {
                        counts.sent.fetch_add(1, Ordering::Relaxed);
                        info!("Notification {name} sent to {}", client.url());
                    }
                    Err(error) => {
                        counts.failed.fetch_add(1, Ordering::Relaxed);
                        warn!("Notification {name} given up: {error}");
                    }
                }
            }
        });
        Self { queue, url, counts: all, pending, task }
    }

    /// Returns true if no notification waits for the receiver.
    pub fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// Adds a notification to the queue. If the queue is full, it is lost, and counts as failed.
    pub fn queue(&self, notification: Notification) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.queue.try_send(notification) {
            let name = error.into_inner().kind.name();
            self.pending.fetch_sub(1, Ordering::Relaxed);
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            warn!("Notification {name} lost: {QUEUE_LENGTH} others wait for {}", self.url);
        }
    }
}

/// Sends a notification until it is accepted, or another attempt has no use. Returns the last error.
async fn send(client: &WebhookClient, notification: &Notification) -> Result<(), WebhookError> {
    let mut attempts = 0;
    loop {
        let Err(error) = client.send(notification).await else { return Ok(()) };
        let Some(wait) = wait_after(&error, attempts) else { return Err(error) };
        warn!("Notification {} is sent again in {wait:?}: {error}", notification.kind.name());
        tokio::time::sleep(wait).await;
        attempts += 1;
    }
}

/// Returns the time until the next attempt, after `attempts` that failed before the one with this error; `None` if it would have
/// no use, or was the last.
fn wait_after(error: &WebhookError, attempts: usize) -> Option<Duration> {
    let wait = WAITS.get(attempts).copied().filter(|_| error.is_temporary())?;
    Some(error.retry_after().map_or(wait, |asked| asked.max(wait).min(MAX_RETRY_AFTER)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    const URL: &str = "https://hooks.example";

    fn status(code: u16, retry_after: Option<u64>) -> WebhookError {
        let status = StatusCode::from_u16(code).expect("a status");
        WebhookError::Status { url: URL.into(), status, retry_after: retry_after.map(Duration::from_secs) }
    }

    /// Returns the waits between the attempts, in seconds, if all of them fail with an error.
    fn waits(error: &WebhookError) -> Vec<u64> {
        (0..).map_while(|attempts| wait_after(error, attempts)).map(|wait| wait.as_secs()).collect()
    }

    #[test]
    fn only_what_may_succeed_later_is_sent_again() {
        let all = [1, 5, 30, 120, 600, 1200];
        assert_eq!(waits(&status(500, None)), all);
        assert_eq!(waits(&status(408, None)), all);
        assert_eq!(waits(&WebhookError::TimedOut(URL.into())), all);
        assert_eq!(waits(&status(404, None)), [0; 0]);
        assert_eq!(waits(&WebhookError::Redirect { url: URL.into(), status: StatusCode::FOUND }), [0; 0]);
    }

    #[test]
    fn receiver_delays_attempts_up_to_a_bound() {
        assert_eq!(waits(&status(429, Some(60))), [60, 60, 60, 120, 600, 1200]);
        assert_eq!(waits(&status(503, Some(u64::MAX))), [1200; 6]);
    }
}
