//! Rules of HTTP caching (RFC 9111), as a cache that many clients share applies them, and of the fields around them. Pure: no
//! I/O, no clock, no locks.
//!
//! The life of a copy: [`request_fields`] says what a fetch may carry so that its response can be shared; [`storage`]
//! decides whether the response may be stored, and computes its [`ReuseTerms`] from the directives of the origin
//! ([`ResponseDirectives`]); [`vary`] says which request fields select it. A request then compares numbers
//! ([`ReuseTerms::reuse`]), and [`validation`] and [`range`] answer its conditions from the copy. A [`CacheStatus`] tells the
//! client what happened.
//!
//! [`Timestamp`] is here, and `tidegate_policy` names it, too, because the rules of a site build on these and not the reverse.

pub mod accepted_codings;
pub mod coding;
mod directives;
mod fields;
pub mod invalidation;
pub mod quoted;
pub mod range;
pub mod request_fields;
mod reuse;
mod status;
pub mod storage;
mod timestamp;
pub mod validation;
pub mod vary;

pub use directives::{RequestDirectives, ResponseDirectives};
pub use fields::FieldLines;
pub use reuse::{Reuse, ReuseTerms};
pub use status::{CacheResult, CacheStatus, ForwardReason, HitDetail};
pub use timestamp::Timestamp;

#[cfg(test)]
mod tests;
