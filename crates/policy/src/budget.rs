//! Budgets: a limit of a quota for each key of its own, such as a customer.

use super::identity::{ClientKey, CredentialSource};
use super::ids::ClassId;
use super::units::Units;
use std::collections::HashMap;

/// Settings of a quota that is counted for each key.
#[derive(Clone, Debug)]
pub struct Budget {
    /// What has a budget of its own.
    pub per: BudgetKey,
    /// Limits that differ from that of the quota, by class.
    pub class_limits: HashMap<ClassId, Units>,
    /// Limits of single keys; they precede those of classes.
    pub key_limits: HashMap<ClientKey, Units>,
    /// Key of each class, by [`ClassId`].
    pub class_keys: Vec<ClientKey>,
    /// Maximum number of keys that are counted.
    pub max_keys: usize,
    /// True if metrics have the usage of each listed key.
    pub has_metrics_by_key: bool,
}

/// What has a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetKey {
    /// The client that the bucket of its class counts.
    Client,
    /// The class.
    Class,
    /// The customer, by [`super::Rules::customer`].
    Customer,
}

/// Credential that names the customer of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomerSource {
    /// A listed API key.
    ApiKey,
    /// A header or cookie.
    Credential(CredentialSource),
}

/// Who pays for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payer {
    /// Key of the client's bucket.
    pub client: ClientKey,
    /// Key of the customer; that of the client's address without a credential.
    pub customer: ClientKey,
}

impl Budget {
    /// Returns the key whose budget a request of `class` is charged to.
    pub fn key(&self, class: ClassId, payer: Payer) -> ClientKey {
        match self.per {
            BudgetKey::Client => payer.client,
            BudgetKey::Class => self.class_keys[class.index()],
            BudgetKey::Customer => payer.customer,
        }
    }

    /// Returns the limit of a key in `class`, which is that of the quota, `usual`, unless it has another.
    pub fn limit(&self, class: ClassId, key: ClientKey, usual: Units) -> Units {
        self.key_limits.get(&key).or_else(|| self.class_limits.get(&class)).copied().unwrap_or(usual)
    }

    /// Returns the highest limit of a key; `usual` is that of the quota.
    pub fn highest_limit(&self, usual: Units) -> Units {
        self.limits().fold(usual, Units::max)
    }

    /// Returns the lowest limit of a key; `usual` is that of the quota.
    pub fn lowest_limit(&self, usual: Units) -> Units {
        self.limits().fold(usual, Units::min)
    }

    fn limits(&self) -> impl Iterator<Item = Units> {
        self.key_limits.values().chain(self.class_limits.values()).copied()
    }
}

impl Payer {
    /// Returns a client that is its own customer.
    pub fn of(client: ClientKey) -> Self {
        Self { client, customer: client }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_a_key_precedes_that_of_its_class() {
        let [own, other] = [1, 2].map(ClientKey::from_credential);
        let units = Units::from_whole;
        let budget = Budget {
            per: BudgetKey::Customer,
            class_limits: [(ClassId(1), units(50))].into(),
            key_limits: [(own, units(7))].into(),
            class_keys: vec![ClientKey::of_class("a"), ClientKey::of_class("b")],
            max_keys: 10,
            has_metrics_by_key: false,
        };
        let limits = [(0, own), (1, own), (0, other), (1, other)]
            .map(|(class, key)| budget.limit(ClassId(class), key, units(100)).floor());
        assert_eq!(limits, [7, 7, 100, 50]);
        assert_eq!([6, 20, 100].map(|usual| budget.highest_limit(units(usual)).floor()), [50, 50, 100]);
        assert_eq!([6, 20, 100].map(|usual| budget.lowest_limit(units(usual)).floor()), [6, 7, 7]);
    }

    #[test]
    fn each_kind_of_budget_has_its_own_payer() {
        let payer = Payer { client: ClientKey::from_u64(1), customer: ClientKey::from_credential(2) };
        let key = |per| {
            let class_keys = vec![ClientKey::of_class("a"), ClientKey::of_class("b")];
            let (class_limits, key_limits) = (HashMap::new(), HashMap::new());
            Budget { per, class_limits, key_limits, class_keys, max_keys: 1, has_metrics_by_key: false }
                .key(ClassId(1), payer)
        };
        assert_eq!(key(BudgetKey::Client), payer.client);
        assert_eq!(key(BudgetKey::Customer), payer.customer);
        assert_eq!(key(BudgetKey::Class), ClientKey::of_class("b"));
        assert_ne!(ClientKey::of_class("a"), ClientKey::of_class("b"));
    }
}
