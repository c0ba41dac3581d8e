//! What a policy would have done: the requests of a log through the very decision code of the gate, on a virtual clock.
//!
//! [`log`] reads lines, whatever wrote them.

pub mod log;
