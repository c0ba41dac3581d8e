//! Costly pages of a session: how many it asks for in a day, and how many are usual for people of the site.

use super::distribution::{Distribution, is_same_bucket};
use crate::Timestamp;
use crate::session::Session;
use std::time::Duration;

/// Costly pages of one session in a day, which begins with the first of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionPages {
    day_started_s: u32,
    last_seen_s: u32,
    pages: u16,
    /// True if the session is one of those that [`UsualPages`] knows.
    is_of_person: bool,
}

/// Costly pages that sessions of people ask for in a day.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsualPages(Distribution);

/// Number of costly pages that a session has asked for in a day, and the most that is usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PagesBeyond {
    /// Costly pages of the session.
    pub pages: u16,
    /// Costly pages from which on a session is beyond people.
    pub limit: u16,
}

/// Change of the costly pages of a person's session in its day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesChange {
    earlier: Option<u16>,
    pages: u16,
}

impl SessionPages {
    /// Records a costly page. Returns what [`UsualPages`] has to record, if anything: of a person's session, if `teaches` returns
    /// true when it becomes one.
    pub fn record(&mut self, session: Session, now: Timestamp, teaches: impl FnOnce() -> bool) -> Option<PagesChange> {
        let now_s = u32::try_from(now.seconds()).unwrap_or(u32::MAX);
        if self.pages == 0 || self.is_over(now_s) {
            *self = Self { day_started_s: now_s, ..Self::default() };
        }
        self.last_seen_s = self.last_seen_s.max(now_s);
        let earlier = self.pages;
        self.pages = earlier.saturating_add(1);
        let was_of_person = self.is_of_person;
        self.is_of_person |= session == Session::Known && !was_of_person && teaches();
        let is_change = self.is_of_person && !(was_of_person && is_same_bucket(earlier.into(), self.pages.into()));
        is_change.then_some(PagesChange { earlier: was_of_person.then_some(earlier), pages: self.pages })
    }

    /// Returns the pages of the session's current day, if they are more than `limit`.
    pub fn beyond(&self, limit: u16, now: Timestamp) -> Option<PagesBeyond> {
        let now_s = u32::try_from(now.seconds()).unwrap_or(u32::MAX);
        (self.pages > limit && !self.is_over(now_s)).then_some(PagesBeyond { pages: self.pages, limit })
    }

    /// Returns the second of the last page.
    pub fn last_seen_s(&self) -> u32 {
        self.last_seen_s
    }

    fn is_over(&self, now_s: u32) -> bool {
        now_s.saturating_sub(self.day_started_s) >= DAY_S
    }
}

impl UsualPages {
    /// Records a change of a person's session.
    pub fn record(&mut self, change: PagesChange, now: Timestamp) {
        self.0.record(change.earlier.map(f32::from), change.pages.into(), now, HALF_LIFE);
    }

    /// Returns the number of costly pages a day up to which a session may be a person's: 2.5 times what all but one in a
    /// thousand stay below, but not more than 60 times what all but one in twenty do. `None` until a thousand sessions are known.
    pub fn limit(&self) -> Option<u16> {
        let eager = self.0.upper_bound(EAGER_SHARE)? * EAGER_MARGIN;
        // A few programs with cookies are more than one in a thousand of the sessions, and rarely one in twenty.
        let common = self.0.upper_bound(COMMON_SHARE)? * COMMON_MARGIN;
        Some(eager.min(common).max(MIN_LIMIT) as u16)
    }
}

/// Time after which a session counts half: some days, since few people read a hundred pages.
const HALF_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Share of the most eager people.
const EAGER_SHARE: f32 = 0.001;

/// Multiple of what the others ask for that is still usual: a day that begins in the afternoon has parts of two days of a person.
const EAGER_MARGIN: f32 = 2.5;

/// Share of people who read more than others, and the multiple of what these ask for that is still usual.
const COMMON_SHARE: f32 = 0.05;
const COMMON_MARGIN: f32 = 60.0;

/// Costly pages a day that are always usual.
const MIN_LIMIT: f32 = 100.0;

const DAY_S: u32 = 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn ask(session: &mut SessionPages, usual: &mut UsualPages, state: Session, pages: u32, at: Timestamp) {
        for _ in 0..pages {
            if let Some(change) = session.record(state, at, || true) {
                usual.record(change, at);
            }
        }
    }

    #[test]
    fn a_session_beyond_people_is_told_by_its_figure() {
        let mut usual = UsualPages::default();
        for number in 0..1200_u32 {
            assert!(usual.limit().is_none() || number >= 999, "{number}");
            let pages = if number % 100 == 0 { 160 } else { 1 + number % 9 };
            ask(&mut SessionPages::default(), &mut usual, Session::Known, pages, START);
        }
        let limit = usual.limit().expect("a thousand people");
        assert!((430..480).contains(&limit), "{limit}");
        let mut session = SessionPages::default();
        ask(&mut session, &mut usual, Session::Known, limit.into(), START);
        assert_eq!(session.beyond(limit, START), None);
        ask(&mut session, &mut usual, Session::Known, 1, START);
        assert_eq!(session.beyond(limit, START), Some(PagesBeyond { pages: limit + 1, limit }));
        assert_eq!(session.beyond(limit, START + Duration::from_secs(u64::from(DAY_S))), None, "the next day");
    }

    #[test]
    fn one_session_moves_no_limit_and_a_new_one_teaches_nothing() {
        let mut usual = UsualPages::default();
        (0..1100).for_each(|_| ask(&mut SessionPages::default(), &mut usual, Session::Known, 3, START));
        assert_eq!(usual.limit(), Some(100));
        ask(&mut SessionPages::default(), &mut usual, Session::Known, 60_000, START);
        (0..500).for_each(|_| ask(&mut SessionPages::default(), &mut usual, Session::New, 2000, START));
        assert_eq!(usual.limit(), Some(100));
    }

    #[test]
    fn a_session_that_does_not_teach_moves_no_limit() {
        let mut session = SessionPages::default();
        let changes = (0..2000).filter_map(|_| session.record(Session::Known, START, || false)).count();
        assert_eq!((changes, session.beyond(1999, START).map(|it| it.pages)), (0, Some(2000)));
    }

    #[test]
    fn programs_among_the_sessions_raise_the_limit_little() {
        let mut usual = UsualPages::default();
        (0..1500).for_each(|_| ask(&mut SessionPages::default(), &mut usual, Session::Known, 8, START));
        (0..30).for_each(|_| ask(&mut SessionPages::default(), &mut usual, Session::Known, 2000, START));
        assert!(usual.limit().is_some_and(|limit| limit < 600), "{:?}", usual.limit());
    }

    #[test]
    fn counts_end_at_their_maximum() {
        let mut session = SessionPages { pages: u16::MAX, ..SessionPages::default() };
        session.record(Session::New, Timestamp::from_seconds(1), || true);
        assert_eq!(session.beyond(u16::MAX - 1, Timestamp::from_seconds(1)).map(|it| it.pages), Some(u16::MAX));
    }
}
