//! Responses of the gateway itself: refusals, rejections and errors.

use super::head::{add_rate_limits, allow_reading, prepare_own_response, rate_limit_snapshot};
use crate::gateway::exchange::classify::client_address;
use crate::gateway::exchange::client_connection::ClientConnection;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::problem::{Problem, ResponseFormat};
use crate::gateway::message::response_body::ResponseBody;
use crate::gateway::message::target::{self, RequestError};
use crate::gateway::session::{SET_COOKIE, begin_on_refusal};
use crate::gateway::transport::listener::ListenerKind;
use crate::gateway::worker::Worker;
use http::Method;
use tidegate_access_log::{RecordedRequest, RejectedRecord, redacted, redacted_url};
use tidegate_http1::{Name, RequestHead, Response};
use tidegate_policy::ClientKind;
use tidegate_policy::session::RETURN_AFTER;

/// Responds to a request that the rules refuse.
pub(in crate::gateway) fn refuse(mut journal: Box<Journal>) -> Response<ResponseBody> {
    let (rules, snapshot) = (&journal.known.rules(), rate_limit_snapshot(&journal));
    let problem = Problem::refused(rules, snapshot, journal.known.retry_after_spread()).expect("refusal present");
    let session = begin_on_refusal(&journal);
    let problem = match &session {
        Some(session) if session.comes_back => problem.with_return(RETURN_AFTER),
        _ => problem,
    };
    let retry_after = problem.retry_after();
    let (mut response, bytes) = render_problem(&journal, problem);
    if let Some(session) = session {
        journal.client.is_asked_back = session.comes_back;
        response.fields.append_text(SET_COOKIE, session.cookie.as_bytes());
    }
    if asks_for_signature(&journal) {
        response.fields.append_text("Accept-Signature", ACCEPT_SIGNATURE);
    }
    journal.client.retry_after = retry_after;
    journal.finish_local_response(response.status, bytes);
    response
}

/// Signature of an agent that a refusal asks for (RFC 9421 section 5.1; Web Bot Auth, draft -01).
const ACCEPT_SIGNATURE: &[u8] =
    b"sig1=(\"@authority\" \"signature-agent\";key=\"sig1\");created;expires;tag=\"web-bot-auth\"";

/// Returns true if the rules ask bots for signatures, and the client says that it is one, without proof.
fn asks_for_signature(journal: &Journal) -> bool {
    let signatures = &journal.known.config.settings.verify.signatures;
    signatures.as_ref().is_some_and(|signatures| signatures.accept_signature)
        && matches!(journal.known.classified.classification.kind, ClientKind::DeclaredBot | ClientKind::Impostor)
}

/// Renders `problem` with the rate-limit fields. Returns the response and the length of its body.
fn render_problem<'a>(journal: &'a Journal, mut problem: Problem<'a>) -> (Response<ResponseBody>, u64) {
    let known = &journal.known;
    let status = problem.status();
    let format = ResponseFormat::from_head(&journal.known.request.head);
    let mut scratch = known.worker().scratch();
    problem.trace = known.client.trace();
    let (mut response, bytes) =
        problem.into_response(format, journal.known.id, &known.config.error_pages, &mut scratch);
    match known.connection.listener.kind {
        // The proxy has fields of its own.
        ListenerKind::ForwardAuth => add_rate_limits(journal, status, &mut response.fields),
        ListenerKind::Site => prepare_own_response(journal, status, &mut response.fields),
    }
    allow_reading(&known.request.head, &known.config.settings, &mut response.fields);
    (response, bytes)
}

/// Responds to a request that could not be parsed, and counts it as a response without a class.
pub(in crate::gateway) fn reject_unparsed(worker: &Worker, error: tidegate_http1::Malformed) -> Response<ResponseBody> {
    let problem = Problem::malformed(RequestError::Malformed(error));
    worker.telemetry().response_without_class(problem.status().as_u16());
    let (id, config) = (worker.next_decision_id(), worker.config());
    problem.into_response(ResponseFormat::UNKNOWN, id, &config.error_pages, &mut worker.scratch()).0
}

/// Responds to a request with this head that is not valid, counts it as a response without a class, and logs it.
pub(in crate::gateway) fn reject_request(
    connection: &ClientConnection,
    error: RequestError,
    head: &RequestHead,
) -> Response<ResponseBody> {
    let worker = &connection.worker;
    let (id, config, problem) = (worker.next_decision_id(), worker.config(), Problem::malformed(error));
    let detail = problem.detail();
    let (mut response, length) =
        problem.into_response(ResponseFormat::from_head(head), id, &config.error_pages, &mut worker.scratch());
    let settings = &config.settings;
    allow_reading(head, settings, &mut response.fields);
    let redact = &settings.log.redact;
    worker.telemetry().reject(&RejectedRecord {
        at: worker.now(),
        id,
        address: client_address(connection, &settings.rules.trust, &head.fields).client,
        request: RecordedRequest {
            method: &head.method,
            host: without_userinfo(target::host(head)),
            path: head.target.path(),
            query: head.target.query().map(|query| redacted(query, redact)).as_deref(),
            version: head.version,
            user_agent: head.fields.get(Name::UserAgent).unwrap_or_default(),
            referer: head.fields.get(Name::Referer).map(|referer| redacted_url(referer, redact)).as_deref(),
            fill: None,
            json: None,
            fields: None,
        },
        status: response.status.as_u16(),
        bytes: if head.method == Method::HEAD { 0 } else { length },
        problem: detail,
    });
    response
}

/// Returns a host without a user and a password before it, which no log shall have.
fn without_userinfo(host: &[u8]) -> &[u8] {
    host.rsplit(|byte| *byte == b'@').next().unwrap_or_default()
}

/// Responds to an admitted request instead of the origin.
pub(in crate::gateway) fn respond_with_problem(journal: Box<Journal>, problem: Problem<'_>) -> Response<ResponseBody> {
    let (response, bytes) = render_problem(&journal, problem);
    journal.finish_local_response(response.status, bytes);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_a_rejected_request_is_logged_without_a_password() {
        for (host, logged) in [("u:secret@h:80", "h:80"), ("a@b:secret@h", "h"), ("h", "h"), ("", ""), ("@", "")] {
            assert_eq!(without_userinfo(host.as_bytes()), logged.as_bytes(), "{host}");
        }
    }
}
