//! Validates `error_pages`. The gateway reads the files.

use super::diagnostics::Diagnostics;
use crate::number;
use crate::raw;
use crate::raw::error_pages::{ErrorBodies, ErrorForms};
use crate::scalars::FilePath;
use crate::setting_path::SettingPath;
use crate::settings::{ErrorBody, ErrorJson, ErrorPage, ErrorStatus};

pub(super) fn error_pages(raw: &raw::File, report: &mut Diagnostics) -> Vec<ErrorPage> {
    let mut pages = Vec::new();
    for (name, page) in &raw.error_pages.0 {
        let path = SettingPath::ROOT.error_pages().entry(name);
        match status(name) {
            Some(status) => pages.extend(bodies(status, page, path, report)),
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

fn bodies(status: ErrorStatus, page: &ErrorBodies, path: SettingPath, report: &mut Diagnostics) -> Vec<ErrorPage> {
    let ErrorForms { html, json } = match page {
        ErrorBodies::Html(file) => {
            return vec![ErrorPage { status, body: ErrorBody::Html(report.beside_file(file)), path }];
        }
        ErrorBodies::Forms(forms) => forms,
    };
    if html.is_none() && json.is_none() && !report.has_error_at(&path) {
        report.error(&path, "has neither html nor json", "write { json: openai }, or leave the key out");
    }
    let html = html.iter().map(|file| (ErrorBody::Html(report.beside_file(file)), path.html()));
    let json = json.iter().map(|form| (ErrorBody::Json(self::json(form, report)), path.json()));
    html.chain(json).map(|(body, path)| ErrorPage { status, body, path }).collect()
}

fn json(form: &FilePath, report: &Diagnostics) -> ErrorJson {
    match form.0.as_str() {
        "problem" => ErrorJson::Problem,
        "openai" => ErrorJson::OpenAi,
        "anthropic" => ErrorJson::Anthropic,
        _ => ErrorJson::File(report.beside_file(form)),
    }
}

fn status(name: &str) -> Option<ErrorStatus> {
    match name {
        "4xx" => Some(ErrorStatus::ClientErrors),
        "5xx" => Some(ErrorStatus::ServerErrors),
        code => number::whole(code).filter(|code| ErrorStatus::SENT.contains(code)).map(ErrorStatus::Code),
    }
}
