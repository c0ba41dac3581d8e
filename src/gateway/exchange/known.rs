//! What is known of a request before it is decided. Nothing of it changes afterwards, but the head, which is rewritten for the
//! origin where it stands, and the route of a fetch of robots.txt, if another origin has the file.

use super::client_connection::ClientConnection;
use crate::gateway::message::target::ClientRequest;
use crate::gateway::request_bodies::ReadBody;
use crate::gateway::session::ClientSession;
use crate::gateway::switch_subject::SwitchSubject;
use crate::gateway::worker::{Worker, WorkerConfig};
use std::net::IpAddr;
use std::rc::Rc;
use tidegate_config::settings::HeaderRules;
use tidegate_engine::{Classified, Observation};
use tidegate_policy::cache::CacheFill;
use tidegate_policy::exempt::is_robots_txt_read;
use tidegate_policy::identity::{ClientAddress, ClientKey};
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::request_body::JsonMatch;
use tidegate_policy::rng::ratio_from_id;
use tidegate_policy::route::Route;
use tidegate_policy::{ClassId, OperatorId, Rules, Timestamp};
use tidegate_traces::TraceContext;

/// A valid request and what is known of it.
pub(in crate::gateway) struct Known {
    pub(in crate::gateway) connection: Rc<ClientConnection>,
    /// Configuration that applies to the request, from its class to the end of its response.
    pub(in crate::gateway) config: Rc<WorkerConfig>,
    pub(in crate::gateway) request: ClientRequest,
    /// Body as far as it is read before the decision; `None` if no rule asks for it.
    pub(in crate::gateway) read_body: Option<Box<ReadBody>>,
    pub(in crate::gateway) client: Client,
    /// Class and route.
    pub(in crate::gateway) classified: Classified,
    /// Time at which the first byte of the request was received.
    pub(in crate::gateway) received_at: Timestamp,
    pub(in crate::gateway) id: u64,
}

/// What is known of the client of a request.
pub(in crate::gateway) struct Client {
    pub(in crate::gateway) address: ClientAddress,
    /// Operator that the client claims to belong to.
    pub(in crate::gateway) claimed: Option<OperatorId>,
    /// True if a signature was checked, whatever the result.
    pub(in crate::gateway) signed: bool,
    /// Operator of the crawler, verified or claimed without evidence against it.
    pub(in crate::gateway) crawler: Option<OperatorId>,
    /// Observation for bot detection; `None` for declared bots.
    pub(in crate::gateway) observation: Option<Observation>,
    /// What is known beyond that; boxed, because nothing is known of most clients.
    pub(in crate::gateway) more: Option<Box<MoreOfClient>>,
}

/// What is known of a client where the settings ask for it, or its operator says so.
pub(in crate::gateway) struct MoreOfClient {
    /// Session, if there are any.
    pub(in crate::gateway) session: ClientSession,
    /// Purpose of the operator that the client belongs to, or claims to.
    pub(in crate::gateway) purpose: Option<Purpose>,
    /// Autonomous system and country of the address.
    pub(in crate::gateway) network_origin: NetworkOrigin,
    /// Classes whose header fields and cookies the request has.
    pub(in crate::gateway) field_classes: Vec<ClassId>,
    /// Trace of the request, if traces are exported.
    pub(in crate::gateway) trace: Option<TraceContext>,
}

impl Client {
    /// Returns the trace of the request, if traces are exported.
    #[inline]
    pub(in crate::gateway) fn trace(&self) -> Option<&TraceContext> {
        self.more.as_ref()?.trace.as_ref()
    }
}

impl Known {
    pub(in crate::gateway) fn worker(&self) -> &Rc<Worker> {
        &self.connection.worker
    }

    pub(in crate::gateway) fn rules(&self) -> &Rules {
        &self.config.settings.rules
    }

    pub(in crate::gateway) fn route(&self) -> &Route {
        &self.rules()[self.classified.route]
    }

    /// Returns true if the gateway itself answers the request once it is admitted: with a document of its own, with robots.txt,
    /// or with the redirect of its route.
    pub(in crate::gateway) fn is_for_gateway(&self) -> bool {
        let path = self.request.path();
        is_robots_txt_read(&self.request.head.method, path)
            || self.rules().own_document(path).is_some()
            || self.config.settings.redirect(self.classified.route).is_some()
    }

    /// Returns true if the beginning of the body is received before the decision.
    #[inline]
    pub(in crate::gateway) fn reads_body(&self) -> bool {
        self.config.request_bodies.is_some()
            && self.request.has_body
            && self.rules().depends_on_body(&self.request.facts())
    }

    /// Sets what the JSON body says, and finds the route again.
    pub(in crate::gateway) fn set_json(&mut self, json: JsonMatch) {
        self.request.json = Some(Box::new(json));
        self.classified.route = self.rules().route(&self.request.facts());
        let is_costly = !self.route().is_free();
        self.client.observation = self.client.observation.map(|observation| observation.with_costly(is_costly));
    }

    /// Returns the changes of header fields on the route; `None` if there are none.
    #[inline]
    pub(in crate::gateway) fn header_rules(&self) -> Option<&HeaderRules> {
        self.config.settings.header_rules(self.classified.route)
    }

    /// Returns the session of the client; none if there are no sessions.
    #[inline]
    pub(in crate::gateway) fn client_session(&self) -> ClientSession {
        self.client.more.as_ref().map(|more| more.session).unwrap_or_default()
    }

    /// Returns the address of the client.
    pub(in crate::gateway) fn client_address(&self) -> IpAddr {
        self.client.address.client
    }

    /// Returns the key of the client's address, which a client cannot choose.
    pub(in crate::gateway) fn address_key(&self) -> ClientKey {
        self.rules().trust.key(self.client_address())
    }

    /// Returns the client, to which a switch may apply later.
    pub(in crate::gateway) fn switch_subject(&self) -> SwitchSubject {
        SwitchSubject::new(self.client_address(), self.classified.classification, self.client.claimed, self.rules())
    }

    /// Returns true if the client uses https.
    pub(in crate::gateway) fn is_https(&self) -> bool {
        self.connection.is_https(&self.rules().trust, &self.request.head.fields)
    }

    /// Returns why the gateway makes the request itself; `None` for a request of a client.
    pub(in crate::gateway) fn fill(&self) -> Option<CacheFill> {
        self.connection.fill_reason()
    }

    /// Returns a number in [0, 1] derived from the request id, for jitter.
    pub(in crate::gateway) fn random(&self) -> f64 {
        ratio_from_id(self.id)
    }

    /// Returns the jitter of `Retry-After` as a ratio of the wait, so that clients refused together do not retry together.
    pub(in crate::gateway) fn retry_after_spread(&self) -> f64 {
        self.config.settings.headers.retry_after_spread.ratio() * self.random()
    }
}
