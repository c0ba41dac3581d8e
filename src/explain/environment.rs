//! What a gate knows whoever asks.

use super::step::Rule;
use crate::config::Settings;
use crate::policy::address_lists::AddressLists;
use crate::policy::{ClassId, QuotaId, Rules};
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;

/// The settings in force, and whom a gate knows.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// What user agents say.
    pub agents: &'a UserAgentMatcher,
    /// Whose crawlers come from where.
    pub operators: &'a OperatorTable,
    /// The networks of the address lists.
    pub lists: &'a AddressLists,
}

impl<'a> Environment<'a> {
    pub(super) fn rules(self) -> &'a Rules {
        &self.settings.rules
    }

    pub(super) fn class_name(self, class: ClassId) -> &'a str {
        &self.rules().classes[usize::from(class.0)].name
    }

    /// The setting at `path`, and where it was written.
    pub(super) fn rule(self, path: impl Into<String>) -> Rule {
        let path = path.into();
        Rule { at: self.settings.source_map.location(&path), path }
    }

    /// The setting of a class itself, or one of its keys, such as `.when`.
    pub(super) fn class_rule(self, class: ClassId, key: &str) -> Rule {
        self.rule(format!("classes[{}]{key}", class.0))
    }

    /// Where a quota is defined: by itself, or with its scope.
    pub(super) fn quota_rule(self, quota: QuotaId, key: &str) -> Rule {
        let name = &self.rules().quotas[usize::from(quota.0)].name;
        let alone = format!("quotas.{name}");
        match self.settings.source_map.location(&alone) {
            Some(_) => self.rule(alone + key),
            None => self.rule(format!("scopes.{name}.quota{key}")),
        }
    }

    /// The tier at `place` of a class's ladder, in the short form or the long one.
    pub(super) fn tier_rule(self, quota: QuotaId, class: ClassId, place: usize) -> Rule {
        let tiers = format!(".tiers.{}", self.class_name(class));
        let long = self.quota_rule(quota, &format!("{tiers}.ladder[{place}]"));
        match long.at {
            Some(_) => long,
            None => self.quota_rule(quota, &format!("{tiers}[{place}]")),
        }
    }
}
