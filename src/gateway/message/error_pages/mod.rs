//! Bodies of the administrator for the gateway's own error responses (`error_pages`): files, read at the start and at each
//! reload, and the errors of APIs.

mod template;

pub(in crate::gateway) use template::{PageTemplate, Placeholder};

use std::fmt::Display;
use std::path::Path;
use template::Markup;
use tidegate_config::Settings;
use tidegate_config::settings::{ErrorBody, ErrorJson, ErrorStatus};
use tidegate_engine::files;

/// Largest file.
const MAX_FILE_BYTES: usize = 64 << 10;
/// Mark at the start of a file that some editors write; it is no part of the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bodies of all statuses.
#[derive(Debug, Default)]
pub struct ErrorPages {
    html: Vec<(ErrorStatus, PageTemplate)>,
    json: Vec<(ErrorStatus, JsonBody)>,
}

/// Body for clients that do not accept HTML.
#[derive(Debug)]
pub(in crate::gateway) enum JsonBody {
    /// Problem document.
    Problem,
    /// Error of an API.
    Api(ApiStyle),
    /// Document of the administrator.
    Template(PageTemplate),
}

/// API whose errors are imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum ApiStyle {
    OpenAi,
    Anthropic,
}

impl ErrorPages {
    /// Reads the files that the settings name. Returns all errors, one line each.
    pub fn read(settings: &Settings) -> Result<Self, String> {
        let (mut pages, mut errors) = (Self::default(), Vec::new());
        for page in &settings.error_pages {
            if let Err(error) = pages.add(page.status, &page.body) {
                errors.push(format!("{}: {error}", settings.location_of(&page.path)));
            }
        }
        if errors.is_empty() { Ok(pages) } else { Err(errors.join("\n")) }
    }

    fn add(&mut self, status: ErrorStatus, body: &ErrorBody) -> Result<(), String> {
        let json = match body {
            ErrorBody::Html(file) => {
                self.html.push((status, read_file(file, Markup::Html)?));
                return Ok(());
            }
            ErrorBody::Json(ErrorJson::Problem) => JsonBody::Problem,
            ErrorBody::Json(ErrorJson::OpenAi) => JsonBody::Api(ApiStyle::OpenAi),
            ErrorBody::Json(ErrorJson::Anthropic) => JsonBody::Api(ApiStyle::Anthropic),
            ErrorBody::Json(ErrorJson::File(file)) => JsonBody::Template(read_file(file, Markup::Json)?),
        };
        self.json.push((status, json));
        Ok(())
    }

    /// Returns the page for `status`: its own, else that of its class; `None` if there is neither.
    pub(in crate::gateway) fn html(&self, status: u16) -> Option<&PageTemplate> {
        find(&self.html, status)
    }

    /// Returns the JSON for `status`: its own, else that of its class, else a problem document.
    pub(in crate::gateway) fn json(&self, status: u16) -> &JsonBody {
        find(&self.json, status).unwrap_or(&JsonBody::Problem)
    }
}

fn find<T>(bodies: &[(ErrorStatus, T)], status: u16) -> Option<&T> {
    let class = if status < 500 { ErrorStatus::ClientErrors } else { ErrorStatus::ServerErrors };
    let of = |wanted| bodies.iter().find(|(status, _)| *status == wanted).map(|(_, body)| body);
    of(ErrorStatus::Code(status)).or_else(|| of(class))
}

fn read_file(file: &Path, markup: Markup) -> Result<PageTemplate, String> {
    let name = file.display();
    let (needed, example) = match markup {
        Markup::Html => ("name an HTML file of at most 64 KiB", "write the page, such as <h1>{{title}}</h1>"),
        Markup::Json => (
            "name a JSON file of at most 64 KiB, or write openai, anthropic or problem",
            "write the document, such as {\"error\": \"{{detail}}\"}",
        ),
    };
    let bytes = files::read(file, MAX_FILE_BYTES).map_err(|error| format!("cannot read {name}: {error}; {needed}"))?;
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
    let at = |offset: usize, message: &dyn Display| {
        let (line, column) = position(bytes, offset);
        format!("{name}:{line}:{column}: {message}")
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| at(error.valid_up_to(), &"found a byte that is not UTF-8; save the file in UTF-8"))?;
    if text.trim().is_empty() {
        return Err(at(0, &format!("found no text; {example}")));
    }
    PageTemplate::parse(text, markup).map_err(|error| at(error.offset, &error))
}

/// Returns the line and the column, in characters, of the byte at `offset`; both start at 1.
fn position(bytes: &[u8], offset: usize) -> (usize, usize) {
    let before = &bytes[..offset];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}
