//! Manual corrections of quotas: each is logged (target `audit`), and the last ones are kept for the admin API.

use super::amount::Amount;
use super::time::Time;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tracing::info;

/// The last corrections since the process started.
pub(super) struct Corrections {
    last: Mutex<VecDeque<CorrectionDocument>>,
    /// True if every admin request must present the token.
    is_token_required: bool,
}

/// A manual correction of a quota.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CorrectionDocument {
    /// Time of the correction.
    #[schemars(with = "Time")]
    pub time: String,
    /// Name of the quota.
    pub quota: String,
    /// Usage before the correction, in units.
    pub from: Amount,
    /// Usage after the correction, in units.
    pub to: Amount,
    /// Address of the request's peer; for a Unix socket, its user.
    pub peer: Option<String>,
    /// True if the admin token was sent.
    pub token: bool,
    /// Name that the request gave; it is not verified.
    pub by: Option<String>,
}

impl Corrections {
    /// Creates an empty list. `token` is true if admin requests must present a token.
    pub(super) fn new(is_token_required: bool) -> Self {
        Self { last: Mutex::default(), is_token_required }
    }

    /// Logs the correction and stores it.
    pub(super) fn record(&self, correction: CorrectionDocument) {
        let token = self.is_token_required;
        let CorrectionDocument { quota, from, to, peer, by, .. } = &correction;
        let [from, to] = [from, to].map(|amount| amount.units().unwrap_or_default());
        info!(
            target: "audit",
            quota, %from, %to, peer, by, token,
            "Quota {quota} corrected from {from} to {to} by {}, from {}{}",
            by.as_ref().map_or("unknown".to_owned(), |name| format!("{name} (unverified)")),
            peer.as_deref().unwrap_or("an unknown address"),
            if token { ", with the token" } else { "" }
        );
        let mut last = self.last.lock();
        if last.len() == MAX_RECENT {
            last.pop_front();
        }
        last.push_back(CorrectionDocument { token, ..correction });
    }

    /// Returns the stored corrections, latest first.
    pub(super) fn list(&self) -> Vec<CorrectionDocument> {
        self.last.lock().iter().rev().cloned().collect()
    }
}

/// Number of corrections kept. The log has all of them.
const MAX_RECENT: usize = 20;
