//! What was corrected by hand, and by whom: a line in the log for each, and the last few to look at.

use super::state::amount;
use crate::policy::{Timestamp, Units};
use crate::telemetry::rfc3339;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use tracing::info;

/// The last corrections since the process began.
pub(super) struct Corrections {
    last: Mutex<VecDeque<Correction>>,
    /// Whether everybody who gets here has shown the token.
    token: bool,
}

/// A quota that somebody corrected.
#[derive(Debug)]
pub(super) struct Correction {
    pub(super) time: Timestamp,
    pub(super) quota: String,
    pub(super) from: Units,
    pub(super) to: Units,
    pub(super) who: Actor,
}

/// Who did it: what is known, and what is claimed.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) peer: Option<SocketAddr>,
    pub(super) claimed: Option<String>,
}

impl Corrections {
    /// None yet. `token` says whether one has to be shown here.
    pub(super) fn new(token: bool) -> Self {
        Self { last: Mutex::default(), token }
    }

    /// Leaves a line in the log, and remembers the correction.
    pub(super) fn record(&self, correction: Correction) {
        let Correction { quota, from, to, who, .. } = &correction;
        let (peer, claimed) = (who.peer.map(|peer| peer.to_string()), who.claimed.as_deref());
        info!(
            target: "audit",
            quota, %from, %to, peer, by = claimed, token = self.token,
            "Quota {quota} corrected by hand from {from} to {to} by {who}{}",
            if self.token { ", with the token" } else { "" }
        );
        let mut last = self.last.lock();
        if last.len() == MAX_RECENT {
            last.pop_front();
        }
        last.push_back(correction);
    }

    /// What is remembered, the latest first.
    pub(super) fn list(&self) -> Vec<Value> {
        let show = |correction: &Correction| {
            json!({
                "time": rfc3339(correction.time),
                "quota": correction.quota,
                "from": amount(correction.from),
                "to": amount(correction.to),
                "peer": correction.who.peer.map(|peer| peer.to_string()),
                "token": self.token,
                "by": correction.who.claimed,
            })
        };
        self.last.lock().iter().rev().map(show).collect()
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.claimed {
            Some(name) => write!(out, "{name} (as claimed), ")?,
            None => out.write_str("somebody, ")?,
        }
        match self.peer {
            Some(peer) => write!(out, "from {peer}"),
            None => out.write_str("from an address unknown"),
        }
    }
}

/// As many as anybody wants to look at; the log has them all.
const MAX_RECENT: usize = 20;
