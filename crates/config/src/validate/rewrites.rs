//! Validates `rewrite` of routes: its target, and whether its rest is known.

use super::diagnostics::Diagnostics;
use super::redirects::rest_after;
use crate::raw::routes as raw;
use crate::setting_path::SettingPath;
use crate::settings::Rewrite;
use tidegate_policy::path::{PathPolicy, PathReadings};

const EXAMPLE: &str = "write a path such as /new/{rest}, or /new";

/// Returns the rewriting of a route; `None` if it has none.
pub(super) fn rewrite(route: &raw::Route, path: &SettingPath, report: &mut Diagnostics) -> Option<Rewrite> {
    let text = route.rewrite.as_ref()?;
    let (target, has_rest) = text.strip_suffix(Rewrite::REST).map_or((text.as_str(), false), |target| (target, true));
    let rest_after = rest_after(route.path.as_deref().unwrap_or_default());
    let found = match target_error(target, has_rest) {
        Some((message, hint)) => Some((format!("found {text:?}, {message}"), hint)),
        None if has_rest && rest_after.is_none() => {
            Some(("found {rest}, but match does not end with /**".to_owned(), "end match with /**, or remove {rest}"))
        }
        None => None,
    };
    if let Some((message, hint)) = found {
        report.error(path, message, hint);
    }
    Some(Rewrite { target: target.to_owned(), rest_after: rest_after.filter(|_| has_rest) })
}

/// Returns what is wrong with a target and what would do.
fn target_error(target: &str, has_rest: bool) -> Option<(&'static str, &'static str)> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@%/".contains(&byte);
    let is_read_alike = |readings: PathReadings| readings.normalized(target) == target && readings.others().is_empty();
    if !target.starts_with('/') {
        return Some(("which is no path", EXAMPLE));
    }
    if target.contains('{') {
        return Some(("which has a placeholder", "write {rest} at the end, or none"));
    }
    if target.contains(['?', '#']) {
        return Some(("which has a query", "write the path alone: the query of the request stays"));
    }
    if target.split('/').any(|segment| matches!(segment, "*" | "**")) {
        return Some(("in which * stands for nothing", EXAMPLE));
    }
    if target.contains(';') {
        return Some(("which has a parameter (;), which origins read in different ways", "write the path without ;"));
    }
    if !target.bytes().all(is_allowed) {
        return Some(("which has a character that no path has", "encode it, such as a space as %20"));
    }
    if !PathReadings::new(target, PathPolicy::Strict).is_ok_and(is_read_alike) {
        let hint = "write it without . and .., repeated slashes, %2F, and encoded characters that need no encoding";
        return Some(("which origins read in different ways", hint));
    }
    (has_rest && !target.ends_with('/')).then_some(("in which no slash precedes {rest}", EXAMPLE))
}
