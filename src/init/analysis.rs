//! What a log holds that a first YAML can be made of.

use super::bots::{Bots, Who};
use super::time_range::Days;
use super::logs::{Logs, Unkept};
use super::self_requests::OwnCalls;
use super::dry_run::Untried;
use super::path_tree::{Tree, Visit};
use crate::user_agents::{Agents, ClaimCache};
use crate::policy::bot_detection::Aim;
use crate::policy::route::normalise;
use crate::replay::log::{Asker, Broken, Counts, Line, Merged, Next, Place, Unreadable, east};
use crate::verify::Operators;
use http::Method;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// All that is remembered of a log; it does not grow with it.
pub(super) struct Findings<'a> {
    pub(super) agents: &'a Arc<Agents>,
    pub(super) operators: &'a Arc<Operators>,
    pub(super) days: Days,
    pub(super) bots: Bots,
    pub(super) tree: Tree,
    /// How the names of assets end, as they are spelled, and how often each was asked for.
    pub(super) endings: BTreeMap<String, u64>,
    pub(super) own_calls: OwnCalls,
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
    /// A log that comes only once is too long.
    #[error(transparent)]
    Unkept(#[from] Unkept),
    /// What follows from it could not be tried.
    #[error(transparent)]
    Untried(#[from] Untried),
    /// There is no request in it.
    #[error(
        "no request in {lines} lines{first}; give an access log in the combined or common format, or the gate's own, \
         plain or compressed with gzip"
    )]
    NoRequest {
        /// What there is instead.
        lines: u64,
        /// The first of them, and what is wrong with it.
        first: String,
    },
}

impl Nothing {
    fn of(counts: &Counts, names: &[String]) -> Self {
        let first = counts.broken.iter().min_by_key(|(_, (_, place))| *place);
        let told = |(kind, (_, place)): (&Broken, &(u64, Place))| {
            let name = names.get(place.file).map_or("", String::as_str);
            format!("; the first that is not empty, {name}:{}, is {}", place.number, kind.said())
        };
        Self::NoRequest { lines: counts.lines, first: first.map_or_else(String::new, told) }
    }
}

impl<'a> Findings<'a> {
    /// Reads logs, with what is known of bots.
    pub(super) fn of(logs: &Logs, agents: &'a Arc<Agents>, operators: &'a Arc<Operators>) -> Result<Self, Nothing> {
        let mut findings = Self {
            agents,
            operators,
            days: Days::default(),
            bots: Bots::default(),
            tree: Tree::default(),
            endings: BTreeMap::new(),
            own_calls: OwnCalls::default(),
            requests: Requests::default(),
            has_user_agents: false,
        };
        let mut claims = ClaimCache::new(foldhash::fast::RandomState::default());
        let mut lines = Merged::new(logs.open()?, OUT_OF_ORDER);
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
            0 => Err(Nothing::of(&lines.counts, &logs.names())),
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
        self.days.see(line.at, east);
        let Some(asked) = &line.asked else { return };
        let Ok(path) = normalise(&asked.path) else { return };
        if let (Who::Bot(Some(bot)), Some(client)) = (who, client) {
            self.own_calls.see(self.agents.name(bot), &path, client);
        }
        self.place(Visit { path: &path, query: asked.query.as_deref(), by_person: who == Who::Person }, line.status);
    }

    /// Puts a page that somebody wanted and that there is in the tree, and remembers what assets look like.
    fn place(&mut self, visit: Visit<'_>, status: u16) {
        // What the path is, whatever is done with it: to post to a page takes work, too.
        match aim(visit.path) {
            Aim::Robots => self.requests.robots += 1,
            Aim::Page(_) if is_wanted(status) => {
                self.requests.pages += 1;
                self.tree.see_page(visit);
            }
            Aim::Page(_) => {}
            aim => {
                self.requests.assets += u64::from(aim == Aim::Asset && is_wanted(status));
                self.see_ending(visit.path);
            }
        }
    }

    /// Remembers how the name of an asset or an icon ends, were it missing: nobody is to pay for it.
    fn see_ending(&mut self, path: &str) {
        let Some((_, ending)) = path.rsplit_once('.') else { return };
        let has_room = self.endings.len() < MOST_ENDINGS || self.endings.contains_key(ending);
        if has_room && aim(&format!("/a.{ending}")) == Aim::Asset {
            *self.endings.entry(ending.to_owned()).or_default() += 1;
        }
    }
}

fn aim(path: &str) -> Aim {
    Aim::of(&Method::GET, path, None, None)
}

/// True for what was answered, or would have been had there been more to spend. To say that there is nothing, or to send
/// somebody elsewhere, takes no page.
fn is_wanted(status: u16) -> bool {
    matches!(status, 200..300 | 304 | 429 | 500..)
}

/// Lines that are out of order by more are rare, and cost nothing here but a little of a busiest hour.
pub(super) const OUT_OF_ORDER: Duration = Duration::from_secs(60);

/// More spellings than a site has; whoever makes up others pays for them.
const MOST_ENDINGS: usize = 64;
