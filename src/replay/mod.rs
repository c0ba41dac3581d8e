//! What a policy would have done: the requests of a log through the very decision code of the gate, on a virtual clock.
//!
//! [`log`] reads lines, whatever wrote them, in the order of time. [`Replay`] gives each to a [`Simulator`], which judges it as
//! the gate would and holds what it was admitted for until its answer would have come. What a log cannot know is in
//! [`Assumptions`]. A [`report::Report`] says what came of it.

mod assumptions;
mod comparison;
mod decision;
mod display_zone;
mod in_flight;
pub mod log;
mod logged_evidence;
mod observer;
mod origin_cache;
pub mod page;
mod policy;
pub mod report;
mod request;
mod retry_queue;
mod run;
mod simulator;
mod stats;
pub mod summary;
mod unsupported;
mod until_line;
mod verdicts;

pub use assumptions::{Assumptions, RetryModel};
pub use decision::ReplayedDecision;
pub use logged_evidence::LoggedEvidence;
pub use observer::PendingRequest;
pub use policy::Policy;
pub use request::ReplayRequest;
pub use run::{Replay, ReplayError, Watcher};
pub use simulator::Simulator;
