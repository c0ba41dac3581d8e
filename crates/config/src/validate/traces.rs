//! Validates `traces`.

use super::diagnostics::Diagnostics;
use super::receiver_url::parse_url;
use crate::raw::traces as raw;
use crate::setting_path::SettingPath;
use crate::settings::Traces;

const EXAMPLE: &str = "write it like http://127.0.0.1:4318";

pub(super) fn traces(raw: Option<&raw::TracesKeys>, report: &mut Diagnostics) -> Option<Traces> {
    let raw::TracesKeys { endpoint, sample, slow } = raw?;
    let path = SettingPath::ROOT.traces().endpoint();
    let Some(endpoint) = endpoint else {
        report.error(&path, "missing", format!("name the URL of the collector: {EXAMPLE}"));
        return None;
    };
    match parse_url(endpoint) {
        Ok(endpoint) => Some(Traces { endpoint, sample: *sample, slow: *slow }),
        Err(problem) => {
            report.error(&path, problem, EXAMPLE);
            None
        }
    }
}
