//! What a gateway shows at one time.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use std::time::Duration;
use tidegate_policy::promise::Promise;
use tidegate_policy::{Timestamp, Units};

/// State of a gateway at one time.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Time.
    pub at: Timestamp,
    /// Time since the start of the process, which the wall clock does not change.
    pub uptime: Duration,
    /// Calendar day in the time zone of the system, such as `2026-11-27`.
    pub day: String,
    /// Quotas of the current rules.
    pub quotas: Vec<QuotaUsage>,
    /// Requests of people since the process start.
    pub people: Refusals,
    /// Requests of all others since the process start.
    pub others: Refusals,
    /// What is wrong with the origin at present.
    pub origin_troubles: Vec<Trouble>,
    /// Longest time for which one page has been refused to a verified crawler, by its operator.
    pub longest_refusals: Vec<(String, Duration)>,
    /// Certificates of the listeners.
    pub certificates: Vec<Certificate>,
    /// Errors of the last reload, one per line, if it failed.
    pub reload_error: Option<String>,
    /// Requests for pages since the process start.
    pub pages: PageCounts,
    /// What the policy promises.
    pub promise: Promise,
    /// Start of the last window that missed the promise, and what would have kept it, once that is known.
    pub remedy: Option<(Timestamp, String)>,
}

/// Usage of a quota.
#[derive(Clone, Debug, Default)]
pub struct QuotaUsage {
    /// Name of the quota.
    pub name: String,
    /// Limit of the window.
    pub limit: Units,
    /// Units settled in the window.
    pub used: Units,
    /// Start of the window; `None` if it slides.
    pub window_start: Option<Timestamp>,
    /// End of the window.
    pub window_end: Timestamp,
    /// Units that the origin spent beyond the limit, since the process start.
    pub overrun: Units,
    /// Units that the origin reported for paths without a route cost, since the process start; zero if no route costs units of
    /// the quota: the costs of all paths are learned then.
    pub unrouted: Units,
}

/// Requests for pages, those with a cost, since the process start.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageCounts {
    /// Of people; refused ones without those of clients that have used their share.
    pub people: Refusals,
    /// Of verified search engines.
    pub search: Refusals,
    /// Refusals that saved units, of all clients.
    pub saving_refusals: u64,
}

/// Number of requests, and of those that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// All requests.
    pub requests: u64,
    /// Refused ones.
    pub refused: u64,
}

/// Condition of the origin that becomes an event when it lasts.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What it concerns: the origin, one of its servers, or a scope.
    pub subject: String,
    /// What is wrong, as the rest of a sentence that begins with the subject.
    pub text: String,
    /// Time for which it lasts before it is an event.
    pub min_duration: Duration,
}

/// A certificate of a listener.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// First name of the certificate.
    pub domain: String,
    /// End of its validity.
    pub expires_at: Timestamp,
}

impl Refusals {
    /// Returns the requests since `earlier`, of the same process.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            refused: self.refused.saturating_sub(earlier.refused),
        }
    }

    /// Returns the share that was refused, in percent, like `1.3 %`.
    pub(super) fn refused_percent(self) -> String {
        format!("{:.1} %", 100.0 * self.refused as f64 / self.requests.max(1) as f64)
    }
}

impl AddAssign for Refusals {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.refused += other.refused;
    }
}
