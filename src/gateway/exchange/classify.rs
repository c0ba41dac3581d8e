//! Classification of a request: who the client is, its class and the route. Does not wait, and does not read the body.

use super::client_connection::ClientConnection;
use super::evidence::{LiveEvidence, credential};
use super::known::{Client, MoreOfClient};
use crate::gateway::message::headers::TRACEPARENT;
use crate::gateway::message::target::ClientRequest;
use crate::gateway::session::{Bearer, ClientSession, may_begin};
use crate::gateway::transport::listener::ListenerKind;
use crate::gateway::worker::WorkerConfig;
use smallvec::SmallVec;
use tidegate_config::settings::Traces;
use tidegate_engine::Classified;
use tidegate_http1::Fields;
use tidegate_policy::bot_detection::BrowserTraits;
use tidegate_policy::identity::{ClientAddress, CredentialSource, ProxyTrust};
use tidegate_policy::rng::ratio_from_id;
use tidegate_policy::{Classification, ClientFacts, ClientKind, Facts, Signature, Timestamp};
use tidegate_traces::{Choice, Parent, TraceContext};

/// Classifies and routes a request.
pub(in crate::gateway) fn classify(
    connection: &ClientConnection,
    request: &ClientRequest,
    config: &WorkerConfig,
    now: Timestamp,
) -> (Client, Classified) {
    let rules = &config.settings.rules;
    let fields = &request.head.fields;
    if !connection.is_behind_proxy(&rules.trust) {
        config.untrusted_proxy.observe(&rules.trust, connection.peer, fields);
    }
    let address = client_address(connection, &rules.trust, fields);
    let request_facts = request.facts();
    let mut evidence = LiveEvidence {
        connection,
        request,
        facts: request_facts,
        config,
        client_address: &address,
        now,
        browser: BrowserTraits::default(),
        observation: None,
        session: None,
    };
    let client = ClientFacts::gather(address.client, &mut evidence);
    let LiveEvidence { observation, session: token, .. } = evidence;
    let facts = Facts { request: request_facts, client: &client };
    let shared = connection.worker.shared();
    let credential_hash = |source: &CredentialSource| {
        let hash = shared.session_keys.credential_hash(credential(source, fields)?);
        let max = config.settings.limits.max_credentials_per_address;
        shared.credentials.admit(rules.trust.key(address.client), hash, max, now).then_some(hash)
    };
    let switch =
        |classified: &Classification| config.switches.find(address.client, classified, client.claimed_operator(), now);
    let mut classified = config.admission.classify(&facts, switch, credential_hash, now);
    if let Some(class) = connection.fill.as_ref().and_then(|fill| rules.class_id(&fill.class)) {
        classified.classification.class = class;
    }
    let is_costly = !rules[classified.route].is_free();
    let observation = observation.map(|observation| observation.with_costly(is_costly));
    let classification = &classified.classification;
    let claimed = client.claimed_operator();
    let crawler = match classification.kind {
        ClientKind::VerifiedBot => classification.operator.or(claimed),
        ClientKind::DeclaredBot => claimed,
        _ => None,
    };
    let signed = client.signature != Signature::Absent;
    let ClientFacts { purpose, network_origin, field_classes, .. } = client;
    let has_sessions = config.settings.sessions.is_some();
    let trace = config.settings.traces.as_ref().map(|traces| trace_context(connection, request, &rules.trust, traces));
    let is_more_known = has_sessions
        || trace.is_some()
        || rules.customer.is_some()
        || purpose.is_some()
        || network_origin.is_known()
        || !field_classes.is_empty();
    let more = is_more_known.then(|| {
        // Another proxy passes no cookie on, unless it is configured to.
        let may_begin = has_sessions && connection.fill.is_none() && connection.listener.kind == ListenerKind::Site;
        let may_begin = may_begin && self::may_begin(classification.kind, signed, &request.head);
        let bearer = may_begin.then(|| Bearer::new(rules.trust.key(address.client), request_facts.user_agent));
        let session = ClientSession { token, bearer };
        Box::new(MoreOfClient { session, purpose, network_origin, field_classes, trace })
    });
    (Client { address, claimed, signed, crawler, observation, more }, classified)
}

/// Returns the trace that the request belongs to: that of its sender, or a new one. Only a trusted sender chooses whether it is
/// exported.
fn trace_context(
    connection: &ClientConnection,
    request: &ClientRequest,
    trust: &ProxyTrust,
    traces: &Traces,
) -> TraceContext {
    let parent = Parent::parse(request.head.fields.get_all_by_text(TRACEPARENT));
    let random = std::array::from_fn(|_| connection.worker.next_decision_id());
    let trusted = parent.filter(|_| connection.is_trusted(trust));
    TraceContext::new(parent, random, Choice(traces).samples(trusted, ratio_from_id(random[2])))
}

/// Returns the address of the client that sends a request with these fields.
pub(in crate::gateway) fn client_address(
    connection: &ClientConnection,
    trust: &ProxyTrust,
    fields: &Fields,
) -> ClientAddress {
    if connection.listener.kind == ListenerKind::ForwardAuth {
        let lines: SmallVec<[&[u8]; 2]> = fields.get_all_by_text(trust.header_behind_proxy()).collect();
        return trust.client_behind(connection.peer, &lines);
    }
    let Some(name) = trust.source.header() else { return ClientAddress { client: connection.peer, hops: Vec::new() } };
    let lines: SmallVec<[&[u8]; 2]> = fields.get_all_by_text(name).collect();
    trust.client(connection.peer, &lines)
}
