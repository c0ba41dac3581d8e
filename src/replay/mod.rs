//! What a policy would have done: the requests of a log through the very decision code of the gate, on a virtual clock.
//!
//! [`log`] reads lines, whatever wrote them, in the order of time. [`Replay`] gives each to a [`Trial`], which judges it as
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

pub use assumptions::{Assumptions, Clients};
pub use decision::Decided;
pub use observer::Asking;
pub use policy::Policy;
pub use request::Request;
pub use run::{Failed, Replay, Watcher};
pub use logged_evidence::Testimony;
pub use simulator::Trial;
