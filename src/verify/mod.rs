//! Proof that a crawler is whose it claims to be.
//!
//! From published address ranges, and from signatures on requests. What has to be fetched for either is fetched in the
//! background: results arrive as facts, and no request waits for them.
//!
//! The table of operators is here, because it says what proves what. The product tokens in it are handed to `agents`
//! by whoever builds both; neither module knows the other.

pub mod fetch;
mod operators;
mod ranges;
pub mod signature;

pub use operators::{Mistake, Operators};
