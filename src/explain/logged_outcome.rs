//! What became of a request, by a log.

use crate::policy::Reason;
use crate::replay::log::{LogField, LogLine};
use std::time::Duration;

/// What a line says of its end.
#[derive(Clone, Debug)]
pub(super) struct LoggedOutcome {
    /// The status that the client got.
    pub(super) status: u16,
    /// What the line does not say.
    pub(super) missing: Vec<LogField>,
    /// What a gate decided, where the line is a gate's.
    pub(super) decided: Option<LoggedDecision>,
}

/// A gate's decision.
#[derive(Clone, Debug)]
pub(super) struct LoggedDecision {
    pub(super) id: u64,
    /// The class that it took the client for.
    pub(super) class: String,
    /// What said no; none where it was admitted.
    pub(super) reason: Option<Reason>,
    /// How long the client was told to stay away.
    pub(super) retry_after_s: Option<u64>,
    /// How long the request stood in line.
    pub(super) queue_wait: Duration,
    /// Which scope did not let it in.
    pub(super) scope: Option<String>,
}

impl LoggedOutcome {
    pub(super) fn of(line: &LogLine<'_>) -> Self {
        let decided = line.native.as_ref().map(|own| LoggedDecision {
            id: own.id,
            class: own.class.to_string(),
            reason: own.reason.and_then(|name| Reason::ALL.into_iter().find(|reason| reason.name() == name)),
            retry_after_s: own.retry_after_s,
            queue_wait: own.scope_wait,
            scope: own.scope.as_ref().map(ToString::to_string),
        });
        Self { status: line.status, missing: line.missing.iter().collect(), decided }
    }
}

impl LoggedDecision {
    /// True where the rules had admitted it, and its scopes could not take it in time.
    pub(super) fn is_refused_by_scopes(&self) -> bool {
        matches!(self.reason, Some(Reason::Throttle | Reason::Backoff))
    }

    /// True where a scope or a plan said no: where those stood then only the gate knew.
    pub(super) fn is_refused_by_live_state(&self) -> bool {
        self.is_refused_by_scopes() || self.reason == Some(Reason::Pacing)
    }

    /// True where its quotas were charged.
    pub(super) fn was_charged(&self) -> bool {
        self.reason.is_none() || self.is_refused_by_scopes()
    }

    /// How long it was told to stay away.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_secs(self.retry_after_s.unwrap_or_default())
    }
}
