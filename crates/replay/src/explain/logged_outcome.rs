//! Logged outcome of a request.

use crate::log::{LogField, LogLine};
use std::time::Duration;
use tidegate_policy::Reason;
use tidegate_policy::cache::CacheFill;

/// Outcome of a request according to its log line.
#[derive(Clone, Debug)]
pub(super) struct LoggedOutcome {
    /// Response status.
    pub(super) status: u16,
    /// Fields that the line does not contain.
    pub(super) missing: Vec<LogField>,
    /// The gateway's decision; `None` if another server wrote the line.
    pub(super) decision: Option<LoggedDecision>,
}

/// A logged decision of the gateway.
#[derive(Clone, Debug)]
pub(super) struct LoggedDecision {
    pub(super) id: u64,
    /// Class of the client at that time.
    pub(super) class: String,
    /// Reason of the refusal; `None` if the request was admitted.
    pub(super) reason: Option<Reason>,
    /// Reason of the first rule in shadow mode that would have refused the request.
    pub(super) shadow_reason: Option<Reason>,
    /// `Retry-After` of the response, in seconds.
    pub(super) retry_after_s: Option<u64>,
    /// True if the gateway refreshed a stored response on its own.
    pub(super) is_refresh: bool,
    /// Time in the wait queue.
    pub(super) queue_wait: Duration,
    /// Scope that refused the request.
    pub(super) scope: Option<String>,
}

impl LoggedOutcome {
    pub(super) fn from_line(line: &LogLine<'_>) -> Self {
        let decision = line.native.as_ref().map(|native| LoggedDecision {
            id: native.id,
            class: native.class.to_string(),
            reason: native.reason.and_then(Reason::from_name),
            shadow_reason: native.shadow_reason.and_then(Reason::from_name),
            retry_after_s: native.retry_after_s,
            is_refresh: native.fill == Some(CacheFill::Refresh),
            queue_wait: native.scope_wait,
            scope: native.scope.as_ref().map(ToString::to_string),
        });
        Self { status: line.status, missing: line.missing.iter().collect(), decision }
    }
}

impl LoggedDecision {
    /// Returns true if the rules admitted the request and a scope refused it.
    pub(super) fn is_refused_by_scopes(&self) -> bool {
        self.reason.is_some_and(Reason::is_of_scope)
    }

    /// Returns true if a scope or a pacing plan refused the request. Their state is not in the log.
    pub(super) fn is_refused_by_live_state(&self) -> bool {
        self.is_refused_by_scopes() || self.reason == Some(Reason::Pacing)
    }

    /// Returns true if a rule refused the request, or would have, were shadow mode off.
    pub(super) fn is_refused_by(&self, reason: Reason) -> bool {
        [self.reason, self.shadow_reason].contains(&Some(reason))
    }

    /// Returns true if its quotas were charged.
    pub(super) fn was_charged(&self) -> bool {
        self.reason.is_none() || self.is_refused_by_scopes()
    }

    /// Returns `Retry-After` of the response; 0 if there was none.
    pub(super) fn retry_after(&self) -> Duration {
        Duration::from_secs(self.retry_after_s.unwrap_or_default())
    }
}
