//! Request fields of a fetch whose response may be stored.
//!
//! Nothing that one client sends may change what another gets. So every field that is sent is part of the key. Fields
//! that differ among browsers and that origins mostly ignore are not sent at all, or every browser would need copies of
//! its own.

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

/// Fields of browsers, crawlers and content delivery networks that are not sent, unless they are part of the key.
const DROPPED: [&str; 40] = [
    "accept-language",
    "alt-used",
    "baggage",
    "cache-control",
    "cdn-loop",
    "device-memory",
    "dnt",
    "downlink",
    "dpr",
    "ect",
    "from",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "keep-alive",
    "pragma",
    "priority",
    "purpose",
    "range",
    "referer",
    "rtt",
    "save-data",
    "sec-gpc",
    "sec-purpose",
    "signature",
    "signature-agent",
    "signature-input",
    "surrogate-capability",
    "true-client-ip",
    "upgrade-insecure-requests",
    "user-agent",
    "viewport-width",
    "width",
    "x-amzn-trace-id",
    "x-correlation-id",
    "x-forwarded-ssl",
    "x-purpose",
    "x-request-id",
    "x-tidegate-class",
    "x-tidegate-operator",
];

/// Beginnings of the names of further such fields.
const DROPPED_PREFIXES: [&str; 6] = ["sec-fetch-", "sec-ch-", "cf-", "fastly-", "x-amz-", "x-b3-"];

/// Fields that the gateway writes, or removes unless a trusted proxy sent them, and those of one connection.
const WRITTEN: [&str; 22] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "max-forwards",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Returns what becomes of the field `name`, in lower case, with one of its values. `is_keyed` says that it is part of
/// the key by the rules or by `Vary`, or declared to change no response.
pub fn fetch_field(name: &str, value: &[u8], is_keyed: bool) -> FetchField {
    if is_keyed || WRITTEN.binary_search(&name).is_ok() {
        return FetchField::Sent;
    }
    let is_dropped = DROPPED.binary_search(&name).is_ok()
        || DROPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || (name == "accept" && accepts_pages(value));
    if is_dropped { FetchField::Dropped } else { FetchField::KeyedByValue }
}

/// Returns true if the client takes what the origin serves by default.
fn accepts_pages(accept: &[u8]) -> bool {
    let media_type =
        |member: &[u8]| member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii().to_vec();
    accept
        .split(|&byte| byte == b',')
        .map(media_type)
        .any(|media_type| media_type == b"*/*" || media_type.eq_ignore_ascii_case(b"text/html"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn fields_are_sorted_for_the_search() {
        assert!(super::DROPPED.is_sorted() && super::WRITTEN.is_sorted());
    }
}
