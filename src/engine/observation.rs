//! A look at one request of a client that says it is a browser: what is made of it now, and learned once it is over.

use super::{Admission, ProfileKey};
use crate::policy::Timestamp;
use crate::policy::bot_detection::{
    BotScore, BrowserTraits, HeadersSeen, Referer, RequestFeatures, ResourceKind, ResponseOutcome,
};
use std::net::IpAddr;

/// All that there is to see of a request.
#[derive(Clone, Copy, Debug)]
pub struct ObservedRequest<'a> {
    /// The method.
    pub method: &'a http::Method,
    /// The path, normalised.
    pub path: &'a str,
    /// The query.
    pub query: Option<&'a str>,
    /// The client's address.
    pub client: IpAddr,
    /// Its user agent.
    pub user_agent: &'a [u8],
    /// What follows from the browser that it names.
    pub browser: BrowserTraits,
    /// The page that it says led here.
    pub referer: Referer,
    /// The headers that were there.
    pub seen: HeadersSeen,
}

/// A request that was seen and not learned from yet.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    track: ProfileKey,
    sight: RequestFeatures,
    /// How far its client is from a person.
    weighed: Option<BotScore>,
}

impl Observation {
    /// What there is to see; nothing where nobody looks.
    pub fn of(look: &ObservedRequest<'_>, admission: &Admission, now: Timestamp) -> Option<Self> {
        let rules = admission.rules();
        let behaviour = rules.behaviour.as_ref()?;
        let sight = RequestFeatures {
            at: now,
            browser: look.browser,
            aim: ResourceKind::of(look.method, look.path, look.query, behaviour.honeypot.as_deref()),
            costly: false,
            referer: look.referer,
            seen: look.seen,
        };
        let track = admission.profile_key(rules.trust.key(look.client), look.user_agent);
        let weighed = admission.bot_score(track, look.browser.graphical, now);
        Some(Self { track, sight, weighed })
    }

    /// Why its client is suspected, if it is.
    pub fn score_if_suspected(&self, admission: &Admission) -> Option<BotScore> {
        self.weighed.filter(|weighed| admission.rules().is_suspected(weighed))
    }

    /// The points that its client has, where anything is known of it.
    pub fn score(&self) -> Option<u16> {
        self.weighed.map(|weighed| weighed.points)
    }

    /// The same, of a request that would be charged if `costly`.
    #[must_use]
    pub fn with_costly(self, costly: bool) -> Self {
        Self { sight: RequestFeatures { costly, ..self.sight }, ..self }
    }

    /// The headers that were there.
    pub fn seen(&self) -> HeadersSeen {
        self.sight.seen
    }

    /// It is over: it was answered with `status`, or was not.
    pub fn finish(&self, status: Option<u16>, admission: &Admission) {
        admission.record_request(
            self.track,
            &self.sight,
            status.map_or(ResponseOutcome::Refused, ResponseOutcome::from_status),
        );
    }
}
