//! Reads the origin's own usage of a quota from its responses (`sync_from`).

use crate::gateway::upstream::rate_limit::{most_restrictive, parse_reset, parse_units};
use http::{HeaderName, StatusCode};
use tidegate_http1::{Fields, Name, RequestHead};
use tidegate_policy::query::form_decoded;
use tidegate_policy::quota::{ExhaustedRule, SyncFrom};
use tidegate_policy::quota_sync::OriginReport;
use tidegate_policy::{QuotaId, Timestamp};

/// Bytes of a body that are scanned.
const MAX_SCAN_BYTES: usize = 16 * 1024;

/// Quota usage reported in the head of a response.
pub(super) struct SyncHeaders<'a> {
    pub(super) report: OriginReport,
    /// Configured header that cannot be parsed.
    pub(super) unreadable_header: Option<&'a HeaderName>,
    /// Text in the body that marks the quota as exhausted.
    pub(super) body_text: Option<String>,
}

/// A scan of the response body for the exhaustion text.
pub(super) struct BodyScan {
    pub(super) quota: QuotaId,
    /// Window that the request was charged to.
    pub(super) window: u64,
    pub(super) report: OriginReport,
    needle: String,
    buffer: Vec<u8>,
}

/// Reads the usage reported in the head of a response to `request`. A text of exhaustion that the request contains is no
/// evidence, because the response may quote the request.
pub(super) fn read<'a>(
    sync: &'a SyncFrom,
    request: &RequestHead,
    status: StatusCode,
    fields: &Fields,
    now: Timestamp,
) -> SyncHeaders<'a> {
    let (remaining, limits_reset) = match (&sync.remaining_header, header_value(fields, &sync.remaining_header)) {
        (Some(name), Some(_)) if Name::from_bytes(name.as_str().as_bytes()) == Name::RateLimit => {
            most_restrictive(fields, now).map_or((None, None), |left| (Some(left.units), left.resets_at))
        }
        (_, value) => (value.and_then(parse_units), None),
    };
    let reset = header_value(fields, &sync.reset_header).and_then(|value| parse_reset(value, now));
    let resets_at = reset.or(limits_reset);
    let unparsed_name = |name: &'a Option<HeaderName>, is_parsed: bool| {
        name.as_ref().filter(|_| !is_parsed && header_value(fields, name).is_some())
    };
    let unreadable_header = unparsed_name(&sync.remaining_header, remaining.is_some())
        .or(unparsed_name(&sync.reset_header, reset.is_some()));
    let mut report = OriginReport { remaining, resets_at, exhausted: false };
    let mut body_text = None;
    let is_evidence = |exhausted: &&ExhaustedRule| {
        exhausted.statuses.contains(&status.as_u16())
            && !exhausted.contains.as_ref().is_some_and(|text| is_in_request(text, request))
    };
    if let Some(exhausted) = sync.exhausted.as_ref().filter(is_evidence) {
        match exhausted {
            ExhaustedRule { contains: Some(text), .. } if !any_header_contains(text, fields) => {
                body_text = Some(text.clone());
            }
            _ => report.exhausted = true,
        }
        // A request to retry later contains the time.
        let retry_after = || fields.get(Name::RetryAfter).and_then(|value| parse_reset(value, now));
        report.resets_at = report.resets_at.or_else(retry_after);
    }
    SyncHeaders { report, unreadable_header, body_text }
}

impl BodyScan {
    pub(super) fn new(quota: QuotaId, window: u64, report: OriginReport, needle: String) -> Self {
        Self { quota, window, report, needle, buffer: Vec::new() }
    }

    /// Scans a chunk of the body. Returns true once the text is found.
    pub(super) fn scan(&mut self, data: &[u8]) -> bool {
        let from = self.buffer.len().saturating_sub(self.needle.len());
        let capacity = MAX_SCAN_BYTES.saturating_sub(self.buffer.len());
        self.buffer.extend_from_slice(&data[..data.len().min(capacity)]);
        contains(&self.buffer[from..], self.needle.as_bytes())
    }

    /// Returns true if the scan limit is reached.
    pub(super) fn is_done(&self) -> bool {
        self.buffer.len() >= MAX_SCAN_BYTES
    }
}

fn header_value<'a>(fields: &'a Fields, name: &'a Option<HeaderName>) -> Option<&'a [u8]> {
    fields.get_all_by_text(name.as_ref()?.as_str()).next()
}

fn any_header_contains(text: &str, fields: &Fields) -> bool {
    fields.iter().any(|field| contains(field.value, text.as_bytes()))
}

/// Returns true if the target of the request, raw or decoded, or one of its fields contains `text`.
fn is_in_request(text: &str, request: &RequestHead) -> bool {
    let target = request.target.to_string();
    let decoded: Vec<u8> = form_decoded(&target).collect();
    [target.as_bytes(), &decoded].iter().any(|target| contains(target, text.as_bytes()))
        || any_header_contains(text, &request.fields)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len().max(1)).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;
    use std::time::Duration;
    use tidegate_policy::Units;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn sync(remaining: &'static str, exhausted: Option<ExhaustedRule>) -> SyncFrom {
        let header = HeaderName::from_static;
        SyncFrom { remaining_header: Some(header(remaining)), reset_header: Some(header("x-reset")), exhausted }
    }

    fn sync_headers<'a>(sync: &'a SyncFrom, status: u16, fields: &[(&'static str, &'static str)]) -> SyncHeaders<'a> {
        let status = StatusCode::from_u16(status).expect("valid status");
        read(sync, &request("/", ""), status, &fields.iter().copied().collect(), NOW)
    }

    fn request(target: &'static str, cookie: &'static str) -> RequestHead {
        let fields = [("cookie", cookie)].into_iter().collect();
        RequestHead {
            method: http::Method::GET,
            target: Uri::from_static(target),
            version: http::Version::HTTP_11,
            fields,
        }
    }

    #[test]
    fn remaining_units_are_parsed_in_every_form() {
        let left = |name, value| {
            let header = if name == "ratelimit" { "RateLimit" } else { "X-Left" };
            sync_headers(&sync(name, None), 200, &[(header, value)]).report.remaining.map(Units::milli)
        };
        assert_eq!(left("x-left", "12"), Some(12_000));
        assert_eq!(left("x-left", " 0.25"), Some(250));
        assert_eq!(left("x-left", "-3"), Some(0));
        assert_eq!(left("x-left", "many"), None);
        assert_eq!(left("ratelimit", "\"burst\";r=9;t=1, \"day;r=1\";r=7;t=60"), Some(7000));
        assert_eq!(left("ratelimit", "limit=100, remaining=50"), Some(50_000));
    }

    #[test]
    fn reset_time_is_parsed_in_every_form() {
        let reset = |value| sync_headers(&sync("x-left", None), 200, &[("x-reset", value)]).report.resets_at;
        let at = |seconds| Some(Timestamp::from_seconds(seconds));
        assert_eq!(reset("60"), at(1_800_000_060));
        assert_eq!(reset("1800000060"), at(1_800_000_060));
        assert_eq!(reset("1800000060000"), at(1_800_000_060));
        assert_eq!(reset("Fri, 15 Jan 2027 08:01:00 GMT"), at(1_800_000_060));
        assert_eq!(reset("2027-01-15T08:01:00Z"), at(1_800_000_060));
        for invalid in ["", "soon", "-1", "NaN", "1e300", "inf"] {
            assert_eq!(reset(invalid), None, "{invalid}");
        }
        let fields = [("ratelimit", "\"day\";r=7;t=60")];
        assert_eq!(sync_headers(&sync("ratelimit", None), 200, &fields).report.resets_at, at(1_800_000_060));
    }

    #[test]
    fn unparsable_header_is_reported_by_name() {
        let sync = sync("x-left", None);
        let unreadable_header = |fields| sync_headers(&sync, 200, fields).unreadable_header.map(HeaderName::as_str);
        assert_eq!(unreadable_header(&[("x-left", "many"), ("x-reset", "60")]), Some("x-left"));
        assert_eq!(unreadable_header(&[("x-left", "7"), ("x-reset", "soon")]), Some("x-reset"));
        assert_eq!(unreadable_header(&[("x-left", "7")]), None, "a missing header is not unreadable");
    }

    #[test]
    fn exhaustion_needs_a_status_and_matching_text() {
        let exhausted = |needle: Option<&str>| {
            sync("x-left", Some(ExhaustedRule { statuses: vec![403, 429], contains: needle.map(str::to_owned) }))
        };
        let (any, with_text) = (exhausted(None), exhausted(Some("dailyLimit")));
        let by_status = sync_headers(&any, 429, &[("retry-after", "60")]);
        assert!(by_status.report.exhausted && by_status.body_text.is_none());
        assert_eq!(by_status.report.resets_at, Some(NOW + Duration::from_secs(60)));
        assert!(!sync_headers(&exhausted(None), 503, &[]).report.exhausted);
        assert!(
            sync_headers(&exhausted(Some("dailyLimit")), 403, &[("x-error", "a dailyLimitExceeded")]).report.exhausted
        );
        let pending = sync_headers(&with_text, 403, &[]);
        assert_eq!((pending.report.exhausted, pending.body_text.as_deref()), (false, Some("dailyLimit")));
    }

    #[test]
    fn text_that_the_request_contains_is_no_evidence() {
        let rule = ExhaustedRule { statuses: vec![403], contains: Some("daily limit".into()) };
        let sync = sync("x-left", Some(rule));
        let response: Fields = [("x-error", "no page for daily limit")].into_iter().collect();
        let is_exhausted = |target, cookie| {
            let reported = read(&sync, &request(target, cookie), StatusCode::FORBIDDEN, &response, NOW);
            assert_eq!(reported.body_text, None);
            reported.report.exhausted
        };
        assert!(is_exhausted("/page?q=daily", "limit"));
        for target in ["/daily%20limit", "/?q=daily+limit", "/?q=%64%61ily%20limit"] {
            assert!(!is_exhausted(target, ""), "{target}");
        }
        assert!(!is_exhausted("/", "seen=daily limit"));
    }

    #[test]
    fn body_scan_spans_chunks_up_to_a_bound() {
        let new_scan = || BodyScan::new(QuotaId(0), 0, OriginReport::default(), "dailyLimit".into());
        let finds_text = |chunks: &[&[u8]]| {
            let mut scan = new_scan();
            chunks.iter().any(|chunk| scan.scan(chunk))
        };
        assert!(finds_text(&[b"{\"reason\": \"dai", b"lyLimitExceeded\"}"]));
        assert!(!finds_text(&[b"dailylimit"]));
        let mut scan = new_scan();
        assert!(!scan.scan(&[b'x'; 20_000]) && scan.is_done());
    }
}
