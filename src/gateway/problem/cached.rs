//! Responses from a cached document.

use crate::gateway::body::ResponseBody;
use crate::http1::{Fields, Name, Response};
use crate::robots::CachedRobots;
use bytes::Bytes;
use http::StatusCode;

/// Returns the cached document, or 304 if the client has the same version, and the length of the body. A response to
/// HEAD has no body.
pub(in crate::gateway) fn cached_response(
    handout: &CachedRobots,
    if_none_match: Option<&[u8]>,
    wants_body: bool,
) -> (Response<ResponseBody>, u64) {
    let CachedRobots { edition, age, fresh_for } = handout;
    let mut digits = itoa::Buffer::new();
    let mut fields = Fields::new();
    fields.append(Name::ETag, edition.etag.as_bytes());
    match fresh_for.as_secs() {
        0 => fields.append(Name::CacheControl, b"no-cache"),
        seconds => fields.append(Name::CacheControl, &[b"max-age=", digits.format(seconds).as_bytes()].concat()),
    }
    fields.append(Name::Age, digits.format(age.as_secs()).as_bytes());
    let is_known = if_none_match.is_some_and(|tags| edition.matches_etag(tags));
    let status = if is_known { StatusCode::NOT_MODIFIED } else { status(edition.status) };
    let mut body = Bytes::new();
    if !is_known {
        fields.append(Name::ContentType, &edition.content_type);
        match wants_body {
            true => body = edition.text.clone(),
            // HTTP/1 omits the body of a response to HEAD by itself, HTTP/2 does not.
            false => fields.append(Name::ContentLength, digits.format(edition.text.len()).as_bytes()),
        }
    }
    let length = body.len() as u64;
    (Response { status, fields, body: ResponseBody::whole(body) }, length)
}

fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("valid status")
}
