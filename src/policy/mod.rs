//! Facts in, verdict out. Pure: no I/O, no clock, no locks, no chance.

pub mod facts;
pub mod time;

pub use facts::{BotId, Claim, Facts, OperatorId, Proof};
pub use time::Timestamp;
