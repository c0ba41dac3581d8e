//! What a policy would have done: the requests of a log through the very decision code of the gate, on a virtual clock.
//!
//! [`log`] reads lines, whatever wrote them, in the order of time. [`Replay`] gives each to a [`Trial`], which judges it as
//! the gate would and holds what it was admitted for until its answer would have come. What a log cannot know is in
//! [`Assumptions`]. A [`report::Report`] says what came of it.

mod assumptions;
mod decided;
mod differences;
mod listener;
pub mod log;
pub mod page;
mod page_cache;
mod policy;
pub mod report;
mod request;
mod returns;
mod run;
mod sought;
pub mod summary;
mod tally;
mod testimony;
mod trial;
mod under_way;
mod untried;
mod verdicts;
mod zone;

pub use assumptions::{Assumptions, Clients};
pub use decided::Decided;
pub use listener::Asking;
pub use policy::Policy;
pub use request::Request;
pub use run::{Failed, Replay, Watcher};
pub use testimony::Testimony;
pub use trial::Trial;
