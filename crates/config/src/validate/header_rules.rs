//! Validates `request_headers` and `response_headers` of routes: which fields may be changed, and to what.

use super::diagnostics::Diagnostics;
use super::rewrites;
use crate::raw::header_changes::{FieldMap, FieldValue, HeaderChanges};
use crate::raw::routes::Route;
use crate::setting_path::SettingPath;
use crate::settings::{FieldChanges, HeaderField, HeaderRules};
use http::HeaderName;

/// Most fields that one key changes.
const MAX_FIELDS: usize = 32;
/// Most bytes of one value.
const MAX_VALUE: usize = 4096;
/// Most bytes of names and values that one key adds: many clients accept heads of 16 KiB.
const MAX_TOTAL: usize = 8192;

/// Fields of one connection, of the framing of a message, or of its body as it is passed on.
const FRAMING: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that the gateway writes itself, in requests or in responses.
const OWN: &[&str] = &["forwarded", "host", "via", "x-real-ip"];
const OWN_PREFIXES: &[&str] = &["x-tidegate-", "x-forwarded-", "sec-websocket-"];
const OWN_OF_RESPONSES: &[&str] = &["age", "cache-status", "date", "retry-after"];
const OWN_PREFIXES_OF_RESPONSES: &[&str] = &["ratelimit", "x-ratelimit-"];

/// Fields by which a response is selected, so that the response would not be the one that the client asked for.
const SELECTING: &[&str] = &[
    "accept-encoding",
    "cache-control",
    "expect",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
];

/// Fields from which an origin may read the address of a client.
const CLIENT_ADDRESSES: &[&str] = &["cf-connecting-ip", "true-client-ip"];

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Request,
    Response,
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Set,
    Add,
    Remove,
}

/// Returns the rules of each route, by its index; empty if no route has any.
pub(super) fn header_rules(routes: &[Route], report: &mut Diagnostics) -> Vec<Option<HeaderRules>> {
    let mut rules = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        let path = SettingPath::of_route(index);
        let request = changes(&route.request_headers, Direction::Request, &path.request_headers(), report);
        let response = changes(&route.response_headers, Direction::Response, &path.response_headers(), report);
        let rewrite = rewrites::rewrite(route, &path.rewrite(), report);
        if !(request.is_empty() && response.is_empty() && rewrite.is_none()) {
            rules.resize(index, None);
            rules.push(Some(HeaderRules { rewrite, request, response }));
        }
    }
    rules
}

fn changes(raw: &HeaderChanges, direction: Direction, path: &SettingPath, report: &mut Diagnostics) -> FieldChanges {
    let HeaderChanges { set, add, remove } = raw;
    let count = set.0.0.len() + add.0.0.len() + remove.0.len();
    report.check_len(path, "fields", count, MAX_FIELDS, "change those that all pages need in the origin");
    let mut seen = Vec::new();
    let set = fields(set, Change::Set, direction, &path.set(), &mut seen, report);
    let add = fields(add, Change::Add, direction, &path.add(), &mut seen, report);
    let total: usize = set.iter().chain(&add).map(|field| field.name.len() + field.value.len()).sum();
    if total > MAX_TOTAL {
        report.error(path, format!("found {total} bytes, maximum {MAX_TOTAL}"), "shorten the values");
    }
    let path = path.remove();
    let check = |(index, name): (usize, &crate::scalars::Field)| {
        check_name(name.0.as_str(), Change::Remove, direction, &path.index(index), &mut seen, report);
        name.0.as_str().to_owned()
    };
    FieldChanges { set, add, remove: remove.0.iter().enumerate().map(check).collect() }
}

fn fields(
    raw: &FieldMap,
    change: Change,
    direction: Direction,
    path: &SettingPath,
    seen: &mut Vec<String>,
    report: &mut Diagnostics,
) -> Vec<HeaderField> {
    let mut fields = Vec::new();
    for (name, FieldValue(value)) in &raw.0.0 {
        let path = path.entry(name);
        check_name(name, change, direction, &path, seen, report);
        check_value(value, &path, report);
        fields.push(HeaderField { name: name.clone(), value: value.clone() });
    }
    fields
}

fn check_name(
    name: &str,
    change: Change,
    direction: Direction,
    path: &SettingPath,
    seen: &mut Vec<String>,
    report: &mut Diagnostics,
) {
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        report.error(path, format!("found {name:?}, needs the name of a header"), "write it like X-Frame-Options");
        return;
    }
    // Many origins read `_` as `-`, some all but letters and digits.
    let known = name.to_ascii_lowercase().replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    if let Some((reason, hint)) = refusal(&known, change, direction) {
        report.error(path, format!("{name} cannot be changed: {reason}"), hint);
    }
    if seen.contains(&known) {
        report.error(path, format!("found {name} twice"), "keep one; set replaces a field, add keeps it");
    }
    seen.push(known);
}

/// Returns why no route can be chosen by the field `name`, which is in lower case; `None` if one can.
pub(super) fn choice_refusal(name: &str) -> Option<&'static str> {
    if FRAMING.contains(&name) {
        return Some("it belongs to the connection or the body");
    }
    if matches!(name, "authorization" | "proxy-authorization") {
        return Some("it is a secret, and conditions are printed and logged");
    }
    let is_own = OWN.contains(&name) || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    is_own.then_some("the gateway writes it itself")
}

/// Returns why the field `name` cannot be changed so, and what would do.
fn refusal(name: &str, change: Change, direction: Direction) -> Option<(&'static str, &'static str)> {
    let is_in = |names: &[&str]| names.contains(&name);
    let begins_with = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let hint = "leave it out";
    if is_in(FRAMING) {
        return Some(("it belongs to the connection or the body", hint));
    }
    if is_in(OWN) || begins_with(OWN_PREFIXES) {
        return Some(("the gateway writes it itself", hint));
    }
    match direction {
        Direction::Request if is_in(SELECTING) => Some(("it selects the response, of which others get a copy", hint)),
        Direction::Request if is_in(CLIENT_ADDRESSES) => {
            Some(("it has the address of the client, who differs by request", hint))
        }
        Direction::Response if is_in(OWN_OF_RESPONSES) || begins_with(OWN_PREFIXES_OF_RESPONSES) => {
            Some(("the gateway writes it itself", hint))
        }
        Direction::Response if name == "vary" && change != Change::Add => {
            Some(("other caches would mix the responses of clients", "append names with add"))
        }
        Direction::Response if name == "set-cookie" && change != Change::Remove => {
            Some(("all clients would get the same cookie", "let the origin set it; remove removes it"))
        }
        _ => None,
    }
}

/// Checks a value, without showing it.
fn check_value(value: &str, path: &SettingPath, report: &mut Diagnostics) {
    let is_inner = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    if value.is_empty() {
        report.error(path, "found an empty value", "write a value, or the name in remove");
    } else if let Some(at) = value.bytes().position(|byte| !is_inner(byte)) {
        let kind =
            if value.is_ascii() { "a line break or another control character" } else { "a character beyond ASCII" };
        let message = format!("found {kind} in the value, at byte {}", at + 1);
        report.error(path, message, "write one line of ASCII characters");
    } else if value.trim_ascii().len() < value.len() {
        report.error(path, "found white space around the value", "remove it");
    } else if value.len() > MAX_VALUE {
        report.error(path, format!("found {} bytes, maximum {MAX_VALUE}", value.len()), "shorten the value");
    }
}
