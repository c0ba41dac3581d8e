//! Validates the expected costs that bodies of requests state: `routes[].cost.QUOTA.json`.

use super::diagnostics::Diagnostics;
use crate::raw::route_cost::StatedCost;
use crate::setting_path::SettingPath;
use tidegate_body_cost::{CostPath, MAX_PATHS};
use tidegate_policy::cost::RequestedCost;

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

/// Reports a text that is no path of a value in the body of a request.
pub(super) fn check_path(text: &str, at: &SettingPath, report: &mut Diagnostics) {
    if let Err(error) = text.parse::<CostPath>() {
        report.error(at, format!("invalid path: {error}"), "write it like max_tokens, or params.name");
    }
}
