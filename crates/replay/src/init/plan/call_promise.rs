//! What a policy keeps of the calls of a model API.

use super::super::model_calls::NO_KEY;
use super::share::{percent, ratio};
use super::token_text::TokenText;
use crate::report::Report;
use crate::terminal::group_digits;
use serde::Serialize;

/// Figures of the calls.
#[derive(Clone, Debug, Serialize)]
pub struct CallPromise {
    /// Share of the calls that is refused, without those that have no key; null without any.
    pub refused: Option<f64>,
    /// Number of calls that are refused because they have no key.
    pub without_key: u64,
    /// Number of keys with a budget.
    pub keys: u64,
    /// Number of keys that use up their budget.
    pub keys_limited: u64,
}

impl CallPromise {
    /// Returns the figures of a replay under the policy, with the number of `keys` in the log.
    pub(super) fn new(report: &Report, keys: u64) -> Self {
        let policy = &report.policies[0];
        let (without_key, others): (Vec<_>, Vec<_>) = policy.classes.iter().partition(|class| class.name == NO_KEY);
        let (admitted, calls) =
            others.iter().fold((0, 0), |(admitted, calls), it| (admitted + it.costly_admitted, calls + it.costly));
        Self {
            refused: (calls > 0).then(|| 1.0 - ratio((admitted, calls))),
            without_key: without_key.iter().map(|class| class.requests).sum(),
            keys,
            keys_limited: policy.budgets.first().map_or(0, |budget| budget.limited),
        }
    }

    /// Returns the figures, one sentence each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![match self.refused {
            Some(refused) => format!("calls: {} of them refused", percent(refused)),
            None => "calls: none in the log that would be admitted".to_owned(),
        }];
        if self.keys > 0 {
            let (keys, limited) = (group_digits(self.keys), group_digits(self.keys_limited));
            lines.push(format!("keys: {limited} of {keys} use up the budget of a day"));
        }
        if self.without_key > 0 {
            lines.push(format!("without a key: {} requests get 401", group_digits(self.without_key)));
        }
        lines
    }
}

/// Returns what a policy takes for granted, each as the part of a sentence.
pub(super) fn assumptions(TokenText { tokens, .. }: &TokenText) -> Vec<String> {
    let mut assumed = vec![match tokens.has_costs {
        true => "one unit is one token, as the log has charged them".to_owned(),
        false => {
            let costs: Vec<String> = (tokens.endpoints.iter())
                .map(|(endpoint, cost)| format!("{} tokens for {}", group_digits(*cost), endpoint.path))
                .collect();
            format!(
                "the log says of no call what it has cost, so that the limit comes from their number, with {}: write what you \
                 have bought (--limit), or plan again with the log of the gateway under this policy",
                costs.join(", ")
            )
        }
    }];
    if tokens.budget.is_some() {
        assumed.push(format!(
            "a key may use twice what the busiest one used in a day, up to the limit; api_keys takes the keys of `tidegate keys \
             add NAME --class {}`",
            tokens.key_classes.first().map_or("NAME", String::as_str)
        ));
    }
    assumed
}
