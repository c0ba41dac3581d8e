//! Answers to other proxies: a decision on a request of their client, and the settlement of its cost.

use super::head::add_rate_limits;
use crate::gateway::exchange::client_connection::RequestHandler;
use crate::gateway::exchange::forward_auth::{
    MAX_SETTLEMENT_SIZE, Naming, ProxyEndpoint, RefusalForm, ReportedCosts, SettledCosts, Settlement, SettlementError,
    WebPageError, asked_head, check_no_web_page, endpoint, may_ask,
};
use crate::gateway::exchange::headers;
use crate::gateway::exchange::journal::RequestContext;
use crate::gateway::exchange::lookup::CacheRole;
use crate::gateway::exchange::problem::{ProxyRequestError, forbidden, proxy_request_error, settled};
use crate::gateway::exchange::response_body::ResponseBody;
use crate::gateway::exchange::target::{ClientRequest, Target};
use crate::gateway::transport::client_body::ClientBody;
use crate::gateway::transport::connection_timeouts::ConnectionState;
use crate::gateway::worker::CurrentConfig;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::cell::OnceCell;
use std::rc::Rc;
use tidegate_access_log::hexadecimal;
use tidegate_config::Settings;
use tidegate_config::settings::ForwardAuth;
use tidegate_http1::{Fields, Name, Request, RequestHead, Response};
use tidegate_policy::Timestamp;
use tidegate_policy::exempt::is_robots_txt_read;
use tokio::sync::oneshot;

/// A request in flight on a connection of a proxy, until dropped.
struct ProxyRequestGuard(Rc<ConnectionState>);

impl Drop for ProxyRequestGuard {
    fn drop(&mut self) {
        self.0.on_request_end(false);
    }
}

impl RequestHandler {
    /// Answers one request of another proxy.
    pub(in crate::gateway) async fn answer_proxy(
        self: Rc<Self>,
        request: Request<ClientBody>,
    ) -> Response<ResponseBody> {
        let Request { mut head, body } = request;
        headers::strip_admin_sessions(&mut head.fields);
        let head_started_at = self.connection_state.on_request_start(head.version);
        let _in_flight = ProxyRequestGuard(Rc::clone(&self.connection_state));
        let current = self.worker.current();
        let path = head.target.path_and_query().map_or_else(String::new, ToString::to_string);
        let answer = match &current.settings.forward_auth {
            _ if !may_ask(&current.settings.rules.trust, self.peer) => Err(ProxyRequestError::Peer),
            None => Err(ProxyRequestError::Off),
            Some(settings) => {
                let endpoint = endpoint(&path, &settings.path_prefix);
                match (self.check_no_web_page(&head, endpoint, &current.settings, settings), endpoint) {
                    (Err(error), _) => {
                        self.drain_body(&head, body);
                        Err(ProxyRequestError::WebPage(error))
                    }
                    (Ok(()), ProxyEndpoint::Settle) => {
                        self.settle(&head, body, &current).await.map_err(ProxyRequestError::Settlement)
                    }
                    (Ok(()), ProxyEndpoint::Ask(naming, form)) => {
                        self.drain_body(&head, body);
                        let received_at = head_started_at.unwrap_or_else(|| self.worker.now());
                        self.answer(&head, naming, form, received_at, &current, settings).await
                    }
                }
            }
        };
        answer.unwrap_or_else(|error| {
            let response = proxy_request_error(&error, self.worker.next_decision_id());
            self.worker.telemetry().response_without_class(response.status.as_u16());
            response
        })
    }

    fn check_no_web_page(
        &self,
        head: &RequestHead,
        endpoint: ProxyEndpoint<'_>,
        settings: &Settings,
        forward_auth: &ForwardAuth,
    ) -> Result<(), WebPageError> {
        let listen = self.listener.address.unwrap_or(forward_auth.listen);
        check_no_web_page(head, endpoint, &settings.rules.trust, self.peer, listen, settings.hosts.as_ref())
    }

    /// Decides on the request that a proxy asks about.
    async fn answer(
        &self,
        message: &RequestHead,
        naming: Naming<'_>,
        form: RefusalForm,
        received_at: Timestamp,
        current: &Rc<CurrentConfig>,
        settings: &ForwardAuth,
    ) -> Result<Response<ResponseBody>, ProxyRequestError> {
        let worker = &self.worker;
        let head = asked_head(message, naming).map_err(ProxyRequestError::Name)?;
        // The length in a response to HEAD is that of a body which a proxy that asks with GET would wait for.
        let has_foreign_length = head.method == Method::HEAD && message.method != Method::HEAD;
        let refusal = |mut response: Response<ResponseBody>| {
            if has_foreign_length {
                response.fields.remove(Name::ContentLength);
            }
            match form {
                RefusalForm::AsSent => response,
                RefusalForm::Forbidden => forbidden(response),
            }
        };
        let target = match Target::parse(&head, &worker.shared().via.pseudonym, &current.settings) {
            Ok(target) => target,
            Err(error) => return Ok(refusal(self.reject_request(error, &head))),
        };
        let request = ClientRequest { head, target, has_body: false, signature: OnceCell::new() };
        let now = worker.now();
        let classified = self.classify(&request, current, now);
        let (current, evaluated) =
            self.evaluate(classified, &request, &CacheRole::Unused, Rc::clone(current), now).await;
        if let Some(operator) = evaluated.crawler {
            let is_robots_txt = is_robots_txt_read(&request.head.method, request.path());
            worker.shared().crawl_compliance.record_request(operator, is_robots_txt, worker.monotonic_now());
        }
        let id = worker.shared().pending_decisions.unguessable_id(worker.next_decision_id());
        // Of its own, because the request outlives the answer, and takes no memory of the connection.
        let connection_state = ConnectionState::new(worker.monotonic_tick(), worker.shared().clock.clone(), u32::MAX);
        let context =
            RequestContext::new(Rc::clone(worker), connection_state, current, request, evaluated, received_at, id);
        if context.decision().verdict.refusal().is_some() {
            return Ok(refusal(self.refuse(context)));
        }
        Ok(self.admit(context, settings))
    }

    /// Answers that the proxy may forward the request, and holds it until its cost is known.
    fn admit(&self, mut context: Box<RequestContext>, settings: &ForwardAuth) -> Response<ResponseBody> {
        let (rules, classified) = (&context.current().settings.rules, &context.evaluation().classification);
        let mut fields = Fields::new();
        fields.append(Name::CacheControl, b"no-store");
        fields.append(Name::Decision, &hexadecimal(context.id()));
        fields.append(Name::Class, rules[classified.class].name.as_bytes());
        if let Some(operator) = classified.operator {
            fields.append(Name::Operator, self.worker.shared().operators.name(operator).as_bytes());
        }
        add_rate_limits(&context, StatusCode::OK, &mut fields);
        context.delegate();
        if context.decision().quota_usage.is_empty() || settings.settle_after.is_zero() {
            context.finish();
        } else {
            self.hold(context, settings);
        }
        Response { status: StatusCode::OK, fields, body: ResponseBody::full(Bytes::new()) }
    }

    /// Holds an admitted request until its cost is reported, or until it is dropped, which charges the expected cost.
    fn hold(&self, mut context: Box<RequestContext>, settings: &ForwardAuth) {
        context.preview();
        let field_bytes = context.client_request().head.fields.memory();
        let (pending, uptime) = (&self.worker.shared().pending_decisions, self.worker.monotonic_now());
        let reported = pending.insert(context.id(), field_bytes, settings.memory, uptime);
        // Dropped with its context if the gateway is closed.
        let _ = self.worker.run_detached(async move {
            let Ok(ReportedCosts { costs, charged }) = reported.await else { return context.finish() };
            context.settle_reported(&costs);
            let charges: SettledCosts = context.charges().map(|(quota, units)| (quota.to_owned(), units)).collect();
            context.finish();
            // Fails if the proxy left.
            let _ = charged.send(charges);
        });
    }

    /// Settles an admitted request with the cost that its proxy reports.
    async fn settle(
        &self,
        head: &RequestHead,
        body: ClientBody,
        current: &CurrentConfig,
    ) -> Result<Response<ResponseBody>, SettlementError> {
        if head.method != Method::POST {
            self.drain_body(head, body);
            return Err(SettlementError::Method);
        }
        let received = Limited::new(body, MAX_SETTLEMENT_SIZE).collect().await.map_err(|error| match error
            .is::<LengthLimitError>(
        ) {
            true => SettlementError::TooLarge,
            false => SettlementError::Incomplete,
        })?;
        let Settlement { decision, costs } = Settlement::parse(&received.to_bytes(), &current.settings.rules.quotas)?;
        let pending = self.worker.shared().pending_decisions.take(decision).ok_or(SettlementError::Unknown)?;
        let (charged, charges) = oneshot::channel();
        pending.send(ReportedCosts { costs, charged }).map_err(|_| SettlementError::Unknown)?;
        // Fails if the gateway is closed, which has charged the request.
        let charges = charges.await.map_err(|_| SettlementError::Unknown)?;
        Ok(settled(decision, &charges))
    }
}
