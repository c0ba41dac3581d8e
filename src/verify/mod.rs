//! Proof that a crawler is whose it claims to be.
//!
//! So far from published address ranges alone, which cost no waiting. Reverse and forward DNS, and signed requests,
//! come beside `ranges` and in the background: their results arrive as facts, never on a request's own path.
//!
//! The table of operators is here, because it says what proves what. The product tokens in it are handed to `agents`
//! by whoever builds both; neither module knows the other.

pub mod fetch;
mod operators;
mod ranges;

pub use operators::{Mistake, Operators};
