//! What a policy would have done: the requests of a log through the very decision code of the gate, on a virtual clock.
//!
//! [`log`] reads lines, whatever wrote them, in the order of time. [`Replay`] gives each to a [`Simulator`], which judges it as
//! the gate would and holds what it was admitted for until its answer would have come. What a log cannot know is in
//! [`Assumptions`]. A [`report::Report`] says what came of it.

mod assumptions;
mod decision;
mod comparison;
mod observer;
pub mod log;
pub mod page;
mod origin_cache;
mod policy;
pub mod report;
mod request;
mod retry_queue;
mod run;
mod until_line;
pub mod summary;
mod stats;
mod logged_evidence;
mod simulator;
mod in_flight;
mod unsupported;
mod verdicts;
mod display_zone;

pub use assumptions::{Assumptions, RetryModel};
pub use decision::ReplayedDecision;
pub use observer::PendingRequest;
pub use policy::Policy;
pub use request::ReplayRequest;
pub use run::{ReplayError, Replay, Watcher};
pub use logged_evidence::LoggedEvidence;
pub use simulator::Simulator;
