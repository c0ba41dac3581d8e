//! Request fields of a fetch whose response may be stored.
//!
//! Nothing that one client sends may change what another gets. So every field that is sent is part of the key. Fields
//! that differ among browsers and that origins mostly ignore are not sent at all, or every browser would need copies of
//! its own.

use std::cmp::Ordering;

/// What becomes of a request field in a fetch whose response may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchField {
    /// Sent: part of the key by the rules or by `Vary`, or not chosen by the client.
    Sent,
    /// Not sent.
    Dropped,
    /// Sent, and the response is stored for requests with the same field and value alone.
    KeyedByValue,
}

/// Fields of browsers, crawlers, tracing, proxies and content delivery networks that are not sent, unless they are part of
/// the key.
/// Sorted for [`is_listed`].
const DROPPED: [&str; 54] = [
    "b3",
    "dnt",
    "dpr",
    "ect",
    "rtt",
    "from",
    "range",
    "width",
    "pragma",
    "baggage",
    "purpose",
    "referer",
    "sec-gpc",
    "alt-used",
    "cdn-loop",
    "downlink",
    "if-range",
    "newrelic",
    "priority",
    "forwarded",
    "save-data",
    "signature",
    "x-purpose",
    "x-real-ip",
    "keep-alive",
    "request-id",
    "tracestate",
    "user-agent",
    "sec-purpose",
    "traceparent",
    "sentry-trace",
    "x-request-id",
    "cache-control",
    "device-memory",
    "if-none-match",
    "uber-trace-id",
    "true-client-ip",
    "viewport-width",
    "accept-language",
    "signature-agent",
    "signature-input",
    "x-amzn-trace-id",
    "x-forwarded-for",
    "x-forwarded-ssl",
    "x-request-start",
    "x-correlation-id",
    "x-forwarded-port",
    "x-tidegate-class",
    "if-modified-since",
    "x-tidegate-operator",
    "surrogate-capability",
    "x-cloud-trace-context",
    "elastic-apm-traceparent",
    "upgrade-insecure-requests",
];

/// Beginnings of the names of further such fields.
const DROPPED_PREFIXES: [&str; 8] =
    ["sec-fetch-", "sec-ch-", "cf-", "fastly-", "x-amz-", "x-b3-", "x-datadog-", "ot-tracer-"];

/// Fields that the gateway writes, or removes unless a trusted proxy sent them, and those of one connection. Sorted for
/// [`is_listed`].
const WRITTEN: [&str; 18] = [
    "te",
    "via",
    "host",
    "cookie",
    "expect",
    "trailer",
    "upgrade",
    "connection",
    "max-forwards",
    "authorization",
    "content-length",
    "http2-settings",
    "accept-encoding",
    "proxy-connection",
    "x-forwarded-host",
    "transfer-encoding",
    "x-forwarded-proto",
    "proxy-authorization",
];

/// Returns true if the field `name`, in lower case, is the same in all fetches of a URL, unless the rules make it a part
/// of the key: the gateway writes it, or does not send it. It selects no response, although origins name it in `Vary`.
pub fn is_constant(name: &str) -> bool {
    let differs = matches!(name, "cookie" | "authorization" | "proxy-authorization" | "accept-encoding");
    (is_listed(&WRITTEN, name) && !differs) || is_client_address(name) || name == "x-forwarded-port"
}

/// Returns true if the field `name`, in lower case, has the address of the client.
pub fn is_client_address(name: &str) -> bool {
    matches!(name, "forwarded" | "x-forwarded-for" | "x-real-ip")
}

/// Returns what becomes of the field `name`, in lower case, with one of its values. `is_keyed` is true if it is part of
/// the key by the rules or by `Vary`, or declared to change no response.
pub fn fetch_field(name: &str, value: &[u8], is_keyed: bool) -> FetchField {
    let is_dropped = || is_listed(&DROPPED, name) || DROPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    match name {
        _ if is_keyed => FetchField::Sent,
        // Before the lists, because most requests have it.
        "accept" if accepts_pages(value) => FetchField::Dropped,
        "accept" => FetchField::KeyedByValue,
        _ if is_listed(&WRITTEN, name) => FetchField::Sent,
        _ if is_dropped() => FetchField::Dropped,
        _ => FetchField::KeyedByValue,
    }
}

/// Returns true if `names`, sorted by length first, have the name. Most comparisons then read no text.
fn is_listed(names: &[&str], name: &str) -> bool {
    names.binary_search_by(|listed| order(listed, name)).is_ok()
}

fn order(one: &str, other: &str) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// Returns true if the client takes what the origin serves by default.
fn accepts_pages(accept: &[u8]) -> bool {
    accept.split(|&byte| byte == b',').any(|member| {
        let media_type = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        media_type == b"*/*" || media_type.eq_ignore_ascii_case(b"text/html")
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn fields_are_sorted_for_the_search() {
        let is_sorted = |names: &[&str]| names.is_sorted_by(|one, next| super::order(one, next).is_lt());
        assert!(is_sorted(&super::DROPPED) && is_sorted(&super::WRITTEN));
    }
}
