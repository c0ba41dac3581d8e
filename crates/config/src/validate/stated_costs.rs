//! Validates what routes ask of bodies of requests: the costs that they state (`cost.QUOTA.json`), and conditions (`json`).

use super::diagnostics::Diagnostics;
use super::spelling::check_patterns;
use crate::raw::route_cost::StatedCost;
use crate::raw::route_json::JsonConditions;
use crate::scalars::JsonValue;
use crate::serde_forms::OneOrMany;
use crate::setting_path::SettingPath;
use tidegate_body_cost::{CostPath, MAX_PATHS};
use tidegate_policy::cost::RequestedCost;
use tidegate_policy::request_body::JsonCondition;

/// Returns what bodies state, and reports invalid paths.
pub(super) fn stated_cost(raw: &StatedCost, path: &SettingPath, report: &mut Diagnostics) -> RequestedCost {
    let (paths, at) = (&raw.json.0, path.json());
    if paths.is_empty() && raw.per_byte.is_zero() {
        report.error(path, "found neither json nor per_byte", "write the path of a number, such as json: max_tokens");
    }
    if paths.len() > MAX_PATHS {
        report.error(&at, format!("{} paths, at most {MAX_PATHS} are possible", paths.len()), "write fewer");
    }
    for (index, text) in paths.iter().enumerate() {
        let at = if paths.len() == 1 { at.clone() } else { at.index(index) };
        check_path(text, &at, report);
    }
    RequestedCost { paths: paths.clone(), per_byte: raw.per_byte, default: raw.default }
}

/// Returns the conditions on the body, and reports invalid ones.
pub(super) fn json_conditions(
    raw: &JsonConditions,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Vec<JsonCondition> {
    let conditions = &raw.0.0;
    if conditions.len() > MAX_PATHS {
        report.error(path, format!("{} paths, at most {MAX_PATHS} are possible", conditions.len()), "write fewer");
    }
    let condition = |(text, values): &(String, OneOrMany<JsonValue>)| {
        let at = path.entry(text);
        check_path(text, &at, report);
        if values.0.is_empty() {
            report.error(&at, "found no value", "write a value such as tools/call, or a list of values");
        }
        check_patterns(values.0.iter().map(|JsonValue(pattern)| pattern), &at, report);
        JsonCondition::new(text.clone(), values.0.iter().map(|JsonValue(pattern)| pattern.clone()).collect())
    };
    conditions.iter().map(condition).collect()
}

/// Reports a text that is no path of a value in the body of a request.
pub(super) fn check_path(text: &str, at: &SettingPath, report: &mut Diagnostics) {
    if let Err(error) = text.parse::<CostPath>() {
        report.error(at, format!("invalid path: {error}"), "write it like max_tokens, or params.name");
    }
}
