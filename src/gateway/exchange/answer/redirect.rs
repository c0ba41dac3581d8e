//! Redirects requests: to https at the same host, or to the target of their route. A client cannot choose the host: it is
//! one of the own hosts, or that of the settings.

use super::head::prepare_own_response;
use crate::gateway::exchange::client_connection::RequestHandler;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::exchange::target::Target;
use crate::gateway::transport::client_body::ClientBody;
use bytes::Bytes;
use http::StatusCode;
use std::rc::Rc;
use tidegate_access_log::hexadecimal;
use tidegate_config::settings::Redirect;
use tidegate_http1::{Fields, Name, RequestHead, Response};
use tidegate_policy::path::PathPolicy;

/// Port of https URLs that name none.
const HTTPS_PORT: u16 = 443;

impl RequestHandler {
    /// Redirects a valid request to the same URL with https, at `port`. Costs nothing, and counts as a response only.
    pub(in crate::gateway) fn redirect(
        &self,
        head: &RequestHead,
        target: &Target,
        port: u16,
    ) -> Response<ResponseBody> {
        let status = Redirect::permanent_status(&head.method);
        let path = head.target.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path } else { "/" };
        let location = match port {
            HTTPS_PORT => format!("https://{}{path}", target.host()),
            port => format!("https://{}:{port}{path}", target.host()),
        };
        self.worker.telemetry().response_without_class(status.as_u16());
        redirect_response(status, &location, self.worker.next_decision_id())
    }

    /// Redirects an admitted request as its route says. Costs nothing, and is recorded like every admitted request.
    pub(in crate::gateway) fn redirect_by_route(
        &self,
        body: ClientBody,
        mut context: Box<RequestContext>,
    ) -> Response<ResponseBody> {
        context.settle_unknown();
        let current = Rc::clone(context.current());
        let redirect = current.settings.redirect(context.evaluation().route).expect("the route has a redirect");
        let request = context.client_request();
        self.drain_body(&request.head, body);
        // The path as the client spelled it, but for dot segments, which `raw` does not resolve.
        let path = match current.settings.rules.path_policy {
            PathPolicy::Raw => request.path(),
            PathPolicy::Strict | PathPolicy::Lenient => request.origin_path(),
        };
        let location = redirect.location(path, request.head.target.query());
        let status = redirect.status_for(&request.head.method);
        let mut response = redirect_response(status, &location, context.id());
        prepare_own_response(&context, status, &mut response.fields);
        context.finish_local_response(status, 0);
        response
    }
}

/// Returns a redirect, which no cache stores: a change takes effect at once.
fn redirect_response(status: StatusCode, location: &str, id: u64) -> Response<ResponseBody> {
    let mut fields = Fields::new();
    fields.append_text("location", location.as_bytes());
    fields.append(Name::CacheControl, b"no-store");
    fields.append(Name::Decision, &hexadecimal(id));
    Response { status, fields, body: ResponseBody::full(Bytes::new()) }
}
