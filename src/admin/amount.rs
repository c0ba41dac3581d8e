//! Units in the documents of the admin API.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::borrow::Cow;
use std::fmt;
use tidegate_policy::Units;
use tidegate_replay::terminal::decimal;

/// Units as a JSON number: `12`, not `12.0`, and `12.25`; displayed as `6,120.25`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Amount(Number);

impl Amount {
    /// Creates an amount that may be negative.
    pub(super) fn from_signed_milli(milli: i64) -> Self {
        Self(Number::from_f64(milli as f64 / 1000.0).expect("finite"))
    }

    /// Converts the amount to units; `None` if it is negative.
    pub(crate) fn units(&self) -> Option<Units> {
        self.0.to_string().parse().ok()
    }

    /// Returns the word behind the amount: `unit` for 1.
    pub(crate) fn noun(&self) -> &'static str {
        self.units().unwrap_or_default().noun()
    }

    pub(crate) fn as_f64(&self) -> f64 {
        self.0.as_f64().unwrap_or_default()
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.as_f64() == 0.0
    }
}

impl From<Units> for Amount {
    fn from(units: Units) -> Self {
        match units.milli() % 1000 {
            0 => Self(units.floor().into()),
            _ => Self(Number::from_f64(units.as_f64()).expect("finite")),
        }
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number" })
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
