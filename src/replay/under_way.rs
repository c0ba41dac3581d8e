//! What has been admitted and is not over yet: it holds its reservation until its answer is there.

use super::page_cache::PageNumber;
use crate::engine::{Observation, Permit};
use crate::policy::{ClassId, QuotaId, Timestamp, Units};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Requests under way, by when they end.
#[derive(Default)]
pub(super) struct UnderWay(VecDeque<Ending>);

/// The end of a request.
pub(super) struct Ending {
    /// When.
    pub(super) due: Timestamp,
    /// What is settled then.
    pub(super) bill: Option<Bill>,
    /// What is learned then, and with what status it was answered, if it was.
    pub(super) lesson: Option<(Observation, Option<u16>)>,
}

/// What a request costs.
pub(super) struct Bill {
    pub(super) permit: Permit,
    pub(super) class: ClassId,
    /// What it really costs, quota by quota.
    pub(super) costs: SmallVec<[(QuotaId, Units); 2]>,
    /// The page that has been fetched then.
    pub(super) page: Option<PageNumber>,
}

impl UnderWay {
    /// Adds a request. Where there is no room, the one that would end first has to end now.
    pub(super) fn add(&mut self, ending: Ending) -> Option<Ending> {
        let first = if self.0.len() >= MOST { self.0.pop_front() } else { None };
        match self.0.back().is_some_and(|last| last.due > ending.due) {
            true => self.0.insert(self.0.partition_point(|other| other.due <= ending.due), ending),
            false => self.0.push_back(ending),
        }
        first
    }

    /// The next that is over by `now`.
    pub(super) fn over_by(&mut self, now: Timestamp) -> Option<Ending> {
        if self.0.front()?.due > now { None } else { self.0.pop_front() }
    }
}

/// A minute of a site with a thousand requests a second that take a minute each.
const MOST: usize = 65_536;
