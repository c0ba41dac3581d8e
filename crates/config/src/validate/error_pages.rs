//! Validates `error_pages`. The gateway reads the files.

use super::diagnostics::Diagnostics;
use crate::number;
use crate::raw;
use crate::setting_path::SettingPath;
use crate::settings::{ErrorPage, ErrorStatus};

pub(super) fn error_pages(raw: &raw::File, report: &mut Diagnostics) -> Vec<ErrorPage> {
    let mut pages = Vec::new();
    for (name, file) in &raw.error_pages.0 {
        let path = SettingPath::ROOT.error_pages().entry(name);
        match status(name) {
            Some(status) => pages.push(ErrorPage { status, file: report.beside_file(file), path }),
            None => {
                let known: Vec<String> = ErrorStatus::SENT.iter().map(u16::to_string).collect();
                let hint = format!(
                    "write one of {}, 4xx and 5xx; error responses of the origin are not replaced",
                    known.join(", ")
                );
                report.error(&path, format!("found {name:?}, no error status of the gateway itself"), hint);
            }
        }
    }
    pages
}

fn status(name: &str) -> Option<ErrorStatus> {
    match name {
        "4xx" => Some(ErrorStatus::ClientErrors),
        "5xx" => Some(ErrorStatus::ServerErrors),
        code => number::whole(code).filter(|code| ErrorStatus::SENT.contains(code)).map(ErrorStatus::Code),
    }
}
