//! The text of a proposed policy: at most twelve lines.

use super::super::dry_run::QUOTA;
use super::token_text::TokenText;
use std::fmt;
use tidegate_policy::promise as policy;
use tidegate_policy::tier::Share;

/// Maximum number of lines of a policy.
pub(super) const MAX_LINES: usize = 12;

/// Lines beside those of the paths that are no pages.
const FIXED_LINES: usize = 6;

/// Maximum length of a line, in characters.
const WIDTH: usize = 110;

/// A policy.
#[derive(Clone)]
pub(super) struct PolicyText {
    pub(super) origin: String,
    pub(super) zone: String,
    pub(super) limit: u64,
    /// Share of the limit that one client may use, in percent; `None` for the default.
    pub(super) per_client: Option<u64>,
    pub(super) is_enforced: bool,
    /// Patterns of paths that are no pages, the most important first. Those that do not fit into the lines cost like pages.
    pub(super) free_paths: Vec<String>,
    /// What calls of a model API cost; `None` for a site, whose pages cost one unit each.
    pub(super) tokens: Option<TokenText>,
    /// What the gateway compares each day with; `None` before it is known.
    pub(super) promise: Option<policy::Promise>,
}

impl PolicyText {
    /// Returns the name of the quota for all requests together.
    pub(super) fn quota(&self) -> &str {
        self.tokens.as_ref().map_or(QUOTA, |tokens| &tokens.tokens.quota)
    }

    /// Returns the policy with the limit as its only rule.
    pub(super) fn limit_alone(&self) -> String {
        let tokens = self.tokens.as_ref().map(TokenText::without_keys);
        let without_shares = Self { per_client: None, promise: None, tokens, ..self.clone() };
        match self.tokens {
            Some(_) => without_shares.to_string(),
            None => format!("{without_shares}classes: []\n"),
        }
    }

    /// Returns the free routes, as many in a line as fit.
    fn free_routes(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for path in &self.free_paths {
            let route = format!("{{ match: \"{path}\" }},");
            match lines.last_mut() {
                Some(line) if line.len() + 1 + route.len() <= WIDTH => *line = format!("{line} {route}"),
                _ => lines.push(format!("  {route}")),
            }
        }
        lines.truncate(MAX_LINES - FIXED_LINES);
        lines
    }
}

impl fmt::Display for PolicyText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, zone, limit, .. } = self;
        let per_client = self.per_client.map_or_else(String::new, |percent| format!(", per_client: {percent}%"));
        let enforce = if self.is_enforced { "" } else { ", enforce: false" };
        let is_plain = origin.chars().all(|letter| letter.is_ascii_alphanumeric() || ":/._-".contains(letter));
        match is_plain {
            true => writeln!(out, "origin: {origin}")?,
            false => writeln!(out, "origin: '{}'", origin.replace('\'', "''"))?,
        }
        writeln!(out, "clients: {{ address_from: x-forwarded-for, trusted_proxies: [127.0.0.0/8, \"::1/128\"] }}")?;
        let window = format!("{{ calendar: day, zone: {zone} }}");
        if let Some(tokens) = &self.tokens {
            return tokens.write(out, *limit, &format!("window: {window}{enforce}"));
        }
        writeln!(out, "quotas: {{ {QUOTA}: {{ limit: {limit}, window: {window}{per_client}{enforce} }} }}")?;
        let figures = self.promise.map(figures).filter(|figures| !figures.is_empty());
        figures.map_or(Ok(()), |figures| writeln!(out, "promise: {{ {} }}", figures.join(", ")))?;
        let page = format!("{{ match: \"/**\", cost: {{ {QUOTA}: 1 }} }}");
        match self.free_paths.is_empty() {
            true => writeln!(out, "routes: [{page}]"),
            false => {
                writeln!(out, "routes: [")?;
                self.free_routes().iter().try_for_each(|line| writeln!(out, "{line}"))?;
                writeln!(out, "  {page}]")
            }
        }
    }
}

/// Returns the figures of a promise, each as the file writes it.
fn figures(promise: policy::Promise) -> Vec<String> {
    let policy::Promise { people_refused, search_served, left_over } = promise;
    let figures: [(policy::PromisedFigure, Option<Share>); 3] = [
        (policy::PromisedFigure::PeopleRefused, people_refused),
        (policy::PromisedFigure::SearchServed, search_served),
        (policy::PromisedFigure::LeftOver, left_over),
    ];
    let written = figures.into_iter().filter_map(|(figure, share)| Some(format!("{}: {}", figure.name(), share?)));
    written.collect()
}
