//! Parts of a scope instance with limits of their own.

use super::ids::InstanceId;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_policy::throttle::ThrottleConfig;
use tidegate_policy::throttle::overload::{BackoffSubject, OverloadEvidence};

/// Overload of one scope instance, and the instances of its parts.
#[derive(Default)]
pub(super) struct Subjects {
    pub(super) evidence: OverloadEvidence,
    pub(super) instances: HashMap<BackoffSubject, InstanceId, RandomState>,
    /// Configuration of each client; the same as long as the slots of a client are.
    pub(super) client_config: Option<Arc<ThrottleConfig>>,
}

impl Subjects {
    /// Returns the number of parts for which `backs_off` returns true.
    pub(super) fn count_backoffs(&self, backs_off: impl Fn(InstanceId) -> bool) -> usize {
        self.instances.values().filter(|part| backs_off(**part)).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }
}
