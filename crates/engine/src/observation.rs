//! Observation of one request of a client that claims to be a browser: scored on arrival, recorded when finished.

use super::{Admission, ProfileKey};
use std::net::IpAddr;
use tidegate_policy::bot_detection::{
    BotScore, BrowserTraits, HeadersSeen, Referer, RequestFeatures, ResourceKind, ResponseOutcome,
};
use tidegate_policy::session::Session;
use tidegate_policy::{RequestFacts, Timestamp};

/// Inputs of an observation: the attributes of a request.
#[derive(Clone, Copy, Debug)]
pub struct ObservedRequest<'a> {
    /// Request, as rules match it.
    pub request: RequestFacts<'a>,
    /// Address of the client.
    pub client: IpAddr,
    /// Traits of the browser named by the user agent.
    pub browser: BrowserTraits,
    /// Referer of the request.
    pub referer: Referer,
    /// Headers present in the request.
    pub headers: HeadersSeen,
    /// Session of the client; `None` without sessions.
    pub session: Option<Session>,
    /// Part of the id of the session; 0 without one.
    pub session_id: u32,
}

/// An observed request that has not been recorded yet.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    profile_key: ProfileKey,
    features: RequestFeatures,
    /// Bot score of the client; `None` if it has no profile.
    bot_score: Option<BotScore>,
}

impl Observation {
    /// Observes a request. Returns `None` if bot detection is disabled.
    pub fn observe(observed: &ObservedRequest<'_>, admission: &Admission, now: Timestamp) -> Option<Self> {
        let rules = admission.rules();
        let settings = rules.bot_detection.as_ref()?;
        let ObservedRequest { request, client, browser, referer, headers, session, session_id } = *observed;
        let features = RequestFeatures {
            at: now,
            browser,
            resource_kind: ResourceKind::from_request(
                request.method,
                request.path,
                request.query,
                settings.honeypot.as_deref(),
            ),
            is_costly: false,
            referer,
            headers,
            session,
        };
        let key = admission.profile_key(rules.trust.key(client), request.user_agent, session_id);
        let score = admission.bot_score(key, &features);
        Some(Self { profile_key: key, features, bot_score: score })
    }

    /// Returns the bot score of the client, or `None` if it is not suspected.
    pub fn score_if_suspected(&self, admission: &Admission) -> Option<BotScore> {
        self.bot_score.filter(|score| admission.rules().is_suspected(score))
    }

    /// Returns the points of the client, or `None` if it has no profile.
    pub fn score(&self) -> Option<u16> {
        self.bot_score.map(|score| score.points)
    }

    /// Returns the observation, marked as a request that would be charged if `costly`.
    #[must_use]
    pub fn with_costly(self, costly: bool) -> Self {
        Self { features: RequestFeatures { is_costly: costly, ..self.features }, ..self }
    }

    /// Returns true if the client has made a visit of a person: it has loaded assets or followed links.
    pub fn is_of_person(&self, admission: &Admission) -> bool {
        admission.has_visit_of_person(self.profile_key, self.features.at)
    }

    /// Returns the headers present in the request.
    pub fn headers(&self) -> HeadersSeen {
        self.features.headers
    }

    /// Records the finished request with its response status; `None` if it was refused.
    pub fn finish(&self, status: Option<u16>, admission: &Admission) {
        admission.record_request(
            self.profile_key,
            &self.features,
            status.map_or(ResponseOutcome::Refused, ResponseOutcome::from_status),
        );
    }
}
