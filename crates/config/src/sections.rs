//! Sections whose keys are declared once, as values with their defaults.

pub(super) mod limits;
