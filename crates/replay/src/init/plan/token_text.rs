//! The lines of a policy for a model API: its keys, quotas and routes. They are ten at most.

use super::super::generate::round_up;
use super::super::model_calls::{Endpoint, NO_KEY, RESPONSES, TokenUse, Vendor, as_yaml};
use std::fmt;

/// The lines, and what a budget of a key has.
#[derive(Clone, Debug)]
pub(super) struct TokenText {
    pub(super) tokens: TokenUse,
    /// Limit of a key, in tokens.
    pub(super) key_limit: u64,
}

impl TokenText {
    /// Returns the text without classes of keys and their budgets.
    pub(super) fn without_keys(&self) -> Self {
        let tokens = TokenUse { budget: None, key_classes: Vec::new(), ..self.tokens.clone() };
        Self { tokens, ..*self }
    }

    /// Writes the lines. `window` are the keys that all quotas have.
    pub(super) fn write(&self, out: &mut fmt::Formatter<'_>, limit: u64, window: &str) -> fmt::Result {
        let Self { tokens: TokenUse { quota, budget, key_classes, endpoints, .. }, key_limit } = self;
        match &key_classes[..] {
            [] => writeln!(out, "classes: []")?,
            classes => {
                let of_key = |name: &String| format!("{{ name: {}, when: {{ api_key: own }} }}", as_yaml(name));
                let classes: Vec<String> = classes.iter().map(of_key).collect();
                writeln!(out, "api_keys: []")?;
                let no_key = format!("{{ name: {NO_KEY}, block: true, refuse_with: 401 }}");
                writeln!(out, "classes: [{}, {no_key}]", classes.join(", "))?;
            }
        }
        let (costs, quota) = (cost_json(endpoints), as_yaml(quota));
        let budget = budget.as_deref().map(as_yaml);
        writeln!(out, "quotas:\n  {quota}: {{ limit: {limit}, {window}, cost_json: {costs} }}")?;
        if let Some(budget) = &budget {
            writeln!(out, "  {budget}: {{ per: api_key, limit: {key_limit}, {window}, cost_json: {costs} }}")?;
        }
        writeln!(out, "routes:")?;
        for (Endpoint { path, stated, .. }, expected) in endpoints {
            let stated = stated.map_or_else(String::new, |paths| format!("json: {paths}, "));
            let cost = format!("{{ {stated}per_byte: 0.25, default: {} }}", round_up(*expected).min(limit));
            let costs = match &budget {
                None => format!("{quota}: {cost}"),
                Some(budget) => {
                    format!("{quota}: &{0} {cost}, {budget}: *{0}", path.rsplit('/').next().unwrap_or(path))
                }
            };
            writeln!(out, "  - {{ match: {path}, method: POST, stream: true, cost: {{ {costs} }} }}")?;
        }
        Ok(())
    }
}

/// Returns the paths of the tokens in responses. What OpenAI and Anthropic have at the same path adds up, so that a total beside
/// its parts would count twice.
fn cost_json(endpoints: &[(&Endpoint, u64)]) -> &'static str {
    let has = |vendor: Vendor| endpoints.iter().any(|(endpoint, _)| endpoint.vendor == vendor);
    let has_responses = endpoints.iter().any(|(endpoint, _)| endpoint.path == RESPONSES);
    match (has(Vendor::OpenAi), has(Vendor::Anthropic)) {
        (true, true) => {
            "[usage.prompt_tokens, usage.completion_tokens, usage.input_tokens, usage.output_tokens, \
             response.usage.input_tokens, response.usage.output_tokens]"
        }
        (false, true) => "[usage.input_tokens, usage.output_tokens]",
        _ if has_responses => "[usage.total_tokens, response.usage.total_tokens]",
        _ => "usage.total_tokens",
    }
}
