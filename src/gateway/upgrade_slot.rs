//! The slot of an upgraded connection: each holds a connection to the origin, and one HTTP/2 connection of a client has many.

use super::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_config::settings::Limits;
use tidegate_policy::identity::ClientKey;

/// Slot of an upgraded connection.
pub(super) struct UpgradeSlot {
    shared: Arc<Shared>,
    address: ClientKey,
}

impl UpgradeSlot {
    /// Takes a slot for a client at `address`; `None` if it, or all clients together, have too many.
    pub(super) fn try_acquire(shared: &Arc<Shared>, address: ClientKey, limits: &Limits) -> Option<Self> {
        if !shared.upgrade_counts.try_acquire(address, limits.max_upgrades_per_address) {
            return None;
        }
        let slot = Self { shared: Arc::clone(shared), address };
        (shared.upgrades.fetch_add(1, Ordering::Relaxed) < limits.max_upgrades).then_some(slot)
    }
}

impl Drop for UpgradeSlot {
    fn drop(&mut self) {
        self.shared.upgrades.fetch_sub(1, Ordering::Relaxed);
        self.shared.upgrade_counts.release(self.address);
    }
}
