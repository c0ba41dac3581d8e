//! Conditions on the request, of routes and of classes: path, host, method, header fields and cookies.

use super::credentials::check_cookie;
use super::diagnostics::Diagnostics;
use super::spelling::{check_header_name, check_patterns};
use crate::raw::classes::{CookieConditions, HeaderConditions};
use crate::scalars::{ValuePattern, Verb};
use crate::serde_forms::OneOrMany;
use crate::setting_path::SettingPath;
use http::Method;
use tidegate_policy::identity::CredentialSource;
use tidegate_policy::request_fields::FieldCondition;
use tidegate_policy::route::{Pattern, PatternError};

/// Returns the methods. `GET` includes `HEAD`, because the origin does the same work for both.
pub(super) fn methods(verbs: &[Verb]) -> Vec<Method> {
    let mut methods: Vec<Method> = verbs.iter().map(|verb| verb.0.clone()).collect();
    if methods.contains(&Method::GET) && !methods.contains(&Method::HEAD) {
        methods.push(Method::HEAD);
    }
    methods
}

/// Returns the pattern of a path; `None` if it is invalid.
pub(super) fn pattern(text: &str, path: &SettingPath, report: &mut Diagnostics) -> Option<Pattern> {
    let invalid_char = text.find(|c: char| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#'));
    let message = match (Pattern::parse(text), invalid_char) {
        (Ok(pattern), None) => return Some(pattern),
        (Ok(_), Some(_)) => "contains a space, \"?\" or \"#\"; use query for parameters",
        (Err(PatternError::NoSlash), _) => "does not start with a slash; write it like /item/*",
        (Err(PatternError::MisplacedDoubleStar), _) => {
            "** must be a whole segment, the last or the one before it; write it like /shop/** or /**/*.css, or * within a \
             segment"
        }
    };
    let (message, hint) = message.split_once("; ").unwrap_or((message, ""));
    report.error(path, format!("{text:?}: {message}"), hint);
    None
}

/// Returns the hosts, and reports invalid ones.
pub(super) fn hosts(raw: &[String], path: &SettingPath, report: &mut Diagnostics) -> Vec<String> {
    for host in raw {
        let bare = host.strip_prefix("*.").unwrap_or(host);
        let plain = |byte: u8| {
            byte.is_ascii_lowercase()
                || byte.is_ascii_digit()
                || matches!(byte, b'.' | b'-' | b'_' | b'[' | b']' | b':')
        };
        let port = !bare.starts_with('[') && bare.contains(':');
        if bare.is_empty() || port || !bare.bytes().all(plain) {
            report.error(
                path,
                format!("invalid host {host:?}"),
                "write it in lower case and without a port, such as shop.example.com or *.example.com",
            );
        }
    }
    raw.to_vec()
}

/// Returns the conditions of header fields and cookies, and reports invalid names. `path` is that of the section with both.
pub(super) fn fields(
    header: &HeaderConditions,
    cookie: &CookieConditions,
    path: &SettingPath,
    report: &mut Diagnostics,
) -> Vec<FieldCondition> {
    let patterns = |values: &OneOrMany<ValuePattern>| values.0.iter().map(|pattern| pattern.0.clone()).collect();
    let mut fields: Vec<FieldCondition> = Vec::new();
    for (at, (name, values)) in
        (header.0.iter().map(|it| (path.header(), it))).chain(cookie.0.iter().map(|it| (path.cookie(), it)))
    {
        check_patterns(values.0.iter().map(|ValuePattern(pattern)| pattern), &at.entry(name), report);
    }
    for (name, values) in &header.0 {
        check_header_name(name, &path.header(), report);
        match http::HeaderName::from_bytes(name.as_bytes()) {
            Ok(header) if fields.iter().any(|other| other.source.header() == header.as_str()) => report.error(
                &path.header(),
                format!("{name} differs from an earlier header in letter case alone"),
                "write its patterns as one list",
            ),
            Ok(header) => fields.push(FieldCondition::new(CredentialSource::Header(header), patterns(values))),
            Err(_) => report.error(&path.header(), format!("invalid header {name:?}"), "write it like X-Partner"),
        }
    }
    for (name, values) in &cookie.0 {
        check_cookie(name, &path.cookie(), report);
        fields.push(FieldCondition::new(CredentialSource::Cookie(name.clone()), patterns(values)));
    }
    fields
}
