//! Redirects requests to https. The host is one of the own hosts, so no redirect leads elsewhere.

use super::request_handler::RequestHandler;
use crate::gateway::response_body::ResponseBody;
use crate::gateway::target::Target;
use bytes::Bytes;
use http::StatusCode;
use tidegate_access_log::hexadecimal;
use tidegate_http1::{Fields, Name, RequestHead, Response};
use tidegate_policy::exempt::is_read_method;

/// Port of https URLs that name none.
const HTTPS_PORT: u16 = 443;

impl RequestHandler {
    /// Redirects a valid request to the same URL with https, at `port`. Costs nothing, and counts as a response only.
    pub(super) fn redirect(&self, head: &RequestHead, target: &Target, port: u16) -> Response<ResponseBody> {
        // Every client knows 301; only 308 keeps method and body.
        let status = match is_read_method(&head.method) {
            true => StatusCode::MOVED_PERMANENTLY,
            false => StatusCode::PERMANENT_REDIRECT,
        };
        let path = head.target.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path } else { "/" };
        let location = match port {
            HTTPS_PORT => format!("https://{}{path}", target.host()),
            port => format!("https://{}:{port}{path}", target.host()),
        };
        let mut fields = Fields::new();
        fields.append_text("location", location.as_bytes());
        fields.append(Name::CacheControl, b"no-store");
        fields.append(Name::Decision, &hexadecimal(self.worker.next_decision_id()));
        self.worker.telemetry().response_without_class(status.as_u16());
        Response { status, fields, body: ResponseBody::full(Bytes::new()) }
    }
}
