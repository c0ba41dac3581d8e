//! Replays the requests of a log through the decision code of the gateway, on a virtual clock.
//!
//! [`log`] reads lines of all formats in the order of time. [`Replay`] passes each line to a [`Simulator`], which
//! decides like the gateway and holds the reservation until the response would be complete. [`Assumptions`] replace
//! facts that the log lacks. A [`report::Report`] contains the results.

mod assumptions;
mod budget_text;
mod cache_text;
mod comparison;
mod decision;
mod display_zone;
mod evidence;
pub mod explain;
mod format;
mod in_flight;
pub mod init;
pub mod learn;
mod learned_state;
pub mod log;
mod log_span;
mod observer;
mod origin_cache;
pub mod page;
mod page_hash;
mod policy;
pub mod report;
mod request;
mod response_cache;
mod response_store;
mod retry_queue;
mod run;
pub(crate) mod serialize;
mod simulator;
mod spike_text;
mod stats;
pub mod summary;
pub mod terminal;
pub mod tune;
mod unsupported;
mod until_line;
mod verdicts;

pub use assumptions::{Assumptions, RetryModel};
pub use decision::ReplayedDecision;
pub use learned_state::LearnedState;
pub use observer::PendingRequest;
pub use policy::Policy;
pub use request::ReplayRequest;
pub use run::{LogLearning, Replay, ReplayError};
pub use simulator::Simulator;
