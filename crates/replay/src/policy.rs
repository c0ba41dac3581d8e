//! A policy that is replayed on a log: settings and the lists they refer to.

use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::address_lists::AddressLists;

/// A configuration file with everything that a gateway loads at its start.
pub struct Policy {
    /// Name in reports: the file name.
    pub name: String,
    /// Settings of the file.
    pub settings: Settings,
    /// Crawler operators of these settings, with the built-in ranges only: a replay has no network access.
    pub operators: Arc<OperatorTable>,
    /// User agent matcher that includes the operators' product tokens.
    pub user_agents: Arc<UserAgentMatcher>,
    /// Networks of the address lists.
    pub lists: Arc<AddressLists>,
    /// Databases of networks.
    pub network_databases: Arc<NetworkDatabases>,
}

impl Policy {
    /// Creates a policy from the state that a gateway without databases of networks would start with.
    pub fn new(name: String, settings: Settings, operators: OperatorTable, lists: AddressLists) -> Self {
        let user_agents = Arc::new(UserAgentMatcher::builtin(operators.product_tokens()));
        Self {
            name,
            settings,
            operators: Arc::new(operators),
            user_agents,
            lists: Arc::new(lists),
            network_databases: Arc::default(),
        }
    }

    /// Returns a copy with other settings, which must name the same operators and lists.
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self {
            name: self.name.clone(),
            settings,
            operators: Arc::clone(&self.operators),
            user_agents: Arc::clone(&self.user_agents),
            lists: Arc::clone(&self.lists),
            network_databases: Arc::clone(&self.network_databases),
        }
    }
}
