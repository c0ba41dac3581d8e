//! A policy that is tried on a log: settings, and what they refer to.

use crate::config::Settings;
use crate::policy::address_lists::AddressLists;
use crate::user_agents::UserAgentMatcher;
use crate::verify::OperatorTable;
use std::sync::Arc;

/// One file, as a gate would have started with it.
pub struct Policy {
    /// What it is called in reports: its file.
    pub name: String,
    /// What it says.
    pub settings: Settings,
    /// The operators of crawlers under these settings. Nobody is asked about them: there is no network here.
    pub operators: Arc<OperatorTable>,
    /// What user agents say, these among them.
    pub agents: Arc<UserAgentMatcher>,
    /// The networks of its address lists.
    pub lists: Arc<AddressLists>,
}

impl Policy {
    /// What a gate would have started with.
    pub fn new(name: String, settings: Settings, operators: OperatorTable, lists: AddressLists) -> Self {
        let agents = Arc::new(UserAgentMatcher::builtin(operators.tokens()));
        Self { name, settings, operators: Arc::new(operators), agents, lists: Arc::new(lists) }
    }

    /// The same with other settings, which name the same operators and lists.
    pub fn with(&self, settings: Settings) -> Self {
        Self {
            name: self.name.clone(),
            settings,
            operators: Arc::clone(&self.operators),
            agents: Arc::clone(&self.agents),
            lists: Arc::clone(&self.lists),
        }
    }
}
