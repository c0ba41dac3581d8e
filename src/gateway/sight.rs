//! What behaviour gets to see of a request, read from its head.

use super::target::Target;
use crate::engine::{Admission, Track};
use crate::http1::{Name, RequestHead, list};
use crate::policy::behaviour::{Aim, Browser, Outcome, Referer, Seen, Sight, Suspicion};
use crate::policy::identity::Origin;
use crate::policy::{Rules, Timestamp};
use http::Version;
use std::net::IpAddr;

/// A request of a client that says it is a browser, seen but not learned from yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    track: Track,
    sight: Sight,
}

impl Observation {
    /// What there is to see; nothing where nobody looks. `peer` is who connected.
    pub(super) fn of(
        head: &RequestHead,
        target: &Target<'_>,
        (origin, peer): (&Origin, IpAddr),
        browser: Browser,
        admission: &Admission,
        now: Timestamp,
    ) -> Option<Self> {
        let rules = admission.rules();
        let behaviour = rules.behaviour.as_ref()?;
        let fields = &head.fields;
        let user_agent = fields.get(Name::UserAgent).unwrap_or_default();
        let sight = Sight {
            at: now,
            browser,
            aim: Aim::of(&head.method, &target.path, target.query, behaviour.trap.as_deref()),
            costly: false,
            referer: Referer::of(fields.get(Name::Referer), &target.host),
            seen: seen(head, rules, origin, peer),
        };
        Some(Self { track: admission.track(rules.trust.key(origin.client), user_agent), sight })
    }

    /// Why its client is suspected, if it is.
    pub(super) fn suspicion(&self, admission: &Admission) -> Option<Suspicion> {
        admission.suspicion(self.track, self.sight.browser.graphical, self.sight.at)
    }

    /// The same, of a request that would be charged if `costly`.
    pub(super) fn that_is(self, costly: bool) -> Self {
        Self { sight: Sight { costly, ..self.sight }, ..self }
    }

    /// The headers that were there.
    pub(super) fn seen(&self) -> Seen {
        self.sight.seen
    }

    /// It is over: the origin answered with `status`, or was not asked.
    pub(super) fn is_over(&self, status: Option<u16>, admission: &Admission) {
        admission.learn(self.track, &self.sight, status.map_or(Outcome::Refused, Outcome::of_status));
    }
}

fn seen(head: &RequestHead, rules: &Rules, origin: &Origin, peer: IpAddr) -> Seen {
    let is = |name| head.fields.contains(name);
    let through_proxy = rules.trust.believes(peer);
    let proto = || head.fields.all(Name::ForwardedProto).flat_map(list).last();
    let secure = through_proxy && proto().is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
    // What a proxy speaks to us says nothing of what the client spoke to it.
    let old_http = head.version == Version::HTTP_10 && !through_proxy && origin.client == peer;
    Seen::LOOKED
        .and(Seen::ACCEPT, is(Name::Accept))
        .and(Seen::ENCODING, is(Name::AcceptEncoding))
        .and(Seen::LANGUAGE, is(Name::AcceptLanguage))
        .and(Seen::REFERER, is(Name::Referer))
        .and(Seen::HINTS, is(Name::SecChUa))
        .and(Seen::FETCH, is(Name::SecFetchMode))
        .and(Seen::USER_AGENT, is(Name::UserAgent))
        .and(Seen::SECURE, secure)
        .and(Seen::OLD_HTTP, old_http)
}
