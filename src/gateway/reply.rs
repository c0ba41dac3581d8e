//! The only place that picks a status code: what a client is told when the gate itself answers.
//!
//! Refusals are RFC 9457 problem documents of the types that draft-ietf-httpapi-ratelimit-headers-11 section 5
//! registers, or a short page for people; never stored by a cache, with a decision id and a time to come back.

use super::announce::Told;
use super::body::ResponseBody;
use super::headers::DECISION;
use super::scratch::Scratch;
use super::target::Malformed;
use super::upstream::ForwardError;
use crate::policy::time::seconds_rounded_up;
use crate::policy::{Reason, Rules};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use std::fmt::{self, Write};
use std::time::Duration;

/// How long a client is told to wait for an origin that is not there.
const ORIGIN_RETRY: Duration = Duration::from_secs(5);

/// A longer wait is spread as if it were this long: minutes part a crowd, hours would only keep it away.
const SPREAD_WAIT: Duration = Duration::from_secs(3600);

const JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What the gate says in the origin's place.
pub(super) struct Problem<'a> {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: &'a str,
    reason: Option<Reason>,
    violated: Violated<'a>,
    retry_after: Option<u64>,
}

/// The policies that said no, by name.
#[derive(Clone, Copy)]
struct Violated<'a>(Option<(&'a Rules, Told<'a>)>);

/// Who asks, as far as the form of the answer depends on it.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub(super) prefers_html: bool,
    pub(super) wants_body: bool,
}

impl Reader {
    /// Reads what form of answer the request prefers.
    pub(super) fn of<B>(request: &http::Request<B>) -> Self {
        let accept = request.headers().get(header::ACCEPT);
        Self {
            prefers_html: accept.is_some_and(|accept| prefers_html(accept.as_bytes())),
            wants_body: request.method() != Method::HEAD,
        }
    }
}

impl<'a> Problem<'a> {
    /// A refusal by the gate's own rules. `spread`, between 0 and the configured share of the wait, is how far beyond
    /// it the client's return is put, so that those refused together do not come back together.
    pub(super) fn refused(rules: &'a Rules, told: Told<'a>, spread: f64) -> Option<Self> {
        let refusal = told.refusal?;
        let wait = refusal.wait + refusal.wait.min(SPREAD_WAIT).mul_f64(spread);
        let (status, kind, title) = match refusal.reason {
            Reason::Tier | Reason::Quota | Reason::Bucket => (
                StatusCode::TOO_MANY_REQUESTS,
                "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "Request cannot be satisfied as assigned quota has been exceeded",
            ),
            Reason::Blocked => (
                StatusCode::TOO_MANY_REQUESTS,
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
                "Request not satisfied due to detection of abnormal request pattern",
            ),
            Reason::Throttle => return Some(Self::no_capacity(wait)),
        };
        let detail = match refusal.reason {
            Reason::Tier => "Clients of this kind have used their share of the allowance for now.",
            Reason::Quota => "The allowance of this period is used up.",
            Reason::Bucket => "You are asking faster than clients of this kind may.",
            _ => "Clients of this kind are not served here.",
        };
        Some(Self {
            status,
            kind,
            title,
            detail,
            reason: Some(refusal.reason),
            violated: Violated(Some((rules, told))),
            retry_after: Some(seconds_rounded_up(wait).max(1)),
        })
    }

    /// The origin's answer did not come.
    pub(super) fn origin_failed(error: &ForwardError) -> Self {
        let (status, detail) = match error {
            ForwardError::NoRoom => return Self::no_capacity(ORIGIN_RETRY),
            ForwardError::ConnectTimedOut { .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "The site did not take the request in time.")
            }
            ForwardError::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, "The site did not answer in time."),
            ForwardError::ConnectFailed { .. } => (StatusCode::BAD_GATEWAY, "The site cannot be reached."),
            ForwardError::OriginClosed { .. } => (StatusCode::BAD_GATEWAY, "The site broke off without an answer."),
            ForwardError::ClientBody { too_large: true } => return Self::malformed(Malformed::TooLarge),
            ForwardError::ClientBody { too_large: false } => (StatusCode::BAD_REQUEST, "The request's body broke off."),
        };
        Self::plain(status, detail)
    }

    /// The request is not one that can be passed on.
    pub(super) fn malformed(fault: Malformed) -> Self {
        let (status, detail) = match fault {
            Malformed::Host => (StatusCode::BAD_REQUEST, "The request needs exactly one valid host."),
            Malformed::Path => (StatusCode::BAD_REQUEST, "The path contains an encoded NUL."),
            Malformed::Target => (StatusCode::BAD_REQUEST, "The request target is neither a path nor a URL."),
            Malformed::Framing => (StatusCode::BAD_REQUEST, "Content-Length and Transfer-Encoding exclude each other."),
            Malformed::Method => (StatusCode::METHOD_NOT_ALLOWED, "CONNECT and TRACE are not served here."),
            Malformed::Expectation => (StatusCode::EXPECTATION_FAILED, "Only 100-continue can be expected here."),
            Malformed::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The request's body is larger than allowed."),
            Malformed::Loop => (StatusCode::LOOP_DETECTED, "The request has already passed through this gate."),
        };
        Self::plain(status, detail)
    }

    fn no_capacity(wait: Duration) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            title: "Request cannot be satisfied due to temporary server capacity constraints",
            detail: "The site has no room for another request right now.",
            reason: Some(Reason::Throttle),
            violated: Violated(None),
            retry_after: Some(seconds_rounded_up(wait).max(1)),
        }
    }

    fn plain(status: StatusCode, detail: &'a str) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let retry_after = status.is_server_error().then(|| seconds_rounded_up(ORIGIN_RETRY));
        Self { status, kind: "about:blank", title, detail, reason: None, violated: Violated(None), retry_after }
    }

    /// The status the client gets.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The seconds the client is told to wait.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// The answer, in the form that `reader` prefers, under decision `id`; and how long its body is.
    pub(super) fn into_response(self, reader: Reader, id: u64, scratch: &mut Scratch) -> (Response<ResponseBody>, u64) {
        let body = match reader.prefers_html {
            true => scratch.bytes(|text| self.write_html(id, text)),
            false => scratch.bytes(|text| self.write_json(id, text)),
        }
        .unwrap_or_default();
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(header::CONTENT_TYPE, if reader.prefers_html { HTML } else { JSON });
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        if let Some(value) = scratch.value(|text| write_hex(id, text)) {
            headers.insert(DECISION, value);
        }
        if let Some(seconds) = self.retry_after {
            let value = scratch.value(|text| text.write_str(itoa::Buffer::new().format(seconds)));
            headers.extend(value.map(|value| (header::RETRY_AFTER, value)));
        }
        // HTTP/1 leaves the body of an answer to HEAD out by itself, HTTP/2 does not.
        let sent = match reader.wants_body {
            true => body,
            false => {
                headers.insert(header::CONTENT_LENGTH, body.len().into());
                Bytes::new()
            }
        };
        let length = sent.len() as u64;
        let mut response = Response::new(ResponseBody::whole(sent));
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        (response, length)
    }

    fn write_json(&self, id: u64, text: &mut Scratch) -> fmt::Result {
        text.write_str("{\"type\":\"")?;
        text.write_str(self.kind)?;
        text.write_str("\",\"title\":\"")?;
        text.write_str(self.title)?;
        text.write_str("\",\"status\":")?;
        text.write_str(self.status.as_str())?;
        text.write_str(",\"detail\":\"")?;
        text.write_str(self.detail)?;
        text.write_str("\",\"instance\":\"urn:tidegate:decision:")?;
        write_hex(id, text)?;
        text.write_char('"')?;
        if let Some(reason) = self.reason {
            text.write_str(",\"reason\":\"")?;
            text.write_str(reason.name())?;
            text.write_str("\",\"violated-policies\":[")?;
            self.violated.write(text)?;
            text.write_char(']')?;
        }
        text.write_str("}\n")
    }

    fn write_html(&self, id: u64, text: &mut Scratch) -> fmt::Result {
        let number = self.status.as_u16();
        write!(
            text,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"robots\" content=\"noindex\">\n\
             <title>{number} {0}</title>\n\
             <style>:root{{color-scheme:light dark}}body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:36rem;\
             margin:15vh auto;padding:0 1rem}}small{{opacity:.7}}</style>\n<h1>{1}</h1>\n<p>{2}</p>\n",
            self.status.canonical_reason().unwrap_or("Error"),
            self.heading(),
            self.detail,
        )?;
        if let Some(seconds) = self.retry_after {
            writeln!(text, "<p>Please come back in {}.</p>", Wait(seconds))?;
        }
        write!(text, "<p><small>Decision ")?;
        write_hex(id, text)?;
        text.write_str("</small></p>\n")
    }

    fn heading(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "Not right now",
            status if status.is_server_error() => "The site is not available",
            _ => "This request cannot be served",
        }
    }
}

impl Violated<'_> {
    fn write(self, text: &mut Scratch) -> fmt::Result {
        let Some((rules, told)) = self.0 else { return Ok(()) };
        let Some(refusal) = told.refusal else { return Ok(()) };
        if refusal.quotas == 0 {
            return write!(text, "\"{}\"", rules.classes[usize::from(told.class.0)].name);
        }
        let mut separator = "";
        for (place, standing) in told.standings.iter().enumerate() {
            if refusal.quotas >> place.min(7) & 1 == 1 {
                text.write_str(separator)?;
                text.write_char('"')?;
                text.write_str(&rules.quotas[usize::from(standing.quota.0)].name)?;
                text.write_char('"')?;
                separator = ",";
            }
        }
        Ok(())
    }
}

/// A wait as a person reads it.
struct Wait(u64);

impl fmt::Display for Wait {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self.0 {
            seconds @ 0..=119 => (seconds, "second"),
            seconds @ 120..=7199 => (seconds.div_ceil(60), "minute"),
            seconds => (seconds.div_ceil(3600), "hour"),
        };
        write!(out, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

fn write_hex(id: u64, text: &mut impl Write) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits: [u8; 16] = std::array::from_fn(|place| DIGITS[(id >> (60 - 4 * place) & 15) as usize]);
    text.write_str(std::str::from_utf8(&digits).unwrap_or_default())
}

/// True when HTML is accepted at least as gladly as anything else that is named.
fn prefers_html(accept: &[u8]) -> bool {
    let Ok(accept) = std::str::from_utf8(accept) else { return false };
    let quality = |wanted: &str| {
        accept
            .split(',')
            .filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
                let weight =
                    parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f32>().ok());
                weight.filter(|_| named)
            })
            .fold(None, |best: Option<f32>, weight| Some(best.map_or(weight, |best| best.max(weight))))
    };
    let html = quality("text/html").unwrap_or(0.0);
    let json = quality("application/problem+json").or(quality("application/json")).unwrap_or(0.0);
    html > 0.0 && html >= json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_a_page_and_programs_a_document() {
        assert!(prefers_html(b"text/html,application/xhtml+xml,*/*;q=0.8"));
        assert!(!prefers_html(b"*/*"));
        assert!(!prefers_html(b"application/json, text/html;q=0.5"));
        assert!(!prefers_html(b"text/html;q=0"));
        assert!(!prefers_html(b"\xff"));
    }

    #[test]
    fn waits_read_as_people_say_them() {
        assert_eq!(Wait(1).to_string(), "1 second");
        assert_eq!(Wait(600).to_string(), "10 minutes");
        assert_eq!(Wait(40_000).to_string(), "12 hours");
    }

    #[test]
    fn a_problem_is_valid_json() {
        let mut scratch = Scratch::new();
        let body =
            scratch.bytes(|text| Problem::malformed(Malformed::Host).write_json(7, text)).expect("it is written");
        let json: serde_json::Value = serde_json::from_slice(&body).expect("valid JSON");
        assert_eq!((&json["status"], &json["type"]), (&400.into(), &"about:blank".into()));
        assert_eq!(json["instance"], "urn:tidegate:decision:0000000000000007");
    }
}
