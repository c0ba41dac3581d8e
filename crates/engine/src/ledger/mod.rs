//! Durable record of leased and used units, beyond the life of a process.
//!
//! Requests are charged to leases in memory and never wait for a ledger. The [`LeaseRefresher`] requests leases from a
//! [`Store`] in advance, for all quotas in one call. A store records each lease before it returns it, so a crashed
//! instance cannot have taken more than is recorded.
//!
//! [`FileStore`] keeps the record of one instance in its state directory and computes leases in a [`LeaseTable`].
//! [`RedisStore`] runs a script in a server that several instances share.

mod file;
pub(crate) mod key_file;
mod key_files;
pub(crate) mod keyed_usage;
mod lease_refresher;
mod lease_table;
pub mod redis;
pub mod store;
#[cfg(test)]
mod tests;

pub use crate::ledger::file::open_error::OpenError;
pub use file::{FileStore, Uptime, boot_id};
pub(crate) use key_files::KeyFiles;
pub use key_files::LateKeyCharge;
pub use lease_refresher::{LeaseRefresher, WakeHandle};
pub use lease_table::{Holder, Holding, LeaseTable, PREVIOUS_INCARNATIONS};
pub use redis::RedisStore;
pub use store::{Lease, LeaseRequest, Store, StoreError, WindowKey};
