//! Rules of the cache: RFC 9111 as a shared cache, and what a gateway adds to them.
//!
//! The life of a copy: [`request_fields`] says what a fetch may carry so that its response can be shared; [`storage`]
//! decides whether the response may be stored, and computes its [`ReuseTerms`] from the [`directives`] of the origin;
//! [`vary`] says which request fields select it. A request then compares numbers ([`reuse`]), and [`validation`] and
//! [`range`] answer its conditions from the copy. [`status`] tells the client what happened.

pub mod coding;
pub mod directives;
pub mod fields;
mod fill;
pub mod invalidation;
pub mod query_filter;
pub mod range;
pub mod request_fields;
pub mod reuse;
mod rules;
pub mod status;
pub mod storage;
pub mod validation;
pub mod vary;

pub use directives::{RequestDirectives, ResponseDirectives};
pub use fields::FieldLines;
pub use fill::CacheFill;
pub use reuse::{Reuse, ReuseTerms};
pub use rules::{CacheRules, ReloadPolicy, RouteCacheRules};
pub use status::{CacheResult, CacheStatus, ForwardReason, HitDetail};
pub use storage::Unstorable;

#[cfg(test)]
mod tests;
