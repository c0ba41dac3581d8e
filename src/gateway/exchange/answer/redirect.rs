//! Redirects requests: to https at the same host, or to the target of their route. A client cannot choose the host: it is
//! one of the own hosts, or that of the settings.

use super::head::prepare_own_response;
use crate::gateway::exchange::client_connection::ClientConnection;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::known::Known;
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::message::target::Target;
use crate::gateway::transport::client_body::ClientBody;
use bytes::Bytes;
use http::StatusCode;
use tidegate_access_log::hexadecimal;
use tidegate_config::settings::Redirect;
use tidegate_http1::{Fields, Name, RequestHead, Response};

/// Port of https URLs that name none.
const HTTPS_PORT: u16 = 443;

/// Redirects a valid request to the same URL with https, at `port`. Costs nothing, and counts as a response only.
pub(in crate::gateway) fn redirect_to_https(
    connection: &ClientConnection,
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
    connection.worker.telemetry().response_without_class(status.as_u16());
    redirect_response(status, &location, connection.worker.next_decision_id())
}

/// Redirects an admitted request as its route says. Costs nothing, and is recorded like every admitted request.
pub(in crate::gateway) fn redirect_by_route(body: ClientBody, mut journal: Box<Journal>) -> Response<ResponseBody> {
    journal.origin.settle_unknown();
    let Known { connection, config, request, .. } = &*journal.known;
    let redirect = config.settings.redirect(journal.known.classified.route).expect("the route has a redirect");
    connection.drain_body(&request.head, body);
    let location = redirect.location(&request.resolved_path(), request.head.target.query());
    let status = redirect.status_for(&request.head.method);
    let mut response = redirect_response(status, &location, journal.known.id);
    prepare_own_response(&journal, status, &mut response.fields);
    journal.finish_local_response(status, 0);
    response
}

/// Returns a redirect, which no cache stores: a change takes effect at once.
fn redirect_response(status: StatusCode, location: &str, id: u64) -> Response<ResponseBody> {
    let mut fields = Fields::new();
    fields.append_text("location", location.as_bytes());
    fields.append(Name::CacheControl, b"no-store");
    fields.append(Name::Decision, &hexadecimal(id));
    Response { status, fields, body: ResponseBody::full(Bytes::new()) }
}
