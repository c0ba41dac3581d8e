//! The shown part of the state document. Fields that a gateway of another version does not send have defaults.

use serde::Deserialize;
use std::fmt;
use tidegate_policy::Units;
use tidegate_replay::terminal::decimal;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) time: String,
    pub(super) uptime_s: u64,
    pub(super) version: String,
    pub(super) revision: String,
    pub(super) listen: Vec<String>,
    pub(super) admin: Option<String>,
    pub(super) origin: Origin,
    pub(super) settings: Settings,
    pub(super) not_ready_reasons: Vec<String>,
    pub(super) ledger_error: Option<String>,
    pub(super) untrusted_proxy: Option<String>,
    pub(super) notes: Vec<String>,
    pub(super) quotas: Vec<Quota>,
    pub(super) scopes: Vec<Scope>,
    pub(super) connections: u64,
    pub(super) top_clients: Vec<Client>,
    pub(super) log_lines_dropped: u64,
    pub(super) corrections: Vec<Correction>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Origin {
    pub(super) authority: String,
    pub(super) addresses: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    pub(super) loaded_at: String,
    pub(super) last_reload_failed: Option<Failure>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    pub(super) time: String,
    pub(super) errors: String,
}

#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Quota {
    pub(super) name: String,
    pub(super) limit: Amount,
    #[serde(default = "default_true")]
    pub(super) enforce: bool,
    pub(super) used: Amount,
    pub(super) reserved: Amount,
    pub(super) remaining: Amount,
    #[serde(default)]
    pub(super) overrun: Amount,
    #[serde(default)]
    pub(super) lost: Amount,
    #[serde(default)]
    pub(super) drift: Amount,
    #[serde(default)]
    pub(super) closed_until: Option<String>,
    pub(super) window_end: String,
    #[serde(default)]
    pub(super) window_ends_in_s: u64,
    #[serde(default)]
    pub(super) pacing: Option<Pacing>,
    #[serde(default)]
    pub(super) classes: Vec<Class>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pacing {
    pub(super) mode: String,
    pub(super) planned: Amount,
    pub(super) earmarked: Amount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Plan {
    pub(super) admit_share: Option<f64>,
    pub(super) forecast_24h: Vec<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Class {
    pub(super) class: String,
    pub(super) charged: Amount,
    pub(super) shed: f64,
    pub(super) tier: u8,
    pub(super) plan: Option<Plan>,
    pub(super) guard_units: Amount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Scope {
    /// Name of the scope, or value of the partition.
    #[serde(alias = "partition")]
    pub(super) name: String,
    pub(super) inflight: u64,
    pub(super) queue_length: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) delay_s: Option<f64>,
    pub(super) backoff_s: Option<f64>,
    pub(super) backoff_level: Option<u32>,
    pub(super) controller: Option<String>,
    pub(super) partitions: Option<u64>,
    pub(super) busiest_partitions: Vec<Scope>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Client {
    pub(super) key: String,
    pub(super) class: String,
    pub(super) refused: u64,
    pub(super) bucket_remaining: Option<u64>,
    pub(super) limited_by: Option<String>,
    pub(super) limited_for_s: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Correction {
    pub(super) time: String,
    pub(super) quota: String,
    pub(super) from: Amount,
    pub(super) to: Amount,
    pub(super) peer: Option<String>,
    pub(super) token: bool,
    pub(super) by: Option<String>,
}

/// Units as in JSON; displayed as `6,120.25`.
#[derive(Clone, Debug, Deserialize)]
pub struct Amount(serde_json::Number);

impl Amount {
    /// Converts the amount to units; `None` if it is negative.
    pub fn units(&self) -> Option<Units> {
        self.0.to_string().parse().ok()
    }

    pub(super) fn as_f64(&self) -> f64 {
        self.0.as_f64().unwrap_or_default()
    }

    pub(super) fn is_zero(&self) -> bool {
        self.as_f64() == 0.0
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self(0.into())
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.units() {
            Some(units) => out.pad(&decimal(units)),
            None => out.pad(&self.0.to_string()),
        }
    }
}

fn default_true() -> bool {
    true
}

impl Scope {
    /// Returns the name of the controller that adapts the scope, if there is one.
    pub(super) fn active_controller(&self) -> Option<&str> {
        self.controller.as_deref().filter(|name| *name != "fixed")
    }

    pub(super) fn is_busy(&self) -> bool {
        self.inflight + self.queue_length.unwrap_or(0) > 0 || self.backoff_s.unwrap_or(0.0) > 0.0
    }
}
