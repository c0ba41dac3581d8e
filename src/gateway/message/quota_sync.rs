//! Reads the origin's own usage of a quota from its responses (`sync_from`).

use super::cost;
use crate::gateway::upstream::rate_limit::{ResponseTime, of_policy, parse_reset, parse_units};
use http::{HeaderName, StatusCode};
use serde_json::Value;
use tidegate_http1::{Fields, Name, RequestHead};
use tidegate_policy::query::form_decoded;
use tidegate_policy::quota::{ExhaustedRule, ExhaustedText, SyncFrom, TextPlace};
use tidegate_policy::quota_sync::OriginReport;
use tidegate_policy::{QuotaId, Timestamp, Units};

/// Bytes of a body that are scanned.
const MAX_SCAN_BYTES: usize = 16 * 1024;

/// Quota usage reported in the head of a response.
pub(in crate::gateway) struct SyncHeaders<'a> {
    pub(in crate::gateway) report: OriginReport,
    /// False if the response may quote the text of exhaustion, because its place is not named.
    pub(in crate::gateway) is_certain: bool,
    /// Header that cannot be parsed. The count is ignored.
    pub(in crate::gateway) unreadable_header: Option<&'a HeaderName>,
    /// Text in the body that marks the quota as exhausted.
    pub(in crate::gateway) body_text: Option<&'a ExhaustedText>,
}

/// A scan of the response body for the exhaustion text.
pub(in crate::gateway) struct BodyScan {
    pub(in crate::gateway) quota: QuotaId,
    /// Window that the request was charged to.
    pub(in crate::gateway) window: u64,
    pub(in crate::gateway) report: OriginReport,
    wanted: ExhaustedText,
    buffer: Vec<u8>,
}

/// Evidence of exhaustion in the head of a response.
enum Evidence<'a> {
    None,
    Found,
    /// The body shows it.
    InBody(&'a ExhaustedText),
}

/// Reads the usage of the quota `name` reported in the head of a response to `request`, which had a body if `has_body`.
pub(in crate::gateway) fn read<'a>(
    sync: &'a SyncFrom,
    name: &str,
    request: &RequestHead,
    has_body: bool,
    status: StatusCode,
    fields: &Fields,
    now: Timestamp,
) -> SyncHeaders<'a> {
    let age = cost::age(fields);
    if age.is_none() && cost::was_cache_hit(fields) {
        // Nobody knows of which window it is.
        let report = OriginReport::default();
        return SyncHeaders { report, is_certain: true, unreadable_header: None, body_text: None };
    }
    let response = ResponseTime::new(fields, age.unwrap_or_default(), now);
    let (remaining, limits_reset) = match (&sync.remaining_header, header_value(fields, &sync.remaining_header)) {
        (Some(header), Some(_)) if Name::from_bytes(header.as_str().as_bytes()) == Name::RateLimit => {
            of_policy(fields, name, response.made_at).map_or((None, None), |left| (Some(left.units), left.resets_at))
        }
        (Some(header), _) => (smallest_count(fields, header), None),
        (None, _) => (None, None),
    };
    let reset = header_value(fields, &sync.reset_header).and_then(|value| parse_reset(value, response));
    let resets_at = reset.or(limits_reset);
    let unparsed_name = |name: &'a Option<HeaderName>, is_parsed: bool| {
        name.as_ref().filter(|_| !is_parsed && header_value(fields, name).is_some())
    };
    let unreadable_header = unparsed_name(&sync.remaining_header, remaining.is_some())
        .or(unparsed_name(&sync.reset_header, reset.is_some()));
    let remaining = remaining.filter(|_| unreadable_header.is_none());
    let made_at = age.map(|_| response.made_at);
    let mut report = OriginReport { remaining, resets_at, made_at, dated: response.dated, ..OriginReport::default() };
    let rule = sync.exhausted.as_ref().filter(|rule| rule.statuses.contains(&status.as_u16()));
    let evidence = rule.map_or(Evidence::None, |rule| exhaustion_evidence(rule, request, has_body, fields));
    let body_text = match evidence {
        Evidence::InBody(text) => Some(text),
        Evidence::None | Evidence::Found => None,
    };
    if !matches!(evidence, Evidence::None) {
        report.exhausted = body_text.is_none();
        report.retry_at = fields.get(Name::RetryAfter).and_then(|value| parse_reset(value, response));
    }
    let text = rule.and_then(|rule| rule.text.as_ref());
    let is_certain = text.is_none_or(ExhaustedText::has_place);
    SyncHeaders { report, is_certain, unreadable_header, body_text }
}

/// Returns the evidence of exhaustion in a response with a status of `rule`. A text that the request contains is none,
/// because the response may quote the request. Bodies of requests are not searched.
fn exhaustion_evidence<'a>(
    rule: &'a ExhaustedRule,
    request: &RequestHead,
    has_body: bool,
    fields: &Fields,
) -> Evidence<'a> {
    let Some(wanted) = &rule.text else { return Evidence::Found };
    let is_found = match &wanted.place {
        _ if is_in_request(&wanted.text, request) => return Evidence::None,
        TextPlace::Anywhere if has_body => return Evidence::None,
        TextPlace::Json(_) => return Evidence::InBody(wanted),
        TextPlace::Header(name) => {
            fields.get_all_by_text(name.as_str()).any(|value| contains(value, wanted.text.as_bytes()))
        }
        TextPlace::Anywhere if any_header_contains(&wanted.text, fields) => true,
        TextPlace::Anywhere => return Evidence::InBody(wanted),
    };
    if is_found { Evidence::Found } else { Evidence::None }
}

impl BodyScan {
    pub(in crate::gateway) fn new(quota: QuotaId, window: u64, report: OriginReport, wanted: ExhaustedText) -> Self {
        Self { quota, window, report, wanted, buffer: Vec::new() }
    }

    /// Scans a chunk of the body. Returns true once the text is found.
    pub(in crate::gateway) fn scan(&mut self, data: &[u8]) -> bool {
        let from = self.buffer.len().saturating_sub(self.wanted.text.len());
        let capacity = MAX_SCAN_BYTES.saturating_sub(self.buffer.len());
        self.buffer.extend_from_slice(&data[..data.len().min(capacity)]);
        match &self.wanted.place {
            TextPlace::Json(pointer) => self.value_at(pointer).is_some_and(|value| value == self.wanted.text),
            TextPlace::Anywhere | TextPlace::Header(_) => contains(&self.buffer[from..], self.wanted.text.as_bytes()),
        }
    }

    /// Returns the text or number at `pointer`, if all of the body has been received.
    fn value_at(&self, pointer: &str) -> Option<String> {
        // Only a document that may be complete is parsed.
        self.buffer.trim_ascii_end().last().filter(|byte| matches!(byte, b'}' | b']'))?;
        match serde_json::from_slice::<Value>(&self.buffer).ok()?.pointer(pointer)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Returns false if the response may quote the text, because its place is not named.
    pub(in crate::gateway) fn is_certain(&self) -> bool {
        self.wanted.has_place()
    }

    /// Returns true if the scan limit is reached.
    pub(in crate::gateway) fn is_done(&self) -> bool {
        self.buffer.len() >= MAX_SCAN_BYTES
    }
}

fn header_value<'a>(fields: &'a Fields, name: &'a Option<HeaderName>) -> Option<&'a [u8]> {
    fields.get_all_by_text(name.as_ref()?.as_str()).next()
}

/// Returns the smallest count of a header; `None` if there is none, or if one is no count.
fn smallest_count(fields: &Fields, header: &HeaderName) -> Option<Units> {
    let mut counts = fields.get_all_by_text(header.as_str()).peekable();
    counts.peek()?;
    // A negative number is no count: some origins mean by it that there is no limit.
    let count = |value: &[u8]| parse_units(value).filter(|_| !value.trim_ascii().starts_with(b"-"));
    counts.map(count).try_fold(Units::MAX, |smallest, count| Some(smallest.min(count?)))
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
    use proptest::prelude::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn sync(remaining: &'static str, exhausted: Option<ExhaustedRule>) -> SyncFrom {
        let header = HeaderName::from_static;
        SyncFrom { remaining_header: Some(header(remaining)), reset_header: Some(header("x-reset")), exhausted }
    }

    fn sync_headers<'a>(sync: &'a SyncFrom, status: u16, fields: &[(&'static str, &'static str)]) -> SyncHeaders<'a> {
        let status = StatusCode::from_u16(status).expect("valid status");
        read(sync, "tokens", &request("/", ""), false, status, &fields.iter().copied().collect(), NOW)
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
        assert_eq!(left("x-left", "-3"), None, "no count");
        assert_eq!(left("x-left", "18446744073709551616"), None, "too large");
        assert_eq!(left("x-left", "many"), None);
        assert_eq!(left("ratelimit", "\"burst\";r=9;t=1, \"day;r=1\";r=7;t=60"), Some(7000));
        assert_eq!(left("ratelimit", "limit=100, remaining=50"), Some(50_000));
        let two = "\"requests\";r=9;t=1, \"Tokens\";r=700;t=60";
        assert_eq!(left("ratelimit", two), Some(700_000), "the policy with the name of the quota");
        assert_eq!(left("ratelimit", "tokens;a=700;w=60, other;a=9"), Some(700_000));
        assert_eq!(left("ratelimit", "\"tokens\";q=700, \"other\";r=9"), Some(9_000), "which has no remaining number");
    }

    #[test]
    fn smallest_of_several_counts_is_read() {
        let left = |values: &[&'static str]| {
            let fields: Vec<_> = values.iter().map(|value| ("x-left", *value)).collect();
            let sync = sync("x-left", None);
            let headers = sync_headers(&sync, 200, &fields);
            (headers.report.remaining.map(Units::floor), headers.unreadable_header.is_some())
        };
        assert_eq!([left(&["700", "5"]), left(&["5", "700"])], [(Some(5), false); 2]);
        assert_eq!([left(&["700", "many"]), left(&["-1", "700"])], [(None, true); 2]);
        assert_eq!(left(&[]), (None, false));
    }

    #[test]
    fn times_are_those_of_the_response_by_the_clock_of_the_origin() {
        let report = |fields: &[(&'static str, &'static str)]| {
            let rule = ExhaustedRule { statuses: vec![429], text: None };
            let sync = sync("x-left", Some(rule));
            sync_headers(&sync, 429, fields).report
        };
        let at = |seconds: u64| Some(Timestamp::from_seconds(1_800_000_000 + seconds));
        let date = ("date", "Fri, 15 Jan 2027 07:59:57 GMT");
        let retry = ("retry-after", "Fri, 15 Jan 2027 07:59:58 GMT");
        assert_eq!(report(&[date, retry]).retry_at, at(1), "the clock of the origin is three seconds behind");
        assert_eq!(report(&[date, ("retry-after", "5")]).retry_at, at(5));
        assert_eq!(report(&[("date", "Fri, 15 Jan 2027 08:00:03 GMT"), ("x-reset", "1800000063")]).resets_at, at(60));
        let old = ("date", "Fri, 15 Jan 2027 07:00:00 GMT");
        assert_eq!(report(&[old, ("x-reset", "1800000060")]).resets_at, at(60), "no clock is an hour behind");
        let kept = report(&[("age", "50"), ("x-left", "0"), ("x-reset", "60")]);
        assert_eq!((kept.resets_at, kept.made_at), (at(10), Some(NOW - Duration::from_secs(50))));
        assert_eq!(report(&[old]).dated, Some(NOW - Duration::from_secs(3600)));
        let hit = [("cache-status", "cdn; hit"), ("x-left", "0"), ("age", "0")];
        assert_eq!(report(&hit[..2]), OriginReport::default(), "a cache has kept it for an unknown time");
        assert_eq!(report(&hit).made_at, Some(NOW));
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
        assert_eq!(reset("1m0s"), at(1_800_000_060));
        assert_eq!(reset("59.5s"), Some(NOW + Duration::from_millis(59_500)));
        for invalid in ["", "soon", "-1", "NaN", "1e300", "inf", "-1m0s", "1m0", "9999999h", "2027-13-15T08:01:00Z"] {
            assert_eq!(reset(invalid), None, "{invalid}");
        }
        let fields = [("ratelimit", "\"day\";r=7;t=60")];
        assert_eq!(sync_headers(&sync("ratelimit", None), 200, &fields).report.resets_at, at(1_800_000_060));
    }

    #[test]
    fn counters_of_providers_are_read() {
        let openai = [
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-remaining-tokens", "29958"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:02Z"),
            ("anthropic-ratelimit-tokens-remaining", "39000"),
            ("anthropic-ratelimit-tokens-reset", "2027-01-15T09:01:00.25+01:00"),
        ];
        let github = [("x-ratelimit-remaining", "4987"), ("x-ratelimit-reset", "1800003600")];
        let ietf = [("ratelimit-remaining", "7"), ("ratelimit-reset", "30")];
        let rows: [(&[_], _, _, _, _); 6] = [
            (&openai, "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", 499, 120),
            (&openai, "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", 29_958, 360_000),
            (&anthropic, "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset", 49, 2_000),
            (&anthropic, "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset", 39_000, 60_250),
            (&github, "x-ratelimit-remaining", "x-ratelimit-reset", 4_987, 3_600_000),
            (&ietf, "ratelimit-remaining", "ratelimit-reset", 7, 30_000),
        ];
        for (fields, remaining, reset, units, wait_ms) in rows {
            let header = |name: &str| Some(name.parse().expect("a header name"));
            let sync = SyncFrom { remaining_header: header(remaining), reset_header: header(reset), exhausted: None };
            let reported = sync_headers(&sync, 200, fields);
            let resets_at = Some(NOW + Duration::from_millis(wait_ms));
            let left = Some(Units::from_whole(units));
            let expected = OriginReport { remaining: left, resets_at, ..OriginReport::default() };
            assert_eq!((reported.report, reported.unreadable_header), (expected, None), "{remaining}");
        }
    }

    proptest! {
        #[test]
        fn no_value_panics(remaining in "\\PC{0,24}|[0-9.-]{0,24}", reset in "\\PC{0,32}|[0-9.hms:TZ+-]{0,32}") {
            let sync = sync("x-left", None);
            let fields = [("x-left", remaining.as_str()), ("x-reset", &reset)].into_iter().collect();
            let SyncHeaders { report, unreadable_header, .. } =
                read(&sync, "tokens", &request("/", ""), false, StatusCode::OK, &fields, NOW);
            prop_assert!(unreadable_header.is_none() || report.remaining.is_none());
            prop_assert!(report.resets_at.is_none_or(|reset| reset >= Timestamp::default()));
        }
    }

    #[test]
    fn unparsable_header_is_reported_by_name() {
        let sync = sync("x-left", None);
        let unreadable_header = |fields| sync_headers(&sync, 200, fields).unreadable_header.map(HeaderName::as_str);
        assert_eq!(unreadable_header(&[("x-left", "many"), ("x-reset", "60")]), Some("x-left"));
        assert_eq!(unreadable_header(&[("x-left", "7"), ("x-reset", "soon")]), Some("x-reset"));
        assert_eq!(unreadable_header(&[("x-left", "7")]), None, "a missing header is not unreadable");
        let report = sync_headers(&sync, 200, &[("x-left", "7"), ("x-reset", "soon")]).report;
        assert_eq!(report, OriginReport::default(), "a count of an unknown window is ignored");
    }

    #[test]
    fn exhaustion_needs_a_status_and_matching_text() {
        let exhausted = |needle: Option<&str>| {
            let text = needle.map(|text| wanted(text, TextPlace::Anywhere));
            sync("x-left", Some(ExhaustedRule { statuses: vec![403, 429], text }))
        };
        let (any, with_text) = (exhausted(None), exhausted(Some("dailyLimit")));
        let by_status = sync_headers(&any, 429, &[("retry-after", "60")]);
        assert!(by_status.report.exhausted && by_status.body_text.is_none());
        assert_eq!(by_status.report.retry_at, Some(NOW + Duration::from_secs(60)));
        assert!(!sync_headers(&exhausted(None), 503, &[]).report.exhausted);
        assert!(
            sync_headers(&exhausted(Some("dailyLimit")), 403, &[("x-error", "a dailyLimitExceeded")]).report.exhausted
        );
        let pending = sync_headers(&with_text, 403, &[]);
        assert_eq!(
            (pending.report.exhausted, pending.body_text),
            (false, Some(&wanted("dailyLimit", TextPlace::Anywhere)))
        );
    }

    #[test]
    fn text_that_the_request_contains_is_no_evidence() {
        let text = Some(wanted("daily limit", TextPlace::Anywhere));
        let sync = sync("x-left", Some(ExhaustedRule { statuses: vec![403], text }));
        let response: Fields = [("x-error", "no page for daily limit")].into_iter().collect();
        let is_exhausted_by = |request, has_body| {
            let reported = read(&sync, "tokens", &request, has_body, StatusCode::FORBIDDEN, &response, NOW);
            assert_eq!(reported.body_text, None);
            reported.report.exhausted
        };
        let is_exhausted = |target, cookie| is_exhausted_by(request(target, cookie), false);
        assert!(is_exhausted("/page?q=daily", "limit"));
        assert!(!is_exhausted_by(request("/page?q=daily", "limit"), true), "the response may quote the body");
        for target in ["/daily%20limit", "/?q=daily+limit", "/?q=%64%61ily%20limit"] {
            assert!(!is_exhausted(target, ""), "{target}");
        }
        assert!(!is_exhausted("/", "seen=daily limit"));
    }

    #[test]
    fn text_counts_at_the_named_place_only() {
        let sync_with = |place| {
            let text = Some(wanted("daily", place));
            sync("x-left", Some(ExhaustedRule { statuses: vec![403], text }))
        };
        let in_header = sync_with(TextPlace::Header(HeaderName::from_static("x-error")));
        let is_exhausted = |name, has_body| {
            let response: Fields = [(name, "daily limit")].into_iter().collect();
            let reported =
                read(&in_header, "tokens", &request("/", ""), has_body, StatusCode::FORBIDDEN, &response, NOW);
            assert_eq!(reported.body_text, None);
            reported.report.exhausted
        };
        assert!(is_exhausted("X-Error", false) && is_exhausted("X-Error", true) && !is_exhausted("X-Page", false));

        let in_json = sync_with(TextPlace::Json("/error/0/reason".into()));
        let response: Fields = [("x-error", "daily")].into_iter().collect();
        let reported = read(&in_json, "tokens", &request("/", ""), true, StatusCode::FORBIDDEN, &response, NOW);
        assert!(!reported.report.exhausted);
        let place = reported.body_text.expect("the body is searched");
        let is_found = |chunks: &[&[u8]]| {
            let mut scan = new_scan(place.clone());
            chunks.iter().any(|chunk| scan.scan(chunk))
        };
        assert!(is_found(&[br#"{"error": [{"rea"#, br#"son": "\u0064aily"}], "more": []}"#, b"\n"]));
        assert!(!is_found(&[br#"{"error": [{"reason": "daily page"}], "quote": "daily"}"#]));
        assert!(!is_found(&[br#"{"error": [{"reason": "daily"}]"#]), "the body ends early");
        assert!(!is_found(&[br#"{"reason": "daily"}"#]) && !is_found(&[b"daily"]));
    }

    fn wanted(text: &str, place: TextPlace) -> ExhaustedText {
        ExhaustedText { text: text.into(), place }
    }

    fn new_scan(wanted: ExhaustedText) -> BodyScan {
        BodyScan::new(QuotaId(0), 0, OriginReport::default(), wanted)
    }

    #[test]
    fn body_scan_spans_chunks_up_to_a_bound() {
        let new_scan = || new_scan(wanted("dailyLimit", TextPlace::Anywhere));
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
