//! Analyzes logs for the generation of a configuration.

use super::bots::{BotTraffic, RequesterKind};
use super::error::InitError;
use super::health_checks::HealthChecks;
use super::logs::Logs;
use super::model_calls::ModelCalls;
use super::path_tree::{PageRequest, PathTree};
use super::self_requests::SelfRequests;
use super::time_range::LogTimeRange;
use crate::ReplayRequest;
use crate::log::{ClientNotes, LogLine, LoggedClient, MergedLog, OrderedLine, line_utc_offset};
use http::Method;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_crawlers::user_agents::{ClaimCache, UserAgentMatcher};
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::bot_detection::ResourceKind;

/// Figures of a log, in memory that does not grow with the log.
pub(super) struct LogAnalysis<'a> {
    pub(super) user_agents: &'a Arc<UserAgentMatcher>,
    pub(super) operators: &'a Arc<OperatorTable>,
    pub(super) time_range: LogTimeRange,
    pub(super) bots: BotTraffic,
    pub(super) tree: PathTree,
    /// Number of requests by file extension of assets, as spelled.
    pub(super) extensions: BTreeMap<String, u64>,
    pub(super) self_requests: SelfRequests,
    pub(super) health_checks: HealthChecks,
    pub(super) model_calls: ModelCalls,
    pub(super) requests: RequestCounts,
    /// How the clients were found.
    pub(super) clients: ClientNotes,
    /// True if any line contains a user agent.
    pub(super) has_user_agents: bool,
}

/// Number of requests by type.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestCounts {
    pub(super) total: u64,
    pub(super) pages: u64,
    pub(super) assets: u64,
    pub(super) robots: u64,
    /// Number of requests that the gateway rejects as invalid, which do not count otherwise.
    pub(super) invalid: u64,
    /// Number of lines too late to be sorted, which take the latest time before them.
    pub(super) late_lines: u64,
    /// Number of invalid lines.
    pub(super) invalid_lines: u64,
}

impl<'a> LogAnalysis<'a> {
    /// Analyzes logs with the tables of bots and operators.
    pub(super) fn from_logs(
        logs: &Logs,
        user_agents: &'a Arc<UserAgentMatcher>,
        operators: &'a Arc<OperatorTable>,
    ) -> Result<Self, InitError> {
        let mut analysis = Self {
            user_agents,
            operators,
            time_range: LogTimeRange::default(),
            bots: BotTraffic::default(),
            tree: PathTree::default(),
            extensions: BTreeMap::new(),
            self_requests: SelfRequests::default(),
            health_checks: HealthChecks::default(),
            model_calls: ModelCalls::default(),
            requests: RequestCounts::default(),
            clients: ClientNotes::default(),
            has_user_agents: false,
        };
        let mut claims = ClaimCache::new(foldhash::fast::RandomState::default());
        let lines = MergedLog::new(logs.open()?, REORDER_WINDOW);
        let lines = lines.for_each(|next, line| analysis.record(next, line, &mut claims))?;
        analysis.clients = lines.client_notes();
        analysis.requests.late_lines = lines.counts.late;
        analysis.requests.invalid_lines = lines.counts.invalid_lines.values().map(|(count, _)| count).sum();
        match analysis.requests.total {
            0 => Err(InitError::no_request(&lines.counts, &logs.names())),
            _ => Ok(analysis),
        }
    }

    /// Returns true if most requests that cost are calls of a model API; where responses have reported no costs, nearly all, because
    /// anyone may send such requests to a site.
    pub(super) fn is_of_model_api(&self) -> bool {
        let (calls, pages) = (self.model_calls.count(), self.requests.pages);
        if self.model_calls.have_costs() { calls * 2 > pages } else { calls * 10 > pages * 9 }
    }

    fn record(&mut self, next: OrderedLine<'_>, line: &LogLine<'_>, claims: &mut ClaimCache) {
        let Some(request) = ReplayRequest::from_line(line) else {
            self.requests.invalid += 1;
            return;
        };
        self.requests.total += 1;
        self.has_user_agents |= line.user_agent.is_some();
        let (claim, _) = claims.claim(self.user_agents, line.user_agent.as_deref().unwrap_or_default());
        let client = match line.client {
            LoggedClient::Address(address) => Some(address),
            LoggedClient::HostName(_) => None,
        };
        let requester = RequesterKind::classify(claim, client, self.operators);
        self.bots.count(requester, next.at);
        self.time_range.record(next.at, line_utc_offset(next.text).unwrap_or(0));
        let path = &request.path;
        if let (RequesterKind::Bot(Some(bot)), Some(client)) = (requester, client) {
            self.self_requests.record(self.user_agents.name(bot), path, client);
        }
        self.health_checks.record(path, client, line.user_agent.as_deref().unwrap_or_default());
        if is_costly_status(line.status) {
            self.model_calls.record(&request, line);
        }
        self.record_page(
            PageRequest { path, query: request.query, is_human: requester == RequesterKind::Person },
            line.status,
        );
    }

    /// Counts a request: a successful page request in the tree, an asset by its extension.
    fn record_page(&mut self, page: PageRequest<'_>, status: u16) {
        // The path decides, not the method: a POST to a page costs work, too.
        match resource_kind(page.path) {
            ResourceKind::Robots => self.requests.robots += 1,
            ResourceKind::Page(_) if is_costly_status(status) => {
                self.requests.pages += 1;
                self.tree.add(page);
            }
            ResourceKind::Page(_) => {}
            kind => {
                self.requests.assets += u64::from(kind == ResourceKind::Asset && is_costly_status(status));
                self.record_extension(page.path);
            }
        }
    }

    /// Counts the extension of an asset or icon, even if it is missing on the site, because missing assets are free,
    /// too.
    fn record_extension(&mut self, path: &str) {
        let Some((_, extension)) = path.rsplit_once('.') else { return };
        let has_room = self.extensions.len() < MAX_EXTENSIONS || self.extensions.contains_key(extension);
        if has_room && resource_kind(&format!("/a.{extension}")) == ResourceKind::Asset {
            *self.extensions.entry(extension.to_owned()).or_default() += 1;
        }
    }
}

fn resource_kind(path: &str) -> ResourceKind {
    ResourceKind::from_request(&Method::GET, path, None, None)
}

/// Returns true for statuses of requests that cost a page, or would have with enough quota. Redirects and missing pages
/// cost nothing.
fn is_costly_status(status: u16) -> bool {
    matches!(status, 200..300 | 304 | 429 | 500..)
}

/// Window for sorting lines by time. Later lines are rare, and only change the figure of a busiest hour slightly.
pub(super) const REORDER_WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of extensions. It exceeds those of real sites; invented ones beyond it are treated as pages.
const MAX_EXTENSIONS: usize = 64;
