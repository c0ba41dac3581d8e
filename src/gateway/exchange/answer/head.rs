//! Heads of responses for the client.

use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::header_rules::{change_response, complete_response};
use crate::gateway::message::headers;
use http::StatusCode;
use tidegate_config::settings::Settings;
use tidegate_engine::Classified;
use tidegate_http1::{Fields, Name, RequestHead, list};
use tidegate_policy::exempt::Exemption;
use tidegate_rate_limit_headers::RateLimitSnapshot;

/// Fields of the gateway's own responses that scripts of other origins may read.
const READABLE_FIELDS: &[u8] = b"Retry-After, RateLimit, RateLimit-Policy, RateLimit-Partition, RateLimit-Limit, \
    RateLimit-Remaining, RateLimit-Reset, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Tidegate-Decision";

const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const EXPOSE_HEADERS: &str = "access-control-expose-headers";

/// Maximum length of an `Origin` that is repeated, in bytes: a scheme, a host name of 253 bytes and a port.
const MAX_ORIGIN: usize = 300;

/// Prepares the head of a response of the origin for the client: removes connection-specific fields, applies the changes of
/// the route and adds the gateway's own.
pub(in crate::gateway) fn prepare_client_response(journal: &Journal, status: StatusCode, fields: &mut Fields) {
    headers::strip_response(fields);
    prepare_copy(journal, status, fields);
}

/// Like [`prepare_client_response`], for a stored response, which has no connection-specific fields.
pub(in crate::gateway) fn prepare_copy(journal: &Journal, status: StatusCode, fields: &mut Fields) {
    if let Some(rules) = journal.known.header_rules() {
        change_response(fields, &rules.response);
    }
    add_selecting_headers(journal, fields);
    add_rate_limits(journal, status, fields);
}

/// Adds to `Vary` the header fields by which the request got its route, so that no cache mixes the responses of routes.
fn add_selecting_headers(journal: &Journal, fields: &mut Fields) {
    let known = &journal.known;
    if known.request.field_match().is_none() {
        return;
    }
    let mut names = known.rules().selecting_headers(&known.request.facts());
    let is_listed = |name: &str, listed: &[u8]| listed.eq_ignore_ascii_case(name.as_bytes()) || listed == b"*";
    names.retain(|name| !fields.all(Name::Vary).flat_map(list).any(|listed| is_listed(name, listed)));
    if !names.is_empty() {
        fields.append(Name::Vary, names.join(", ").as_bytes());
    }
}

/// Completes the head of a response that the gateway itself generates, after all of its own fields but the rate limits.
pub(in crate::gateway) fn prepare_own_response(journal: &Journal, status: StatusCode, fields: &mut Fields) {
    if let Some(rules) = journal.known.header_rules() {
        complete_response(fields, &rules.response);
    }
    add_rate_limits(journal, status, fields);
}

/// Lets a page of another origin read a refusal or an error of the gateway, which holds nothing of the site: without these
/// fields, its script sees a network error in place of `Retry-After` (the Fetch standard, section 3.3). Allows no
/// credentials, since the class of a client can follow from them. Fields that the administrator sets stay.
pub(in crate::gateway) fn allow_reading(head: &RequestHead, settings: &Settings, fields: &mut Fields) {
    if !settings.headers.cors {
        return;
    }
    let Some(origin) = head.fields.get(Name::Origin).filter(|origin| is_origin(origin)) else { return };
    for (name, value) in [(ALLOW_ORIGIN, origin), (EXPOSE_HEADERS, READABLE_FIELDS)] {
        if fields.get_all_by_text(name).next().is_none() {
            fields.append_text(name, value);
        }
    }
    fields.append_text("vary", b"Origin");
}

/// Returns true for what may be a serialized origin (RFC 6454 section 6.2), or `null`.
fn is_origin(value: &[u8]) -> bool {
    value.len() <= MAX_ORIGIN && !value.is_empty() && value.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',')
}

/// Adds the rate-limit fields to a response for the client.
pub(in crate::gateway) fn add_rate_limits(journal: &Journal, status: StatusCode, fields: &mut Fields) {
    let config = &journal.known.config;
    config.rate_limit_headers.write(
        &config.settings.rules,
        rate_limit_snapshot(journal),
        journal.origin.decided_at,
        status,
        fields,
    );
}

/// Returns the usage for the rate-limit fields.
pub(in crate::gateway) fn rate_limit_snapshot(journal: &Journal) -> RateLimitSnapshot<'_> {
    let Classified { classification, route, exemption, .. } = &journal.known.classified;
    RateLimitSnapshot {
        class: classification.class,
        route: *route,
        usages: &journal.quota_usage,
        // The policies in the fields are those of classes.
        bucket: journal.bucket.filter(|_| !exemption.is_some_and(Exemption::is_bounded)),
        refusal: journal.verdict.refusal(),
    }
}
