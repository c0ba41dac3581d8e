//! Key `sync_from` of a quota.

use crate::scalars::Field;
use crate::section::{section, text};
use crate::setting_path::SettingPath;
use crate::validate::diagnostics::Diagnostics;
use http::HeaderName;
use tidegate_policy::quota::{self as policy, ExhaustedRule, ExhaustedText, TextPlace};

/// Maximum length of the text searched in response bodies, in bytes.
const MAX_SCAN_TEXT: usize = 200;

section! {
    /// Synchronization with the origin's own counter. Requires `remaining_header` or `exhausted`.
    pub(crate) struct SyncFrom {
        /// Response header with the remaining units, such as X-RateLimit-Remaining or x-ratelimit-remaining-tokens.
        /// `RateLimit` is read as in the IETF drafts: the policy with the name of the quota, else the one that has least
        /// left. Of several other fields, the smallest number counts. Default none.
        remaining_header: Option<Field>;
        /// Response header with the renewal time, whose form its value shows: seconds from now, a duration such as 6m0s,
        /// 17ms or 1h2m3.5s, seconds or milliseconds since 1970, or a date (RFC 3339 or that of HTTP). Default: the header
        /// that has reset in the place of remaining, such as x-ratelimit-reset-tokens.
        reset_header: Option<Field>;
        /// Responses that report an exhausted quota: { statuses, contains, header, json }. Such a response closes the
        /// quota until the time of reset_header, else its Retry-After, else the end of the window, and not at all if that
        /// time is over, as with `Retry-After: 0`. A date is read by the `Date` of the response. Log and status report
        /// it, and `tidegate quota set` or `quota reset` opens it. Default none.
        exhausted: Option<Exhausted>;
    }
}

section! {
    /// Responses that report an exhausted quota.
    pub(crate) struct Exhausted {
        /// List of statuses, 100 to 599, of such a response. Statuses below 400 require contains. Required.
        statuses: Vec<u16>;
        /// Text in a header value or in the first 16 KiB of the body, 1 to 200 bytes. Only the first 16 KiB of
        /// uncompressed bodies are searched as they pass; also the body of a 429 that a scope's backoff replaces, for
        /// at most origin.response_timeout. A text in the head of the request does not count. Without header or json, a
        /// response may quote the text; so it counts once clients of two networks (IPv4 /24, IPv6 /48) were sent it,
        /// and never in the response to a request with a body. Default any.
        contains: Option<String> = None => String, text(scan_text);
        /// Response header whose value contains the text of contains, such as X-Error. Default any part of the
        /// response.
        header: Option<Field>;
        /// JSON Pointer (RFC 6901) of the value in the body that equals the text of contains, such as /error/reason.
        /// Default any part of the response.
        json: Option<String> = None => String, text(json_pointer);
    }
}

fn scan_text(text: &str) -> Option<String> {
    let is_valid = (1..=MAX_SCAN_TEXT).contains(&text.len());
    (!is_valid).then(|| format!("needs 1 to {MAX_SCAN_TEXT} bytes; write a text that only such a response contains"))
}

fn json_pointer(text: &str) -> Option<String> {
    (!text.starts_with('/')).then(|| format!("found {text:?}; write a JSON Pointer, such as /error/reason"))
}

pub(super) fn sync_from(keys: &SyncFrom, path: &SettingPath, report: &mut Diagnostics) -> policy::SyncFrom {
    if keys.remaining_header.is_none() && keys.exhausted.is_none() {
        let hint = "write { remaining_header: X-RateLimit-Remaining } or { exhausted: { statuses: [429] } }";
        report.error(path, "has no effect", hint);
    }
    let name = |field: &Option<Field>| field.as_ref().map(|Field(name)| name.clone());
    policy::SyncFrom {
        remaining_header: name(&keys.remaining_header),
        reset_header: name(&keys.reset_header).or_else(|| reset_header_of(keys.remaining_header.as_ref()?)),
        exhausted: keys.exhausted.as_ref().map(|keys| exhausted_rule(keys, &path.exhausted(), report)),
    }
}

/// Returns the name of the header with the renewal time of the units in `remaining`, by the convention of all families.
fn reset_header_of(Field(remaining): &Field) -> Option<HeaderName> {
    let name = remaining.as_str();
    name.contains("remaining").then(|| name.replace("remaining", "reset").parse().ok()).flatten()
}

fn exhausted_rule(keys: &Exhausted, path: &SettingPath, report: &mut Diagnostics) -> ExhaustedRule {
    let statuses = &keys.statuses;
    if statuses.is_empty() {
        report.error(&path.statuses(), "missing", "write the statuses, such as [429]");
    } else if let Some(status) = statuses.iter().find(|status| !(100..=599).contains(*status)) {
        report.error(&path.statuses(), format!("found {status}"), "write statuses from 100 to 599");
    } else if keys.contains.is_none() && statuses.iter().any(|status| *status < 400) {
        let message = "a success status alone does not report an exhausted quota";
        let hint = "add contains with the text of such a response";
        report.contradiction(&path.statuses(), &[path.contains()], message, hint);
    }
    ExhaustedRule { statuses: statuses.clone(), text: exhausted_text(keys, path, report) }
}

fn exhausted_text(keys: &Exhausted, path: &SettingPath, report: &mut Diagnostics) -> Option<ExhaustedText> {
    if keys.contains.is_none() && (keys.header.is_some() || keys.json.is_some()) {
        let hint = "add contains with the text of such a response";
        report.contradiction(path, &[path.contains()], "header and json need contains", hint);
    }
    if keys.header.is_some() && keys.json.is_some() {
        report.error(&path.json(), "given beside header", "write one of header and json");
    }
    let place = match (&keys.header, &keys.json) {
        (Some(Field(name)), _) => TextPlace::Header(name.clone()),
        (None, Some(pointer)) => TextPlace::Json(pointer.clone()),
        (None, None) => TextPlace::Anywhere,
    };
    Some(ExhaustedText { text: keys.contains.clone()?, place })
}
