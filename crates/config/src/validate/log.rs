//! Validates `log`.

use super::diagnostics::Diagnostics;
use crate::raw::log as raw;
use crate::setting_path::SettingPath;
use crate::settings::{AccessLog, AccessLogFormat, Log, LogRotation};
use std::path::Path;

/// Default file name of the access log, in `state_dir`.
const DEFAULT_ACCESS_LOG: &str = "access.log";

pub(super) fn log(raw: &raw::Log, state_dir: &Path, report: &mut Diagnostics) -> Log {
    let access = match &raw.access {
        None => {
            AccessLog::File { path: state_dir.join(DEFAULT_ACCESS_LOG), rotation: None, format: AccessLogFormat::Json }
        }
        Some(raw::Access::Off) => AccessLog::Off,
        Some(raw::Access::Stdout) => AccessLog::Stdout,
        Some(raw::Access::File(file @ raw::AccessFile { path, format, .. })) => {
            if path.is_none() {
                let key = SettingPath::ROOT.log().access().path();
                report.error(&key, "missing", "name a file such as ./state/access.log");
            }
            AccessLog::File {
                path: path.as_ref().map(|path| path.0.as_str()).unwrap_or_default().into(),
                rotation: rotation(file, report),
                format: match format {
                    raw::Format::Json => AccessLogFormat::Json,
                    raw::Format::Combined => AccessLogFormat::Combined,
                },
            }
        }
    };
    Log { access, level: raw.level, redact: raw.redact.clone() }
}

fn rotation(raw: &raw::AccessFile, report: &mut Diagnostics) -> Option<LogRotation> {
    let keep = SettingPath::ROOT.log().access().keep();
    if raw.max_size.is_none()
        && report.is_set(&keep)
        && !report.has_error_at(&SettingPath::ROOT.log().access().max_size())
    {
        report.error(&keep, "keep requires max_size", "add one such as max_size: 100MiB, or leave it out");
    }
    raw.max_size.map(|max_size| LogRotation { max_size, keep: raw.keep })
}
