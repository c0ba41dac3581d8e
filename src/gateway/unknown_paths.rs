//! Requests for paths whose cost is unknown, while a quota is nearly spent.
//!
//! Such a request may exceed the limit, and nothing is reserved for it. Of each shape of a path, only one is in flight, and
//! few of all; others wait for its response, which says what the shape costs.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_policy::path_shape::PathShape;
use tokio::sync::Notify;

/// Most requests at once.
const MAX_IN_FLIGHT: usize = 8;

/// Shapes of the requests in flight.
#[derive(Default)]
pub(super) struct UnknownPaths {
    in_flight: Mutex<BTreeSet<PathShape>>,
    /// Notified when one has its response, or ends without.
    pub(super) ended: Notify,
}

/// A request for a path whose cost is unknown, until dropped.
pub(super) struct UnknownPathGuard {
    paths: Arc<UnknownPaths>,
    shape: PathShape,
}

impl UnknownPaths {
    /// Lets a request pass; `None` while another one of its shape is in flight, or too many are.
    pub(super) fn enter(self: &Arc<Self>, shape: PathShape) -> Option<UnknownPathGuard> {
        let mut in_flight = self.in_flight.lock();
        let may_enter = in_flight.len() < MAX_IN_FLIGHT && in_flight.insert(shape);
        may_enter.then(|| UnknownPathGuard { paths: Arc::clone(self), shape })
    }
}

impl Drop for UnknownPathGuard {
    fn drop(&mut self) {
        self.paths.in_flight.lock().remove(&self.shape);
        self.paths.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_a_shape_and_few_in_all_are_in_flight() {
        let paths = Arc::new(UnknownPaths::default());
        let enter = |path: &str| paths.enter(PathShape::new(path));
        let first = enter("/search");
        assert!(first.is_some() && enter("/Search/").is_none());
        let others: Vec<_> = ('a'..).map(|name| enter(&format!("/{name}"))).take(MAX_IN_FLIGHT).collect();
        assert_eq!(others.iter().flatten().count(), MAX_IN_FLIGHT - 1);
        drop(first);
        assert!(enter("/search").is_some());
    }
}
