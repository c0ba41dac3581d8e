//! Costs that origins report in response bodies, such as `usage.total_tokens` of model APIs.
//!
//! A [`CostScanner`] receives a copy of each part of a body that passes, decodes it, and keeps the numbers at some
//! [`CostPaths`]. It never delays or holds the body, and its memory is bounded whatever the body contains. A body that it
//! cannot read yields a [`FoundCost`] that says why, never an error or a panic.
//!
//! [`scanner`] decodes a body ([`decoder`]) and divides it into documents ([`events`], [`lines`]); [`json`] finds the values of
//! the paths in each, and [`readings`] adds them up. Events and lines without the keys of such values are found by
//! [`key_search`], and skipped.
//!
//! What a request may cost is in its own body. [`RequestPaths`] reads the beginning of one, and says what of it is ambiguous.

mod decoder;
mod events;
mod form;
mod found_cost;
mod json;
mod key_search;
mod lines;
mod path;
mod path_set;
mod readings;
mod request;
mod scanner;

pub use form::BodyForm;
pub use found_cost::FoundCost;
pub use path::{CostPath, MAX_SEGMENT_LEN, MAX_SEGMENTS, ParseCostPathError};
pub use path_set::{CostPaths, CostPathsError, MAX_PATHS, WeightedPath};
pub use request::{RequestPaths, RequestValue, RequestValues, names_other_charset};
pub use scanner::{CostScanner, MAX_DECODED};
