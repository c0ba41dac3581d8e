//! Environment of an explanation: the configuration and tables that do not depend on the request.

use super::step::Rule;
use crate::Policy;
use tidegate_config::{SettingPath, Settings};
use tidegate_crawlers::network_databases::NetworkDatabases;
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
    /// Databases of networks.
    pub network_databases: &'a NetworkDatabases,
}

impl<'a> From<&'a Policy> for Environment<'a> {
    fn from(policy: &'a Policy) -> Self {
        let Policy { settings, operators, user_agents, lists, network_databases, .. } = policy;
        Self { settings, user_agents, operators, lists, network_databases }
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
    pub(super) fn rule(self, path: &SettingPath) -> Rule {
        Rule { at: self.settings.source_map.location(path), path: path.to_string() }
    }

    /// Returns the path of a quota.
    pub(super) fn quota_path(self, quota: QuotaId) -> SettingPath {
        self.settings.source_map.quota_path(&self.rules()[quota].name)
    }

    /// Returns the setting of the tier at `index` of a class.
    pub(super) fn tier_rule(self, quota: QuotaId, class: ClassId, index: usize) -> Rule {
        let tiers = self.settings.source_map.tiers_path(&self.rules()[quota].name, self.class_name(class));
        self.rule(&tiers.index(index))
    }
}
