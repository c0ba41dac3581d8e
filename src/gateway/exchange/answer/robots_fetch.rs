//! Fetches robots.txt from the origin for the cache, with a request of the gateway's own.
//!
//! The request carries nothing of the client but the validated host. The fetch does not end with the client's connection:
//! the origin would go on with its work, and each client that leaves would cause another fetch.

use crate::gateway::cache::{FetchEnd, FetchGuard};
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::send::send;
use crate::gateway::message::site::Site;
use crate::gateway::upstream::{ForwardError, RequestBody, UpstreamResponse};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri, Version};
use hyper::body::Body;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use tidegate_crawlers::robots::{self, CachedRobots, FetchSlot, MAX_ROBOTS_BYTES, OriginRobots, Requester};
use tidegate_http1::{Fields, Name, RequestHead, Response, list};
use tidegate_policy::exempt::ROBOTS_TXT_PATH;

/// User agent of the gateway's own requests.
const USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// A fetch that may start: it has a slot.
pub(in crate::gateway) struct RobotsFetch {
    pub(in crate::gateway) site: Site,
    pub(in crate::gateway) requester: Requester,
    /// Stale copy, which is served if the origin fails.
    pub(in crate::gateway) stale: Option<CachedRobots>,
    /// Lock of the site; `None` if there is a stale copy, which other requests are served meanwhile.
    pub(in crate::gateway) guard: Option<FetchGuard>,
    pub(in crate::gateway) slot: FetchSlot,
}

/// Result of a fetch.
pub(in crate::gateway) enum FetchOutcome {
    /// The copy to serve: a new one, or the stale one.
    Copy(CachedRobots),
    /// Any other response of the origin, read to its end.
    Other(Response<Bytes>),
    /// Response that exceeds the size of a copy, with its beginning. The slot is held until it is sent.
    Oversized { upstream: Box<UpstreamResponse>, beginning: Bytes, slot: FetchSlot },
    /// No response, and no copy.
    Failed(ForwardError),
}

/// Fetches robots.txt, and stores it if it may be stored. Returns the journal with what to respond.
pub(in crate::gateway) async fn fetch_robots(
    mut journal: Box<Journal>,
    fetch: RobotsFetch,
) -> (Box<Journal>, FetchOutcome) {
    let RobotsFetch { site, requester, stale, guard, slot } = fetch;
    let worker = Rc::clone(journal.worker());
    let (cache, key) = (&worker.shared().robots_cache, site.key());
    let head = own_request(&site, &worker.shared().via.http1);
    // The method or the query of this request may have led to another origin.
    let route = site.route(&head.target, journal.known.rules());
    if journal.known.rules()[route].origin != journal.known.route().origin {
        journal.known.classified.route = route;
    }
    let (result, _) = send(Some(&head), RequestBody::Empty, &mut journal, None, None).await;
    let mut upstream = match result {
        Ok(upstream) => upstream,
        Err(error) => return fetch_failed(journal, stale, error),
    };
    journal.origin.settle(|_, expected| expected);
    let Response { status, fields, .. } = &mut upstream.response;
    let status = *status;
    let is_overload = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let stale = match stale {
        Some(stale) if is_overload => return (journal, FetchOutcome::Copy(stale)),
        stale => stale,
    };
    let is_storable = is_storable(status, fields);
    // A cookie for the gateway would be the same for all clients.
    fields.retain(|field| !field.text.eq_ignore_ascii_case(SET_COOKIE.as_bytes()));
    if !is_storable && !is_overload {
        cache.set_unstorable(&key, worker.monotonic_now());
    }
    let text = match read(&mut upstream).await {
        Ok(text) => text,
        Err(error) => return fetch_failed(journal, stale, error),
    };
    if text.len() > MAX_ROBOTS_BYTES {
        cache.set_unstorable(&key, worker.monotonic_now());
        return (journal, FetchOutcome::Oversized { upstream: Box::new(upstream), beginning: text, slot });
    }
    let UpstreamResponse { response: Response { fields, mut body, .. }, pool_guard, .. } = upstream;
    if let Some(connection) = body.take_connection() {
        pool_guard.put_back(connection, worker.monotonic_tick().get());
    }
    if !is_storable {
        return (journal, FetchOutcome::Other(Response { status, fields, body: text }));
    }
    let content_type = fields.get(Name::ContentType).map(Bytes::copy_from_slice);
    let ttl = robots::ttl_from_cache_control(fields.all(Name::CacheControl));
    let original = OriginRobots { status: status.as_u16(), content_type, text };
    let copy = cache.insert(&key, original, ttl, requester, worker.monotonic_now());
    // Without this end, one of those who wait fetches it.
    if let Some(guard) = guard {
        guard.end(FetchEnd::Stored);
    }
    (journal, FetchOutcome::Copy(copy))
}

/// Returns the stale copy if there is one, otherwise the error.
fn fetch_failed(
    journal: Box<Journal>,
    stale: Option<CachedRobots>,
    error: ForwardError,
) -> (Box<Journal>, FetchOutcome) {
    let Some(stale) = stale else { return (journal, FetchOutcome::Failed(error)) };
    journal.worker().record_upstream_failure(&journal.known.config, journal.known.route().origin, &error);
    (journal, FetchOutcome::Copy(stale))
}

const SET_COOKIE: &str = "set-cookie";

/// Returns the head of the gateway's own request. With scheme and host, the origin can write absolute links; `Via`
/// detects loops.
fn own_request(site: &Site, via: &str) -> RequestHead {
    let mut fields = Fields::new();
    fields.append(Name::Host, site.host().as_bytes());
    fields.append(Name::UserAgent, USER_AGENT.as_bytes());
    fields.append(Name::Accept, b"text/plain");
    fields.append(Name::AcceptEncoding, b"identity");
    fields.append(Name::ForwardedProto, site.scheme().as_bytes());
    fields.append(Name::ForwardedHost, site.host().as_bytes());
    fields.append(Name::Via, via.as_bytes());
    RequestHead { method: Method::GET, target: Uri::from_static(ROBOTS_TXT_PATH), version: Version::HTTP_11, fields }
}

/// Returns true for a response that is the same for all clients: plain text or a missing file, not encoded, without
/// cookies.
pub(in crate::gateway) fn is_storable(status: StatusCode, fields: &Fields) -> bool {
    matches!(status.as_u16(), 200 | 404 | 410)
        && fields.all(Name::ContentEncoding).flat_map(list).all(|coding| coding.eq_ignore_ascii_case(b"identity"))
        && (status != StatusCode::OK || fields.all(Name::ContentType).all(is_plain_text))
        && fields.all(Name::Vary).flat_map(list).all(|name| name.eq_ignore_ascii_case(b"accept-encoding"))
        && fields.get_all_by_text(SET_COOKIE).next().is_none()
}

fn is_plain_text(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|&byte| byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/plain")
}

/// Reads the body, or its beginning, which is longer than the cache accepts. The whole body has the time limit of a single
/// chunk.
async fn read(upstream: &mut UpstreamResponse) -> Result<Bytes, ForwardError> {
    let UpstreamResponse { response, deadline, .. } = upstream;
    let mut text = BytesMut::new();
    loop {
        let next = std::future::poll_fn(|cx| match Pin::new(&mut response.body).poll_frame(cx) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending if deadline.poll_expired(cx) => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        })
        .await;
        match next {
            Err(()) => return Err(ForwardError::BodyTimedOut),
            Ok(None) => return Ok(text.freeze()),
            Ok(Some(Err(source))) => return Err(ForwardError::OriginClosed { source }),
            Ok(Some(Ok(frame))) => text.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..])),
        }
        if text.len() > MAX_ROBOTS_BYTES {
            deadline.reset();
            return Ok(text.freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_responses_for_all_clients_are_stored() {
        let is_storable = |status: u16, fields: &[(&'static str, &'static str)]| {
            is_storable(StatusCode::from_u16(status).expect("valid status"), &fields.iter().copied().collect())
        };
        let plain = ("content-type", "Text/Plain ; charset=utf-8");
        for (status, fields) in [
            (200, &[][..]),
            (200, &[plain, ("vary", "Accept-Encoding"), ("vary", "accept-encoding, Accept-Encoding")]),
            (200, &[("content-type", "text/plain"), ("content-encoding", "identity")]),
            (404, &[("content-type", "text/html")]),
            (410, &[]),
        ] {
            assert!(is_storable(status, fields), "{status} {fields:?}");
        }
        for (status, fields) in [
            (200, &[("content-type", "text/html")][..]),
            (200, &[("content-type", "text/plainer")]),
            (200, &[plain, ("content-type", "text/html")]),
            (200, &[("content-type", "")]),
            (200, &[plain, ("Set-Cookie", "a=1")]),
            (404, &[("set-cookie", "a=1")]),
            (200, &[plain, ("vary", "Accept-Encoding, User-Agent")]),
            (200, &[plain, ("vary", "*")]),
            (200, &[plain, ("content-encoding", "gzip")]),
            (301, &[]),
            (500, &[]),
        ] {
            assert!(!is_storable(status, fields), "{status} {fields:?}");
        }
    }
}
