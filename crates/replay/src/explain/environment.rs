//! Environment of an explanation: the configuration and tables that do not depend on the request.

use super::step::Rule;
use crate::Policy;
use tidegate_config::Settings;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::address_lists::AddressLists;
use tidegate_policy::{ClassId, QuotaId, Rules};

/// The settings and lookup tables that an explanation reads.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Current settings.
    pub settings: &'a Settings,
    /// Matcher of user agents.
    pub user_agents: &'a UserAgentMatcher,
    /// Operators, with their published ranges and DNS names.
    pub operators: &'a OperatorTable,
    /// Networks of the address lists.
    pub lists: &'a AddressLists,
}

impl<'a> From<&'a Policy> for Environment<'a> {
    fn from(Policy { settings, operators, user_agents, lists, .. }: &'a Policy) -> Self {
        Self { settings, user_agents, operators, lists }
    }
}

impl<'a> Environment<'a> {
    pub(super) fn rules(self) -> &'a Rules {
        &self.settings.rules
    }

    pub(super) fn class_name(self, class: ClassId) -> &'a str {
        &self.rules()[class].name
    }

    /// Returns the setting at `path` with its location in the file.
    pub(super) fn rule(self, path: impl Into<String>) -> Rule {
        let path = path.into();
        Rule { at: self.settings.source_map.location(&path), path }
    }

    /// Returns the setting of a class, or of one of its keys, such as `.when`.
    pub(super) fn class_rule(self, class: ClassId, key: &str) -> Rule {
        self.rule(format!("classes[{}]{key}", class.index()))
    }

    /// Returns the setting of a quota, which is defined under `quotas` or within its scope.
    pub(super) fn quota_rule(self, quota: QuotaId, key: &str) -> Rule {
        let name = &self.rules()[quota].name;
        let quota_path = format!("quotas.{name}");
        match self.settings.source_map.location(&quota_path) {
            Some(_) => self.rule(quota_path + key),
            None => self.rule(format!("scopes.{name}.quota{key}")),
        }
    }

    /// Returns the setting of the tier at `index` of a class, in the short or the long form.
    pub(super) fn tier_rule(self, quota: QuotaId, class: ClassId, index: usize) -> Rule {
        let tiers = format!(".tiers.{}", self.class_name(class));
        let long_form = self.quota_rule(quota, &format!("{tiers}.steps[{index}]"));
        match long_form.at {
            Some(_) => long_form,
            None => self.quota_rule(quota, &format!("{tiers}[{index}]")),
        }
    }
}
