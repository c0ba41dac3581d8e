//! Request fields that `Vary` has named on a route. They are sent from then on, so that the responses to the next
//! requests differ as the origin wants.

use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_policy::cache::vary::{MAX_SELECTING_FIELDS, SelectingFields};

/// Most routes with such fields.
const MAX_ROUTES: usize = 1000;

/// Fields by name of the route.
#[derive(Default)]
pub(in crate::gateway) struct NominatedFields(ArcSwap<BTreeMap<String, Vec<String>>>);

impl NominatedFields {
    /// Returns true if a response of the route named the field.
    pub(in crate::gateway) fn contains(&self, route: &str, name: &str) -> bool {
        self.0.load().get(route).is_some_and(|names| names.iter().any(|known| known == name))
    }

    /// Returns the names of all fields that responses of the route named.
    pub(in crate::gateway) fn names(&self, route: &str) -> Vec<String> {
        self.0.load().get(route).cloned().unwrap_or_default()
    }

    /// Records the fields that a response of the route named.
    pub(in crate::gateway) fn record(&self, route: &str, selected_by: &SelectingFields) {
        if selected_by.names().all(|name| self.contains(route, name)) {
            return;
        }
        self.0.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            if known.len() < MAX_ROUTES || known.contains_key(route) {
                let names = known.entry(route.to_owned()).or_default();
                let new: Vec<_> = selected_by.names().filter(|name| !names.iter().any(|known| known == name)).collect();
                names.extend(new.into_iter().map(str::to_owned));
                names.truncate(MAX_SELECTING_FIELDS);
            }
            Arc::new(known)
        });
    }
}
