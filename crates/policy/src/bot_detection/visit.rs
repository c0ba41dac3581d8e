//! A visit: pages of a client less than 30 minutes apart, and whether a person seems to make it.

use super::Referer;
use crate::Timestamp;
use crate::session::Session;

/// Current visit of a client, in 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Visit {
    /// Second of the first page, modulo 2^16.
    started_s: u16,
    /// Minute of the last page, modulo 2^16.
    last_page_min: u16,
    /// Assets and followed links in the first minute, saturating.
    assets: u8,
    links: u8,
    kind: VisitKind,
    /// True if a request of the visit had a session.
    has_session: bool,
}

/// What a visit shows of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum VisitKind {
    /// No visit yet.
    #[default]
    None,
    /// Neither an asset nor a followed link.
    Bare,
    /// An asset or a link, but not as a person in the first minute.
    Void,
    /// Three assets in the first minute, or one and a followed link, or two links; where there are sessions, one of them came
    /// back.
    People,
}

/// Changes of a client's visit by one request, which the profile of its network counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisitChanges {
    /// Change of the number of bare visits.
    pub bare: Option<BareChange>,
    /// True if the visit is that of a person from now on.
    pub is_of_person: bool,
    /// True if it is from now on that of a person who follows links.
    pub is_of_reader: bool,
}

/// Change of the number of bare visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareChange {
    /// A visit has begun, without a followed link.
    Begun,
    /// The visit is not bare: an asset was loaded or a link followed.
    Refuted,
}

impl VisitChanges {
    /// Returns true if anything changed.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

impl Visit {
    /// Records a page. An unknown referer counts as a followed link, in favor of the client.
    pub(super) fn record_page(&mut self, at: Timestamp, referer: Referer, session: Option<Session>) -> VisitChanges {
        let seconds = at.seconds();
        let minute = (seconds / 60) as u16;
        // A clock that is set back by less than two hours ends no visit.
        let gap = minute.wrapping_sub(self.last_page_min.wrapping_sub(MAX_CLOCK_STEP_MIN));
        let is_new = self.kind == VisitKind::None || gap >= MAX_CLOCK_STEP_MIN + MAX_GAP_MIN;
        self.last_page_min = minute;
        let is_link = matches!(referer, Referer::Internal | Referer::Unknown);
        if is_new {
            *self = Self { started_s: seconds as u16, last_page_min: minute, kind: VisitKind::Bare, ..Self::default() };
            if !is_link {
                self.has_session = has_session(session);
                return VisitChanges { bare: Some(BareChange::Begun), ..VisitChanges::default() };
            }
            // Never counted as a bare one.
            self.kind = VisitKind::Void;
        }
        self.record(at, session, 0, u8::from(is_link))
    }

    /// Records an asset.
    pub(super) fn record_asset(&mut self, at: Timestamp, session: Option<Session>) -> VisitChanges {
        match self.kind {
            // Another site may show an image of this one.
            VisitKind::None => VisitChanges::default(),
            _ => self.record(at, session, 1, 0),
        }
    }

    fn is_of_reader(self) -> bool {
        self.kind == VisitKind::People && self.links > 0
    }

    fn record(&mut self, at: Timestamp, session: Option<Session>, assets: u8, links: u8) -> VisitChanges {
        let was_of_reader = self.is_of_reader();
        self.has_session |= has_session(session);
        if (at.seconds() as u16).wrapping_sub(self.started_s) <= FIRST_MINUTE_S {
            self.assets = self.assets.saturating_add(assets);
            self.links = self.links.saturating_add(links);
        }
        let mut changes = VisitChanges::default();
        if self.kind == VisitKind::Bare && assets + links > 0 {
            self.kind = VisitKind::Void;
            changes.bare = Some(BareChange::Refuted);
        }
        let shows_person = self.assets >= 3 || (self.assets >= 1 && self.links >= 1) || self.links >= 2;
        if self.kind == VisitKind::Void && shows_person && self.has_session {
            self.kind = VisitKind::People;
            changes.is_of_person = true;
        }
        changes.is_of_reader = self.is_of_reader() && !was_of_reader;
        changes
    }
}

/// Returns true if a cookie came back, or if there are no sessions.
fn has_session(session: Option<Session>) -> bool {
    session != Some(Session::None)
}

/// Minutes without a page that end a visit.
const MAX_GAP_MIN: u16 = 30;

/// Minutes by which a clock may be set back within a visit.
const MAX_CLOCK_STEP_MIN: u16 = 120;

/// Seconds from the first page in which a visit shows a person. Who reads slowly is not counted as one, nor as bare.
const FIRST_MINUTE_S: u16 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const START: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn after(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    /// Returns what a visit changes in sum: bare visits, and visits of people. `a` is an asset, `p` a page, `l` a followed link.
    fn counts(requests: &[(u64, char)], session: impl Fn(usize) -> Option<Session>) -> (i32, u32) {
        let mut visit = Visit::default();
        let (mut bare, mut people) = (0, 0);
        for (index, (second, kind)) in requests.iter().enumerate() {
            let at = after(*second);
            let changes = match kind {
                'a' => visit.record_asset(at, session(index)),
                'p' => visit.record_page(at, Referer::Absent, session(index)),
                'e' => visit.record_page(at, Referer::External, session(index)),
                _ => visit.record_page(at, Referer::Internal, session(index)),
            };
            bare += match changes.bare {
                Some(BareChange::Begun) => 1,
                Some(BareChange::Refuted) => -1,
                None => 0,
            };
            people += u32::from(changes.is_of_person);
        }
        (bare, people)
    }

    #[test]
    fn a_visit_is_of_people_or_bare_or_neither() {
        assert_eq!(size_of::<Visit>(), 8);
        for (requests, expected, what) in [
            (&[(0, 'p'), (1, 'a'), (1, 'a'), (2, 'a')][..], (0, 1), "three assets"),
            (&[(0, 'e'), (1, 'a'), (30, 'l')], (0, 1), "an asset and a link"),
            (&[(0, 'p'), (9, 'l'), (60, 'l')], (0, 1), "two links"),
            (&[(0, 'l'), (9, 'l')], (0, 1), "two links, the first from another visit"),
            (&[(0, 'p')], (1, 0), "one page"),
            (&[(0, 'p'), (9, 'p'), (2000, 'p'), (9000, 'e')], (3, 0), "three visits"),
            (&[(0, 'p'), (1700, 'p'), (3400, 'p')], (1, 0), "one long visit"),
            (&[(0, 'p'), (1, 'a'), (1, 'a')], (0, 0), "too few assets"),
            (&[(0, 'p'), (100, 'l'), (200, 'l'), (300, 'l')], (0, 0), "a slow reader"),
            (&[(0, 'l')], (0, 0), "a link that may be forged"),
            (&[(0, 'a'), (1, 'a'), (2, 'a')], (0, 0), "images in another site"),
            (&[(0, 'p'), (1, 'a'), (2, 'a'), (3, 'a'), (3000, 'p')], (1, 1), "each visit counts for itself"),
            (&[(0, 'p'), (1, 'a'), (1, 'l'), (3000, 'p'), (3001, 'a'), (3002, 'l')], (0, 2), "two of a person"),
        ] {
            assert_eq!(counts(requests, |_| None), expected, "{what}");
        }
    }

    #[test]
    fn with_sessions_people_return_a_cookie() {
        let requests = [(0, 'p'), (1, 'a'), (1, 'a'), (2, 'a'), (9, 'l')];
        assert_eq!(counts(&requests, |_| Some(Session::None)), (0, 0));
        assert_eq!(counts(&requests, |index| Some(if index < 3 { Session::None } else { Session::New })), (0, 1));
        assert_eq!(counts(&requests, |_| Some(Session::Known)), (0, 1));
        assert_eq!(counts(&requests[..1], |_| Some(Session::New)), (1, 0), "a cookie alone is no person");
    }

    #[test]
    fn a_clock_that_is_set_back_ends_no_visit() {
        assert_eq!(counts(&[(7000, 'p'), (10, 'p'), (20, 'p')], |_| None), (1, 0));
    }
}
