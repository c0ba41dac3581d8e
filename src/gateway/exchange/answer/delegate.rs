//! Answers to other proxies: a decision on a request of their client, and the settlement of its cost.

use super::head::add_rate_limits;
use super::refusal::{refuse, reject_request};
use crate::gateway::exchange::charges::settle_reported;
use crate::gateway::exchange::client_connection::ClientConnection;
use crate::gateway::exchange::evaluate::evaluate;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::exchange::lookup::CacheRole;
use crate::gateway::exchange::origin_trip::{OriginStage, RequestUnits};
use crate::gateway::exchange::{identify, record_crawler, session_cookies};
use crate::gateway::message::forward_auth::{
    MAX_SETTLEMENT_SIZE, Naming, ProxyEndpoint, RefusalForm, ReportedCosts, SettledCosts, Settlement, SettlementError,
    WebPageError, asked_head, check_no_web_page, endpoint, may_ask,
};
use crate::gateway::message::headers;
use crate::gateway::message::problem::{ProxyRequestError, forbidden, proxy_request_error, settled};
use crate::gateway::message::response_body::{ResponseBody, omit_body};
use crate::gateway::message::target::{ClientRequest, Target};
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use crate::gateway::worker::WorkerConfig;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::cell::OnceCell;
use std::rc::Rc;
use tidegate_access_log::hexadecimal;
use tidegate_config::Settings;
use tidegate_config::settings::ForwardAuth;
use tidegate_engine::Charged;
use tidegate_http1::{Fields, Name, Request, RequestHead, Response};
use tidegate_policy::Timestamp;
use tidegate_policy::request_body::JsonMatch;
use tokio::sync::oneshot;

/// A request in flight on a connection of a proxy, until dropped.
struct ProxyRequestGuard(Rc<ConnectionState>);

impl Drop for ProxyRequestGuard {
    fn drop(&mut self) {
        self.0.on_request_end(false);
    }
}

/// Answers one request of another proxy.
pub(in crate::gateway) async fn answer_proxy(
    connection: Rc<ClientConnection>,
    request: Request<ClientBody>,
) -> Response<ResponseBody> {
    let Request { mut head, body } = request;
    headers::strip_admin_sessions(&mut head.fields);
    let head_started_at = connection.connection_state.on_request_start(head.version);
    let _in_flight = ProxyRequestGuard(Rc::clone(&connection.connection_state));
    let config = connection.worker.config();
    let path = head.target.path_and_query().map_or_else(String::new, ToString::to_string);
    let answer = match &config.settings.forward_auth {
        _ if !may_ask(&config.settings.rules.trust, connection.peer) => Err(ProxyRequestError::Peer),
        None => Err(ProxyRequestError::Off),
        Some(settings) => {
            let endpoint = endpoint(&path, &settings.path_prefix);
            match (check_no_web_page_asks(&connection, &head, endpoint, &config.settings, settings), endpoint) {
                (Err(error), _) => {
                    connection.drain_body(&head, body);
                    Err(ProxyRequestError::WebPage(error))
                }
                (Ok(()), ProxyEndpoint::Settle) => {
                    settle(&connection, &head, body, &config).await.map_err(ProxyRequestError::Settlement)
                }
                (Ok(()), ProxyEndpoint::Ask(naming, form)) => {
                    connection.drain_body(&head, body);
                    let received_at = head_started_at.unwrap_or_else(|| connection.worker.now());
                    answer(&connection, &head, naming, form, received_at, &config, settings).await
                }
            }
        }
    };
    answer.unwrap_or_else(|error| {
        let response = proxy_request_error(&error, connection.worker.next_decision_id());
        connection.worker.telemetry().response_without_class(response.status.as_u16());
        response
    })
}

fn check_no_web_page_asks(
    connection: &ClientConnection,
    head: &RequestHead,
    endpoint: ProxyEndpoint<'_>,
    settings: &Settings,
    forward_auth: &ForwardAuth,
) -> Result<(), WebPageError> {
    let listen = connection.listener.address.unwrap_or(forward_auth.listen);
    check_no_web_page(head, endpoint, &settings.rules.trust, connection.peer, listen, settings.hosts.as_ref())
}

/// Decides on the request that a proxy asks about.
async fn answer(
    connection: &ClientConnection,
    message: &RequestHead,
    naming: Naming<'_>,
    form: RefusalForm,
    received_at: Timestamp,
    config: &Rc<WorkerConfig>,
    settings: &ForwardAuth,
) -> Result<Response<ResponseBody>, ProxyRequestError> {
    let worker = &connection.worker;
    let mut head = asked_head(message, naming).map_err(ProxyRequestError::Name)?;
    // The length in a response to HEAD is that of a body which a proxy that asks with GET would wait for.
    let has_foreign_length = head.method == Method::HEAD && message.method != Method::HEAD;
    let refusal = |mut response: Response<ResponseBody>| {
        if has_foreign_length {
            omit_body(&mut response);
            response.fields.remove(Name::ContentLength);
        }
        match form {
            RefusalForm::AsSent => response,
            RefusalForm::Forbidden => forbidden(response),
        }
    };
    let target = match Target::parse(&head, &worker.shared().via.pseudonym, &config.settings) {
        Ok(target) => target,
        Err(error) => return Ok(refusal(reject_request(connection, error, &head))),
    };
    let session_cookies = session_cookies(config, &mut head);
    let request =
        ClientRequest { head, target, has_body: false, signature: OnceCell::new(), session_cookies, json: None };
    let now = worker.now();
    let id = worker.shared().pending_decisions.unguessable_id(worker.next_decision_id());
    let mut known =
        identify(connection.for_request_that_outlives_it(), Rc::clone(config), request, received_at, id, now);
    let may_have_body = config.request_bodies.is_some() && !known.request.head.method.is_safe();
    if may_have_body && known.rules().depends_on_body(&known.request.facts()) {
        // The proxy has the body, which may say anything.
        known.set_json(JsonMatch::Unreadable);
    }
    let journal = evaluate(known, &CacheRole::Unused, now).await;
    record_crawler(&journal.known);
    if journal.verdict.refusal().is_some() {
        return Ok(refusal(refuse(journal)));
    }
    Ok(admit(journal, settings))
}

/// Answers that the proxy may forward the request, and holds it until its cost is known.
fn admit(mut journal: Box<Journal>, settings: &ForwardAuth) -> Response<ResponseBody> {
    let (rules, classified) = (&journal.known.rules(), &journal.known.classified.classification);
    let mut fields = Fields::new();
    fields.append(Name::CacheControl, b"no-store");
    fields.append(Name::Decision, &hexadecimal(journal.known.id));
    fields.append(Name::Class, rules[classified.class].name.as_bytes());
    if let Some(operator) = classified.operator {
        fields.append(Name::Operator, journal.worker().shared().operators.name(operator).as_bytes());
    }
    add_rate_limits(&journal, StatusCode::OK, &mut fields);
    // From now on, it costs the expected units unless settled.
    if let RequestUnits::Reserved(permit) = &mut journal.origin.units {
        permit.mark_sent();
    }
    let answered_after = journal.worker().now().saturating_duration_since(journal.known.received_at);
    journal.origin.stage = OriginStage::Delegated { answered_after };
    journal.begin_response(StatusCode::OK);
    if journal.quota_usage.is_empty() || settings.settle_after.is_zero() {
        journal.finish();
    } else {
        hold(journal, settings);
    }
    Response { status: StatusCode::OK, fields, body: ResponseBody::full(Bytes::new()) }
}

/// Holds an admitted request until its cost is reported, or until it is dropped, which charges the expected cost.
fn hold(mut journal: Box<Journal>, settings: &ForwardAuth) {
    journal.preview();
    let field_bytes = journal.known.request.head.fields.memory();
    let worker = Rc::clone(journal.worker());
    let (pending, uptime) = (&worker.shared().pending_decisions, worker.monotonic_now());
    let reported = pending.insert(journal.known.id, field_bytes, settings.memory, uptime);
    // Dropped with its journal if the gateway is closed.
    let _ = worker.run_detached(async move {
        let Ok(ReportedCosts { costs, charged }) = reported.await else { return journal.finish() };
        settle_reported(&journal.known, &mut journal.origin, &costs);
        let name = |charged: &Charged| journal.known.rules()[charged.quota].name.clone();
        let charges: SettledCosts =
            journal.origin.units.charges().iter().map(|charged| (name(charged), charged.settled)).collect();
        journal.finish();
        // Fails if the proxy left.
        let _ = charged.send(charges);
    });
}

/// Settles an admitted request with the cost that its proxy reports.
async fn settle(
    connection: &ClientConnection,
    head: &RequestHead,
    body: ClientBody,
    config: &WorkerConfig,
) -> Result<Response<ResponseBody>, SettlementError> {
    if head.method != Method::POST {
        connection.drain_body(head, body);
        return Err(SettlementError::Method);
    }
    let received = Limited::new(body, MAX_SETTLEMENT_SIZE).collect().await.map_err(|error| {
        match error.is::<LengthLimitError>() {
            true => SettlementError::TooLarge,
            false => SettlementError::Incomplete,
        }
    })?;
    let Settlement { decision, costs } = Settlement::parse(&received.to_bytes(), &config.settings.rules.quotas)?;
    let pending = connection.worker.shared().pending_decisions.take(decision).ok_or(SettlementError::Unknown)?;
    let (charged, charges) = oneshot::channel();
    pending.send(ReportedCosts { costs, charged }).map_err(|_| SettlementError::Unknown)?;
    // Fails if the gateway is closed, which has charged the request.
    let charges = charges.await.map_err(|_| SettlementError::Unknown)?;
    Ok(settled(decision, &charges))
}
