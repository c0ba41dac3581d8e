//! Names of configured items, for records.

use crate::gateway::shared::Shared;
use tidegate_access_log::NameResolver;
use tidegate_policy::{BotId, ClassId, ListId, OperatorId, Rules, ScopeId};

/// Names of configured items, by their index in records.
pub(super) struct ConfigNames<'a> {
    pub(super) shared: &'a Shared,
    pub(super) rules: &'a Rules,
    pub(super) config_number: u64,
}

impl NameResolver for ConfigNames<'_> {
    fn config_number(&self) -> u64 {
        self.config_number
    }

    fn bot(&self, bot: BotId) -> &str {
        self.shared.user_agents.name(bot)
    }

    fn operator(&self, operator: OperatorId) -> &str {
        self.shared.operators.name(operator)
    }

    fn user_agent_rule(&self, index: u16) -> &str {
        self.rules.user_agent_rules.word(usize::from(index)).unwrap_or_default()
    }

    fn key_headers(&self, class: ClassId, signed: bool) -> Vec<&str> {
        self.rules.key_headers(class, signed)
    }

    fn list(&self, list: ListId) -> &str {
        self.rules.address_list_names.get(list.index()).map_or("", String::as_str)
    }

    fn scope(&self, scope: ScopeId) -> &str {
        self.rules.scopes.get(scope.index()).map_or("", |scope| &scope.name)
    }
}
