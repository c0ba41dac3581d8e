//! The slot of an upgraded connection: each holds a connection to the origin, and one HTTP/2 connection of a client has many.

use super::connection_limits::AddressGuard;
use crate::gateway::shared::Shared;
use crate::gateway::shared_count::CountGuard;
use tidegate_config::settings::Limits;
use tidegate_policy::identity::ClientKey;

/// Slot of an upgraded connection.
pub(in crate::gateway) struct UpgradeSlot {
    _address: AddressGuard,
    _count: CountGuard,
}

impl UpgradeSlot {
    /// Takes a slot for a client at `address`; `None` if it, or all clients together, have too many.
    pub(in crate::gateway) fn try_acquire(shared: &Shared, address: ClientKey, limits: &Limits) -> Option<Self> {
        let address = shared.upgrade_counts.try_add(address, limits.max_upgrades_per_address)?;
        let count = shared.upgrades.try_add(limits.max_upgrades)?;
        Some(Self { _address: address, _count: count })
    }
}
