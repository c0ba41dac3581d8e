//! What a log holds that a first YAML can be made of.

use super::bots::{Bots, Who};
use super::days::Days;
use super::tree::{Tree, Visit};
use crate::agents::{Agents, ClaimCache};
use crate::policy::behaviour::Aim;
use crate::policy::route::normalise;
use crate::replay::log::{Asker, Files, Line, Merged, Next, Unreadable, east};
use crate::verify::Operators;
use http::Method;
use std::time::Duration;

/// All that is remembered of a log; it does not grow with it.
pub struct Findings<'a> {
    pub(super) agents: &'a Agents,
    pub(super) operators: &'a Operators,
    pub(super) days: Days,
    pub(super) bots: Bots,
    pub(super) tree: Tree,
    pub(super) requests: Requests,
    /// Whether any line says by which program it was asked.
    pub(super) has_user_agents: bool,
}

/// How many there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    pub(super) all: u64,
    pub(super) pages: u64,
    pub(super) assets: u64,
    pub(super) robots: u64,
    /// Lines that are no requests of a log.
    pub(super) broken: u64,
}

/// Why nothing can be proposed.
#[derive(Debug, thiserror::Error)]
pub enum Nothing {
    /// A log cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// There is no request in it.
    #[error(
        "no request in {lines} lines; give an access log in the combined or common format, or the gate's own, plain or \
         compressed with gzip"
    )]
    NoRequest {
        /// What there is instead.
        lines: u64,
    },
}

impl<'a> Findings<'a> {
    /// Reads logs, with what is known of bots.
    pub fn of(files: Files, agents: &'a Agents, operators: &'a Operators) -> Result<Self, Nothing> {
        let mut findings = Self {
            agents,
            operators,
            days: Days::default(),
            bots: Bots::default(),
            tree: Tree::default(),
            requests: Requests::default(),
            has_user_agents: false,
        };
        let mut claims = ClaimCache::new(foldhash::fast::RandomState::default());
        let mut lines = Merged::new(files.sources, OUT_OF_ORDER);
        while let Some(Next { at, place, text }) = lines.next_line()? {
            let east = east(text).unwrap_or(0);
            let read = Line::read(text).map(|line| {
                line.into_iter().for_each(|line| findings.see(&Line { at, ..line }, east, &mut claims));
            });
            if let Err(broken) = read {
                lines.is_broken(broken, place);
            }
        }
        findings.requests.broken = lines.counts.broken.values().map(|(count, _)| count).sum();
        match findings.requests.all {
            0 => Err(Nothing::NoRequest { lines: lines.counts.lines }),
            _ => Ok(findings),
        }
    }

    fn see(&mut self, line: &Line<'_>, east: i64, claims: &mut ClaimCache) {
        self.requests.all += 1;
        self.has_user_agents |= line.user_agent.is_some();
        let (claim, _) = claims.claim(self.agents, line.user_agent.as_deref().unwrap_or_default());
        let client = match line.client {
            Asker::Address(address) => Some(address),
            Asker::Named(_) => None,
        };
        let who = Who::of(claim, client, self.operators);
        self.bots.count(who, line.at);
        let is_page = self.place(line, who == Who::Person);
        self.days.see(line.at, east, is_page.then_some(who == Who::Person));
    }

    /// Puts it in the tree; true for a page that somebody wanted and that there is.
    fn place(&mut self, line: &Line<'_>, by_person: bool) -> bool {
        let Some(asked) = &line.asked else { return false };
        let Ok(path) = normalise(&asked.path) else { return false };
        // What the path is, whatever is done with it: to post to a page takes work, too.
        match Aim::of(&Method::GET, &path, None, None) {
            Aim::Robots => self.requests.robots += 1,
            Aim::Page(_) if is_wanted(line.status) => {
                self.requests.pages += 1;
                self.tree.see_page(Visit { path: &path, query: asked.query.as_deref(), by_person });
                return true;
            }
            Aim::Asset if is_wanted(line.status) => {
                self.requests.assets += 1;
                self.tree.see_asset(&path);
            }
            _ => {}
        }
        false
    }
}

/// True for what was answered, or would have been had there been more to spend. To say that there is nothing, or to send
/// somebody elsewhere, takes no page.
fn is_wanted(status: u16) -> bool {
    matches!(status, 200..300 | 304 | 429 | 500..)
}

/// Lines that are out of order by more are rare, and cost nothing here but a little of a busiest hour.
const OUT_OF_ORDER: Duration = Duration::from_secs(60);
