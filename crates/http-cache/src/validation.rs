//! Conditions of clients answered from a copy (RFC 9110 section 13), and the update of a copy by a 304 (RFC 9111
//! section 4.3).

use super::Timestamp;
use super::fields::FieldLines;
use std::time::UNIX_EPOCH;

/// Conditions that only the origin evaluates.
const ORIGIN_CONDITIONS: [&str; 2] = ["if-match", "if-unmodified-since"];

/// Returns true if the request has a condition that no copy answers.
pub fn has_origin_condition(request: &impl FieldLines) -> bool {
    ORIGIN_CONDITIONS.iter().any(|name| request.has(name))
}

/// Returns true if the client has the copy with the fields `stored`: its `If-None-Match` lists the entity tag, or
/// without that field, its `If-Modified-Since` is not before the last modification (RFC 9110 section 13.2.2).
pub fn is_not_modified(request: &impl FieldLines, stored: &impl FieldLines) -> bool {
    if request.has("if-none-match") {
        let etag = stored.first("etag").map(opaque_tag);
        let is_match = |member: &[u8]| member == b"*" || etag.is_some_and(|etag| opaque_tag(member) == etag);
        return request.members("if-none-match").any(is_match);
    }
    let Some(since) = request.first("if-modified-since").and_then(http_date) else { return false };
    let modified = stored.first("last-modified").or_else(|| stored.first("date")).and_then(http_date);
    modified.is_some_and(|modified| modified <= since)
}

/// Returns the entity tag without the mark of a weak one, for weak comparison.
fn opaque_tag(etag: &[u8]) -> &[u8] {
    etag.strip_prefix(b"W/").unwrap_or(etag)
}

/// Returns true if a 304 replaces the field `name`, in lower case, of the copy. Fields that describe the stored body
/// keep their values (RFC 9111 section 3.2).
pub fn is_updated_by_304(name: &str) -> bool {
    !matches!(
        name,
        "content-encoding"
            | "content-length"
            | "content-md5"
            | "content-range"
            | "etag"
            | "set-cookie"
            | "transfer-encoding"
            | "connection"
            | "keep-alive"
            | "proxy-connection"
            | "trailer"
            | "upgrade"
    )
}

/// Returns true if a 304 made from a copy has the field `name`, in lower case: not those that describe the body that
/// it does not have (RFC 9110 section 15.4.5).
pub fn is_sent_in_304(name: &str) -> bool {
    !matches!(
        name,
        "content-encoding" | "content-language" | "content-length" | "content-range" | "content-type" | "accept-ranges"
    )
}

/// Parses an HTTP date, in any of its three forms (RFC 9110 section 5.6.7).
pub fn http_date(value: &[u8]) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    let elapsed = time.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_seconds(elapsed.as_secs()))
}

/// Returns true if `If-Range` allows a part of the copy, or is absent: a strong entity tag that is equal, or the exact
/// date of the last modification (RFC 9110 section 13.1.5).
pub fn allows_range(request: &impl FieldLines, stored: &impl FieldLines) -> bool {
    let Some(condition) = request.first("if-range") else { return true };
    match condition.starts_with(b"\"") {
        true => stored.first("etag") == Some(condition),
        false => http_date(condition).is_some() && stored.first("last-modified") == Some(condition),
    }
}
