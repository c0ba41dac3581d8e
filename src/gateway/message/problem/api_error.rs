//! Errors in the form of a model API, which its SDKs turn into errors of their own and repeat by themselves.
//!
//! The names are those that `openai` and `anthropic`, the Python packages, and their siblings know. They wait for
//! `Retry-After`; some of them read no more than a minute of it and repeat the request too early, others sleep for hours.

use super::{Problem, WaitText};
use crate::gateway::message::error_pages::ApiStyle;
use crate::gateway::message::json::JsonText;
use crate::gateway::message::scratch::ScratchBuffer;
use std::fmt::{self, Write};
use tidegate_http1::Fields;
use tidegate_policy::Reason;

/// Longest wait that an SDK is left to wait for, in seconds. It raises the error at once otherwise.
const MAX_SDK_WAIT: u64 = 60;

/// Names of an error in both APIs.
struct ErrorNames {
    openai_type: &'static str,
    openai_code: Option<&'static str>,
    anthropic_type: &'static str,
}

/// Writes the body of the response to decision `id` in the form of `api`.
pub(super) fn write_body(api: ApiStyle, problem: &Problem<'_>, id: &str, text: &mut ScratchBuffer) -> fmt::Result {
    let ErrorNames { openai_type, openai_code, anthropic_type } = names(problem.template.status, problem.reason);
    let message = ErrorText(problem);
    match api {
        ApiStyle::OpenAi => {
            write!(
                text,
                "{{\"error\":{{\"message\":\"{message}\",\"type\":\"{openai_type}\",\"param\":null,\"code\":"
            )?;
            match openai_code {
                Some(code) => writeln!(text, "\"{code}\"}}}}"),
                None => text.write_str("null}}\n"),
            }
        }
        ApiStyle::Anthropic => writeln!(
            text,
            "{{\"type\":\"error\",\"error\":{{\"type\":\"{anthropic_type}\",\"message\":\"{message}\"}},\
             \"request_id\":\"{id}\"}}"
        ),
    }
}

/// Adds the fields that the SDKs of `api` read: the id of the request, and whether they repeat it.
pub(super) fn add_fields(api: ApiStyle, id: &str, retry_after: Option<u64>, fields: &mut Fields) {
    let request_id = match api {
        ApiStyle::OpenAi => "x-request-id",
        ApiStyle::Anthropic => "request-id",
    };
    fields.append_text(request_id, id.as_bytes());
    if retry_after.is_some_and(|seconds| seconds > MAX_SDK_WAIT) {
        fields.append_text("x-should-retry", b"false");
    }
}

/// The detail of a problem and the time of a retry, in words.
struct ErrorText<'a>(&'a Problem<'a>);

impl fmt::Display for ErrorText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { template, retry_after, .. } = self.0;
        write!(out, "{}", JsonText(template.detail))?;
        match retry_after {
            Some(seconds) => write!(out, " Try again in {}.", WaitText(*seconds)),
            None => Ok(()),
        }
    }
}

/// Returns the names of an error with `status`.
fn names(status: u16, reason: Option<Reason>) -> ErrorNames {
    let (openai_type, openai_code, anthropic_type) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key"), "authentication_error"),
        403 => ("request_forbidden", None, "permission_error"),
        413 => ("invalid_request_error", None, "request_too_large"),
        // Programs tell a spent quota, which a short wait does not fill, from a high rate.
        429 if matches!(reason, Some(Reason::Quota | Reason::ClientShare)) => {
            ("insufficient_quota", Some("insufficient_quota"), "rate_limit_error")
        }
        429 => ("rate_limit_exceeded", Some("rate_limit_exceeded"), "rate_limit_error"),
        503 => ("server_error", None, "overloaded_error"),
        408 | 504 => ("server_error", None, "timeout_error"),
        500.. => ("server_error", None, "api_error"),
        _ => ("invalid_request_error", None, "invalid_request_error"),
    };
    ErrorNames { openai_type, openai_code, anthropic_type }
}

#[cfg(test)]
mod tests {
    use super::super::template::ProblemTemplate;
    use super::*;
    use http::StatusCode;
    use std::time::Duration;

    fn body(api: ApiStyle, problem: &Problem<'_>) -> serde_json::Value {
        let body = ScratchBuffer::new().bytes(|text| write_body(api, problem, "0000000000000007", text));
        serde_json::from_slice(&body.expect("rendered document")).expect("valid JSON")
    }

    #[test]
    fn each_api_has_its_form() {
        let problem = Problem::throttled(Reason::Throttle, Duration::from_secs(600), 0.0);
        let message = "The site has no capacity for another request now. Try again in 10 minutes.";
        assert_eq!(
            body(ApiStyle::OpenAi, &problem),
            serde_json::json!({ "error": { "message": message, "type": "server_error", "param": null, "code": null } })
        );
        assert_eq!(
            body(ApiStyle::Anthropic, &problem),
            serde_json::json!({
                "type": "error",
                "error": { "type": "overloaded_error", "message": message },
                "request_id": "0000000000000007",
            })
        );
    }

    #[test]
    fn every_refusal_is_valid_json_with_the_names_of_its_status() {
        let templates = Reason::ALL.map(ProblemTemplate::for_refusal).into_iter();
        let blocks = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].map(ProblemTemplate::for_block);
        for template in templates.chain(blocks) {
            let problem = Problem::from_template(template);
            let openai = body(ApiStyle::OpenAi, &problem)["error"].clone();
            let anthropic = body(ApiStyle::Anthropic, &problem)["error"].clone();
            let message = openai["message"].as_str().expect("text");
            assert!(message.starts_with(template.detail) && anthropic["message"] == message);
            let expected = match template.status {
                401 => ("invalid_request_error", "authentication_error"),
                403 => ("request_forbidden", "permission_error"),
                429 => ("rate_limit_exceeded", "rate_limit_error"),
                _ => ("server_error", "overloaded_error"),
            };
            assert_eq!((openai["type"].as_str(), anthropic["type"].as_str()), (Some(expected.0), Some(expected.1)));
        }
    }

    #[test]
    fn a_spent_quota_is_no_rate_limit_to_openai() {
        let spent = names(429, Some(Reason::Quota));
        assert_eq!((spent.openai_type, spent.openai_code), ("insufficient_quota", Some("insufficient_quota")));
        assert_eq!(names(429, Some(Reason::Bucket)).openai_code, Some("rate_limit_exceeded"));
    }

    #[test]
    fn an_sdk_waits_for_a_minute_at_most() {
        for (retry_after, expected) in [(None, None), (Some(60), None), (Some(61), Some(&b"false"[..]))] {
            let mut fields = Fields::new();
            add_fields(ApiStyle::OpenAi, "0000000000000007", retry_after, &mut fields);
            assert_eq!(fields.get_all_by_text("x-should-retry").next(), expected, "{retry_after:?}");
        }
    }
}
