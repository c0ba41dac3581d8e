//! One request from the first look to the last byte. However it ends, it leaves one line in the access log and one
//! count in the metrics.

use crate::gateway::upstream::rate_limit;
use super::rate_limit_headers::RateLimitSnapshot;
use super::quota_sync::{self, BodyScan};
use super::cost;
use super::target;
use super::upstream::{ForwardError, OriginBody};
use super::connection_timeouts::ConnectionState;
use super::worker::{CurrentConfig, Worker};
use crate::engine::{
    BucketUsage, Charged, ThrottleRejection, Decision, ResponseFeedback, Observation, SlotGuard, Permit, Receipt, AdmissionOutcome, QuotaUsage,
};
use crate::http1::{Fields, Name, RequestHead, Response};
use crate::policy::bot_detection::HeadersSeen;
use crate::policy::quota_sync::OriginReport;
use crate::policy::identity::{ClientKey, ClientAddress};
use crate::policy::throttle;
use crate::policy::throttle::autothrottle::Adjustment;
use crate::policy::{Classification, QuotaId, Reason, Timestamp, Units};
use crate::telemetry::{QuotaCharge, UpstreamCall, RecordedOutcome, Record};
use http::StatusCode;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Who asked, and for what.
pub(super) struct ClientRequest {
    /// What was asked; on its way to the origin, what the origin is asked.
    pub(super) head: RequestHead,
    pub(super) origin: ClientAddress,
    pub(super) key: ClientKey,
    /// Its signature was looked at, whatever that said.
    pub(super) signed: bool,
    pub(super) classified: Classification,
    /// What its behaviour is judged by; nothing, where it says that it is a bot.
    pub(super) observation: Option<Observation>,
    pub(super) route: usize,
}

/// One request under way.
pub(super) struct RequestContext {
    worker: Rc<Worker>,
    watch: Rc<ConnectionState>,
    current: Rc<CurrentConfig>,
    visitor: ClientRequest,
    id: u64,
    began: Timestamp,
    standings: SmallVec<[QuotaUsage; 2]>,
    bucket: Option<BucketUsage>,
    shadow: Option<Reason>,
    refused: Option<Reason>,
    /// The scope that could not take it in time.
    refused_by: Option<Arc<str>>,
    retry_after: Option<u64>,
    /// Held from admission until its cost is known.
    permit: Option<Permit>,
    /// Its slots in the scopes, held until the answer has gone.
    pass: Option<SlotGuard>,
    /// How long it waited for them.
    scope_wait: Duration,
    receipt: Receipt,
    status: StatusCode,
    bytes: u64,
    at_origin: bool,
    /// The answer under way, as the watch knows it.
    answer: Option<usize>,
    origin_status: Option<u16>,
    origin_took: Option<Duration>,
    /// What the answer's body may still tell of a quota.
    listening: Vec<BodyScan>,
    complete: bool,
}

/// What the log says of a client that left before there was an answer. Nobody is ever sent it.
const CLIENT_LEFT: u16 = 499;

impl RequestContext {
    /// A visit on which `decision` has been made.
    pub(super) fn new(
        worker: Rc<Worker>,
        watch: Rc<ConnectionState>,
        current: Rc<CurrentConfig>,
        visitor: ClientRequest,
        decision: &Decision,
        id: u64,
    ) -> Box<Self> {
        // Boxed, because it goes through many hands.
        Box::new(Self {
            worker,
            watch,
            current,
            visitor,
            id,
            began: decision.at,
            standings: decision.standings.clone(),
            bucket: decision.bucket,
            shadow: decision.shadow,
            refused: match &decision.ruling {
                AdmissionOutcome::Refused(refusal) => Some(refusal.reason),
                AdmissionOutcome::Admitted(_) => None,
            },
            refused_by: None,
            retry_after: None,
            permit: None,
            pass: None,
            scope_wait: Duration::ZERO,
            receipt: Receipt::new(),
            status: StatusCode::from_u16(CLIENT_LEFT).expect("between 100 and 999"),
            bytes: 0,
            at_origin: false,
            answer: None,
            origin_status: None,
            origin_took: None,
            listening: Vec::new(),
            complete: false,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// A number between 0 and 1, another for each visit, that follows from its id.
    pub(super) fn chance(&self) -> f64 {
        f64::from((self.id >> 32) as u32) / f64::from(u32::MAX)
    }

    /// How far beyond its wait its return is put, as a share of the wait: those refused together do not come back together.
    pub(super) fn spread(&self) -> f64 {
        self.current.settings.headers.retry_after_spread.ratio() * self.chance()
    }

    pub(super) fn began(&self) -> Timestamp {
        self.began
    }

    pub(super) fn uptime(&self) -> Timestamp {
        self.worker.uptime().get()
    }

    pub(super) fn current(&self) -> Rc<CurrentConfig> {
        Rc::clone(&self.current)
    }

    pub(super) fn visitor(&self) -> &ClientRequest {
        &self.visitor
    }

    /// Who asked, so that what was asked can be made what the origin gets.
    pub(super) fn visitor_mut(&mut self) -> &mut ClientRequest {
        &mut self.visitor
    }

    /// The numbers that the client is told.
    pub(super) fn told(&self) -> RateLimitSnapshot<'_> {
        RateLimitSnapshot {
            class: self.visitor.classified.class,
            route: self.visitor.route,
            standings: &self.standings,
            bucket: self.bucket,
            refusal: None,
        }
    }

    /// It was turned away.
    pub(super) fn refused(&mut self, reason: Reason, retry_after: Option<u64>) {
        self.refused = Some(reason);
        self.retry_after = retry_after;
    }

    /// It was admitted, but its scopes could not take it in time.
    pub(super) fn refused_by_scope(&mut self, scope: Arc<str>, reason: Reason, retry_after: Option<u64>) {
        self.refused_by = Some(scope);
        self.refused_for_now(reason, retry_after);
    }

    fn refused_for_now(&mut self, reason: Reason, retry_after: Option<u64>) {
        let ClientRequest { key, classified, .. } = &self.visitor;
        self.current.admission.refused_by_scopes(*key, classified.class, self.began);
        self.refused(reason, retry_after);
    }

    /// It may go to the origin. What is set aside for it goes back if it leaves before that.
    pub(super) fn holds(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// It was admitted, but told to come back later.
    pub(super) fn told_to_wait(&mut self, retry_after: Option<u64>) {
        self.retry_after = retry_after;
    }

    /// It has stood in line until now.
    pub(super) fn has_waited(&mut self) {
        self.scope_wait = self.worker.now().since(self.began);
    }

    /// It is on its way to the origin, as far as its permit and `pass` allow.
    pub(super) fn goes_to_origin(&mut self, pass: Option<SlotGuard>) {
        self.pass = pass;
        self.at_origin = true;
        self.worker.telemetry().origin_began(&self.route().scopes, &self.worker.names(&self.current));
    }

    /// The origin had no room for it: it never left, and the client was told to come back.
    pub(super) fn found_no_room(&mut self, retry_after: Option<u64>) {
        self.leaves_origin();
        self.refused_for_now(Reason::Throttle, retry_after);
    }

    fn leaves_origin(&mut self) {
        if std::mem::take(&mut self.at_origin) {
            self.worker.telemetry().origin_ended(&self.route().scopes, &self.worker.names(&self.current));
        }
    }

    /// The origin has answered, or failed to.
    pub(super) fn origin_answered(&mut self, now: Timestamp, status: Option<StatusCode>) {
        self.origin_took = Some(now.since(self.began + self.scope_wait));
        self.origin_status = status.map(|status| status.as_u16());
    }

    /// Its scopes learn what the origin did. Returns how long they rest, if that was a complaint.
    pub(super) fn scopes_hear(&self, answer: Result<&Response<OriginBody>, &ForwardError>) -> Option<ThrottleRejection> {
        let pass = self.pass.as_ref()?;
        let (status, asked_for) = match answer {
            // Nothing that the origin did.
            Err(ForwardError::NoRoom | ForwardError::ClientBody { .. }) => return None,
            Err(_) => (None, None),
            Ok(Response { status, fields, .. }) => {
                let is_error = status.is_client_error() || status.is_server_error();
                let asked_for = if is_error { rate_limit::asked_for } else { rate_limit::nothing_left_for };
                (Some(status.as_u16()), asked_for(fields, self.worker.now()))
            }
        };
        let measured = self.route().measured && !answer.is_ok_and(|answer| cost::was_cached(&answer.fields));
        let heard = self.tell(pass, status, measured, asked_for);
        heard.adjusted.iter().for_each(|(scope, adjustment)| tell_adjustment(scope, adjustment));
        for (scope, wait) in &heard.begin_to_rest {
            warn!(%scope, ?wait, "The origin complains: {scope} is left alone for {wait:?}");
        }
        let rest = heard.rest?;
        Some(ThrottleRejection { wait: rest.wait.max(asked_for.unwrap_or_default()), ..rest })
    }

    /// The origin's answer broke off, or fell silent, after its head. Its scopes learn that, too, and are left.
    pub(super) fn answer_broke_off(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.tell(&pass, None, false, None);
        }
    }

    fn tell(&self, pass: &SlotGuard, status: Option<u16>, measured: bool, asked_for: Option<Duration>) -> ResponseFeedback {
        let latency = self.origin_took.unwrap_or_default();
        let outcome = throttle::OriginOutcome { status, latency, measured, asked_for };
        pass.heard(&outcome, self.chance(), self.worker.time())
    }

    /// The right to be sent, and what is to be sent.
    pub(super) fn departs(&mut self) -> (&mut Permit, &RequestHead) {
        let permit = self.permit.as_mut().expect("it went to the origin, and is not settled yet");
        (permit, &self.visitor.head)
    }

    /// Its cost is known: what `actual` says, quota by quota.
    pub(super) fn settle(&mut self, actual: impl FnMut(QuotaId, Units) -> Units) {
        if let Some(permit) = self.permit.take() {
            self.receipt = permit.settle(actual);
        }
    }

    /// The origin's answer may tell how its own counts stand of the quotas that were charged.
    pub(super) fn hear(&mut self, status: StatusCode, fields: &Fields) {
        let current = Rc::clone(&self.current);
        let mut now = None;
        for &Charged { quota, window, .. } in &self.receipt {
            let Some(sync) = &current.settings.rules.quotas[usize::from(quota.0)].sync_from else { continue };
            let now = *now.get_or_insert_with(|| self.worker.now());
            let told = quota_sync::read(sync, status, fields, now);
            self.worker.origin_counts(&current, quota, window, told.count, now);
            if let Some(header) = told.unreadable {
                self.worker.cannot_read(&current, quota, window, header);
            }
            if let Some(text) = told.if_body_says {
                self.listening.push(BodyScan::new(quota, window, told.count, text));
            }
        }
    }

    /// True while the answer's body may tell that nothing is left of a quota.
    pub(super) fn listens(&self) -> bool {
        !self.listening.is_empty()
    }

    /// A piece of the answer's body goes by: it may tell that nothing is left of a quota.
    pub(super) fn listen(&mut self, data: &[u8]) {
        if !self.listens() {
            return;
        }
        let (worker, current) = (&self.worker, &self.current);
        self.listening.retain_mut(|ear| {
            let heard = ear.hears(data);
            if heard {
                let count = OriginReport { exhausted: true, ..ear.count };
                worker.origin_counts(current, ear.quota, ear.window, count, worker.now());
            }
            !heard && !ear.has_heard_enough()
        });
    }

    /// Nothing will be known of its cost: what was set aside for it goes back, unless it may have been sent.
    pub(super) fn close(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.receipt = permit.close();
        }
    }

    /// The client is being sent an answer.
    pub(super) fn has_status(&mut self, status: StatusCode) {
        self.status = status;
        self.answer = self.watch.answer_begins();
    }

    /// So many bytes of the answer's body have gone out.
    pub(super) fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some(answer) = self.answer {
            self.watch.answer_moves(answer);
        }
    }

    /// The answer has gone out whole.
    pub(super) fn complete(mut self: Box<Self>) {
        self.complete = true;
    }

    /// The answer was made here, and is all there is.
    pub(super) fn answered(mut self: Box<Self>, status: StatusCode, bytes: u64) {
        self.has_status(status);
        self.count(bytes);
        self.complete();
    }

    fn route(&self) -> &crate::policy::route::Route {
        &self.current.settings.rules.routes[self.visitor.route]
    }

    fn learn(&self) {
        if let Some(observation) = &self.visitor.observation {
            let answered = self.origin_status.filter(|_| self.refused.is_none());
            observation.is_over(answered, &self.current.admission);
        }
    }

    fn record(&self) {
        let rules = &self.current.settings.rules;
        let ClientRequest { head, classified, observation, .. } = &self.visitor;
        let names = self.worker.names(&self.current);
        let charges: SmallVec<[QuotaCharge<'_>; 2]> = self
            .standings
            .iter()
            .map(|standing| QuotaCharge {
                quota: standing.quota,
                quota_name: &rules.quotas[usize::from(standing.quota.0)].name,
                expected: standing.cost,
                settled: self.charged(standing).map_or(Units::ZERO, |charged| charged.settled),
                used: standing.used,
                turn: standing.turn,
                settled_turn: self.charged(standing).map_or(standing.turn, |charged| charged.turn),
                again_turn: self.charged(standing).and_then(|charged| charged.again_turn),
            })
            .collect();
        let settled = self.worker.now();
        self.worker.telemetry().record(&Record {
            admitted: self.began,
            settled,
            id: self.id,
            client: self.visitor.origin.client,
            key: self.visitor.key,
            method: &head.method,
            host: target::host(head),
            path: head.target.path(),
            query: head.target.query(),
            version: head.version,
            status: self.status.as_u16(),
            bytes: self.bytes,
            user_agent: head.fields.get(Name::UserAgent).unwrap_or_default(),
            referer: head.fields.get(Name::Referer),
            headers_seen: observation.map_or(HeadersSeen::USER_AGENT, |observation| observation.seen()),
            kind: classified.kind,
            class: classified.class,
            class_name: &rules.classes[usize::from(classified.class.0)].name,
            operator: classified.operator,
            evidence: &classified.evidence,
            signed: self.visitor.signed,
            suspicion: observation.and_then(|observation| observation.points()),
            route: self.visitor.route,
            route_name: &self.route().name,
            charges: &charges,
            bucket_turn: self.bucket.map(|bucket| bucket.turn),
            outcome: match self.refused {
                Some(reason) => RecordedOutcome::Refused(reason),
                None => RecordedOutcome::Admitted { shadow: self.shadow },
            },
            retry_after_s: self.retry_after,
            scope: self.refused_by.as_deref(),
            tier: self.standings.iter().map(|standing| standing.tier).max(),
            guarded: self.refused.is_none() && self.standings.iter().any(|standing| standing.by_guard),
            scope_wait: self.scope_wait,
            origin: self.at_origin.then(|| UpstreamCall {
                scopes: &self.route().scopes,
                status: self.origin_status,
                took: self.origin_took.unwrap_or_else(|| settled.since(self.began + self.scope_wait)),
            }),
            total: settled.since(self.began),
            cache: None,
            names: &names,
        });
    }

    /// What a quota was charged; none where the request was refused.
    fn charged(&self, standing: &QuotaUsage) -> Option<&Charged> {
        self.receipt.iter().find(|charged| charged.quota == standing.quota)
    }
}

/// One line of each answer, where a scope's autothrottle says `debug: true`.
fn tell_adjustment(scope: &str, adjustment: &Adjustment) {
    let Adjustment { outcome: throttle::OriginOutcome { status, latency, .. }, old, new, why } = adjustment;
    info!(target: "autothrottle", scope, ?latency, status, ?old, ?new, why, "Delay of {scope}: {old:?} -> {new:?}, {why}");
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        if let Some(answer) = self.answer {
            self.watch.answer_ends(answer);
        }
        self.watch.request_ends(!self.complete);
        // The client may have left before its answer, or before the request was sent.
        self.close();
        self.learn();
        self.record();
        self.leaves_origin();
    }
}
