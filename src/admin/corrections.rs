//! Manual corrections of quotas: each is logged (target `audit`), and the last ones are kept for the admin API.

use super::amount::Amount;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use tidegate_access_log::rfc3339;
use tidegate_policy::{Timestamp, Units};
use tracing::info;

/// The last corrections since the process started.
pub(super) struct Corrections {
    last: Mutex<VecDeque<Correction>>,
    /// True if every admin request must present the token.
    is_token_required: bool,
}

/// A manual correction of a quota.
#[derive(Debug)]
pub(super) struct Correction {
    pub(super) time: Timestamp,
    pub(super) quota: String,
    pub(super) from: Units,
    pub(super) to: Units,
    pub(super) actor: Actor,
}

/// A manual correction, in the documents of the admin API.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CorrectionDocument {
    pub(crate) time: String,
    pub(crate) quota: String,
    pub(crate) from: Amount,
    pub(crate) to: Amount,
    pub(crate) peer: Option<String>,
    pub(crate) token: bool,
    pub(crate) by: Option<String>,
}

/// Origin of a correction: the peer address or user, and a name that is not verified.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) peer: Option<String>,
    pub(super) claimed_name: Option<String>,
}

impl Corrections {
    /// Creates an empty list. `token` is true if admin requests must present a token.
    pub(super) fn new(is_token_required: bool) -> Self {
        Self { last: Mutex::default(), is_token_required }
    }

    /// Logs the correction and stores it.
    pub(super) fn record(&self, correction: Correction) {
        let Correction { quota, from, to, actor, .. } = &correction;
        let (peer, claimed_name) = (actor.peer.as_deref(), actor.claimed_name.as_deref());
        info!(
            target: "audit",
            quota, %from, %to, peer, by = claimed_name, token = self.is_token_required,
            "Quota {quota} corrected from {from} to {to} by {actor}{}",
            if self.is_token_required { ", with the token" } else { "" }
        );
        let mut last = self.last.lock();
        if last.len() == MAX_RECENT {
            last.pop_front();
        }
        last.push_back(correction);
    }

    /// Returns the stored corrections, latest first.
    pub(super) fn list(&self) -> Vec<CorrectionDocument> {
        let document = |correction: &Correction| CorrectionDocument {
            time: rfc3339(correction.time),
            quota: correction.quota.clone(),
            from: correction.from.into(),
            to: correction.to.into(),
            peer: correction.actor.peer.clone(),
            token: self.is_token_required,
            by: correction.actor.claimed_name.clone(),
        };
        self.last.lock().iter().rev().map(document).collect()
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.claimed_name {
            Some(name) => write!(out, "{name} (unverified), ")?,
            None => out.write_str("unknown, ")?,
        }
        match &self.peer {
            Some(peer) => write!(out, "from {peer}"),
            None => out.write_str("from an unknown address"),
        }
    }
}

/// Number of corrections kept. The log has all of them.
const MAX_RECENT: usize = 20;
