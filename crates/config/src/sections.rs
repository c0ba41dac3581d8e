//! Sections whose keys are declared once, as values with their defaults.

pub(super) mod headers;
pub(super) mod limits;
