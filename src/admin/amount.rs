//! Units as the documents of the admin listener show them.

use serde_json::{Value, json};
use tidegate_policy::Units;

/// Returns units as a JSON number: `12`, not `12.0`, and `12.25`.
pub(super) fn amount(units: Units) -> Value {
    match units.milli() % 1000 {
        0 => json!(units.floor()),
        _ => json!(units.as_f64()),
    }
}
