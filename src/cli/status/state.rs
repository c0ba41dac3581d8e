//! The state of a gate, as far as it is shown. Whatever a gate of another version does not tell is left out.

use crate::policy::Units;
use crate::terminal::decimal;
use serde::Deserialize;
use std::fmt;

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
    pub(super) missing: Vec<String>,
    pub(super) ledger_trouble: Option<String>,
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
    pub(super) loaded: String,
    pub(super) last_reload_failed: Option<Failure>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    pub(super) time: String,
    pub(super) mistakes: String,
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
    pub(super) line: Amount,
    pub(super) aside: Amount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Plan {
    pub(super) share: Option<f64>,
    pub(super) next_hours: Vec<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Class {
    pub(super) class: String,
    pub(super) charged: Amount,
    pub(super) shed: f64,
    pub(super) tier: u8,
    pub(super) plan: Option<Plan>,
    pub(super) guarded: Amount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Scope {
    /// Of one of those by value, the value.
    #[serde(alias = "value")]
    pub(super) name: String,
    pub(super) inflight: u64,
    pub(super) waiting: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) delay_s: Option<f64>,
    pub(super) rests_for_s: Option<f64>,
    pub(super) level: Option<u32>,
    pub(super) controller: Option<String>,
    pub(super) values: Option<u64>,
    pub(super) busiest: Vec<Scope>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Client {
    pub(super) key: String,
    pub(super) class: String,
    pub(super) refused: u64,
    pub(super) tokens: Option<u64>,
    pub(super) limited_by: Option<String>,
    pub(super) lifts_in_s: Option<u64>,
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

/// Units as they are told; shown as `6,120.25`.
#[derive(Clone, Debug, Deserialize)]
pub struct Amount(serde_json::Number);

impl Amount {
    /// The same to calculate with; `None` where it is below nothing.
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
            Some(units) => out.pad(&decimal(&units.to_string())),
            None => out.pad(&self.0.to_string()),
        }
    }
}

fn default_true() -> bool {
    true
}

impl Scope {
    /// What finds out how hard it may press, where anything does.
    pub(super) fn active_controller(&self) -> Option<&str> {
        self.controller.as_deref().filter(|name| *name != "fixed")
    }

    pub(super) fn is_busy(&self) -> bool {
        self.inflight + self.waiting.unwrap_or(0) > 0 || self.rests_for_s.unwrap_or(0.0) > 0.0
    }
}
