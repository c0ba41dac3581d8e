//! The account of what has been bought and spent, beyond the life of a request.
//!
//! The engine asks [`crate::engine::Ledger`] on every decision and expects an answer from memory. [`Memory`] grants
//! the whole limit and forgets with the process; a durable ledger grants what it has leased ahead.

mod memory;
pub mod redis;
pub mod store;

pub use memory::Memory;
pub use redis::RedisStore;
pub use store::{Ask, Lease, Store, StoreError, WindowKey};
