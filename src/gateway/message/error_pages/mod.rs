//! HTML pages of the administrator for the gateway's own error responses (`error_pages`), read from files at the start
//! and at each reload.

mod template;

pub(in crate::gateway) use template::{PageTemplate, Placeholder};

use std::fmt::Display;
use std::path::Path;
use tidegate_config::Settings;
use tidegate_config::settings::ErrorStatus;
use tidegate_engine::files;

/// Largest file.
const MAX_FILE_BYTES: usize = 64 << 10;

/// The pages of all statuses.
#[derive(Debug, Default)]
pub struct ErrorPages(Vec<(ErrorStatus, PageTemplate)>);

impl ErrorPages {
    /// Reads the files that the settings name. Returns all errors, one line each.
    pub fn read(settings: &Settings) -> Result<Self, String> {
        let (mut pages, mut errors) = (Vec::new(), Vec::new());
        for page in &settings.error_pages {
            match read_file(&page.file) {
                Ok(template) => pages.push((page.status, template)),
                Err(error) => errors.push(format!("{}: {error}", settings.location_of(&page.path))),
            }
        }
        if errors.is_empty() { Ok(Self(pages)) } else { Err(errors.join("\n")) }
    }

    /// Returns the page for `status`: its own, else that of its class; `None` if there is neither.
    pub(in crate::gateway) fn get(&self, status: u16) -> Option<&PageTemplate> {
        let class = if status < 500 { ErrorStatus::ClientErrors } else { ErrorStatus::ServerErrors };
        let find = |wanted| self.0.iter().find(|(status, _)| *status == wanted).map(|(_, page)| page);
        find(ErrorStatus::Code(status)).or_else(|| find(class))
    }
}

fn read_file(file: &Path) -> Result<PageTemplate, String> {
    let name = file.display();
    let bytes = files::read(file, MAX_FILE_BYTES)
        .map_err(|error| format!("cannot read {name}: {error}; name an HTML file of at most 64 KiB"))?;
    let at = |offset: usize, message: &dyn Display| {
        let (line, column) = position(&bytes, offset);
        format!("{name}:{line}:{column}: {message}")
    };
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| at(error.valid_up_to(), &"found a byte that is not UTF-8; save the file in UTF-8"))?;
    if text.trim().is_empty() {
        return Err(at(0, &"found no text; write the page, such as <h1>{{title}}</h1>"));
    }
    PageTemplate::parse(text).map_err(|error| at(error.offset, &error))
}

/// Returns the line and the column, in characters, of the byte at `offset`; both start at 1.
fn position(bytes: &[u8], offset: usize) -> (usize, usize) {
    let before = &bytes[..offset];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}
