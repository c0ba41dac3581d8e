//! Validates headers and cookies that carry a credential.

use super::diagnostics::Diagnostics;
use super::spelling::check_header_name;
use crate::scalars::Field;
use crate::setting_path::SettingPath;
use tidegate_policy::identity::CredentialSource;

/// Returns the header or cookie of a credential, exactly one of which is named.
pub(crate) fn credential_source(
    header: &Option<Field>,
    cookie: &Option<String>,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> CredentialSource {
    match (header, cookie) {
        (Some(header), None) => {
            check_header_name(header.0.as_str(), &path.header(), report);
            CredentialSource::Header(header.0.clone())
        }
        (None, Some(cookie)) => {
            check_cookie(cookie, &path.cookie(), report);
            CredentialSource::Cookie(cookie.clone())
        }
        (header, _) => {
            let message =
                if header.is_some() { "found both header and cookie" } else { "found neither header nor cookie" };
            if header.is_some() || !report.has_error_at(path) {
                report.error(path, message, "write { header: X-Api-Key } or { cookie: session }");
            }
            CredentialSource::Cookie(String::new())
        }
    }
}

/// Returns what is wrong with the name of the gateway's own cookie.
pub(crate) fn own_cookie(name: &str) -> Option<String> {
    let is_own = name == "tidegate" || name == "__Host-tidegate";
    is_own.then(|| format!("found {name:?}, the cookie of sessions, which is removed before any rule sees it"))
}

/// Reports an invalid name of a cookie.
pub(super) fn check_cookie(name: &str, path: &SettingPath, report: &mut Diagnostics) {
    // The syntax of cookie names is that of header names (RFC 6265 section 4.1.1), but cookie names are case-sensitive.
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        report.error(path, "invalid cookie name", "write it like session");
    }
    if let Some(problem) = own_cookie(name) {
        report.error(path, problem, "name a cookie of the site");
    }
}
