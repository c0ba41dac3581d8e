//! Responses from a cached document.

use crate::gateway::message::response_body::ResponseBody;
use bytes::Bytes;
use http::StatusCode;
use tidegate_crawlers::robots::CachedRobots;
use tidegate_http1::{Fields, Name, Response};

/// Returns the cached document, or 304 if the client has the same version, and the length of the body.
pub(in crate::gateway) fn cached_response(
    cached: &CachedRobots,
    if_none_match: impl IntoIterator<Item: AsRef<[u8]>>,
) -> (Response<ResponseBody>, u64) {
    let CachedRobots { document, age, ttl: fresh_for } = cached;
    let mut digits = itoa::Buffer::new();
    let mut fields = Fields::new();
    fields.append(Name::ETag, document.etag.as_bytes());
    match fresh_for.as_secs() {
        0 => fields.append(Name::CacheControl, b"no-cache"),
        seconds => fields.append(Name::CacheControl, &[b"max-age=", digits.format(seconds).as_bytes()].concat()),
    }
    fields.append(Name::Age, digits.format(age.as_secs()).as_bytes());
    let is_unchanged = if_none_match.into_iter().any(|line| document.matches_etag(line.as_ref()));
    let status = if is_unchanged { StatusCode::NOT_MODIFIED } else { status(document.status) };
    let mut body = Bytes::new();
    if !is_unchanged {
        fields.append(Name::ContentType, &document.content_type);
        body = document.text.clone();
    }
    let length = body.len() as u64;
    (Response { status, fields, body: ResponseBody::full(body) }, length)
}

fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("valid status")
}
