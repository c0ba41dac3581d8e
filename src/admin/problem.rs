//! Errors of the admin listener as problem documents (RFC 9457).

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error response.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Creates a problem with a detail of one or more lines.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), header: None }
    }

    /// Adds a header that the status requires.
    pub(super) fn with_header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some((name, value)), ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let document = json!({ "title": title, "status": self.status.as_u16(), "detail": self.detail });
        let mut response = (self.status, [(CONTENT_TYPE, PROBLEM_JSON)], document.to_string()).into_response();
        response.headers_mut().extend(self.header);
        response
    }
}

/// Replaces bare error responses of routing and limits by problem documents.
pub(super) async fn replace_bare_error(response: Response) -> Response {
    let status = response.status();
    let is_problem = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == PROBLEM_JSON);
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let detail = match status {
        StatusCode::NOT_FOUND => "Unknown path; see /api/v1/state.",
        StatusCode::METHOD_NOT_ALLOWED => "Method not allowed; the Allow header lists the methods.",
        StatusCode::PAYLOAD_TOO_LARGE => "The body exceeds 64 KiB.",
        StatusCode::SERVICE_UNAVAILABLE => "No response within 10 s.",
        _ => "The request failed.",
    };
    let mut problem = Problem::new(status, detail).into_response();
    for (name, value) in response.headers() {
        if name != CONTENT_TYPE && name != CONTENT_LENGTH {
            problem.headers_mut().append(name, value.clone());
        }
    }
    problem
}

const PROBLEM_JSON: &str = "application/problem+json";
