//! Calls of a model API in a log: which of its paths are called, and what the gateway's own log says of costs and keys.

use crate::ReplayRequest;
use crate::log::LogLine;
use http::Method;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use tidegate_access_log::EvidenceWord;
use tidegate_access_log::read::{NativeFields, QuotaFields};
use tidegate_policy::Units;

/// A path of a model API, and what the bodies of its requests state.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) vendor: Vendor,
    /// Paths of the numbers that state how many tokens a call may cost, as YAML.
    pub(super) stated: Option<&'static str>,
    /// Expected tokens of a call where no log has any.
    usual_cost: u64,
}

/// Form of the numbers in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    OpenAi,
    Anthropic,
}

/// Paths of model APIs.
pub(super) const ENDPOINTS: [Endpoint; 4] = [
    Endpoint {
        path: "/v1/chat/completions",
        vendor: Vendor::OpenAi,
        stated: Some("[max_tokens, max_completion_tokens]"),
        usual_cost: 1000,
    },
    Endpoint { path: RESPONSES, vendor: Vendor::OpenAi, stated: Some("max_output_tokens"), usual_cost: 1000 },
    Endpoint { path: "/v1/messages", vendor: Vendor::Anthropic, stated: Some("max_tokens"), usual_cost: 1000 },
    Endpoint { path: "/v1/embeddings", vendor: Vendor::OpenAi, stated: None, usual_cost: 400 },
];

/// Path of which streams have their numbers in an object of their own.
pub(super) const RESPONSES: &str = "/v1/responses";

/// Maximum number of quotas whose charges are added up; a log has few.
const MAX_QUOTAS: usize = 32;

/// Maximum number of customers whose usage is compared.
const MAX_CUSTOMERS: usize = 10_000;

/// Name of the class of clients without a key.
pub(super) const NO_KEY: &str = "nokey";

/// Words that are no texts in YAML.
const YAML_WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Calls of a model API.
#[derive(Debug, Default)]
pub(super) struct ModelCalls {
    /// Number of calls that cost, by endpoint.
    calls: [u64; ENDPOINTS.len()],
    quotas: BTreeMap<String, LoggedQuota>,
    /// Number of calls with a listed key of a customer, by class.
    key_classes: BTreeMap<String, u64>,
}

/// Charges of one quota.
#[derive(Debug, Default)]
struct LoggedQuota {
    /// Number of calls and sum of their costs, by endpoint.
    charged: [(u64, Units); ENDPOINTS.len()],
    /// True if any charge differs from what was expected: responses report costs.
    is_reported: bool,
    last_used: Option<Units>,
    used_by_customer: HashMap<String, Units>,
    /// Sums of the differences between the usage in a line, and that in the line before, of any customer or of the same one.
    steps: (Units, Units),
}

/// What a policy of a model API takes from a log.
#[derive(Clone, Debug)]
pub(super) struct TokenUse {
    /// Name of the quota for all calls together.
    pub(super) quota: String,
    /// Name of the quota with a budget for each key; `None` without keys.
    pub(super) budget: Option<String>,
    /// Number of keys with a budget.
    pub(super) keys: u64,
    /// Classes of the keys, the most active first.
    pub(super) key_classes: Vec<String>,
    /// Endpoints with their expected costs in tokens, the most active first.
    pub(super) endpoints: Vec<(&'static Endpoint, u64)>,
    /// True if the costs are those that responses have reported.
    pub(super) has_costs: bool,
}

impl ModelCalls {
    /// Records a request that has cost.
    pub(super) fn record(&mut self, request: &ReplayRequest<'_>, line: &LogLine<'_>) {
        let endpoint = ENDPOINTS.iter().position(|endpoint| endpoint.path == request.path);
        let Some(endpoint) = endpoint.filter(|_| *request.method == Method::POST) else { return };
        self.calls[endpoint] += 1;
        let Some(native) = &line.native else { return };
        if native.customer.is_some() && has_api_key(native) {
            let has_room = self.key_classes.len() < MAX_QUOTAS || self.key_classes.contains_key(&*native.class);
            if has_room {
                *self.key_classes.entry(native.class.clone().into_owned()).or_default() += 1;
            }
        }
        for account in &native.quotas {
            if self.quotas.len() < MAX_QUOTAS || self.quotas.contains_key(&*account.quota) {
                let quota = self.quotas.entry(account.quota.clone().into_owned()).or_default();
                quota.record(endpoint, account, native);
            }
        }
    }

    /// Returns the number of calls.
    pub(super) fn count(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// Returns true if responses have reported what calls cost.
    pub(super) fn have_costs(&self) -> bool {
        self.quotas.values().any(|quota| quota.is_reported)
    }

    /// Returns what a policy takes from the log.
    pub(super) fn token_use(&self) -> TokenUse {
        let reported = || self.quotas.iter().filter(|(name, quota)| quota.is_reported && is_name(name));
        let total = |(_, quota): &(&String, &LoggedQuota)| quota.total();
        let of_all = reported().filter(|(_, quota)| !quota.is_budget()).max_by_key(total);
        let is_other = |name: &String| of_all.is_none_or(|(of_all, _)| of_all != name);
        let of_keys = reported().filter(|(name, quota)| is_other(name) && quota.may_be_budget()).max_by_key(total);
        let of_keys = of_keys.filter(|_| !self.key_classes.is_empty());
        let costs = of_all.or(of_keys).map(|(_, quota)| quota);
        let mut key_classes: Vec<(&String, &u64)> =
            self.key_classes.iter().filter(|(name, _)| is_name(name) && *name != NO_KEY).collect();
        key_classes.sort_by_key(|(_, calls)| std::cmp::Reverse(**calls));
        let key_classes = key_classes.into_iter().map(|(name, _)| name.clone()).collect();
        let mut called: Vec<usize> = (0..ENDPOINTS.len()).filter(|index| self.calls[*index] > 0).collect();
        called.sort_by_key(|index| std::cmp::Reverse(self.calls[*index]));
        let expected = |index: usize| {
            let (calls, units) = costs.map_or((0, Units::ZERO), |quota| quota.charged[index]);
            units.ceil().checked_div(calls).unwrap_or(ENDPOINTS[index].usual_cost)
        };
        let names = ["tokens", "all_tokens"];
        let unused = names.into_iter().find(|name| !self.quotas.contains_key(*name)).unwrap_or(names[0]);
        TokenUse {
            quota: of_all.map_or_else(|| unused.to_owned(), |(name, _)| name.clone()),
            budget: of_keys.map(|(name, _)| name.clone()),
            keys: of_keys.map_or(0, |(_, quota)| quota.used_by_customer.len() as u64),
            key_classes,
            endpoints: called.into_iter().map(|index| (&ENDPOINTS[index], expected(index))).collect(),
            has_costs: costs.is_some(),
        }
    }
}

impl LoggedQuota {
    fn record(&mut self, endpoint: usize, account: &QuotaFields<'_>, native: &NativeFields<'_>) {
        if native.reason.is_none() {
            let (calls, units) = &mut self.charged[endpoint];
            *calls += 1;
            *units = units.saturating_add(account.charged);
            self.is_reported |= account.charged != account.cost;
        }
        let Some(customer) = native.customer else { return };
        let before = self.last_used.replace(account.used);
        let has_room = self.used_by_customer.len() < MAX_CUSTOMERS || self.used_by_customer.contains_key(customer);
        let of_customer = has_room.then(|| self.used_by_customer.insert(customer.to_owned(), account.used)).flatten();
        if let Some((before, of_customer)) = before.zip(of_customer) {
            let step = |earlier: Units| earlier.max(account.used).saturating_sub(earlier.min(account.used));
            let (of_any, of_same) = &mut self.steps;
            *of_any = of_any.saturating_add(step(before));
            *of_same = of_same.saturating_add(step(of_customer));
        }
    }

    /// Returns true if each customer has a usage of its own: it goes on from the customer's last call, not from that of another.
    fn is_budget(&self) -> bool {
        self.steps.1 < self.steps.0
    }

    /// Returns true if that may be so: with one customer, it makes no difference.
    fn may_be_budget(&self) -> bool {
        self.is_budget() || self.used_by_customer.len() == 1
    }

    fn total(&self) -> Units {
        self.charged.iter().map(|(_, units)| *units).sum()
    }
}

fn has_api_key(native: &NativeFields<'_>) -> bool {
    native.evidence.iter().filter_map(|entry| EvidenceWord::parse(entry)).any(|(word, _)| word == EvidenceWord::ApiKey)
}

/// Returns true for a name that a configuration may have.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_part)
}

/// Returns a name as YAML, with quotes where it would be a number or a word of YAML.
pub(super) fn as_yaml(name: &str) -> Cow<'_, str> {
    match name.starts_with(|first: char| first.is_ascii_lowercase()) && !YAML_WORDS.contains(&name) {
        true => name.into(),
        false => format!("\"{name}\"").into(),
    }
}
