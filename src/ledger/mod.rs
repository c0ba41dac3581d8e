//! The account of what has been bought and spent, beyond the life of a request and of a process.
//!
//! The engine takes from what its accounts hold and asks nobody. The [`LeaseRefresher`] sees to it that they hold something: it
//! asks a [`Store`] for leases ahead of the need, all accounts in one call. A store writes down what it hands out before
//! it does, so whatever dies, nobody can have taken more than is written.
//!
//! [`FileStore`] keeps the account of one gate in its state directory; [`MemoryStore`] that of several gates in one process. Both
//! do their arithmetic in a [`LeaseTable`]. [`RedisStore`] leaves it to a script in a server that several gates share.

mod file;
mod lease_refresher;
mod lease_table;
mod memory;
pub mod redis;
pub mod store;

#[cfg(test)]
mod tests;

pub use crate::ledger::file::open_error::OpenError;
pub use file::{FileStore, Uptime, boot_id};
pub use lease_refresher::{LeaseRefresher, WakeHandle};
pub use lease_table::{Holder, Holding, LeaseTable, PREVIOUS_INCARNATIONS};
pub use memory::MemoryStore;
pub use redis::RedisStore;
pub use store::{Lease, LeaseRequest, Store, StoreError, WindowKey};
