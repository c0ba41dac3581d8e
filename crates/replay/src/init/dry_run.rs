//! Replays a generated configuration on its own log, without refusals, to measure what it charges.

use super::analysis::{LogAnalysis, REORDER_WINDOW};
use super::cache_savings::{CacheSavings, CacheShares};
use super::error::DryRunError;
use super::logs::Logs;
use super::people_bursts::{PeopleBurst, PeopleBursts};
use super::time_range::LogTimeRange;
use crate::log::{LogReadError, MergedLog};
use crate::report::{PolicyReport, QuotaReport, SpendersReport, WindowReport};
use crate::terminal::group_digits;
use crate::{Assumptions, Policy, ReplayRequest, ReplayedDecision, Simulator};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tidegate_config as config;
use tidegate_policy::identity::ClientKey;
use tidegate_policy::key_usage::{CLIENTS_OF_NETWORK, KeyUsage, KeyWindows};
use tidegate_policy::promise::Promise;
use tidegate_policy::{ClientKind, Units};

/// Demand of a day of the site.
#[derive(Debug)]
pub(super) struct DailyDemand {
    /// Units charged on the busiest day.
    pub(super) busiest: u64,
    /// Units charged to people on their busiest day, without clients whose behavior identifies them as bots.
    pub(super) people: u64,
    /// Units charged to one client on its busiest day, for the client with the most outside [`BOT_CLASSES`].
    pub(super) busiest_client: u64,
    /// The same for all clients of one network.
    pub(super) busiest_network: u64,
    /// Units charged to one customer on its busiest day, for the customer with the most.
    pub(super) busiest_customer: u64,
    /// Units that one client needs so that no person is refused ([`PeopleUsage::needed`]).
    pub(super) needed_by_person: u64,
    /// Burst that people need; `None` without people.
    pub(super) people_burst: Option<PeopleBurst>,
    /// Who requested most.
    pub(super) spenders: SpendersReport,
    /// Number of requests and units by kind of client and by route.
    pub(super) counts: DryRunCounts,
    /// What a cache would have answered.
    pub(super) cache: CacheShares,
    /// Description of the figure for the busiest day.
    pub(super) description: String,
}

impl DailyDemand {
    /// Returns a placeholder for the first draft, before the dry run.
    pub(super) fn placeholder() -> Self {
        Self {
            busiest: 1,
            people: 0,
            busiest_client: 0,
            busiest_network: 0,
            busiest_customer: 0,
            needed_by_person: 0,
            people_burst: None,
            spenders: SpendersReport::default(),
            counts: DryRunCounts::default(),
            cache: CacheShares::default(),
            description: String::new(),
        }
    }

    /// Returns the network of nearly all requests, if they have as many user agents as only those of many clients have.
    pub(super) fn only_network(&self) -> Option<&str> {
        let network = self.spenders.networks.first()?;
        let is_only = network.requests * 10 >= self.counts.all * 9 && self.counts.all >= MIN_REQUESTS_OF_PROXY;
        (is_only && self.spenders.user_agents.len() >= MIN_USER_AGENTS_OF_PROXY).then_some(&network.name)
    }

    /// Measures what the configuration `yaml` charges to `quota` on the logs.
    pub(super) fn replay(
        yaml: &str,
        quota: &str,
        logs: &Logs,
        analysis: &LogAnalysis<'_>,
    ) -> Result<Self, DryRunError> {
        let LogAnalysis { user_agents: agents, operators, time_range: days, .. } = analysis;
        let names: Vec<&str> = operators.names().collect();
        let load = |yaml: &str| {
            config::load(Path::new("proposed"), yaml, &[], &[], &names)
                .map_err(|errors| DryRunError::InvalidConfig(errors.to_string()))
        };
        let settings = load(yaml)?;
        let savings = CacheSavings::new(&load(&format!("{yaml}\n{CACHE_SECTION}\n"))?);
        let (operators, agents) = (Arc::clone(operators), Arc::clone(agents));
        let policy = Policy {
            name: "proposed".into(),
            settings,
            operators,
            user_agents: agents,
            lists: Arc::default(),
            network_databases: Arc::default(),
        };
        let DryRunResult { report, busiest, people, bursts, counts, cache } =
            replay(policy, quota, MergedLog::new(logs.open()?, REORDER_WINDOW), savings)?;
        let Some(report) = report else { return Ok(Self::placeholder()) };
        let quota = report.quotas.iter().find(|report| report.name == quota);
        let demand = quota.map_or_else(Self::placeholder, |quota| Self::from_quota(quota, busiest, days));
        let needed_by_person = match days.is_less_than_a_day() {
            true => days.per_day(people.needed()),
            false => people.needed(),
        };
        Ok(Self { needed_by_person, people_burst: bursts.burst(), spenders: report.spenders, counts, cache, ..demand })
    }

    /// Returns the demand of the busiest day; for a log shorter than a day, extrapolated to a day.
    fn from_quota(quota: &QuotaReport, of_clients: BusiestClients, days: &LogTimeRange) -> Self {
        let BusiestClients { client, network, customer } = of_clients;
        let [busiest_client, busiest_network, busiest_customer] = [client, network, customer].map(Units::ceil);
        let used = |window: &WindowReport| window.used.ceil();
        let used_by_people = |window: &WindowReport| window.by_class.get(PEOPLE).map_or(0, |units| units.ceil());
        if days.is_less_than_a_day() {
            let all = |units: fn(&WindowReport) -> u64| quota.windows.iter().map(units).sum::<u64>();
            let description = format!(
                "{} in about {} h, which is {} in a whole day",
                group_digits(all(used)),
                days.hours(),
                group_digits(days.per_day(all(used)))
            );
            let [busiest, people, busiest_client, busiest_network, busiest_customer] =
                [all(used), all(used_by_people), busiest_client, busiest_network, busiest_customer]
                    .map(|units| days.per_day(units));
            return Self {
                busiest,
                people,
                busiest_client,
                busiest_network,
                busiest_customer,
                description,
                ..Self::placeholder()
            };
        }
        let max_of = |units: fn(&WindowReport) -> u64| quota.windows.iter().map(units).max().unwrap_or(0);
        let busiest = max_of(used);
        let mut description = match quota.windows_in_all {
            0 | 1 => format!("{} on the only day", group_digits(busiest)),
            days => format!("{} on the busiest of {} days", group_digits(busiest), group_digits(days)),
        };
        if let Some(median_day) = median(quota.windows.iter().filter(|window| window.whole).map(used).collect()) {
            description += &format!(", {} on a median day", group_digits(median_day));
        }
        let people = max_of(used_by_people);
        Self { busiest, people, busiest_client, busiest_network, busiest_customer, description, ..Self::placeholder() }
    }
}

/// Number of requests and units of the replay.
#[derive(Clone, Debug, Default)]
pub(super) struct DryRunCounts {
    /// Requests of people.
    pub(super) people: u64,
    /// Requests of clients whose behavior identifies them as bots.
    pub(super) suspected: u64,
    /// Requests of all clients.
    pub(super) all: u64,
    /// Requests and units of each route.
    pub(super) routes: Vec<(u64, Units)>,
}

impl DryRunCounts {
    fn add(&mut self, decision: &ReplayedDecision) {
        self.all += 1;
        match decision.classification.kind {
            ClientKind::Human => self.people += 1,
            ClientKind::SuspectedBot => self.suspected += 1,
            ClientKind::VerifiedBot | ClientKind::DeclaredBot | ClientKind::Impostor => {}
        }
        let index = decision.route.index();
        if self.routes.len() <= index {
            self.routes.resize(index + 1, Default::default());
        }
        let (requests, units) = &mut self.routes[index];
        *requests += 1;
        *units = units.saturating_add(decision.costs.iter().map(|(_, cost)| *cost).sum());
    }
}

/// Units of a window that the client, and the network of clients, used that used the most, outside [`BOT_CLASSES`], and the
/// customer that did.
#[derive(Clone, Copy, Default)]
struct BusiestClients {
    client: Units,
    network: Units,
    customer: Units,
}

/// The window in which each person used most, and these units.
#[derive(Default)]
struct PeopleUsage(HashMap<ClientKey, (u64, u64)>);

impl PeopleUsage {
    fn record(&mut self, client: ClientKey, window: u64, used: Units) {
        if self.0.len() < MAX_PEOPLE || self.0.contains_key(&client) {
            let most = self.0.entry(client).or_default();
            if used.ceil() > most.1 {
                *most = (window, used.ceil());
            }
        }
    }

    /// Returns the units that a client needs so that no person is refused: those of the person with the most, or the part of
    /// one client in those of the people of a network, such as a mobile carrier. What is beyond ten times what nine of ten
    /// people use is more likely of a program.
    fn needed(&self) -> u64 {
        let mut used: Vec<u64> = self.0.values().map(|(_, used)| *used).collect();
        used.sort_unstable();
        let most = used.get(used.len() * 9 / 10).map_or(0, |most| most * PROGRAM_FACTOR);
        let person = used.into_iter().rfind(|used| *used <= most).unwrap_or(0);
        let mut networks: HashMap<(u64, u64), u64> = HashMap::new();
        for (client, (window, used)) in &self.0 {
            *networks.entry((client.network(), *window)).or_default() += (*used).min(person);
        }
        let network = networks.into_values().max().unwrap_or(0);
        person.max(network.div_ceil(CLIENTS_OF_NETWORK))
    }
}

/// Result of the replay.
#[derive(Default)]
struct DryRunResult {
    /// `None` if the log contains no request.
    report: Option<PolicyReport>,
    busiest: BusiestClients,
    people: PeopleUsage,
    bursts: PeopleBursts,
    counts: DryRunCounts,
    cache: CacheShares,
}

fn replay(
    policy: Policy,
    quota: &str,
    lines: MergedLog,
    mut savings: CacheSavings,
) -> Result<DryRunResult, LogReadError> {
    let assumptions = Assumptions::default();
    let rules = Arc::clone(&policy.settings.rules);
    let quota = rules.quota_id(quota);
    let mut customers = KeyUsage::new(KeyWindows::OfQuota, MAX_PEOPLE);
    let mut clients = KeyUsage::new(KeyWindows::OfQuota, policy.settings.limits.max_tracked_clients);
    let DryRunResult { mut busiest, mut people, mut bursts, mut counts, .. } = DryRunResult::default();
    let mut pending_policy = Some(policy);
    let mut simulator: Option<Simulator> = None;
    lines.for_each(|next, line| {
        let Some(request) = ReplayRequest::from_line(line) else { return };
        if let Some(policy) = pending_policy.take() {
            simulator = Some(Simulator::new(policy, &assumptions, next.at));
        }
        if let Some(simulator) = &mut simulator {
            simulator.process(next, line, &request, &mut |_, decision| {
                counts.add(decision);
                savings.add(line, &request, decision);
                let usages = || {
                    let usages = decision.quota_usage.iter().zip(&decision.costs);
                    usages.filter(|(usage, _)| Some(usage.quota) == quota)
                };
                for (usage, (_, cost)) in usages().filter(|_| decision.refusal_reason.is_none()) {
                    let customer = decision.payer.customer;
                    customers.reserve(usage.window, customer, *cost);
                    busiest.customer = busiest.customer.max(customers.used(usage.window, customer));
                }
                let class = rules[decision.classification.class].name.as_str();
                if BOT_CLASSES.contains(&class) {
                    return;
                }
                let client = rules.key(&decision.classification, request.client, |_| None);
                if class == PEOPLE && decision.is_costly() {
                    bursts.add(client, decision.at);
                }
                for (usage, (_, cost)) in usages() {
                    clients.reserve(usage.window, client, *cost);
                    if class == PEOPLE {
                        people.record(client, usage.window, clients.used(usage.window, client));
                    }
                    busiest.client = busiest.client.max(clients.used(usage.window, client));
                    busiest.network = busiest.network.max(clients.used_by_network(usage.window, client));
                }
            });
        }
    })?;
    Ok(DryRunResult {
        report: simulator.map(Simulator::finish),
        busiest,
        people,
        bursts,
        counts,
        cache: savings.shares(),
    })
}

/// Returns the median; `None` for fewer than [`MIN_DAYS_FOR_MEDIAN`] days.
fn median(mut days: Vec<u64>) -> Option<u64> {
    days.sort_unstable();
    days.get(days.len() / 2).copied().filter(|_| days.len() >= MIN_DAYS_FOR_MEDIAN)
}

/// Section `cache` of a configuration with one.
pub(super) const CACHE_SECTION: &str = "cache: {}";

/// Name of the quota of the generated configuration.
pub const QUOTA: &str = "pages";

/// Name of the class of people of the generated configuration.
pub(super) const PEOPLE: &str = Promise::PEOPLE_CLASS;

/// Classes of the generated configuration whose demand need not be met.
const BOT_CLASSES: [&str; 3] = ["bot", "impostor", "library"];

/// Factor of what nine of ten people use beyond which a client is likely a program.
const PROGRAM_FACTOR: u64 = 10;

/// Maximum number of people whose usage is kept.
const MAX_PEOPLE: usize = 1_000_000;

const MIN_DAYS_FOR_MEDIAN: usize = 3;

/// Minimum number of requests from which a single network looks like a proxy.
const MIN_REQUESTS_OF_PROXY: u64 = 100;

/// Minimum number of user agents for the same.
const MIN_USER_AGENTS_OF_PROXY: usize = 5;
