//! Storage of responses: which may be kept, and on which terms (RFC 9111 sections 3 and 4.2).

use super::Timestamp;
use super::directives::{ResponseDirectives, parse_seconds};
use super::fields::FieldLines;
use super::reuse::ReuseTerms;
use super::validation::http_date;
use std::time::Duration;

/// What the rules need to know of a response, besides its fields, and of its request.
#[derive(Clone, Copy, Debug)]
pub struct StorageRequest {
    /// The request has `Cache-Control: no-store`.
    pub is_no_store: bool,
    /// The request carried `Authorization` to the origin.
    pub has_authorization: bool,
    /// The request carried cookies to the origin that are no part of the key.
    pub has_cookies: bool,
    /// Time at which the request was sent.
    pub requested_at: Timestamp,
    /// Time at which the response was received.
    pub received_at: Timestamp,
    /// Status of the response.
    pub status: u16,
    /// Freshness lifetime for a response without one, if the route has it.
    pub default_lifetime: Option<Duration>,
    /// Time after its lifetime for which a response is useful in place of a refusal or an error.
    pub useful_stale: Duration,
}

/// Reason for which a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstorable {
    /// The request forbids it.
    RequestNoStore,
    /// The request carried `Authorization`, and the response is not for others.
    Authorization,
    /// The request carried cookies, and the response is not `public`.
    Cookies,
    /// The response has `no-store`.
    NoStore,
    /// The response has `private`.
    Private,
    /// The response sets a cookie.
    SetCookie,
    /// Its status is not stored, or not without a lifetime.
    Status,
    /// It is a part of a body.
    Partial,
    /// `Vary` is `*`, invalid, or too long.
    Vary,
    /// It could never be used: it has no lifetime, nothing to validate, and is not kept for refusals.
    NoLifetime,
    /// Its body is too large.
    TooLarge,
}

impl Unstorable {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::RequestNoStore,
        Self::Authorization,
        Self::Cookies,
        Self::NoStore,
        Self::Private,
        Self::SetCookie,
        Self::Status,
        Self::Partial,
        Self::Vary,
        Self::NoLifetime,
        Self::TooLarge,
    ];

    /// Returns true if the reason is the request, so that the response to another request may be stored.
    pub const fn is_of_request(self) -> bool {
        matches!(self, Self::RequestNoStore | Self::Authorization | Self::Cookies)
    }

    /// Returns the name of the reason, in `Cache-Status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestNoStore => "request-no-store",
            Self::Authorization => "authorization",
            Self::Cookies => "cookies",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::SetCookie => "set-cookie",
            Self::Status => "status",
            Self::Partial => "partial",
            Self::Vary => "vary",
            Self::NoLifetime => "no-lifetime",
            Self::TooLarge => "too-large",
        }
    }
}

/// Returns the terms on which the response with the fields `response` may be stored.
pub fn terms(request: &StorageRequest, response: &impl FieldLines) -> Result<ReuseTerms, Unstorable> {
    let status = request.status;
    let directives = ResponseDirectives::read(response);
    let is_for_authorized = directives.public || directives.has_must_revalidate || directives.s_maxage.is_some();
    check_request(request, &directives, is_for_authorized)?;
    check_response(status, response, &directives)?;
    let explicit = explicit_lifetime(&directives, response, request.received_at);
    if explicit.is_none() && !directives.public && !is_heuristically_cacheable(status) {
        return Err(Unstorable::Status);
    }
    let lifetime = explicit.or(request.default_lifetime.filter(|_| is_heuristically_cacheable(status)));
    let is_kept_stale = !directives.no_cache && !directives.must_revalidate && !request.useful_stale.is_zero();
    let has_validator = response.has("etag") || response.has("last-modified");
    let lifetime = lifetime.unwrap_or_default();
    if lifetime.is_zero() && !has_validator && !is_kept_stale {
        return Err(Unstorable::NoLifetime);
    }
    let initial_age = initial_age(request, response);
    // An age that goes back beyond the epoch exceeds every lifetime, also those that do.
    let is_too_old = initial_age > request.received_at.saturating_duration_since(Timestamp::default());
    Ok(ReuseTerms {
        generated_at: request.received_at - initial_age,
        lifetime_s: if is_too_old { 0 } else { whole_seconds(lifetime) },
        stale_while_revalidate_s: whole_seconds(directives.stale_while_revalidate),
        stale_if_error_s: directives.stale_if_error.map(whole_seconds),
        always_validate: directives.no_cache,
        never_stale: directives.must_revalidate,
        is_shared_lifetime: directives.s_maxage.is_some(),
        is_immutable: directives.immutable,
        is_public: directives.public,
        is_invalidated: false,
        is_for_authorized,
    })
}

fn check_request(
    request: &StorageRequest,
    directives: &ResponseDirectives,
    is_for_authorized: bool,
) -> Result<(), Unstorable> {
    if request.is_no_store {
        return Err(Unstorable::RequestNoStore);
    }
    if request.has_authorization && !is_for_authorized {
        return Err(Unstorable::Authorization);
    }
    if request.has_cookies && !directives.public {
        return Err(Unstorable::Cookies);
    }
    Ok(())
}

fn check_response(status: u16, response: &impl FieldLines, directives: &ResponseDirectives) -> Result<(), Unstorable> {
    let is_understood = is_understood(status);
    if directives.no_store && !(directives.must_understand && is_understood) {
        return Err(Unstorable::NoStore);
    }
    if directives.private {
        return Err(Unstorable::Private);
    }
    if response.has("set-cookie") {
        return Err(Unstorable::SetCookie);
    }
    if status == 206 {
        return Err(Unstorable::Partial);
    }
    let is_final = (200..600).contains(&status) && status != 304 && status != 429;
    if !is_final || (directives.must_understand && !is_understood) {
        return Err(Unstorable::Status);
    }
    Ok(())
}

/// Statuses that may be stored without a lifetime (RFC 9110 section 15.1), but 206.
fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses whose caching rules the gateway implements.
fn is_understood(status: u16) -> bool {
    is_heuristically_cacheable(status)
        || matches!(status, 201 | 202 | 205 | 302 | 303 | 307 | 400..=403 | 406..=409 | 411..=413 | 415..=422 | 451)
        || matches!(status, 500 | 502..=505)
}

/// Returns the lifetime that the origin states: `s-maxage`, `max-age`, or the time from `Date` to `Expires`; zero if it
/// cannot be read (RFC 9111 section 4.2.1).
fn explicit_lifetime(
    directives: &ResponseDirectives,
    response: &impl FieldLines,
    received_at: Timestamp,
) -> Option<Duration> {
    let by_expires = || {
        let expires = response.first("expires").filter(|_| !directives.is_targeted)?;
        let date = response.first("date").and_then(http_date).unwrap_or(received_at);
        Some(http_date(expires).map_or(Duration::ZERO, |expires| expires.saturating_duration_since(date)))
    };
    directives.s_maxage.or(directives.max_age).or_else(by_expires)
}

/// Returns the age of the response when it was received (RFC 9111 section 4.2.3). An age that cannot be read, or several,
/// exceed every lifetime.
fn initial_age(request: &StorageRequest, response: &impl FieldLines) -> Duration {
    let StorageRequest { requested_at, received_at, .. } = *request;
    let date = response.first("date").and_then(http_date);
    // Both sides in whole seconds, because `Date` has no fraction.
    let received_second = Timestamp::from_seconds(received_at.seconds());
    let apparent = date.map_or(Duration::ZERO, |date| received_second.saturating_duration_since(date));
    let mut ages = response.members("age");
    let stated = match (ages.next(), ages.next()) {
        (None, _) => Duration::ZERO,
        (Some(age), None) => parse_seconds(age).unwrap_or(Duration::MAX),
        (Some(_), Some(_)) => Duration::MAX,
    };
    apparent.max(stated.saturating_add(received_at.saturating_duration_since(requested_at)))
}

fn whole_seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}
