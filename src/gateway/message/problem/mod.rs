//! The gateway's own responses. No other module selects a status code.
//!
//! Refusals are RFC 9457 problem documents of the types registered in draft-ietf-httpapi-ratelimit-headers-11 section
//! 5, or a short HTML page, in place of which the administrator may have other bodies. They are not cacheable, and contain
//! a decision id and a retry time.

mod api_error;
mod cached;
mod customer_usage;
mod format;
mod forward_auth;
mod template;

pub(in crate::gateway) use cached::cached_response;
pub(in crate::gateway) use customer_usage::customer_usage;
pub(in crate::gateway) use format::ResponseFormat;
pub(in crate::gateway) use forward_auth::{ProxyRequestError, forbidden, proxy_request_error, settled};

use super::error_pages::{ErrorPages, JsonBody, PageTemplate, Placeholder};
use super::html::write_page_head;
use super::response_body::ResponseBody;
use super::scratch::ScratchBuffer;
use super::target::RequestError;
use crate::gateway::upstream::ForwardError;
use http::StatusCode;
use hyper::body::Body;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::Duration;
use template::ProblemTemplate;
use tidegate_access_log::hexadecimal;
use tidegate_engine::QuotaUsage;
use tidegate_http1::{Fields, Name, Response};
use tidegate_policy::tier::Share;
use tidegate_policy::time::{ceil_seconds, with_spread};
use tidegate_policy::{Reason, Rules};
use tidegate_rate_limit_headers::RateLimitSnapshot;
use tidegate_traces::TraceContext;

/// `Retry-After` if the origin is unreachable.
const ORIGIN_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Challenge of a 401 (RFC 9110 section 11.6.1, RFC 6750 section 3).
const CHALLENGE: &[u8] = b"Bearer realm=\"api\"";

const PROBLEM_JSON: &[u8] = b"application/problem+json";
const JSON: &[u8] = b"application/json";
const HTML: &[u8] = b"text/html; charset=utf-8";

/// A response of the gateway instead of the origin.
pub(in crate::gateway) struct Problem<'a> {
    template: ProblemTemplate,
    reason: Option<Reason>,
    violated_policies: ViolatedPolicies<'a>,
    retry_after: Option<u64>,
    /// True if a browser is asked to repeat the request by itself.
    returns_by_itself: bool,
    /// Trace that the request belongs to.
    pub(in crate::gateway) trace: Option<&'a TraceContext>,
}

/// Names of the policies that refused the request.
#[derive(Clone, Copy)]
struct ViolatedPolicies<'a>(Option<(&'a Rules, RateLimitSnapshot<'a>)>);

impl<'a> Problem<'a> {
    /// Returns the problem of a refusal by the rules; `None` without one. `spread`, between 0 and the configured ratio
    /// of the wait, is added to the retry time so that refused clients do not retry together.
    pub(in crate::gateway) fn refused(rules: &'a Rules, snapshot: RateLimitSnapshot<'a>, spread: f64) -> Option<Self> {
        let refusal = snapshot.refusal?;
        if refusal.reason.is_of_scope() {
            return Some(Self::throttled(refusal.reason, refusal.wait, spread));
        }
        let class = &rules[snapshot.class];
        let template = match refusal.reason {
            Reason::Tier if has_no_share(rules, &snapshot) => ProblemTemplate::for_no_share(),
            Reason::Blocked => ProblemTemplate::for_block(refusal.status(class)),
            reason => ProblemTemplate::for_refusal(reason),
        };
        Some(Self {
            template,
            reason: Some(refusal.reason),
            violated_policies: ViolatedPolicies(Some((rules, snapshot))),
            retry_after: refusal.retry_after(class, spread),
            returns_by_itself: false,
            trace: None,
        })
    }

    /// Returns the problem of a browser that repeats the request by itself after `wait`.
    pub(in crate::gateway) fn with_return(self, wait: Duration) -> Self {
        Self { retry_after: Some(ceil_seconds(wait)), returns_by_itself: true, ..self }
    }

    /// Returns the problem of an admitted request that gets no slots in time. `spread` as in [`Problem::refused`].
    pub(in crate::gateway) fn throttled(reason: Reason, wait: Duration, spread: f64) -> Self {
        let wait = with_spread(wait, spread);
        match reason {
            Reason::Backoff => Self::of_scope(Reason::Backoff, wait),
            _ => Self::of_scope(Reason::Throttle, wait),
        }
    }

    /// Returns the problem of a failed origin, with the remaining `backoff` as the retry time.
    pub(in crate::gateway) fn origin_failed(error: &ForwardError, backoff: Duration) -> Self {
        if error.is_capacity() {
            return Self::of_scope(Reason::Throttle, ORIGIN_RETRY_AFTER);
        }
        let problem = Self::from_template(ProblemTemplate::for_forward_error(error));
        Self { retry_after: problem.retry_after.map(|seconds| seconds.max(ceil_seconds(backoff))), ..problem }
    }

    /// Returns the problem of a request that cannot be forwarded.
    pub(in crate::gateway) fn malformed(error: RequestError) -> Self {
        Self::from_template(ProblemTemplate::for_request_error(error))
    }

    /// Returns the problem of a request for the usage of a customer without a valid key.
    pub(in crate::gateway) fn unauthorized() -> Self {
        Self::from_template(ProblemTemplate::NO_KEY)
    }

    /// Returns the problem of a request for a stored response that does not exist.
    pub(in crate::gateway) fn only_if_cached() -> Self {
        Self { retry_after: None, ..Self::from_template(ProblemTemplate::ONLY_IF_CACHED) }
    }

    /// Returns the problem of a robots.txt that cannot be fetched for `wait`. `spread` as in [`Problem::refused`].
    pub(in crate::gateway) fn robots_unavailable(wait: Duration, spread: f64) -> Self {
        let retry_after = Some(ceil_seconds(with_spread(wait, spread)).max(1));
        Self { retry_after, ..Self::from_template(ProblemTemplate::ROBOTS_UNAVAILABLE) }
    }

    /// Returns the problem of a page that others fetch, and have not received after `wait`. `spread` as in
    /// [`Problem::refused`].
    pub(in crate::gateway) fn fetch_overdue(wait: Duration, spread: f64) -> Self {
        let retry_after = Some(ceil_seconds(with_spread(wait, spread)).max(1));
        Self { retry_after, ..Self::from_template(ProblemTemplate::FETCH_OVERDUE) }
    }

    /// Returns the problem of a scope without a free slot, or in backoff.
    fn of_scope(reason: Reason, wait: Duration) -> Self {
        Self {
            template: ProblemTemplate::for_refusal(reason),
            reason: Some(reason),
            violated_policies: ViolatedPolicies(None),
            retry_after: Some(ceil_seconds(wait).max(1)),
            returns_by_itself: false,
            trace: None,
        }
    }

    fn from_template(template: ProblemTemplate) -> Self {
        let retry_after = (template.status >= 500).then(|| ceil_seconds(ORIGIN_RETRY_AFTER));
        let violated_policies = ViolatedPolicies(None);
        Self { template, reason: None, violated_policies, retry_after, returns_by_itself: false, trace: None }
    }

    /// Returns the status of the response.
    pub(in crate::gateway) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.template.status).expect("valid status")
    }

    /// Returns what is wrong, in a sentence.
    pub(in crate::gateway) fn detail(&self) -> &'static str {
        self.template.detail
    }

    /// Returns the value of `Retry-After`, in seconds.
    pub(in crate::gateway) fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Returns the response in `format`, with decision `id`, and the length of its body, which is one of `pages` if there is
    /// one for the status.
    pub(in crate::gateway) fn into_response(
        self,
        format: ResponseFormat,
        id: u64,
        pages: &ErrorPages,
        scratch: &mut ScratchBuffer,
    ) -> (Response<ResponseBody>, u64) {
        let id = hexadecimal(id);
        let id = std::str::from_utf8(&id).expect("hexadecimal digits");
        let ResponseFormat { prefers_html } = format;
        let status = self.template.status;
        let (content_type, body) = match prefers_html {
            true => (HTML, html_body(&self, pages.html(status), id, scratch)),
            false => json_body(&self, pages.json(status), id, scratch),
        };
        let mut fields = Fields::new();
        fields.append(Name::ContentType, content_type);
        fields.append(Name::CacheControl, b"no-store");
        fields.append(Name::Decision, id.as_bytes());
        if self.status() == StatusCode::UNAUTHORIZED {
            fields.append_text("www-authenticate", CHALLENGE);
        }
        if !self.template.allow.is_empty() {
            fields.append(Name::Allow, self.template.allow.as_bytes());
        }
        if let Some(seconds) = self.retry_after {
            let mut buffer = itoa::Buffer::new();
            let seconds = buffer.format(seconds).as_bytes();
            fields.append(Name::RetryAfter, seconds);
            if self.returns_by_itself {
                fields.append_text("refresh", seconds);
            }
        }
        if let (false, JsonBody::Api(api)) = (prefers_html, pages.json(status)) {
            api_error::add_fields(*api, id, self.retry_after, &mut fields);
        }
        let length = body.size_hint().lower();
        (Response { status: self.status(), fields, body }, length)
    }
}

/// Returns what a page of the administrator shows in place of `placeholder`.
fn page_value<'v>(problem: &Problem<'_>, placeholder: Placeholder, id: &'v str) -> Cow<'v, str> {
    match placeholder {
        Placeholder::Status => problem.template.status.to_string().into(),
        Placeholder::Title => title(problem.status()).into(),
        Placeholder::Detail => problem.template.detail.into(),
        Placeholder::RetryAfter => problem.retry_after.map_or("".into(), |seconds| seconds.to_string().into()),
        Placeholder::Wait => problem.retry_after.map_or("".into(), |seconds| WaitText(seconds).to_string().into()),
        Placeholder::Decision => id.into(),
    }
}

/// Returns the page of the administrator, or that of the gateway.
fn html_body(
    problem: &Problem<'_>,
    page: Option<&PageTemplate>,
    id: &str,
    scratch: &mut ScratchBuffer,
) -> ResponseBody {
    match page {
        Some(page) => ResponseBody::parts(page.render(scratch, |value| page_value(problem, value, id))),
        None => ResponseBody::full(scratch.bytes(|text| write_html(problem, id, text)).unwrap_or_default()),
    }
}

/// Returns a body that is not HTML, and its type.
fn json_body(
    problem: &Problem<'_>,
    body: &JsonBody,
    id: &str,
    scratch: &mut ScratchBuffer,
) -> (&'static [u8], ResponseBody) {
    let (content_type, text) = match body {
        JsonBody::Problem => (PROBLEM_JSON, scratch.bytes(|text| write_json(problem, id, text))),
        JsonBody::Api(api) => (JSON, scratch.bytes(|text| api_error::write_body(*api, problem, id, text))),
        JsonBody::Template(page) => {
            return (JSON, ResponseBody::parts(page.render(scratch, |value| page_value(problem, value, id))));
        }
    };
    (content_type, ResponseBody::full(text.unwrap_or_default()))
}

/// Returns the name of a status.
fn title(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

fn write_json(problem: &Problem<'_>, id: &str, text: &mut ScratchBuffer) -> fmt::Result {
    text.write_str(problem.template.before_id)?;
    text.write_str(id)?;
    if let Some(trace) = problem.trace {
        write!(text, "\",\"trace_id\":\"{:032x}", trace.trace_id)?;
    }
    text.write_str(problem.template.after_id)?;
    if problem.reason.is_some() {
        problem.violated_policies.write(text)?;
        text.write_str("]}\n")?;
    }
    Ok(())
}

fn write_html(problem: &Problem<'_>, id: &str, text: &mut ScratchBuffer) -> fmt::Result {
    write_page_head(text, format_args!("{} {}", problem.template.status, title(problem.status())))?;
    let detail = if problem.returns_by_itself { WELCOME_BACK } else { problem.template.detail };
    writeln!(text, "<h1>{}</h1>\n<p>{detail}</p>", heading(problem.status()))?;
    if let Some(seconds) = problem.retry_after {
        match problem.returns_by_itself {
            true => writeln!(text, "<p>This page loads by itself in {}.</p>", WaitText(seconds))?,
            false => writeln!(text, "<p>Please try again in {}.</p>", WaitText(seconds))?,
        }
    }
    writeln!(text, "<p><small>Decision {id}</small></p>")
}

/// Detail in the page for a browser that comes back by itself.
const WELCOME_BACK: &str = "Many clients ask for pages now. Browsers that come back are served.";

fn heading(status: StatusCode) -> &'static str {
    match status {
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        status if status.is_server_error() => "The site is unavailable",
        _ => "This request cannot be served",
    }
}

impl ViolatedPolicies<'_> {
    fn write(self, text: &mut ScratchBuffer) -> fmt::Result {
        let Some((rules, snapshot)) = self.0 else { return Ok(()) };
        let Some(refusal) = snapshot.refusal else { return Ok(()) };
        if refusal.quotas.is_empty() {
            let class = &rules[snapshot.class];
            // A block by an administrator is no policy of the class.
            if !refusal.reason.row().is_of_class || (refusal.reason == Reason::Blocked && !class.blocked) {
                return Ok(());
            }
            text.write_char('"')?;
            text.write_str(&class.name)?;
            return text.write_char('"');
        }
        let mut separator = "";
        for (index, usage) in snapshot.usages.iter().enumerate() {
            if refusal.quotas.contains(index) {
                text.write_str(separator)?;
                text.write_char('"')?;
                text.write_str(&rules[usage.quota].name)?;
                text.write_char('"')?;
                separator = ",";
            }
        }
        Ok(())
    }
}

/// Returns true if a tier of a quota that refused the request leaves its class nothing from the first unit on.
fn has_no_share(rules: &Rules, snapshot: &RateLimitSnapshot<'_>) -> bool {
    let refusing = |(index, usage): (usize, &QuotaUsage)| {
        let is_refusing = snapshot.refusal.is_some_and(|refusal| refusal.quotas.contains(index));
        let tiers = rules[usage.quota].class_tiers.get(snapshot.class.index())?.as_ref().filter(|_| is_refusing)?;
        tiers.tiers.tiers().first().copied()
    };
    let mut tiers = snapshot.usages.iter().enumerate().filter_map(refusing);
    tiers.any(|tier| tier.threshold.is_zero() && tier.shed_share == Share::ALL)
}

/// Formats a wait in words.
struct WaitText(u64);

impl fmt::Display for WaitText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self.0 {
            seconds @ 0..=119 => (seconds, "second"),
            seconds @ 120..=7199 => (seconds.div_ceil(60), "minute"),
            seconds => (seconds.div_ceil(3600), "hour"),
        };
        write!(out, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::upstream::ClientBodyError;
    use tidegate_config::settings::ErrorStatus;
    use tidegate_http1::Malformed;
    use tidegate_policy::quota::ClassTiers;
    use tidegate_policy::tier::{Tier, TierSet};
    use tidegate_policy::{Units, fixtures};

    #[test]
    fn waits_are_shown_in_rounded_units() {
        assert_eq!(WaitText(1).to_string(), "1 second");
        assert_eq!(WaitText(600).to_string(), "10 minutes");
        assert_eq!(WaitText(40_000).to_string(), "12 hours");
    }

    #[test]
    fn problem_title_matches_its_status() {
        use RequestError::*;
        for error in [
            Host,
            Misdirected,
            Path(tidegate_policy::path::PathError::EncodedSlash),
            Path(tidegate_policy::path::PathError::TooManySegments),
            Body(tidegate_policy::path::Ambiguity::Origin),
            Fields(tidegate_policy::path::Ambiguity::Origin),
            Query,
            Target,
            Framing,
            Method,
            DocumentMethod,
            Expectation,
            TooLarge,
            Loop,
        ] {
            let problem = Problem::malformed(error);
            let json = problem_json(&problem);
            assert_eq!(json["title"].as_str(), problem.status().canonical_reason());
            assert_eq!(json["status"], problem.status().as_u16());
            let is_of_method = problem.status() == StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(!problem.template.allow.is_empty(), is_of_method, "{error:?}");
        }
    }

    #[test]
    fn statuses_of_error_pages_are_those_of_problems() {
        let mut sent: Vec<u16> = [
            ProblemTemplate::for_refusal(Reason::Throttle),
            ProblemTemplate::METHOD_NOT_ALLOWED,
            ProblemTemplate::ONLY_IF_CACHED,
            ProblemTemplate::for_refusal(Reason::Quota),
            ProblemTemplate::for_block(StatusCode::UNAUTHORIZED),
            ProblemTemplate::for_block(StatusCode::FORBIDDEN),
            ProblemTemplate::for_forward_error(&ForwardError::ClientBody(ClientBodyError::TooSlow)),
            ProblemTemplate::for_forward_error(&ForwardError::ConnectFailed {
                source: std::io::ErrorKind::Other.into(),
            }),
            ProblemTemplate::for_request_error(RequestError::Host),
            ProblemTemplate::for_request_error(RequestError::Misdirected),
            ProblemTemplate::for_request_error(RequestError::Expectation),
            ProblemTemplate::for_request_error(RequestError::TooLarge),
            ProblemTemplate::for_request_error(RequestError::Loop),
            ProblemTemplate::for_request_error(RequestError::Malformed(Malformed::HeadTooLarge)),
            ProblemTemplate::for_request_error(RequestError::Malformed(Malformed::TargetTooLong)),
        ]
        .map(|template| template.status)
        .into();
        sent.sort_unstable();
        assert_eq!(sent, ErrorStatus::SENT);
    }

    #[test]
    fn refusal_has_reason_and_violated_policies() {
        let rules = Rules { classes: vec![fixtures::class("person")], ..fixtures::rules() };
        for reason in Reason::ALL {
            let quotas = tidegate_policy::RefusedQuotas::from_indexes([0]);
            let refusal = tidegate_policy::Refusal { reason, quotas, wait: Duration::from_secs(1) };
            let snapshot = RateLimitSnapshot {
                class: tidegate_policy::ClassId(0),
                route: tidegate_policy::RouteId(0),
                usages: &[],
                bucket: None,
                refusal: Some(&refusal),
            };
            let problem = Problem::refused(&rules, snapshot, 0.0).expect("refusal");
            let json = problem_json(&problem);
            assert_eq!(problem.status(), reason.status());
            assert_eq!((&json["reason"], &json["detail"]), (&reason.name().into(), &problem.template.detail.into()));
            assert_eq!(
                (&json["status"], &json["violated-policies"]),
                (&problem.template.status.into(), &serde_json::json!([]))
            );
        }
    }

    #[test]
    fn tier_that_leaves_nothing_from_the_start_says_so() {
        let detail = |above: u32, shed: Share| {
            let mut quota = fixtures::quota("api", 10);
            let limit = quota.limit;
            let tier = Tier { threshold: Units::from_whole(above.into()), shed_share: shed };
            let tiers = ClassTiers { tiers: TierSet::new(vec![tier], limit), enforce: true };
            quota.class_tiers = vec![Some(tiers)];
            let rules = Rules { classes: vec![fixtures::class("bot")], quotas: vec![quota], ..fixtures::rules() };
            let refusal = refusal(Reason::Tier, &[0]);
            let usages = [QuotaUsage {
                quota: tidegate_policy::QuotaId(0),
                cost: Units::from_whole(1),
                used: Units::ZERO,
                limit: Units::from_whole(10),
                remaining: Units::ZERO,
                client_remaining: None,
                tier: 1,
                guard_admitted: false,
                resets_at: tidegate_policy::Timestamp::from_seconds(60),
                client_resets_at: tidegate_policy::Timestamp::from_seconds(60),
                window: 0,
                sequence: 1,
            }];
            let snapshot = snapshot(&usages, &refusal);
            Problem::refused(&rules, snapshot, 0.0).expect("refusal").template.detail
        };
        assert!(detail(0, Share::ALL).contains("get no pages that cost units"));
        assert!(detail(1, Share::ALL).contains("share of this client class is used up"));
        assert!(detail(0, Share::from_ratio(0.5)).contains("share of this client class is used up"));
    }

    #[test]
    fn only_policies_of_the_class_are_named_as_violated() {
        let mut rules = Rules { classes: vec![fixtures::class("person")], ..fixtures::rules() };
        let policies = |rules: &Rules, reason| {
            let refusal = refusal(reason, &[]);
            let problem = Problem::refused(rules, snapshot(&[], &refusal), 0.0).expect("refusal");
            problem_json(&problem)["violated-policies"].clone()
        };
        let class = serde_json::json!([rules.classes[0].name]);
        assert_eq!(policies(&rules, Reason::Maintenance), serde_json::json!([]));
        assert_eq!(policies(&rules, Reason::Blocked), serde_json::json!([]), "an administrator blocks the client");
        assert_eq!(policies(&rules, Reason::Bucket), class);
        rules.classes[0].blocked = true;
        assert_eq!(policies(&rules, Reason::Blocked), class);
    }

    fn refusal(reason: Reason, quotas: &[usize]) -> tidegate_policy::Refusal {
        let quotas = tidegate_policy::RefusedQuotas::from_indexes(quotas.iter().copied());
        tidegate_policy::Refusal { reason, quotas, wait: Duration::from_secs(1) }
    }

    fn snapshot<'a>(usages: &'a [QuotaUsage], refusal: &'a tidegate_policy::Refusal) -> RateLimitSnapshot<'a> {
        let (class, route) = (tidegate_policy::ClassId(0), tidegate_policy::RouteId(0));
        RateLimitSnapshot { class, route, usages, bucket: None, refusal: Some(refusal) }
    }

    fn problem_json(problem: &Problem<'_>) -> serde_json::Value {
        let body = ScratchBuffer::new()
            .bytes(|text| write_json(problem, "0000000000000007", text))
            .expect("rendered document");
        serde_json::from_slice(&body).expect("valid JSON")
    }

    #[test]
    fn a_browser_gets_a_page_with_the_wait_and_the_decision() {
        let problem = Problem::throttled(Reason::Throttle, Duration::from_secs(600), 0.0);
        let page = ScratchBuffer::new().bytes(|text| write_html(&problem, "0000000000000007", text));
        insta::assert_snapshot!(String::from_utf8_lossy(&page.expect("rendered page")));
    }

    #[test]
    fn a_problem_is_valid_json() {
        let json = problem_json(&Problem::malformed(RequestError::Host));
        assert_eq!((&json["status"], &json["type"]), (&400.into(), &"about:blank".into()));
        assert_eq!(json["instance"], "urn:tidegate:decision:0000000000000007");
    }
}
